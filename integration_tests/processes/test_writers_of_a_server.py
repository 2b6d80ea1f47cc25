"""Several processes write the same passages of a server, without a lock across them: all ends whole.

QDRANT_URL=http://localhost:6333 GEAR_SECONDS=60 pytest integration_tests/processes/test_writers_of_a_server.py -s
"""

from __future__ import annotations

import multiprocessing
import os
import random
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from qdrant_client import QdrantClient

from llama_index_gear import GeARVectorStore
from llama_index_gear.store.settings import CollectionSettings
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import passage

SERVER = os.environ.get("QDRANT_URL", "")
SECONDS = float(os.environ.get("GEAR_SECONDS", "5"))
WRITERS = int(os.environ.get("GEAR_WRITERS", "3"))
EMBED = WordEmbedding(16)
DOCUMENTS, PASSAGES = 3, 4
PROCESSES = multiprocessing.get_context("spawn")

pytestmark = pytest.mark.skipif(not SERVER, reason="start a Qdrant server and set QDRANT_URL=http://localhost:6333")


def make_nodes(document: int, version: int) -> list[BaseNode]:
    """Make a version of a document's passages. Versions share facts; one in four states none."""
    facts = [(f"Entity {document}", "has", f"V{version % 5}"), (f"Entity {document}", "is in", "Hub")]
    facts.append((f"Entity {document}", "knows", f"Entity {version % 3}"))
    return [
        passage(
            f"d{document}-{number}",
            f"Document {document}, part {number}, version {version}",
            [] if (version + number) % 4 == 0 else facts,
            document=f"d{document}",
            embed_model=EMBED,
            metadata={"version": version, "parity": version % 2},
        )
        for number in range(PASSAGES)
    ]


def make_store(name: str) -> GeARVectorStore:
    client = QdrantClient(url=SERVER, timeout=60, check_compatibility=False)
    return GeARVectorStore(
        name, client=client, embed_model=EMBED, batch_size=3, collection_settings=CollectionSettings(bm25_avg_len=60)
    )


def work(name: str, seed: int, seconds: float, connection: Connection) -> None:
    """Write, delete and link at random; send the number of calls of each kind."""
    rng, counts, store = random.Random(seed), Counter[str](), make_store(name)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        document, version = rng.randrange(DOCUMENTS), rng.randrange(1_000)
        kind = rng.choices(("add", "delete", "delete_nodes", "filter", "link"), (6, 1, 1, 0.5, 0.5))[0]
        if kind == "add":
            store.add(make_nodes(document, version))
        elif kind == "delete":
            store.delete(f"d{document}")
        elif kind == "delete_nodes":
            store.delete_nodes([f"d{document}-{number}" for number in range(2)])
        elif kind == "filter":
            odd = MetadataFilter(key="parity", value=1)
            store.delete_nodes(filters=MetadataFilters(filters=[odd]))
        else:
            store.link_aliases([("Hub", f"Entity {document}")])
        counts[kind] += 1
    store.close()
    connection.send(counts)


def run_writers(name: str, seconds: float, *, killed: bool = False) -> Counter[str]:
    """Let the writers work side by side. One of them is killed halfway, if that is wanted."""
    writers, ends = [], []
    for seed in range(WRITERS):
        near, far = PROCESSES.Pipe()
        writers.append(PROCESSES.Process(target=work, args=(name, seed, seconds, far)))
        writers[-1].start()
        far.close()
        ends.append(near)
    counts = Counter[str]()
    if killed:
        time.sleep(seconds / 2)
        writers[0].kill()
    for writer, end in list(zip(writers, ends, strict=True))[killed:]:
        counts += end.recv()  # raises if the writer failed
        writer.join()
    return counts


@pytest.fixture
def store() -> Iterator[GeARVectorStore]:
    made = make_store(f"gear_test_{uuid.uuid4().hex}")
    made.add([node for document in range(DOCUMENTS) for node in make_nodes(document, 0)])
    yield made
    made.clear()
    made.close()


def test_processes_that_write_the_same_passages_leave_them_whole(store: GeARVectorStore) -> None:
    counts = run_writers(store.collection_name, SECONDS)
    report = store.check(sample_size=0)
    print(f"{WRITERS} processes, {SECONDS} s: {dict(counts)}; {report}")  # noqa: T201 - what is to be reported
    assert not (report.incomplete or report.outdated or report.orphaned or report.foreign), report
    assert counts.total() > WRITERS


def test_a_process_that_is_killed_beside_others_leaves_no_passage_without_its_triples(store: GeARVectorStore) -> None:
    for _ in range(max(1, round(SECONDS / 10))):
        run_writers(store.collection_name, min(SECONDS, 10), killed=True)
        report = store.check(sample_size=0)
        print(report)  # noqa: T201 - what is to be reported
        assert not (report.incomplete or report.foreign), report
    assert store.repair().ok
