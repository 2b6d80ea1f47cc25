"""GeAR's agent (GeAR §5) as a policy of the loop: what a step does, and how its passages are ranked at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle

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
from llama_index_gear.agents.memory import GistMemory, PassagePool, linked_triples, traced_beams
from llama_index_gear.expansion.backends import embed_query_flow
from llama_index_gear.expansion.pipeline import ExpansionResult, GraphExpansion
from llama_index_gear.expansion.reader import READ_PROMPT
from llama_index_gear.flow import Flow, ask, ask_all
from llama_index_gear.fusion import reciprocal_rank_fusion
from llama_index_gear.llm.prompting import Prompts
from llama_index_gear.nodes import llm_texts
from llama_index_gear.requests import EmbedQuery, FetchPassages, LinkTriples, RetrievePassages
from llama_index_gear.trace.evidence import PassageLink, Step
from llama_index_gear.trace.trace import Trace
from llama_index_gear.triple import StoredTriple, Triple, entity_key, plain

PROMPTS = {
    "read": READ_PROMPT,
    "gist": GIST_PROMPT,
    "reason": REASON_PROMPT,
    "merged": READ_AND_REASON_PROMPT,
    "rewrite": REWRITE_PROMPT,
}
"""The prompts of GeAR's agent, by name."""

Calls = Literal["separate", "merged", "single"]
"""Which calls of the language model a step makes; see `GeARRetriever`."""


@dataclass
class SearchState:
    """What a policy that searches step by step knows.

    Attributes:
        trace: of the question.
        bundle: what the next step searches for.
        gist: the facts noted.
        found: the passages.
        queries: of the steps so far.

    """

    trace: Trace
    bundle: QueryBundle
    gist: GistMemory
    found: PassagePool
    queries: list[str] = field(default_factory=list)


@dataclass
class _State(SearchState):
    embedding: Sequence[float] = ()  # the question's


def base_search_flow(
    expansion: GraphExpansion, state: SearchState, record: Step
) -> Flow[tuple[QueryBundle, dict[str, BaseNode]]]:
    """A step's base retrieval: its query with embedding, and the passages by id, best first; both written down."""
    known = yield from embed_query_flow(state.bundle)
    state.queries.append(known.query_str)
    state.trace.note(record, query=known.query_str)
    base = yield from expansion.base_search_flow(state.bundle, known)
    passages = yield from expansion.apply_filters_flow(base)
    # Should the step be cut short, the base passages are its list.
    state.found.lists.append(list(passages))
    state.found.add(passages)
    state.trace.note(record, base=list(passages))
    return known, passages


@dataclass(kw_only=True)
class GeARPolicy:
    """What GeAR does in a step, and how it ranks at the end (GeAR §5, Eq. 4 to 9).

    Args:
        expansion: base retrieval, reading, linking and graph expansion (SyncGE).
        max_steps: steps at most.
        calls: which calls a step makes; see `GeARRetriever`.
        gist_size: facts that the gist memory holds.
        passage_link_top_k: passages, and triples, that each fact of the gist is linked to.
        top_k: passages to return.
        prompts: `PROMPTS`, or some of the user's; "read" is the expansion's.

    """

    expansion: GraphExpansion
    max_steps: int
    calls: Calls
    gist_size: int
    passage_link_top_k: int
    top_k: int
    prompts: Prompts

    def begin(self, query: QueryBundle, trace: Trace) -> _State:
        """Nothing is known but the question."""
        return _State(trace, query, GistMemory(self.gist_size), PassagePool(trace))

    def step_flow(self, state: _State, record: Step) -> Flow[str]:
        """SyncGE, gist, reasoning, and the next query (GeAR §5)."""
        known, passages = yield from base_search_flow(self.expansion, state, record)
        if record.number == 1:
            state.embedding = known.embedding or ()
        if not passages:
            return "nothing found"
        walk = yield from self.expansion.walk_graph_flow(known, passages)
        state.found.lists[-1] = [passage_id for passage_id, _ in walk.fused]
        state.found.add(walk.nodes, {passage_id: walk.chain(passage_id) for passage_id in walk.chains})
        self._note_walk(state.trace, record, walk)
        verdict = yield from self._read_flow(state, record, walk)
        if verdict.answerable:
            state.trace.note(answer=verdict.answer)
            return "answered"
        if self.calls == "single":
            return "one call"
        if record.number == self.max_steps:
            return ""
        return (yield from self._rewrite_flow(state, record, verdict))

    def _note_walk(self, trace: Trace, record: Step, walk: ExpansionResult) -> None:
        trace.note(
            record,
            proximal=plain(walk.start.reading.triples),
            linked=linked_triples(walk.start.triples),
            fallback=walk.start.fallback,
            beams=traced_beams(walk.beams),
            pagerank=walk.pagerank,
            passages=[passage_id for passage_id, _ in walk.fused],
        )
        trace.note_problem(record, walk.start.reading.problem, "the reading was left out")

    def _read_flow(self, state: _State, record: Step, walk: ExpansionResult) -> Flow[Verdict]:
        """Gist and reasoning, in two calls, one, or none."""
        question = state.trace.question
        if self.calls == "single":
            self._remember(state, record, walk.start.reading.triples)
            return Verdict(False)
        texts = llm_texts(walk.nodes[passage_id] for passage_id, _ in walk.fused)
        if self.calls == "merged":
            said = yield from read_and_reason_flow(question, texts, state.gist, self.prompts["merged"])
            state.trace.note_problem(record, said.problem, "no fact was noted, the search goes on")
            triples, verdict = said.value or ((), Verdict(False))
            self._remember(state, record, triples)
        else:
            said = yield from read_gist_flow(question, texts, state.gist, self.prompts["gist"])
            state.trace.note_problem(record, said.problem, "no fact was noted")
            self._remember(state, record, said.value or ())
            said = yield from reason_flow(question, state.gist, self.prompts["reason"])
            state.trace.note_problem(record, said.problem, "the search goes on")
            verdict = said.value or Verdict(False)
        state.trace.note(record, answerable=verdict.answerable, answer=verdict.answer, reason=verdict.reason)
        return verdict

    def _remember(self, state: _State, record: Step, triples: Sequence[Triple]) -> None:
        added, left_out = state.gist.add(triples)
        state.trace.note(record, gist=plain(added), left_out=left_out)

    def _rewrite_flow(self, state: _State, record: Step, verdict: Verdict) -> Flow[str]:
        said = yield from rewrite_flow(
            state.trace.question, state.gist, verdict.reason, state.queries, self.prompts["rewrite"]
        )
        state.trace.note_problem(record, said.problem, "the search ends")
        if said.value is None:
            return "no further query"
        state.bundle = QueryBundle(said.value)
        state.trace.note(record, next_query=said.value)
        if entity_key(said.value) in map(entity_key, state.queries):
            return "repeated query"
        return ""

    def finish_flow(self, state: _State) -> Flow[list[NodeWithScore]]:
        """Link the gist to passages (GeAR Eq. 8), and fuse these lists with those of all steps (GeAR Eq. 9)."""
        facts = state.gist.triples
        passages: list[list[str]] = []
        if facts:
            passages = yield from self._link_flow(state, facts)
            state.trace.note(
                links=[PassageLink(triple=s, passages=ids) for s, ids in zip(plain(facts), passages, strict=True)]
            )
        return state.found.final_ranking(passages, self.top_k, self.expansion.rrf_k)

    def _link_flow(self, state: _State, facts: Sequence[Triple]) -> Flow[list[list[str]]]:
        """passageLink(t, k) = RRF(h(t, C), passages of h(t, T)) of each fact (GeAR Eq. 10), as ids that exist.

        h over passages is the base retriever; over triples it is dense search, whatever the base.
        """
        texts = [fact.text for fact in facts]
        bundles = [QueryBundle(text) for text in texts]
        top_k = self.passage_link_top_k
        if self.expansion.backends.base_retriever is None:
            embeddings = yield from ask_all([EmbedQuery(text) for text in texts])
            bundles = [QueryBundle(text, embedding=vector) for text, vector in zip(texts, embeddings, strict=True)]
        names = [f"{fact.subject} {fact.object}" for fact in facts]
        answers = yield [LinkTriples(texts, top_k, state.embedding, names), *map(RetrievePassages, bundles)]
        stated = yield from self._locate_flow(state, facts, answers[0])
        found: list[list[NodeWithScore]] = [answer[:top_k] for answer in answers[1:]]
        admitted = yield from self.expansion.apply_filters_flow([result for results in found for result in results])
        state.found.add(admitted)
        unknown = [t.passage_id for triples in stated for t in triples if t.passage_id not in state.found.nodes]
        if unknown:
            fetched = yield from ask(FetchPassages(list(dict.fromkeys(unknown))))
            state.found.add({node.node_id: node for node in fetched})
        for triples in stated:
            for triple in triples:
                state.found.chains.setdefault(triple.passage_id, plain([triple.triple]))
        passages = []
        for triples, results in zip(stated, found, strict=True):
            searched = [result.node.node_id for result in results if result.node.node_id in admitted]
            through = [triple.passage_id for triple in triples if triple.passage_id in state.found.nodes]
            fused = reciprocal_rank_fusion([searched, through], k=self.expansion.rrf_k)
            passages.append([passage_id for passage_id, _ in fused])
        return passages

    def _locate_flow(
        self, state: _State, facts: Sequence[Triple], linked: Sequence[Sequence[StoredTriple]]
    ) -> Flow[list[list[StoredTriple]]]:
        """The triples that each fact was linked to, where they are about the same, each with its passage."""
        aligned = [
            [triple for triple in triples if self.expansion.is_aligned(fact, triple.triple)]
            for fact, triples in zip(facts, linked, strict=True)
        ]
        located, nodes = yield from self.expansion.locate_flow(triple for triples in aligned for triple in triples)
        state.found.add(nodes)
        return [[located[t.id] for t in triples if located[t.id].passage_id] for triples in aligned]
