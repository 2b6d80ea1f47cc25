"""Measure graph expansion, PageRank and ingestion by the size of the store, beside igraph's PageRank over the graph.

    python examples/benchmarks/speed.py --sizes 10000,100000,1000000 --out speed.json
    python examples/benchmarks/speed.py --graph extracted --sizes 10000,100000,1000000 --out speed-extracted.json

The data are synthetic. Vectors are random unit vectors around a few thousand topics. A passage has ten triples. Many
entities are hubs or, with `--graph extracted`, entities are as frequent as HotpotQA's (`harness/synthetic_graphs.py`).
A process of its own opens each store, warms everything up, and then measures for every question:
- the base search: the ten passages whose vectors are nearest to the question's;
- our beam search: NaiveGE through the public postprocessor, with ten base passages and the question's embedding given;
- our PageRank: the time that `LocalPageRank` adds to the beam search;
- the default: `GraphRetriever` with a relation and two entities as the question, its embedding given: lists, PageRank
  and ranking;
- igraph's PageRank (prpack) over all entities and passages of the same triples, from the same base passages and their
  entities. Only the call is measured, in memory, without finding the seeds and sorting the passages.
The base search comes first, for all questions; the others take turns, in all orders.

Memory is the growth of the process until the questions are answered: with the store, and with igraph's graph. The pages
of the store's files are counted apart, since they are given up when memory is short. The memory of loading is the
largest growth while a store is loaded, in a process of its own. Besides the graph, HippoRAG needs the vectors of all
facts and passages; their size is calculated. The rate of loading leaves out the time for drawing vectors and entities;
the rate of the last tenth is measured too.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import permutations
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import igraph
import numpy as np
from harness.data import write_whole
from harness.synthetic_graphs import GRAPHS
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery

from llama_index_gear import (
    DiverseTripleBeamSearch,
    GeARVectorStore,
    GraphRetriever,
    LocalPageRank,
    Triple,
    attach_triples,
)

WARM = 5  # first questions, which are not counted


class TopicEmbedding(BaseEmbedding):
    """Model that embeds any text as a random unit vector near one of the topics, and counts its seconds."""

    seconds: float = 0.0
    _random: Any = PrivateAttr()
    _topics: Any = PrivateAttr()

    def __init__(self, dimension: int, seed: int = 0) -> None:
        super().__init__(model_name="topics", embed_batch_size=2048)
        self._topics = np.random.default_rng(0).standard_normal((4_000, dimension), dtype=np.float32)
        self._random = np.random.default_rng(seed)

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        start = time.perf_counter()
        topics = self._topics[self._random.integers(0, len(self._topics), len(texts))]
        vectors = topics + self._random.standard_normal(topics.shape, dtype=np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        listed: list[list[float]] = vectors.tolist()
        self.seconds += time.perf_counter() - start
        return listed

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


def fill(folder: Path, graph: str, triples: int, dimension: int) -> dict[str, Any]:
    """Fill a store with so many triples, and return the time, the rate, the memory and the disk that it took."""
    embed = TopicEmbedding(dimension)
    before, growth = measure_resident("Anon"), 0.0
    store = GeARVectorStore.from_path(folder, embed_model=embed, embed_triples=True)
    start = time.perf_counter()
    spans: list[tuple[int, float]] = []  # triples, and seconds without embedding
    for numbers, pairs in GRAPHS[graph](triples):
        batch_start = time.perf_counter() - embed.seconds
        nodes = []
        vectors = embed._get_text_embeddings([""] * len(numbers))
        for number, entities, vector in zip(numbers, pairs, vectors, strict=True):
            text = f"Passage {number} on entity {entities[0][0]}"
            node = TextNode(id_=f"passage-{number}", text=text, embedding=vector)
            relation = f"relation {number % 97}"
            facts = [Triple(f"entity {subject}", relation, f"entity {object_}") for subject, object_ in entities]
            nodes.append(attach_triples(node, facts))
        store.add(nodes)
        spans.append((10 * len(nodes), time.perf_counter() - embed.seconds - batch_start))
        growth = max(growth, measure_resident("Anon") - before)
    seconds = time.perf_counter() - start
    stored = store.client.count(store.triple_collection_name).count
    store.close()
    last = spans[-max(1, len(spans) // 10) :]
    return {
        "ingest_seconds": round(seconds, 1),
        "triples_per_second_without_embedding": round(stored / sum(seconds for _, seconds in spans)),
        "triples_per_second_in_the_last_tenth": round(
            sum(count for count, _ in last) / sum(seconds for _, seconds in last)
        ),
        "ingest_mib": round(growth),
        "disk_mib": round(sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file()) / 2**20),
    }


class WholeGraph:
    """igraph's PageRank over the graph of all triples.

    Args:
        graph: the kind of synthetic graph.
        triples: the number of triples.

    """

    def __init__(self, graph: str, triples: int) -> None:
        pairs = np.concatenate([pairs for _, pairs in GRAPHS[graph](triples)])
        self.entities = pairs + len(pairs)  # passages come first
        facts = self.entities.reshape(-1, 2)
        mentions = np.stack([np.repeat(np.arange(len(pairs)), 20), self.entities.reshape(-1)], axis=1)
        edges = np.concatenate([facts[facts[:, 0] != facts[:, 1]], np.unique(mentions, axis=0)])
        self.graph = igraph.Graph(n=int(self.entities.max()) + 1, edges=edges)

    def run_pagerank(self, reset: list[float]) -> None:
        """Run PageRank from the shares of the seeds."""
        self.graph.personalized_pagerank(damping=0.5, directed=False, reset=reset, implementation="prpack")

    def weigh_seeds(self, passages: list[int]) -> list[float]:
        """Return the shares of the seeds: base passages and their entities."""
        reset = np.zeros(self.graph.vcount())
        reset[self.entities[passages].reshape(-1)] = 1.0
        reset[passages] = LocalPageRank().passage_weight
        listed: list[float] = reset.tolist()
        return listed


def write_question(number: int) -> str:
    """Write a question of a relation and two entities, which differ from question to question."""
    return f"Which relation {number % 97} has entity {number} with entity {2 * number + 1}?"


def measure_resident(kind: str) -> float:
    """Return the MiB that this process has in memory: its own ("Anon"), or pages of files ("File")."""
    line = Path("/proc/self/status").read_text().split(f"Rss{kind}:")[1]
    return int(line.split()[0]) / 2**10


def measure_store(folder: Path, graph: str, triples: int, dimension: int, queries: int) -> dict[str, Any]:
    """Ask a store and igraph so many questions, and return times and memory."""
    embed = TopicEmbedding(dimension, seed=2)
    before, before_files = measure_resident("Anon"), measure_resident("File")
    start = time.perf_counter()
    store = GeARVectorStore.from_path(folder, embed_model=embed)
    store.client.count(store.triple_collection_name)
    opening = time.perf_counter() - start
    plain, ranking = DiverseTripleBeamSearch(store), DiverseTripleBeamSearch(store, pagerank=LocalPageRank())
    default = GraphRetriever(store)
    asked, searching = [], []
    for _ in range(queries + WARM):
        vector = embed._get_query_embedding("")
        start = time.perf_counter()
        result = store.query(VectorStoreQuery(query_embedding=vector, similarity_top_k=10))
        searching.append(1000 * (time.perf_counter() - start))
        asked.append((vector, [NodeWithScore(node=node, score=1.0) for node in result.nodes or []]))
        for search in (plain, ranking):
            search.postprocess_nodes(list(asked[-1][1]), query_bundle=QueryBundle("which?", embedding=vector))
        default.retrieve(QueryBundle(write_question(len(asked)), embedding=vector))
    ours, ours_files = measure_resident("Anon") - before, measure_resident("File") - before_files
    before = measure_resident("Anon")
    whole = WholeGraph(graph, triples)
    times: dict[str, list[float]] = {"plain": [], "ranking": [], "default": [], "whole": []}
    orders = list(permutations(times))
    for number, (vector, base) in enumerate(asked):
        bundle = QueryBundle("which?", embedding=vector)
        reset = whole.weigh_seeds([int(node.node.node_id.removeprefix("passage-")) for node in base])
        work: dict[str, Callable[[], object]] = {
            "plain": partial(plain.postprocess_nodes, list(base), query_bundle=bundle),
            "ranking": partial(ranking.postprocess_nodes, list(base), query_bundle=bundle),
            "default": partial(default.retrieve, QueryBundle(write_question(number), embedding=vector)),
            "whole": partial(whole.run_pagerank, reset),
        }
        for name in orders[number % len(orders)]:
            start = time.perf_counter()
            work[name]()
            if number >= WARM:
                times[name].append(1000 * (time.perf_counter() - start))
    whole_mib = measure_resident("Anon") - before
    stored = store.client.count(store.triple_collection_name).count
    store.close()
    expansion, whole_ms = statistics.median(times["plain"]), statistics.median(times["whole"])
    local = statistics.median(with_ - without for with_, without in zip(times["ranking"], times["plain"], strict=True))
    return {
        "triples": stored,
        "search_ms": round(statistics.median(searching[WARM:]), 2),
        "expansion_ms": round(expansion, 2),
        "expansion_ms_p95": round(sorted(times["plain"])[int(0.95 * queries)], 2),
        "local_ms": round(local, 2),
        "default_ms": round(statistics.median(times["default"]), 2),
        "whole_ms": round(whole_ms, 2),
        "whole_to_expansion": round(whole_ms / expansion, 2),
        "whole_to_local": round(whole_ms / local, 2),
        "opening_seconds": round(opening, 1),
        "ours_mib": round(ours),
        "ours_files_mib": round(ours_files),
        "whole_mib": round(whole_mib),
        "whole_vectors_mib": round((stored + stored // 10) * dimension * 4 / 2**20),
    }


def run_alone(work: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Do the work in a process of its own, and return its result."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(work, *arguments).result()


def main() -> None:
    """Measure each size, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000", help="numbers of triples, comma-separated")
    parser.add_argument("--graph", choices=GRAPHS, default="hubs", help="of many hubs (default), or like HotpotQA's")
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--stores", type=Path, default=None, help="keep the stores here and use them again")
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        for size in map(int, arguments.sizes.split(",")):
            folder = (arguments.stores or Path(scratch)) / f"{arguments.graph}-{size}"
            note = folder.with_suffix(".json")
            if not note.exists():
                shutil.rmtree(folder, ignore_errors=True)  # a killed run may have left it half filled
                write_whole(note, json.dumps(run_alone(fill, folder, arguments.graph, size, arguments.dimension)))
            took = json.loads(note.read_text("utf-8"))
            row = run_alone(measure_store, folder, arguments.graph, size, arguments.dimension, arguments.queries)
            rows.append({**row, **took})
            if len(rows) > 1:
                rows[-1]["ratio_to_previous"] = round(rows[-1]["expansion_ms"] / rows[-2]["expansion_ms"], 2)
            print(json.dumps(rows[-1]), flush=True)
    report = {
        "graph": arguments.graph,
        "dimension": arguments.dimension,
        "queries": arguments.queries,
        "growth_exponents": fit_growth(rows),
        "last_exponents": fit_growth(rows[-2:]),
    }
    if arguments.out is not None:
        write_whole(arguments.out, json.dumps({**report, "sizes": rows}, indent=2) + "\n")
    print(json.dumps(report))


def fit_growth(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the powers of the size to which the times grow, by least squares on logarithms."""
    if len(rows) < 2:
        return {}
    sizes = np.log([row["triples"] for row in rows])
    return {
        name: round(float(np.polyfit(sizes, np.log([row[key] for row in rows]), 1)[0]), 2)
        for name, key in (("beam search", "expansion_ms"), ("our PageRank", "local_ms"), ("igraph's", "whole_ms"))
    }


if __name__ == "__main__":
    main()
