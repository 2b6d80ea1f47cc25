"""The note beside a store: which model filled it, from which files. Nothing here takes seconds to import."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from click import ClickException

from llama_index_gear.ingestion.regular_files import NOTE, UnreadableFile, is_collection, read_file

EMBEDDING = "sentence-transformers/all-MiniLM-L6-v2"
"""Name of the default embedding model. The extra `offline` carries it: then nothing is downloaded."""
_MOST = 10**6  # bytes of a note


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
    draft = folder / f"{NOTE}.tmp"
    draft.write_text(json.dumps(asdict(note), indent=2) + "\n", "utf-8")
    draft.replace(folder / NOTE)


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
