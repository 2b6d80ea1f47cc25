"""The folder of a store, with a note beside the store: which model filled it, from which files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from click import ClickException, echo

from llama_index_gear import GeARVectorStore
from llama_index_gear.cli.models import EMBEDDING, load_embedding, resolve_embedding

_NOTE = "index.json"


@dataclass(frozen=True)
class StoreNote:
    """The note that stands beside a store.

    Attributes:
        embed_model: name or folder of the model that embeds passages and questions.
        files: the folder whose files are stored; empty if they are of a collection.
        collection: the Qdrant collection whose passages are stored; empty if they are of files.

    """

    embed_model: str
    files: str = ""
    collection: str = ""


def read_note(folder: Path) -> StoreNote | None:
    """Read the note of a store's folder; None if there is none.

    Raises:
        ClickException: it can't be read.

    """
    path = folder / _NOTE
    try:
        values = json.loads(path.read_text("utf-8"))
        return StoreNote(str(values["embed_model"]), str(values["files"]), str(values.get("collection", "")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise ClickException(f"{path} is damaged: delete {folder}, and fill the store again") from error


def write_note(folder: Path, note: StoreNote) -> None:
    """Write the note: whole, or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"{_NOTE}.tmp"
    draft.write_text(json.dumps(asdict(note), indent=2) + "\n", "utf-8")
    draft.replace(folder / _NOTE)


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


def check_files(folder: Path, files: Path) -> None:
    """Refuse to bring a store to the files of a folder, if it holds others.

    A folder that was moved is taken: files are known by their paths below it.

    Raises:
        ClickException: the store was filled from another folder that is still there, or by another program.

    """
    if not _holds_store(folder):
        _drop_note(folder)
        return
    note = read_note(folder)
    if note is None:
        raise ClickException(f"the store in {folder} was not filled by `index`: take another --store")
    if note.collection:
        raise ClickException(f"the store in {folder} holds the passages of {note.collection}: take another --store")
    if note.files != str(files.resolve()) and Path(note.files).is_dir():
        raise ClickException(
            f"the store in {folder} holds the files of {note.files}: take another --store, or index a folder that "
            "holds both"
        )


def check_collection(folder: Path, collection: str) -> None:
    """Refuse to bring a store to a Qdrant collection, if it holds something else.

    Raises:
        ClickException: the store was filled from files, from another collection, or by another program.

    """
    if not _holds_store(folder):
        _drop_note(folder)
        return
    note = read_note(folder)
    if note is None:
        raise ClickException(f"the store in {folder} was not filled by `extract`: take another --store")
    if note.collection != collection:
        held = note.collection or f"the files of {note.files}"
        raise ClickException(f"the store in {folder} holds {held}: take another --store")


def _drop_note(folder: Path) -> None:
    """Delete the note of a run that stored nothing: its model may have been the wrong one."""
    (folder / _NOTE).unlink(missing_ok=True)


def _holds_store(folder: Path) -> bool:
    with GeARVectorStore.from_path(folder) as store:
        return bool(store.client.collection_exists(store.collection_name))


def require_store(folder: Path) -> None:
    """Refuse a folder without a store.

    Raises:
        ClickException: there is no store in it.

    """
    if not _holds_store(folder):
        raise ClickException(f"no store in {folder}: fill one with `llama-index-gear index DIR --store {folder}`")


@contextmanager
def open_store(
    folder: Path, embed_name: str | None, *, must_exist: bool = True, embeds: bool = True
) -> Iterator[GeARVectorStore]:
    """Open the store in a folder with the embedding model that filled it, and close it.

    Args:
        folder: of the store.
        embed_name: the embedding model's name, if the command line gives one.
        must_exist: refuse a folder without a store. Default True.
        embeds: load the embedding model, which takes seconds. Default True.

    Raises:
        ClickException: there is no store; or its model is another one, or can't be loaded.

    """
    folder = folder.expanduser()
    if must_exist:
        require_store(folder)
    exists = must_exist or _holds_store(folder)
    name = choose_embedding(folder, embed_name)
    if exists and embed_name is None and read_note(folder) is None:
        echo(f"{folder} does not say which embedding model filled it: taking {name} (--embed names another)", err=True)
    with GeARVectorStore.from_path(folder, embed_model=load_embedding(name) if embeds else None) as store:
        yield store
