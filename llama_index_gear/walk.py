"""From base passages through the graph and back: the one flow behind the retrievers and the postprocessor."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle
from llama_index.core.vector_stores.types import MetadataFilters, VectorStoreQuery, VectorStoreQueryMode
from llama_index_instrumentation import get_dispatcher

from llama_index_gear.errors import ArgumentError
from llama_index_gear.expand import Beam, BeamSearch, diverse_triple_beam_search, flatten
from llama_index_gear.fusion import reciprocal_rank_fusion
from llama_index_gear.nodes import with_metadata
from llama_index_gear.read import READ_PROMPT, Reading, read
from llama_index_gear.steps import (
    Ask,
    EmbedQuery,
    EmbedTexts,
    Flow,
    Link,
    Passages,
    Score,
    Search,
    TriplesOf,
    arun,
    run,
)
from llama_index_gear.store import GeARVectorStore
from llama_index_gear.triple import StoredTriple

CHAIN_KEY = "gear_chain"
"""Metadata key of a returned passage: the triples that lead to it, `[[subject, predicate, object], …]`; [] if none."""
RANKS_KEY = "gear_ranks"
"""Metadata key of a returned passage: its rank in the base list and in the graph's, `{"base": 3, "graph": 1}`."""

dispatcher = get_dispatcher(__name__)


class GraphExpansionEvent(BaseEvent):
    """One graph expansion, as LlamaIndex's instrumentation reports it.

    Attributes:
        query: the question.
        proximal: what the reader noted, as text (empty without a reader).
        start: the triples that the search started from, as text.
        beams: (score, texts of the chain's triples), best first.
        fallback: why the search started from the base passages' triples although there is a reader; else empty.

    """

    query: str
    proximal: list[str]
    start: list[str]
    beams: list[tuple[float, list[str]]]
    fallback: str

    @classmethod
    def class_name(cls) -> str:
        """Name of the event."""
        return "GraphExpansionEvent"


class GraphWalk:
    """Base retrieval, reading, linking, beam search, fusion: GeAR §4, for one store and one set of settings.

    The methods `retrieving` and `expanding` are the flow; `retrieve`, `expand` and their async twins drive it.

    Args:
        vector_store: holds passages and triples.
        search: settings of the beam search.
        base_retriever: finds base passages; None searches the store in `mode`.
        mode: of the store's own base search.
        similarity_top_k: passages to return, and to take from the store's own base search.
        rrf_k: constant of the fusions.
        filters: bind every hop. A base passage that the store doesn't know can't be checked and is left out.
        llm: the reader (SyncGE); None starts from the base passages' triples (NaiveGE).
        link_top_k: stored triples that a proximal triple is linked to.

    """

    def __init__(
        self,
        vector_store: GeARVectorStore,
        search: BeamSearch,
        *,
        base_retriever: BaseRetriever | None = None,
        mode: VectorStoreQueryMode = VectorStoreQueryMode.HYBRID,
        similarity_top_k: int = 10,
        rrf_k: int = 60,
        filters: MetadataFilters | None = None,
        llm: LLM | None = None,
        link_top_k: int = 1,
    ) -> None:
        if not isinstance(vector_store, GeARVectorStore):
            raise ArgumentError(f"vector_store must be a GeARVectorStore, got {type(vector_store).__name__}")
        for name, value in {"similarity_top_k": similarity_top_k, "link_top_k": link_top_k}.items():
            if value < 1:
                raise ArgumentError(f"{name} must be 1 or more, got {value}")
        if rrf_k < 0:
            raise ArgumentError(f"rrf_k must be 0 or more, got {rrf_k}")
        self.vector_store = vector_store
        self.search = search
        self.base_retriever = base_retriever
        self.mode = VectorStoreQueryMode(mode)
        self.similarity_top_k = similarity_top_k
        self.rrf_k = rrf_k
        self.filters = filters
        self.llm = llm
        self.read_prompt: BasePromptTemplate = READ_PROMPT
        self.link_top_k = link_top_k

    def retrieve(self, bundle: QueryBundle) -> list[NodeWithScore]:
        """Passages for a question."""
        return run(self.retrieving(bundle), self._answer)

    async def aretrieve(self, bundle: QueryBundle) -> list[NodeWithScore]:
        """`retrieve`, without blocking the event loop."""
        return await arun(self.retrieving(bundle), self._aanswer)

    def expand(self, bundle: QueryBundle, base: Sequence[NodeWithScore]) -> list[NodeWithScore]:
        """Passages for a question whose base passages are known."""
        return run(self.expanding(bundle, base), self._answer)

    async def aexpand(self, bundle: QueryBundle, base: Sequence[NodeWithScore]) -> list[NodeWithScore]:
        """`expand`, without blocking the event loop."""
        return await arun(self.expanding(bundle, base), self._aanswer)

    # -- the flow ------------------------------------------------------------------------------------------------

    def retrieving(self, bundle: QueryBundle) -> Flow[list[NodeWithScore]]:
        """Base retrieval, then `expanding`."""
        known = yield from self._embedded(bundle)
        # A copy for the base retriever: some of LlamaIndex's write into the bundle that they are given.
        (base,) = yield [Search(QueryBundle(known.query_str, known.image_path, None, known.embedding))]
        return (yield from self.expanding(known, base))

    def expanding(self, bundle: QueryBundle, base: Sequence[NodeWithScore]) -> Flow[list[NodeWithScore]]:
        """Graph expansion of base passages, fused with them (GeAR §4.2, Eq. 3)."""
        known = yield from self._embedded(bundle)
        question, query = known.query_str, known.embedding or []
        passages = {each.node.node_id: each.node for each in base}
        if self.filters is not None and passages:
            (allowed,) = yield [Passages(list(passages))]
            passages = {node.node_id: passages[node.node_id] for node in allowed}
        reading, fallback = Reading((), ()), ""
        start: list[StoredTriple] = []
        if self.llm is not None and passages:
            reading, start = yield from self._synchronising(question, query, list(passages.values()))
            if not start:
                fallback = reading.problem or (
                    "no triple to link to" if reading.triples else "the reader noted no fact"
                )
        if not start:
            limit = None if self.search.reads_text else self.search.beam_size
            (start,) = yield [TriplesOf(list(passages), query, limit)]
        beams = yield from diverse_triple_beam_search(question, query, start, self.search)
        dispatcher.event(
            GraphExpansionEvent(
                query=question,
                proximal=[triple.text for triple in reading.triples],
                start=[each.triple.text for each in start],
                beams=[(beam.score, [each.triple.text for each in beam.chain]) for beam in beams],
                fallback=fallback,
            )
        )
        return (yield from self._fusing(passages, beams))

    def _embedded(self, bundle: QueryBundle) -> Flow[QueryBundle]:
        question = bundle.query_str.strip()
        if not question:
            raise ArgumentError("the question is empty")
        embedding = bundle.embedding
        if embedding is None:
            (embedding,) = yield [EmbedQuery(question)]
        return QueryBundle(question, bundle.image_path, None, embedding)

    def _synchronising(
        self, question: str, query: Sequence[float], passages: Sequence[BaseNode]
    ) -> Flow[tuple[Reading, list[StoredTriple]]]:
        """Read and link (GeAR §4.1, Eq. 1 and 2)."""
        texts = [node.get_content(metadata_mode=MetadataMode.LLM) for node in passages]
        reading = yield from read(question, texts, self.read_prompt)
        if not reading.triples:
            return reading, []
        (linked,) = yield [Link([triple.text for triple in reading.triples], self.link_top_k, query)]
        return reading, [triple for each in linked for triple in each]

    def _fusing(self, passages: dict[str, BaseNode], beams: Sequence[Beam]) -> Flow[list[NodeWithScore]]:
        chains = flatten(beams)
        found = {**passages}
        missing = [passage_id for passage_id in chains if passage_id not in found]
        if missing:
            (fetched,) = yield [Passages(missing)]
            found.update({node.node_id: node for node in fetched})
        graph = [passage_id for passage_id in chains if passage_id in found]
        ranks = {"base": list(passages), "graph": graph}
        fused = reciprocal_rank_fusion([ranks["graph"], ranks["base"]], k=self.rrf_k)
        places = {name: {item: rank for rank, item in enumerate(ids, start=1)} for name, ids in ranks.items()}
        results = []
        for passage_id, score in fused[: self.similarity_top_k]:
            why = {
                CHAIN_KEY: [
                    [each.triple.subject, each.triple.predicate, each.triple.object]
                    for each in chains.get(passage_id, ())
                ],
                RANKS_KEY: {name: place[passage_id] for name, place in places.items() if passage_id in place},
            }
            results.append(NodeWithScore(node=with_metadata(found[passage_id], why), score=score))
        return results

    # -- who answers its requests --------------------------------------------------------------------------------

    def _answer(self, request: Any) -> Any:
        match request:
            case Search() if self.base_retriever is not None:
                return self.base_retriever.retrieve(request.query)
            case Search():
                return _with_scores(self.vector_store.query(self._store_query(request)))
            case Ask():
                return self._reader.predict(request.prompt, **request.variables)
            case Score() if callable(self.search.scorer):
                return self.search.scorer(request.question, request.texts)
            case Score():
                return _cosines(request.query, self.vector_store.answer(EmbedTexts(request.texts)))
        return self.vector_store.answer(request, self.filters)

    async def _aanswer(self, request: Any) -> Any:
        match request:
            case Search() if self.base_retriever is not None:
                return await self.base_retriever.aretrieve(request.query)
            case Search():
                return _with_scores(await self.vector_store.aquery(self._store_query(request)))
            case Ask():
                return await self._reader.apredict(request.prompt, **request.variables)
            case Score() if callable(self.search.scorer):
                return await asyncio.to_thread(self.search.scorer, request.question, request.texts)
            case Score():
                return _cosines(request.query, await self.vector_store.aanswer(EmbedTexts(request.texts)))
        return await self.vector_store.aanswer(request, self.filters)

    @property
    def _reader(self) -> LLM:
        if self.llm is None:
            raise ArgumentError("this walk has no language model")
        return self.llm

    def _store_query(self, search: Search) -> VectorStoreQuery:
        return VectorStoreQuery(
            query_str=search.query.query_str,
            query_embedding=search.query.embedding,
            similarity_top_k=self.similarity_top_k,
            mode=self.mode,
            filters=self.filters,
        )


def _with_scores(result: Any) -> list[NodeWithScore]:
    return [
        NodeWithScore(node=node, score=score) for node, score in zip(result.nodes, result.similarities, strict=True)
    ]


def _cosines(query: Sequence[float], embeddings: Sequence[Sequence[float]]) -> list[float]:
    """The paper's scorer: cosine of the question and each chain's own embedding (GeAR §4.2)."""
    if not embeddings:
        return []
    matrix = np.asarray(embeddings, dtype=np.float64)
    vector = np.asarray(query, dtype=np.float64)
    lengths = np.linalg.norm(matrix, axis=1) * np.linalg.norm(vector)
    products = matrix @ vector
    return [float(value) for value in np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)]
