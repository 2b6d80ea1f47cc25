"""`ExternalGeARRetriever`: GeAR's agent over an external graph, behind LlamaIndex's retriever interface."""

from __future__ import annotations

from collections.abc import Mapping

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.settings import Settings
from llama_index.core.vector_stores.types import MetadataFilters, VectorStoreQueryMode

from llama_index_gear.agents.gear.external_policy import PROMPTS, ExternalPolicy
from llama_index_gear.agents.loop import Budget
from llama_index_gear.errors import check_counts, check_kind
from llama_index_gear.expansion.alignment import ExternalGraphExpansion
from llama_index_gear.expansion.backends import Backends
from llama_index_gear.expansion.beam_search import BeamSearch
from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.llm.prompting import Prompts
from llama_index_gear.retrievers.base import GistRetriever
from llama_index_gear.store.vector_store import GeARVectorStore


class ExternalGeARRetriever(GistRetriever):
    """GeAR over an existing knowledge graph (Millions of GeAR-s): no triple is extracted from the passages.

    The facts that the reader notes in the base passages are linked to the graph's triples. The beam search walks the
    graph, and each triple of a beam leads to the passage that BM25 ranks first for it. One LLM call then decides
    whether the facts suffice, and writes the next question. At the end one call ranks the remembered passages and drops
    those that don't help. If it finds that none helps, nothing is returned.

    Results carry `gear_chain` (triples of the graph) and `gear_ranks`. `retrieve_with_trace` and `astream_events` work
    as in `GeARRetriever`. If all replies can be read, there are at most 2 LLM calls a step (4 in all by default).

    Args:
        vector_store: the store that holds the passages; its own triples, if it has any, are not used.
        graph: the knowledge graph. Several stores may share it.
        base_retriever: any LlamaIndex retriever; see `NaiveGERetriever`. Default: the store itself.
        llm: reads, decides and ranks. Default: LlamaIndex's `Settings.llm`.
        max_steps: maximum number of steps. Default 2 (Millions of GeAR-s §5).
        expand_from_step: the first step with graph expansion, `max_steps` at most. Default 2 (§5: simple questions gain
            little from it), or 1 where there is one step.
        similarity_top_k: passages to return. Default 10.
        filters: metadata filters that bind all passages; they don't apply to the graph.
        budget: limits of a question's cost. When a limit is reached, all passages found so far are ranked by fusion,
            and the last call, which drops passages, is left out. Default None: no limit.
        beam_search: settings of the beam search. Default `BeamSearch()`. A sparse graph embeds up to `neighbors`
            triples a beam, each when it is first met.
        base_top_k: base passages of a step, of the store's own search; not with `base_retriever`. Default 10.
        link_top_k: triples that each noted fact is linked to. Default 1 (Eq. 3).
        check_alignment: drop links to triples that are about something else than the noted fact (see `shared_name` in
            this package's `expansion.alignment`); the trace shows them. Default True.
        rank_top_k: remembered passages that the last call ranks. Default 20; None: no such call.
        gist_size: facts that the gist memory holds; the first ones stay. Default 100.
        prompts: your own prompts for some of "read", "decide", "rank"; also reachable through `get_prompts` /
            `update_prompts`. `PROMPTS` in this package's `agents.gear.external_policy` shows their variables.
        vector_store_query_mode: see `NaiveGERetriever`.
        rrf_k: constant of all fusions. Default 60.
        callback_manager: LlamaIndex's.
        verbose: LlamaIndex's.

    Raises:
        ArgumentError: as for `GeARRetriever`.
        StoreError: (from `retrieve`) nothing was loaded into the graph.
        Exception: (from `retrieve`) as for `GeARRetriever`.

    """

    _policy: ExternalPolicy

    def __init__(
        self,
        vector_store: GeARVectorStore,
        graph: ExternalTripleStore,
        base_retriever: BaseRetriever | None = None,
        *,
        llm: LLM | None = None,
        max_steps: int = 2,
        expand_from_step: int | None = None,
        similarity_top_k: int = 10,
        filters: MetadataFilters | None = None,
        budget: Budget | None = None,
        beam_search: BeamSearch | None = None,
        base_top_k: int | None = None,
        link_top_k: int = 1,
        check_alignment: bool = True,
        rank_top_k: int | None = 20,
        gist_size: int = 100,
        prompts: Mapping[str, BasePromptTemplate] | None = None,
        vector_store_query_mode: VectorStoreQueryMode | None = None,
        rrf_k: int = 60,
        callback_manager: CallbackManager | None = None,
        verbose: bool = False,
    ) -> None:
        check_counts(max_steps=max_steps, similarity_top_k=similarity_top_k, gist_size=gist_size)
        if expand_from_step is not None:
            check_counts(most=max_steps, expand_from_step=expand_from_step)
        if rank_top_k is not None:
            check_counts(rank_top_k=rank_top_k)
        check_kind(ExternalTripleStore, hint="write ExternalTripleStore.from_path(folder)", graph=graph)
        backends = Backends(
            vector_store,
            base_retriever,
            mode=vector_store_query_mode,
            base_top_k=base_top_k,
            filters=filters,
            llm=Settings.llm if llm is None else llm,
            graph=graph,
        )
        own = Prompts(PROMPTS, prompts)
        self._expansion = ExternalGraphExpansion(
            backends,
            beam_search,
            similarity_top_k=backends.base_top_k,
            link_top_k=link_top_k,
            check_alignment=check_alignment,
            prompts=own,
            rrf_k=rrf_k,
        )
        policy = ExternalPolicy(
            expansion=self._expansion,
            max_steps=max_steps,
            expand_from_step=min(2, max_steps) if expand_from_step is None else expand_from_step,
            gist_size=gist_size,
            rank_top_k=rank_top_k,
            top_k=similarity_top_k,
            prompts=own,
        )
        super().__init__(
            backends, policy, own, similarity_top_k, budget=budget, callback_manager=callback_manager, verbose=verbose
        )

    @property
    def expand_from_step(self) -> int:
        """The first step with graph expansion."""
        return self._policy.expand_from_step

    @property
    def rank_top_k(self) -> int | None:
        """Remembered passages that the last call ranks; None: no such call."""
        return self._policy.rank_top_k
