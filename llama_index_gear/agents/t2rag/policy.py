"""T²RAG as a policy of the loop: rounds of retrieval that fill in the unknowns of a question's clues (T²RAG §4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index_gear.agents.memory import GistMemory, PassagePool, trace_triples
from llama_index_gear.agents.t2rag.clues import Clue, Clues, build_proposition, slots_of
from llama_index_gear.agents.t2rag.prompts import (
    DECOMPOSE_PROMPT,
    RESOLVE_PROMPT,
    decompose_flow,
    resolve_flow,
)
from llama_index_gear.agents.t2rag.resolution import (
    Material,
    ResolutionResult,
    apply_statements,
    supporting_passages,
)
from llama_index_gear.errors import ArgumentError
from llama_index_gear.expansion.backends import Backends, embed_query_flow
from llama_index_gear.flow import Flow, RunFunction, ask, interleave
from llama_index_gear.llm.prompting import Prompts
from llama_index_gear.llm.spans import show_triples, span_flow
from llama_index_gear.nodes import llm_texts
from llama_index_gear.trace.evidence import ClueState, Slots, Step, Unknown
from llama_index_gear.trace.trace import Trace
from llama_index_gear.triple import StoredTriple, Triple, fact_key, serialize_triples

PROMPTS = {"decompose": DECOMPOSE_PROMPT, "resolve": RESOLVE_PROMPT}
"""The prompts of T²RAG, by name."""

SearchBy = Literal["triples", "passages"]
"""The target of a round's search: triples (T²RAG Alg. 2) or passages (App. B.5, "chunk-based slot-filling")."""

MAX_CLUES = 32  # of a question; further ones are left out, and the trace says so
MAX_FACTS = 200  # resolved in all rounds together
MAX_PROPOSITIONS = 100  # shown to the model in a round, the most similar ones


@dataclass
class _State:
    """The state of T²RAG between two rounds.

    Attributes:
        trace: of the question.
        bundle: the question.
        pool: the passages of all rounds.
        facts: the resolved facts.
        clues: the question's.
        supporting_passages: fact → ids of the passages that state it.
        searched: (number of a clue, proposition that it was searched by).
        rounds: unknown → the round in which it came up.
        tried: unknown → the searches for it, in order.
        propositions: of the last round.
        has_searched_question: the question itself was searched by.

    """

    trace: Trace
    bundle: QueryBundle
    pool: PassagePool
    facts: GistMemory
    clues: Clues = field(default_factory=Clues)
    supporting_passages: dict[Triple, list[str]] = field(default_factory=dict)
    searched: set[tuple[int, str]] = field(default_factory=set)
    rounds: dict[str, int] = field(default_factory=dict)
    tried: dict[str, list[str]] = field(default_factory=dict)
    propositions: list[StoredTriple] = field(default_factory=list)
    has_searched_question: bool = False


@dataclass(frozen=True)
class _Hits:
    """The hits of a round.

    Attributes:
        passage_ids: of the passages, best first.
        propositions: the triples that led to them; none where passages are searched.
        chains: passage id → the triples that first led to it.

    """

    passage_ids: list[str]
    propositions: list[StoredTriple] = field(default_factory=list)
    chains: dict[str, list[Slots]] = field(default_factory=dict)


@dataclass(kw_only=True)
class T2RAGPolicy:
    """The rounds of T²RAG, and the final ranking of their passages.

    Args:
        backends: the store and the model.
        max_steps: maximum number of rounds.
        passages: distinct passages that a round retrieves.
        search_by: "triples" or "passages".
        require_grounding: True rejects a value unless a passage that the model was shown has it, beside a name of the
            clue.
        top_k: passages to return.
        prompts: by name, as in `PROMPTS`.

    """

    backends: Backends
    max_steps: int
    passages: int
    search_by: SearchBy
    require_grounding: bool
    top_k: int
    prompts: Prompts

    def begin(self, query: QueryBundle, trace: Trace) -> _State:
        """Return the state before the first round: nothing is known but the question.

        Raises:
            ArgumentError: the question is empty.

        """
        if not trace.question:
            raise ArgumentError("the question is empty")
        return _State(trace, query, PassagePool(trace), GistMemory(MAX_FACTS))

    def step_flow(self, state: _State, record: Step) -> Flow[str]:
        """Run one round: retrieval, then resolution; the first begins with the decomposition (T²RAG Alg. 1)."""
        if record.number == 1:
            if self.search_by == "triples":
                yield from self.backends.require_vectors_flow()
            yield from self._decompose_flow(state, record)
        hits = yield from self._retrieve_flow(state, record)
        nodes = yield from self.backends.reads.get_flow(hits.passage_ids, vectors=False)
        passages = {node.node_id: node for node in nodes}
        state.pool.add(passages, hits.chains)
        state.propositions = [triple for triple in hits.propositions if triple.passage_id in state.pool.nodes]
        state.pool.lists.append(list(passages))
        state.trace.note(record, linked=trace_triples(state.propositions), passages=list(passages))
        if not passages:
            self._note_clues(state, record, record.number)
            return "nothing found" if record.number == 1 else "nothing new"
        if not state.clues.clues:
            return "no clue"
        texts = dict(zip(passages, llm_texts(passages.values()), strict=True))
        result = yield from self._resolve_flow(state, record, texts)
        return self._stop_reason(state, result)

    def finish_flow(self, state: _State) -> Flow[list[NodeWithScore]]:
        """Fuse the passages of all rounds with those that state the resolved facts, as GeAR does (GeAR Eq. 9)."""
        if not state.pool.lists:  # the budget did not allow for a round
            hits = yield from self._search_question_flow(state)
            nodes = yield from self.backends.reads.get_flow(hits.passage_ids, vectors=False)
            state.pool.add({node.node_id: node for node in nodes}, hits.chains)
            state.pool.lists.append([node.node_id for node in nodes])
        supporting = [state.supporting_passages[fact] for fact in state.facts.triples]
        return state.pool.final_ranking(self.top_k, state.facts.triples, supporting)

    def _decompose_flow(self, state: _State, record: Step) -> Flow[None]:
        """Ask for the question's clues (structured query decomposition, T²RAG §4.3, step 1)."""
        parsed = yield from decompose_flow(state.trace.question, self.prompts["decompose"])
        state.trace.note_problem(record, parsed.problem, "the question is searched as it is", unread=True)
        triples: Sequence[Triple] = parsed.value or ()
        state.clues.add(triples, 0, MAX_CLUES)
        if len(state.clues.clues) == MAX_CLUES < len(triples):
            state.trace.note_problem(record, f"{len(triples)} clues", f"the first {MAX_CLUES} are taken")
        self._note_clues(state, record, 0)

    def _retrieve_flow(self, state: _State, record: Step) -> Flow[_Hits]:
        """Search by the clues that were not searched yet, else by the question itself (T²RAG Alg. 2, App. D.3)."""
        clues = self._unsearched_clues(state)
        texts = [build_proposition(state.clues.current(clue)) for clue in clues]
        state.searched.update(zip((clue.number for clue in clues), texts, strict=True))
        for clue, text in zip(clues, texts, strict=True):
            for name in state.clues.open_unknowns_of(clue):
                state.tried.setdefault(name, []).append(text)
        if clues:
            query = "; ".join(" — ".join(serialize_triples([state.clues.current(clue)])[0]) for clue in clues)
            state.trace.note(record, query=query, searched=texts)
            if self.search_by == "passages":
                return (yield from self._search_passages_flow([QueryBundle(text) for text in texts]))
            propositions = yield from self._search_triples_flow(texts)
            if propositions:
                return _hits_of(propositions)
            state.trace.note(record, fallback="no triples: the passages are searched")
            return (yield from self._search_passages_flow([QueryBundle(text) for text in texts]))
        state.has_searched_question = True
        for name in state.clues.open_unknowns():
            state.tried.setdefault(name, []).append("the question itself")
        state.trace.note(record, query=state.trace.question, fallback="no clue to search by: the question itself")
        return (yield from self._search_question_flow(state))

    def _search_question_flow(self, state: _State) -> Flow[_Hits]:
        """Search by the question itself: triples, or passages if there are none."""
        query = yield from embed_query_flow(state.bundle)
        if self.search_by == "passages":
            return (yield from self._search_passages_flow([query]))
        propositions = yield from self._search_triples_flow([], [query.embedding or []])
        return _hits_of(propositions) if propositions else (yield from self._search_passages_flow([query]))

    def _search_triples_flow(
        self, texts: Sequence[str], embeddings: Sequence[Sequence[float]] = ()
    ) -> Flow[list[StoredTriple]]:
        search = self.backends.reads.search_flow(texts, self.passages, embeddings)
        return span_flow("triple_search", search, show_triples, queries=list(texts))

    def _search_passages_flow(self, queries: Sequence[QueryBundle]) -> Flow[_Hits]:
        """Search passages by several queries: all hits in one list, the most similar first (T²RAG App. B.5)."""
        search = interleave([self.backends.base_search_flow(query) for query in queries])
        count, texts = lambda found: sum(map(len, found)), [query.query_str for query in queries]
        answers: Sequence[list[NodeWithScore]] = yield from span_flow("base_search", search, count, queries=texts)
        best: dict[str, float] = {}
        for result in (result for answer in answers for result in answer):
            best[result.node.node_id] = max(result.score or 0.0, best.get(result.node.node_id, -1.0))
        return _Hits(sorted(best, key=lambda passage_id: -best[passage_id])[: self.passages])

    def _resolve_flow(self, state: _State, record: Step, texts: Mapping[str, str]) -> Flow[ResolutionResult]:
        """Ask what the material states about the clues, and update the state (T²RAG §4.3, steps 2.2 and 2.3)."""
        propositions = state.propositions[:MAX_PROPOSITIONS]
        parsed = yield from resolve_flow(
            state.trace.question,
            state.clues,
            state.facts.triples,
            propositions,
            texts,
            self.prompts["resolve"],
        )
        state.trace.note_problem(record, parsed.problem, "nothing was resolved", unread=True)
        resolve = partial(
            apply_statements,
            state.clues,
            parsed.value or (),
            record.number,
            MAX_CLUES,
            Material(self._material_texts(state, texts)) if self.require_grounding else None,
        )
        result: ResolutionResult
        result = yield from ask(RunFunction(resolve))
        added, left_out = state.facts.add([statement.triple for statement in result.facts])
        facts = {fact_key(slots_of(fact)): fact for fact in state.facts.triples}
        for statement in result.facts:
            fact = facts.get(fact_key(slots_of(statement.triple)))
            if fact is not None:
                known_ids = state.supporting_passages.get(fact, [])
                new_ids = supporting_passages(statement, texts, propositions)
                state.supporting_passages[fact] = list(dict.fromkeys([*known_ids, *new_ids]))
        state.trace.note(record, gist=serialize_triples(added), left_out=left_out, values=result.values)
        self._note_clues(state, record, record.number)
        for statement in result.ungrounded:
            state.trace.note_problem(record, f"no passage says: {statement.triple.text}", "it was left out")
        if result.left_out:
            state.trace.note_problem(record, f"{result.left_out} new clues", f"there are {MAX_CLUES} already")
        return replace(result, facts=[statement for statement in result.facts if statement.triple in added])

    def _material_texts(self, state: _State, texts: Mapping[str, str]) -> list[str]:
        """Return, for each passage that the model was shown, its text, its propositions, and the chain to it."""
        lines = {passage_id: [text] for passage_id, text in texts.items()}
        for passage_id, of_passage in lines.items():
            of_passage += [stored.triple.text for stored in state.propositions if stored.passage_id == passage_id]
            of_passage += [" ".join(slots) for slots in state.pool.chains.get(passage_id, [])]
        return [" ".join(of_passage) for of_passage in lines.values()]

    def _stop_reason(self, state: _State, result: ResolutionResult) -> str:
        """Return why the loop ends after this round (T²RAG §4.3, step 2.4), or "" to go on."""
        open_clues = state.clues.in_state("searchable", "fuzzy", "unconfirmed")
        if not open_clues and state.clues.in_state("resolved"):
            return "resolved"
        is_new = bool(result.facts or result.values or result.new_clues)
        can_search = bool(self._unsearched_clues(state)) or (
            bool(state.clues.in_state("fuzzy")) and not state.has_searched_question
        )
        return "" if is_new and can_search else "nothing new"

    def _unsearched_clues(self, state: _State) -> list[Clue]:
        """Return the clues to search by: searchable and unconfirmed ones that were not searched by this text yet.

        A question without unknowns has its given clues searched.
        """
        clues = state.clues.in_state("searchable", "unconfirmed")
        if not clues and not state.clues.in_state("fuzzy", "resolved"):
            clues = state.clues.in_state("given")
        texts = {clue.number: build_proposition(state.clues.current(clue)) for clue in clues}
        return [
            clue for clue in clues if texts[clue.number] and (clue.number, texts[clue.number]) not in state.searched
        ]

    def _note_clues(self, state: _State, record: Step, round: int) -> None:
        """Write the clues and the open unknowns down; unknowns that are new came up in `round`."""
        for name in state.clues.open_unknowns():
            state.rounds.setdefault(name, round)
        asked = serialize_triples(clue.triple for clue in state.clues.clues)
        current = serialize_triples(state.clues.current(clue) for clue in state.clues.clues)
        state.trace.note(
            record,
            clues=[
                ClueState(asked=before, triple=after, state=state.clues.state(clue), round=clue.round)
                for clue, before, after in zip(state.clues.clues, asked, current, strict=True)
            ],
            open=[
                Unknown(name=name, round=state.rounds[name], tried=list(state.tried.get(name, ())))
                for name in state.clues.open_unknowns()
            ],
        )


def _hits_of(propositions: list[StoredTriple]) -> _Hits:
    """Return the passages of propositions, each with the proposition that led to it first."""
    chains: dict[str, list[Slots]] = {}
    for proposition in propositions:
        chains.setdefault(proposition.passage_id, serialize_triples([proposition.triple]))
    return _Hits(list(chains), propositions, chains)
