from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from qdrant_client import AsyncQdrantClient, QdrantClient

from llama_index_gear import GeARVectorStore
from llama_index_gear.errors import StoreError
from llama_index_gear.store.locks import Claim, PassageLocks


def take(turns: PassageLocks, ids: set[str] | None) -> Claim:
    claim = turns.claim(ids)
    claim.take()
    return claim


async def atake(turns: PassageLocks, ids: set[str] | None) -> Claim:
    claim = turns.claim(ids)
    try:
        await claim.atake()
    except BaseException:
        claim.release()
        raise
    return claim


def asked(turns: PassageLocks, number: int) -> None:
    """Return when so many claims were asked for and not given back."""
    while len(turns._claims) < number:
        time.sleep(0)


def waits(turns: PassageLocks, ids: set[str] | None) -> bool:
    """Whether a claim in another thread has to wait."""
    before = list(turns._claims.values())
    with ThreadPoolExecutor(1) as pool:
        claim = pool.submit(take, turns, ids)
        asked(turns, len(before) + 1)
        with turns._lock:  # until it is served, or waits
            waiting = not list(turns._claims.values())[-1].is_held
        for other in before if waiting else ():  # or the pool would wait for ever
            other.release()
        claim.result(timeout=60).release()
    return waiting


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
        (None, set(), False),
    ],
)
def test_only_writers_of_the_same_passages_wait(one: set[str] | None, other: set[str] | None, expected: bool) -> None:
    turns = PassageLocks()
    take(turns, one)
    assert waits(turns, other) == expected


def test_who_waits_goes_on_when_all_are_given_back() -> None:
    turns, order = PassageLocks(), []
    first = take(turns, {"a"})

    def second() -> None:
        claim = take(turns, {"a", "b"})
        order.append("second")
        claim.release()

    thread = threading.Thread(target=second)
    thread.start()
    asked(turns, 2)
    order.append("first")
    first.release()
    thread.join(timeout=60)
    assert order == ["first", "second"]
    take(turns, None)


async def test_async_writers_take_turns_and_a_cancelled_one_claims_nothing() -> None:
    turns = PassageLocks()
    first = await atake(turns, {"a"})
    cancelled, waiting = asyncio.create_task(atake(turns, {"a"})), asyncio.create_task(atake(turns, {"a", "b"}))
    await asyncio.sleep(0)  # both have asked
    assert len(turns._claims) == 3 and not waiting.done()
    cancelled.cancel()
    first.release()
    (await asyncio.wait_for(waiting, 60)).release()
    await asyncio.wait_for(atake(turns, None), 60)


async def test_a_sync_call_that_would_wait_for_its_own_event_loop_is_refused() -> None:
    turns = PassageLocks()
    await atake(turns, {"a"})
    for ids in ({"a"}, None):
        claim = turns.claim(ids)
        with pytest.raises(StoreError, match="async_add"):
            claim.take()
        claim.release()
    take(turns, {"b"})


def test_who_asks_first_is_served_first() -> None:
    """Or a delete would wait until nobody adds any more."""
    turns = PassageLocks()
    first = take(turns, {"a"})
    order: list[str] = []

    def write(name: str, ids: set[str] | None) -> None:
        claim = take(turns, ids)
        order.append(name)
        claim.release()

    threads = []
    for name, ids in (("delete", None), ("add", {"b"}), ("add", {"c"})):
        threads.append(threading.Thread(target=write, args=(name, ids)))
        threads[-1].start()
        asked(turns, len(threads) + 1)
    assert order == []  # b and c are free, but were asked for after all of them
    first.release()
    for thread in threads:
        thread.join(timeout=60)
    assert order[0] == "delete" and len(order) == 3


async def test_who_is_cancelled_while_waiting_is_in_nobodys_way() -> None:
    turns = PassageLocks()
    first = await atake(turns, {"a"})
    waiting = asyncio.create_task(atake(turns, None))
    await asyncio.sleep(0)
    assert len(turns._claims) == 2
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    (await asyncio.wait_for(atake(turns, {"b"}), 60)).release()
    first.release()
    assert not turns._claims


async def test_a_sync_call_does_not_wait_for_who_waits_for_its_own_event_loop() -> None:
    turns = PassageLocks()
    first = await atake(turns, {"a"})
    thread = threading.Thread(target=lambda: take(turns, None).release())
    thread.start()
    asked(turns, 2)
    take(turns, {"b"}).release()  # the thread waits for "a", which is given back by this loop alone
    first.release()
    thread.join(timeout=60)
    assert not thread.is_alive() and not turns._claims


@pytest.mark.parametrize("ids", [{"a"}, None])
def test_what_a_closed_event_loop_has_claimed_keeps_nobody_waiting(ids: set[str] | None) -> None:
    """As a second Ctrl-C closes it: with calls that were begun, and that something still refers to."""
    turns, loop = PassageLocks(), asyncio.new_event_loop()
    held = turns.claim(ids)
    loop.run_until_complete(held.atake())
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(take, turns, {"a", "b"})
        asked(turns, 2)
        assert not waiting.done()
        loop.close()
        waiting.result(timeout=60).release()
    assert not turns._claims


def test_many_that_wait_for_one_another_are_served_in_turn() -> None:
    """Each waits for the one before it, and none has what another has."""
    turns, order, busy = PassageLocks(), list[int](), threading.Lock()
    first = take(turns, None)

    def write(number: int) -> None:
        claim = take(turns, None if number % 3 else {"a"})
        assert busy.acquire(blocking=False)
        order.append(number)
        busy.release()
        claim.release()

    with ThreadPoolExecutor(20) as pool:
        writes = []
        for number in range(20):
            writes.append(pool.submit(write, number))
            asked(turns, number + 2)
        first.release()
        for writing in writes:
            writing.result(timeout=60)
    assert order == list(range(20)) and not turns._claims


def test_stores_of_one_client_or_one_server_share_them() -> None:
    def turns(client: QdrantClient | None, aclient: AsyncQdrantClient | None = None, name: str = "a") -> PassageLocks:
        stores.append(GeARVectorStore(name, client, aclient))
        return stores[-1]._turns

    stores: list[GeARVectorStore] = []
    client = QdrantClient(":memory:")
    address: dict[str, Any] = {"url": "http://localhost:9", "check_compatibility": False}
    assert turns(client) is turns(client) is not turns(client, name="b")
    assert turns(client) is not turns(QdrantClient(":memory:"))
    server = turns(QdrantClient(**address))
    assert server is turns(None, AsyncQdrantClient(**address)) is turns(QdrantClient(**address))
    assert server is not turns(QdrantClient(**{**address, "url": "http://localhost:8"}))
    assert server is turns(QdrantClient("http://localhost:9", check_compatibility=False))
