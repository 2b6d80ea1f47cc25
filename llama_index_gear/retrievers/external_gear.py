"""`ExternalGeARRetriever`: GeAR's agent over an external graph, behind LlamaIndex's retriever interface."""

from __future__ import annotations

from collections.abc import Mapping

from llama_index.core.callbacks import CallbackManager
from llama_index.core.prompts import BasePromptTemplate

from llama_index_gear.agents.gear.external_policy import PROMPTS, ExternalPolicy
from llama_index_gear.agents.loop import Budget
from llama_index_gear.errors import ArgumentError, check_counts, check_kind
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

    _policy: ExternalPolicy

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
        own = Prompts(PROMPTS)
        own.update(expansion.get_prompts())
        own.update({} if prompts is None else prompts)
        walk = expansion._expansion.with_prompts(own)
        if not isinstance(walk, ExternalGraphExpansion):
            raise ArgumentError("expansion has no graph: write SyncGERetriever(store, graph=graph)")
        policy = ExternalPolicy(
            expansion=walk, max_steps=max_steps, rank_top_k=rank_top_k, top_k=similarity_top_k, prompts=own
        )
        self._expansion = expansion
        super().__init__(
            expansion._backends, policy, own, similarity_top_k, budget=budget, callback_manager=callback_manager
        )

    @property
    def expansion(self) -> SyncGERetriever:
        """A step's retrieval."""
        return self._expansion

    @property
    def rank_top_k(self) -> int | None:
        """Remembered passages that the last call ranks; None: no such call."""
        return self._policy.rank_top_k
