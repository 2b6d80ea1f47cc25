"""Fakes for tests of code that uses this package: a scripted language model, and a transparent embedding."""

from llama_index_gear.testing.fakes import Reply, ScriptedLLM, WordEmbedding

__all__ = ["Reply", "ScriptedLLM", "WordEmbedding"]
