"""Other papers' retrievers, as LlamaIndex retrievers."""
