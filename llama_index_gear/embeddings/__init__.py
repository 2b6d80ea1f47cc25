"""Embedding models that run in this process, without PyTorch."""
