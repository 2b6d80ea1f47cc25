"""`GeARRetriever`: the agent that makes one call a step, behind LlamaIndex's retriever interface."""

from __future__ import annotations

from collections.abc import Mapping

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.settings import Settings
from llama_index.core.vector_stores.types import MetadataFilters

from llama_index_gear.agents.gear.policy import PROMPTS, SelectionPolicy
from llama_index_gear.agents.loop import Budget
from llama_index_gear.errors import check_counts
from llama_index_gear.expansion.backends import Backends
from llama_index_gear.expansion.pipeline import GraphExpansion
from llama_index_gear.expansion.pool_retrieval import PoolRetrieval
from llama_index_gear.llm.prompting import Prompts
from llama_index_gear.llm.selection import SHOW_TOKENS
from llama_index_gear.ranking.weights import RankingWeights
from llama_index_gear.retrievers.base import AgentRetriever
from llama_index_gear.store.vector_store import GeARVectorStore


class GeARRetriever(AgentRetriever):
    """An agent that searches again until its notes answer the question, with one LLM call a step: at most 4 by default.

    A step gathers and ranks a pool of passages as `GraphRetriever` does; the walk also starts from the triples that the
    notes so far are linked to. One call then reads the first passages of this ranking. It names those that the way to
    the answer needs, notes their facts, and gives the answer or the next query. The result begins with the passages
    that were named, in the order of need (`gear_ranks`: "needed"); the others follow in GeAR's ranking (§5).
    `max_steps=1` is a single call. If no reply can be read, the ranking stands; a reply that can't be read is asked for
    once more. For GeAR as its paper has it see `PaperGeARRetriever`.

    Each result says why it was found, in metadata that neither the LLM nor the embedding model sees: `gear_chain` (the
    triples that lead to it) and `gear_ranks` (its rank in each list: "step 1", "fact 2", …). `retrieve_with_trace` also
    returns the whole trace. `astream_events` and LlamaIndex's instrumentation (`GeAREvent`) report it event by event
    during the search. Prompts can be read back by `get_prompts`.

    Args:
        vector_store: the store that holds passages and triples.
        base_retriever: any LlamaIndex retriever; see `GraphRetriever`. Default: the store itself.
        llm: reads. Default: LlamaIndex's `Settings.llm`.
        max_steps: maximum number of steps. Default 4 (GeAR App. B.1; 2 for questions of two hops).
        similarity_top_k: passages to return. Default 10. Passages that were named beyond it are left out, and an answer
            cites none of them.
        filters: metadata filters that bind every hop; see `NaiveGERetriever`.
        budget: limits of a question's cost. When a limit is reached, the best ranking so far is returned, and the trace
            says which limit. Default None: no limit.
        show_top_k: passages that the reader is shown in a step. Default 30.
        show_tokens: tokens that these have at most, together; fewer if the model's context window is small. Long
            passages are shortened around the sentences that share words with question, notes and query; if that is not
            enough, the last ones are not shown. The trace says so. Default 8,000.
        weights: weights of the ranking that the reader is shown; see `GraphRetriever`. Default:
            `RankingWeights.default()`.
        prompts: your own prompt, `{"select": …}`. Also reachable through `get_prompts` / `update_prompts`. `PROMPTS` in
            this package's `agents.gear.policy` shows its variables.
        callback_manager: LlamaIndex's.

    Raises:
        ArgumentError: a number outside its range, or a prompt without its variables; (from `retrieve`) an empty
            question.
        UnsupportedFilter: (from `retrieve`) a filter that says nothing, or that Qdrant cannot express.
        Exception: (from `retrieve`) any exception of the LLM's client in the first call, and of a base retriever or
            Qdrant in the first step. A later failure ends the search with the passages found so far, and the trace's
            `stopped` names it.

    """

    def __init__(
        self,
        vector_store: GeARVectorStore,
        base_retriever: BaseRetriever | None = None,
        *,
        llm: LLM | None = None,
        max_steps: int = 4,
        similarity_top_k: int = 10,
        filters: MetadataFilters | None = None,
        budget: Budget | None = None,
        show_top_k: int = 30,
        show_tokens: int = SHOW_TOKENS,
        weights: RankingWeights | None = None,
        prompts: Mapping[str, BasePromptTemplate] | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        check_counts(max_steps=max_steps, similarity_top_k=similarity_top_k)
        check_counts(show_top_k=show_top_k, show_tokens=show_tokens)
        model = Settings.llm if llm is None else llm
        backends, own = Backends(vector_store, base_retriever, filters=filters, llm=model), Prompts(PROMPTS, prompts)
        policy = SelectionPolicy(
            expansion=GraphExpansion(backends),
            retrieval=PoolRetrieval(backends, weights),
            llm=model,
            max_steps=max_steps,
            top_k=similarity_top_k,
            show_top_k=show_top_k,
            show_tokens=show_tokens,
            prompts=own,
        )
        super().__init__(backends, policy, own, similarity_top_k, budget=budget, callback_manager=callback_manager)
