"""Three real nodes, every shard on two of them: one is killed under load and comes back; writers at several nodes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import VectorStoreQuery
from qdrant_client import models
from qdrant_node import BINARY, Cluster, Node

from llama_index_gear import GeARVectorStore, GraphRetriever
from llama_index_gear.store.settings import CollectionSettings
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import contents, passage

pytestmark = pytest.mark.skipif(BINARY is None, reason="set QDRANT_BIN to the path of a Qdrant server's binary")
EMBED = WordEmbedding(64)
REPLICATED = {"shard_number": 3, "replication_factor": 2}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def make_store(node: Node, name: str, **arguments: Any) -> GeARVectorStore:
    client, _ = node.make_clients(prefer_grpc=True, timeout=10)
    return GeARVectorStore(name, client=client, embed_model=EMBED, batch_size=4, **arguments)


def make_nodes(document: int, version: int = 0) -> list[BaseNode]:
    """Make four passages of a document, with three triples each."""
    return [
        passage(
            f"d{document}-{part}",
            f"Person {document} met Person {document + part} in version {version}.",
            [
                (f"Person {document}", "met", f"Person {document + part}"),
                (f"Person {document}", "is of version", f"V{version}"),
                ("All", "know", f"Person {document}"),
            ],
            document=f"d{document}",
            embed_model=EMBED,
            metadata={"version": version},
        )
        for part in range(4)
    ]


class Load:
    """Questions and writes that go on until they are stopped; errors are kept."""

    def __init__(self, store: GeARVectorStore) -> None:
        self.store = store
        self.asked, self.written = 0, list[float]()
        self.away = (0.0, 0.0)
        self.errors: dict[str, list[Exception]] = {"ask": [], "write": []}
        self._stopped = threading.Event()

    def ask(self) -> None:
        """Ask on and on; an answer must have passages."""
        retriever = GraphRetriever(self.store)
        while not self._stopped.is_set():
            try:
                assert self.store.query(VectorStoreQuery(query_str="Person 3", similarity_top_k=3)).ids
                assert retriever.retrieve("Whom did Person 3 meet?")
                self.asked += 2
            except Exception as error:  # noqa: BLE001 - counted
                self.errors["ask"].append(error)

    def write(self) -> None:
        """Write document after document, each in several versions."""
        number = 0
        while not self._stopped.is_set():
            number += 1
            try:
                self.store.add(make_nodes(number % 40, number))
                self.written.append(time.monotonic())
            except Exception as error:  # noqa: BLE001 - counted
                self.errors["write"].append(error)
                time.sleep(0.2)

    def stop(self) -> None:
        self._stopped.set()


def lose_a_node(cluster: Cluster, store: GeARVectorStore, lost: Node) -> Load:
    """Kill a node under load; start it again, and return once all replicas are active."""
    load = Load(store)
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(load.ask), pool.submit(load.write)]
        try:
            time.sleep(2)
            lost.kill()
            killed = time.monotonic()
            time.sleep(8)
            load.away = (killed + 1, time.monotonic())  # a write may be just ending
            lost.start()
            time.sleep(5)
        finally:
            load.stop()
        for future in running:
            future.result()
    cluster.wait_until_whole(store.client, [store.collection_name, store.triple_collection_name])
    return load


@pytest.mark.parametrize("factor", [1, 2])
def test_a_node_is_lost_under_load(cluster: Cluster, factor: int) -> None:
    """Questions go on without an error. With a factor of 1 so do writes; with 2 they wait until the node is back."""
    store = make_store(
        cluster.nodes[0],
        f"lost{factor}",
        collection_settings=CollectionSettings(
            retry_seconds=60, bm25_avg_len=60, collection_options={**REPLICATED, "write_consistency_factor": factor}
        ),
    )
    for document in range(40):
        store.add(make_nodes(document))
    load = lose_a_node(cluster, store, cluster.nodes[2])
    during = sum(load.away[0] <= moment <= load.away[1] for moment in load.written)
    told = {kind: Counter(" ".join(str(error).split()) for error in errors) for kind, errors in load.errors.items()}
    counts = f"{load.asked} questions, {len(load.written)} writes, {during} of them while the node was away"
    print(f"factor {factor}: {counts}, errors {told}")  # noqa: T201 - what is to be reported
    assert load.asked > 10 and not any(load.errors.values())
    assert (during > 5) if factor == 1 else (during < 3)
    assert load.written[-1] > load.away[1]
    report = store.check()
    assert report.ok and (report.passages, report.triples) == (160, 480), report
    seen = [contents(make_store(node, store.collection_name)) for node in cluster.nodes]
    assert seen[0] == seen[1] == seen[2]


@pytest.mark.parametrize(("ordering", "consistency"), [("medium", None), ("strong", "quorum")])
def test_writers_at_three_nodes_leave_passages_whole(cluster: Cluster, ordering: str, consistency: str | None) -> None:
    """Stores at several nodes share no lock, as in several processes."""
    options = {**REPLICATED, "write_consistency_factor": 1}
    stores = [
        make_store(
            node,
            f"writers_{ordering}",
            collection_settings=CollectionSettings(
                bm25_avg_len=60, write_ordering=ordering, read_consistency=consistency, collection_options=options
            ),
        )
        for node in cluster.nodes
    ]
    stores[0].add(make_nodes(0))
    end = time.monotonic() + 8

    def write(number: int) -> int:
        count = 0
        while time.monotonic() < end:
            count += 1
            if count % 5 == number:
                stores[number].delete("d1")
            else:
                stores[number].add([*make_nodes(0, 100 * number + count), *make_nodes(1, 100 * number + count)])
        return count

    with ThreadPoolExecutor(3) as pool:
        counts = list(pool.map(write, range(3)))
    print(f"{ordering}: {counts} calls")  # noqa: T201 - what is to be reported
    assert min(counts) > 2
    names = [stores[0].collection_name, stores[0].triple_collection_name]
    cluster.wait_until_whole(stores[0].client, names)
    everywhere = [
        make_store(node, names[0], collection_settings=CollectionSettings(read_consistency="all"))
        for node in cluster.nodes
    ]
    for store in everywhere:
        report = store.check(sample_size=0)
        assert report.ok, report


def test_turbo_quantization_is_taken(cluster: Cluster) -> None:
    turbo = models.TurboQuantization(
        turbo=models.TurboQuantQuantizationConfig(bits=models.TurboQuantBitSize.BITS4, memory=models.Memory.PINNED)
    )
    rescored = models.SearchParams(quantization=models.QuantizationSearchParams(rescore=True, oversampling=2.0))
    store = make_store(
        cluster.nodes[0],
        "turbo",
        collection_settings=CollectionSettings(
            bm25_avg_len=60,
            collection_options={"quantization_config": turbo},
            vector_options={"on_disk": True},
            search_params=rescored,
        ),
    )
    plain = make_store(cluster.nodes[0], "plain", collection_settings=CollectionSettings(bm25_avg_len=60))
    for document in range(10):
        for filled in (store, plain):
            filled.add(make_nodes(document))
    config = store.client.get_collection("turbo_triples").config.quantization_config
    assert isinstance(config, models.TurboQuantization) and config.turbo.bits == models.TurboQuantBitSize.BITS4
    query = VectorStoreQuery(query_str="Person 3 met Person 5", similarity_top_k=3)
    assert store.query(query).ids == plain.query(query).ids
