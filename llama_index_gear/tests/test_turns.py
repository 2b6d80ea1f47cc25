from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from llama_index_gear.errors import StoreError
from llama_index_gear.turns import Turns


def waits(turns: Turns, ids: set[str] | None) -> bool:
    """Whether a claim in another thread has to wait."""
    with ThreadPoolExecutor(1) as pool:
        claim = pool.submit(turns.take, ids)
        try:
            claim.result(timeout=0.05)
        except TimeoutError:
            return True
        finally:
            waiting = not claim.done()
            if waiting:
                for held in list(turns._writers):  # or the pool would wait for ever
                    turns.give_back(None if held is None else {held})
            claim.result(timeout=5)
            turns.give_back(ids)
    return False


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({"a", "b"}, {"b", "c"}, True),
        ({"a", "b"}, {"c"}, False),
        ({"a"}, None, True),
        (None, {"a"}, True),
        (None, None, True),
        (set(), None, False),
        (set(), set(), False),
        (None, set(), True),
    ],
)
def test_only_writers_of_the_same_passages_wait(one: set[str] | None, other: set[str] | None, expected: bool) -> None:
    turns = Turns()
    turns.take(one)
    assert waits(turns, other) == expected


def test_who_waits_goes_on_when_all_are_given_back() -> None:
    turns, order = Turns(), []
    turns.take({"a"})

    def second() -> None:
        turns.take({"a", "b"})
        order.append("second")
        turns.give_back({"a", "b"})

    thread = threading.Thread(target=second)
    thread.start()
    order.append("first")
    turns.give_back({"a"})
    thread.join(timeout=5)
    assert order == ["first", "second"]
    turns.take(None)


async def test_async_writers_take_turns_and_a_cancelled_one_claims_nothing() -> None:
    turns = Turns()
    await turns.atake({"a"})
    cancelled, waiting = asyncio.create_task(turns.atake({"a"})), asyncio.create_task(turns.atake({"a", "b"}))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    cancelled.cancel()
    turns.give_back({"a"})
    await asyncio.wait_for(waiting, 5)
    turns.give_back({"a", "b"})
    await turns.atake(None)


async def test_a_sync_call_that_would_wait_for_its_own_event_loop_is_refused() -> None:
    turns = Turns()
    await turns.atake({"a"})
    with pytest.raises(StoreError, match="async_add"):
        turns.take({"a"})
    with pytest.raises(StoreError, match="async_add"):
        turns.take(None)
    turns.take({"b"})
