"""An embedded store that the calls of a server share, and that it leaves to other processes.

It stays open between calls: to open it takes longer than to search it. Once another process waits for the folder, the
calls that work end, the store is closed, and later calls wait for a turn of their own, behind that process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

from llama_index_gear import GeARVectorStore
from llama_index_gear.errors import StoreError
from llama_index_gear.store.embedded.folder_lock import (
    POLL_SECONDS,
    FolderLock,
    alock_folder,
    is_awaited,
    make_locked_error,
)

_IDLE = 5.0  # seconds without a call, after which the store is closed: for programs that don't queue for the folder
_LOOK = 0.02  # seconds between two looks at whether a process waits
_LOGGER = logging.getLogger(__name__)


class SharedStore:
    """A store in a folder, open while calls use it, and for a while after.

    Args:
        folder: of the store.
        make: makes the store. It is called in a thread, while the folder is held.

    """

    def __init__(self, folder: Path, make: Callable[[], GeARVectorStore]) -> None:
        self._folder = folder
        self._make = make
        self._store: GeARVectorStore | None = None
        self._folder_lock: FolderLock | None = None  # held while the store is open
        self._users = 0
        self._used = 0.0  # when the last of them left
        self._is_faulty = False
        self._is_written = False
        self._opening = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None  # closes the store

    @property
    def is_open(self) -> bool:
        """True if the store is open."""
        return self._store is not None

    @asynccontextmanager
    async def use(
        self, seconds: float, *, is_short: bool = False, writes: bool = False
    ) -> AsyncIterator[GeARVectorStore]:
        """Open the store for the block, or share it with those that use it.

        Args:
            seconds: how long to wait for another process.
            is_short: the block takes no longer than a search. At the end of its time it shares a store whose users go
                on, though a process waits: that one waits for them anyway. Default False.
            writes: the block writes. What it wrote is on the disk soon after. Default False.

        Raises:
            StoreLockedError: another process has the folder for longer; or users of the store go on for longer, and a
                process waits for them.

        """
        store = await self._enter(monotonic() + seconds, seconds, is_short=is_short)
        try:
            yield store
        except StoreError:
            self._is_faulty = True
            raise
        finally:
            self._users -= 1
            self._used = monotonic()
            self._is_written |= writes

    async def close(self) -> None:
        """Close the store, whoever uses it."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        self._close()

    async def _enter(self, end: float, seconds: float, *, is_short: bool) -> GeARVectorStore:
        while True:
            is_late = monotonic() >= end
            if self._store is not None and (not self._is_to_leave() or (is_late and is_short and not self._is_faulty)):
                self._users += 1
                return self._store
            if self._store is None and not self._opening.locked():
                async with self._opening:
                    return await self._open(round(max(0, end - monotonic()), 1))
            if is_late:
                holder = "" if self._store is None else "earlier calls of this server go on, and a process waits"
                raise make_locked_error(self._folder, holder, seconds)
            await asyncio.sleep(POLL_SECONDS)

    async def _open(self, seconds: float) -> GeARVectorStore:
        """Open the store, for a first user."""
        self._folder_lock = await alock_folder(self._folder, seconds)
        try:
            store = await asyncio.to_thread(self._make)
        except BaseException:
            self._folder_lock = None
            raise
        self._store, self._is_faulty, self._is_written = store, False, False
        self._users += 1
        self._keeper = asyncio.create_task(self._keep())
        return store

    async def _keep(self) -> None:
        """Close the store once nobody uses it, and a process waits for it, or some time has passed."""
        try:
            while self._users or not self._is_to_close():  # noqa: ASYNC110 - for what other processes do
                await asyncio.sleep(_LOOK)
        finally:
            self._close()

    def _is_to_close(self) -> bool:
        """Return True if a store that nobody uses is not to stay open."""
        return self._is_to_leave() or self._is_written or monotonic() - self._used > _IDLE

    def _is_to_leave(self) -> bool:
        """Return True if nobody is to use the store any more."""
        lock = self._folder_lock
        return self._is_faulty or is_awaited(self._folder) or (lock is not None and not lock.is_of(self._folder))

    def _close(self) -> None:
        store, self._store = self._store, None
        try:
            if store is not None:
                store.close()
        except Exception as error:  # noqa: BLE001 - the engine's own, of any kind
            _LOGGER.warning("the store in %s was not closed as it should be: %s", self._folder, error)
        finally:
            self._folder_lock = None
