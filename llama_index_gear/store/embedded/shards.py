"""The shards that a client of the embedded engine has open, and the checks of their process and their place."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple
from weakref import finalize

import qdrant_edge as edge
from qdrant_client.http import models

from llama_index_gear.errors import StoreError, StoreLockedError
from llama_index_gear.resources import free_in_child
from llama_index_gear.store.embedded import folder as edge_folder
from llama_index_gear.store.embedded.folder_lock import Claim, FolderLock, SystemLock, lock_folder
from llama_index_gear.store.embedded.incidences import Incidences
from llama_index_gear.store.embedded.models import DISTANCES, to_config
from llama_index_gear.store.embedded.packing import call_engine, pack, write_anew
from llama_index_gear.store.embedded.payloads import Payloads


class _OpenShard(NamedTuple):
    """An open collection: its shard, its folder, the identity of that folder, and what the client must know of it.

    Attributes:
        shard: the engine's own lock, while the triples of its file are all that was asked for: a program that knows no
            other lock is kept out.
        with_idf: names of its sparse vectors whose words are weighed by their frequency.
        declared: its dense vectors that no point has had yet.
        incidences: what is kept of its triples in memory.
        payloads: what is kept of its passages in memory.

    """

    shard: edge.EdgeShard | SystemLock
    folder: Path
    place: edge_folder.Place | None
    with_idf: frozenset[str]
    declared: dict[str, Any]
    incidences: Incidences
    payloads: Payloads


class OpenShards:
    """The open shards, by collection name.

    They are closed when the last reference to this object goes. A forked process leaves them to its parent: two
    processes must not write one shard, and even closing it writes its files.

    A claim to each shard keeps the folder locked from before it is opened until after it is closed.

    No variable here holds a shard or a claim: the traceback of an interrupt would keep it, with its lock.

    Attributes:
        lock: held by every caller. A forked process has a new one, since nobody would release the parent's there.

    """

    def __init__(self, path: Path) -> None:
        self.lock = threading.RLock()
        self._path = path
        self._open_shards: dict[str, _OpenShard] = {}
        self._claims: dict[str, Claim] = {}
        self._folder_lock: FolderLock | None = None  # while a caller works
        self._is_inherited = False
        finalize(self, _close_all, self._open_shards, self._claims)
        free_in_child(self)

    @contextmanager
    def hold(self, *, make: bool = False) -> Iterator[None]:
        """Keep other threads and processes out of the block. What it leaves open keeps processes out on.

        Args:
            make: True makes the folder of the collections if there is none. Default False.

        Raises:
            StoreLockedError: another process works in the folder; or this one was forked from one that had a shard
                open.
            StoreError: the folder can't be used, or a shard's was moved, deleted or replaced, or lost a part.

        """
        with self.lock:
            self.check()
            try:
                self._folder_lock = next(map(attrgetter("lock"), self._claims.values()), None)
                if self._folder_lock is None:
                    self._folder_lock = lock_folder(self._path, make=make)
                yield
            finally:
                self._folder_lock = None
                _drop_claims(self._open_shards, self._claims)

    def check_process(self) -> None:
        """Refuse to work in a forked process; no lock is taken.

        Raises:
            StoreLockedError: the process that this one was forked from had a shard open.

        """
        if self._is_inherited:
            raise StoreLockedError(
                f"{self._path} was open when this process was forked, and stays the parent's: close it before forking, "
                "or call close() here once the parent has closed it"
            )

    def check(self) -> None:
        """Refuse to work in a forked process, or after a shard was moved.

        Raises:
            StoreLockedError: the process that this one was forked from had a shard open.
            StoreError: a shard's folder was moved, deleted or replaced, or lost a part.

        """
        self.check_process()
        for entry in self._open_shards.values():
            edge_folder.check_in_place(entry.folder, entry.place)

    @property
    def has_folder(self) -> bool:
        """True if the caller holds the folder; False if there is none."""
        return self._folder_lock is not None

    def __contains__(self, name: str) -> bool:
        """Return True if a client of this process has the collection open."""
        if name in self._claims or self._folder_lock is None:
            return name in self._open_shards
        return self._folder_lock.is_claimed(name)

    def open(self, name: str, folder: Path) -> edge.EdgeShard:
        """Return the collection's shard; open it if it is not open. The caller holds the folder.

        Raises:
            StoreLockedError: another process or client has it open.
            StoreError: the folder is read-only or damaged, or the disk has too little room.

        """
        if name in self._open_shards and not isinstance(shard := self._open_shards[name].shard, SystemLock):
            return shard
        self._claim(name)
        edge_folder.check_writable(folder)
        edge_folder.check_room(folder)
        edge_folder.remove_leftovers(folder)
        place = edge_folder.get_place(folder)
        with_idf, declared = edge_folder.list_with_idf(folder), edge_folder.read_declared(folder)
        kept = self._open_shards[name].incidences if name in self._open_shards else Incidences()
        if name in self._open_shards:
            self.close(name)
        self._open_shards[name] = _OpenShard(
            call_engine(lambda: edge.EdgeShard.load(str(folder)), folder),
            folder,
            place,
            with_idf,
            declared,
            kept if kept.is_of(folder) else Incidences(),
            Payloads(),
        )
        return self.open(name, folder)

    def list_with_idf(self, name: str) -> frozenset[str]:
        """Return the names of an open collection's sparse vectors whose words are weighed by their frequency."""
        return self._open_shards[name].with_idf

    def list_declared(self, name: str) -> dict[str, Any]:
        """Return the dense vectors of an open collection that no point has had yet: name → size and distance."""
        return self._open_shards[name].declared

    def get_incidences(self, name: str, folder: Path) -> Incidences | None:
        """Return a collection's triples in memory; None if not all are there, and the engine answers.

        It is opened only if its file doesn't have them.
        """
        if name not in self._open_shards and edge_folder.get_kept(folder).exists():
            self._take_kept(name, folder)
        if name in self._open_shards and isinstance(self._open_shards[name].shard, SystemLock):
            return self._open_shards[name].incidences
        shard, incidences = self.open(name, folder), self._open_shards[name].incidences
        return incidences if incidences.read(shard) else None

    def _take_kept(self, name: str, folder: Path) -> None:
        """Note what the file of a collection has, instead of opening the collection, if it has all that is written."""
        self._claim(name)
        try:
            lock = SystemLock(folder / edge_folder.LOG, os.O_RDONLY)
        except OSError:  # Windows locks no folders
            return
        try:
            incidences = Incidences.load(folder) if lock.try_lock() else None
            if incidences is not None:
                self._open_shards[name] = _OpenShard(lock, folder, lock.place, frozenset(), {}, incidences, Payloads())
        finally:
            if name not in self._open_shards:
                lock.close()

    def get_payloads(self, name: str) -> Payloads:
        """Return what is kept in memory of an open collection's passages."""
        return self._open_shards[name].payloads

    def forget(self, name: str, written: int) -> None:
        """Forget what is kept of an open collection: points change; `written` is the number of stored ones."""
        edge_folder.get_kept(self._open_shards[name].folder).unlink(missing_ok=True)
        self._open_shards[name].incidences.forget(written)
        self._open_shards[name].payloads.forget()

    def measure_storage(self, name: str, vectors: Collection[str]) -> int:
        """Return the bytes that `make_vectors` takes: room for a vector in each point that is stored."""
        declared, folder = self._open_shards[name].declared, self._open_shards[name].folder
        numbers: int = sum(declared[vector]["size"] for vector in declared.keys() & vectors)
        if not numbers:
            return 0
        copied = 2 * edge_folder.measure(folder) if edge_folder.is_packed(folder) else 0
        return 4 * numbers * self.open(name, folder).info().points_count + copied

    def make_vectors(self, name: str, vectors: Collection[str]) -> None:
        """Tell the engine of those of these vectors that no point has had yet: points with them are to be written.

        A packed collection is first written anew: the engine can't open packed points that lack a vector. So this may
        close the shard, and open another.
        """
        folder = self._open_shards[name].folder
        for vector in list(self.list_declared(name).keys() & vectors):
            declared, stored = self.list_declared(name), edge_folder.read_config(folder)
            known = stored.get("vectors", {})
            config = to_config({**stored, "vectors": {**known, vector: declared[vector]}})
            if vector not in known and config is not None and edge_folder.is_packed(folder):
                write_anew(folder, config, partial(self.open, name, folder), partial(self.close, name))
            elif vector not in known:
                size, distance = declared[vector]["size"], DISTANCES[models.Distance(declared[vector]["distance"])]
                self.open(name, folder).update(edge.UpdateOperation.create_dense_vector(vector, size, distance))
            self.open(name, folder).flush()
            edge_folder.write_declared(folder, {key: value for key, value in declared.items() if key != vector})
            self.list_declared(name).pop(vector, None)

    def close(self, name: str) -> None:
        """Close a shard. It is forgotten first, so that an interrupt never leaves a closed shard here.

        The claim to it lasts until the caller ends.
        """
        self._open_shards.pop(name).shard.close()

    def close_all(self) -> None:
        """Pack what was written, keep its triples in a file, close all shards; forget those of the parent process."""
        self._is_inherited = False
        try:
            self._save_all()
        finally:
            _close_all(self._open_shards, self._claims)

    def _save_all(self) -> None:
        for name, entry in list(self._open_shards.items()):
            if isinstance(entry.shard, SystemLock) or edge_folder.get_place(entry.folder) != entry.place:
                continue
            incidences, folder = entry.incidences, entry.folder
            if incidences.written:
                with suppress(StoreError), edge_folder.raise_store_errors(folder):  # it is whole without
                    pack(folder, partial(self.open, name, folder), partial(self.close, name))
                    self.open(name, folder)
            if name in self._open_shards:
                incidences.save(self.open(name, folder), folder)

    def _claim(self, name: str) -> None:
        if self._folder_lock is not None and name not in self._claims:
            self._claims[name] = self._folder_lock.claim(name, self._path)

    def _at_fork_reinit(self) -> None:
        """Reset the state in a forked child; see `free_in_child`."""
        self.lock = threading.RLock()
        self._is_inherited = self._is_inherited or bool(self._open_shards)
        while self._open_shards:
            _leak(self._open_shards.popitem()[1])
        self._claims.clear()
        self._folder_lock = None


def _close_all(open_shards: dict[str, _OpenShard], claims: dict[str, Claim]) -> None:
    """Close the shards, each also if the close of another fails, and give up the claims to those that are closed."""
    with ExitStack() as stack:
        stack.callback(_drop_claims, open_shards, claims)
        for name in open_shards:
            stack.callback(_close, open_shards, name)


def _drop_claims(open_shards: dict[str, _OpenShard], claims: dict[str, Claim]) -> None:
    for name in claims.keys() - open_shards.keys():
        del claims[name]


def _close(open_shards: dict[str, _OpenShard], name: str) -> None:
    if edge_folder.get_place(open_shards[name].folder) in (open_shards[name].place, None):
        open_shards.pop(name).shard.close()
    else:  # closed, the shard would write into what stands there now
        _leak(open_shards.pop(name))


def _leak(entry: _OpenShard) -> None:
    """Keep a shard alive until the process ends: close(), `del` and a normal exit would all write its files.

    This process's share of its lock is closed: nobody could otherwise get it while the process lives.
    """
    if isinstance(entry.shard, SystemLock):
        entry.shard.close()
        return
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(entry.shard))
    for name in os.listdir("/dev/fd") if os.path.isdir("/dev/fd") else ():
        descriptor = int(name)
        try:
            status = os.fstat(descriptor)
        except OSError:  # the descriptor that listed the folder
            continue
        if (status.st_dev, status.st_ino) == entry.place:
            os.close(descriptor)
