"""What a forked child has anew: locks and claims that threads of its parent held, which the child doesn't have."""

from __future__ import annotations

import os
from typing import Any, TypeVar
from weakref import WeakSet

Held = TypeVar("Held")

_HELD: WeakSet[Any] = WeakSet()


def free_in_child(held: Held) -> Held:
    """Have a lock be free in a forked child, whoever held it in the parent; returns the lock.

    Args:
        held: a lock of `threading`, or whatever else has its method `_at_fork_reinit`, which makes it as new.

    """
    _HELD.add(held)
    return held


def _free_all() -> None:
    for held in list(_HELD):
        held._at_fork_reinit()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_free_all)
