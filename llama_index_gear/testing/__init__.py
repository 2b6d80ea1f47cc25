"""For tests of code that uses this package: a scripted language model, an embedding one can reason about."""

from llama_index_gear.testing.fakes import Reply, ScriptedLLM, WordEmbedding

__all__ = ["Reply", "ScriptedLLM", "WordEmbedding"]
