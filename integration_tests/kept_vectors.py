"""Vectors that are computed once in a run of tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def keep_vectors(kind: type[Any]) -> Iterator[None]:
    """Have a class of embedding models embed each text once, while the context is open."""
    kept = dict[tuple[Any, ...], list[float]]()
    embed: Callable[..., list[list[float]]] = kind._embed

    def embed_new(model: Any, inputs: list[str], prompt_name: str | None = None) -> list[list[float]]:
        keys = [(model.model_name, prompt_name, text) for text in inputs]
        new = [key for key in dict.fromkeys(keys) if key not in kept]
        kept.update(zip(new, embed(model, [key[-1] for key in new], prompt_name) if new else [], strict=True))
        return [list(kept[key]) for key in keys]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "_embed", embed_new)
        yield
