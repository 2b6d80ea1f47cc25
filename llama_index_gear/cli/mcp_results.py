"""Results of the tools of `serving`, as data and as text. Nothing here takes seconds to import."""

from __future__ import annotations

from pydantic import BaseModel, Field

from llama_index_gear.characters import count, escape_line
from llama_index_gear.llm.escaping import escape_id, escape_lines, format_result

MAX_PASSAGES = 20
"""Upper limit of the passages that a search returns."""


class Passage(BaseModel):
    """A passage that was found."""

    id: str = Field(description="the passage's id, for explain and delete")
    document: str = Field(description="the id of the document that it is of")
    title: str
    text: str = Field(description="ends in … if it was shortened; explain shows more of it")
    chain: list[list[str]] = Field(description="the facts that lead to it: subject, predicate, object; [] if none")

    def format(self, number: int) -> str:
        """Return the passage as text, under its number."""
        return format_result(number, self.title or self.document, self.id, self.chain, self.text)


class Passages(BaseModel):
    """The passages that a search found, best first."""

    passages: list[Passage]

    def format(self) -> str:
        """Return the passages as text."""
        shown = [passage.format(number) for number, passage in enumerate(self.passages, start=1)]
        return "\n\n".join(shown) or "Nothing was found."


class Citation(BaseModel):
    """A passage that an answer cites."""

    number: int
    id: str
    title: str


class Answer(BaseModel):
    """An agent's answer."""

    answer: str = Field(description="[1] in it cites the citation of that number")
    citations: list[Citation]
    facts: list[list[str]] = Field(description="facts that the agent noted: subject, predicate, object")
    stopped: str = Field(description="why the search ended; 'answered' if it found what it needs")
    model_calls: int

    def format(self) -> str:
        """Return the answer as text, with the passages that it cites."""
        cited = [format_result(citation.number, citation.title, citation.id) for citation in self.citations]
        return "\n".join([escape_lines(self.answer), *cited])


class Explanation(BaseModel):
    """Why a passage stands where it does among those that were found for a question."""

    rank: int | None = Field(description="its place, from 1; null: neither search nor graph found it")
    passage: Passage
    lists: dict[str, int] = Field(description="its rank in each list that has it: dense, bm25, pagerank")
    reasons: list[str] = Field(description="what placed it, most important first")

    def format(self) -> str:
        """Return the explanation as text."""
        place = "Neither search nor graph found it for this question." if self.rank is None else f"Rank {self.rank}."
        reasons = [f"- {escape_lines(escape_line(reason))}" for reason in self.reasons]
        return "\n".join([place, *reasons, "", self.passage.format(self.rank or 0)])


class Written(BaseModel):
    """The passages that a tool wrote into the store, or deleted from it."""

    document: str
    added: int = Field(default=0, description="passages that were written")
    deleted: int = Field(default=0, description="passages that were deleted")
    note: str = ""

    def format(self) -> str:
        """Return what was done as text."""
        passages = {"added": self.added, "deleted": self.deleted}
        done = [f"{count(number, 'passage')} {verb}" for verb, number in passages.items() if number]
        return f"{escape_id(self.document)}: {', '.join(done)}." + (f" {self.note}" if self.note else "")
