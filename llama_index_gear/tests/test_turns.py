from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from qdrant_client import AsyncQdrantClient, QdrantClient

from llama_index_gear import GeARVectorStore
from llama_index_gear.errors import StoreError
from llama_index_gear.turns import Turns


def waits(turns: Turns, ids: set[str] | None) -> bool:
    """Whether a claim in another thread has to wait."""
    before = len(turns._claims)
    with ThreadPoolExecutor(1) as pool:
        claim = pool.submit(turns.take, ids)
        while len(turns._claims) == before:
            assert not claim.done() or claim.result() is None
        with turns._changed:  # it has this until it is served, or waits
            waiting = not turns._claims[-1].is_held
            held = [each.ids for each in turns._claims if each.is_held]
        for each in held if waiting else ():  # or the pool would wait for ever
            turns.give_back(each)
        claim.result(timeout=5)
        turns.give_back(ids)
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


def test_who_asks_first_is_served_first() -> None:
    """Or a delete would wait until nobody adds any more."""
    turns = Turns()
    turns.take({"a"})
    order: list[str] = []

    def write(name: str, ids: set[str] | None) -> None:
        turns.take(ids)
        order.append(name)
        turns.give_back(ids)

    threads = []
    for name, ids in (("delete", None), ("add", {"b"}), ("add", {"c"})):
        threads.append(threading.Thread(target=write, args=(name, ids)))
        threads[-1].start()
        while len(turns._claims) <= len(threads):
            pass
    assert order == []  # b and c are free, but were asked for after all of them
    turns.give_back({"a"})
    for thread in threads:
        thread.join(timeout=5)
    assert order[0] == "delete" and len(order) == 3


async def test_who_is_cancelled_while_waiting_is_in_nobodys_way() -> None:
    turns = Turns()
    await turns.atake({"a"})
    waiting = asyncio.create_task(turns.atake(None))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.wait_for(turns.atake({"b"}), 5)
    turns.give_back({"a"})
    turns.give_back({"b"})
    assert turns._claims == []


async def test_a_sync_call_does_not_wait_for_who_waits_for_its_own_event_loop() -> None:
    turns = Turns()
    await turns.atake({"a"})

    def other() -> None:
        turns.take(None)
        turns.give_back(None)

    thread = threading.Thread(target=other)
    thread.start()
    while len(turns._claims) < 2:
        pass
    turns.take({"b"})  # the thread waits for "a", which is given back by this loop alone
    turns.give_back({"b"})
    turns.give_back({"a"})
    thread.join(timeout=5)
    assert not thread.is_alive() and turns._claims == []


def test_stores_of_one_client_or_one_server_share_them() -> None:
    def turns(client: QdrantClient | None, aclient: AsyncQdrantClient | None = None, name: str = "a") -> Turns:
        stores.append(GeARVectorStore(client, aclient, collection_name=name))
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
