"""The lock of an embedded store's folder: one process at a time has its collections open.

The engine's own lock does not keep processes apart that take turns: it begins after a collection's files are read, and
ends before they are written. This one is held from before until after.

It is a lock of the operating system on the folder itself. So it ends with its process, and there is no file that could
be deleted, copied, or taken for a user's. Windows locks no folders: there it is on a hidden file.

Who has to wait stands in a queue: a second lock, on a hidden file that the first who waits makes. Who finds somebody in
the queue stands behind them, even if it had the folder a moment ago. So a process that opens a store again and again
leaves turns to others. Where the file can't be made, processes wait without order.

A command that fills a store in many turns has a third lock, on another hidden file, for all of them: two of them would
change what the other has planned.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from weakref import WeakValueDictionary, finalize

from llama_index_gear.errors import StoreError, StoreLockedError
from llama_index_gear.flow import sleep
from llama_index_gear.resources import free_in_child
from llama_index_gear.store.embedded.folder import Place, raise_store_errors

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

WAIT = 2.0
"""Seconds for which a call waits until another process, or another client of this one, closes a store."""
POLL_SECONDS = 0.005
"""Seconds between two looks at whether it has."""
_QUEUE = ".queue"
_FILLER = ".filler"


class SystemLock:
    """A lock of the operating system on a file or folder. It is free once this object is gone, or its process.

    A forked child closes its copy, and leaves the lock to its parent.
    """

    def __init__(self, path: Path, flags: int) -> None:
        descriptor = os.open(path, flags)
        status = os.fstat(descriptor)
        self.place: Place = (status.st_dev, status.st_ino)
        self._path = path
        self._descriptor = descriptor
        self.close = finalize(self, _release, descriptor, os.getpid())
        self.close.atexit = False  # clients that are still open at the exit write their files first
        free_in_child(self)

    def try_lock(self) -> bool:
        """Take the lock, unless somebody else has it; return True if it is taken.

        Raises:
            StoreError: the file system has no locks.

        """
        try:
            if sys.platform == "win32":
                msvcrt.locking(self._descriptor, msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        except OSError as error:
            raise StoreError(
                f"{self._path} cannot be locked ({error.strerror}), so two processes could tear the store: take a "
                "folder on a local disk, or a Qdrant server"
            ) from error
        return True

    @property
    def is_in_place(self) -> bool:
        """True if what is locked is what stands at the path: another file may have taken its place."""
        with suppress(OSError):
            status = os.stat(self._path)
            return (status.st_dev, status.st_ino) == self.place
        return False

    def _at_fork_reinit(self) -> None:
        self.close()


def _release(descriptor: int, process: int) -> None:
    if os.getpid() == process and sys.platform != "win32":
        with suppress(OSError):  # the file system has no locks
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # at once, though a child may have the descriptor too
    os.close(descriptor)


@dataclass(eq=False)
class Claim:
    """A client's claim to a collection, which keeps other clients of the process out while this object lives."""

    lock: FolderLock


class FolderLock(SystemLock):
    """The lock of a folder, which the clients of a process share: each claims its collections."""

    def __init__(self, folder: Path) -> None:
        if sys.platform == "win32":
            super().__init__(_get_locked(folder), os.O_RDWR | os.O_CREAT)
        else:
            super().__init__(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._claims: WeakValueDictionary[str, Claim] = WeakValueDictionary()

    def is_of(self, folder: Path) -> bool:
        """Return True if this is the lock of the folder that stands here now; it may have been moved or deleted."""
        with suppress(OSError):
            return _get_place(folder) == self.place
        return False

    def is_claimed(self, collection_name: str) -> bool:
        """Return True if a client of this process has the collection open, or opens it."""
        return collection_name in self._claims

    def claim(self, collection_name: str, folder: Path) -> Claim:
        """Wait until no other client of this process has the collection open, and claim it.

        Raises:
            StoreLockedError: one has it open for too long.
            StoppedError: while this call waits, the flow is to end.

        """
        end = monotonic() + WAIT
        while True:
            with _CLAIMING:
                if not self.is_claimed(collection_name):
                    claim = self._claims[collection_name] = Claim(self)
                    return claim
            if monotonic() >= end:
                raise make_locked_error(folder, "another client of this process", WAIT)
            sleep(POLL_SECONDS)

    def _at_fork_reinit(self) -> None:
        _HELD.pop(self.place, None)
        super()._at_fork_reinit()


_HELD: WeakValueDictionary[Place, FolderLock] = WeakValueDictionary()
"""The folders that this process has locked."""
_CLAIMING = free_in_child(threading.Lock())


def lock_folder(folder: Path, seconds: float = WAIT, *, make: bool = False) -> FolderLock | None:
    """Wait until no other process has a folder locked, and lock it, for as long as the returned object lives.

    Args:
        folder: of a store.
        seconds: how long to wait. Default 2.
        make: True makes the folder if there is none. Default False: return None.

    Raises:
        StoreLockedError: another process has it locked for longer.
        StoreError: it cannot be made, opened or locked.
        StoppedError: while this call waits, the flow is to end.

    """
    work = _try_again(folder, seconds, make=make)
    try:
        while True:
            next(work)
            sleep(POLL_SECONDS)
    except StopIteration as done:
        lock: FolderLock | None = done.value
        return lock


async def alock_folder(folder: Path, seconds: float = WAIT) -> FolderLock | None:
    """`lock_folder` of a folder that exists, without blocking the event loop."""
    work = _try_again(folder, seconds, make=False)
    try:
        while True:
            next(work)
            await asyncio.sleep(POLL_SECONDS)
    except StopIteration as done:
        lock: FolderLock | None = done.value
        return lock
    finally:
        work.close()


def lock_filler(folder: Path, seconds: float = WAIT) -> SystemLock | None:
    """Wait until no other process fills a store, and be the one that does, for as long as the returned object lives.

    It is for a command of many turns, which gives the folder to others between them. The folder is made if there is
    none.

    Args:
        folder: of the store.
        seconds: how long to wait. Default 2.

    Returns:
        The lock; None where its file can't be made.

    Raises:
        StoreLockedError: another process fills it for longer.
        StoreError: the folder can't be made, or has no locks.

    """
    end = monotonic() + seconds
    while True:
        with raise_store_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        lock = _open_hidden(folder / _FILLER, os.O_RDWR | os.O_CREAT)
        if lock is None or (lock.try_lock() and lock.is_in_place):
            return lock
        if monotonic() >= end:
            raise make_locked_error(folder, _find_holder(folder / _FILLER), seconds)
        sleep(POLL_SECONDS)


def drop_filler(folder: Path) -> None:
    """Delete the file that `lock_filler` locks; whoever calls has it locked."""
    (folder / _FILLER).unlink(missing_ok=True)


def is_awaited(folder: Path) -> bool:
    """Return True if a process waits for the folder."""
    queue = _open_queue(folder, os.O_RDWR)
    return queue is not None and not queue.try_lock()


def make_locked_error(folder: Path, holder: str = "", waited: float = 0) -> StoreLockedError:
    """Make the error of a folder that somebody else has open.

    Args:
        folder: of the store.
        holder: who has it. Default: that is not known.
        waited: seconds for which it was waited for. Default 0.

    """
    details = ", ".join([holder] * bool(holder) + [f"waited for {waited:g} s"] * bool(waited))
    return StoreLockedError(
        f"{folder} is open in another process or client{details and f' ({details})'}, and the embedded engine serves "
        "one at a time: close it there, or use a Qdrant server (GeARVectorStore(url=…))",
        details=details,
    )


def _try_again(folder: Path, seconds: float, *, make: bool) -> Generator[None, None, FolderLock | None]:
    """Try to lock a folder, until it is locked; yield before each new try."""
    end = monotonic() + seconds
    queue: SystemLock | None = None
    try:
        while True:
            with raise_store_errors(folder):
                if make:
                    folder.mkdir(parents=True, exist_ok=True)
                try:
                    if (held := _HELD.get(_get_place(folder))) is not None:  # never behind who waits for this process
                        return held
                    queue = queue or _open_queue(folder, os.O_RDWR)
                    if queue is None or queue.try_lock():
                        if (held := _try_lock(folder)) is not None:
                            return held
                        queue = queue or _open_queue(folder, os.O_RDWR | os.O_CREAT)
                except (FileNotFoundError, NotADirectoryError):
                    if not make:
                        return None
            if monotonic() >= end:
                raise make_locked_error(folder, _find_holder(_get_locked(folder)), seconds)
            yield
    finally:
        if queue is not None:
            queue.close()


def _try_lock(folder: Path) -> FolderLock | None:
    lock = FolderLock(folder)
    if not lock.try_lock() or _get_place(folder) != lock.place:  # another folder may have taken its place meanwhile
        return None
    _HELD[lock.place] = lock
    return lock


def _open_queue(folder: Path, flags: int) -> SystemLock | None:
    return _open_hidden(folder / _QUEUE, flags)


def _open_hidden(path: Path, flags: int) -> SystemLock | None:
    with suppress(OSError):
        return SystemLock(path, flags)
    return None


def _get_locked(folder: Path) -> Path:
    """Return the path of what is locked."""
    return folder / ".lock" if sys.platform == "win32" else folder


def _get_place(folder: Path) -> Place:
    status = os.stat(_get_locked(folder))
    return status.st_dev, status.st_ino


def _find_holder(path: Path) -> str:
    """Return the process that has a file or folder locked, where the system tells: Linux does."""
    if sys.platform == "win32":
        return ""
    with suppress(OSError, ValueError):
        status = os.stat(path)
        device, inode = status.st_dev, status.st_ino
        place = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
        for line in Path("/proc/locks").read_text("ascii").splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5] == place:
                program = Path("/proc", fields[4], "comm").read_text("utf-8", "replace").strip()
                return f"process {fields[4]}, {''.join(filter(str.isprintable, program))}"
    return ""
