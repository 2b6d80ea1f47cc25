"""Locks that are free in a forked child, objects that stay in their process, and objects that `with` closes.

Threads of the parent don't exist in the child: the locks that they held would be held for ever.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import Any, NoReturn, Self, SupportsIndex, TypeVar
from weakref import WeakSet

from llama_index_gear.errors import StoreError

Lock = TypeVar("Lock")

_LOCKS: WeakSet[Any] = WeakSet()


def free_in_child(lock: Lock) -> Lock:
    """Register a lock that is free in a forked child, whoever held it in the parent; return the lock.

    Args:
        lock: a lock of `threading`, or any object with the method `_at_fork_reinit`, which resets it.

    """
    _LOCKS.add(lock)
    return lock


def _free_all() -> None:
    for lock in list(_LOCKS):
        lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_free_all)


class BoundToProcess:
    """An object with a connection, which is of use in its own process only: it cannot be pickled or deeply copied.

    LlamaIndex's components leave out what cannot be pickled, and would lose their connection.
    """

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        self._refuse()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise StoreError(
            f"this {type(self).__name__} holds a connection, and can be neither pickled nor copied: make another one "
            "where it is wanted, over url=… in any number of processes, over from_path(folder) in one at a time; "
            "threads of this process may share this one"
        )


class ClosedByWith:
    """Mixin for what holds clients: `with` closes it, `async with` closes its async client too."""

    @abstractmethod
    def close(self) -> None:
        """Release the files and the sync client."""

    @abstractmethod
    async def aclose(self) -> None:
        """Do the same as `close`, and close the async client."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()
