"""The language model of the examples and benchmarks: any that speaks OpenAI's protocol, named by the environment."""

from __future__ import annotations

from llama_index.core.llms import LLM

from llama_index_gear.cli.models import open_llm


def language_model() -> LLM | None:
    """Return the model that the environment names, as the command line does; None if it names none."""
    return open_llm()
