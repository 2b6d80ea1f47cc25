"""`T2RAGRetriever`: triplet-driven thinking behind LlamaIndex's retriever interface."""

from __future__ import annotations

from collections.abc import Mapping

from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.settings import Settings
from llama_index.core.vector_stores.types import MetadataFilters, VectorStoreQueryMode

from llama_index_gear.agents.loop import Budget
from llama_index_gear.agents.t2rag.policy import PROMPTS, SearchBy, T2RAGPolicy
from llama_index_gear.errors import ArgumentError, check_counts, format_value
from llama_index_gear.expansion.backends import Backends
from llama_index_gear.llm.prompting import Prompts
from llama_index_gear.retrievers.base import AgentRetriever
from llama_index_gear.store.vector_store import GeARVectorStore


class T2RAGRetriever(AgentRetriever):
    """T²RAG (§4): an LLM writes the question as triples with unknowns, and resolves them round by round.

    The LLM writes the question as clues: triples with `?name` in place of an unknown. A clue with one unknown is
    searched by its other words among the stored triples. The LLM fills in what these triples and their passages say. A
    value fills its unknown in all clues, which makes other clues searchable. The search ends when no unknown is open,
    or when a round brings nothing new.

    The trace shows, after each round, every clue, the open unknowns, the round of each, and the searches tried for it
    (`retrieve_with_trace`, `astream_events` and instrumentation as in `GeARRetriever`). `gear_chain` of a result is
    the stored triple that led to it. `gear_ranks` is its rank in each round, and among the passages that state each
    resolved fact.

    There is one LLM call at first, and one a round: at most 4 in 3 rounds. A reply that can't be read is asked for once
    more.

    Differences from the paper: A value counts only if a passage holds it (`require_grounding`). Values are bound to
    unknowns by name, so that the value from one clue fills the others, and a clue has one state only. A clue without
    an open unknown is resolved only when a passage or triple states it. If other clues filled its unknowns, it is
    searched in the next round; if it never had any, it is searched only where all clues are such. A clue without hits
    stays visible to the LLM, but is not searched again.

    Args:
        vector_store: the store that holds passages and triples, which need vectors (`embed_triples`).
        llm: decomposes and resolves. Default: LlamaIndex's `Settings.llm`.
        max_rounds: maximum number of rounds. Default 3 (T²RAG §5.2); 1 is the ablation "single round" (Table 2).
        similarity_top_k: passages to return. Default 10.
        filters: metadata filters that bind every search.
        budget: limits of a question's cost; see `GeARRetriever`. Default None: no limit.
        passages_per_round: distinct passages whose triples a round retrieves (k in T²RAG Alg. 2). Default 5.
        search_by: "triples" (default), or "passages": a clue is compared with passages by dense search instead ("chunk-
            based slot-filling", T²RAG App. B.5).
        require_grounding: take the LLM's value for an unknown only if one of the passages that it was shown (with the
            triples that led there) has all words of the value, and more than half of the words of the clue's other
            name. The trace lists the values that were left out. Default True. False takes every value, as the paper
            does.
        prompts: your own prompts for "decompose" or "resolve"; also reachable through `get_prompts` / `update_prompts`.
            `PROMPTS` in this package's `agents.t2rag.policy` shows their variables; a "resolve" prompt may leave out
            `known`.
        callback_manager: LlamaIndex's.

    Raises:
        ArgumentError: as for `GeARRetriever`.
        UnsupportedFilter: (from `retrieve`) a filter that says nothing, or that Qdrant cannot express.
        Exception: (from `retrieve`) any exception of the LLM's client in the first call, and of Qdrant in the first
            round. A later failure ends the search with the passages found so far, and the trace's `stopped` names it.

    """

    def __init__(
        self,
        vector_store: GeARVectorStore,
        *,
        llm: LLM | None = None,
        max_rounds: int = 3,
        similarity_top_k: int = 10,
        filters: MetadataFilters | None = None,
        budget: Budget | None = None,
        passages_per_round: int = 5,
        search_by: SearchBy = "triples",
        require_grounding: bool = True,
        prompts: Mapping[str, BasePromptTemplate] | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        check_counts(max_rounds=max_rounds, similarity_top_k=similarity_top_k, passages_per_round=passages_per_round)
        if search_by not in ("triples", "passages"):
            raise ArgumentError(f"search_by must be triples or passages; got {format_value(search_by)}")
        own = Prompts(PROMPTS, prompts, optional=("known",))
        backends = Backends(
            vector_store,
            mode=VectorStoreQueryMode.DEFAULT,
            base_top_k=passages_per_round,
            filters=filters,
            llm=Settings.llm if llm is None else llm,
        )
        policy = T2RAGPolicy(
            backends=backends,
            max_steps=max_rounds,
            passages=passages_per_round,
            search_by=search_by,
            require_grounding=require_grounding,
            top_k=similarity_top_k,
            prompts=own,
        )
        super().__init__(backends, policy, own, similarity_top_k, budget=budget, callback_manager=callback_manager)
