"""The methods behind LlamaIndex's retriever interface."""
