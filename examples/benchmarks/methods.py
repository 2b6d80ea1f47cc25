"""Retrieval methods by name: a base, what is built on it, and the settings of both.

    BASE = bm25 | dense | hybrid | rank-bm25 | rank-hybrid | hipporag[-synonyms][-filter]
    METHOD = BASE[+naive | +sync | +gear | +ircot][+pagerank | +external] | t2rag | gold | closed-book

"+external" walks an external graph, made of the data's own triples without their passages; "gold" finds what is gold,
"closed-book" nothing: bounds.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from data import Dataset
from hipporag import HippoRAGRetriever
from ircot import IRCoTRetriever
from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms import LLM, CompletionResponse, CompletionResponseGen, CustomLLM, LLMMetadata, MockLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode
from spent import TimedRetriever, spend

from llama_index_gear import (
    ExternalGeARRetriever,
    ExternalTripleStore,
    GeARRetriever,
    GeARVectorStore,
    LocalPageRank,
    NaiveGERetriever,
    RankBM25Retriever,
    SyncGERetriever,
    T2RAGRetriever,
    Triple,
    attach_triples,
)
from llama_index_gear.expand import Scorer

CUTS = (5, 10, 15)
MODES = {
    "bm25": VectorStoreQueryMode.SPARSE,
    "dense": VectorStoreQueryMode.DEFAULT,
    "hybrid": VectorStoreQueryMode.HYBRID,
}
HIPPORAG = ("hipporag", "hipporag-synonyms", "hipporag-filter", "hipporag-synonyms-filter")
BASES = (*MODES, "rank-bm25", "rank-hybrid", *HIPPORAG)
BOUNDS = ("gold", "closed-book")
WHOLE = ("t2rag", *BOUNDS)
EXPANSIONS = ("naive", "sync", "gear", "ircot")
OF_PASSAGES, OF_AGENTS = 10, ("gear", "ircot", "t2rag")  # base passages of a step (GeAR App. B.2)
OWN_FACTS = 5
BEAMS = "naive sync gear"
GEAR_OUTSIDE = ("gear", "external")
STEPS = {"gear": 4, "ircot": 4, "t2rag": 3, "gear+external": 2}  # the papers'


def _setting(default: Any, parse: Any, of: str, help_: str) -> Any:
    """A setting of some bases, expansions, or what is added to them."""
    return field(default=default, metadata={"parse": parse, "of": of.split(), "help": help_})


def flag(value: str) -> bool:
    """Whether a text says yes."""
    return {"true": True, "on": True, "false": False, "off": False}[value.lower()]


def _or_none(parse: Any) -> Any:
    return lambda value: None if value.lower() == "none" else parse(value)


def _one_of(*values: str) -> Any:
    def parse(value: str) -> str:
        if value not in values:
            raise ValueError(f"{value!r} is none of {', '.join(values)}")
        return value

    return parse


@dataclass(frozen=True)
class Settings:
    """What can be set for all methods, and swept over; what a method doesn't have, it ignores."""

    scorer: Scorer = _setting("novelty", _one_of("novelty", "composed", "additive", "exact"), BEAMS, "of chains")
    diversity: bool = _setting(True, flag, BEAMS, "diverse, or plain, beam search")
    beam_size: int = _setting(10, int, BEAMS, "chains kept")
    beam_length: int = _setting(2, int, BEAMS, "triples a chain")
    neighbours: int = _setting(100, int, BEAMS, "candidates a chain")
    gamma: float | None = _setting(None, _or_none(float), BEAMS, "of the penalty; none: twice the beam size")
    epsilon: float = _setting(LocalPageRank().epsilon, float, "pagerank", "exactness")
    base_top_k: int | None = _setting(
        None, _or_none(int), f"{BEAMS} ircot", "base passages; none: the recall cut, or 10 in an agent"
    )
    fact_weight: float = _setting(
        1.0, float, " ".join(HIPPORAG), "of a fact's edge; 2 in its authors' program (see hipporag.py)"
    )
    link_top_k: int = _setting(1, int, "sync gear", "triples that a noted fact is linked to")
    passage_link_top_k: int = _setting(3, int, "gear", "passages that a fact of the gist is linked to")
    max_steps: int | None = _setting(
        None, _or_none(int), "gear ircot t2rag", "none: the papers' 4 (gear, ircot), 3 (t2rag), 2 (gear+external)"
    )
    calls: str = _setting("separate", _one_of("separate", "merged", "single"), "gear", "a stand-in makes one")
    search_by: Any = _setting("triples", _one_of("triples", "passages"), "t2rag", "what is searched")
    expand: bool = _setting(False, flag, "t2rag", "a graph expansion each round")
    graph: str = _setting("sparse", _one_of("sparse", "dense"), "external", "kind of external graph")
    graph_share: float = _setting(1.0, float, "external", "of the data's triples that the external graph has")
    check_alignment: bool = _setting(True, flag, "external", "drop links to triples about something else")

    @classmethod
    def applies(cls, name: str, method: str) -> bool:
        """Whether a method has this setting, as far as there is one of this name."""
        known = cls.__dataclass_fields__.get(name)
        return known is None or bool({*parts_of(method)} & {*known.metadata["of"]})

    def of(self, method: str) -> Settings:
        """With what a method takes where nothing is said."""
        _, expansion, extra = parts_of(method)
        steps = STEPS.get(f"{expansion}+{extra}", STEPS.get(expansion))
        most = OF_PASSAGES if expansion in OF_AGENTS else None
        return replace(
            self,
            gamma=2.0 * self.beam_size if self.gamma is None else self.gamma,
            max_steps=self.max_steps or steps,
            base_top_k=self.base_top_k or most,
        )

    def swept(self, name: str, value: str) -> Settings:
        """With one of them set to what this text says.

        Raises:
            ValueError: there is no such setting, or it can't have that value.

        """
        fields = type(self).__dataclass_fields__
        if name not in fields:
            raise ValueError(f"there is no setting {name!r}; there are {', '.join(fields)}")
        try:
            return replace(self, **{name: fields[name].metadata["parse"](value)})
        except (ValueError, KeyError) as error:
            raise ValueError(f"{name} cannot be {value!r}") from error


class Fixed(BaseRetriever):
    """Finds, for each question, what it is told: a bound."""

    def __init__(self, found: Mapping[str, Sequence[BaseNode]]) -> None:
        super().__init__()
        self._found = found

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [NodeWithScore(node=node) for node in self._found.get(query_bundle.query_str, [])]


class First(BaseRetriever):
    """The first passages of another retriever's."""

    def __init__(self, retriever: BaseRetriever, top_k: int) -> None:
        super().__init__()
        self._retriever, self._top_k = retriever, top_k

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._retriever.retrieve(query_bundle)[: self._top_k]


class StandIn(CustomLLM):
    """Answers the reader's prompt with facts that are given for each question, once and for all."""

    replies: dict[str, str]

    @property
    def metadata(self) -> LLMMetadata:
        """What LlamaIndex wants to know of a model."""
        return LLMMetadata(model_name="stand-in")

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The given reply to the question that the prompt asks."""
        said = prompt.rpartition("\nQuestion: ")[2]
        question = next(each for each in sorted(self.replies, key=len, reverse=True) if said.startswith(each))
        spend(calls=1)
        return CompletionResponse(text=self.replies[question])

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """The same, in one piece."""
        yield self.complete(prompt)


def recorded_reader(dataset: Dataset, _: GeARVectorStore) -> StandIn:
    """What a strong model noted in the ten passages that hybrid retrieval (MiniLM) found, whatever the base is now."""
    facts = {each.question.strip(): dataset.reader.get(each.id, []) for each in dataset.questions}
    return StandIn(replies={question: json.dumps({"triples": noted}) for question, noted in facts.items()})


def own_reader(dataset: Dataset, store: GeARVectorStore) -> StandIn:
    """Notes, of the triples of the first ten passages by hybrid retrieval, those most similar to the question."""
    facts = {each.question.strip(): _own_facts(dataset, store, each.question) for each in dataset.questions}
    return StandIn(replies={question: json.dumps({"triples": noted}) for question, noted in facts.items()})


READERS = {"recorded": recorded_reader, "own": own_reader}


def _own_facts(dataset: Dataset, store: GeARVectorStore, question: str) -> list[list[str]]:
    embedding = store.embed_model.get_query_embedding(question)
    found = store.query(
        VectorStoreQuery(
            query_str=question, query_embedding=embedding, similarity_top_k=10, mode=VectorStoreQueryMode.HYBRID
        )
    )
    triples = list(dict.fromkeys(Triple(*s) for node_id in found.ids or [] for s in dataset.triples.get(node_id, ())))
    if not triples:
        return []
    vectors = np.asarray(store.embed_model.get_text_embedding_batch([triple.text for triple in triples]))
    best = np.argsort(-vectors @ np.asarray(embedding), kind="stable")[:OWN_FACTS]
    return [[triples[n].subject, triples[n].predicate, triples[n].object] for n in best]


def to_nodes(dataset: Dataset, with_triples: bool) -> list[BaseNode]:
    """One node a passage; the title stands above the text, as in HippoRAG's and GeAR's corpora."""
    nodes: list[BaseNode] = []
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
    return nodes


@dataclass
class Workbench:
    """What methods are made of.

    Attributes:
        dataset: passages, questions, triples.
        store: the passages and triples, ingested.
        nodes: the passages as they were ingested.
        llm: the language model, a stand-in for its reading, or None.
        scratch: a folder for external graphs.

    """

    dataset: Dataset
    store: GeARVectorStore
    nodes: Sequence[BaseNode]
    llm: LLM | None
    scratch: Path
    _graphs: dict[tuple[str, float], ExternalTripleStore] = field(default_factory=dict)
    _hipporags: dict[tuple[str, float], HippoRAGRetriever] = field(default_factory=dict)

    def retriever(self, method: str, cut: int, settings: Settings) -> BaseRetriever:
        """The retriever of a method, for a recall cut.

        Raises:
            SystemExit: there is no such method.

        """
        base, expansion, extra = parts_of(method)
        settings = settings.of(method)
        if method in BOUNDS:
            known = {node.node_id: node for node in self.nodes} if method == "gold" else {}
            return Fixed({q.question: [known[g] for g in q.gold if g in known] for q in self.dataset.questions})
        shared = self._shared(cut, settings, extra)
        if expansion == "t2rag":
            rounds, by = settings.max_steps, settings.search_by
            return T2RAGRetriever(
                self.store,
                llm=self.llm,
                max_rounds=rounds,  # type: ignore[arg-type]
                search_by=by,
                expand=settings.expand,
                **shared,
            )
        if not expansion:
            return self._base(base, cut, settings)
        start = self._base(base, settings.base_top_k or cut, settings)
        if expansion == "naive":
            return NaiveGERetriever(self.store, start, **shared)
        if expansion == "ircot":
            return IRCoTRetriever(start, self.llm, max_steps=settings.max_steps, similarity_top_k=cut)  # type: ignore[arg-type]
        return self._reading(expansion, start, settings, shared)

    def _shared(self, cut: int, settings: Settings, extra: str) -> dict[str, Any]:
        names = ("scorer", "diversity", "beam_size", "beam_length", "neighbours", "gamma")
        shared: dict[str, Any] = {name: getattr(settings, name) for name in names}
        if extra == "pagerank":
            shared["pagerank"] = LocalPageRank(epsilon=settings.epsilon)
        if extra == "external":
            shared["graph"] = self._graph(settings)
        return {"similarity_top_k": cut, **shared}

    def _reading(
        self, expansion: str, start: BaseRetriever, settings: Settings, shared: dict[str, Any]
    ) -> BaseRetriever:
        shared = {**shared, "base_retriever": start, "llm": self.llm, "link_top_k": settings.link_top_k}
        if "graph" in shared:
            shared["check_alignment"] = settings.check_alignment
        if expansion == "sync":
            return SyncGERetriever(self.store, **shared)
        if "graph" in shared:
            return ExternalGeARRetriever(self.store, max_steps=settings.max_steps, **shared)  # type: ignore[arg-type]
        return GeARRetriever(
            self.store,
            max_steps=settings.max_steps,  # type: ignore[arg-type]
            calls="single" if isinstance(self.llm, StandIn) else settings.calls,  # type: ignore[arg-type]
            passage_link_top_k=settings.passage_link_top_k,
            **shared,
        )

    def close(self) -> None:
        """Close the external graphs."""
        for graph in self._graphs.values():
            graph.close()

    def _base(self, name: str, top_k: int, settings: Settings) -> BaseRetriever:
        base: BaseRetriever
        if name in HIPPORAG:
            return First(self._hipporag(name, settings.fact_weight), top_k)
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

    def _hipporag(self, name: str, fact_weight: float) -> HippoRAGRetriever:
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

    def _graph(self, settings: Settings) -> ExternalTripleStore:
        key = (settings.graph, settings.graph_share)
        if key not in self._graphs:
            triples = sorted({Triple(*s) for several in self.dataset.triples.values() for s in several}, key=str)
            random.Random(0).shuffle(triples)
            self._graphs[key] = ExternalTripleStore.from_path(
                self.scratch / "-".join(map(str, key)), embed_model=self.store.embed_model, dense=key[0] == "dense"
            )
            self._graphs[key].load(triples[: round(key[1] * len(triples))], show_progress=True)
        return self._graphs[key]


def parts_of(method: str) -> tuple[str, str, str]:
    """Base, expansion and what is added, each empty if there is none.

    Raises:
        SystemExit: there is no such method.

    """
    if method in WHOLE:
        return "", "t2rag" if method == "t2rag" else "", ""
    base, *parts = method.split("+")
    expansion = parts.pop(0) if parts and parts[0] in EXPANSIONS else ""
    extra = parts.pop(0) if parts and expansion not in ("", "ircot") and parts[0] in ("pagerank", "external") else ""
    if parts or base not in BASES or (base in HIPPORAG and expansion not in ("", "ircot")):
        raise SystemExit(f"unknown method {method!r}: {str(__doc__).split(chr(10) * 2)[1].strip()}")
    return base, expansion, extra


def check_needs(method: str, dataset: Dataset, llm: str, triples: str) -> None:
    """See to it that there is what a method needs, before anything is measured.

    Args:
        method: its name.
        dataset: the data as loaded.
        llm: what `--llm` is.
        triples: what `--triples` is.

    Raises:
        SystemExit: there is no such method; it needs a language model, one that does more than read, or triples.

    """
    base, expansion, extra = parts_of(method)
    is_asking = expansion in ("sync", *OF_AGENTS) or base.endswith("-filter")
    if is_asking and llm == "none":
        raise SystemExit(f"{method} needs a language model: --llm")
    only_reading = expansion in ("sync", "gear") and (expansion, extra) != GEAR_OUTSIDE
    if is_asking and llm in READERS and not only_reading:
        raise SystemExit(f"{method} needs a language model that does more than read: --llm openai")
    if (base in HIPPORAG or expansion not in ("", "ircot")) and triples == "file" and not dataset.triples:
        raise SystemExit(f"{method} needs triples: triples.jsonl, or --triples offline")
    if llm == "recorded" and expansion and (silent := [q.id for q in dataset.questions if q.id not in dataset.reader]):
        raise SystemExit(f"reader.jsonl says nothing of {len(silent)} questions, {silent[0]!r} among them")


def is_of_one_list(method: str, settings: Settings) -> bool:
    """Whether its list is the same for every recall cut, but for where it ends."""
    base, expansion, extra = parts_of(method)
    if method in WHOLE or base in HIPPORAG or expansion in OF_AGENTS:
        return True
    return bool(expansion) and settings.base_top_k is not None and extra != "pagerank"
