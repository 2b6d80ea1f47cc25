"""Measure a Qdrant server beside the embedded engine: loading, and questions of many askers at once.

    python examples/benchmarks/server_speed.py --server http://localhost:6333 --triples 100000 --askers 1,8,32

The passages and triples are those of `speed.py --graph extracted`. An embedded store is filled first.

Loading: `copy_to` moves the store to the server; `QdrantClient.upload_points` sends the same points, read from the same
store, which is the limit. Both build no vector index meanwhile. They take turns. A rate is in triples a second; the
processor's seconds are those of this process. Over gRPC; the collections are deleted afterwards.

Askers: so many ask at once, each its next question when the last one is answered: `GraphRetriever` with the question's
embedding given, as in `speed.py`. In threads `retrieve`, in one event loop `aretrieve`. The processor's
milliseconds a question are those of this process, with the embedded engine in it: other work on the machine
changes them less than the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness.data import write_whole
from llama_index.core.schema import QueryBundle
from qdrant_client import AsyncQdrantClient, QdrantClient, models
from speed import WARM, TopicEmbedding, fill, run_alone, write_question

from llama_index_gear import GeARVectorStore, GraphRetriever

NAME = "gear_server_speed"


def make_target(server: str, grpc_port: int, embed: TopicEmbedding) -> GeARVectorStore:
    """Make the store on the server."""
    options: dict[str, Any] = {"url": server, "grpc_port": grpc_port, "prefer_grpc": True, "timeout": 60}
    clients = QdrantClient(**options), AsyncQdrantClient(**options)
    return GeARVectorStore(NAME, *clients, embed_model=embed)


def read_points(store: GeARVectorStore, name: str) -> Iterator[models.PointStruct]:
    """Read all points of a collection, page by page."""
    offset = None
    while True:
        page, offset = store.client.scroll(name, limit=1000, offset=offset, with_payload=True, with_vectors=True)
        for point in page:
            yield models.PointStruct.model_construct(id=point.id, vector=point.vector, payload=point.payload)
        if offset is None:
            return


def upload(source: GeARVectorStore, target: GeARVectorStore) -> None:
    """Send all points by the client's own means, to collections of the same form."""
    client: QdrantClient = target.client
    pairs = ((source.triple_collection_name, target.triple_collection_name), (source.collection_name, NAME))
    with target.bulk_load():
        make_collections(source, target)
        for one, other in pairs:
            client.upload_points(other, read_points(source, one), batch_size=source.batch_size)
        while any(client.count(other).count < source.client.count(one).count for one, other in pairs):
            time.sleep(0.01)  # it does not wait for what it has sent


def make_collections(source: GeARVectorStore, target: GeARVectorStore) -> None:
    """Make the target's collections, empty."""
    (node,) = source.get_nodes(limit=1)
    target.add([node])
    target.delete_nodes([node.node_id])


def measure_loading(source: GeARVectorStore, target: GeARVectorStore, rounds: int) -> dict[str, Any]:
    """Load the source's points in both ways by turns; return the medians' rates and the processor's seconds."""
    triples = source.client.count(source.triple_collection_name).count
    ways: dict[str, Callable[[], object]] = {
        "copy_to": lambda: source.copy_to(target),
        "upload_points": lambda: upload(source, target),
    }
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in sorted(ways, reverse=bool(number % 2)):
            target.clear()
            start, used = time.perf_counter(), time.process_time()
            ways[name]()
            took[name].append((time.perf_counter() - start, time.process_time() - used))
            assert target.client.count(target.triple_collection_name).count == triples
    rows = {}
    for name, pairs in took.items():
        seconds, used = sorted(pairs)[len(pairs) // 2]
        rows[name] = {"triples_per_second": round(triples / seconds), "processor_seconds": round(used, 1)}
    rate = [rows[name]["triples_per_second"] for name in ("copy_to", "upload_points")]
    return {**rows, "copy_to_to_upload_points": round(rate[0] / rate[1], 2)}


def measure_askers(store: GeARVectorStore, askers: int, seconds: float, *, is_async: bool) -> dict[str, Any]:
    """Let so many ask for so long; return questions a second, and the median and 95th percentile in milliseconds."""
    retriever, embed, lock = GraphRetriever(store), TopicEmbedding(384, seed=3), threading.Lock()
    asked, times = [0], list[float]()

    def draw() -> QueryBundle:
        with lock:
            asked[0] += 1
            return QueryBundle(write_question(asked[0]), embedding=embed._get_query_embedding(""))

    async def ask_on(end: float) -> None:
        while (start := time.perf_counter()) < end:
            await retriever.aretrieve(draw())
            times.append(1000 * (time.perf_counter() - start))

    def ask(end: float) -> None:
        while (start := time.perf_counter()) < end:
            retriever.retrieve(draw())
            times.append(1000 * (time.perf_counter() - start))

    async def ask_all(seconds: float) -> None:
        await asyncio.gather(*(ask_on(time.perf_counter() + seconds) for _ in range(askers)))

    def run(seconds: float) -> None:
        times.clear()
        if is_async:
            LOOP.run(ask_all(seconds))
        else:
            with ThreadPoolExecutor(askers) as pool:
                list(pool.map(ask, [time.perf_counter() + seconds] * askers))

    for _ in range(WARM):
        retriever.retrieve(draw())
    run(seconds / 5)  # warms up connections
    start, used = time.perf_counter(), time.process_time()
    run(seconds)
    taken, used = time.perf_counter() - start, time.process_time() - used
    times.sort()
    return {
        "askers": askers,
        "by": "asyncio" if is_async else "threads",
        "questions_per_second": round(len(times) / taken, 1),
        "median_ms": round(times[len(times) // 2], 1),
        "processor_ms": round(1000 * used / len(times), 1),
        "p95_ms": round(times[int(0.95 * (len(times) - 1))], 1),
    }


LOOP = asyncio.Runner()  # gRPC's async client belongs to one loop


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="the server's address, such as http://localhost:6333")
    parser.add_argument("--grpc-port", type=int, default=6334)
    parser.add_argument("--triples", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3, help="loads in each way; 0: none is measured")
    parser.add_argument("--askers", default="1,8,32", help="numbers of askers, comma-separated; empty: none")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each number of askers")
    parser.add_argument("--store", type=Path, default=None, help="keep the embedded store here, and use it again")
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    numbers = [int(number) for number in arguments.askers.split(",") if number]
    embed = TopicEmbedding(384, seed=2)
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.store or Path(scratch) / "store"
        if not folder.exists():
            run_alone(fill, folder, "extracted", arguments.triples, 384)
        source, target = (
            GeARVectorStore.from_path(folder, embed_model=embed),
            make_target(arguments.server, arguments.grpc_port, embed),
        )
        report: dict[str, Any] = {"triples": source.client.count(source.triple_collection_name).count}
        if arguments.rounds:
            report["loading"] = measure_loading(source, target, arguments.rounds)
        if numbers:
            target.clear()
            source.copy_to(target)
        for name, store in (("embedded", source), ("server", target)):
            report[name] = [
                measure_askers(store, number, arguments.seconds, is_async=is_async)
                for number in numbers
                for is_async in (False, True)
            ]
        target.clear()
        source.close()
        target.close()
        LOOP.run(target.aclose())
    print(json.dumps(report, indent=2))
    if arguments.out is not None:
        write_whole(arguments.out, json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
