"""Retrievers over one store, by the names of methods (`settings.py`)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from baselines.hipporag import HippoRAGRetriever
from baselines.ircot import IRCoTRetriever
from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms import LLM, MockLLM
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.postprocessor import LLMRerank
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import BaseNode, Document, NodeWithScore, QueryBundle, TextNode
from llama_index.postprocessor.rankgpt_rerank import RankGPTRerank

from harness.data import Dataset
from harness.settings import (
    BOUNDS,
    CUTS,
    GEAR_OUTSIDE,
    HIPPORAG,
    MODES,
    NO_GRAPH,
    OF_AGENTS,
    RERANKERS,
    Settings,
    split_method,
)
from harness.stand_in_readers import READERS, StandIn
from harness.usage import TimedRetriever
from llama_index_gear import (
    BeamSearch,
    ExternalGeARRetriever,
    ExternalTripleStore,
    GeARRetriever,
    GeARVectorStore,
    GraphRetriever,
    LocalPageRank,
    NaiveGERetriever,
    PassageSelector,
    SyncGERetriever,
    T2RAGRetriever,
    Triple,
    attach_triples,
)
from llama_index_gear.expansion.pool_retrieval import POOL_TOP_K
from llama_index_gear.llm.selection import SHOW_TOKENS
from llama_index_gear.retrievers.paper_gear import PaperGeARRetriever
from llama_index_gear.retrievers.rank_bm25 import RankBM25Retriever


class Fixed(BaseRetriever):
    """Retriever that returns given passages for each question: a bound."""

    def __init__(self, passages: Mapping[str, Sequence[BaseNode]]) -> None:
        super().__init__()
        self._passages = passages

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [NodeWithScore(node=node) for node in self._passages.get(query_bundle.query_str, [])]


class First(BaseRetriever):
    """Retriever that returns the first passages of another retriever."""

    def __init__(self, retriever: BaseRetriever, top_k: int) -> None:
        super().__init__()
        self._retriever, self._top_k = retriever, top_k

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._retriever.retrieve(query_bundle)[: self._top_k]


class Reranking(BaseRetriever):
    """Retriever that returns another retriever's passages as a postprocessor orders them.

    Args:
        retriever: the other retriever.
        reranker: the postprocessor.
        order: in which the postprocessor is given the passages: as they come ("given"), "reversed", or "shuffled".

    """

    def __init__(self, retriever: BaseRetriever, reranker: BaseNodePostprocessor, order: str = "given") -> None:
        super().__init__()
        self._retriever, self._reranker, self._order = retriever, reranker, order

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        results = self._retriever.retrieve(query_bundle)
        if self._order == "reversed":
            results = results[::-1]
        if self._order == "shuffled":
            random.Random(query_bundle.query_str).shuffle(results)
        return self._reranker.postprocess_nodes(results, query_bundle)


def to_nodes(dataset: Dataset, with_triples: bool) -> list[BaseNode]:
    """Make a node of each passage. The title stands above the text, as in HippoRAG's and GeAR's corpora.

    Rows that are documents are split, in passages of 224 tokens at most.
    """
    if dataset.has_documents:
        rows = [
            Document(id_=row.id, text=row.text, metadata={"title": row.title} if row.title else {})
            for row in dataset.passages
        ]
        split = SentenceSplitter(
            chunk_size=224, chunk_overlap=0, id_func=lambda number, row: f"{row.node_id}::{number}"
        )
        return split.get_nodes_from_documents(rows)
    nodes: list[BaseNode] = []
    for passage in dataset.passages:
        node = TextNode(
            id_=passage.id,
            text=passage.text,
            metadata={**({"title": passage.title} if passage.title else {}), **passage.metadata},
            excluded_embed_metadata_keys=list(passage.metadata),
            excluded_llm_metadata_keys=list(passage.metadata),
            metadata_template="{value}",
            text_template="{metadata_str}\n{content}",
        )
        triples = [Triple(*slots) for slots in dataset.triples.get(passage.id, ())] if with_triples else []
        nodes.append(attach_triples(node, triples) if triples else node)
    return nodes


@dataclass
class Workbench:
    """The data, store and model from which methods' retrievers are made.

    Attributes:
        dataset: the passages, questions and triples.
        store: the store with the ingested passages and triples.
        nodes: the passages as they were ingested.
        llm: the language model, a stand-in reader, or None.
        scratch: the folder for external graphs.

    """

    dataset: Dataset
    store: GeARVectorStore
    nodes: Sequence[BaseNode]
    llm: LLM | None
    scratch: Path
    _graphs: dict[float, ExternalTripleStore] = field(default_factory=dict)
    _hipporags: dict[tuple[str, float], HippoRAGRetriever] = field(default_factory=dict)

    def retriever(self, method: str, cut: int, settings: Settings) -> BaseRetriever:
        """Make the retriever of a method, for a recall cut.

        Raises:
            SystemExit: there is no such method.

        """
        base, expansion, extra = split_method(method)
        settings = settings.with_defaults_of(method)
        if method in BOUNDS:
            nodes = {node.node_id: node for node in self.nodes} if method == "gold" else {}
            return Fixed(
                {
                    question.question: [nodes[node_id] for node_id in question.gold if node_id in nodes]
                    for question in self.dataset.questions
                }
            )
        shared = self._collect_settings(cut, settings, extra)
        if expansion == "t2rag":
            return T2RAGRetriever(
                self.store,
                llm=self.llm,
                max_rounds=settings.max_steps,  # type: ignore[arg-type]
                similarity_top_k=cut,
                search_by=settings.search_by,
            )
        if not expansion:
            return self._make_base(base, cut, settings)
        if expansion in RERANKERS:
            shown = settings.show_top_k or POOL_TOP_K
            reranker = self._make_reranker(expansion, cut, shown, settings)
            return Reranking(self._make_base(base, shown, settings), reranker, settings.show_order)
        start = self._make_base(base, settings.base_top_k or cut, settings)
        if expansion == "naive":
            return NaiveGERetriever(self.store, start, **shared)
        if expansion == "ircot":
            return IRCoTRetriever(start, self.llm, max_steps=settings.max_steps, similarity_top_k=cut)  # type: ignore[arg-type]
        return self._make_reading(expansion, start, settings, shared)

    def _make_reranker(self, name: str, cut: int, shown: int, settings: Settings) -> BaseNodePostprocessor:
        if name == "llmrerank":
            return LLMRerank(llm=self.llm, top_n=cut)
        if name == "rankgpt":
            return RankGPTRerank(llm=self.llm, top_n=cut)
        return PassageSelector(
            llm=self.llm, top_n=cut, show_top_k=shown, show_tokens=settings.show_tokens or SHOW_TOKENS
        )

    def _collect_settings(self, cut: int, settings: Settings, extra: str) -> dict[str, Any]:
        names = ("scorer", "diversity", "beam_size", "beam_length", "neighbors", "gamma")
        shared: dict[str, Any] = {"beam_search": BeamSearch(**{name: getattr(settings, name) for name in names})}
        if extra == "pagerank":
            shared["pagerank"] = LocalPageRank(epsilon=settings.epsilon)
        if extra == "external":
            shared["graph"] = self._get_graph(settings)
        return {"similarity_top_k": cut, **shared}

    def _make_reading(
        self, expansion: str, start: BaseRetriever, settings: Settings, shared: dict[str, Any]
    ) -> BaseRetriever:
        cut = shared.pop("similarity_top_k")
        steps: dict[str, Any] = {"similarity_top_k": cut, "max_steps": settings.max_steps}
        if expansion == "selection":
            base = None if isinstance(start, GraphRetriever) else start
            shown = {"show_top_k": settings.show_top_k, "show_tokens": settings.show_tokens}
            steps |= {name: value for name, value in shown.items() if value is not None}
            return GeARRetriever(self.store, base, llm=self.llm, **steps)
        if "graph" in shared:
            shared["check_alignment"] = settings.check_alignment
        shared |= {"llm": self.llm, "link_top_k": settings.link_top_k}
        if expansion == "sync":
            return SyncGERetriever(self.store, start, similarity_top_k=cut, **shared)
        step = SyncGERetriever(self.store, start, **shared)
        if "graph" in shared:
            return ExternalGeARRetriever(step, **steps)
        calls: Any = "single" if isinstance(self.llm, StandIn) else settings.calls
        return PaperGeARRetriever(step, calls=calls, passage_link_top_k=settings.passage_link_top_k, **steps)

    def close(self) -> None:
        """Close the external graphs."""
        for graph in self._graphs.values():
            graph.close()

    def _make_base(self, name: str, top_k: int, settings: Settings) -> BaseRetriever:
        base: BaseRetriever
        if name == "graph":
            return GraphRetriever(self.store, similarity_top_k=top_k)
        if name in HIPPORAG:
            return First(self._get_hipporag(name, settings.fact_weight), top_k)
        if name == "rank-bm25":
            base = RankBM25Retriever(self.nodes, similarity_top_k=top_k)
        elif name == "rank-hybrid":  # LlamaIndex's own fusion of rank-bm25 and dense
            halves = [
                RankBM25Retriever(self.nodes, similarity_top_k=top_k),
                self._index.as_retriever(similarity_top_k=top_k),
            ]
            base = QueryFusionRetriever(
                halves, llm=MockLLM(), mode=FUSION_MODES.RECIPROCAL_RANK, similarity_top_k=top_k, num_queries=1
            )
        else:
            base = self._index.as_retriever(similarity_top_k=top_k, vector_store_query_mode=MODES[name])
        return TimedRetriever(base)

    @cached_property
    def _index(self) -> VectorStoreIndex:
        return VectorStoreIndex.from_vector_store(self.store, embed_model=self.store.embed_model)

    def _get_hipporag(self, name: str, fact_weight: float) -> HippoRAGRetriever:
        key = (name, fact_weight)
        if key not in self._hipporags:
            self._hipporags[key] = HippoRAGRetriever(
                self.nodes,
                self.store.embed_model,
                similarity_top_k=max(CUTS),
                synonyms="-synonyms" in name,
                llm=self.llm if name.endswith("-filter") else None,
                fact_weight=fact_weight,
            )
        return self._hipporags[key]

    def _get_graph(self, settings: Settings) -> ExternalTripleStore:
        share = settings.graph_share
        if share not in self._graphs:
            triples = sorted({Triple(*slots) for facts in self.dataset.triples.values() for slots in facts}, key=str)
            random.Random(0).shuffle(triples)
            self._graphs[share] = ExternalTripleStore.from_path(
                self.scratch / f"graph-{share}", embed_model=self.store.embed_model
            )
            self._graphs[share].load(triples[: round(share * len(triples))], show_progress=True)
        return self._graphs[share]


def check_needs(method: str, dataset: Dataset, llm: str, triples: str) -> None:
    """Check, before anything is measured, that a method has the language model and the triples that it needs.

    Args:
        method: the method's name.
        dataset: the data as loaded.
        llm: the value of `--llm`.
        triples: the value of `--triples`.

    Raises:
        SystemExit: there is no such method; it needs a language model, one that does more than read, or triples.

    """
    base, expansion, extra = split_method(method)
    is_asking = expansion in ("sync", *RERANKERS, *OF_AGENTS) or base.endswith("-filter")
    if is_asking and llm == "none":
        raise SystemExit(f"{method} needs a language model: --llm")
    only_reading = expansion in ("sync", "gear") and (expansion, extra) != GEAR_OUTSIDE
    if is_asking and llm in READERS and not only_reading:
        raise SystemExit(f"{method} needs a language model that does more than read: --llm openai")
    if (base in ("graph", *HIPPORAG) or expansion not in NO_GRAPH) and triples == "file" and not dataset.triples:
        raise SystemExit(f"{method} needs triples: triples.jsonl, or --triples offline")
    if base in HIPPORAG and triples == "none":
        raise SystemExit(f"{method} needs triples: leave out --triples none")
    silent = [question.id for question in dataset.questions if question.id not in dataset.reader]
    if llm == "recorded" and expansion and silent:
        raise SystemExit(f"reader.jsonl says nothing of {len(silent)} questions, {silent[0]!r} among them")
