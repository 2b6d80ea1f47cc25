"""Calls of language models: clients, prompts, and parsers for replies."""
