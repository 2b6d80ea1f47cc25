"""Freeing in a forked child the locks that threads of its parent held: those threads don't exist in the child."""

from __future__ import annotations

import os
from typing import Any, TypeVar
from weakref import WeakSet

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
