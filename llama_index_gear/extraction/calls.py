"""The LLM calls of an extraction, one a passage, and the parsing of replies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import NamedTuple

from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.schema import BaseNode, MetadataMode

from llama_index_gear.characters import count
from llama_index_gear.errors import THOUGHT_PROBLEM, ReplyError, describe_error
from llama_index_gear.extraction.accounting import CostBudget, expected_tokens
from llama_index_gear.extraction.prompts import fit_to_schema, format_title
from llama_index_gear.extraction.schema import ALL_ALLOWED, ExtractionSchema
from llama_index_gear.flow import Reply
from llama_index_gear.llm.client import aask_once, has_timed_out, is_out_of_quota, join_replies
from llama_index_gear.llm.entity_types import read_types
from llama_index_gear.llm.escaping import escape_fences
from llama_index_gear.llm.json_scan import ScannedReply
from llama_index_gear.llm.parsing import parse_triples
from llama_index_gear.llm.prompting import ECHO_PROBLEM, drop_echoes, format_problem
from llama_index_gear.llm.responses import give_room
from llama_index_gear.llm.retries import Retries
from llama_index_gear.nodes import ExtractionRecord, Outcome
from llama_index_gear.triple import Triple


class Extraction(NamedTuple):
    """The part of a reply that is about one passage.

    Attributes:
        triples: the facts.
        outcome: the outcome.
        problem: what is wrong with the reply, in words.
        refused: number of triples that the schema refused.

    """

    triples: Sequence[Triple] = ()
    outcome: Outcome = Outcome.NO_FACTS
    problem: str = ""
    refused: int = 0


def parse_extraction(reply: Reply, schema: ExtractionSchema = ALL_ALLOWED) -> Extraction:
    """Read the reply for one passage."""
    if reply.error is not None:
        outcome = Outcome.TIMED_OUT if has_timed_out(reply) else Outcome.FAILED
        return Extraction((), outcome, describe_error(reply.error))
    if reply.refused:
        return Extraction((), Outcome.REFUSED, reply.text or "the model refused")
    if reply.is_thought:
        return Extraction((), Outcome.TRUNCATED, THOUGHT_PROBLEM)
    try:
        scanned = ScannedReply(reply.text)
        stated = parse_triples(scanned).triples
        triples, refused, note = schema.select(stated, read_types(scanned) if schema.entity_types else {})
    except ReplyError as error:
        if reply.truncated:
            return Extraction((), Outcome.TRUNCATED, f"the reply was cut off: {error}")
        return Extraction((), Outcome.UNREADABLE if reply.text.strip() else Outcome.EMPTY, str(error))
    if reply.truncated:
        cut = f"the reply was cut off after {len(stated)} triples: raise the model's max_tokens"
        return Extraction(triples, Outcome.TRUNCATED, "; ".join(filter(None, [cut, note])), refused)
    return Extraction(triples, Outcome.EXTRACTED if triples else Outcome.NO_FACTS, note, refused)


def add_reply(record: ExtractionRecord, reply: Reply, said: Extraction) -> ExtractionRecord:
    """Add one more reply to a record."""
    return replace(
        record,
        outcome=said.outcome,
        problem=said.problem,
        refused=said.refused,
        calls=record.calls + reply.calls,
        prompt_tokens=record.prompt_tokens + reply.prompt_tokens,
        completion_tokens=record.completion_tokens + reply.completion_tokens,
    )


_FORM = "1"  # version of the data read from a reply: a new one makes earlier extractions outdated


@dataclass
class Room:
    """The model with more room, once a reply of it was cut off in its thoughts; None before."""

    llm: LLM | None = None


@dataclass(frozen=True)
class PassageCalls:
    """The LLM calls of a `GeARTripleExtractor`, with its settings.

    `cost_budget` counts their cost, and `room` keeps how much room the model needs.
    """

    llm: LLM
    extract_prompt: BasePromptTemplate
    max_retries: int
    cost_budget: CostBudget
    room: Room
    schema: ExtractionSchema

    def fingerprint(self) -> str:
        """Return the fingerprint of the model, wherever it is served, of its prompts and the schema."""
        template = self.extract_prompt.get_template(llm=self.llm)
        settings = (getattr(self.llm, name, None) for name in ("temperature", "system_prompt"))
        about = [self.llm.class_name(), self.llm.metadata.model_name, template, _FORM]
        if self.schema != ALL_ALLOWED:
            about.append(json.dumps(astuple(self.schema)))
        return hashlib.sha256("\0".join([*about, *map(str, settings)]).encode()).hexdigest()

    def text_and_title(self, node: BaseNode) -> tuple[str, str]:
        """Return text and title of a passage."""
        return node.get_content(metadata_mode=MetadataMode.NONE), str(node.metadata.get("title") or "")

    def expected_tokens(self, node: BaseNode) -> tuple[int, int]:
        """Return the expected prompt and completion tokens of a call."""
        prompt = self._prompt.format(llm=self.llm, **self._variables(node))
        return expected_tokens(prompt, self.text_and_title(node)[0])

    async def extract(self, node: BaseNode) -> tuple[Sequence[Triple], ExtractionRecord]:
        """Extract a passage; ask a second time if the reply can't be read."""
        record, said = ExtractionRecord(Outcome.OVER_BUDGET), Extraction(outcome=Outcome.OVER_BUDGET)
        for _ in range(2):
            reply = await self._call_llm(node, said.problem)
            if reply is None:
                if said.outcome is Outcome.OVER_BUDGET:
                    outcome, problem = self.cost_budget.end
                    record = replace(record, outcome=outcome, problem=problem)
                break
            said = self._drop_echoes(node, parse_extraction(reply, self.schema))
            record = add_reply(record, reply, said)
            if said.outcome not in (Outcome.UNREADABLE, Outcome.EMPTY):
                break
        return said.triples, record

    def _drop_echoes(self, node: BaseNode, said: Extraction) -> Extraction:
        """Leave out what a reply copied from the prompt's example; a reply of nothing else counts as unreadable."""
        own = drop_echoes(said.triples, self._prompt, [" ".join(self.text_and_title(node))])
        if len(own) == len(said.triples):
            return said
        if not own:
            return Extraction((), Outcome.UNREADABLE, ECHO_PROBLEM)
        left_out = f"{count(len(said.triples) - len(own), 'triple')} of the prompt's example left out"
        return said._replace(triples=own, problem="; ".join(filter(None, [said.problem, left_out])))

    async def _call_llm(self, node: BaseNode, problem: str = "") -> Reply | None:
        """Call the model and return the reply; None if it would cost more than is left, or no quota is.

        A reply that is cut off in its thoughts is asked for once more, with more room. Later calls have this room too.
        """
        llm = self.room.llm or self.llm
        reply = await self._call_once(llm, node, problem)
        roomy = None if reply is None or llm is not self.llm else give_room(llm, reply)
        again = None if roomy is None else await self._call_once(roomy, node, problem)
        if reply is None or again is None:
            return reply
        if again.error is None:
            self.room.llm = roomy
        return join_replies(reply, again)

    async def _call_once(self, llm: LLM, node: BaseNode, problem: str) -> Reply | None:
        expected = (0, 0) if self.cost_budget.ceiling is None else self.expected_tokens(node)
        call = object()
        try:
            if not self.cost_budget.reserve(call, *expected):
                return None
            reply = await aask_once(llm, self._prompt, self._variables(node, problem), Retries(self.max_retries))
            self.cost_budget.spend(reply.calls, reply.prompt_tokens, reply.completion_tokens)
            self.cost_budget.note_call(is_out_of_quota=is_out_of_quota(reply))
        finally:
            self.cost_budget.reserved.pop(call, None)  # a single C call: no interrupt comes between
        return reply

    @property
    def _prompt(self) -> BasePromptTemplate:
        return fit_to_schema(self.extract_prompt, self.schema)

    def _variables(self, node: BaseNode, problem: str = "") -> dict[str, str]:
        text, title = self.text_and_title(node)
        own = {"title": format_title(title), "passage": escape_fences(text), "problem": format_problem(problem)}
        return {**self.schema.variables, **own}
