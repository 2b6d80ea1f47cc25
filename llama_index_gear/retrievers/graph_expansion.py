"""Base retrieval with one graph expansion: `NaiveGERetriever` without an LLM, `SyncGERetriever` with one."""

from __future__ import annotations

from collections.abc import Mapping

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.settings import Settings
from llama_index.core.vector_stores.types import MetadataFilters

from llama_index_gear.errors import check_counts
from llama_index_gear.expansion.alignment import build_expansion
from llama_index_gear.expansion.backends import Backends
from llama_index_gear.expansion.beam_search import BeamSearch
from llama_index_gear.expansion.pagerank import LocalPageRank
from llama_index_gear.expansion.pipeline import GraphExpansion
from llama_index_gear.expansion.reader import READ_PROMPT
from llama_index_gear.flow import Flow
from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.llm.prompting import Prompts
from llama_index_gear.retrievers.base import StoreRetriever
from llama_index_gear.store.vector_store import GeARVectorStore


class ExpansionRetriever(StoreRetriever):
    """Base retrieval and one graph expansion, behind LlamaIndex's retriever interface.

    Args:
        expansion: the graph expansion.
        callback_manager: LlamaIndex's callback manager.

    """

    def __init__(self, expansion: GraphExpansion, callback_manager: CallbackManager | None) -> None:
        super().__init__(expansion.backends, expansion.prompts, expansion.similarity_top_k, callback_manager)
        self._expansion = expansion

    def _flow(self, query_bundle: QueryBundle) -> Flow[list[NodeWithScore]]:
        return self._expansion.retrieve_flow(query_bundle)


class NaiveGERetriever(ExpansionRetriever):
    """NaiveGE (GeAR §6.2): base retrieval, beam search from all triples of the base passages, fusion. No LLM.

    Each result says why it was found, in metadata that neither the LLM nor the embedding model sees: `gear_chain` (the
    triples that lead to it) and `gear_ranks` (its rank in the base list and in the graph's list). Its score is the
    fused score, a sum of 1/(60 + rank); a similarity cut-off made for cosines would remove every result.

    Args:
        vector_store: the store that holds passages and triples, which need vectors (`embed_triples`) unless `graph` is
            given.
        base_retriever: any LlamaIndex retriever. Its nodes are matched to the store's by id. Nodes that the store
            doesn't know stay in the list; their score comes from their base rank alone. Default: the store itself,
            BM25 and dense, fused.
        graph: a knowledge graph to walk, in place of the passages' own triples. The search then starts from the
            graph's triples that are most similar to the question, and a triple leads to the passage that BM25 ranks
            first for it (Millions of GeAR-s Eq. 4). Default None.
        similarity_top_k: passages to return, and base passages of the store's own search (GeAR App. B.2 takes as many
            base passages as it returns in a single step, and 10 in several). Default 10.
        filters: metadata filters that bind every hop: base passages, triples, and the passages found through them.
            The results of a foreign base retriever are checked against the store; nodes that it doesn't know are
            dropped.
        beam_search: settings of the beam search. Default `BeamSearch()`.
        pagerank: settings of a personalized PageRank from the same seeds (HippoRAG's, but local). It gives a third
            list beside the base's and the beam search's. Not with `graph`. Default None: no such list.
        callback_manager: LlamaIndex's.

    Raises:
        ArgumentError: a number outside its range, or `pagerank` beside `graph`; (from `retrieve`) an empty question.
        UnsupportedFilter: (from `retrieve`) a filter that says nothing, or that Qdrant cannot express.

    """

    def __init__(
        self,
        vector_store: GeARVectorStore,
        base_retriever: BaseRetriever | None = None,
        *,
        graph: ExternalTripleStore | None = None,
        similarity_top_k: int = 10,
        filters: MetadataFilters | None = None,
        beam_search: BeamSearch | None = None,
        pagerank: LocalPageRank | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        check_counts(similarity_top_k=similarity_top_k)
        backends = Backends(
            vector_store,
            base_retriever,
            base_top_k=similarity_top_k,
            filters=filters,
            graph=graph,
        )
        expansion = build_expansion(
            backends,
            beam_search,
            similarity_top_k=similarity_top_k,
            pagerank=pagerank,
            prompts=Prompts({}),  # nobody reads
        )
        super().__init__(expansion, callback_manager)


class SyncGERetriever(ExpansionRetriever):
    """SyncGE (GeAR §4): an LLM notes the relevant facts in the base passages, and the beam search starts from them.

    There is one LLM call a question, and a second one if the reply can't be read; a warning is logged if that can't be
    read either. If the reader notes nothing usable, the search starts as in NaiveGE. An exception of the LLM
    is raised.
    Results carry the same metadata as NaiveGE's.

    With `graph`, the noted facts are linked to the graph's triples (Millions of GeAR-s Eq. 3). If nothing usable is
    noted, the base passages are returned without expansion.

    Args:
        vector_store: see `NaiveGERetriever`.
        base_retriever: see `NaiveGERetriever`.
        llm: the reader. Default: LlamaIndex's `Settings.llm`.
        graph: see `NaiveGERetriever`.
        similarity_top_k: see `NaiveGERetriever`.
        filters: see `NaiveGERetriever`.
        beam_search: see `NaiveGERetriever`.
        pagerank: see `NaiveGERetriever`.
        link_top_k: stored triples that each noted fact is linked to. Default 1 (GeAR Eq. 2).
        check_alignment: drop links to triples of the graph that are about something else than the noted fact
            (`shared_name` in this package's `expansion.alignment`). Only with `graph`. Default True there.
        prompts: your own prompt, `{"read": …}`, with the variables `question` and `passages`, and optionally `problem`
            (what was wrong with the last reply). Also reachable through `get_prompts` / `update_prompts`.
        callback_manager: LlamaIndex's.

    Raises:
        ArgumentError: see `NaiveGERetriever`; or a prompt without its variables.
        UnsupportedFilter: see `NaiveGERetriever`.
        Exception: (from `retrieve`) any exception of the LLM's client.

    """

    def __init__(
        self,
        vector_store: GeARVectorStore,
        base_retriever: BaseRetriever | None = None,
        *,
        llm: LLM | None = None,
        graph: ExternalTripleStore | None = None,
        similarity_top_k: int = 10,
        filters: MetadataFilters | None = None,
        beam_search: BeamSearch | None = None,
        pagerank: LocalPageRank | None = None,
        link_top_k: int = 1,
        check_alignment: bool | None = None,
        prompts: Mapping[str, BasePromptTemplate] | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        check_counts(similarity_top_k=similarity_top_k)
        backends = Backends(
            vector_store,
            base_retriever,
            base_top_k=similarity_top_k,
            filters=filters,
            llm=Settings.llm if llm is None else llm,
            graph=graph,
        )
        expansion = build_expansion(
            backends,
            beam_search,
            similarity_top_k=similarity_top_k,
            pagerank=pagerank,
            link_top_k=link_top_k,
            check_alignment=check_alignment,
            prompts=Prompts({"read": READ_PROMPT}, prompts),
        )
        super().__init__(expansion, callback_manager)
