"""The shards that a client of the embedded engine has open: whose they are, and that they stand where they stood."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar
from weakref import finalize

import qdrant_edge as edge

from llama_index_gear.errors import StoreError, StoreLockedError
from llama_index_gear.fork_safety import free_in_child
from llama_index_gear.store.edge import folder as edge_folder

Result = TypeVar("Result")


class _Opened(NamedTuple):
    """A collection that is open: its shard, its folder, and what tells that from another one in its place."""

    shard: edge.EdgeShard
    folder: Path
    place: edge_folder.Place | None


class OpenShards:
    """The shards that are open, by their collection's name.

    They are closed when the last reference to this goes. A process that was forked while some were open leaves them to
    its parent: two processes must not write one shard, and not even closing it leaves its files alone.

    No variable here holds a shard: the traceback of an interrupt would keep it, and its lock.

    Attributes:
        lock: to be held by whoever calls; another one in a forked process, where nobody would release the parent's.

    """

    def __init__(self, path: Path) -> None:
        self.lock = threading.RLock()
        self._path = path
        self._opened: dict[str, _Opened] = {}
        self._is_inherited = False
        finalize(self, _close_all, self._opened)
        free_in_child(self)

    def check_process(self) -> None:
        """Refuse to work in a forked process; takes no lock.

        Raises:
            StoreLockedError: the process that this one was forked from had a shard open.

        """
        if self._is_inherited:
            raise StoreLockedError(
                f"{self._path} was open when this process was forked, and stays the parent's: close it before forking, "
                "or call close() here once the parent has closed it"
            )

    def check(self) -> None:
        """Refuse to work in a forked process, or once a shard was moved.

        Raises:
            StoreLockedError: the process that this one was forked from had a shard open.
            StoreError: a shard's folder was moved, deleted or replaced, or lost a part.

        """
        self.check_process()
        for opened in self._opened.values():
            edge_folder.check_in_place(opened.folder, opened.place)

    def __contains__(self, name: str) -> bool:
        return name in self._opened

    def open(self, name: str, folder: Path) -> edge.EdgeShard:
        """Return the collection's shard, opened if it isn't.

        Raises:
            StoreLockedError: another process or client has it open.
            StoreError: it is read-only or damaged, or the disk has too little room.

        """
        if name not in self._opened:
            edge_folder.check_writable(folder)
            edge_folder.check_room(folder)
            place = edge_folder.place_of(folder)
            self._opened[name] = _Opened(
                in_plain_words(lambda: edge.EdgeShard.load(str(folder)), folder), folder, place
            )
        return self._opened[name].shard

    def close(self, name: str) -> None:
        """Close one; forgotten first, so that an interrupt leaves none here that is closed."""
        self._opened.pop(name).shard.close()

    def close_all(self) -> None:
        """Close all, or forget those of the parent process."""
        self._is_inherited = False
        _close_all(self._opened)

    def _at_fork_reinit(self) -> None:
        """Become a forked child's: see `fork_safety`."""
        self.lock = threading.RLock()
        self._is_inherited = self._is_inherited or bool(self._opened)
        while self._opened:
            shard, _, place = self._opened.popitem()[1]
            _keep_for_ever(shard)
            _let_go_of_lock(place)


def in_plain_words(work: Callable[[], Result], folder: Path) -> Result:
    """Have the engine make or open a shard.

    Raises:
        StoreLockedError: another process or client has it open.
        StoreError: it cannot be made or opened for another reason.

    """
    try:
        return work()
    except BaseException as error:  # the engine raises plain Exception, with words, and panics, which are none
        if "WouldBlock" in str(error):
            raise StoreLockedError(
                f"{folder.parent} is open in another process or client, and the embedded engine serves one at a time: "
                "close it there, or use a Qdrant server (GeARVectorStore(url=…))"
            ) from error
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise StoreError(
                f"the embedded engine cannot open {folder}, whose files are damaged or not this user's: restore them "
                f"from a copy, or choose another folder or collection_name. It says: {error}"
            ) from error
        raise


def _close_all(opened: dict[str, _Opened]) -> None:
    while opened:
        name = next(iter(opened))
        if edge_folder.place_of(opened[name].folder) in (opened[name].place, None):
            opened.pop(name).shard.close()
        else:  # the shard would write into what stands there now
            shard, _, place = opened.pop(name)
            _keep_for_ever(shard)
            _let_go_of_lock(place)


def _keep_for_ever(shard: edge.EdgeShard) -> None:
    """Never let go of a shard: it would write its files then, be it by close(), `del` or the end of the process."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(shard))


def _let_go_of_lock(place: edge_folder.Place | None) -> None:
    """Close this process's share of a lock, which nobody could get otherwise while it lives."""
    for name in os.listdir("/dev/fd") if os.path.isdir("/dev/fd") else ():
        descriptor = int(name)
        try:
            status = os.fstat(descriptor)
        except OSError:  # the one that listed them
            continue
        if (status.st_dev, status.st_ino) == place:
            os.close(descriptor)
