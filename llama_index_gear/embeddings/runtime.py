"""OpenVINO and a tokenizer, which turn texts into vectors."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_index_gear.embeddings.bert import Weights, build_graph
from llama_index_gear.embeddings.model_folder import ModelSettings
from llama_index_gear.errors import ArgumentError, GeARError, MissingPackage
from llama_index_gear.resources import free_in_child

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
