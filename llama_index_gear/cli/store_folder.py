"""The folder of a store: whether there is one, what it holds, and how it is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from click import ClickException, UsageError, echo
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode

from llama_index_gear import FAILED_EXTRACTIONS, ExistingCollection, GeARVectorStore, read_triples
from llama_index_gear.cli.messages import show_line
from llama_index_gear.cli.models import load_embedding
from llama_index_gear.cli.probe import add_probe, check_probe
from llama_index_gear.cli.store_note import (
    NOTE,
    StoreNote,
    choose_embedding,
    describe_collection,
    drop_note,
    explain_no_store,
    read_note,
    write_note,
)
from llama_index_gear.errors import StoreError, StoreLockedError
from llama_index_gear.extraction.accounting import EXTRACTIONS, PAID_EXTRACTIONS
from llama_index_gear.store.embedded.folder_lock import lock_folder

_WAIT = 60.0  # seconds for which a command waits for a process that has the store open
_TOLD_AFTER = 1.0  # seconds, from which on it says so


class NotedStore(GeARVectorStore):
    """A store whose note, if it is given one, is written before the first passages are."""

    _folder: Path | None = PrivateAttr(default=None)
    _note: StoreNote | None = PrivateAttr(default=None)

    def take_note(self, folder: Path, note: StoreNote) -> None:
        """Have this note written into the store's folder."""
        self._folder, self._note = folder, note

    def write_note(self) -> None:
        """Write the note."""
        if self._folder is not None and self._note is not None:
            write_note(self._folder, self._note)

    def add(self, nodes: Sequence[BaseNode], **options: Any) -> list[str]:
        """Write the note, and store passages."""
        self.write_note()
        return super().add(nodes, **options)


def check_files(folder: Path, files: Path) -> None:
    """Refuse to bring a store to the files of a folder, if it holds others.

    A folder that was moved is taken: files are known by their paths below it.

    Raises:
        ClickException: the store was filled from another folder that is still there, or by another program; or other
            files are where it is to be.

    """
    if not _holds_store(folder):
        _check_empty(folder)
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


def check_collection(folder: Path, theirs: ExistingCollection, name: str, *, moved: bool) -> None:
    """Refuse to bring a store to a Qdrant collection, if it holds something else.

    A collection that was moved is taken: it is known by its name and its texts, and its folder holds it no more.

    Args:
        folder: of the store.
        theirs: the collection.
        name: its name.
        moved: it has moved, though its earlier place can't be looked at, or holds a copy.

    Raises:
        ClickException: the store was filled from files, from another collection, or by another program; or other files
            are where it is to be.

    """
    if not _holds_store(folder):
        _check_empty(folder)
        return
    note = read_note(folder)
    if note is None:
        raise ClickException(f"the store in {folder} was not filled by `extract`: take another --store")
    if note.collection == describe_collection(name, theirs.place):
        return
    if not note.collection.startswith(describe_collection(name, "")):
        held = note.collection or f"the files of {note.files}"
        raise ClickException(f"the store in {folder} holds {held}: take another --store")
    with GeARVectorStore.from_path(folder) as store:
        if theirs.is_in(store, moved=moved):
            return
        if theirs.is_in(store, moved=True):
            raise ClickException(
                f"the collection at {theirs.place} has the texts of {note.collection}, which the store in {folder} "
                "holds: take another --store for a copy; if it moved here, add --moved"
            )
    raise ClickException(
        f"the store in {folder} holds {note.collection}, and the collection at {theirs.place} is another one: most of "
        "its texts differ. Take another --store"
    )


def check_llm(folder: Path, name: str | None) -> None:
    """Refuse to extract by rule, unless asked to, into a store whose triples a model extracted: they cost money.

    The passages tell whether a model extracted them. The note names it; a run whose calls all failed wrote one too.

    Args:
        folder: of the store.
        name: the model's name, or "none", if the command line gives one.

    Raises:
        ClickException: a model extracted, and no name is given.

    """
    note = read_note(folder)
    if name is not None or note is None:
        return
    if _holds_extractions(folder):
        by, name = note.llm or "a model", note.llm or "NAME"
        raise ClickException(
            f"the triples in {folder} were extracted by {by}: go on with --llm {name}, "
            "or have all of them extracted by rule with --llm none"
        )


def _holds_extractions(folder: Path) -> bool:
    """Return True if a model has extracted a passage of the store, or a part of it."""
    with GeARVectorStore.from_path(folder) as store:
        if not store.get_nodes(None, EXTRACTIONS, 1, with_embeddings=False):  # most stores have none
            return False
        if store.get_nodes(None, PAID_EXTRACTIONS, 1, with_embeddings=False):
            return True
        return any(map(read_triples, store.get_nodes(None, FAILED_EXTRACTIONS, with_embeddings=False)))


def _holds_store(folder: Path) -> bool:
    with GeARVectorStore.from_path(folder) as store:
        return bool(store.client.collection_exists(store.collection_name))


def _check_empty(folder: Path) -> None:
    """Refuse a folder for a new store that holds files of others, and drop the note of a run that stored nothing.

    `index` does not read the folder of its store: it would miss files in it.

    Raises:
        UsageError: it holds some.

    """
    folder = folder.expanduser()
    with GeARVectorStore.from_path(folder) as store:
        own = {NOTE, store.collection_name, store.triple_collection_name}
    names = sorted(place.name for place in folder.iterdir()) if folder.is_dir() else []
    if others := [name for name in names if name not in own and not name.startswith((".", f"{NOTE}."))]:
        raise UsageError(
            f"--store {folder} holds other files ({others[0]}{', …' if len(others) > 1 else ''}): give it a folder of "
            "its own"
        )
    drop_note(folder)


def require_store(folder: Path) -> None:
    """Refuse a folder without a store.

    Raises:
        ClickException: there is no store in it.

    """
    if not _holds_store(folder):
        raise explain_no_store(folder)


@contextmanager
def hold_folder(folder: Path, *, make: bool = False) -> Iterator[None]:
    """Keep other processes out of a store's folder in the block; wait a minute for one that works there, and say so.

    Args:
        folder: of the store.
        make: True makes the folder if there is none. Default False: without a folder nobody is kept out.

    Raises:
        StoreLockedError: a process works there for longer.

    """
    try:
        lock = lock_folder(folder, _TOLD_AFTER, make=make)
    except StoreLockedError as error:
        show_line(f"waiting for another process that has the store open ({error.details})")
        lock = lock_folder(folder, _WAIT, make=make)
    try:
        yield
    finally:
        del lock


@contextmanager
def open_store(
    folder: Path,
    embed_name: str | None,
    *,
    check: Callable[[], object] | None = None,
    make: bool = False,
    embeds: bool = True,
    compares: bool = True,
) -> Iterator[NotedStore]:
    """Open the store in a folder with the embedding model that filled it, and close it.

    The folder is held while the store is open, and not while the embedding model is loaded, which takes seconds. So
    what is checked before is checked again after.

    Args:
        folder: of the store.
        embed_name: the embedding model's name, if the command line gives one.
        check: refuses what is in the folder. Default: refuses a folder without a store.
        make: True makes the folder if there is none. Default False.
        embeds: load the embedding model. Default True.
        compares: refuse a model that makes other vectors than the store has. Default True.

    Raises:
        ClickException: there is no store; or its model is another one, or can't be loaded, or makes other
            vectors.
        StoreLockedError: another process works in the folder for too long.

    """
    folder = folder.expanduser()
    check = check or partial(require_store, folder)
    with hold_folder(folder):
        check()
        name = choose_embedding(folder, embed_name)
    embed_model = load_embedding(name) if embeds else None
    with hold_folder(folder, make=make):
        check()
        chosen = choose_embedding(folder, embed_name)
        if embeds and chosen != name:
            embed_model = load_embedding(chosen)
        if embed_name is None and read_note(folder) is None and _holds_store(folder):
            echo(
                f"{folder} does not say which embedding model filled it: taking {chosen} (--embed names another)",
                err=True,
            )
        if embed_model is not None and compares and _holds_store(folder):
            check_probe(folder, embed_model)
        with NotedStore.from_path(folder, embed_model=embed_model) as store:
            yield store  # type: ignore[misc]  # from_path makes one of its class


@contextmanager
def fill_store(
    folder: Path, embed_name: str | None, check: Callable[[], object], make_note: Callable[[str], StoreNote]
) -> Iterator[NotedStore]:
    """Open the store in a folder to be filled, and write its note.

    A run that ends early leaves the earlier note, unless it has stored something. If the store is empty, the note goes,
    and the folder if it was made for it.

    Args:
        folder: of the store.
        embed_name: the embedding model's name, if the command line gives one.
        check: refuses a folder that holds something else.
        make_note: makes the note, of the name of the embedding model that fills the store.

    Raises:
        ClickException: the folder is refused; or the embedding model is another one, or can't be loaded.
        StoreLockedError: another process works in the folder for too long.

    """
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    with open_store(folder, embed_name, check=check, make=True) as store:
        store.take_note(folder, add_probe(make_note(choose_embedding(folder, embed_name)), store.embed_model))
        try:
            yield store
            store.write_note()
        finally:
            with suppress(StoreError, OSError):  # other files are in it
                if not store.client.collection_exists(store.collection_name):
                    drop_note(folder)
                    for place in made:
                        place.rmdir()
