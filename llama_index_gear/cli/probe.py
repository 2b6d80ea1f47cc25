"""The vector of a known text, by which a store's note tells one embedding model from another."""

from __future__ import annotations

import base64
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
from click import ClickException
from llama_index.core.base.embeddings.base import BaseEmbedding
from numpy.typing import NDArray

from llama_index_gear.cli.store_note import StoreNote, read_note, write_note

Vector = NDArray[np.int8]

_TEXT = "Marie Curie, born in Warsaw, discovered polonium together with her husband Pierre."
_AGREE = 0.99  # cosine: weights in whole numbers, and sums in half precision, reach 0.999


def add_probe(note: StoreNote, model: BaseEmbedding, vector: Vector | None = None) -> StoreNote:
    """Return a note that tells the model's vector of the known text, and its limit.

    Args:
        note: of the store.
        model: the model.
        vector: of the known text, if it has been made.

    """
    vector = _embed(model) if vector is None else vector
    return replace(note, probe=base64.b85encode(vector.tobytes()).decode(), limit=_read_limit(model))


def renew_probe(folder: Path, model: BaseEmbedding) -> None:
    """Write the model's vector of the known text into a store's note, if there is one: it made all vectors anew."""
    if (note := read_note(folder)) is not None:
        write_note(folder, add_probe(note, model))


def check_probe(folder: Path, model: BaseEmbedding) -> Vector | None:
    """Refuse a model whose vectors differ from those of the model that filled a store.

    Vectors differ by weights and pooling; long texts' vectors by the limit too.

    Returns:
        The model's vector of the known text; None if there is no note.

    Raises:
        ClickException: they differ.

    """
    note = read_note(folder)
    if note is None:
        return None
    stored = np.frombuffer(base64.b85decode(note.probe), np.int8)
    made = _embed(model)
    if (
        stored.shape != made.shape
        or _compare(stored, made) < _AGREE
        or (note.limit and note.limit != (_read_limit(model) or note.limit))
    ):
        raise ClickException(
            f"{note.embed_model!r} now makes other vectors than when it filled {folder}: its weights, pooling or limit "
            f"have changed. Take the former model; or have all vectors made again, by `llama-index-gear repair "
            f"--reembed --store {shlex.quote(str(folder))}`"
        )
    return made


def _embed(model: BaseEmbedding) -> Vector:
    vector = np.asarray(model.get_query_embedding(_TEXT))
    return np.round(vector / (np.abs(vector).max() or 1) * 127).astype(np.int8)


def _read_limit(model: BaseEmbedding) -> int:
    """Return the number of tokens that a model reads; 0 if it does not tell."""
    limit = getattr(model, "max_length", None)
    return limit if isinstance(limit, int) else 0


def _compare(one: Vector, other: Vector) -> float:
    """Return the cosine of two vectors."""
    left, right = one.astype(float), other.astype(float)
    return float(left @ right / (np.linalg.norm(left) * np.linalg.norm(right) or 1))
