"""How graph expansion and ingest grow with the store: synthetic passages and triples in the embedded engine.

    python examples/benchmarks/speed.py --sizes 10000,100000,1000000 --out speed.json

Vectors are random unit vectors around a few thousand topics, ten triples a passage, entities drawn by Zipf's law: the
most frequent one stands in about 1 % of the triples. Expansion is NaiveGE through the public postprocessor, with ten
base passages and the question's embedding given, so that no model's time is in it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery

from llama_index_gear import DiverseTripleBeamSearch, GeARVectorStore, Triple, attach_triples

BATCH = 6_400  # passages an `add`


class TopicEmbedding(BaseEmbedding):
    """A random unit vector near one of the topics; the seconds spent are known."""

    seconds: float = 0.0
    _random: Any = PrivateAttr()
    _topics: Any = PrivateAttr()

    def __init__(self, dimension: int) -> None:
        super().__init__(model_name="topics", embed_batch_size=2048)
        self._random = np.random.default_rng(0)
        self._topics = self._random.standard_normal((4_000, dimension), dtype=np.float32)

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


def fill(store: GeARVectorStore, embed: TopicEmbedding, triples: int, random: np.random.Generator) -> None:
    """Passages with ten triples each, until there are so many triples."""
    entities = max(triples // 4, 100)
    weights = 1 / np.arange(10, entities + 10)
    cumulated = np.cumsum(weights / weights.sum())
    for start in range(0, triples // 10, BATCH):
        numbers = range(start, min(start + BATCH, triples // 10))
        drawn = np.searchsorted(cumulated, random.random((len(numbers), 10, 2)))
        nodes = []
        for number, pairs, vector in zip(numbers, drawn, embed._get_text_embeddings([""] * len(numbers)), strict=True):
            node = TextNode(id_=f"passage-{number}", text=f"Passage {number} on entity {pairs[0][0]}", embedding=vector)
            facts = [Triple(f"entity {a}", f"relation {number % 97}", f"entity {b}") for a, b in pairs]
            nodes.append(attach_triples(node, facts))
        store.add(nodes)


def measure(size: int, dimension: int, queries: int) -> dict[str, Any]:
    """Ingest so many triples and expand so many queries."""
    embed = TopicEmbedding(dimension)
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        store = GeARVectorStore.from_path(folder, embed_model=embed)
        start = time.perf_counter()
        fill(store, embed, size, random)
        seconds = time.perf_counter() - start
        search = DiverseTripleBeamSearch(store)
        times = []
        for _ in range(queries):
            vector = embed._get_query_embedding("")
            found = store.query(VectorStoreQuery(query_embedding=vector, similarity_top_k=10))
            base = [NodeWithScore(node=node, score=1.0) for node in found.nodes or []]
            start = time.perf_counter()
            search.postprocess_nodes(base, query_bundle=QueryBundle("which?", embedding=vector))
            times.append(1000 * (time.perf_counter() - start))
        stored = store.client.count(store.triple_collection_name).count
        store.close()
    return {
        "triples": stored,
        "ingest_seconds": round(seconds, 1),
        "triples_per_second_without_embedding": round(stored / (seconds - embed.seconds)),
        "expansion_ms_median": round(statistics.median(times), 2),
        "expansion_ms_p95": round(sorted(times)[int(0.95 * len(times))], 2),
    }


def main() -> None:
    """Measure each size, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000", help="numbers of triples, comma-separated")
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    rows = []
    for size in map(int, arguments.sizes.split(",")):
        rows.append(measure(size, arguments.dimension, arguments.queries))
        if len(rows) > 1:
            rows[-1]["ratio_to_previous"] = round(rows[-1]["expansion_ms_median"] / rows[-2]["expansion_ms_median"], 2)
        print(json.dumps(rows[-1]), flush=True)
    if arguments.out is not None:
        arguments.out.write_text(
            json.dumps({"dimension": arguments.dimension, "sizes": rows}, indent=2) + "\n", "utf-8"
        )


if __name__ == "__main__":
    main()
