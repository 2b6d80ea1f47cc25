"""What giving up the alignment of triples and passages costs (Millions of GeAR-s), on a data folder.

    python examples/benchmarks/external_graph.py --data DIR --embed MODEL_DIR --out results.json

The data's triples are loaded into an external graph, without the passages that they came from, and walked by online
alignment; beside it stands the offline alignment of the same triples. `--share 0.5` leaves half of them out of the
graph, at random: then the graph lacks much of what is noted, as a graph that somebody else made would.

Readers: "question" is none (the search starts from the triples nearest to the question; NaiveGE); "recorded" is the
data's `reader.jsonl`; "own" stands for a reader where there is none: the five of the triples extracted from the first
ten base passages that are most similar to the question. R@k as in `retrieval.py`, hybrid base.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from cached_embedding import CachedEmbedding
from data import Dataset, load
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode
from llama_index.embeddings.huggingface import HuggingFaceEmbedding
from retrieval import CUTS, RecordedReader, to_nodes

from llama_index_gear import ExternalTripleStore, GeARVectorStore, NaiveGERetriever, SyncGERetriever, Triple

FACTS = 5


def own_facts(dataset: Dataset, store: GeARVectorStore, question: QueryBundle) -> list[list[str]]:
    """Of the triples extracted from the base passages, those most similar to the question."""
    found = store.query(
        VectorStoreQuery(
            query_str=question.query_str,
            query_embedding=question.embedding,
            similarity_top_k=10,
            mode=VectorStoreQueryMode.HYBRID,
        )
    )
    triples = list(dict.fromkeys(Triple(*s) for node_id in found.ids or [] for s in dataset.triples.get(node_id, ())))
    if not triples:
        return []
    vectors = np.asarray(store.embed_model.get_text_embedding_batch([triple.text for triple in triples]))
    best = np.argsort(-vectors @ np.asarray(question.embedding), kind="stable")[:FACTS]
    return [[triples[n].subject, triples[n].predicate, triples[n].object] for n in best]


def replies_of(reader: str, dataset: Dataset, store: GeARVectorStore, bundles: list[QueryBundle]) -> dict[str, str]:
    """What the reader says to each question."""
    facts = {
        question.question.strip(): (
            dataset.reader[question.id] if reader == "recorded" else own_facts(dataset, store, bundle)
        )
        for question, bundle in zip(dataset.questions, bundles, strict=True)
    }
    return {question: json.dumps({"triples": noted}) for question, noted in facts.items()}


class Base(BaseRetriever):
    """The store's own hybrid search."""

    def __init__(self, store: GeARVectorStore, top_k: int) -> None:
        super().__init__()
        self._store, self._top_k = store, top_k

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        result = self._store.query(
            VectorStoreQuery(
                query_str=query_bundle.query_str,
                query_embedding=query_bundle.embedding,
                similarity_top_k=self._top_k,
                mode=VectorStoreQueryMode.HYBRID,
            )
        )
        return [NodeWithScore(node=node) for node in result.nodes or []]


def rows(
    readers: list[str],
    replies: dict[str, dict[str, str]],
    store: GeARVectorStore,
    graphs: dict[str, ExternalTripleStore],
) -> Iterator[tuple[str, Any]]:
    """Name → a retriever for a cut."""
    yield "base", lambda cut: Base(store, cut)
    for reader in readers:
        if reader == "question":
            yield "offline alignment, no reader", lambda cut: NaiveGERetriever(store, similarity_top_k=cut)
            for kind, graph in graphs.items():
                yield (
                    f"{kind} graph, question",
                    lambda cut, graph=graph: NaiveGERetriever(store, similarity_top_k=cut, graph=graph),
                )
            continue
        llm = RecordedReader(replies=replies[reader])
        yield f"offline alignment, {reader}", lambda cut, llm=llm: SyncGERetriever(store, llm=llm, similarity_top_k=cut)
        for kind, graph in graphs.items():
            for checked in (False, True):

                def made(cut: int, llm: Any = llm, graph: Any = graph, checked: bool = checked) -> BaseRetriever:
                    return SyncGERetriever(store, llm=llm, similarity_top_k=cut, graph=graph, check_alignment=checked)

                yield f"{kind} graph, {reader}, {'checked' if checked else 'unchecked'}", made


def measure(name: str, make: Any, dataset: Dataset, bundles: list[QueryBundle]) -> dict[str, Any]:
    """Recall at each cut, and the median time of a question at 10."""
    result: dict[str, Any] = {"method": name}
    for cut in CUTS:
        retriever = make(cut)
        recalls, times = [], []
        for question, bundle in zip(dataset.questions, bundles, strict=True):
            start = time.perf_counter()
            found = {each.node.node_id for each in retriever.retrieve(bundle)[:cut]}
            times.append(time.perf_counter() - start)
            recalls.append(len(found & set(question.gold)) / len(question.gold))
        result[f"recall@{cut}"] = round(100 * statistics.fmean(recalls), 2)
        if cut == 10:
            result["ms_per_query"] = round(1000 * statistics.median(times), 1)
    print(
        "{method:40} {recall@5:6.1f} {recall@10:6.1f} {recall@15:6.1f} {ms_per_query:8.1f} ms".format(**result),
        flush=True,
    )
    return result


def main() -> None:
    """Ingest, load the graphs, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the corpus, questions and triples")
    parser.add_argument("--embed", required=True, help="folder (or hub name) of a sentence-transformers model")
    parser.add_argument("--readers", nargs="+", choices=("question", "recorded", "own"), default=["question", "own"])
    parser.add_argument("--share", type=float, default=1.0, help="of the triples that the graph has")
    parser.add_argument("--dense", action="store_true", help="a dense graph besides the sparse one")
    parser.add_argument("--limit", type=int, default=None, help="only the first N questions")
    parser.add_argument("--store", type=Path, default=None, help="a store that retrieval.py made of the same data")
    parser.add_argument("--cache", type=Path, default=None, help="file in which embeddings are kept")
    parser.add_argument("--out", type=Path, default=None, help="JSON file for the results")
    arguments = parser.parse_args()

    dataset = load(arguments.data)
    dataset.questions[:] = dataset.questions[: arguments.limit]
    embed: BaseEmbedding = HuggingFaceEmbedding(model_name=arguments.embed, embed_batch_size=64, device="cpu")
    if arguments.cache is not None:
        embed = CachedEmbedding(embed, arguments.cache)
    with tempfile.TemporaryDirectory() as scratch:
        store = GeARVectorStore.from_path(arguments.store or scratch, embed_model=embed, show_progress=True)
        if arguments.store is None or not arguments.store.exists():
            pipeline = IngestionPipeline(transformations=[embed], vector_store=store, disable_cache=True)
            pipeline.run(nodes=to_nodes(dataset, with_triples=True), show_progress=True)
        triples = sorted({Triple(*slots) for several in dataset.triples.values() for slots in several}, key=str)
        random.Random(0).shuffle(triples)
        triples = triples[: round(arguments.share * len(triples))]
        graphs = {"sparse": ExternalTripleStore.from_path(Path(scratch) / "sparse", embed_model=embed)}
        if arguments.dense:
            graphs["dense"] = ExternalTripleStore.from_path(Path(scratch) / "dense", embed_model=embed, dense=True)
        for graph in graphs.values():
            graph.load(triples, show_progress=True)
        bundles = [
            QueryBundle(each.question, embedding=embed.get_query_embedding(each.question)) for each in dataset.questions
        ]
        replies = {
            reader: replies_of(reader, dataset, store, bundles) for reader in arguments.readers if reader != "question"
        }
        results = [
            measure(name, make, dataset, bundles) for name, make in rows(arguments.readers, replies, store, graphs)
        ]
        for graph in graphs.values():
            graph.close()
        store.close()
    if arguments.out is not None:
        conditions = {
            "data": dataset.name,
            "questions": len(dataset.questions),
            "triples": len(triples),
            "share": arguments.share,
            "embed": Path(arguments.embed).name,
        }
        arguments.out.write_text(json.dumps({"conditions": conditions, "methods": results}, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
