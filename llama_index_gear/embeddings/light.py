"""`LightEmbedding`: an embedding model on the disk, run by OpenVINO."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import ConfigDict, PrivateAttr

from llama_index_gear.embeddings import minilm
from llama_index_gear.embeddings.model_folder import TOKENIZER, read_folder, read_weights
from llama_index_gear.embeddings.runtime import Runtime
from llama_index_gear.errors import GeARError, read_path

_TOLERANCE = 0.01


class LightEmbedding(BaseEmbedding):
    """Embeds texts in this process, without PyTorch and without a download.

    It needs the extra `offline`. Its vectors agree with those of sentence-transformers. OpenVINO's report of its use
    is not sent.

        LightEmbedding()                      # all-MiniLM-L6-v2, from the extra
        LightEmbedding("./bge-small-en-v1.5")  # a folder, as sentence-transformers' save_pretrained writes it

    Args:
        model_name: folder of a BERT encoder with mean or cls pooling. Default: all-MiniLM-L6-v2.
        query_instruction: text to put before a question. Default None: none.
        text_instruction: text to put before a passage. Default None: none.
        embed_batch_size: texts that LlamaIndex hands over at once. They are computed in batches of like length. Default
            64.

    Raises:
        MissingPackage: the extra `offline` is not installed.
        ArgumentError: the folder holds no such model.
        GeARError: OpenVINO computes no vectors, or wrong ones, on this processor.

    """

    model_config = ConfigDict(extra="forbid")

    max_length: int = 0
    query_instruction: str | None = None
    text_instruction: str | None = None
    _runtime: Runtime | None = PrivateAttr(default=None)

    def __init__(
        self,
        model_name: str | Path = minilm.NAME,
        *,
        query_instruction: str | None = None,
        text_instruction: str | None = None,
        embed_batch_size: int = 64,
        **arguments: Any,
    ) -> None:
        arguments |= {"query_instruction": query_instruction, "text_instruction": text_instruction}
        super().__init__(model_name=str(model_name), embed_batch_size=embed_batch_size, **arguments)
        self._load()

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serializes the model."""
        return "LightEmbedding"

    def count_tokens(self, texts: list[str]) -> list[int]:
        """Return the number of tokens of each text; the model reads the first `max_length`."""
        return self._load().count_tokens(texts)

    def _load(self) -> Runtime:
        """Return the runtime. A copy that was pickled starts without one."""
        if self._runtime is None:
            is_default = self.model_name == minilm.NAME
            folder = read_folder(minilm.FOLDER if is_default else read_path(model_name=self.model_name))
            weights = minilm.read_weights() if is_default else read_weights(folder.encoder)
            runtime = Runtime(folder.encoder / TOKENIZER, folder.settings, weights)
            if is_default:
                _check(runtime)
            self.max_length, self._runtime = folder.settings.limit, runtime
        return self._runtime

    def _embed(self, texts: list[str], instruction: str | None) -> list[list[float]]:
        return self._load().embed([(instruction or "") + text for text in texts]).tolist()  # type: ignore[no-any-return]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._embed([query], self.query_instruction)[0]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._embed([text], self.text_instruction)[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._embed(texts, self.text_instruction)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)


def _check(runtime: Runtime) -> None:
    """Compare the vector of a known text with what it should be.

    Raises:
        GeARError: they differ.

    """
    text, expected = minilm.PROBE
    if not np.allclose(runtime.embed([text])[0, : len(expected)], expected, atol=_TOLERANCE):
        raise GeARError(
            "OpenVINO computes wrong vectors on this processor: take HuggingFaceEmbedding (pip install "
            "'llama-index-gear[huggingface]')"
        )
