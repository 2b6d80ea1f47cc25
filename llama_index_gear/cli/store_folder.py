"""The folder of a store: whether there is one, what it holds, and how it is opened."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from click import ClickException, UsageError, echo
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode

from llama_index_gear import ExistingCollection, GeARVectorStore
from llama_index_gear.cli.models import load_embedding
from llama_index_gear.cli.store_note import (
    StoreNote,
    Vector,
    add_probe,
    check_probe,
    choose_embedding,
    describe_collection,
    drop_note,
    explain_no_store,
    read_note,
    write_note,
)
from llama_index_gear.errors import StoreError, StoreLockedError
from llama_index_gear.extraction.accounting import EXTRACTIONS, FAILED_EXTRACTIONS, PAID_EXTRACTIONS
from llama_index_gear.ingestion.console import show_line
from llama_index_gear.ingestion.regular_files import NOTE
from llama_index_gear.nodes import read_triples, without_links
from llama_index_gear.store.embedded.folder_lock import FolderLock, drop_filler, is_awaited, lock_filler, lock_folder

Lock = TypeVar("Lock")

_WAIT = 60.0  # seconds for which a command waits for a process that has the store open
_TOLD_AFTER = 1.0  # seconds, from which on it says so


class FolderTurn:
    """The turn of a command at a store's folder: it keeps other processes out, until it is given.

    Args:
        folder: of the store.
        make: True makes the folder if there is none. Default False: without a folder nobody is kept out.

    """

    def __init__(self, folder: Path, *, make: bool = False) -> None:
        self._folder = folder
        self._make = make
        self._lock: FolderLock | None = None

    def __enter__(self) -> FolderTurn:
        self.take()
        return self

    def __exit__(self, *error: object) -> None:
        self.give()

    @property
    def is_awaited(self) -> bool:
        """True if another process waits for the folder."""
        return is_awaited(self._folder)

    def give(self) -> None:
        """Leave the folder to others."""
        self._lock = None

    def take(self) -> None:
        """Wait a minute for a process that works there, and say so.

        Raises:
            StoreLockedError: it works there for longer.

        """
        self._lock = _wait_for(partial(lock_folder, self._folder, make=self._make))


def _wait_for(lock: Callable[[float], Lock]) -> Lock:
    """Return a lock; wait a minute for the process that has it, and say so."""
    try:
        return lock(_TOLD_AFTER)
    except StoreLockedError as error:
        show_line(f"waiting for another process that has the store open ({error.details})")
    return lock(_WAIT)


class NotedStore(GeARVectorStore):
    """A store that a command has open: its note, and the command's turn at its folder.

    The note, if the store is given one, is written before the first passages are.
    """

    _folder: Path | None = PrivateAttr(default=None)
    _note: StoreNote | None = PrivateAttr(default=None)
    _turn: FolderTurn | None = PrivateAttr(default=None)
    _refuse_store: Any = PrivateAttr(default=None)
    _turns: int = PrivateAttr(default=0)
    _probe: Any = PrivateAttr(default=None)
    _passes_turns: bool = PrivateAttr(default=False)

    @property
    def turns(self) -> int:
        """Number of times that others had the folder since the store was opened. What was read may be outdated then."""
        return self._turns

    def pass_turns(self) -> None:
        """Pass the turn after each `add` from now on: for who adds a batch after the other, and knows no turns."""
        self._passes_turns = True

    @property
    def probe(self) -> Vector | None:
        """The embedding model's vector of the known text, if it was compared with the note's."""
        probe: Vector | None = self._probe
        return probe

    def take_turn(self, turn: FolderTurn, check: Callable[[], object], probe: Vector | None) -> None:
        """Have a turn at the folder, which may be given to others; `check` refuses what they made of it."""
        self._turn, self._refuse_store, self._probe = turn, check, probe

    def take_note(self, folder: Path, note: StoreNote) -> None:
        """Have this note written into the store's folder."""
        self._folder, self._note = folder, note

    def write_note(self) -> None:
        """Write the note."""
        if self._folder is not None and self._note is not None:
            write_note(self._folder, self._note)

    def add(self, nodes: Sequence[BaseNode], **options: Any) -> list[str]:
        """Write the note, and store passages. Then whoever waits has a turn, if that is wanted."""
        self.write_note()
        stored = super().add(nodes, **options)
        if self._passes_turns:
            self.pass_turn()
        return stored

    def pass_turn(self) -> None:
        """Let whoever waits for the folder have a turn; see `leave_folder`."""
        if self._turn is not None and self._turn.is_awaited:
            with self.leave_folder():
                pass

    @contextmanager
    def leave_folder(self) -> Iterator[None]:
        """Leave the folder to others in the block, for what needs no store; then wait for it, and check it again.

        Raises:
            StoreLockedError: another process has it for too long.
            ClickException: another process has made something else of it.

        """
        if self._turn is None:
            yield
            return
        self.close()
        self._turn.give()
        self._turns += 1
        yield
        self._turn.take()
        self._refuse_store()


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


def check_collection(folder: Path, theirs: ExistingCollection, name: str) -> None:
    """Refuse to bring a store to a Qdrant collection, if it holds something else.

    Args:
        folder: of the store.
        theirs: the collection.
        name: its name.

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
    held, same = note.collection or f"the files of {note.files}", describe_collection(name, "")
    hint = f", or, if it moved here, --known-as {shlex.quote(note.collection.removeprefix(same))}"
    raise ClickException(
        f"the store in {folder} holds {held}: take another --store{hint if held.startswith(same) else ''}"
    )


def check_llm(store: GeARVectorStore, folder: Path, name: str | None) -> None:
    """Refuse to extract by rule, unless asked to, into a store whose triples a model extracted: they cost money.

    The passages tell whether a model extracted them. The note names it; a run whose calls all failed wrote one too.

    Args:
        store: the store, open.
        folder: its folder.
        name: the model's name, or "none", if the command line gives one.

    Raises:
        ClickException: a model extracted, and no name is given.

    """
    note = read_note(folder)
    if name is not None or note is None:
        return
    if _holds_extractions(store):
        by, name = note.llm or "a model", note.llm or "NAME"
        raise ClickException(
            f"the triples in {folder} were extracted by {by}: go on with --llm {name}, "
            "or have all of them extracted by rule with --llm none"
        )


def _holds_extractions(store: GeARVectorStore) -> bool:
    """Return True if a model has extracted a passage of the store, or a part of it."""
    if not store.get_nodes(None, EXTRACTIONS, 1, with_embeddings=False):  # most stores have none
        return False
    if store.get_nodes(None, PAID_EXTRACTIONS, 1, with_embeddings=False):
        return True
    failed = store.get_nodes(None, FAILED_EXTRACTIONS, with_embeddings=False)
    return any(without_links(read_triples(node)) for node in failed)


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


def load_once() -> Callable[[str], BaseEmbedding]:
    """Return a function that loads embedding models by name, each once: for a command that opens a store often."""
    return cache(load_embedding)


@contextmanager
def open_store(
    folder: Path,
    embed_name: str | None,
    *,
    check: Callable[[], object] | None = None,
    fills: bool = False,
    embeds: bool = True,
    compares: bool = True,
    load: Callable[[str], BaseEmbedding] | None = None,
) -> Iterator[NotedStore]:
    """Open the store in a folder with the embedding model that filled it, and close it.

    The folder is held while the store is open, and not while the embedding model is loaded, which takes seconds. So
    what is checked before is checked again after.

    Args:
        folder: of the store.
        embed_name: the embedding model's name, if the command line gives one.
        check: refuses what is in the folder. Default: refuses a folder without a store.
        fills: True makes the folder if there is none, and keeps out others that fill the store, also while the folder
            is given to others. Default False.
        embeds: load the embedding model. Default True.
        compares: refuse a model that makes other vectors than the store has. Default True.
        load: loads the embedding model. Default: `load_embedding`.

    Raises:
        ClickException: there is no store; or its model is another one, or can't be loaded, or makes other
            vectors.
        StoreLockedError: another process works in the folder for too long.

    """
    folder = folder.expanduser()
    check = check or partial(require_store, folder)
    load = load or load_embedding
    with FolderTurn(folder):
        check()
        name = choose_embedding(folder, embed_name)
    embed_model = load(name) if embeds else None
    with _keep_fillers_out(folder) if fills else nullcontext(), FolderTurn(folder, make=fills) as turn:
        check()
        chosen = choose_embedding(folder, embed_name)
        if embeds and chosen != name:
            embed_model = load(chosen)
        note = read_note(folder)
        if embed_name is None and note is None and _holds_store(folder):
            echo(
                f"{folder} does not say which embedding model filled it: taking {chosen} (--embed names another)",
                err=True,
            )
        told = "" if note is None else note.probe
        vector = None
        if embed_model is not None and compares and _holds_store(folder):
            vector = check_probe(folder, embed_model)

        def check_again() -> None:
            check()
            choose_embedding(folder, chosen)
            now = read_note(folder)
            if embed_model is not None and compares and now is not None and now.probe != told:
                check_probe(folder, embed_model)

        with NotedStore.from_path(folder, embed_model=embed_model) as store:
            store.take_turn(turn, check_again, vector)
            yield store


@contextmanager
def _keep_fillers_out(folder: Path) -> Iterator[None]:
    """Keep other commands that fill a store out of the block: what one has planned, another would change."""
    lock = _wait_for(partial(lock_filler, folder))
    try:
        yield
    finally:
        del lock


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
    with open_store(folder, embed_name, check=check, fills=True) as store:
        note = make_note(choose_embedding(folder, embed_name))
        store.take_note(folder, add_probe(note, store.embed_model, store.probe))
        try:
            yield store
            store.write_note()
        finally:
            with suppress(StoreError, OSError):  # other files are in it
                if not store.client.collection_exists(store.collection_name):
                    drop_note(folder)
                    if made:
                        drop_filler(folder)
                    for place in made:
                        place.rmdir()
