"""`GeARRetriever`: the agent behind LlamaIndex's retriever interface."""

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

from llama_index_gear.agents.gear.policy import Calls, GeARPolicy
from llama_index_gear.agents.gear.reasoning import GIST_PROMPT, READ_AND_REASON_PROMPT, REASON_PROMPT, REWRITE_PROMPT
from llama_index_gear.agents.loop import Budget
from llama_index_gear.errors import ArgumentError, check_counts
from llama_index_gear.expansion.backends import Backends
from llama_index_gear.expansion.beam_search import BeamSearch, Scorer
from llama_index_gear.expansion.pagerank import LocalPageRank
from llama_index_gear.expansion.pipeline import GraphExpansion
from llama_index_gear.expansion.reader import READ_PROMPT
from llama_index_gear.retrievers.base import AgentRetriever
from llama_index_gear.store.vector_store import GeARVectorStore


class GeARRetriever(AgentRetriever):
    """GeAR (§5): SyncGE, a gist memory, and an agent that searches again until the gist answers the question.

    Each result says why it is there, in metadata that neither the LLM nor the embedding model sees: `gear_chain` (the
    triples that lead to it) and `gear_ranks` (its rank in each list: "step 1", "fact 2", …). `retrieve_with_trace`
    returns the whole record besides; `astream_events` and LlamaIndex's instrumentation (`GeAREvent`) give it piece by
    piece while it comes about.

    Language model calls, at most, if all replies can be read (one that can't is asked for once more):

    ============  ===========================================================  ======================
    `calls`       a step                                                       a question, 4 steps
    ============  ===========================================================  ======================
    "separate"    read, gist, reason, and rewrite but in the last step         15
    "merged"      read, gist and reason in one, rewrite but in the last step   11
    "single"      read; its facts are the gist; there is no second step        1
    ============  ===========================================================  ======================

    Args:
        vector_store: the store that holds passages and triples.
        base_retriever: any LlamaIndex retriever; see `NaiveGERetriever`. Default: the store itself.
        llm: reads, reasons and rewrites. Default: LlamaIndex's `Settings.llm`.
        max_steps: steps at most. Default 4 (GeAR App. B.1; 2 for questions of two hops).
        calls: "separate" (default; GeAR §5), "merged", or "single".
        similarity_top_k: passages to return. Default 10.
        base_top_k: base passages of a step, of the default base. Default 10 (GeAR App. B.2).
        link_top_k: stored triples that each noted fact is linked to. Default 1 (GeAR Eq. 2).
        passage_link_top_k: passages, and triples, that each fact of the gist is linked to (GeAR Eq. 8; k is not given
            there). Default 3: on MuSiQue, in one step, R@5/10/15 is 79.9/86.2/87.5, with 10 it is 70.2/84.3/89.5.
        gist_size: facts that the gist memory holds; the first ones stay. Default 100.
        max_llm_calls: see `Budget`, as for `max_tokens` and `timeout`. When a limit is reached, the best ranking so far
            is returned, and the trace says which limit. Default None: no limit.
        max_tokens: see there.
        timeout: seconds; see there.
        vector_store_query_mode: of the default base: HYBRID (default), SPARSE, or DEFAULT.
        beam_size: see `NaiveGERetriever`. Default 10 (GeAR App. B.2).
        beam_length: see there. Default 2 (GeAR App. B.2).
        neighbors: see there. Default 100 (GeAR App. B.2).
        gamma: see there. Default: twice `beam_size` (GeAR App. B.2).
        diversity: see there. Default True.
        scorer: see there. Default "novelty".
        pagerank: see there. Default None.
        rrf_k: constant of all fusions. Default 60.
        filters: bind every hop; see there.
        prompts: your own for some of "read", "gist", "reason", "merged", "rewrite"; also reachable through
            `get_prompts` / `update_prompts`. `expansion.reader` and `agents.gear.reasoning` in this package show their
            variables.

    Raises:
        ArgumentError: a number outside its range, a prompt without its variables; (from `retrieve`) an empty question.
        UnsupportedFilter: (from `retrieve`) a filter that says nothing, or that Qdrant cannot express.
        Exception: (from `retrieve`) what the language model's client raises, if the first call fails, and what a base
            retriever or Qdrant raises in the first step. A later failure ends the search with what was found, and the
            trace's `stopped` names it.

    """

    prompt_variables: ClassVar[Mapping[str, set[str]]] = {
        "read": {"question", "passages"},
        "gist": {"question", "passages", "gist"},
        "reason": {"question", "gist"},
        "merged": {"question", "passages", "gist"},
        "rewrite": {"question", "gist", "reason", "queries"},
    }

    def __init__(
        self,
        vector_store: GeARVectorStore,
        base_retriever: BaseRetriever | None = None,
        *,
        llm: LLM | None = None,
        max_steps: int = 4,
        calls: Calls = "separate",
        similarity_top_k: int = 10,
        base_top_k: int = 10,
        link_top_k: int = 1,
        passage_link_top_k: int = 3,
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
        pagerank: LocalPageRank | None = None,
        rrf_k: int = 60,
        filters: MetadataFilters | None = None,
        prompts: Mapping[str, BasePromptTemplate] | None = None,
        callback_manager: CallbackManager | None = None,
        verbose: bool = False,
    ) -> None:
        check_counts(
            max_steps=max_steps,
            similarity_top_k=similarity_top_k,
            base_top_k=base_top_k,
            passage_link_top_k=passage_link_top_k,
            gist_size=gist_size,
        )
        if calls not in ("separate", "merged", "single"):
            raise ArgumentError(f"calls must be separate, merged or single; got {calls!r}")
        budget = Budget(max_llm_calls, max_tokens, timeout)
        sources = Backends(
            vector_store,
            base_retriever,
            mode=vector_store_query_mode,
            base_top_k=base_top_k,
            filters=filters,
            llm=Settings.llm if llm is None else llm,
        )
        self._walk = GraphExpansion(
            sources,
            BeamSearch(beam_size, beam_length, neighbors, gamma, diversity, scorer),
            similarity_top_k=base_top_k,
            rrf_k=rrf_k,
            link_top_k=link_top_k,
            pagerank=pagerank,
        )
        own: dict[str, BasePromptTemplate] = {
            "read": READ_PROMPT,
            "gist": GIST_PROMPT,
            "reason": REASON_PROMPT,
            "merged": READ_AND_REASON_PROMPT,
            "rewrite": REWRITE_PROMPT,
        }
        policy = GeARPolicy(self._walk, max_steps, calls, gist_size, passage_link_top_k, similarity_top_k, own)
        super().__init__(sources, policy, budget, own, callback_manager=callback_manager, verbose=verbose)
        self._update_prompts(dict(prompts or {}))

    def _update_prompts(self, prompts_dict: PromptDictType) -> None:
        super()._update_prompts(prompts_dict)
        self._walk.read_prompt = self._prompts["read"]
