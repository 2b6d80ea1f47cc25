"""The parts that a query is answered with: store, base retriever, knowledge graph and LLM."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import mean_agg
from llama_index.core.llms import LLM
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.vector_stores.types import (
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from llama_index_gear.errors import ArgumentError, check_kind, check_question
from llama_index_gear.flow import CallLLM, EmbedQuery, Flow, Request, RunFunction, ask, ask_all
from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.llm.client import aask_llm, ask_llm
from llama_index_gear.llm.spans import show_triples, span_flow
from llama_index_gear.store.access import connection_of, reads_of
from llama_index_gear.store.triples import TripleGraph
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.triple import StoredTriple


class Backends:
    """The parts of a query's flow, for one store and one set of settings, and what answers the flow's requests.

    Args:
        vector_store: holds passages and triples.
        base_retriever: finds base passages; None searches the store.
        mode: mode of the store's own base search. Default HYBRID.
        base_top_k: passages that the store's own base search returns. Default 10.
        filters: metadata filters that bind all that is read from the store.
        llm: answers `CallLLM`.
        graph: is walked in place of the store's triples.

    Raises:
        ArgumentError: the graph is another store.
        TenantError: the store is divided between tenants, and neither it nor the filters name one.

    """

    def __init__(
        self,
        vector_store: GeARVectorStore,
        base_retriever: BaseRetriever | None = None,
        *,
        mode: VectorStoreQueryMode = VectorStoreQueryMode.HYBRID,
        base_top_k: int = 10,
        filters: MetadataFilters | None = None,
        llm: LLM | None = None,
        graph: ExternalTripleStore | None = None,
    ) -> None:
        check_kind(ExternalTripleStore, optional=True, graph=graph)
        self.vector_store = vector_store
        self.base_retriever = base_retriever
        self.mode = mode
        self.base_top_k = base_top_k
        self.reads = reads_of(vector_store, filters)
        self.llm = llm
        self.graph = graph
        self.walked: TripleGraph = self.reads if graph is None else graph.reads

    @property
    def filters(self) -> MetadataFilters | None:
        """The filters, the store's tenant included."""
        return self.reads.filters

    def answer(self, request: Request[Any]) -> Any:
        """Answer a request of a query's flow: by the model, or by the store's connection."""
        if isinstance(request, CallLLM):
            return ask_llm(self._required_llm, request)
        return connection_of(self.vector_store).answer(request)

    async def aanswer(self, request: Request[Any]) -> Any:
        """`answer`, without blocking the event loop."""
        if isinstance(request, CallLLM):
            return await aask_llm(self._required_llm, request)
        return await connection_of(self.vector_store).aanswer(request)

    def base_search_flow(self, query: QueryBundle) -> Flow[list[NodeWithScore]]:
        """Search passages with the base retriever or the store: h(q, C) of GeAR §3. Returns them best first."""
        if self.base_retriever is not None:
            retrieve, aretrieve = self.base_retriever.retrieve, self.base_retriever.aretrieve
            return (yield from ask(RunFunction(partial(retrieve, query), partial(aretrieve, query))))
        found = yield from self.reads.query_flow(
            VectorStoreQuery(
                query_str=query.query_str,
                query_embedding=query.embedding,
                similarity_top_k=self.base_top_k,
                mode=self.mode,
            )
        )
        return [
            NodeWithScore(node=node, score=score)
            for node, score in zip(found.nodes or [], found.similarities or [], strict=True)
        ]

    def require_vectors_flow(self) -> Flow[None]:
        """Refuse a walk of the store's triples of which some have no vector, before anything is paid for."""
        if self.graph is None:
            yield from self.reads.require_vectors_flow()

    def link_notes_flow(
        self, texts: Sequence[str], top_k: int, query: Sequence[float], names: Sequence[str] = ()
    ) -> Flow[list[list[StoredTriple]]]:
        """`TripleGraph.link_flow` of what is walked; by words, if it is the store's triples and some have no vector."""
        if self.graph is None and not (yield from self.reads.have_vectors_flow()):
            return (yield from self.reads.link_words_flow(texts, top_k))
        return (yield from self.walked.link_flow(texts, top_k, query, names))

    def link_flow(
        self,
        texts: Sequence[str],
        top_k: int,
        query: Sequence[float],
        names: Sequence[str] = (),
        *,
        are_notes: bool = False,
    ) -> Flow[list[list[StoredTriple]]]:
        """Link facts to triples of the graph that is walked, in a span of its own; see `TripleGraph.link_flow`.

        With `are_notes` see `link_notes_flow`.
        """
        link_flow = self.link_notes_flow if are_notes else self.walked.link_flow
        linking = link_flow(texts, top_k, query, names)
        facts = list(texts)
        return span_flow("link_triples", linking, lambda found: show_triples(chain.from_iterable(found)), facts=facts)

    @property
    def _required_llm(self) -> LLM:
        if self.llm is None:
            raise ArgumentError("there is no language model to ask: give llm")
        return self.llm


def embed_query_flow(bundle: QueryBundle) -> Flow[QueryBundle]:
    """Strip the question and embed it. A given embedding is kept; of several texts (HyDE's) the mean is taken.

    Raises:
        ArgumentError: the question is empty, or too long.

    """
    check_question(bundle.query_str)
    question = bundle.query_str.strip()
    if not question:
        raise ArgumentError("the question is empty")
    embedding = bundle.embedding
    if embedding is None:
        texts = bundle.custom_embedding_strs or [question]
        embeddings = yield from ask_all([EmbedQuery(text) for text in texts])
        embedding = embeddings[0] if len(embeddings) == 1 else mean_agg(list(embeddings))
    return QueryBundle(question, bundle.image_path, None, embedding)


def copy_query(bundle: QueryBundle, question: str) -> QueryBundle:
    """Return a caller's query for a foreign retriever, with the question stripped.

    A foreign retriever may have another embedding model, so it gets the caller's embedding, if there is one. It gets a
    copy, since some of LlamaIndex's retrievers write into a query.
    """
    return QueryBundle(question, bundle.image_path, bundle.custom_embedding_strs, bundle.embedding)
