"""GeAR's agent (GeAR §5) as a policy of the loop: its steps, and the final ranking of their passages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle

from llama_index_gear.agents.gear.paper_calls import (
    GIST_PROMPT,
    READ_AND_REASON_PROMPT,
    REASON_PROMPT,
    REWRITE_PROMPT,
    Verdict,
    read_and_reason_flow,
    read_gist_flow,
    reason_flow,
    rewrite_flow,
)
from llama_index_gear.agents.loop import describe_failure
from llama_index_gear.agents.memory import GistMemory, PassagePool, trace_beams, trace_triples
from llama_index_gear.errors import GeARError
from llama_index_gear.expansion.backends import embed_query_flow
from llama_index_gear.expansion.pipeline import ExpansionResult, GraphExpansion
from llama_index_gear.expansion.reader import READ_PROMPT
from llama_index_gear.flow import EmbedQuery, Flow, Request, ask_all, interleave, relay
from llama_index_gear.llm.prompting import Prompts
from llama_index_gear.nodes import llm_texts
from llama_index_gear.store.fusion import reciprocal_rank_fusion
from llama_index_gear.trace.evidence import Misaligned, Step
from llama_index_gear.trace.trace import Trace
from llama_index_gear.triple import StoredTriple, Triple, entity_key, serialize_triples


@dataclass
class SearchState:
    """The state of a policy that searches step by step.

    Attributes:
        trace: of the question.
        bundle: the next step's query.
        gist: the facts noted so far.
        pool: the passages retrieved so far.
        queries: of the steps so far, in order.

    """

    trace: Trace
    bundle: QueryBundle
    gist: GistMemory
    pool: PassagePool
    queries: list[str] = field(default_factory=list)

    def go_on(self, record: Step, query: str) -> str:
        """Take the next step's query; return why the loop ends here, or "" to go on."""
        self.bundle = QueryBundle(query)
        self.trace.note(record, next_query=query)
        return "repeated query" if entity_key(query) in map(entity_key, self.queries) else ""


@dataclass
class GistState(SearchState):
    """The state of a policy whose gist is linked to passages.

    Attributes:
        embedding: of the question.

    """

    embedding: Sequence[float] = ()


@dataclass(kw_only=True)
class GistPolicy:
    """The base class of the policies that note facts, and link them to passages at the end.

    Args:
        expansion: the settings with which facts are linked.
        max_steps: maximum number of steps.
        top_k: passages to return.
        prompts: by name.
        passage_link_top_k: number of passages, and of triples, that each fact of the gist is linked to. Default 3.

    """

    expansion: GraphExpansion
    max_steps: int
    top_k: int
    prompts: Prompts
    passage_link_top_k: int = 3

    def begin(self, query: QueryBundle, trace: Trace) -> GistState:
        """Return the state before the first step: nothing is known but the question."""
        return GistState(trace, query, GistMemory(), PassagePool(trace))

    def remember(self, state: GistState, record: Step, triples: Sequence[Triple]) -> None:
        """Note facts in the gist, and those that are new in the record."""
        added, left_out = state.gist.add(triples)
        state.trace.note(record, gist=serialize_triples(added), left_out=left_out)

    def finish_flow(self, state: GistState) -> Flow[list[NodeWithScore]]:
        """Link the gist to passages (GeAR Eq. 8), and fuse these lists with those of all steps (GeAR Eq. 9)."""
        facts = state.gist.triples
        linked: list[list[str]] = []
        failures: list[Exception] = []

        def answer_batch_flow(batch: Sequence[Request[Any]]) -> Flow[Sequence[Any]]:
            try:
                return (yield batch)
            except Exception as error:
                failures.append(error)
                raise

        try:
            linked = (yield from relay(self._link_flow(state, facts), answer_batch_flow)) if facts else []
        except Exception as error:  # a request's failure, as in a step; an error of our own is raised
            is_bug = not isinstance(error, GeARError) and not any(error is failure for failure in failures)
            if is_bug or not any(state.pool.lists):
                raise
            state.trace.note(stopped=describe_failure(error))  # the steps' passages are ranked without the gist's
        return state.pool.final_ranking(self.top_k, facts if linked else [], linked)

    def _link_flow(self, state: GistState, facts: Sequence[Triple]) -> Flow[list[list[str]]]:
        """Return, for each fact, passageLink(t, k) = RRF(h(t, C), passages of h(t, T)) (GeAR Eq. 10), as passage ids.

        h over passages is the base retriever; over stored triples it is dense search, whatever the base retriever, or
        BM25 where they have no vectors; over a graph that exists it is the graph's own. Passages that don't exist any
        more, or that the filters exclude, are left out.
        """
        texts = [fact.text for fact in facts]
        bundles, backends = [QueryBundle(text) for text in texts], self.expansion.backends
        top_k = self.passage_link_top_k
        if backends.base_retriever is None:
            embeddings = yield from ask_all([EmbedQuery(text) for text in texts])
            bundles = [QueryBundle(text, embedding=vector) for text, vector in zip(texts, embeddings, strict=True)]
        names = [f"{fact.subject} {fact.object}" for fact in facts]
        linking = backends.link_notes_flow(texts, top_k, state.embedding, names)
        searches = interleave([backends.base_search_flow(bundle) for bundle in bundles])
        both: list[Flow[list[list[Any]]]] = [linking, searches]
        linked_triples, results = yield from interleave(both)
        triple_lists = yield from self._locate_flow(state, facts, linked_triples)
        admitted = yield from self.expansion.filter_base_flow(list(chain.from_iterable(results)))
        search_lists = [[n.node.node_id for n in result if n.node.node_id in admitted][:top_k] for result in results]
        state.pool.add({node_id: admitted[node_id] for node_ids in search_lists for node_id in node_ids})
        stored_triples = list(chain.from_iterable(triple_lists))
        missing = [stored.passage_id for stored in stored_triples if stored.passage_id not in state.pool.nodes]
        if missing:
            fetched = yield from backends.reads.get_flow(list(dict.fromkeys(missing)), vectors=False)
            state.pool.add({node.node_id: node for node in fetched})
        for stored in stored_triples:
            state.pool.chains.setdefault(stored.passage_id, serialize_triples([stored.triple]))
        linked = []
        for triples, by_search in zip(triple_lists, search_lists, strict=True):
            by_triple = [stored.passage_id for stored in triples if stored.passage_id in state.pool.nodes]
            fused = reciprocal_rank_fusion([by_search, by_triple])
            linked.append([passage_id for passage_id, _ in fused])
        return linked

    def _locate_flow(
        self, state: GistState, facts: Sequence[Triple], linked: Sequence[Sequence[StoredTriple]]
    ) -> Flow[list[list[StoredTriple]]]:
        """Return, for each fact, its linked triples that are about the same and have a passage, with that passage."""
        aligned = [
            [stored for stored in triples if self.expansion.is_aligned(fact, stored.triple)]
            for fact, triples in zip(facts, linked, strict=True)
        ]
        located, nodes = yield from self.expansion.locate_flow(chain.from_iterable(aligned))
        state.pool.add(nodes)
        return [[located[stored.id] for stored in triples if located[stored.id].passage_id] for triples in aligned]


PROMPTS = {
    "read": READ_PROMPT,
    "gist": GIST_PROMPT,
    "reason": REASON_PROMPT,
    "merged": READ_AND_REASON_PROMPT,
    "rewrite": REWRITE_PROMPT,
}
"""The prompts of GeAR's agent, by name."""

Calls = Literal["separate", "merged", "single"]
"""The calls of the language model that a step makes; see `PaperGeARRetriever`."""

PROMPTS_OF_CALLS: dict[Calls, tuple[str, ...]] = {
    "separate": ("read", "gist", "reason", "rewrite"),
    "merged": ("read", "merged", "rewrite"),
    "single": ("read",),
}
"""The names of the prompts that are used, by the calls of a step."""


def base_search_flow(
    expansion: GraphExpansion, state: SearchState, record: Step
) -> Flow[tuple[QueryBundle, dict[str, BaseNode]]]:
    """Run a step's base retrieval, and add its passages to the pool and the record.

    Returns:
        The query with its embedding, and the passages: id → node, best first.

    """
    query = yield from embed_query_flow(state.bundle)
    state.queries.append(query.query_str)
    state.trace.note(record, query=query.query_str)
    passages = yield from expansion.base_search_flow(state.bundle, query)
    # If the step is cut short, the base passages are its list.
    state.pool.lists.append(list(passages))
    state.pool.add(passages)
    state.trace.note(record, base=list(passages))
    return query, passages


def note_walk(state: SearchState, record: Step, walk: ExpansionResult) -> None:
    """Add a graph expansion to the pool and the record of its step. Linked triples have passages that it found."""
    state.pool.lists[-1] = [passage_id for passage_id, _ in walk.fused]
    state.pool.add(walk.nodes, {passage_id: walk.chain(passage_id) for passage_id in walk.chains})
    located = {triple.id: triple for beam in walk.beams for triple in beam.chain}
    state.trace.note(
        record,
        proximal=serialize_triples(walk.seeds.reading.triples),
        linked=trace_triples(located.get(triple.id, triple) for triple in walk.seeds.triples),
        misaligned=[
            Misaligned(fact=slots[0], triple=slots[1], shared=round(shared, 2))
            for fact, triple, shared in walk.seeds.misaligned
            for slots in [serialize_triples([fact, triple.triple])]
        ],
        fallback=walk.seeds.fallback,
        beams=trace_beams(walk.beams),
        pagerank=walk.pagerank,
        passages=state.pool.lists[-1],
    )


@dataclass(kw_only=True)
class GeARPolicy(GistPolicy):
    """The steps of GeAR's agent, and the final ranking of their passages (GeAR §5, Eq. 4 to 9).

    Args:
        calls: the calls that a step makes; see `PaperGeARRetriever`.
        **arguments: see `GistPolicy`; the expansion is SyncGE, and uses the prompt "read".

    """

    calls: Calls

    def step_flow(self, state: GistState, record: Step) -> Flow[str]:
        """Run SyncGE, note facts in the gist, reason on it, and rewrite the query (GeAR §5)."""
        query, passages = yield from base_search_flow(self.expansion, state, record)
        if record.number == 1:
            state.embedding = query.embedding or ()
        if not passages:
            return "nothing found"
        walk = yield from self.expansion.walk_graph_flow(query, passages)
        note_walk(state, record, walk)
        state.trace.note_problem(record, walk.seeds.reading.problem, "the reading was left out", unread=True)
        verdict = yield from self._read_flow(state, record, walk)
        if verdict.answerable:
            state.trace.note(answer=verdict.answer)
            return "answered"
        if self.calls == "single":
            return "one call"
        if record.number == self.max_steps:
            return ""
        return (yield from self._rewrite_flow(state, record, verdict))

    def _read_flow(self, state: GistState, record: Step, walk: ExpansionResult) -> Flow[Verdict]:
        """Note facts in the gist and reason on it (GeAR Eq. 4 and 6), in two calls, one, or none."""
        question = state.trace.question
        if self.calls == "single":
            self.remember(state, record, walk.seeds.reading.triples)
            return Verdict(False)
        texts = llm_texts(walk.nodes[passage_id] for passage_id, _ in walk.fused)
        if self.calls == "merged":
            parsed = yield from read_and_reason_flow(question, texts, state.gist, self.prompts["merged"])
            state.trace.note_problem(record, parsed.problem, "no fact was noted, the search goes on", unread=True)
            triples, verdict = parsed.value or ((), Verdict(False))
            self.remember(state, record, triples)
        else:
            parsed = yield from read_gist_flow(question, texts, state.gist, self.prompts["gist"])
            state.trace.note_problem(record, parsed.problem, "no fact was noted", unread=True)
            self.remember(state, record, parsed.value or ())
            parsed = yield from reason_flow(question, state.gist, self.prompts["reason"])
            state.trace.note_problem(record, parsed.problem, "the search goes on", unread=True)
            verdict = parsed.value or Verdict(False)
        state.trace.note(record, answerable=verdict.answerable, answer=verdict.answer, reason=verdict.reason)
        return verdict

    def _rewrite_flow(self, state: GistState, record: Step, verdict: Verdict) -> Flow[str]:
        """Ask for the next query (GeAR Eq. 7); return why the loop ends here, or "" to go on."""
        parsed = yield from rewrite_flow(
            state.trace.question, state.gist, verdict.reason, state.queries, self.prompts["rewrite"]
        )
        state.trace.note_problem(record, parsed.problem, "the search ends", unread=True)
        if parsed.value is None:
            return "no further query"
        return state.go_on(record, parsed.value)
