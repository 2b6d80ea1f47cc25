"""Retrievers: the package's methods behind LlamaIndex's retriever interface."""
