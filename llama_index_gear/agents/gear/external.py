"""GeAR over an external graph (Millions of GeAR-s §4) as a policy of the loop: what differs from `gear.py`."""

from __future__ import annotations

from dataclasses import dataclass

from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index_gear.agents.gear.external_reasoning import decide, rank
from llama_index_gear.agents.gear.policy import SearchState, base_search
from llama_index_gear.agents.gear.reasoning import GistMemory
from llama_index_gear.agents.memory import PassagePool, linked_triples, traced_beams
from llama_index_gear.errors import ArgumentError
from llama_index_gear.expansion.external import ExternalGraphExpansion
from llama_index_gear.flow import FetchTriples, Flow
from llama_index_gear.nodes import llm_texts
from llama_index_gear.trace.evidence import Misaligned, Step
from llama_index_gear.trace.trace import Trace
from llama_index_gear.triple import entity_key, plain


@dataclass
class _State(SearchState):
    kept: list[str] | None = None  # by the filter


@dataclass
class ExternalPolicy:
    """What a step does when the triples come from a graph that knows nothing of the passages.

    Args:
        walk: base retrieval, reading, linking, expansion and online alignment.
        max_steps: steps at most.
        expand_from_step: the first step with graph expansion.
        gist_size: facts that the gist memory holds.
        rank_top_k: remembered passages that the filter is shown; None: no filter.
        top_k: passages to return.
        prompts: "decide" and "rank".

    """

    walk: ExternalGraphExpansion
    max_steps: int
    expand_from_step: int
    gist_size: int
    rank_top_k: int | None
    top_k: int
    prompts: dict[str, BasePromptTemplate]

    def begin(self, query: QueryBundle, trace: Trace) -> _State:
        """Nothing is known but the question."""
        if not trace.question:
            raise ArgumentError("the question is empty")
        return _State(trace, query, GistMemory(self.gist_size), PassagePool(trace))

    def step(self, state: _State, record: Step) -> Flow[str]:
        """Search, read, expand; then decide. Where the loop ends, the remembered passages are filtered."""
        stopped = yield from self._searching(state, record)
        if not stopped and record.number < self.max_steps:
            stopped = yield from self._deciding(state, record)
        if (stopped or record.number == self.max_steps) and self.rank_top_k is not None:
            yield from self._filtering(state, record, self.rank_top_k)
        return stopped

    def finish(self, state: _State) -> Flow[list[NodeWithScore]]:
        """What the filter kept; all remembered passages, fused, if it was not asked."""
        yield from ()
        return state.found.final_ranking([], self.top_k, self.walk.rrf_k, state.kept)

    def _searching(self, state: _State, record: Step) -> Flow[str]:
        known, passages = yield from base_search(self.walk, state, record)
        state.trace.note(record, passages=list(passages))
        if not passages:
            return "nothing found" if record.number == 1 else ""
        if record.number == 1:
            yield [FetchTriples([])]  # a graph that isn't there raises now, while nothing is lost
        if record.number < self.expand_from_step:
            reading = yield from self.walk.reading(known.query_str, passages)
        else:
            walk = yield from self.walk.walk_graph_flow(known, passages)
            reading = walk.start.reading
            state.found.lists[-1] = [passage_id for passage_id, _ in walk.fused]
            state.found.add(walk.nodes, {each: walk.chain(each) for each in walk.chains})
            aligned = {triple.id: triple for beam in walk.beams for triple in beam.chain}
            state.trace.note(
                record,
                linked_triples=linked_triples(aligned.get(each.id, each) for each in walk.start.triples),
                misaligned=[
                    Misaligned(fact=slots[0], triple=slots[1], shared=round(shared, 2))
                    for fact, each, shared in walk.start.misaligned
                    for slots in [plain([fact, each.triple])]
                ],
                fallback=walk.start.fallback,
                beams=traced_beams(walk.beams),
                passages=state.found.lists[-1],
            )
        state.trace.note_problem(record, reading.problem, "the reading was left out")
        added, left_out = state.gist.add(reading.triples)
        state.trace.note(record, proximal=plain(reading.triples), gist=plain(added), left_out=left_out)
        return ""

    def _deciding(self, state: _State, record: Step) -> Flow[str]:
        """One call: do the facts suffice, and what to ask next if not (Eq. 5)."""
        said = yield from decide(state.trace.question, state.gist, state.queries, self.prompts["decide"])
        state.trace.note_problem(record, said.problem, "the search ends")
        if said.value is None:
            return "no further query"
        state.trace.note(record, answerable=said.value.sufficient)
        if said.value.sufficient:
            return "sufficient"
        state.bundle = QueryBundle(said.value.query)
        state.trace.note(record, next_query=said.value.query)
        if entity_key(said.value.query) in map(entity_key, state.queries):
            return "repeated query"
        return ""

    def _filtering(self, state: _State, record: Step, top_k: int) -> Flow[None]:
        """One call: which of the remembered passages help, best first (Eq. 6)."""
        shown_ids = state.found.fused_ids(self.walk.rrf_k)[:top_k]
        if not shown_ids:
            return
        texts = llm_texts(state.found.nodes[passage_id] for passage_id in shown_ids)
        said = yield from rank(state.trace.question, state.gist, texts, self.prompts["rank"])
        state.trace.note_problem(record, said.problem, "no passage was left out")
        if said.value is not None:
            state.kept = [shown_ids[place] for place in said.value]
            state.trace.note(record, ranked=state.kept)
