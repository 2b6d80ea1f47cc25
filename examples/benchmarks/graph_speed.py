"""One step over a large external graph in the embedded engine: link, neighbors, passages; and what the graph takes.

    python examples/benchmarks/graph_speed.py --triples 1000000 5000000 --out graph_speed.json

The triples are synthetic: names of two words out of 50,000, object entities by a skewed distribution, so that some have
tens of thousands of triples. A step links 5 facts, takes the neighbors of 10 triples, 100 each, and the first passage
for 20 triples, out of 20,000 passages: what one hop of `ExternalGeARRetriever` asks of Qdrant. Embedding is left out
(a model that costs nothing stands in), and counted: triples met for the first time have to be embedded.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import TextNode

from llama_index_gear import ExternalTripleStore, GeARVectorStore, GraphTriple, Triple
from llama_index_gear.requests import AlignPassages, LinkTriples, NeighborTriples

PREDICATES = (
    "member of sports team",
    "place of birth",
    "instance of",
    "country",
    "director",
    "cast member",
    "occupation",
)
STEPS = 200
WARM_UP = 20


class ConstantEmbedding(BaseEmbedding):
    """Vectors that cost nothing, and mean nothing."""

    texts: int = 0

    def _get_text_embedding(self, text: str) -> list[float]:
        return [1.0, 0.0, 0.0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self.texts += len(texts)
        return [[1.0, 0.0, 0.0]] * len(texts)

    def _get_query_embedding(self, query: str) -> list[float]:
        return [1.0, 0.0, 0.0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return [1.0, 0.0, 0.0]


def format_entity(entity: int) -> str:
    """Two words."""
    return f"w{entity * 7919 % 50_000} w{entity * 104_729 % 49_999}"


def draw_triples(count: int) -> Iterator[GraphTriple]:
    """Synthetic ones, the same for a count."""
    chance = np.random.default_rng(0)
    entities = count // 5
    subjects = chance.integers(entities, size=count)
    objects = (entities * chance.random(count) ** 4).astype(int)
    predicates = chance.integers(len(PREDICATES), size=count)
    for subject, object_, predicate in zip(subjects.tolist(), objects.tolist(), predicates.tolist(), strict=True):
        fact = Triple(format_entity(subject), PREDICATES[predicate], format_entity(object_))
        yield GraphTriple(fact, tuple(dict.fromkeys((f"Q{subject}", f"Q{object_}"))))


def measure_resident() -> float:
    """The process's resident set, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def time_step(store: GeARVectorStore, graph: ExternalTripleStore, sample: list[GraphTriple]) -> dict[str, float]:
    """Milliseconds of each request of one step."""
    vector = [1.0, 0.0, 0.0]
    question = f"Which {sample[0].triple.predicate} has the {sample[1].triple.object}?"
    facts = [each.triple for each in sample[:5]]
    asks: dict[str, Any] = {
        "link": (
            graph,
            LinkTriples([each.text for each in facts], 1, vector, [f"{each.subject} {each.object}" for each in facts]),
        ),
        "neighbors": (graph, NeighborTriples([each.entities for each in sample[:10]], vector, [], 100, question)),
        "passages": (store, AlignPassages([each.triple.text for each in sample], 1)),
    }
    taken = {}
    for asked, (answerer, request) in asks.items():
        start = time.perf_counter()
        answerer.answer(request)
        taken[asked] = 1000 * (time.perf_counter() - start)
    return taken


def measure_graph(count: int, store: GeARVectorStore, folder: Path) -> dict[str, Any]:
    """Load so many triples, and ask."""
    embed = ConstantEmbedding()
    graph = ExternalTripleStore.from_path(folder, embed_model=embed)
    seconds = None
    if graph.count() < 0.99 * count:  # a few of the synthetic triples are equal
        start = time.perf_counter()
        graph.load(draw_triples(count), show_progress=True)
        seconds = time.perf_counter() - start
    graph.close()  # asked as it is found the next day
    before, start = measure_resident(), time.perf_counter()
    graph = ExternalTripleStore.from_path(folder, embed_model=embed)
    stored = graph.count()
    reopening = time.perf_counter() - start
    chance = random.Random(1)
    known = [each for each in draw_triples(count) if chance.random() < 20 * (STEPS + WARM_UP) * 1.2 / count]
    chance.shuffle(known)
    taken = []
    for number in range(STEPS + WARM_UP):
        if number == WARM_UP:
            embed.texts = 0
        times = time_step(store, graph, known[20 * number : 20 * (number + 1)])
        if number >= WARM_UP:
            taken.append(times)
    totals = sorted(sum(each.values()) for each in taken)
    result = {
        "triples": stored,
        "load_triples_per_second": None if seconds is None else round(count / seconds),  # None: it was kept
        "step_ms": {key: round(statistics.median(each[key] for each in taken), 1) for key in taken[0]},
        "step_ms_median": round(statistics.median(totals), 1),
        "step_ms_p95": round(totals[int(0.95 * len(totals))], 1),
        "embedded_a_step": round(embed.texts / STEPS),
        "memory_mb": round(measure_resident() - before),
        "disk_mb": round(sum(each.stat().st_size for each in folder.rglob("*") if each.is_file()) / 1e6),
        "reopen_seconds": round(reopening, 1),
    }
    graph.close()
    print(json.dumps(result), flush=True)
    return result


def main() -> None:
    """Load, ask, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triples", type=int, nargs="+", default=[100_000, 1_000_000, 5_000_000])
    parser.add_argument("--keep", type=Path, default=None, help="keep the graphs here and use them again")
    parser.add_argument("--out", type=Path, default=None, help="JSON file for the results")
    arguments = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        store = GeARVectorStore.from_path(Path(folder) / "passages", embed_model=ConstantEmbedding())
        chance = random.Random(0)
        store.add(
            [
                TextNode(
                    id_=f"p{number}",
                    text=" ".join(format_entity(chance.randrange(200_000)) for _ in range(30)),
                    embedding=[1.0, 0.0, 0.0],
                )
                for number in range(20_000)
            ]
        )
        for count in arguments.triples:
            results.append(measure_graph(count, store, (arguments.keep or Path(folder)) / f"graph{count}"))
        store.close()
    if arguments.out is not None:
        arguments.out.write_text(json.dumps({"graphs": results}, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
