"""Vectors that are computed once in a run of tests."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@contextmanager
def keep_vectors(kind: type[Any], folder: Path) -> Iterator[None]:
    """Have a class of embedding models embed each text once, while the context is open.

    The vectors are kept in a folder, where other processes find them.
    """
    embed: Callable[..., list[list[float]]] = kind._embed
    folder.mkdir(exist_ok=True)

    def place(model: Any, prompt_name: str | None, text: str) -> Path:
        words = repr((kind.__name__, model.model_name, prompt_name, text))
        return folder / hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()

    def compute(model: Any, texts: Sequence[str], prompt_name: str | None) -> None:
        for text, vector in zip(texts, embed(model, list(texts), prompt_name), strict=True):
            path = place(model, prompt_name, text)
            unfinished = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
            np.array(vector).tofile(unfinished)
            unfinished.replace(path)

    def embed_new(model: Any, inputs: list[str], prompt_name: str | None = None) -> list[list[float]]:
        if new := [text for text in dict.fromkeys(inputs) if not place(model, prompt_name, text).exists()]:
            compute(model, new, prompt_name)
        return [np.fromfile(place(model, prompt_name, text)).tolist() for text in inputs]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "_embed", embed_new)
        yield
