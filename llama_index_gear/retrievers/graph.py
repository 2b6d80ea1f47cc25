"""`GraphRetriever`: a wide pool from search and graph, and one ranking that looks at passages together."""

from __future__ import annotations

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import NodeWithScore, QueryBundle, QueryType
from llama_index.core.vector_stores.types import MetadataFilters, VectorStoreQueryMode

from llama_index_gear.errors import ArgumentError, format_value
from llama_index_gear.expansion.backends import Backends
from llama_index_gear.expansion.pagerank import LocalPageRank
from llama_index_gear.expansion.pool_retrieval import PoolRetrieval
from llama_index_gear.flow import Flow, run
from llama_index_gear.llm.prompting import Prompts
from llama_index_gear.ranking.pool import Pool
from llama_index_gear.ranking.weights import RankingWeights
from llama_index_gear.retrievers.base import StoreRetriever
from llama_index_gear.store.vector_store import GeARVectorStore

_MODES = (VectorStoreQueryMode.HYBRID, VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.DEFAULT)


class GraphRetriever(StoreRetriever):
    """Finds passages by search and by the graph, and ranks them together. No LLM.

    Dense search, BM25, and a PageRank over the triples of what both find first each give up to forty passages to a
    pool (`PoolRetrieval`). One weighted sum with learned weights orders it. Its signals are words that a passage shares
    with the question and with the five best passages, facts of these that name one of its entities or its subject (its
    title, in the metadata `title`, or the most frequent subject of its triples), its rank in dense search, and links
    between pages (`LinkTripleExtractor`). Where no fact joins passages, words decide. The pool's size doesn't depend on
    `similarity_top_k`: the top 5 are always the first 5 of the top 40.

    Each result says why it stands where it does, in metadata that neither the LLM nor the embedding model sees:
    `gear_chain` (the triples that lead to it), `gear_ranks` (its rank in each list) and `gear_reasons` (what placed it,
    in words, with its share of the weighted sum). Scores are normalized: those of a pool sum to 1. Don't apply a
    similarity cut-off that was made for cosines: it would remove nearly every result.

    Args:
        vector_store: the store that holds passages and triples.
        base_retriever: any LlamaIndex retriever, in place of the store's own search. All that it returns is in the
            pool: ask it for some forty. Its order counts, its scores don't. Nodes are matched to the store's by id;
            those that the store doesn't know are ranked too, with the triples that they carry.
        similarity_top_k: passages to return. Default 10.
        filters: metadata filters that bind every list. The results of a base retriever are checked against the store;
            nodes that it doesn't know are dropped. A store that is bound to a tenant drops them too.
        weights: weights of the ranking. Default: those that come with the package (`RankingWeights.default()`).
        pagerank: settings of PageRank. Default `LocalPageRank(epsilon=5e-4)`, which reaches a third more passages than
            `LocalPageRank()`.
        vector_store_query_mode: the store's own lists: HYBRID (default; both), DEFAULT (dense) or SPARSE (BM25). Not
            with `base_retriever`.
        callback_manager: LlamaIndex's.

    Raises:
        ArgumentError: a number outside its range, or `vector_store_query_mode` beside `base_retriever`;
            (from `retrieve`) an empty question.
        TenantError: the store is divided between tenants, and neither it nor the filters name one.
        UnsupportedFilter: (from `retrieve`) a filter that says nothing, or that Qdrant cannot express.
        EmbeddingError: (from `retrieve`) a question's embedding, given or made, is none of the store's dimension.
        TripleError: (from `retrieve`) a node of a base retriever has malformed `gear_triples`.
        Exception: (from `retrieve`) any exception of a base retriever or of Qdrant.

    """

    def __init__(
        self,
        vector_store: GeARVectorStore,
        base_retriever: BaseRetriever | None = None,
        *,
        similarity_top_k: int = 10,
        filters: MetadataFilters | None = None,
        weights: RankingWeights | None = None,
        pagerank: LocalPageRank | None = None,
        vector_store_query_mode: VectorStoreQueryMode | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        mode = VectorStoreQueryMode.HYBRID if vector_store_query_mode is None else vector_store_query_mode
        if mode not in _MODES:
            raise ArgumentError(f"vector_store_query_mode must be HYBRID, SPARSE or DEFAULT, got {format_value(mode)}")
        if base_retriever is not None and vector_store_query_mode is not None:
            raise ArgumentError("vector_store_query_mode is of the store's own lists: leave out base_retriever")
        backends = Backends(vector_store, base_retriever, mode=VectorStoreQueryMode(mode), filters=filters)
        self._retrieval = PoolRetrieval(backends, weights, pagerank, similarity_top_k=similarity_top_k)
        super().__init__(backends, Prompts({}), similarity_top_k, callback_manager)

    @property
    def weights(self) -> RankingWeights:
        """Weights of the ranking."""
        return self._retrieval.weights

    def gather_pool(self, query: QueryType) -> Pool:
        """Return the pool of a question, unranked, as `fit_ranking` learns from it."""
        bundle = query if isinstance(query, QueryBundle) else QueryBundle(query)
        return run(self._retrieval.pool_flow(bundle), self._backends.answer)[0]

    def _flow(self, query_bundle: QueryBundle) -> Flow[list[NodeWithScore]]:
        return self._retrieval.retrieve_flow(query_bundle)
