"""Locks on passages: writers of the same passages take turns; writers of different passages don't wait for each other.

Locks hold within a process. What keeps writers of several processes from each other's points is in `commits`.

A flow makes its claim, acquires it inside `try`, and releases it in `finally`:

    claim = locks.claim(ids)
    try:
        yield from ask(AcquirePassages(claim))
        ...
    finally:
        claim.release()

Python runs the handler of a signal (Ctrl-C) between two bytecodes: when a Python function begins, when a call has
returned, when a loop repeats. An interrupt can therefore skip any Python code that releases a lock or notifies a
waiter. So `release` is a single call of a C function, the first in `finally`, which no interrupt can precede. And a
waiter polls, so that nobody needs to notify it.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import threading
import time
from collections.abc import Callable, Hashable, Set
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from llama_index_gear.errors import StoreError
from llama_index_gear.flow import Request, sleep
from llama_index_gear.resources import free_in_child

_POLL_SECONDS = 0.002  # between two polls
_LONGEST_WRITE = 600  # seconds after which a write of another process is taken for one that died


@dataclass(eq=False)
class Claim:
    """A request for passages to write, waiting or served.

    Attributes:
        locks: the locks of the passages' collection.
        ids: ids of the passages; None: all.
        ticket: number of the claim; claims count up.
        thread: id of the thread that made the claim.
        release: unlocks the passages, by a C function. It may be called again, or without a lock.
        is_held: True while the claim has the passages locked.
        loop: event loop of the async call that waits or has waited; None for a sync call.

    """

    locks: PassageLocks
    ids: Set[str] | None
    ticket: int
    thread: int
    release: Callable[[], object]
    is_held: bool = False
    loop: asyncio.AbstractEventLoop | None = None

    def acquire(self) -> None:
        """Wait until nobody else writes these passages, and lock them.

        Raises:
            StoreError: an async call on this thread's event loop writes them, and could not go on while this call
                waits.
            StoppedError: while it waits, the flow is to end.

        """
        while blockers := self.locks.try_acquire(self, is_blocking=True):
            if any(other.thread == self.thread for other in blockers):
                raise StoreError(
                    "an async call writes the same passages on this thread's event loop, which a sync call "
                    "would block: await the async methods (async_add, adelete, …) instead"
                )
            while self.locks.is_active(blockers[-1]):
                sleep(_POLL_SECONDS)

    async def aacquire(self) -> None:
        """`acquire`, without blocking the event loop."""
        self.loop = asyncio.get_running_loop()
        while blockers := self.locks.try_acquire(self, is_blocking=False):
            while self.locks.is_active(blockers[-1]):  # noqa: ASYNC110 - an interrupt could prevent an event
                await asyncio.sleep(_POLL_SECONDS)

    @property
    def is_lost(self) -> bool:
        """True if nobody will release the claim.

        A second Ctrl-C can close an event loop whose calls have not ended.
        """
        return self.loop is not None and self.loop.is_closed()

    def overlaps(self, other: Claim) -> bool:
        """Return True if both claims have a passage in common."""
        if self.ids is None or other.ids is None:
            return (self.ids is None or bool(self.ids)) and (other.ids is None or bool(other.ids))
        return not self.ids.isdisjoint(other.ids)


class PassageLocks:
    """The passages that are being written in this process. A claim to all passages (None) excludes every other.

    Claims are served in the order in which they were made, so that none waits for ever. A caller that has a claim asks
    for no other.

    Attributes:
        is_alone: True if no other process can write the collections while this one has them open.
        epoch: counts up when the collections may be others next: they were cleared, or a store of theirs was closed.

    """

    def __init__(self, *, is_alone: bool = False) -> None:
        self.is_alone = is_alone
        self.epoch = 0
        self._tickets = itertools.count()
        self._writes = itertools.count()
        self._process = secrets.token_hex(6)
        self._claims: dict[int, Claim] = {}  # held or waiting, by ticket
        self._lock = free_in_child(threading.Lock())
        free_in_child(self)

    @classmethod
    def for_collection(cls, engine: Hashable, collection_name: str, *, is_alone: bool) -> PassageLocks:
        """Return a collection's locks, which all its stores in this process share."""
        with _LOCK:
            if (locks := _SHARED.get((engine, collection_name))) is None:
                locks = _SHARED[engine, collection_name] = cls(is_alone=is_alone)
            return locks

    def claim(self, ids: Set[str] | None) -> Claim:
        """Make a claim to these passages (None: all). It is not queued before it is acquired."""
        ticket = next(self._tickets)
        return Claim(self, ids, ticket, threading.get_ident(), partial(self._claims.pop, ticket, None))

    def try_acquire(self, claim: Claim, *, is_blocking: bool) -> list[Claim]:
        """Serve a claim if no other blocks it; return the claims that block it.

        A claim is blocked by overlapping claims that are held, or that were made before it. A call that blocks the
        event loop of its thread goes before those who wait: they may wait for that loop.
        """
        with self._lock:
            self._claims[claim.ticket] = claim
            others = [other for other in list(self._claims.values()) if other is not claim and self.is_active(other)]
            is_urgent = is_blocking and any(other.thread == claim.thread for other in others)
            blockers = [
                other
                for other in others
                if other.overlaps(claim) and (other.is_held or (other.ticket < claim.ticket and not is_urgent))
            ]
            claim.is_held = not blockers
        return blockers

    def name_write(self, claim: Claim) -> str:
        """Return a name for a write under a claim: its second, process, claim and number, in hexadecimal."""
        return f"{int(time.time()):x}-{self._process}-{claim.ticket:x}-{next(self._writes):x}"

    def has_ended(self, write: Any) -> bool:
        """Return True if the call that made a write has ended. What is no name of a write, no call made.

        The calls of this process are known. One of another process is taken for dead ten minutes after its write began:
        a write takes seconds. An engine that serves one process at a time has no such call under way.
        """
        if not isinstance(write, str):
            return True
        try:
            second, process, ticket, _ = write.split("-")
            if process == self._process:
                claim = self._claims.get(int(ticket, 16))
                return claim is None or not self.is_active(claim)
            return self.is_alone or time.time() - int(second, 16) > _LONGEST_WRITE
        except ValueError:  # another program's
            return True

    def is_ours(self, write: Any) -> bool:
        """Return True if a call of this process made a write, and has not ended."""
        return isinstance(write, str) and self._process in write.split("-") and not self.has_ended(write)

    def is_active(self, claim: Claim) -> bool:
        """Return True if a claim is not yet released; a lost one is released here."""
        if claim.is_lost:
            claim.release()
        return claim.ticket in self._claims

    def _at_fork_reinit(self) -> None:
        self._claims.clear()  # the child has none of the threads that would release them
        self._process = secrets.token_hex(6)


_SHARED: WeakValueDictionary[tuple[Hashable, str], PassageLocks] = WeakValueDictionary()
_LOCK = free_in_child(threading.Lock())


@dataclass(frozen=True)
class AcquirePassages(Request[None]):
    """Wait until nobody else writes the claim's passages, and lock them. The flow releases the claim. Answer: None."""

    claim: Claim
