"""Who may write what at a time: writers of the same passages take turns, others don't wait for each other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Hashable, Set
from dataclasses import dataclass
from weakref import WeakValueDictionary

from llama_index_gear.errors import StoreError

_PAUSE = 0.002  # seconds between two looks, on an event loop


@dataclass(eq=False)
class _Claim:
    """Who wants, or has, which passages (None: all)."""

    ids: Set[str] | None
    thread: int
    is_held: bool = False

    def meets(self, other: _Claim) -> bool:
        if self.ids is None or other.ids is None:
            return (self.ids is None or bool(self.ids)) and (other.ids is None or bool(other.ids))
        return not self.ids.isdisjoint(other.ids)


class Turns:
    """Passages that are being written, in this process. A writer of all passages (None) has them to itself.

    Who asks first is served first, so that nobody waits for ever. Whoever has a claim asks for no other one.

    Attributes:
        clears: how often all passages were cleared, collections included.

    """

    def __init__(self) -> None:
        self.clears = 0
        self._changed = threading.Condition()
        self._claims: list[_Claim] = []  # as they were asked for

    @classmethod
    def of(cls, engine: Hashable, collection_name: str) -> Turns:
        """Those of a collection, the same for all stores in this process that have it."""
        with _LOCK:
            if (turns := _SHARED.get((engine, collection_name))) is None:
                turns = _SHARED[engine, collection_name] = cls()
            return turns

    def take(self, ids: Set[str] | None) -> None:
        """Wait until nobody writes these, and claim them.

        Raises:
            StoreError: an async call of this very thread writes them, and could not go on while this one waits.

        """
        with self._changed:
            claim = self._asked(ids)
            # An event loop of this thread stands still meanwhile, and what it writes may be what others wait for.
            is_urgent = any(each.thread == claim.thread for each in self._claims if each is not claim)
            try:
                while in_the_way := self._before(claim, is_urgent):
                    if any(each.thread == claim.thread for each in in_the_way):
                        raise StoreError(
                            "an async call writes the same passages on this thread's event loop, which a sync call "
                            "would block: await the async methods (async_add, adelete, …) instead"
                        )
                    self._changed.wait()
                claim.is_held = True
            except BaseException:
                self._withdraw(claim)
                raise

    async def atake(self, ids: Set[str] | None) -> None:
        """`take`, without blocking the event loop; nothing is claimed by a caller that is cancelled."""
        with self._changed:
            claim = self._asked(ids)
        try:
            while True:
                with self._changed:
                    if not self._before(claim, False):
                        claim.is_held = True
                        return
                await asyncio.sleep(_PAUSE)
        except BaseException:
            with self._changed:
                self._withdraw(claim)
            raise

    def give_back(self, ids: Set[str] | None) -> None:
        """Let others have them."""
        with self._changed:
            self._withdraw(next(each for each in self._claims if each.is_held and each.ids == ids))

    def _asked(self, ids: Set[str] | None) -> _Claim:
        claim = _Claim(ids, threading.get_ident())
        self._claims.append(claim)
        return claim

    def _before(self, claim: _Claim, is_urgent: bool) -> list[_Claim]:
        """Whom this claim waits for: those who have what it wants, and, unless it is urgent, who asked before it."""
        place = self._claims.index(claim)
        return [
            each
            for number, each in enumerate(self._claims)
            if each is not claim and each.meets(claim) and (each.is_held or (number < place and not is_urgent))
        ]

    def _withdraw(self, claim: _Claim) -> None:
        self._claims.remove(claim)
        self._changed.notify_all()


_SHARED: WeakValueDictionary[tuple[Hashable, str], Turns] = WeakValueDictionary()
_LOCK = threading.Lock()


@dataclass(frozen=True)
class Take:
    """Claim passages, by id; all of them with None. Whoever asks gives them back. Answer: None."""

    turns: Turns
    ids: Set[str] | None
