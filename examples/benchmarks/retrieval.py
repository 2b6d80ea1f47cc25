"""Recall and time of base retrieval, NaiveGE, SyncGE and GeAR on a data folder, through the public API, store included.

    python examples/benchmarks/retrieval.py --data DIR --embed MODEL_DIR --out results.json

R@k is measured as the paper does in a single step (GeAR App. B.2): at each cut k the base retriever returns k passages
and the method returns k; "+gear" is GeAR with one call a question (`calls="single"`), from 10 base passages. Times are
medians at k = 10; graph time is all but embedding the question, base retrieval and the language model.
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

from llama_index_gear import (
    GeARRetriever,
    GeARVectorStore,
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
    base_name, _, expansion = method.partition("+")
    watch = Stopwatch()
    embed = store.embed_model
    index = VectorStoreIndex.from_vector_store(store, embed_model=embed)
    settings: dict[str, Any] = {
        "scorer": arguments.scorer,
        "diversity": not arguments.no_diversity,
        "beam_size": arguments.beam_size,
        "beam_length": arguments.beam_length,
        "neighbours": arguments.neighbours,
        "gamma": arguments.gamma,
    }
    questions = dataset.questions[: arguments.limit]
    recalls: dict[int, list[float]] = {}
    totals, graphs = [], []
    for cut in CUTS:
        base = build(base_name, arguments.base_top_k or cut, index, nodes, watch)
        retriever = base
        if expansion == "naive":
            retriever = NaiveGERetriever(store, base, similarity_top_k=cut, **settings)
        elif expansion in ("sync", "gear"):
            replies = {
                q.question: json.dumps({"triples": dataset.reader[q.id]}) for q in questions if q.id in dataset.reader
            }
            settings.update(llm=RecordedReader(replies=replies), link_top_k=arguments.link_top_k)
            if expansion == "sync":
                retriever = SyncGERetriever(store, base, similarity_top_k=cut, **settings)
            else:  # with one call a question; base passages as in several steps: 10 (GeAR App. B.2)
                base = build(base_name, arguments.base_top_k or 10, index, nodes, watch)
                settings["passage_link_top_k"] = arguments.passage_link_top_k
                retriever = GeARRetriever(store, base, calls="single", similarity_top_k=cut, **settings)
        elif expansion:
            raise SystemExit(
                f"unknown method {method!r}; methods: {METHODS}, and rank-bm25, rank-hybrid, with and without"
            )
        recalls[cut] = []
        for question in questions:
            bundle = QueryBundle(question.question, embedding=embed.get_query_embedding(question.question))
            watch.seconds, start = 0.0, time.perf_counter()
            found = [each.node.node_id for each in retriever.retrieve(bundle)][:cut]
            if cut == 10:
                totals.append(time.perf_counter() - start)
                graphs.append(totals[-1] - watch.seconds)
            recalls[cut].append(len(set(found) & set(question.gold)) / len(question.gold))
    return {
        "method": method,
        **{f"recall@{cut}": round(100 * statistics.fmean(recalls[cut]), 2) for cut in CUTS},
        "ms_per_query": round(1000 * statistics.median(totals), 2),
        "graph_ms_per_query": round(1000 * statistics.median(graphs), 2) if expansion else 0.0,
    }


def main() -> None:
    """Ingest, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the corpus, questions and triples")
    parser.add_argument("--embed", required=True, help="folder (or hub name) of a sentence-transformers model")
    parser.add_argument("--methods", default=METHODS, help=f"default: {METHODS}; …+sync and …+gear need --llm recorded")
    parser.add_argument("--llm", choices=("none", "recorded"), default="none", help="the reader of …+sync, …+gear")
    parser.add_argument("--triples", choices=("file", "offline"), default="file", help="ready ones, or extracted here")
    parser.add_argument("--scorer", choices=("novelty", "composed", "additive", "exact"), default="novelty")
    parser.add_argument("--no-diversity", action="store_true", help="plain beam search")
    parser.add_argument("--beam-size", type=int, default=10)
    parser.add_argument("--beam-length", type=int, default=2)
    parser.add_argument("--neighbours", type=int, default=100)
    parser.add_argument("--gamma", type=float, default=None, help="default: twice the beam size")
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
            m for m in arguments.methods.split(",") if arguments.llm == "recorded" or not m.endswith(("+sync", "+gear"))
        ]
        results = []
        for method in methods:
            results.append(measure(method, dataset, store, nodes, arguments))
            print(
                "{method:16} {recall@5:6.1f} {recall@10:6.1f} {recall@15:6.1f}   "
                "{ms_per_query:8.1f} ms   graph {graph_ms_per_query:7.1f} ms".format(**results[-1]),
                flush=True,
            )
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
