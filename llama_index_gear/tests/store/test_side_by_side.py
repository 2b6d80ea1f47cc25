"""A load sends batches side by side to a server: here Qdrant in memory, behind a client that takes its time."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from llama_index.core.schema import BaseNode
from qdrant_client import QdrantClient
from qdrant_client.http import models
from qdrant_client.http.exceptions import ResponseHandlingException

from llama_index_gear.errors import StoreError
from llama_index_gear.store.settings import CollectionSettings
from llama_index_gear.store.side_by_side import SERVER_LIMIT
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import contents, passage

EMBED = WordEmbedding(8)
BATCHES = 10


class Server:
    """A client that takes a millisecond for each call, counts how many are under way, and can fail.

    Attributes:
        most: the most calls that were under way at once.
        before: called with a method and the number of its calls so far, before it.
        written: names of the methods that write, in the order of their calls.

    """

    def __init__(self) -> None:
        self.inner = QdrantClient(":memory:")
        self.most = self._under_way = 0
        self.before: Callable[[str, int], None] = lambda method, count: None
        self.written: list[str] = []
        self._lock = threading.RLock()

    def query_batch_points(self, **arguments: Any) -> Any:
        return self._call("query_batch_points", arguments)

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_") or not callable(getattr(QdrantClient, method, None)):
            raise AttributeError(method)

        def call(*names: str, **arguments: Any) -> Any:
            return self._call(method, {**dict(zip(["collection_name"], names, strict=False)), **arguments})

        return call

    def _call(self, method: str, arguments: dict[str, Any]) -> Any:
        with self._lock:
            self._under_way += 1
            self.most = max(self.most, self._under_way)
            if method in ("upsert", "delete", "batch_update_points"):
                self.written.append(method)
            count = self.written.count(method)
        try:
            self.before(method, count)
            time.sleep(0.001)
            with self._lock:
                return getattr(self.inner, method)(**arguments)
        finally:
            with self._lock:
                self._under_way -= 1


class AloneEmbedding(WordEmbedding):
    """A model that two threads cannot use at once."""

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        assert ALONE.acquire(blocking=False), "two threads embed at once"
        try:
            time.sleep(0.001)
            return super()._get_text_embeddings(texts)
        finally:
            ALONE.release()


ALONE = threading.Lock()
ALONE_EMBED = AloneEmbedding(dimension=8)


def make_store(client: Any, **arguments: Any) -> GeARVectorStore:
    return GeARVectorStore(client=client, embed_model=ALONE_EMBED, batch_size=2, **arguments)


def make_nodes(word: str = "met") -> list[BaseNode]:
    return [
        passage(f"p{n}", f"P{n} {word} P{n + 1}.", [(f"P{n}", word, f"P{n + 1}"), ("All", word, f"P{n}")])
        for n in range(2 * BATCHES)
    ]


def embedded(nodes: list[BaseNode]) -> list[BaseNode]:
    for node in nodes:
        node.embedding = EMBED.get_text_embedding(node.get_content())
    return nodes


def load(store: GeARVectorStore, nodes: list[BaseNode], mode: str) -> list[str]:
    return store.add(nodes) if mode == "sync" else asyncio.run(store.async_add(nodes))


MODES = pytest.mark.parametrize("mode", ["sync", "async"])


@MODES
def test_a_load_sends_batches_side_by_side_and_stores_the_same(mode: str) -> None:
    nodes, server = embedded(make_nodes()), Server()
    store, plain = make_store(server), make_store(QdrantClient(":memory:"))
    for version in (nodes, embedded(make_nodes("saw"))):  # the second replaces the first
        assert load(store, version, mode) == plain.add(version) == [node.node_id for node in nodes]
        assert contents(store) == contents(plain) and store.check(sample_size=0).ok
    assert 2 <= server.most <= 2 * SERVER_LIMIT  # a batch makes two calls at once, at most


@MODES
def test_when_a_batch_fails_the_others_end_and_nothing_is_written_afterwards(mode: str) -> None:
    server = Server()
    store = make_store(server)

    def fail(method: str, count: int) -> None:
        if method == "upsert" and count == 7:
            raise RuntimeError("the disk is full")

    server.before = fail
    with pytest.raises(RuntimeError, match="the disk is full"):
        load(store, embedded(make_nodes()), mode)
    written = len(server.written)
    time.sleep(0.05)
    assert len(server.written) == written < 4 * BATCHES and not store._locks._claims
    report = store.check(sample_size=0)
    assert not report.incomplete and report.passages < 2 * BATCHES
    server.before = lambda method, count: None
    load(store, embedded(make_nodes()), mode)  # repeating it mends what is left
    assert store.check(sample_size=0).ok


def test_an_interrupt_ends_a_load_once_what_is_under_way_has_ended(interruptible: None) -> None:
    server = Server()
    store = make_store(server)

    def interrupt(method: str, count: int) -> None:
        if method == "upsert" and count == 7:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    server.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        store.add(embedded(make_nodes()))
    written = len(server.written)
    time.sleep(0.05)
    assert len(server.written) == written < 2 * BATCHES and not store._locks._claims
    assert not store.check(sample_size=0).incomplete


@pytest.mark.parametrize("ending", ["failure", "interrupt"])
@pytest.mark.parametrize("awaited", ["server", "lock"])
def test_nobody_waits_on_once_a_load_has_ended(interruptible: None, ending: str, awaited: str) -> None:
    """Other batches wait for a server that is away, or for passages that another call writes."""
    server, waiting = Server(), threading.Event()
    store, nodes = make_store(server, collection_settings=CollectionSettings(retry_seconds=300)), embedded(make_nodes())
    claim = store._locks.claim({"p3"} if awaited == "lock" else set())
    claim.acquire()
    store.add(nodes[:2])  # makes the collections

    def end_load(method: str, count: int) -> None:
        if method == "upsert" and threading.current_thread() is not threading.main_thread():
            if not waiting.is_set():
                waiting.set()  # the first one to come here
                time.sleep(0.05)
                if ending == "failure":
                    raise RuntimeError("the disk is full")
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            elif awaited == "server":
                raise ResponseHandlingException(httpx.ConnectError("Connection refused"))

    server.before = end_load
    start = time.monotonic()
    giving_up = threading.Timer(150, claim.release)
    giving_up.start()
    with pytest.raises(RuntimeError if ending == "failure" else KeyboardInterrupt):
        store.add(nodes)
    giving_up.cancel()
    assert time.monotonic() - start < 150
    claim.release()
    assert not store._locks._claims


def test_a_sync_load_within_an_event_loop_does_not_wait_for_that_loop() -> None:
    """The async call holds the passages until the loop goes on, which the sync call would prevent."""
    store, nodes = make_store(Server()), embedded(make_nodes())
    plain = make_store(Server())

    async def work() -> None:
        plain.add(nodes)
        writing = asyncio.ensure_future(store.async_add(nodes))
        while not any(claim.is_held for claim in list(store._locks._claims.values())):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)
        with pytest.raises(StoreError, match="await the async methods"):
            store.add(nodes)
        await writing

    asyncio.run(work())
    assert store.check(sample_size=0).ok and contents(plain) == contents(store)


# -- copies --------------------------------------------------------------------------------------------------------


class Optimized(Server):
    """A server that keeps the threshold from which on it builds an index, and when that was set."""

    def __init__(self) -> None:
        super().__init__()
        self.thresholds: dict[str, int] = {}
        self.set_after: list[tuple[int, int]] = []  # (upserts so far, threshold)

    def _call(self, method: str, arguments: dict[str, Any]) -> Any:
        config = arguments.get("optimizers_config")
        if method in ("create_collection", "update_collection"):
            threshold = models.OptimizersConfigDiff.model_validate(config or {}).indexing_threshold
            threshold = 20_000 if threshold is None else threshold
            self.thresholds[arguments["collection_name"]] = threshold
            self.set_after.append((self.written.count("upsert"), threshold))
        answer = super()._call(method, arguments)
        if method == "get_collection":
            answer.config.optimizer_config.indexing_threshold = self.thresholds[arguments["collection_name"]]
        return answer


def copy(source: GeARVectorStore, target: GeARVectorStore, mode: str) -> int:
    return source.copy_to(target) if mode == "sync" else asyncio.run(source.acopy_to(target))


@MODES
def test_a_copy_sends_pages_side_by_side_and_has_the_index_built_once(mode: str) -> None:
    source, server = make_store(QdrantClient(":memory:")), Optimized()
    source.add(embedded(make_nodes()))
    target = make_store(server)
    assert copy(source, target, mode) == 2 * BATCHES
    assert list(contents(target).values()) == list(contents(source).values())
    assert 2 <= server.most <= 2 * SERVER_LIMIT
    writes = server.written.count("upsert")
    assert server.set_after == [(0, 0), (0, 0), (writes, 20_000), (writes, 20_000)]


def test_optimizers_may_be_chosen_as_a_dict() -> None:
    source, server = make_store(QdrantClient(":memory:")), Optimized()
    source.add(embedded(make_nodes())[:4])
    options = {"optimizers_config": {"default_segment_number": 1, "indexing_threshold": 7}}
    target = make_store(server, collection_settings=CollectionSettings(collection_options=options))
    assert source.copy_to(target) == source.copy_to(target) == 4
    assert [threshold for _, threshold in server.set_after] == [0, 0, 7, 7]


@MODES
def test_a_copy_into_a_store_in_use_leaves_its_index_to_the_server(mode: str) -> None:
    source, server = make_store(QdrantClient(":memory:")), Optimized()
    source.add(embedded(make_nodes()))
    options = {"optimizers_config": models.OptimizersConfigDiff(indexing_threshold=7)}
    target = make_store(server, collection_settings=CollectionSettings(collection_options=options))
    target.add(embedded(make_nodes("saw")))
    copy(source, target, mode)
    assert set(server.thresholds.values()) == {7} and len(server.set_after) == 2


@pytest.mark.parametrize("left", [("gear", "gear_triples"), ("gear_triples",)])
def test_a_copy_that_is_repeated_after_a_kill_has_the_index_built(left: tuple[str, ...]) -> None:
    source, server = make_store(QdrantClient(":memory:")), Optimized()
    source.add(embedded(make_nodes()))
    target = make_store(server)
    target.add(embedded(make_nodes())[:2])
    assert set(left) <= set(server.thresholds)
    server.thresholds |= dict.fromkeys(left, 0)  # as a killed copy leaves it
    source.copy_to(target)
    assert set(server.thresholds.values()) == {20_000}


def test_a_copy_into_a_later_format_is_refused_before_anything_is_updated() -> None:
    source, server = make_store(QdrantClient(":memory:")), Optimized()
    source.add(embedded(make_nodes())[:2])
    made = make_store(server)
    made.add(embedded(make_nodes())[:2])
    server.thresholds = dict.fromkeys(server.thresholds, 0)
    server.inner.update_collection("gear", metadata={"gear_format": 2})
    updates = list(server.set_after)
    with pytest.raises(StoreError, match="format 2"):
        source.copy_to(make_store(server))
    assert server.set_after == updates


def test_a_copy_within_a_bulk_load_leaves_the_index_to_its_end() -> None:
    source, server = make_store(QdrantClient(":memory:")), Optimized()
    source.add(embedded(make_nodes()))
    target = make_store(server)
    with target.bulk_load():
        source.copy_to(target)
        assert set(server.thresholds.values()) == {0}
    assert set(server.thresholds.values()) == {20_000}


class Wrapper:
    """A client around another one."""

    def __init__(self, client: Any) -> None:
        self.inner = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_qdrant_in_memory_behind_a_wrapper_gets_one_call_at_a_time() -> None:
    inner = Server()
    inner._client = inner.inner._client  # type: ignore[attr-defined]
    store = make_store(Wrapper(inner))
    store.add(embedded(make_nodes()))
    assert inner.most == 1 and store.check(sample_size=0).ok
