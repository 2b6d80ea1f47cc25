"""Measure a step over a large external graph in the embedded engine (link, neighbors, passages), and the graph's size.

    python examples/benchmarks/graph_speed.py --triples 1000000 5000000 --out graph_speed.json

The triples are synthetic. An entity's name is two of 50,000 words. Object entities have a skewed distribution, so that
some have tens of thousands of triples. A step is what one hop of `ExternalGeARRetriever` asks of Qdrant: it links 5
facts, takes 100 neighbors of each of 10 triples, and the first passage for each of 20 triples, out of 20,000 passages.
Embedding takes no time, since a constant model stands in; the texts to embed are counted instead: a triple has to be
embedded when it is first met.
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

from llama_index_gear import ExternalTripleStore, GeARVectorStore, Triple
from llama_index_gear.flow import run
from llama_index_gear.store.access import connection_of, reads_of
from llama_index_gear.triple import GraphTriple

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
    """Model that embeds any text as the same vector, and counts the texts."""

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
    """Format an entity's name: two words."""
    return f"w{entity * 7919 % 50_000} w{entity * 104_729 % 49_999}"


def draw_triples(count: int) -> Iterator[GraphTriple]:
    """Draw synthetic triples, always the same for a count."""
    rng = np.random.default_rng(0)
    entities = count // 5
    subjects = rng.integers(entities, size=count)
    objects = (entities * rng.random(count) ** 4).astype(int)
    predicates = rng.integers(len(PREDICATES), size=count)
    for subject, object_, predicate in zip(subjects.tolist(), objects.tolist(), predicates.tolist(), strict=True):
        fact = Triple(format_entity(subject), PREDICATES[predicate], format_entity(object_))
        yield GraphTriple(fact, tuple(dict.fromkeys((f"Q{subject}", f"Q{object_}"))))


def measure_resident() -> float:
    """Return the process's resident set, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def time_step(store: GeARVectorStore, graph: ExternalTripleStore, sample: list[GraphTriple]) -> dict[str, float]:
    """Return the milliseconds of each request of one step."""
    vector = [1.0, 0.0, 0.0]
    question = f"Which {sample[0].triple.predicate} has the {sample[1].triple.object}?"
    facts = [stored.triple for stored in sample[:5]]
    names = [f"{fact.subject} {fact.object}" for fact in facts]
    reads, ends = graph.reads, [stored.entities for stored in sample[:10]]
    flows: dict[str, Any] = {
        "link": reads.link_flow([fact.text for fact in facts], 1, vector, names),
        "neighbors": reads.neighbors_flow(ends, vector, [], 100, question),
        "passages": reads_of(store).align_flow([stored.triple.text for stored in sample], 1),
    }
    times = {}
    for part, flow in flows.items():
        start = time.perf_counter()
        run(flow, connection_of(store).answer)
        times[part] = 1000 * (time.perf_counter() - start)
    return times


def measure_graph(count: int, store: GeARVectorStore, folder: Path) -> dict[str, Any]:
    """Load so many triples, ask, and return times, memory and disk."""
    embed = ConstantEmbedding()
    graph = ExternalTripleStore.from_path(folder, embed_model=embed)
    seconds = None
    if graph.count() < 0.99 * count:  # a few of the synthetic triples are equal
        start = time.perf_counter()
        graph.load(draw_triples(count), show_progress=True)
        seconds = time.perf_counter() - start
    graph.close()  # measured as a later process finds it
    before, start = measure_resident(), time.perf_counter()
    graph = ExternalTripleStore.from_path(folder, embed_model=embed)
    stored = graph.count()
    reopening = time.perf_counter() - start
    rng = random.Random(1)
    known = [triple for triple in draw_triples(count) if rng.random() < 20 * (STEPS + WARM_UP) * 1.2 / count]
    rng.shuffle(known)
    steps = []
    for number in range(STEPS + WARM_UP):
        if number == WARM_UP:
            embed.texts = 0
        times = time_step(store, graph, known[20 * number : 20 * (number + 1)])
        if number >= WARM_UP:
            steps.append(times)
    totals = sorted(sum(times.values()) for times in steps)
    result = {
        "triples": stored,
        "load_triples_per_second": None if seconds is None else round(count / seconds),  # None: a kept graph
        "step_ms": {part: round(statistics.median(times[part] for times in steps), 1) for part in steps[0]},
        "step_ms_median": round(statistics.median(totals), 1),
        "step_ms_p95": round(totals[int(0.95 * len(totals))], 1),
        "embedded_a_step": round(embed.texts / STEPS),
        "memory_mb": round(measure_resident() - before),
        "disk_mb": round(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6),
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
        rng = random.Random(0)
        store.add(
            [
                TextNode(
                    id_=f"p{number}",
                    text=" ".join(format_entity(rng.randrange(200_000)) for _ in range(30)),
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
