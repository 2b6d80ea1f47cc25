"""The language model of the examples and benchmarks: whichever speaks OpenAI's protocol, named by the environment."""

from __future__ import annotations

import os

from llama_index.core.llms import LLM, LLMMetadata
from llama_index.llms.openai import OpenAI


class AnyOpenAI(OpenAI):
    """OpenAI's protocol with a model name that LlamaIndex needn't know."""

    @property
    def metadata(self) -> LLMMetadata:
        """What LlamaIndex wants to know of a model."""
        try:
            return super().metadata
        except ValueError:
            return LLMMetadata(model_name=self.model, is_chat_model=True, is_function_calling_model=False)


def language_model() -> LLM | None:
    """The model that the environment names, if any."""
    if not os.environ.get("OPENAI_API_KEY"):
        return None
    name = os.environ.get("OPENAI_MODEL", "gpt-4o-mini")
    # A model on one's own machine may take minutes for a page, and one that repeats itself must come to an end.
    return AnyOpenAI(
        model=name, api_base=os.environ.get("OPENAI_BASE_URL"), temperature=0.0, max_tokens=2048, timeout=900.0
    )
