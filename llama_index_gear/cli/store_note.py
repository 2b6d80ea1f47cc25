"""The note beside a store: the model that filled it, and its files. Nothing here takes seconds to import.

The vector of a known text tells one embedding model from another.
"""

from __future__ import annotations

import base64
import json
import math
import shlex
from array import array
from dataclasses import asdict, dataclass, replace
from operator import mul
from pathlib import Path
from typing import TYPE_CHECKING

from click import ClickException

from llama_index_gear.ingestion.regular_files import NOTE, UnreadableFile, is_collection, read_file
from llama_index_gear.store.embedded.durable import write_whole

if TYPE_CHECKING:
    from llama_index.core.base.embeddings.base import BaseEmbedding

Vector = list[int]
"""A vector in whole numbers, from -127 to 127."""

EMBEDDING = "sentence-transformers/all-MiniLM-L6-v2"
"""Name of the default embedding model. The extra `offline` carries it: then nothing is downloaded."""
_MOST = 10**6  # bytes of a note
_TEXT = "Marie Curie, born in Warsaw, discovered polonium together with her husband Pierre."
_AGREE = 0.99  # cosine: weights in whole numbers, and sums in half precision, reach 0.999


@dataclass(frozen=True)
class StoreNote:
    """The note that stands beside a store.

    Attributes:
        embed_model: name or folder of the model that embeds passages and questions.
        files: the folder whose files are stored; empty if they are of a collection.
        collection: the Qdrant collection whose passages are stored; empty if they are of files.
        llm: name of the model that extracted the triples; empty if rules did.
        probe: the embedding model's vector of a known text; empty until it is made.
        limit: number of tokens that the embedding model reads; 0 if it is not known.

    """

    embed_model: str
    files: str = ""
    collection: str = ""
    llm: str = ""
    probe: str = ""
    limit: int = 0


def read_note(folder: Path) -> StoreNote | None:
    """Read the note of a store's folder; None if there is none.

    Raises:
        ClickException: it can't be read.

    """
    path = folder / NOTE
    try:
        values = json.loads(read_file(path, _MOST))
        texts = {key: str(values[key]) for key in ("embed_model", "files", "collection", "llm", "probe")}
        return StoreNote(**texts, limit=int(values["limit"]))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, RecursionError, UnreadableFile) as error:
        raise ClickException(f"{path} is damaged: delete {folder}, and fill the store again") from error


def write_note(folder: Path, note: StoreNote) -> None:
    """Write the note: whole, or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    content = f"{json.dumps(asdict(note), indent=2)}\n".encode()
    write_whole(folder / NOTE, lambda file: file.write(content), folder / f"{NOTE}.tmp")


def drop_note(folder: Path) -> None:
    """Delete the note of a run that stored nothing: its model may have been the wrong one."""
    (folder / NOTE).unlink(missing_ok=True)


def describe_collection(name: str, place: str) -> str:
    """Return what a note says of a Qdrant collection."""
    return f"{name} at {place}"


def explain_no_store(folder: Path) -> ClickException:
    """Return the error of a folder without a store."""
    return ClickException(f"no store in {folder}: fill one with `llama-index-gear index DIR --store {folder}`")


def holds_collections(folder: Path) -> bool:
    """Return True if a store has made a collection in a folder. The store is not opened."""
    return folder.is_dir() and any(map(is_collection, folder.iterdir()))


def resolve_embedding(name: str) -> str:
    """Return the name to remember of an embedding model: a folder's full path, else the name itself."""
    folder = Path(name).expanduser()
    return str(folder.resolve()) if folder.is_dir() else name


def choose_embedding(folder: Path, name: str | None) -> str:
    """Return the name of the embedding model for a store: the one that filled it.

    Args:
        folder: of the store.
        name: given on the command line, if one is.

    Raises:
        ClickException: another model filled the store.

    """
    note = read_note(folder)
    chosen = None if name is None else resolve_embedding(name)
    if note is None:
        return chosen or EMBEDDING
    if chosen not in (None, note.embed_model):
        raise ClickException(
            f"{folder} was filled with the embedding model {note.embed_model!r}: leave --embed out, or take another "
            "--store"
        )
    return note.embed_model


def add_probe(note: StoreNote, model: BaseEmbedding, vector: Vector | None = None) -> StoreNote:
    """Return a note that tells the model's vector of the known text, and its limit.

    Args:
        note: of the store.
        model: the model.
        vector: of the known text, if it has been made.

    """
    vector = _embed(model) if vector is None else vector
    return replace(note, probe=base64.b85encode(array("b", vector)).decode(), limit=_read_limit(model))


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
    stored = array("b", base64.b85decode(note.probe)).tolist()
    made = _embed(model)
    if (
        len(stored) != len(made)
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
    vector = model.get_query_embedding(_TEXT)
    most = max(map(abs, vector)) or 1
    return [round(127 * value / most) for value in vector]


def _read_limit(model: BaseEmbedding) -> int:
    """Return the number of tokens that a model reads; 0 if it does not tell."""
    limit = getattr(model, "max_length", None)
    return limit if isinstance(limit, int) else 0


def _compare(one: Vector, other: Vector) -> float:
    """Return the cosine of two vectors."""
    return float(sum(map(mul, one, other)) / (math.hypot(*one) * math.hypot(*other) or 1))
