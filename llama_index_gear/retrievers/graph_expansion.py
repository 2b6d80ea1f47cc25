"""Any base retriever with graph expansion: `NaiveGERetriever` without a language model, `SyncGERetriever` with."""

from __future__ import annotations

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.settings import Settings
from llama_index.core.vector_stores.types import MetadataFilters, VectorStoreQueryMode
from llama_index_instrumentation import get_dispatcher

from llama_index_gear.errors import ArgumentError, check_counts
from llama_index_gear.expansion.backends import Backends
from llama_index_gear.expansion.beam_search import BeamSearch, Scorer
from llama_index_gear.expansion.external import ExternalGraphExpansion
from llama_index_gear.expansion.pagerank import LocalPageRank
from llama_index_gear.expansion.pipeline import GraphExpansion
from llama_index_gear.expansion.reader import READ_PROMPT
from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.store.vector_store import GeARVectorStore

dispatcher = get_dispatcher(__name__)


class NaiveGERetriever(BaseRetriever):
    """NaiveGE (GeAR §6.2): base retrieval, beam search from all triples of the base passages, fusion. No LLM.

    Each result says why it is there, in metadata that neither the LLM nor the embedding model sees: `gear_chain` (the
    triples that lead to it) and `gear_ranks` (its rank in the base list and in the graph's). Its score is the fused
    one, a sum of 1/(60 + rank): a cut-off made for cosines removes all. `GraphExpansionEvent` reports the walk to
    LlamaIndex's instrumentation.

    Args:
        vector_store: the store that holds passages and triples.
        base_retriever: any LlamaIndex retriever. Its nodes are matched to the store's by id; those that the store
            doesn't know stay in the list, with the score of their base rank alone. Default: the store itself, searched
            in `vector_store_query_mode`.
        graph: a knowledge graph to walk, in place of the passages' own triples; the search then starts from the graph's
            triples that are most similar to the question, and a triple leads to the passage that BM25 ranks first for
            it (Millions of GeAR-s Eq. 4). Default None.
        vector_store_query_mode: of the default base: HYBRID (default; BM25 and dense, fused), SPARSE, or DEFAULT.
        similarity_top_k: passages to return, and base passages of the default base (GeAR App. B.2 takes as many base
            passages as it returns in a single step, and 10 in several). Default 10.
        beam_size: beams kept. Default 10 (GeAR App. B.2).
        beam_length: triples a beam grows to. Default 2 (GeAR App. B.2).
        neighbors: candidates that a beam considers when it grows. Default 100 (GeAR App. B.2).
        gamma: γ of the diversity penalty. Default: twice `beam_size` (GeAR App. B.2).
        diversity: False for plain beam search (GeAR Table 4). Default True.
        scorer: "novelty" (default), "composed", "additive", "exact" (the paper's), or a callable; see `BeamSearch`.
        pagerank: a third list beside the base's and the beam search's: personalised PageRank from the same start, as
            HippoRAG does, but local; see `LocalPageRank`. Default None: without. Not with `graph`.
        rrf_k: constant of the fusions. Default 60 (Cormack et al. 2009).
        filters: metadata filters that bind every hop: base (the default one; a foreign base's results are checked
            against the store, and those it doesn't know are dropped), triples, and passages found through them.

    Raises:
        ArgumentError: a number outside its range, `pagerank` with `graph`; (from `retrieve`) an empty question.
        UnsupportedFilter: (from `retrieve`) a filter that says nothing, or that Qdrant cannot express.

    """

    def __init__(
        self,
        vector_store: GeARVectorStore,
        base_retriever: BaseRetriever | None = None,
        *,
        graph: ExternalTripleStore | None = None,
        vector_store_query_mode: VectorStoreQueryMode = VectorStoreQueryMode.HYBRID,
        similarity_top_k: int = 10,
        beam_size: int = 10,
        beam_length: int = 2,
        neighbors: int = 100,
        gamma: float | None = None,
        diversity: bool = True,
        scorer: Scorer = "novelty",
        pagerank: LocalPageRank | None = None,
        rrf_k: int = 60,
        filters: MetadataFilters | None = None,
        callback_manager: CallbackManager | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(callback_manager=callback_manager, verbose=verbose)
        if pagerank is not None and graph is not None:
            raise ArgumentError("pagerank walks the passages' own triples: leave it out, or leave out graph")
        kind = GraphExpansion if graph is None else ExternalGraphExpansion
        self._walk = kind(
            Backends(
                vector_store,
                base_retriever,
                mode=vector_store_query_mode,
                base_top_k=similarity_top_k,
                filters=filters,
                graph=graph,
            ),
            BeamSearch(beam_size, beam_length, neighbors, gamma, diversity, scorer),
            similarity_top_k=similarity_top_k,
            rrf_k=rrf_k,
            pagerank=pagerank,
        )

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._walk.retrieve(query_bundle)

    @dispatcher.span
    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await self._walk.aretrieve(query_bundle)


class SyncGERetriever(NaiveGERetriever):
    """SyncGE (GeAR §4): an LLM notes the facts in the base passages that matter; the beam search starts from those.

    One LLM call a question (a second if the reply can't be read). If the reader notes nothing usable, the search
    starts as NaiveGE's does, and `GraphExpansionEvent.fallback` says why. An LLM that fails raises.

    With `graph`, what is noted is linked to the graph's triples (Millions of GeAR-s Eq. 3), and links to triples about
    something else are dropped (`shared_name` in this package's `expansion.external`); nothing usable means no
    expansion.

    Args:
        vector_store: see `NaiveGERetriever`, as for all that isn't named here.
        base_retriever: see there.
        graph: see there.
        llm: the reader. Default: LlamaIndex's `Settings.llm`.
        read_prompt: the reader's prompt, with the variables `question` and `passages` (and, if you like, `problem`:
            what was wrong with the last reply). Also reachable as `read` through `get_prompts` / `update_prompts`.
        link_top_k: stored triples that each noted fact is linked to. Default 1 (GeAR Eq. 2).
        check_alignment: with `graph`: drop links to triples about something else. Default True.
        vector_store_query_mode: see there.
        similarity_top_k: see there.
        beam_size: see there.
        beam_length: see there.
        neighbors: see there.
        gamma: see there.
        diversity: see there.
        scorer: see there.
        pagerank: see there.
        rrf_k: see there.
        filters: see there.

    Raises:
        ArgumentError: a number outside its range, or a prompt without its variables.

    """

    def __init__(
        self,
        vector_store: GeARVectorStore,
        base_retriever: BaseRetriever | None = None,
        *,
        graph: ExternalTripleStore | None = None,
        llm: LLM | None = None,
        read_prompt: BasePromptTemplate = READ_PROMPT,
        link_top_k: int = 1,
        check_alignment: bool = True,
        vector_store_query_mode: VectorStoreQueryMode = VectorStoreQueryMode.HYBRID,
        similarity_top_k: int = 10,
        beam_size: int = 10,
        beam_length: int = 2,
        neighbors: int = 100,
        gamma: float | None = None,
        diversity: bool = True,
        scorer: Scorer = "novelty",
        pagerank: LocalPageRank | None = None,
        rrf_k: int = 60,
        filters: MetadataFilters | None = None,
        callback_manager: CallbackManager | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            vector_store,
            base_retriever,
            graph=graph,
            vector_store_query_mode=vector_store_query_mode,
            similarity_top_k=similarity_top_k,
            beam_size=beam_size,
            beam_length=beam_length,
            neighbors=neighbors,
            gamma=gamma,
            diversity=diversity,
            scorer=scorer,
            pagerank=pagerank,
            rrf_k=rrf_k,
            filters=filters,
            callback_manager=callback_manager,
            verbose=verbose,
        )
        check_counts(link_top_k=link_top_k)
        self._walk.sources.llm = Settings.llm if llm is None else llm
        self._walk.link_top_k = link_top_k
        if isinstance(self._walk, ExternalGraphExpansion):
            self._walk.check_alignment = check_alignment
        self._update_prompts({"read": read_prompt})

    def _get_prompts(self) -> PromptDictType:
        return {"read": self._walk.read_prompt}

    def _update_prompts(self, prompts_dict: PromptDictType) -> None:
        if "read" in prompts_dict:
            self._walk.read_prompt = prompts_dict["read"]
