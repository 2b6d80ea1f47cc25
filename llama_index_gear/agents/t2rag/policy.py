"""T²RAG as a policy of the loop: the question as clues with unknowns, found and filled in round by round (T²RAG §4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index_gear.agents.memory import GistMemory, PassagePool, linked_triples, traced_beams
from llama_index_gear.agents.t2rag.clues import Clue, Clues, proposition
from llama_index_gear.agents.t2rag.dialogue import (
    DECOMPOSE_PROMPT,
    RESOLVE_PROMPT,
    decompose_flow,
    resolve_flow,
)
from llama_index_gear.agents.t2rag.resolution import (
    Material,
    ResolutionResult,
    apply_statements,
    same,
    supporting_passages,
)
from llama_index_gear.errors import ArgumentError
from llama_index_gear.expansion.backends import embed_query_flow
from llama_index_gear.expansion.beam_search import (
    BeamSearch,
    diverse_triple_beam_search_flow,
    flatten,
)
from llama_index_gear.flow import Flow, ask, ask_all
from llama_index_gear.llm.prompting import Prompts
from llama_index_gear.nodes import llm_texts
from llama_index_gear.requests import (
    EmbedQuery,
    FetchPassages,
    LinkTriples,
    RetrievePassages,
    RunFunction,
    SearchTriples,
)
from llama_index_gear.trace.evidence import ClueState, PassageLink, Slots, Step, Unknown
from llama_index_gear.trace.trace import Trace
from llama_index_gear.triple import StoredTriple, Triple, plain

PROMPTS = {"decompose": DECOMPOSE_PROMPT, "resolve": RESOLVE_PROMPT}
"""The prompts of T²RAG, by name."""

SearchBy = Literal["triples", "passages"]
"""What a clue is compared with: triples (T²RAG Alg. 2) or passages (T²RAG App. B.5, "chunk-based slot-filling")."""

MOST_CLUES = 32  # that a question may have; further ones are left out, and the trace says so
MOST_FACTS = 200
MOST_PROPOSITIONS = 100  # that the model is shown in a round, the most similar ones


@dataclass
class _State:
    trace: Trace
    bundle: QueryBundle
    found: PassagePool
    facts: GistMemory
    clues: Clues = field(default_factory=Clues)
    tellers: dict[Triple, list[str]] = field(default_factory=dict)  # fact → ids of the passages that state it
    searched: set[tuple[int, str]] = field(default_factory=set)  # number of a clue, and what it was searched by
    since: dict[str, int] = field(default_factory=dict)  # unknown → round
    tried: dict[str, list[str]] = field(default_factory=dict)  # unknown → what was searched for it
    propositions: list[StoredTriple] = field(default_factory=list)  # of the last round
    has_asked_itself: bool = False  # searched by the question
    is_stuck: bool = False  # the next round expands
    has_expanded: bool = False


@dataclass(frozen=True)
class _Hits:
    """What a round retrieves: passages, the propositions that led to them (none where passages are searched), how."""

    passage_ids: list[str]
    propositions: list[StoredTriple] = field(default_factory=list)
    chains: dict[str, list[Slots]] = field(default_factory=dict)


@dataclass(kw_only=True)
class T2RAGPolicy:
    """What T²RAG does in a round, and how its passages are ranked at the end.

    Args:
        max_steps: rounds at most.
        passages: distinct passages that a round retrieves.
        search_by: "triples" or "passages".
        show_passages: False shows the model the propositions alone.
        require_grounding: a value is taken only if a passage that the model was shown has it, beside a name of the
            clue.
        expand: settings of the beam search that expands a round which brought nothing new; None: no expansion.
        top_k: passages to return.
        rrf_k: constant of the final fusion.
        prompts: `PROMPTS`, or some of the user's.

    """

    max_steps: int
    passages: int
    search_by: SearchBy
    show_passages: bool
    require_grounding: bool
    expand: BeamSearch | None
    top_k: int
    rrf_k: int
    prompts: Prompts

    def begin(self, query: QueryBundle, trace: Trace) -> _State:
        """Nothing is known but the question."""
        if not trace.question:
            raise ArgumentError("the question is empty")
        return _State(trace, query, PassagePool(trace), GistMemory(MOST_FACTS))

    def step_flow(self, state: _State, record: Step) -> Flow[str]:
        """One round: clues, adaptive retrieval, resolution (T²RAG Alg. 1)."""
        if record.number == 1:
            yield from self._decompose_flow(state, record)
        hits = yield from (self._expand_flow if state.is_stuck else self._retrieve_flow)(state, record)
        nodes = yield from ask(FetchPassages(hits.passage_ids))
        passages = {node.node_id: node for node in nodes}
        state.found.add(passages, hits.chains)
        state.propositions = [triple for triple in hits.propositions if triple.passage_id in state.found.nodes]
        state.found.lists.append(list(passages))
        state.trace.note(record, linked=linked_triples(state.propositions), passages=list(passages))
        if not passages:
            self._note_clues(state, record, record.number)
            return "nothing found" if record.number == 1 else "nothing new"
        if not state.clues.clues:
            return "no clue"
        texts = dict(zip(passages, llm_texts(passages.values()), strict=True))
        learnt = yield from self._resolve_flow(state, record, texts)
        return self._verdict(state, record, learnt)

    def finish_flow(self, state: _State) -> Flow[list[NodeWithScore]]:
        """The passages of all rounds, and those that state what was resolved, fused as GeAR does (GeAR Eq. 9)."""
        if not state.found.lists:  # the budget did not allow for a round
            hits = yield from self._ask_itself_flow(state)
            nodes = yield from ask(FetchPassages(hits.passage_ids))
            state.found.add({node.node_id: node for node in nodes}, hits.chains)
            state.found.lists.append([node.node_id for node in nodes])
        tellers = [state.tellers[fact] for fact in state.facts.triples]
        state.trace.note(
            links=[
                PassageLink(triple=slots, passages=ids)
                for slots, ids in zip(plain(state.facts.triples), tellers, strict=True)
            ]
        )
        return state.found.final_ranking(tellers, self.top_k, self.rrf_k)

    def _decompose_flow(self, state: _State, record: Step) -> Flow[None]:
        """Structured query decomposition (T²RAG §4.3, step 1)."""
        said = yield from decompose_flow(state.trace.question, self.prompts["decompose"])
        state.trace.note_problem(record, said.problem, "the question is searched as it is")
        triples: Sequence[Triple] = said.value or ()
        state.clues.add(triples, 0, MOST_CLUES)
        if len(state.clues.clues) == MOST_CLUES < len(triples):
            state.trace.note_problem(record, f"{len(triples)} clues", f"the first {MOST_CLUES} are taken")
        self._note_clues(state, record, 0)

    def _retrieve_flow(self, state: _State, record: Step) -> Flow[_Hits]:
        """Adaptive retrieval by the clues that are new, or by the question itself (T²RAG Alg. 2, App. D.3)."""
        clues = self._unsearched(state)
        texts = [proposition(state.clues.now(clue)) for clue in clues]
        state.searched.update(zip((clue.number for clue in clues), texts, strict=True))
        for clue, text in zip(clues, texts, strict=True):
            for name in state.clues.open_in(clue):
                state.tried.setdefault(name, []).append(text)
        if clues:
            query = "; ".join(" — ".join(plain([state.clues.now(clue)])[0]) for clue in clues)
            state.trace.note(record, query=query, searched=texts)
            if self.search_by == "passages":
                return (yield from self._search_flow([QueryBundle(text) for text in texts]))
            found = yield from ask(SearchTriples(texts, self.passages))
            if found:
                return _hits(found)
            state.trace.note(record, fallback="no triples: the passages are searched")
            return (yield from self._search_flow([QueryBundle(text) for text in texts]))
        state.has_asked_itself = True
        for name in state.clues.open():
            state.tried.setdefault(name, []).append("the question itself")
        state.trace.note(record, query=state.trace.question, fallback="no clue to search by: the question itself")
        return (yield from self._ask_itself_flow(state))

    def _ask_itself_flow(self, state: _State) -> Flow[_Hits]:
        known = yield from embed_query_flow(state.bundle)
        if self.search_by == "passages":
            return (yield from self._search_flow([known]))
        found = yield from ask(SearchTriples([], self.passages, [known.embedding or []]))
        return _hits(found) if found else (yield from self._search_flow([known]))

    def _search_flow(self, queries: Sequence[QueryBundle]) -> Flow[_Hits]:
        """The same over passages: all hits in one list, the most similar first (T²RAG App. B.5). No triples."""
        answers: Sequence[list[NodeWithScore]] = yield from ask_all([RetrievePassages(query) for query in queries])
        best: dict[str, float] = {}
        for result in (result for answer in answers for result in answer):
            best[result.node.node_id] = max(result.score or 0.0, best.get(result.node.node_id, -1.0))
        return _Hits(sorted(best, key=lambda passage_id: -best[passage_id])[: self.passages])

    def _expand_flow(self, state: _State, record: Step) -> Flow[_Hits]:
        """Graph expansion from what is resolved, towards what is open, to passages that no round has seen."""
        assert self.expand is not None
        state.is_stuck, state.has_expanded = False, True
        open_clues = state.clues.of("searchable", "fuzzy", "unconfirmed")
        towards = " ".join(filter(None, (proposition(state.clues.now(clue)) for clue in open_clues)))
        towards = towards or state.trace.question
        for name in state.clues.open():
            state.tried.setdefault(name, []).append(f"graph expansion: {towards}")
        state.trace.note(record, query=towards, fallback="nothing new: graph expansion from what is resolved")
        vector = yield from ask(EmbedQuery(towards))
        start = state.propositions
        if state.facts.triples:
            links = yield from ask(LinkTriples([fact.text for fact in state.facts.triples], 1, vector))
            start = [triple for linked in links for triple in linked]
        beams = yield from diverse_triple_beam_search_flow(towards, vector, start, self.expand)
        state.trace.note(record, beams=traced_beams(beams))
        chains = flatten(beams)
        fresh = [passage_id for passage_id in chains if passage_id not in state.found.nodes][: self.passages]
        walked_over = {triple.id: triple for passage_id in fresh for triple in chains[passage_id]}
        return _Hits(
            fresh,
            list(walked_over.values()),
            {passage_id: plain(step.triple for step in chains[passage_id]) for passage_id in fresh},
        )

    def _resolve_flow(self, state: _State, record: Step, texts: Mapping[str, str]) -> Flow[ResolutionResult]:
        """Resolution and state update (T²RAG §4.3, steps 2.2 and 2.3)."""
        propositions = state.propositions[:MOST_PROPOSITIONS]
        said = yield from resolve_flow(
            state.trace.question,
            state.clues,
            state.facts.triples,
            propositions,
            texts,
            self.prompts["resolve"],
            show_passages=self.show_passages,
        )
        state.trace.note_problem(record, said.problem, "nothing was resolved")
        place = partial(
            apply_statements,
            state.clues,
            said.value or (),
            record.number,
            MOST_CLUES,
            Material(self._material(state, texts)) if self.require_grounding else None,
        )
        learnt: ResolutionResult
        learnt = yield from ask(RunFunction(place))
        added, left_out = state.facts.add([statement.triple for statement in learnt.facts])
        held = {same(fact): fact for fact in state.facts.triples}
        for statement in learnt.facts:
            fact = held.get(same(statement.triple))
            if fact is not None:
                tellers = state.tellers.setdefault(fact, [])
                tellers += [one for one in supporting_passages(statement, texts, propositions) if one not in tellers]
        state.trace.note(record, gist=plain(added), left_out=left_out, values=learnt.values)
        self._note_clues(state, record, record.number)
        for statement in learnt.ungrounded:
            state.trace.note_problem(record, f"no passage says: {statement.triple.text}", "it was left out")
        if learnt.left_out:
            state.trace.note_problem(record, f"{learnt.left_out} new clues", f"there are {MOST_CLUES} already")
        return replace(learnt, facts=[statement for statement in learnt.facts if statement.triple in added])

    def _material(self, state: _State, texts: Mapping[str, str]) -> list[str]:
        """For each passage that the model was shown, its text, its propositions, and the chain that led to it."""
        told = {passage_id: [text] if self.show_passages else [] for passage_id, text in texts.items()}
        for passage_id, lines in told.items():
            lines += [triple.triple.text for triple in state.propositions if triple.passage_id == passage_id]
            lines += [" ".join(slots) for slots in state.found.chains.get(passage_id, [])]
        return [" ".join(lines) for lines in told.values()]

    def _verdict(self, state: _State, record: Step, learnt: ResolutionResult) -> str:
        """Why the loop ends here (T²RAG §4.3, step 2.4), or ""."""
        open_clues = state.clues.of("searchable", "fuzzy", "unconfirmed")
        if not open_clues and state.clues.of("resolved"):
            return "resolved"
        is_new = bool(learnt.facts or learnt.values or learnt.new_clues)
        can_search = bool(self._unsearched(state)) or (bool(state.clues.of("fuzzy")) and not state.has_asked_itself)
        if is_new and can_search:
            return ""
        if self.expand is not None and not state.has_expanded:
            state.is_stuck = True
            return ""
        return "nothing new"

    def _unsearched(self, state: _State) -> list[Clue]:
        """The clues to search by: newly searchable ones; where the question has no unknown, its givens."""
        clues = state.clues.of("searchable", "unconfirmed")
        if not clues and not state.clues.of("fuzzy", "resolved"):
            clues = state.clues.of("given")
        texts = {clue.number: proposition(state.clues.now(clue)) for clue in clues}
        return [
            clue for clue in clues if texts[clue.number] and (clue.number, texts[clue.number]) not in state.searched
        ]

    def _note_clues(self, state: _State, record: Step, since: int) -> None:
        for name in state.clues.open():
            state.since.setdefault(name, since)
        asked = plain(clue.triple for clue in state.clues.clues)
        now = plain(state.clues.now(clue) for clue in state.clues.clues)
        state.trace.note(
            record,
            clues=[
                ClueState(asked=before, triple=after, state=state.clues.state(clue), since=clue.since)
                for clue, before, after in zip(state.clues.clues, asked, now, strict=True)
            ],
            open=[
                Unknown(name=name, since=state.since[name], tried=list(state.tried.get(name, ())))
                for name in state.clues.open()
            ],
        )


def _hits(propositions: list[StoredTriple]) -> _Hits:
    """The passages of these propositions, each with the one that led to it first."""
    chains: dict[str, list[Slots]] = {}
    for triple in propositions:
        chains.setdefault(triple.passage_id, plain([triple.triple]))
    return _Hits(list(chains), propositions, chains)
