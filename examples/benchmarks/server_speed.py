"""Measure a Qdrant server beside the embedded engine: loading, a question, and questions of many askers at once.

    python examples/benchmarks/server_speed.py --server http://localhost:6333 --triples 100000 --askers 1,8,32

The passages and triples are those of `speed.py --graph extracted`. An embedded store is filled first.

Loading: `copy_to` moves the store to the server; `QdrantClient.upload_points` sends the same points, read from the same
store, which is the limit. Both build no vector index meanwhile. They take turns. A rate is in triples a second; the
processor's seconds are those of this process. Over gRPC; the collections are deleted afterwards.

Questions: the same ones of the embedded engine and of the server, over gRPC and REST, by turns, one after the other:
the base search, the walk without and with PageRank, and `GraphRetriever`, as in `speed.py`. A call of the client is a
round trip. A table is printed: round trips in the mean, milliseconds in the median and at the 95th percentile, and how
often the embedded engine's median goes into the server's.

Askers: so many ask at once, each its next question when the last one is answered: `GraphRetriever` with the question's
embedding given, as in `speed.py`. In threads `retrieve`, in one event loop `aretrieve`. The processor's
milliseconds a question are those of this process, with the embedded engine in it: other work on the machine
changes them less than the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from harness.data import write_whole
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.vector_stores.types import VectorStoreQuery
from qdrant_client import AsyncQdrantClient, QdrantClient, models
from speed import WARM, TopicEmbedding, fill, run_alone, write_question

from llama_index_gear import DiverseTripleBeamSearch, GeARVectorStore, GraphRetriever, LocalPageRank

NAME = "gear_server_speed"


def make_target(server: str, grpc_port: int, embed: TopicEmbedding, *, prefer_grpc: bool = True) -> GeARVectorStore:
    """Make the store on the server."""
    options: dict[str, Any] = {"url": server, "grpc_port": grpc_port, "prefer_grpc": prefer_grpc, "timeout": 60}
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


def wait_until_indexed(store: GeARVectorStore) -> None:
    """Return once the server has built the vector indexes of both collections."""
    for name in (store.collection_name, store.triple_collection_name):
        while store.client.get_collection(name).status != models.CollectionStatus.GREEN:
            time.sleep(0.1)


@contextmanager
def noted_calls(client: Any) -> Iterator[list[str]]:
    """Have a client note its reads of points in a list, as long as the block runs."""
    calls: list[str] = []

    def note_and_call(name: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        calls.append(name)
        return call(*arguments, **options)

    names = ("query_batch_points", "scroll", "retrieve", "count")
    for name in names:
        setattr(client, name, partial(note_and_call, name, getattr(client, name)))
    try:
        yield calls
    finally:
        for name in names:
            delattr(client, name)  # its class has the call


Ask = Callable[[QueryBundle, list[NodeWithScore]], object]


def make_methods(store: GeARVectorStore) -> dict[str, Ask]:
    """Make what is measured, by name: each takes a question and its base passages."""
    plain, ranked = DiverseTripleBeamSearch(store), DiverseTripleBeamSearch(store, pagerank=LocalPageRank())
    default = GraphRetriever(store)
    return {
        "base search": lambda question, _: search(store, question),
        "walk": lambda question, base: plain.postprocess_nodes(base, query_bundle=question),
        "walk and PageRank": lambda question, base: ranked.postprocess_nodes(base, query_bundle=question),
        "`GraphRetriever`": lambda question, _: default.retrieve(question),
    }


def search(store: GeARVectorStore, question: QueryBundle) -> list[NodeWithScore]:
    """Find the ten passages that are nearest to a question."""
    result = store.query(VectorStoreQuery(query_embedding=question.embedding, similarity_top_k=10))
    return [NodeWithScore(node=node, score=1.0) for node in result.nodes or []]


def measure_questions(stores: dict[str, GeARVectorStore], number: int) -> list[dict[str, Any]]:
    """Ask each store so many questions by each method; return a row for each method and store.

    The stores take turns, in changing order. Ratios are to the median of the first.
    """
    methods = {engine: make_methods(store) for engine, store in stores.items()}
    embed, engines = TopicEmbedding(384, seed=4), list(stores)
    times: dict[tuple[str, str], list[float]] = {}
    trips: dict[tuple[str, str], list[int]] = {}
    with ExitStack() as stack:
        calls = {engine: stack.enter_context(noted_calls(store.client)) for engine, store in stores.items()}
        for asked in range(WARM + number):
            question = QueryBundle(write_question(asked), embedding=embed._get_query_embedding(""))
            base = search(stores[engines[0]], question)
            for engine in engines[asked % len(engines) :] + engines[: asked % len(engines)]:
                for method, ask in methods[engine].items():
                    calls[engine].clear()
                    start = time.perf_counter()
                    ask(question, list(base))
                    took = 1000 * (time.perf_counter() - start)
                    if asked >= WARM:
                        times.setdefault((method, engine), []).append(took)
                        trips.setdefault((method, engine), []).append(len(calls[engine]))
    return [
        {
            "method": method,
            "engine": engine,
            "round_trips": round(statistics.mean(trips[method, engine]), 1),
            "most_round_trips": max(trips[method, engine]),
            "median_ms": round(statistics.median(took), 1),
            "p95_ms": round(sorted(took)[int(0.95 * (len(took) - 1))], 1),
            "to_embedded": round(statistics.median(took) / statistics.median(times[method, engines[0]]), 2),
        }
        for (method, engine), took in sorted(times.items(), key=lambda item: engines.index(item[0][1]))
    ]


def write_table(triples: int, rows: list[dict[str, Any]]) -> str:
    """Write the rows of `measure_questions` as a table of Markdown: a row for each method, a column for each engine."""
    engines, methods = (list(dict.fromkeys(row[key] for row in rows)) for key in ("engine", "method"))
    cells = {
        (row["method"], row["engine"]): f"{row['round_trips']}, {row['median_ms']} / {row['p95_ms']} ms"
        + (f", {row['to_embedded']}" if row["engine"] != engines[0] else "")
        for row in rows
    }
    heads = [f"{engine}: round trips, median / 95th percentile" for engine in engines]
    table = [
        [f"{triples:,} triples", *heads[:1], *(f"{head}, ratio to {engines[0]}" for head in heads[1:])],
        ["---"] * (1 + len(engines)),
        *([method, *(cells[method, engine] for engine in engines)] for method in methods),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in table)


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
    parser.add_argument("--questions", type=int, default=40, help="questions to each engine; 0: none")
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
        if numbers or arguments.questions:
            target.clear()
            source.copy_to(target)
            wait_until_indexed(target)
        if arguments.questions:
            rest = make_target(arguments.server, arguments.grpc_port, embed, prefer_grpc=False)
            stores = {"embedded": source, "gRPC": target, "REST": rest}
            report["questions"] = measure_questions(stores, arguments.questions)
            rest.close()
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
    if arguments.questions:
        print(f"\n{write_table(report['triples'], report['questions'])}")
    if arguments.out is not None:
        write_whole(arguments.out, json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
