"""The backends that answer a query's requests: base retriever, LLM, external graph, and the store for the rest."""

from __future__ import annotations

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
    VectorStoreQueryResult,
)

from llama_index_gear.errors import ArgumentError, check_counts, check_kind, check_question, format_value
from llama_index_gear.flow import Answer, Flow, Handler, Request, ask, ask_all
from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.llm.client import aask_llm, ask_llm
from llama_index_gear.requests import CallLLM, EmbedQuery, GraphRequest, LinkTriples, RetrievePassages
from llama_index_gear.spans import show_triples, span_flow
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.triple import StoredTriple

_MODES = (VectorStoreQueryMode.HYBRID, VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.DEFAULT)


class Backends:
    """Answers the requests of a query's flow, for one store and one set of settings.

    Args:
        vector_store: holds passages and triples.
        base_retriever: answers `RetrievePassages`; None searches the store.
        mode: mode of the store's own base search; None is HYBRID.
        base_top_k: passages that the store's own base search returns; None is 10.
        filters: metadata filters that bind all answers of the store.
        llm: answers `CallLLM`.
        graph: answers requests for triples (`GraphRequest`) in the store's place.

    Raises:
        ArgumentError: an argument of the wrong kind, or `mode` or `base_top_k` beside a base retriever, which has its
            own.
        TenantError: the store is divided between tenants, and neither it nor the filters name one.

    """

    def __init__(
        self,
        vector_store: GeARVectorStore,
        base_retriever: BaseRetriever | None = None,
        *,
        mode: VectorStoreQueryMode | None = None,
        base_top_k: int | None = None,
        filters: MetadataFilters | None = None,
        llm: LLM | None = None,
        graph: ExternalTripleStore | None = None,
    ) -> None:
        check_kind(GeARVectorStore, hint="write GeARVectorStore.from_path(folder)", vector_store=vector_store)
        check_kind(
            BaseRetriever, hint="of an index: index.as_retriever()", optional=True, base_retriever=base_retriever
        )
        check_kind(LLM, hint="write OpenAI(model=…), or leave it out and set Settings.llm", optional=True, llm=llm)
        check_kind(ExternalTripleStore, optional=True, graph=graph)
        check_kind(
            MetadataFilters, hint="write MetadataFilters(filters=[MetadataFilter(…)])", optional=True, filters=filters
        )
        self.base_top_k = 10 if base_top_k is None else base_top_k
        check_counts(base_top_k=self.base_top_k)
        for name, value in (("vector_store_query_mode", mode), ("base_top_k", base_top_k)):
            if base_retriever is not None and value is not None:
                raise ArgumentError(f"{name} is of the store's own search: leave it out, or leave out base_retriever")
        if mode is not None and mode not in _MODES:
            raise ArgumentError(f"vector_store_query_mode must be HYBRID, SPARSE or DEFAULT, got {format_value(mode)}")
        self.vector_store = vector_store
        self.base_retriever = base_retriever
        self.mode = VectorStoreQueryMode.HYBRID if mode is None else VectorStoreQueryMode(mode)
        self.filters = vector_store.scope_filters(filters)
        self.llm = llm
        self.graph = graph

    def answer(self, request: Request[Answer]) -> Answer:
        """Answer a request."""
        return self._handler(request).answer()  # type: ignore[no-any-return]

    async def aanswer(self, request: Request[Answer]) -> Answer:
        """`answer`, without blocking the event loop."""
        return await self._handler(request).aanswer()  # type: ignore[no-any-return]

    def _handler(self, request: Request[Any]) -> Handler:
        match request:
            case RetrievePassages() if self.base_retriever is not None:
                retriever, query = self.base_retriever, request.query
                return Handler(partial(retriever.retrieve, query), partial(retriever.aretrieve, query))
            case RetrievePassages():
                return Handler(partial(self._search, request), partial(self._asearch, request))
            case CallLLM():
                call = (self._required_llm, request.prompt, request.variables)
                within, most = request.timeout, request.max_calls
                return Handler(
                    partial(ask_llm, *call, within=within, max_calls=most),
                    partial(aask_llm, *call, within=within, max_calls=most),
                )
            case GraphRequest() if self.graph is not None:
                return Handler(partial(self.graph.answer, request), partial(self.graph.aanswer, request))
        store, filters = self.vector_store, self.filters
        return Handler(partial(store.answer, request, filters), partial(store.aanswer, request, filters))

    def _search(self, search: RetrievePassages) -> list[NodeWithScore]:
        return _with_scores(self.vector_store.query(self._store_query(search)))

    async def _asearch(self, search: RetrievePassages) -> list[NodeWithScore]:
        return _with_scores(await self.vector_store.aquery(self._store_query(search)))

    @property
    def _required_llm(self) -> LLM:
        if self.llm is None:
            raise ArgumentError("there is no language model to ask: give llm")
        return self.llm

    def _store_query(self, search: RetrievePassages) -> VectorStoreQuery:
        return VectorStoreQuery(
            query_str=search.query.query_str,
            query_embedding=search.query.embedding,
            similarity_top_k=self.base_top_k,
            mode=self.mode,
            filters=self.filters,
        )


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


def link_triples_flow(request: LinkTriples) -> Flow[list[list[StoredTriple]]]:
    """Link facts to stored triples, in a span of its own."""
    facts = list(request.texts)
    return span_flow("link_triples", ask(request), lambda found: show_triples(chain.from_iterable(found)), facts=facts)


def copy_query(bundle: QueryBundle, question: str) -> QueryBundle:
    """Return a caller's query for a foreign retriever, with the question stripped.

    A foreign retriever may have another embedding model, so it gets the caller's embedding, if there is one. It gets a
    copy, since some of LlamaIndex's retrievers write into a query.
    """
    return QueryBundle(question, bundle.image_path, bundle.custom_embedding_strs, bundle.embedding)


def _with_scores(result: VectorStoreQueryResult) -> list[NodeWithScore]:
    return [
        NodeWithScore(node=node, score=score)
        for node, score in zip(result.nodes or [], result.similarities or [], strict=True)
    ]
