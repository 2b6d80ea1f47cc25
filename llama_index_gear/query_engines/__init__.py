"""The agents behind LlamaIndex's query engine interface."""
