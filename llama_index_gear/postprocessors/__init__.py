"""Graph expansion behind LlamaIndex's node postprocessor interface."""
