"""`ExternalGeARRetriever`: the agent over an external graph behind LlamaIndex's retriever interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.settings import Settings
from llama_index.core.vector_stores.types import MetadataFilters, VectorStoreQueryMode

from llama_index_gear.agents.gear.external import DECIDE_PROMPT, RANK_PROMPT, ExternalPolicy
from llama_index_gear.agents.loop import Budget
from llama_index_gear.errors import check_counts
from llama_index_gear.expansion.backends import Backends
from llama_index_gear.expansion.beam_search import BeamSearch, Scorer
from llama_index_gear.expansion.external import ExternalGraphExpansion
from llama_index_gear.expansion.reader import READ_PROMPT
from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.retrievers.base import AgentRetriever
from llama_index_gear.store.vector_store import GeARVectorStore


class ExternalGeARRetriever(AgentRetriever):
    """GeAR over a knowledge graph that exists already (Millions of GeAR-s): no triple is extracted from the passages.

    What the reader notes in the base passages is linked to the graph's triples; the beam search walks the graph; each
    triple that it walks over leads to the passage that BM25 ranks first for it. One call then decides whether the facts
    suffice and writes the next question, and at the end one call ranks the remembered passages and leaves out those
    that don't help. If it finds that none does, nothing is returned.

    Results carry `gear_chain` (triples of the graph) and `gear_ranks`; `retrieve_with_trace`, `astream_events`: as for
    `GeARRetriever`. Language model calls, at most, if all replies can be read: 2 a step (4 in all by default).

    Args:
        vector_store: the store that holds the passages; its own triples, if it has any, are not used.
        graph: the triples. Any number of stores may share it.
        base_retriever: any LlamaIndex retriever; see `NaiveGERetriever`. Default: the store itself.
        llm: reads, decides and ranks. Default: LlamaIndex's `Settings.llm`.
        max_steps: steps at most. Default 2 (Millions of GeAR-s §5).
        expand_from_step: the first step with graph expansion. Default 2 (§5: simple questions gain little from it); 1
            expands from the first.
        check_alignment: drop links to triples that are about something else than the noted fact; the trace shows them.
            Default True. `shared_name` in this package's `expansion.external` says what that means.
        rank_top_k: remembered passages that the last call is shown. Default 20; None: no such call.
        similarity_top_k: passages to return. Default 10.
        base_top_k: base passages of a step, of the default base. Default 10.
        link_top_k: triples that each noted fact is linked to. Default 1 (Eq. 3).
        gist_size: facts that the gist memory holds; the first ones stay. Default 100.
        max_llm_calls: see `Budget`, as for `max_tokens` and `timeout`. When a limit is reached, all passages found so
            far are ranked by fusion, unfiltered. Default None: no limit.
        max_tokens: see there.
        timeout: seconds; see there.
        vector_store_query_mode: of the default base: HYBRID (default), SPARSE, or DEFAULT.
        beam_size: see `NaiveGERetriever`. Default 10.
        beam_length: see there. Default 2.
        neighbors: see there. Default 100. A sparse graph embeds so many a beam when it meets them first.
        gamma: see there. Default: twice `beam_size`.
        diversity: see there. Default True.
        scorer: see there. Default "novelty".
        rrf_k: constant of all fusions. Default 60.
        filters: bind all passages; the graph has none.
        prompts: your own for some of "read", "decide", "rank"; also reachable through `get_prompts` /
            `update_prompts`. `expansion.reader` and `agents.gear.external` in this package show their variables.

    Raises:
        ArgumentError: a number outside its range, a prompt without its variables, no `ExternalTripleStore`; (from
            `retrieve`) an empty question.
        StoreError: (from `retrieve`) nothing was loaded into the graph.
        Exception: (from `retrieve`) as for `GeARRetriever`.

    """

    prompt_variables: ClassVar[Mapping[str, set[str]]] = {
        "read": {"question", "passages"},
        "decide": {"question", "gist", "queries"},
        "rank": {"question", "gist", "passages"},
    }

    def __init__(
        self,
        vector_store: GeARVectorStore,
        graph: ExternalTripleStore,
        base_retriever: BaseRetriever | None = None,
        *,
        llm: LLM | None = None,
        max_steps: int = 2,
        expand_from_step: int = 2,
        check_alignment: bool = True,
        rank_top_k: int | None = 20,
        similarity_top_k: int = 10,
        base_top_k: int = 10,
        link_top_k: int = 1,
        gist_size: int = 100,
        max_llm_calls: int | None = None,
        max_tokens: int | None = None,
        timeout: float | None = None,
        vector_store_query_mode: VectorStoreQueryMode = VectorStoreQueryMode.HYBRID,
        beam_size: int = 10,
        beam_length: int = 2,
        neighbors: int = 100,
        gamma: float | None = None,
        diversity: bool = True,
        scorer: Scorer = "novelty",
        rrf_k: int = 60,
        filters: MetadataFilters | None = None,
        prompts: Mapping[str, BasePromptTemplate] | None = None,
        callback_manager: CallbackManager | None = None,
        verbose: bool = False,
    ) -> None:
        check_counts(
            max_steps=max_steps,
            expand_from_step=expand_from_step,
            similarity_top_k=similarity_top_k,
            base_top_k=base_top_k,
            gist_size=gist_size,
        )
        if rank_top_k is not None:
            check_counts(rank_top_k=rank_top_k)
        budget = Budget(max_llm_calls, max_tokens, timeout)
        sources = Backends(
            vector_store,
            base_retriever,
            mode=vector_store_query_mode,
            base_top_k=base_top_k,
            filters=filters,
            llm=Settings.llm if llm is None else llm,
            graph=graph,
        )
        self._walk = ExternalGraphExpansion(
            sources,
            BeamSearch(beam_size, beam_length, neighbors, gamma, diversity, scorer),
            check_alignment=check_alignment,
            similarity_top_k=base_top_k,
            rrf_k=rrf_k,
            link_top_k=link_top_k,
        )
        own: dict[str, BasePromptTemplate] = {"read": READ_PROMPT, "decide": DECIDE_PROMPT, "rank": RANK_PROMPT}
        policy = ExternalPolicy(self._walk, max_steps, expand_from_step, gist_size, rank_top_k, similarity_top_k, own)
        super().__init__(sources, policy, budget, own, callback_manager=callback_manager, verbose=verbose)
        self._update_prompts(dict(prompts or {}))

    def _update_prompts(self, prompts_dict: PromptDictType) -> None:
        super()._update_prompts(prompts_dict)
        self._walk.read_prompt = self._prompts["read"]
