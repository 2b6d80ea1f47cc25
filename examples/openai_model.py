"""The language model of the examples and benchmarks: any that speaks OpenAI's protocol, named by the environment."""

from __future__ import annotations

import os

from llama_index.core.llms import LLM, LLMMetadata
from llama_index.llms.openai import OpenAI


class AnyOpenAI(OpenAI):
    """LlamaIndex's OpenAI client for models whose names LlamaIndex doesn't know."""

    @property
    def metadata(self) -> LLMMetadata:
        """The model's description for LlamaIndex."""
        try:
            return super().metadata
        except ValueError:
            return LLMMetadata(model_name=self.model, is_chat_model=True, is_function_calling_model=False)


def language_model() -> LLM | None:
    """Return the model that the environment names, or None without OPENAI_API_KEY."""
    if not os.environ.get("OPENAI_API_KEY"):
        return None
    name = os.environ.get("OPENAI_MODEL", "gpt-4o-mini")
    # A local model may take minutes for a page. The limit of tokens ends a reply that repeats itself.
    return AnyOpenAI(
        model=name, api_base=os.environ.get("OPENAI_BASE_URL"), temperature=0.0, max_tokens=2048, timeout=900.0
    )
