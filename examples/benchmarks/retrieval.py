"""Recall and time of base retrieval, NaiveGE, SyncGE and GeAR on a data folder, through the public API, store included.

    python examples/benchmarks/retrieval.py --data DIR --embed MODEL_DIR --out results.json

R@k is measured as the paper does in a single step (GeAR App. B.2): at each cut k the base retriever returns k passages
and the method returns k; "+gear" is GeAR with one call a question (`calls="single"`), from 10 base passages. After any
of them "+pagerank" adds PageRank as a third list (`LocalPageRank`); "hipporag" is HippoRAG 2's retrieval over the same
triples, without its language model. Times are medians at k = 10; graph time is all but embedding the question, base
retrieval and the language model (of "hipporag": all but embedding the question; its list doesn't depend on k).

Every recall has its 95 % bootstrap interval, and every method is compared with `--against` (default: itself without its
last part) by a paired permutation test at each cut. What each question found stays in the file.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cached_embedding import CachedEmbedding
from data import Dataset, load
from hipporag import HippoRAGRetriever
from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.embedding import EmbeddingEndEvent, EmbeddingStartEvent
from llama_index.core.llms import CompletionResponse, CompletionResponseGen, CustomLLM, LLMMetadata, MockLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode, TransformComponent
from llama_index.core.vector_stores.types import VectorStoreQueryMode
from llama_index.embeddings.huggingface import HuggingFaceEmbedding
from llama_index_instrumentation import get_dispatcher
from measures import compared, interval, recall

from llama_index_gear import (
    GeARRetriever,
    GeARVectorStore,
    LocalPageRank,
    MentionTripleExtractor,
    NaiveGERetriever,
    RankBM25Retriever,
    SyncGERetriever,
    Triple,
    attach_triples,
)

CUTS = (5, 10, 15)
METHODS = "bm25,dense,hybrid,bm25+naive,dense+naive,hybrid+naive,hybrid+sync"
MODES = {
    "bm25": VectorStoreQueryMode.SPARSE,
    "dense": VectorStoreQueryMode.DEFAULT,
    "hybrid": VectorStoreQueryMode.HYBRID,
}


class Stopwatch:
    """Adds up the seconds spent in what it wraps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, its time added up."""

        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - start

        return call


class EmbeddingClock(BaseEventHandler):
    """Adds up the seconds that embedding models take, by LlamaIndex's own events."""

    seconds: float = 0.0
    _start: float = PrivateAttr(default=0.0)

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        """Start and end of a batch."""
        if isinstance(event, EmbeddingStartEvent):
            self._start = time.perf_counter()
        elif isinstance(event, EmbeddingEndEvent):
            self.seconds += time.perf_counter() - self._start


class TimedRetriever(BaseRetriever):
    """A base retriever whose time is known."""

    def __init__(self, base: BaseRetriever, watch: Stopwatch) -> None:
        super().__init__()
        self._timed = watch.timed(base.retrieve)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return list(self._timed(query_bundle))


class RecordedReader(CustomLLM):
    """Answers the reader's prompt with the facts that a strong model noted for that question, once and for all."""

    replies: dict[str, str]

    @property
    def metadata(self) -> LLMMetadata:
        """What LlamaIndex wants to know of a model."""
        return LLMMetadata(model_name="recorded")

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The recorded reply to the question that the prompt asks."""
        question = re.findall(r"^Question: (.*)$", prompt, re.MULTILINE)[-1]
        return CompletionResponse(text=self.replies[question])

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """The same, in one piece."""
        yield self.complete(prompt)


def to_nodes(dataset: Dataset, with_triples: bool) -> list[TextNode]:
    """One node a passage; the title stands above the text, as in HippoRAG's and GeAR's corpora."""
    nodes = []
    for passage in dataset.passages:
        node = TextNode(
            id_=passage.id,
            text=passage.text,
            metadata={"title": passage.title},
            metadata_template="{value}",
            text_template="{metadata_str}\n{content}",
        )
        triples = [Triple(*slots) for slots in dataset.triples.get(passage.id, ())] if with_triples else []
        nodes.append(attach_triples(node, triples) if triples else node)
    return nodes  # type: ignore[return-value]


def build(name: str, top_k: int, index: VectorStoreIndex, nodes: Sequence[TextNode], watch: Stopwatch) -> BaseRetriever:
    """The base retriever `name`, timed; "rank-hybrid" is LlamaIndex's own fusion of rank-bm25 and dense."""
    base: BaseRetriever
    if name == "rank-bm25":
        base = RankBM25Retriever(nodes, similarity_top_k=top_k)
    elif name == "rank-hybrid":
        halves = [RankBM25Retriever(nodes, similarity_top_k=top_k), index.as_retriever(similarity_top_k=top_k)]
        base = QueryFusionRetriever(
            halves, llm=MockLLM(), mode=FUSION_MODES.RECIPROCAL_RANK, similarity_top_k=top_k, num_queries=1
        )
    else:
        base = index.as_retriever(similarity_top_k=top_k, vector_store_query_mode=MODES[name])
    return TimedRetriever(base, watch)


def measure(
    method: str,
    dataset: Dataset,
    store: GeARVectorStore,
    nodes: Sequence[TextNode],
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """Recall at each cut, and times at 10, of one method."""
    watch = Stopwatch()
    questions = dataset.questions[: arguments.limit]
    found: dict[int, list[list[str]]] = {}
    totals, graphs = [], []
    timed = CUTS[-1] if method == "hipporag" else 10
    for cut in reversed(CUTS):
        if method == "hipporag":  # its list doesn't depend on where it is cut
            if found:
                found[cut] = [ids[:cut] for ids in found[CUTS[-1]]]
                continue
            retriever: BaseRetriever = HippoRAGRetriever(nodes, store.embed_model, similarity_top_k=cut)
        else:
            retriever = expanded(method, cut, dataset, store, nodes, arguments, watch)
        found[cut] = []
        for question in questions:
            embedding = store.embed_model.get_query_embedding(question.question)
            bundle = QueryBundle(question.question, embedding=embedding)
            watch.seconds, start = 0.0, time.perf_counter()
            results = retriever.retrieve(bundle)
            if cut == timed:
                totals.append(time.perf_counter() - start)
                graphs.append(totals[-1] - watch.seconds)
            found[cut].append([each.node.node_id for each in results][:cut])
    recalls = {
        cut: [recall(ids, question.gold, cut) for ids, question in zip(found[cut], questions, strict=True)]
        for cut in CUTS
    }
    return {
        "method": method,
        **{f"recall@{cut}": round(100 * statistics.fmean(recalls[cut]), 2) for cut in CUTS},
        **{f"interval@{cut}": [round(100 * end, 1) for end in interval(recalls[cut])] for cut in CUTS},
        "ms_per_query": round(1000 * statistics.median(totals), 2),
        "graph_ms_per_query": round(1000 * statistics.median(graphs), 2)
        if "+" in method or method == "hipporag"
        else 0.0,
        # How many gold passages each question found, a digit a question.
        **{
            f"hits@{cut}": "".join(
                str(round(share * len(set(question.gold))))
                for share, question in zip(recalls[cut], questions, strict=True)
            )
            for cut in CUTS
        },
    }


def comparisons(results: list[dict[str, Any]], dataset: Dataset, against: str | None) -> None:
    """Write into each result how it compares with the one it is measured against."""
    known = {result["method"]: result for result in results}
    sizes = [len(set(question.gold)) for question in dataset.questions]
    for result in results:
        other = known.get(against or result["method"].rpartition("+")[0])
        if other is None or other is result:
            continue
        result["against"] = other["method"]
        for cut in CUTS:
            mine, its = (
                [int(hits) / size for hits, size in zip(each[f"hits@{cut}"], sizes, strict=False)]
                for each in (result, other)
            )
            test = compared(mine, its)
            result[f"gain@{cut}"] = {
                "points": round(100 * test.difference, 2),
                "interval": [round(100 * test.low, 1), round(100 * test.high, 1)],
                "p": round(test.p_value, 4),
                "wins": test.wins,
                "losses": test.losses,
            }


def expanded(
    method: str,
    cut: int,
    dataset: Dataset,
    store: GeARVectorStore,
    nodes: Sequence[TextNode],
    arguments: argparse.Namespace,
    watch: Stopwatch,
) -> BaseRetriever:
    """The retriever of a method, for a cut."""
    base_name, *parts = method.split("+")
    with_pagerank = parts[-1:] == ["pagerank"]
    expansion = "+".join(parts[:-1] if with_pagerank else parts)
    index = VectorStoreIndex.from_vector_store(store, embed_model=store.embed_model)
    base = build(base_name, arguments.base_top_k or cut, index, nodes, watch)
    if not expansion:
        return base
    settings: dict[str, Any] = {
        "scorer": arguments.scorer,
        "diversity": not arguments.no_diversity,
        "beam_size": arguments.beam_size,
        "beam_length": arguments.beam_length,
        "neighbours": arguments.neighbours,
        "gamma": arguments.gamma,
        "pagerank": LocalPageRank(epsilon=arguments.epsilon) if with_pagerank else None,
        "similarity_top_k": cut,
    }
    if expansion == "naive":
        return NaiveGERetriever(store, base, **settings)
    replies = {
        q.question: json.dumps({"triples": dataset.reader[q.id]}) for q in dataset.questions if q.id in dataset.reader
    }
    settings.update(llm=RecordedReader(replies=replies), link_top_k=arguments.link_top_k)
    if expansion == "sync":
        return SyncGERetriever(store, base, **settings)
    if expansion == "gear":  # with one call a question; base passages as in several steps: 10 (GeAR App. B.2)
        base = build(base_name, arguments.base_top_k or 10, index, nodes, watch)
        passage_link_top_k = arguments.passage_link_top_k
        return GeARRetriever(store, base, calls="single", passage_link_top_k=passage_link_top_k, **settings)
    raise SystemExit(f"unknown method {method!r}; methods: {METHODS}, and rank-bm25, rank-hybrid, hipporag")


def main() -> None:
    """Ingest, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the corpus, questions and triples")
    parser.add_argument("--embed", required=True, help="folder (or hub name) of a sentence-transformers model")
    parser.add_argument(
        "--methods",
        default=METHODS,
        help=f"default: {METHODS}; …+sync and …+gear need --llm recorded; …+pagerank; hipporag",
    )
    parser.add_argument("--llm", choices=("none", "recorded"), default="none", help="the reader of …+sync, …+gear")
    parser.add_argument("--triples", choices=("file", "offline"), default="file", help="ready ones, or extracted here")
    parser.add_argument("--scorer", choices=("novelty", "composed", "additive", "exact"), default="novelty")
    parser.add_argument("--no-diversity", action="store_true", help="plain beam search")
    parser.add_argument("--beam-size", type=int, default=10)
    parser.add_argument("--beam-length", type=int, default=2)
    parser.add_argument("--neighbours", type=int, default=100)
    parser.add_argument("--gamma", type=float, default=None, help="default: twice the beam size")
    parser.add_argument("--epsilon", type=float, default=LocalPageRank().epsilon, help="of …+pagerank")
    parser.add_argument("--against", default=None, help="method that all others are compared with")
    parser.add_argument("--link-top-k", type=int, default=1)
    parser.add_argument("--passage-link-top-k", type=int, default=3, help="of …+gear")
    parser.add_argument("--base-top-k", type=int, default=None, help="base passages; default: the recall cut")
    parser.add_argument("--limit", type=int, default=None, help="only the first N questions")
    parser.add_argument("--store", type=Path, default=None, help="keep the store here and use it again")
    parser.add_argument("--cache", type=Path, default=None, help="file in which embeddings are kept")
    parser.add_argument("--out", type=Path, default=None, help="JSON file for the results")
    arguments = parser.parse_args()

    dataset = load(arguments.data)
    embed: BaseEmbedding = HuggingFaceEmbedding(model_name=arguments.embed, embed_batch_size=64, device="cpu")
    if arguments.cache is not None:
        embed = CachedEmbedding(embed, arguments.cache)
    nodes = to_nodes(dataset, with_triples=arguments.triples == "file")
    with tempfile.TemporaryDirectory() as scratch:
        store = GeARVectorStore.from_path(arguments.store or scratch, embed_model=embed, show_progress=True)
        clock = EmbeddingClock()
        get_dispatcher().add_event_handler(clock)
        start = time.perf_counter()
        if arguments.store is None or not arguments.store.exists():
            transformations: list[TransformComponent] = [embed]
            if arguments.triples == "offline":
                transformations.insert(0, MentionTripleExtractor())
            pipeline = IngestionPipeline(transformations=transformations, vector_store=store, disable_cache=True)
            pipeline.run(nodes=nodes, show_progress=True)
        ingest_seconds, embedding_seconds = time.perf_counter() - start, clock.seconds
        methods = [
            each
            for each in arguments.methods.split(",")
            if arguments.llm == "recorded" or not {"sync", "gear"} & set(each.split("+"))
        ]
        results = []
        for method in methods:
            results.append(measure(method, dataset, store, nodes, arguments))
            print(
                "{method:16} {recall@5:6.1f} {recall@10:6.1f} {recall@15:6.1f}   "
                "{ms_per_query:8.1f} ms   graph {graph_ms_per_query:7.1f} ms".format(**results[-1]),
                flush=True,
            )
        comparisons(results, dataset, arguments.against)
        report = {
            "conditions": {
                "data": dataset.name,
                "passages": len(dataset.passages),
                "questions": len(dataset.questions[: arguments.limit]),
                "triples": store.client.count(store.triple_collection_name).count,
                "problems": dict(dataset.problems),
                "embed": Path(arguments.embed).name,
                **{
                    name: getattr(arguments, name)
                    for name in (
                        "llm",
                        "scorer",
                        "beam_size",
                        "beam_length",
                        "neighbours",
                        "gamma",
                        "epsilon",
                        "link_top_k",
                        "passage_link_top_k",
                        "no_diversity",
                        "base_top_k",
                        "limit",
                    )
                },
                "triples_from": arguments.triples,
                "ingest_seconds": round(ingest_seconds, 1),
                "embedding_seconds": round(embedding_seconds, 1),
                "engine": f"qdrant-edge-py {version('qdrant-edge-py')}",
                "python": platform.python_version(),
            },
            "methods": results,
        }
        store.close()
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    print(json.dumps(report["conditions"]))


if __name__ == "__main__":
    main()
