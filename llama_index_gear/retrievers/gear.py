"""`GeARRetriever`: GeAR's agent behind LlamaIndex's retriever interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.settings import Settings
from llama_index.core.vector_stores.types import MetadataFilters, VectorStoreQueryMode

from llama_index_gear.agents.gear.policy import PROMPTS, PROMPTS_OF_CALLS, Calls, GeARPolicy
from llama_index_gear.agents.gear.selection import SelectionPolicy
from llama_index_gear.agents.loop import Budget
from llama_index_gear.errors import ArgumentError, check_counts, format_value
from llama_index_gear.expansion.alignment import build_expansion
from llama_index_gear.expansion.backends import Backends
from llama_index_gear.expansion.beam_search import BeamSearch
from llama_index_gear.expansion.pagerank import LocalPageRank
from llama_index_gear.expansion.pool_retrieval import POOL_PAGERANK, PoolRetrieval
from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.llm.prompting import Prompts
from llama_index_gear.llm.selection import SHOW_TOKENS
from llama_index_gear.ranking.weights import RankingWeights
from llama_index_gear.retrievers.base import GistRetriever
from llama_index_gear.store.vector_store import GeARVectorStore


class GeARRetriever(GistRetriever):
    """GeAR (§5): SyncGE, a gist memory, and an agent that searches again until the gist answers the question.

    Each result says why it was found, in metadata that neither the LLM nor the embedding model sees: `gear_chain` (the
    triples that lead to it) and `gear_ranks` (its rank in each list: "step 1", "fact 2", …). `retrieve_with_trace` also
    returns the whole trace. `astream_events` and LlamaIndex's instrumentation (`GeAREvent`) report it event by event
    during the search. All settings can be read back as properties, prompts by `get_prompts`.

    Maximum number of LLM calls, if all replies can be read (a reply that can't be read is asked for once more):

    ============  ===========================================================  ======================
    `calls`       a step                                                       a question, 4 steps
    ============  ===========================================================  ======================
    "separate"    read, gist, reason, and rewrite but in the last step         15
    "merged"      read, gist and reason in one, rewrite but in the last step   11
    "single"      read; its facts are the gist; there is no second step        1
    "selection"   select: see below                                            4
    ============  ===========================================================  ======================

    `calls="selection"` is this package's own. A step gathers and ranks a pool of passages as `GraphRetriever` does; the
    walk also starts from the triples that the notes so far are linked to. One call then reads the first passages of
    this ranking. It names those that the way to the answer needs, notes their facts, and gives the answer or the next
    query. The result begins with the passages that were named, in the order of need (`gear_ranks`: "needed"); the
    others follow in GeAR's ranking. `max_steps=1` is a single call. If no reply can be read, the ranking stands.

    Args:
        vector_store: the store that holds passages and triples.
        base_retriever: any LlamaIndex retriever; see `NaiveGERetriever`. Default: the store itself.
        llm: reads, reasons and rewrites. Default: LlamaIndex's `Settings.llm`.
        graph: a knowledge graph to walk, in place of the passages' own triples; see `NaiveGERetriever`. Not
            with `calls="selection"`. Default None.
        max_steps: maximum number of steps. Default 4 (GeAR App. B.1; 2 for questions of two hops). Not with
            `calls="single"`, which makes one.
        calls: "selection" (default; this package's own), "separate" (GeAR §5; the default with `graph`), "merged" or
            "single".
        similarity_top_k: passages to return. Default 10. Passages that were named beyond it are left out, and an answer
            cites none of them.
        filters: metadata filters that bind every hop; see `NaiveGERetriever`.
        budget: limits of a question's cost. When a limit is reached, the best ranking so far is returned, and the trace
            says which limit. Default None: no limit.
        beam_search: settings of the beam search. Not with `calls="selection"`. Default `BeamSearch()`.
        pagerank: see `NaiveGERetriever`. Default None; with `calls="selection"` that of `GraphRetriever`.
        base_top_k: base passages of a step, of the store's own search; not with `base_retriever`, nor with
            `calls="selection"`. Default 10 (GeAR App. B.2).
        link_top_k: stored triples that each noted fact is linked to. Default 1 (GeAR Eq. 2).
        check_alignment: drop links to triples of the graph that are about something else than the noted fact, in each
            step and at the end (`shared_name` in this package's `expansion.alignment`); the trace shows those of the
            steps. Only with `graph`. Default True there.
        passage_link_top_k: passages, and triples, that each fact of the gist is linked to (GeAR Eq. 8; k is not given
            there). Default 3: on MuSiQue, in one step, R@5/10/15 is 79.9/86.2/87.5, with 10 it is 70.2/84.3/89.5.
        gist_size: facts that the gist memory holds; the first ones stay. Default 100.
        show_top_k: passages that the reader is shown in a step. Only with `calls="selection"`. Default 30 there.
        show_tokens: tokens that these have at most, together; fewer if the model's context window is small. Long
            passages are shortened around the sentences that share words with question, notes and query; if that is not
            enough, the last ones are not shown. The trace says so. Only with `calls="selection"`. Default 8,000 there.
        weights: weights of the ranking that the reader is shown; see `GraphRetriever`. Only with `calls="selection"`.
            Default there: `RankingWeights.default()`.
        prompts: your own prompts for some of those that `calls` uses: "read", "gist", "reason" and "rewrite"
            (separate), "read", "merged" and "rewrite" (merged), "read" (single), "select" (selection). Also reachable
            through `get_prompts` / `update_prompts`. `PROMPTS` in this package's `agents.gear.policy` shows their
            variables.
        vector_store_query_mode: see `NaiveGERetriever`.
        rrf_k: constant of all fusions. Default 60.
        callback_manager: LlamaIndex's.
        verbose: LlamaIndex's.

    Raises:
        ArgumentError: an argument of the wrong kind, a number outside its range, two arguments of which one would
            overrule the other, or a prompt without its variables; (from `retrieve`) an empty question.
        UnsupportedFilter: (from `retrieve`) a filter that says nothing, or that Qdrant cannot express.
        Exception: (from `retrieve`) any exception of the LLM's client in the first call, and of a base retriever or
            Qdrant in the first step. A later failure ends the search with the passages found so far, and the trace's
            `stopped` names it.

    """

    _policy: GeARPolicy | SelectionPolicy

    def __init__(
        self,
        vector_store: GeARVectorStore,
        base_retriever: BaseRetriever | None = None,
        *,
        llm: LLM | None = None,
        graph: ExternalTripleStore | None = None,
        max_steps: int | None = None,
        calls: Calls | None = None,
        similarity_top_k: int = 10,
        filters: MetadataFilters | None = None,
        budget: Budget | None = None,
        beam_search: BeamSearch | None = None,
        pagerank: LocalPageRank | None = None,
        base_top_k: int | None = None,
        link_top_k: int = 1,
        check_alignment: bool | None = None,
        passage_link_top_k: int = 3,
        gist_size: int = 100,
        show_top_k: int | None = None,
        show_tokens: int | None = None,
        weights: RankingWeights | None = None,
        prompts: Mapping[str, BasePromptTemplate] | None = None,
        vector_store_query_mode: VectorStoreQueryMode | None = None,
        rrf_k: int = 60,
        callback_manager: CallbackManager | None = None,
        verbose: bool = False,
    ) -> None:
        check_counts(similarity_top_k=similarity_top_k, passage_link_top_k=passage_link_top_k, gist_size=gist_size)
        if calls is None:
            calls = "selection" if graph is None else "separate"
        if calls not in tuple(PROMPTS_OF_CALLS):
            raise ArgumentError(f"calls must be separate, merged, single or selection; got {format_value(calls)}")
        if max_steps is None:
            max_steps = 1 if calls == "single" else 4
        check_counts(max_steps=max_steps)
        if calls == "single" and max_steps > 1:
            raise ArgumentError("calls='single' makes one step: leave out max_steps, or write calls='merged'")
        if calls == "selection":
            _refuse(
                "calls='selection', the default, has a pool of its own; write calls='merged', say, or",
                beam_search=beam_search,
                base_top_k=base_top_k,
            )
            if graph is not None:
                raise ArgumentError(
                    "calls='selection' walks the passages' own triples: leave out graph, or write calls='merged'"
                )
        else:
            own_of_selection = {"show_top_k": show_top_k, "show_tokens": show_tokens, "weights": weights}
            _refuse("only calls='selection' shows a reader a ranking,", **own_of_selection)
        model = Settings.llm if llm is None else llm
        backends = Backends(
            vector_store,
            base_retriever,
            mode=vector_store_query_mode,
            base_top_k=base_top_k,
            filters=filters,
            llm=model,
            graph=graph,
        )
        used = {name: PROMPTS[name] for name in PROMPTS_OF_CALLS[calls]}
        own = Prompts(used, prompts, where=f"with calls={calls!r}")
        self._expansion = build_expansion(
            backends,
            beam_search,
            similarity_top_k=backends.base_top_k,
            pagerank=POOL_PAGERANK if pagerank is None and calls == "selection" else pagerank,
            link_top_k=link_top_k,
            check_alignment=check_alignment,
            prompts=own,
            rrf_k=rrf_k,
        )
        settings: dict[str, Any] = {
            "expansion": self._expansion,
            "max_steps": max_steps,
            "gist_size": gist_size,
            "passage_link_top_k": passage_link_top_k,
            "top_k": similarity_top_k,
            "prompts": own,
        }
        if calls == "selection":
            sizes: dict[str, Any] = {
                "show_top_k": 30 if show_top_k is None else show_top_k,
                "show_tokens": SHOW_TOKENS if show_tokens is None else show_tokens,
            }
            check_counts(**sizes)
            retrieval = PoolRetrieval(backends, weights, self._expansion.pagerank)
            policy: GeARPolicy | SelectionPolicy = SelectionPolicy(**settings, **sizes, retrieval=retrieval, llm=model)
        else:
            policy = GeARPolicy(**settings, calls=calls)
        self._calls: Calls = calls
        super().__init__(
            backends,
            policy,
            own,
            similarity_top_k,
            budget=budget,
            callback_manager=callback_manager,
            verbose=verbose,
        )

    @property
    def calls(self) -> Calls:
        """The LLM calls of a step: "separate", "merged", "single" or "selection"."""
        return self._calls

    @property
    def beam_search(self) -> BeamSearch | None:
        """Settings of the beam search; None: there is none."""
        return None if self._calls == "selection" else super().beam_search

    @property
    def base_top_k(self) -> int | None:
        """Base passages of a step, of the store's own search; None: there is a base retriever, or a pool."""
        return None if self._calls == "selection" else super().base_top_k

    @property
    def passage_link_top_k(self) -> int:
        """Passages, and triples, that each fact of the gist is linked to."""
        return self._policy.passage_link_top_k

    @property
    def show_top_k(self) -> int | None:
        """Passages that the reader is shown in a step; None: there is no such reader."""
        return self._policy.show_top_k if isinstance(self._policy, SelectionPolicy) else None

    @property
    def show_tokens(self) -> int | None:
        """Tokens that the shown passages have at most; None: there is no such reader."""
        return self._policy.show_tokens if isinstance(self._policy, SelectionPolicy) else None

    @property
    def weights(self) -> RankingWeights | None:
        """Weights of the ranking that the reader is shown; None: there is no such reader."""
        return self._policy.retrieval.weights if isinstance(self._policy, SelectionPolicy) else None


def _refuse(why: str, **arguments: Any) -> None:
    """Refuse arguments that are given and would do nothing."""
    for name, value in arguments.items():
        if value is not None:
            raise ArgumentError(f"{name}: {why} leave it out")
