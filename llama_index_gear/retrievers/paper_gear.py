"""`PaperGeARRetriever`: GeAR's agent as its paper has it, behind LlamaIndex's retriever interface."""

from __future__ import annotations

from collections.abc import Mapping

from llama_index.core.callbacks import CallbackManager
from llama_index.core.prompts import BasePromptTemplate

from llama_index_gear.agents.gear.external_policy import PROMPTS as EXTERNAL_PROMPTS
from llama_index_gear.agents.gear.external_policy import ExternalPolicy
from llama_index_gear.agents.gear.paper_policy import PROMPTS, PROMPTS_OF_CALLS, Calls, GeARPolicy
from llama_index_gear.agents.loop import Budget
from llama_index_gear.errors import ArgumentError, check_counts, check_kind, format_value
from llama_index_gear.expansion.alignment import ExternalGraphExpansion
from llama_index_gear.llm.prompting import Prompts
from llama_index_gear.retrievers.base import AgentRetriever
from llama_index_gear.retrievers.graph_expansion import SyncGERetriever


class ExternalGeARRetriever(AgentRetriever):
    """GeAR over an existing knowledge graph (Millions of GeAR-s): no triple is extracted from the passages.

    `ExternalGeARRetriever(SyncGERetriever(store, llm=llm, graph=graph))`. The facts that the reader notes in the base
    passages are linked to the graph's triples. The beam search walks the graph, and each triple of a beam leads to the
    passage that BM25 ranks first for it. One LLM call then decides whether the facts suffice, and writes the next
    question. At the end one call ranks the remembered passages and drops those that don't help. If it finds that none
    helps, nothing is returned.

    Results carry `gear_chain` (triples of the graph) and `gear_ranks`. `retrieve_with_trace` and `astream_events` work
    as in `GeARRetriever`. If all replies can be read, there are at most 2 LLM calls a step (4 in all by default).

    Args:
        expansion: a step's retrieval, with a `graph`. It brings the store, whose own triples are not used, the base
            retriever, the filters (they don't apply to the graph), the LLM of all calls, and its reader's prompt. Its
            `similarity_top_k` is the number of base passages of a step. In a sparse graph its beam search embeds up to
            `neighbors` triples a beam, each when it is first met.
        max_steps: maximum number of steps. Default 2 (Millions of GeAR-s §5). The first one searches without the graph,
            if it isn't the only one (§5: simple questions gain little from it).
        similarity_top_k: passages to return. Default 10.
        rank_top_k: remembered passages that the last call ranks. Default 20; None: no such call.
        budget: limits of a question's cost. When a limit is reached, all passages found so far are ranked by fusion,
            and the last call, which drops passages, is left out. Default None: no limit.
        prompts: your own prompts for some of "read", "decide", "rank"; also reachable through `get_prompts` /
            `update_prompts`. `PROMPTS` in this package's `agents.gear.external_policy` shows their variables.
        callback_manager: LlamaIndex's.

    Raises:
        ArgumentError: as for `GeARRetriever`; or `expansion` is no `SyncGERetriever` with a graph.
        StoreError: (from `retrieve`) nothing was loaded into the graph.
        Exception: (from `retrieve`) as for `GeARRetriever`.

    """

    def __init__(
        self,
        expansion: SyncGERetriever,
        *,
        max_steps: int = 2,
        similarity_top_k: int = 10,
        rank_top_k: int | None = 20,
        budget: Budget | None = None,
        prompts: Mapping[str, BasePromptTemplate] | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        check_kind(SyncGERetriever, hint="write SyncGERetriever(store, graph=graph)", expansion=expansion)
        check_counts(max_steps=max_steps, similarity_top_k=similarity_top_k)
        if rank_top_k is not None:
            check_counts(rank_top_k=rank_top_k)
        own = Prompts(EXTERNAL_PROMPTS)
        own.update(expansion.get_prompts())
        own.update({} if prompts is None else prompts)
        walk = expansion._expansion.with_prompts(own)
        if not isinstance(walk, ExternalGraphExpansion):
            raise ArgumentError("expansion has no graph: write SyncGERetriever(store, graph=graph)")
        policy = ExternalPolicy(
            expansion=walk, max_steps=max_steps, rank_top_k=rank_top_k, top_k=similarity_top_k, prompts=own
        )
        super().__init__(
            expansion._backends, policy, own, similarity_top_k, budget=budget, callback_manager=callback_manager
        )


class PaperGeARRetriever(AgentRetriever):
    """GeAR (§5): SyncGE, a gist memory, and an agent that searches again until the gist answers the question.

    `PaperGeARRetriever(SyncGERetriever(store, llm=llm))`. `GeARRetriever` is this package's own form, with fewer calls.
    Results, traces and events are as there.

    Maximum number of LLM calls, if all replies can be read (a reply that can't be read is asked for once more):

    ============  ===========================================================  ======================
    `calls`       a step                                                       a question, 4 steps
    ============  ===========================================================  ======================
    "separate"    read, gist, reason, and rewrite but in the last step         15
    "merged"      read, gist and reason in one, rewrite but in the last step   11
    "single"      read; its facts are the gist; there is no second step        1
    ============  ===========================================================  ======================

    Args:
        expansion: a step's retrieval. It brings the store, the base retriever, the filters, the graph, the LLM of all
            calls, and its reader's prompt. Its `similarity_top_k` is the number of base passages of a step.
        calls: "separate" (default; GeAR §5), "merged" or "single".
        max_steps: maximum number of steps. Default 4 (GeAR App. B.1; 2 for questions of two hops).
        similarity_top_k: passages to return. Default 10.
        passage_link_top_k: passages, and triples, that each fact of the gist is linked to (GeAR Eq. 8; k is not given
            there). Default 3: on MuSiQue, in one step, R@5/10/15 is 79.9/86.2/87.5, with 10 it is 70.2/84.3/89.5.
        budget: limits of a question's cost; see `GeARRetriever`. Default None: no limit.
        prompts: your own prompts for some of those that `calls` uses: "read", "gist", "reason" and "rewrite"
            (separate), "read", "merged" and "rewrite" (merged), "read" (single). Also reachable through `get_prompts` /
            `update_prompts`. `PROMPTS` in this package's `agents.gear.paper_policy` shows their variables.
        callback_manager: LlamaIndex's.

    Raises:
        ArgumentError: as for `GeARRetriever`; or `expansion` is no `SyncGERetriever`.
        Exception: (from `retrieve`) as for `GeARRetriever`.

    """

    def __init__(
        self,
        expansion: SyncGERetriever,
        *,
        calls: Calls = "separate",
        max_steps: int = 4,
        similarity_top_k: int = 10,
        passage_link_top_k: int = 3,
        budget: Budget | None = None,
        prompts: Mapping[str, BasePromptTemplate] | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        check_kind(SyncGERetriever, hint="write SyncGERetriever(store, llm=llm)", expansion=expansion)
        check_counts(max_steps=max_steps, similarity_top_k=similarity_top_k, passage_link_top_k=passage_link_top_k)
        if calls not in tuple(PROMPTS_OF_CALLS):
            raise ArgumentError(f"calls must be separate, merged or single; got {format_value(calls)}")
        own = Prompts({name: PROMPTS[name] for name in PROMPTS_OF_CALLS[calls]}, where=f"with calls={calls!r}")
        own.update(expansion.get_prompts())
        own.update({} if prompts is None else prompts)
        policy = GeARPolicy(
            expansion=expansion._expansion.with_prompts(own),
            calls=calls,
            max_steps=max_steps,
            top_k=similarity_top_k,
            passage_link_top_k=passage_link_top_k,
            prompts=own,
        )
        super().__init__(
            expansion._backends, policy, own, similarity_top_k, budget=budget, callback_manager=callback_manager
        )
