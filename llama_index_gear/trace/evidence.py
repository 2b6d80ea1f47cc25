"""The evidence of a question, step by step, as plain JSON: queries, passages, triples, facts, verdicts and calls."""

from __future__ import annotations

from typing import Any

from llama_index.core.bridge.pydantic import BaseModel, Field

Slots = list[str]
"""A triple as JSON has it: `[subject, predicate, object]`."""

VERIFY = "verify"
"""The purpose of the calls that check an answer."""


class Call(BaseModel):
    """One call of the language model.

    Attributes:
        step: number of its step, from 1; 0 if it checks the answer after the steps.
        purpose: "read", "gist", "reason", "rewrite", "verify", …
        tries: how often it was made: again after an error that may pass, and with more room for thoughts.
        prompt_tokens: as the model's client counts them, else by LlamaIndex's tokenizer.
        completion_tokens: likewise.
        ms: duration in milliseconds.
        error: the exception that ended it; empty if there was a reply.
        unreadable: True if there was a reply, and it could not be read.

    """

    step: int
    purpose: str
    tries: int = 1
    prompt_tokens: int = 0
    completion_tokens: int = 0
    ms: float = 0.0
    error: str = ""
    unreadable: bool = False


class Linked(BaseModel):
    """A stored triple that a step's beam search started from.

    Attributes:
        triple: the stored triple.
        passage_id: the passage that states it.
        score: its cosine with the step's query.

    """

    triple: Slots
    passage_id: str
    score: float


class Misaligned(BaseModel):
    """A link from a fact to a triple of an external graph that was dropped, since the two are about different things.

    Attributes:
        fact: the reader's fact.
        triple: the graph's triple that it was linked to.
        shared: the share of a name that the two have in common, from 0 to 1; half is too little.

    """

    fact: Slots
    triple: Slots
    shared: float


class Walked(BaseModel):
    """A beam: a chain of stored triples and the passages that they lead to.

    Attributes:
        score: of all its triples, penalties included (GeAR Alg. 1).
        chain: its triples, in order.
        passage_ids: the passage of each triple.

    """

    score: float
    chain: list[Slots]
    passage_ids: list[str]


class ClueState(BaseModel):
    """A clue of the question after a round (T²RAG §4.3).

    Attributes:
        asked: the clue as it came up, with its unknowns.
        triple: the clue with the known values filled in.
        state: "resolved" (the material stated it), "searchable" (one unknown), "fuzzy" (several unknowns), "given" (it
            came up without an unknown, and nothing has stated it) or "unconfirmed" (other clues filled its unknowns,
            and nothing has stated it).
        round: the round in which it came up; 0 for the question's own.

    """

    asked: Slots
    triple: Slots
    state: str
    round: int


class Unknown(BaseModel):
    """An unknown that is open after a round (T²RAG App. E.2, structured variable locking).

    Attributes:
        name: `?…`.
        round: the round in which it came up; 0 for the question's own.
        tried: the searches for it, in order.

    """

    name: str
    round: int
    tried: list[str]


class Step(BaseModel):
    """One step of an agent, or round of T²RAG. Fields that a step did not reach, or does not have, are empty.

    Attributes:
        number: from 1.
        query: the step's query.
        base: ids of the base passages, best first.
        proximal: the facts that the reader noted in them (GeAR Eq. 1).
        linked: the stored triples that the beam search started from (GeAR Eq. 2). T²RAG: the propositions (Alg. 2).
        misaligned: links to an external graph that were dropped.
        fallback: GeAR: why the beam search started from the base passages' own triples although there is a reader;
            with an external graph, why there was no expansion. T²RAG: why the round did not search by clues.
        beams: of the beam search, best first.
        pagerank: ids of the passages that PageRank ranks first; empty without it.
        passages: ids of base and expanded passages, fused, best first (GeAR Eq. 3).
        gist: the facts that were new to the gist memory (GeAR Eq. 4). T²RAG: the facts that were resolved (§4.3).
        left_out: number of facts that were left out because the gist memory is full.
        answerable: the reasoner's verdict (GeAR Eq. 6); None if it gave none.
        answer: the reasoner's answer.
        reason: why the gist does not answer the question.
        next_query: the rewritten query (GeAR Eq. 7).
        ranked: external graph: ids of the passages that the filter kept, best first (Millions of GeAR-s Eq. 6); None if
            it was not asked.
        shown: of `GeARRetriever`: number of passages that the reader was shown: the first of `passages`.
        shortened: of `GeARRetriever`: ids of those that it was shown shortened.
        needed: of `GeARRetriever`: ids of the passages that the reader named, most needed first; None if its reply
            could not be read, or it was not asked.
        searched: T²RAG: the propositions that were searched by.
        values: T²RAG: unknown → value, of the unknowns that were resolved.
        clues: T²RAG: the clues after the round.
        open: T²RAG: the unknowns that are open after the round.
        problems: replies of the model that could not be read, with the consequence.

    """

    number: int
    query: str = ""
    base: list[str] = Field(default_factory=list)
    proximal: list[Slots] = Field(default_factory=list)
    linked: list[Linked] = Field(default_factory=list)
    misaligned: list[Misaligned] = Field(default_factory=list)
    fallback: str = ""
    beams: list[Walked] = Field(default_factory=list)
    pagerank: list[str] = Field(default_factory=list)
    passages: list[str] = Field(default_factory=list)
    gist: list[Slots] = Field(default_factory=list)
    left_out: int = 0
    answerable: bool | None = None
    answer: str = ""
    reason: str = ""
    next_query: str = ""
    ranked: list[str] | None = None
    shown: int = 0
    shortened: list[str] = Field(default_factory=list)
    needed: list[str] | None = None
    searched: list[str] = Field(default_factory=list)
    values: dict[str, str] = Field(default_factory=dict)
    clues: list[ClueState] = Field(default_factory=list)
    open: list[Unknown] = Field(default_factory=list)
    problems: list[str] = Field(default_factory=list)

    def compact(self, stopped: str = "") -> dict[str, Any]:
        """Return a summary as flat JSON, for tracers. `stopped`: why the loop ends after this step, or ""."""
        summary = {
            "query": self.query,
            "passages": (self.passages or self.base)[:10],
            "needed": self.needed,
            "gist": [" ".join(slots) for slots in self.gist],
            "answer": self.answer,
            "reason": self.reason,
            "next_query": self.next_query,
            "fallback": self.fallback,
            "problems": self.problems,
            "stopped": stopped,
        }
        return {name: value for name, value in summary.items() if value}


class PassageLink(BaseModel):
    """A fact of the gist memory and the passages that it is linked to (GeAR Eq. 8).

    Attributes:
        triple: the fact.
        passages: ids, best first.

    """

    triple: Slots
    passages: list[str]


class Source(BaseModel):
    """A passage of the final list, and the reasons for its rank.

    Attributes:
        passage_id: the node's id.
        title: the passage's title; without one, its `file_name` and the beginning of its text.
        text: of the passage, as a language model is shown it.
        score: of the final fusion (GeAR Eq. 9).
        ranks: name of a list → the passage's rank there, from 1: "step 1", "fact 2" (the gist's second fact),
            "needed" (the passages that the reader named), …
        chain: the stored triples that lead to it; empty if only the base retriever returned it.

    """

    passage_id: str
    title: str
    text: str
    score: float
    ranks: dict[str, int]
    chain: list[Slots]


class Check(BaseModel):
    """One question of an answer's verification: does it follow from these passages alone?

    Attributes:
        passages: their ids, most needed first.
        without: id of the passage that was left out; empty if none was.
        follows: the verdict; None if it could not be read.
        missing: what no passage states, if the answer doesn't follow; empty if the model did not say.
        problem: why the verdict could not be read.

    """

    passages: list[str]
    without: str = ""
    follows: bool | None = None
    missing: str = ""
    problem: str = ""


class Evidence(BaseModel):
    """The record of a question, from its first search to its passages.

    Attributes:
        question: as asked.
        steps: in order; T²RAG: its rounds.
        links: for each fact of the gist memory, in order, the passages that it is linked to. T²RAG: the passages that
            state it.
        passages: the final list, best first.
        titles: passage id → title, of the passages of all steps.
        calls: the language model's calls, in order.
        stopped: why the steps ended: "answered", "max_steps", "repeated query", "no further query", "one call",
            "nothing found", "sufficient", "resolved", "nothing new", "no clue", "max_llm_calls", "max_tokens",
            "timeout", or "failed: …".
        answer: the reasoner's answer; empty if it gave none.
        response: the query engine's, with its citations, such as `[2]`; empty if only a retriever was asked, and until
            a stream of the engine's synthesizer is read to its end.
        citations: the response's: number → id of the cited passage.
        unanswered: True if the model's answer was empty, and the response names the passages in its place.
        checks: the questions of the response's verification, in order.
        supporting: ids of the passages from which alone the response still follows, most needed first; empty if no such
            passages are known.
        verification: how the verification ended. "supported": the response follows from `supporting`, and each of these
            passages was left out once. "unsupported": it follows from none of the passages. "no answer", "no passage":
            there was nothing to check. "max_llm_calls", "max_tokens", "timeout", "failed: …": it ended early, and
            `supporting` may hold more than is needed. Empty if none was asked for.
        ms: duration from question to passages, in milliseconds.

    """

    question: str
    steps: list[Step] = Field(default_factory=list)
    links: list[PassageLink] = Field(default_factory=list)
    passages: list[Source] = Field(default_factory=list)
    titles: dict[str, str] = Field(default_factory=dict)
    calls: list[Call] = Field(default_factory=list)
    stopped: str = ""
    answer: str = ""
    response: str = ""
    citations: dict[str, str] = Field(default_factory=dict)
    unanswered: bool = False
    checks: list[Check] = Field(default_factory=list)
    supporting: list[str] = Field(default_factory=list)
    verification: str = ""
    ms: float = 0.0

    @property
    def llm_calls(self) -> int:
        """The number of calls of the language model, failed ones and retries included."""
        return sum(call.tries for call in self.calls)

    @property
    def prompt_tokens(self) -> int:
        """The number of tokens of all prompts."""
        return sum(call.prompt_tokens for call in self.calls)

    @property
    def completion_tokens(self) -> int:
        """The number of tokens of all replies."""
        return sum(call.completion_tokens for call in self.calls)

    @property
    def warning(self) -> str:
        """A warning that no reply of the language model could be read, or that it gave no answer; else empty.

        Rewritten queries don't count, since any line of prose is read as one; nor do checks of the answer, which find
        no passage.
        """
        replies = [call for call in self.calls if not call.error and call.purpose not in ("rewrite", VERIFY)]
        if not replies or not all(call.unreadable for call in replies):
            return "the language model gave no answer: the passages stand in its place" if self.unanswered else ""
        return (
            f"none of the language model's replies ({len(replies)}) could be read: the passages were found without "
            "them; the problems of the steps say why"
        )

    @property
    def passage_ids(self) -> list[str]:
        """The ids of the final list, best first."""
        return [source.passage_id for source in self.passages]

    @property
    def gist(self) -> list[Slots]:
        """The gist memory: the facts that all steps noted, in order."""
        return [slots for step in self.steps for slots in step.gist]

    @property
    def open(self) -> list[str]:
        """The unknowns of T²RAG's clues that are open after the last round."""
        rounds = [step for step in self.steps if step.clues]
        return [unknown.name for unknown in rounds[-1].open] if rounds else []

    def compact(self) -> dict[str, Any]:
        """Return a summary as flat JSON, for `response.metadata`."""
        verified = {"gear_supporting": self.supporting, "gear_verification": self.verification}
        return {
            "gear_warning": self.warning,
            "gear_stopped": self.stopped,
            "gear_answer": self.answer,
            "gear_cited": list(self.citations.values()),
            **(verified if self.verification else {}),
            "gear_queries": [step.query for step in self.steps],
            "gear_gist": self.gist,
            "gear_open": self.open,
            "gear_llm_calls": self.llm_calls,
            "gear_prompt_tokens": self.prompt_tokens,
            "gear_completion_tokens": self.completion_tokens,
            "gear_problems": [problem for step in self.steps for problem in step.problems],
            "gear_ms": round(self.ms, 1),
        }
