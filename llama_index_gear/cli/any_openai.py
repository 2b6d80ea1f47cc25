"""LlamaIndex's OpenAI client, for any server with OpenAI's protocol."""

from llama_index.core.llms import LLMMetadata
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
