"""A real Qdrant node that is killed, stopped, paused, away, or locked, over REST and gRPC.

    QDRANT_BIN=/usr/bin/qdrant GEAR_KILLS=34 GEAR_SEED=1 pytest integration_tests/server/test_away.py -k pipeline

`GEAR_KILLS` sets how often the server ends under one pipeline, which is as long as that takes; 4 times by default.
`GEAR_SEED` sets when.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import Document
from llama_index.core.vector_stores.types import VectorStoreQuery
from qdrant_client import QdrantClient
from qdrant_node import BINARY, Node

from llama_index_gear import Budget, GeARRetriever, GeARVectorStore, GraphRetriever, MentionTripleExtractor
from llama_index_gear.errors import StoreError, StoreUnavailable
from llama_index_gear.store.settings import CollectionSettings
from llama_index_gear.testing import ScriptedLLM, WordEmbedding
from llama_index_gear.tests.store_contract import contents, passage

pytestmark = [
    pytest.mark.skipif(BINARY is None, reason="set QDRANT_BIN to the path of a Qdrant server's binary"),
    pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection"),
]
EMBED = WordEmbedding(64)
KEY = "a secret of a test, and long enough"
KILLS = int(os.environ.get("GEAR_KILLS", "4"))
SEED = int(os.environ.get("GEAR_SEED", "0"))
DOCUMENTS = 30 * (KILLS + 1)
QUERY = VectorStoreQuery(query_str="Who met Person 1?", similarity_top_k=3)
PROTOCOLS = pytest.mark.parametrize("prefer_grpc", [False, True], ids=["rest", "grpc"])


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path / "node") as node:
        yield node


def make_store(node: Node, mode: str, prefer_grpc: bool, *, api_key: str | None = None, **arguments: Any) -> Any:
    https = None if api_key is None else False
    client, aclient = node.make_clients(prefer_grpc=prefer_grpc, api_key=api_key, https=https)
    return GeARVectorStore(client=client, aclient=aclient if mode == "async" else None, embed_model=EMBED, **arguments)


Run: TypeAlias = Callable[[Callable[[], Any], Callable[[], Any]], Any]


@pytest.fixture(params=["sync", "async", "async in threads"])
def mode(request: pytest.FixtureRequest) -> str:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def run(mode: str) -> Iterator[Run]:
    """Make the sync call, or await its async twin, by mode; all in one event loop, as gRPC's async client needs it."""
    with asyncio.Runner() as runner:
        yield lambda call, acall: call() if mode == "sync" else runner.run(acall())


def make_documents() -> list[Document]:
    return [
        Document(text=f"Person {n} met Person {n + 1}. Person {n} wrote Book {n}.", id_=f"d-{n}")
        for n in range(DOCUMENTS)
    ]


def make_pipeline(store: GeARVectorStore) -> IngestionPipeline:
    return IngestionPipeline(transformations=[MentionTripleExtractor(), EMBED], vector_store=store)


def ingest(store: GeARVectorStore, documents: list[Document]) -> None:
    make_pipeline(store).run(documents=documents)


def count_passages(client: QdrantClient, collection: str) -> int:
    return client.count(collection).count if client.collection_exists(collection) else 0


@PROTOCOLS
@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_pipeline_outlives_its_server(
    tmp_path: Path, node: Node, mode: str, prefer_grpc: bool, end: str, run: Run
) -> None:
    """The server ends several times while a pipeline stores passages. The pipeline ends whole, as if it had not."""
    documents, store = make_documents(), make_store(node, mode, prefer_grpc, batch_size=2)
    watching, _ = node.make_clients(prefer_grpc=False)
    draws, ends = random.Random(f"{mode}{prefer_grpc}{end}{SEED}"), 0
    with ThreadPoolExecutor(1) as pool:
        pipeline = make_pipeline(store)
        running = pool.submit(
            run, lambda: pipeline.run(documents=documents), lambda: pipeline.arun(documents=documents)
        )
        for stored in sorted(draws.sample(range(1, DOCUMENTS - 30), KILLS)):
            while not running.done() and count_passages(watching, store.collection_name) < stored:
                time.sleep(0.01)
            ends += not running.done()
            getattr(node, end)()
            time.sleep(draws.uniform(0, 1))
            node.start()
        running.result()
    assert ends == KILLS, "the pipeline was too short"
    report = store.check()
    assert report.ok and report.passages == DOCUMENTS, str(report)
    with GeARVectorStore.from_path(tmp_path / "plain", embed_model=EMBED) as plain:
        ingest(plain, documents)
        assert contents(store) == contents(plain)


@PROTOCOLS
def test_a_question_outlives_three_seconds_without_a_server(node: Node, mode: str, prefer_grpc: bool, run: Run) -> None:
    store = make_store(node, mode, prefer_grpc)
    ingest(store, make_documents()[:10])
    before = store.query(QUERY).ids
    retriever = GraphRetriever(store)
    ranked = [result.node.node_id for result in retriever.retrieve("Who met Person 1?")]
    for ask in (
        lambda: run(lambda: store.query(QUERY), lambda: store.aquery(QUERY)).ids == before,
        lambda: (
            [
                result.node.node_id
                for result in run(
                    lambda: retriever.retrieve("Who met Person 1?"),
                    lambda: retriever.aretrieve("Who met Person 1?"),
                )
            ]
            == ranked
        ),
    ):
        node.kill()
        starting = threading.Timer(3, node.launch)
        starting.start()
        begin = time.monotonic()
        assert ask()
        assert time.monotonic() - begin >= 3
        starting.join()


@PROTOCOLS
def test_a_server_that_stays_away_is_reported(node: Node, mode: str, prefer_grpc: bool, run: Run) -> None:
    store = make_store(node, mode, prefer_grpc, collection_settings=CollectionSettings(retry_seconds=3))
    ingest(store, make_documents()[:2])
    node.kill()
    begin = time.monotonic()
    port = node.grpc_port if prefer_grpc else node.port
    with pytest.raises(StoreUnavailable, match=rf"127.0.0.1:{port}.*`query_batch_points`.*Start the server"):
        run(lambda: store.query(QUERY), lambda: store.aquery(QUERY))
    assert 3 <= time.monotonic() - begin < 20
    node.start()
    assert store.check().ok and store.query(QUERY).ids


@PROTOCOLS
def test_a_server_that_was_away_for_long_is_found_at_once(node: Node, mode: str, prefer_grpc: bool, run: Run) -> None:
    """By itself, a gRPC channel would next connect ten seconds after the server is back."""
    store = make_store(node, mode, prefer_grpc)
    ingest(store, make_documents()[:2])
    node.kill()
    ready: list[float] = []

    def start() -> None:
        node.start()
        ready.append(time.monotonic())

    starting = threading.Timer(16.5, start)
    starting.start()
    assert run(lambda: store.query(QUERY), lambda: store.aquery(QUERY)).ids
    end = time.monotonic()
    starting.join()
    assert end - ready[0] < 5


@PROTOCOLS
def test_an_agent_s_time_limit_holds(node: Node, mode: str, prefer_grpc: bool, run: Run) -> None:
    store = make_store(node, mode, prefer_grpc)
    ingest(store, make_documents()[:2])
    node.kill()
    retriever = GeARRetriever(store, llm=ScriptedLLM([]), budget=Budget(timeout=2))
    begin = time.monotonic()
    with pytest.raises(StoreUnavailable):
        run(lambda: retriever.retrieve("Who met Ada?"), lambda: retriever.aretrieve("Who met Ada?"))
    assert 1.5 <= time.monotonic() - begin < 15


@PROTOCOLS
def test_a_write_that_is_not_answered_in_time_is_made_again(node: Node, mode: str, prefer_grpc: bool, run: Run) -> None:
    """The server stands still for longer than the clients wait for an answer, and then carries out both tries."""
    store = make_store(node, mode, prefer_grpc)
    documents = make_documents()[:10]
    ingest(store, documents)
    node.signal(signal.SIGSTOP)
    going_on = threading.Timer(8, node.signal, [signal.SIGCONT])
    going_on.start()
    for document in documents:
        document.set_content(document.text.replace("met", "saw"))
    begin = time.monotonic()
    pipeline = make_pipeline(store)
    run(lambda: pipeline.run(documents=documents), lambda: pipeline.arun(documents=documents))
    assert time.monotonic() - begin >= 8
    going_on.join()
    report = store.check()
    assert report.ok and report.passages == 10, str(report)
    assert all("saw" in node.get_content() for node in store.get_nodes())


def make_token(access: Any) -> str:
    """Make a token of the server's, with these rights."""

    def encode(part: bytes) -> str:
        return base64.urlsafe_b64encode(part).decode().rstrip("=")

    parts = ({"alg": "HS256", "typ": "JWT"}, {"access": access})
    signed = ".".join(encode(json.dumps(part).encode()) for part in parts)
    return f"{signed}.{encode(hmac.new(KEY.encode(), signed.encode(), hashlib.sha256).digest())}"


@PROTOCOLS
def test_a_key_that_is_refused_is_reported_at_once(tmp_path: Path, mode: str, prefer_grpc: bool, run: Run) -> None:
    node_ = passage("p", "Ada met Bob.", [("Ada", "met", "Bob")], embed_model=EMBED)
    refused = {
        None: "does not accept the API key",
        "wrong": "does not accept the API key .*Invalid API key",
        make_token("r"): "no right to call `create_collection` of collection 'gear_triples'.*manage access",
        make_token([{"collection": "other", "access": "rw"}]): "no right to call `collection_exists`",
    }
    with Node(tmp_path / "node", SERVICE__API_KEY=KEY, SERVICE__JWT_RBAC="true") as node:
        for key, words in refused.items():
            store = make_store(node, mode, prefer_grpc, api_key=key)
            begin = time.monotonic()
            with pytest.raises(StoreError, match=words) as caught:
                run(partial(store.add, [node_]), partial(store.async_add, [node_]))
            assert not isinstance(caught.value, StoreUnavailable) and time.monotonic() - begin < 20
        make_store(node, mode, prefer_grpc, api_key=KEY).add([node_])
        reader = make_store(node, mode, prefer_grpc, api_key=make_token("r"))
        assert run(lambda: reader.query(QUERY), lambda: reader.aquery(QUERY)).ids == ["p"]
        with pytest.raises(StoreError, match="no right to call `upsert`"):
            run(lambda: reader.add([node_]), lambda: reader.async_add([node_]))
