"""Who may write what at a time: writers of the same passages take turns, others don't wait for each other.

A flow makes its claim, acquires it inside `try`, and releases it in `finally`:

    claim = locks.claim(ids)
    try:
        yield from ask(AcquirePassages(claim))
        ...
    finally:
        claim.release()

Python runs the handler of a signal (Ctrl-C) between two bytecodes: when a function of Python begins, when a call has
returned, when a loop goes round. So giving back is a single call of C, the first of the `finally`, which no interrupt
can come before; and who waits looks again and again, so that there is nobody to tell, which an interrupt could prevent.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Hashable, Set
from dataclasses import dataclass
from functools import partial
from weakref import WeakValueDictionary

from llama_index_gear.errors import StoreError
from llama_index_gear.flow import Request
from llama_index_gear.fork_safety import free_in_child

_PAUSE = 0.002  # seconds between two looks


@dataclass(eq=False)
class Claim:
    """Passages that somebody wants to write, or writes.

    Attributes:
        locks: those of the passages' collection.
        ids: of the passages; None: all.
        ticket: its place among the claims, as they were made.
        thread: who made it.
        release: lets others have the passages; safe to repeat, and where nothing was taken. A function of C.
        is_held: nobody else has the passages now.
        loop: of an async call that has asked.

    """

    locks: PassageLocks
    ids: Set[str] | None
    ticket: int
    thread: int
    release: Callable[[], object]
    is_held: bool = False
    loop: asyncio.AbstractEventLoop | None = None

    def take(self) -> None:
        """Wait until nobody writes these passages, and have them.

        Raises:
            StoreError: an async call of this very thread writes them, and could not go on while this one waits.

        """
        while in_the_way := self.locks.try_acquire(self, is_blocking=True):
            if any(other.thread == self.thread for other in in_the_way):
                raise StoreError(
                    "an async call writes the same passages on this thread's event loop, which a sync call "
                    "would block: await the async methods (async_add, adelete, …) instead"
                )
            while self.locks.has(in_the_way[-1]):
                time.sleep(_PAUSE)

    async def atake(self) -> None:
        """`take`, without blocking the event loop."""
        self.loop = asyncio.get_running_loop()
        while in_the_way := self.locks.try_acquire(self, is_blocking=False):
            while self.locks.has(in_the_way[-1]):  # noqa: ASYNC110 - an interrupt could prevent an event
                await asyncio.sleep(_PAUSE)

    @property
    def is_lost(self) -> bool:
        """Whether nobody will give it back: a second Ctrl-C can close an event loop with calls that have not ended."""
        return self.loop is not None and self.loop.is_closed()

    def meets(self, other: Claim) -> bool:
        """Whether both are of the same passage."""
        if self.ids is None or other.ids is None:
            return (self.ids is None or bool(self.ids)) and (other.ids is None or bool(other.ids))
        return not self.ids.isdisjoint(other.ids)


class PassageLocks:
    """Passages that are being written, in this process. A writer of all passages (None) has them to itself.

    Who asks first is served first, so that nobody waits for ever. Whoever has a claim asks for no other one.

    Attributes:
        clear_count: how often all passages were cleared, collections included.

    """

    def __init__(self) -> None:
        self.clear_count = 0
        self._tickets = itertools.count()
        self._claims: dict[int, Claim] = {}  # of those who have passages or wait for them, by ticket
        self._lock = free_in_child(threading.Lock())
        free_in_child(self)

    @classmethod
    def of(cls, engine: Hashable, collection_name: str) -> PassageLocks:
        """Those of a collection, the same for all stores in this process that have it."""
        with _LOCK:
            if (locks := _SHARED.get((engine, collection_name))) is None:
                locks = _SHARED[engine, collection_name] = cls()
            return locks

    def claim(self, ids: Set[str] | None) -> Claim:
        """A claim to these passages (None: all), which asks for nothing before it is taken."""
        ticket = next(self._tickets)
        return Claim(self, ids, ticket, threading.get_ident(), partial(self._claims.pop, ticket, None))

    def try_acquire(self, claim: Claim, *, is_blocking: bool) -> list[Claim]:
        """Serve a claim if nobody is in its way; returns who is: who has what it wants, and who asked before it.

        A call that blocks the event loop of its thread goes before those who wait: they may wait for that loop.
        """
        with self._lock:
            self._claims[claim.ticket] = claim
            others = [other for other in list(self._claims.values()) if other is not claim and self.has(other)]
            is_urgent = is_blocking and any(other.thread == claim.thread for other in others)
            in_the_way = [
                other
                for other in others
                if other.meets(claim) and (other.is_held or (other.ticket < claim.ticket and not is_urgent))
            ]
            claim.is_held = not in_the_way
        return in_the_way

    def has(self, claim: Claim) -> bool:
        """Whether a claim was not given back yet; one that is lost is given back."""
        if claim.is_lost:
            claim.release()
        return claim.ticket in self._claims

    def _at_fork_reinit(self) -> None:
        self._claims.clear()  # the child has none of the threads that would give them back


_SHARED: WeakValueDictionary[tuple[Hashable, str], PassageLocks] = WeakValueDictionary()
_LOCK = free_in_child(threading.Lock())


@dataclass(frozen=True)
class AcquirePassages(Request[None]):
    """Wait until nobody writes what is claimed, and have it. Who makes the claim gives it back. Answer: None."""

    claim: Claim
