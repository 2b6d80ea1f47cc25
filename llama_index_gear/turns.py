"""Who may write what at a time: writers of the same passages take turns, others don't wait for each other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Set
from dataclasses import dataclass

from llama_index_gear.errors import StoreError

_PAUSE = 0.002  # seconds between two looks, on an event loop


class Turns:
    """Passages that are being written, in this process. A writer of all passages (None) has them to itself."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._writers: dict[str | None, int] = {}  # passage, or all (None) → thread of who writes it

    def take(self, ids: Set[str] | None) -> None:
        """Wait until nobody writes these, and claim them.

        Raises:
            StoreError: an async call of this very thread writes them, and could not go on while this one waits.

        """
        with self._changed:
            while in_the_way := self._claimed(ids):
                if threading.get_ident() in in_the_way:
                    raise StoreError(
                        "an async call writes the same passages on this thread's event loop, which a sync call would "
                        "block: await the async methods (async_add, adelete, …) instead"
                    )
                self._changed.wait()

    async def atake(self, ids: Set[str] | None) -> None:
        """`take`, without blocking the event loop; nothing is claimed by a caller that is cancelled."""
        while True:
            with self._changed:
                if not self._claimed(ids):
                    return
            await asyncio.sleep(_PAUSE)

    def give_back(self, ids: Set[str] | None) -> None:
        """Let others have them."""
        with self._changed:
            for claimed in [None] if ids is None else ids:
                del self._writers[claimed]
            self._changed.notify_all()

    def _claimed(self, ids: Set[str] | None) -> set[int]:
        """Claim these, unless somebody writes one of them: then the threads of those who do."""
        asked = {*self._writers} if ids is None else {None, *ids}
        in_the_way = {self._writers[each] for each in asked if each in self._writers}
        if not in_the_way:
            self._writers.update(dict.fromkeys([None] if ids is None else ids, threading.get_ident()))
        return in_the_way


@dataclass(frozen=True)
class Take:
    """Claim passages, by id; all of them with None. Whoever asks gives them back. Answer: None."""

    turns: Turns
    ids: Set[str] | None
