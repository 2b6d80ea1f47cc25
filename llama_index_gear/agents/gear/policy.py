"""GeAR's agent (GeAR §5) as a policy of the loop: its steps, and the final ranking of their passages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from llama_index.core.schema import BaseNode, QueryBundle

from llama_index_gear.agents.gear.gist import GistPolicy, GistState, SearchState
from llama_index_gear.agents.gear.reasoning import (
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
from llama_index_gear.agents.memory import trace_beams, trace_triples
from llama_index_gear.expansion.backends import embed_query_flow
from llama_index_gear.expansion.pipeline import ExpansionResult, GraphExpansion
from llama_index_gear.expansion.reader import READ_PROMPT
from llama_index_gear.flow import Flow
from llama_index_gear.nodes import llm_texts
from llama_index_gear.trace.evidence import Misaligned, Step
from llama_index_gear.trace.trace import Trace
from llama_index_gear.triple import entity_key, serialize_triples

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


def note_walk(trace: Trace, record: Step, walk: ExpansionResult) -> None:
    """Write a graph expansion into the record of its step. A linked triple has the passage that the walk found."""
    located = {triple.id: triple for beam in walk.beams for triple in beam.chain}
    trace.note(
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
        passages=[passage_id for passage_id, _ in walk.fused],
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
        state.pool.lists[-1] = [passage_id for passage_id, _ in walk.fused]
        state.pool.add(walk.nodes, {passage_id: walk.chain(passage_id) for passage_id in walk.chains})
        note_walk(state.trace, record, walk)
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
        state.bundle = QueryBundle(parsed.value)
        state.trace.note(record, next_query=parsed.value)
        if entity_key(parsed.value) in map(entity_key, state.queries):
            return "repeated query"
        return ""
