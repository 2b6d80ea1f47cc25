"""OpenVINO and a tokenizer, which turn texts into vectors, and the graph of a BERT encoder with its pooling."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_index_gear.errors import ArgumentError, GeARError, MissingPackage
from llama_index_gear.resources import free_in_child

Weights = Mapping[str, NDArray[Any]]
"""Arrays by the names that Transformers gives them, "embeddings.LayerNorm.weight" and the like.

Those that are looked up may be whole numbers, with a factor a row beside them: "embeddings.word_embeddings.scale".
"""

_MASKED = np.float32(3e38)


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The settings of a BERT encoder that embeds texts.

    Attributes:
        layers: number of its layers.
        heads: number of heads of each layer's attention.
        width: length of a vector.
        epsilon: of the layers' normalization.
        limit: number of tokens of a text that it reads.
        pooling: "mean" of the tokens' vectors, or that of the first, "cls".
        normalizes: its vectors have the length 1.
        lowers: it reads texts in lower case.

    """

    layers: int
    heads: int
    width: int
    epsilon: float
    limit: int
    pooling: str
    normalizes: bool
    lowers: bool


class _Layers:
    """Builds the parts of a graph, each from its input and the name of its weights."""

    def __init__(self, settings: ModelSettings, weights: Weights, ops: Any) -> None:
        self._settings, self._weights, self._ops = settings, weights, ops

    def constant(self, value: Any) -> Any:
        return self._ops.constant(np.asarray(value, order="C"))

    def weight(self, name: str) -> Any:
        return self.constant(self._weights[name])

    def look_up(self, name: str, rows: Any) -> Any:
        found = self._ops.gather(self.weight(f"{name}.weight"), rows, self.constant(0))
        if f"{name}.scale" not in self._weights:
            return found
        scale = self._ops.gather(self.weight(f"{name}.scale"), rows, self.constant(0))
        return self._ops.multiply(self._ops.convert(found, "f32"), scale)

    def normalize(self, x: Any, name: str) -> Any:
        scaled = self._ops.mvn(x, self.constant([-1]), True, self._settings.epsilon, "inside_sqrt")
        return self._ops.add(self._ops.multiply(scaled, self.weight(f"{name}.weight")), self.weight(f"{name}.bias"))

    def connect(self, x: Any, name: str) -> Any:
        product = self._ops.matmul(x, self.weight(f"{name}.weight"), False, True)
        return self._ops.add(product, self.weight(f"{name}.bias"))

    def attend(self, x: Any, name: str, mask: Any) -> Any:
        heads, width = self._settings.heads, self._settings.width
        shape, order = self.constant([0, 0, heads, width // heads]), self.constant([0, 2, 1, 3])
        query, key, value = (
            self._ops.transpose(self._ops.reshape(self.connect(x, f"{name}.self.{part}"), shape, True), order)
            for part in ("query", "key", "value")
        )
        read = self._ops.transpose(self._ops.scaled_dot_product_attention(query, key, value, mask), order)
        return self.connect(self._ops.reshape(read, self.constant([0, 0, width]), True), f"{name}.output.dense")

    def add_layer(self, x: Any, name: str, mask: Any) -> Any:
        attended = self.attend(x, f"{name}.attention", mask)
        x = self.normalize(self._ops.add(attended, x), f"{name}.attention.output.LayerNorm")
        wide = self._ops.gelu(self.connect(x, f"{name}.intermediate.dense"), "erf")
        return self.normalize(self._ops.add(self.connect(wide, f"{name}.output.dense"), x), f"{name}.output.LayerNorm")


def build_graph(settings: ModelSettings, weights: Weights) -> Any:
    """Return an OpenVINO model from token ids and mask, each of texts × tokens, to a vector a text.

    Args:
        settings: of the model.
        weights: of the model.

    Raises:
        KeyError: a weight is missing; it names it.

    """
    import openvino
    from openvino import opset15 as ops

    layers = _Layers(settings, weights, ops)
    constant = layers.constant
    ids = ops.parameter([-1, -1], np.int64, name="ids")
    mask = ops.parameter([-1, -1], np.float32, name="mask")
    length = ops.gather(ops.shape_of(ids), constant(1), constant(0))
    places = ops.range(constant(np.int64(0)), length, constant(np.int64(1)), "i64")
    words = layers.look_up("embeddings.word_embeddings", ids)
    positions = layers.look_up("embeddings.position_embeddings", places)
    kind = constant(weights["embeddings.token_type_embeddings.weight"][0])
    x = layers.normalize(ops.add(ops.add(words, positions), kind), "embeddings.LayerNorm")
    hidden = ops.multiply(ops.subtract(mask, constant(np.float32(1))), constant(_MASKED))
    for number in range(settings.layers):
        x = layers.add_layer(x, f"encoder.layer.{number}", ops.unsqueeze(hidden, constant([1, 2])))
    if settings.pooling == "cls":
        vectors = ops.gather(x, constant(0), constant(1))
    else:
        share = ops.unsqueeze(ops.divide(mask, ops.reduce_sum(mask, constant([1]), True)), constant(2))
        vectors = ops.reduce_sum(ops.multiply(x, share), constant([1]))
    if settings.normalizes:
        vectors = ops.normalize_l2(vectors, constant([1]), 1e-24, "max")
    return openvino.Model([vectors], [ids, mask], "bert")


_TOKENS_AT_ONCE = 1_024  # more of them no longer fit into a processor's cache
_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
_TELEMETRY = "openvino_telemetry"


def import_openvino() -> ModuleType:
    """Import OpenVINO without its telemetry, which would report the import to its makers.

    Raises:
        MissingPackage: it is not installed.

    """
    if sys.modules.get("openvino") is None:
        known = sys.modules.get(_TELEMETRY)
        sys.modules[_TELEMETRY] = None  # type: ignore[assignment]  # so that it takes its own stub
        try:
            importlib.import_module("openvino")
        except ModuleNotFoundError as error:
            raise MissingPackage.of_extra("openvino", "offline") from error
        finally:
            del sys.modules[_TELEMETRY]
            if known is not None:
                sys.modules[_TELEMETRY] = known
    return sys.modules["openvino"]


def open_core() -> Any:
    """Return this process's OpenVINO core. It has one, which never ends.

    A core takes the place of the thread's stack for signals. Processes whose core had ended were seen to die at Ctrl-C.

    Raises:
        MissingPackage: it is not installed.

    """
    return _make_core(import_openvino())


@cache
def _make_core(openvino: ModuleType) -> Any:
    return openvino.Core()


class Runtime:
    """A model that is ready to embed. Several threads may use it, by turns.

    Args:
        tokenizer: file of the tokenizer.
        settings: of the model.
        weights: of the model.

    Raises:
        MissingPackage: OpenVINO or `tokenizers` is not installed.
        ArgumentError: the weights are not those of such a model.

    """

    def __init__(self, tokenizer: Path, settings: ModelSettings, weights: Weights) -> None:
        core = open_core()
        try:
            from tokenizers import Tokenizer
        except ModuleNotFoundError as error:
            raise MissingPackage.of_extra("tokenizers", "offline") from error
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._settings = settings
        self._turn = free_in_child(threading.Lock())
        try:
            graph = build_graph(settings, weights)
        except (KeyError, RuntimeError) as error:
            raise ArgumentError(f"the weights beside {tokenizer} are not those of its config.json: {error}") from error
        with _without_limits():
            compiled = core.compile_model(graph, "CPU", {"PERFORMANCE_HINT": "LATENCY"})
            self._request = compiled.create_infer_request()
            self.embed([""])

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts, a row a text.

        Raises:
            GeARError: OpenVINO computes no vectors on this processor.

        """
        tokens = [self._cut(ids) for ids in self._encode(texts)]
        vectors = np.empty((len(texts), self._settings.width), np.float32)
        with self._turn:
            for rows in _group(tokens):
                vectors[rows] = self._infer([tokens[row] for row in rows])
        return vectors

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text, those included that the model does not read."""
        return [len(ids) for ids in self._encode(texts)]

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        lowered = [text.lower() for text in texts] if self._settings.lowers else list(texts)
        return [encoding.ids for encoding in self._tokenizer.encode_batch(lowered)]

    def _cut(self, ids: list[int]) -> list[int]:
        """Cut a text's tokens off at the limit; the last one is a mark that stays."""
        limit = self._settings.limit
        return ids if len(ids) <= limit else [*ids[: limit - 1], ids[-1]]

    def _infer(self, tokens: Sequence[list[int]]) -> NDArray[np.float32]:
        ids = np.zeros((len(tokens), max(map(len, tokens))), np.int64)
        mask = np.zeros(ids.shape, np.float32)
        for row, text in enumerate(tokens):
            ids[row, : len(text)], mask[row, : len(text)] = text, 1
        vectors: NDArray[np.float32] = self._request.infer([ids, mask])[0]
        if vectors.shape != (len(tokens), self._settings.width) or not np.isfinite(vectors).all():
            raise GeARError(
                "OpenVINO computes no vectors here: unset ONEDNN_MAX_CPU_ISA, if it is set; else take "
                "HuggingFaceEmbedding (pip install 'llama-index-gear[huggingface]')"
            )
        return vectors


def _group(tokens: Sequence[list[int]]) -> Iterator[list[int]]:
    """Group texts of like length into batches, as lists of positions."""
    batch: list[int] = []
    for place in sorted(range(len(tokens)), key=lambda place: len(tokens[place])):
        if batch and (len(batch) + 1) * len(tokens[place]) > _TOKENS_AT_ONCE:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


@contextmanager
def _without_limits() -> Iterator[None]:
    """Hide oneDNN's variables, which it reads once: with kernels older than the processor OpenVINO returns nothing."""
    hidden = {name: os.environ.pop(name) for name in _LIMITS if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)
