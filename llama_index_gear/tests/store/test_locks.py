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


def take(locks: PassageLocks, ids: set[str] | None) -> Claim:
    claim = locks.claim(ids)
    claim.acquire()
    return claim


async def atake(locks: PassageLocks, ids: set[str] | None) -> Claim:
    claim = locks.claim(ids)
    try:
        await claim.aacquire()
    except BaseException:
        claim.release()
        raise
    return claim


def wait_until_asked(locks: PassageLocks, number: int) -> None:
    """Return when so many claims are pending or held."""
    while len(locks._claims) < number:
        time.sleep(0)


def has_to_wait(locks: PassageLocks, ids: set[str] | None) -> bool:
    """Return True if a claim in another thread has to wait."""
    before = list(locks._claims.values())
    with ThreadPoolExecutor(1) as pool:
        claim = pool.submit(take, locks, ids)
        wait_until_asked(locks, len(before) + 1)
        with locks._lock:  # until it is served, or waits
            waiting = not list(locks._claims.values())[-1].is_held
        for holder in before if waiting else ():  # or the pool would wait for ever
            holder.release()
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
    locks = PassageLocks()
    take(locks, one)
    assert has_to_wait(locks, other) == expected


def test_who_waits_goes_on_when_all_are_given_back() -> None:
    locks, order = PassageLocks(), []
    first = take(locks, {"a"})

    def take_second() -> None:
        claim = take(locks, {"a", "b"})
        order.append("second")
        claim.release()

    thread = threading.Thread(target=take_second)
    thread.start()
    wait_until_asked(locks, 2)
    order.append("first")
    first.release()
    thread.join(timeout=60)
    assert order == ["first", "second"]
    take(locks, None)


async def test_async_writers_take_turns_and_a_cancelled_one_claims_nothing() -> None:
    locks = PassageLocks()
    first = await atake(locks, {"a"})
    cancelled, waiting = asyncio.create_task(atake(locks, {"a"})), asyncio.create_task(atake(locks, {"a", "b"}))
    await asyncio.sleep(0)  # both have asked
    assert len(locks._claims) == 3 and not waiting.done()
    cancelled.cancel()
    first.release()
    (await asyncio.wait_for(waiting, 60)).release()
    await asyncio.wait_for(atake(locks, None), 60)


async def test_a_sync_call_that_would_wait_for_its_own_event_loop_is_refused() -> None:
    locks = PassageLocks()
    await atake(locks, {"a"})
    for ids in ({"a"}, None):
        claim = locks.claim(ids)
        with pytest.raises(StoreError, match="async_add"):
            claim.acquire()
        claim.release()
    take(locks, {"b"})


def test_who_asks_first_is_served_first() -> None:
    """Claims are served in order, or a delete would wait until nobody adds any more."""
    locks = PassageLocks()
    first = take(locks, {"a"})
    order: list[str] = []

    def write(name: str, ids: set[str] | None) -> None:
        claim = take(locks, ids)
        order.append(name)
        claim.release()

    threads = []
    for name, ids in (("delete", None), ("add", {"b"}), ("add", {"c"})):
        threads.append(threading.Thread(target=write, args=(name, ids)))
        threads[-1].start()
        wait_until_asked(locks, len(threads) + 1)
    assert order == []  # b and c are free, but were asked for after all of them
    first.release()
    for thread in threads:
        thread.join(timeout=60)
    assert order[0] == "delete" and len(order) == 3


async def test_who_is_cancelled_while_waiting_is_in_nobodys_way() -> None:
    locks = PassageLocks()
    first = await atake(locks, {"a"})
    waiting = asyncio.create_task(atake(locks, None))
    await asyncio.sleep(0)
    assert len(locks._claims) == 2
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    (await asyncio.wait_for(atake(locks, {"b"}), 60)).release()
    first.release()
    assert not locks._claims


async def test_a_sync_call_does_not_wait_for_who_waits_for_its_own_event_loop() -> None:
    locks = PassageLocks()
    first = await atake(locks, {"a"})
    thread = threading.Thread(target=lambda: take(locks, None).release())
    thread.start()
    wait_until_asked(locks, 2)
    take(locks, {"b"}).release()  # the thread waits for "a", which is given back by this loop alone
    first.release()
    thread.join(timeout=60)
    assert not thread.is_alive() and not locks._claims


@pytest.mark.parametrize("ids", [{"a"}, None])
def test_what_a_closed_event_loop_has_claimed_keeps_nobody_waiting(ids: set[str] | None) -> None:
    """A claim of a closed event loop is dropped, although its call was begun and something still refers to it."""
    locks, loop = PassageLocks(), asyncio.new_event_loop()
    held = locks.claim(ids)
    loop.run_until_complete(held.aacquire())
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(take, locks, {"a", "b"})
        wait_until_asked(locks, 2)
        assert not waiting.done()
        loop.close()
        waiting.result(timeout=60).release()
    assert not locks._claims


def test_stores_of_one_client_or_one_server_share_them() -> None:
    def get_locks(
        client: QdrantClient | None, aclient: AsyncQdrantClient | None = None, name: str = "a"
    ) -> PassageLocks:
        stores.append(GeARVectorStore(name, client, aclient))
        return stores[-1]._locks

    stores: list[GeARVectorStore] = []
    client = QdrantClient(":memory:")
    address: dict[str, Any] = {"url": "http://localhost:9", "check_compatibility": False}
    assert get_locks(client) is get_locks(client) is not get_locks(client, name="b")
    assert get_locks(client) is not get_locks(QdrantClient(":memory:"))
    server = get_locks(QdrantClient(**address))
    assert server is get_locks(None, AsyncQdrantClient(**address)) is get_locks(QdrantClient(**address))
    assert server is not get_locks(QdrantClient(**{**address, "url": "http://localhost:8"}))
    assert server is get_locks(QdrantClient("http://localhost:9", check_compatibility=False))
