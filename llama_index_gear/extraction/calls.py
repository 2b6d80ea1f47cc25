"""The LLM calls of an extraction, for one passage or several: grouping, and the parsing of replies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from typing import NamedTuple

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import BaseModel
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.schema import BaseNode, MetadataMode

from llama_index_gear.characters import count
from llama_index_gear.errors import THOUGHT_PROBLEM, ReplyError, describe_error
from llama_index_gear.extraction.accounting import CostBudget, expected_tokens
from llama_index_gear.extraction.prompts import (
    EXTRACT_SEVERAL_PROMPT,
    fit_to_schema,
    format_passages,
    format_title,
)
from llama_index_gear.extraction.schema import ALL_ALLOWED, ExtractionSchema, Selected
from llama_index_gear.flow import Reply
from llama_index_gear.llm.client import (
    ModelNotes,
    ask_for_facts,
    has_timed_out,
    is_out_of_quota,
    is_repeatable,
    join_replies,
    offers_functions,
)
from llama_index_gear.llm.entity_types import read_numbered_types, read_types
from llama_index_gear.llm.escaping import escape_fences
from llama_index_gear.llm.json_scan import ScannedReply
from llama_index_gear.llm.parsing import parse_numbered, parse_triples
from llama_index_gear.llm.prompting import ECHO_PROBLEM, drop_echoes, format_problem
from llama_index_gear.llm.responses import give_room
from llama_index_gear.llm.retries import Retries
from llama_index_gear.nodes import ExtractionRecord, Outcome
from llama_index_gear.triple import Triple, contains_entity, entity_key


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


def group_into_calls(passages: Sequence[tuple[str, ExtractionRecord | None, str]], size: int) -> list[list[int]]:
    """Group passages into LLM calls, as lists of positions.

    New passages are grouped by tenant, neighbors together. Passages whose shared call failed are retried together and
    in the same order, so that a pending batch (see `OpenAIBatch`) can still answer them. A passage that failed alone is
    retried alone.

    Args:
        passages: (fingerprint, record of the last run, tenant) of each passage.
        size: highest number of passages in a call.

    """
    new: dict[str, list[int]] = {}
    shared: dict[str, list[int]] = {}
    alone: list[list[int]] = []
    for position, (key, record, tenant) in enumerate(passages):
        if record is not None and record.key == key and record.shared_call_id:
            shared.setdefault(record.shared_call_id, []).append(position)
        elif record is None or record.key != key or record.outcome.is_left_out:
            new.setdefault(tenant, []).append(position)
        else:
            alone.append([position])
    calls = [
        positions[start : start + size]
        for positions in (*new.values(), *shared.values())
        for start in range(0, len(positions), size)
    ]
    return [sorted(call, key=lambda position: passages[position][0]) for call in calls] + alone


def group_into_pages(passages: Sequence[tuple[str, str]], size: int) -> list[list[str]]:
    """Group passage ids into pages of about `size`; passages that shared a call stay on one page.

    Args:
        passages: (passage id, `shared_call_id` of its record) of each passage.
        size: number of passages on a page; a single call with more makes a longer page.

    """
    calls: dict[tuple[str, str], list[str]] = {}
    for passage_id, call_id in passages:
        calls.setdefault((call_id, "" if call_id else passage_id), []).append(passage_id)
    pages: list[list[str]] = []
    for passage_ids in calls.values():
        if not pages or len(pages[-1]) + len(passage_ids) > size:
            pages.append([])
        pages[-1] += passage_ids
    return pages


def parse_shared_extraction(
    reply: Reply, passages: Sequence[tuple[str, str]], keys: Sequence[str], schema: ExtractionSchema = ALL_ALLOWED
) -> list[tuple[Sequence[Triple], ExtractionRecord]]:
    """Return the triples and the record of each passage of a shared call, given as (text, title).

    A passage that the reply does not cover reliably gets the record of a failure. A triple is dropped as another
    passage's, or made up, if neither of its ends stands in the passage or its title, or if one end stands only in
    another passage of the call. (Of GPT-3.5's 116,957 triples of MuSiQue's and HotpotQA's passages, made one passage a
    call, 263 or 0.2 % would be dropped with five neighbors a call.) Of the others the schema refuses some. The call's
    tokens are divided evenly among the passages; its number of tries is counted with the first one.
    """
    parsed: dict[int, tuple[Triple, ...]] = {}
    types: dict[int, dict[str, str]] = {}
    failure = ExtractionRecord(Outcome.UNREADABLE, "the reply for several passages does not say what this one states")
    if reply.error is not None and is_repeatable(reply):
        said = parse_extraction(reply)
        call_id = hashlib.sha256("".join(sorted(keys)).encode()).hexdigest()[:16]
        failure = ExtractionRecord(said.outcome, said.problem, shared_call_id=call_id)
    elif reply.error is None and not reply.refused:
        with suppress(ReplyError):  # of a reply that is too long
            scanned = ScannedReply(reply.text)
            parsed = parse_numbered(scanned, len(passages))
            types = read_numbered_types(scanned) if schema.entity_types else {}
        if reply.truncated and parsed:  # the entry that was cut may look whole, since clients close the brackets
            parsed.popitem()
    results: list[tuple[Sequence[Triple], ExtractionRecord]] = []
    texts = [entity_key(f"{title} {text}") for text, title in passages]
    for number, own in enumerate(texts, start=1):
        stated = parsed.get(number)
        triples = [triple for triple in stated or () if _belongs_to(triple, own, texts)]
        selected = _try_select(schema, triples, types.get(number, {}))
        record = failure
        if stated is not None and bool(stated) == bool(triples) and selected is not None:
            left_out = len(stated) - len(triples)
            problem = f"{count(left_out, 'triple')} left out, not of this passage" if left_out else ""
            record = ExtractionRecord(
                Outcome.EXTRACTED if selected.triples else Outcome.NO_FACTS,
                "; ".join(filter(None, [problem, selected.problem])),
                refused=selected.refused,
            )
        record = replace(
            record,
            calls=reply.calls if number == 1 else 0,
            prompt_tokens=_split_tokens(reply.prompt_tokens, number, len(passages)),
            completion_tokens=_split_tokens(reply.completion_tokens, number, len(passages)),
        )
        results.append((selected.triples if selected else (), record))
    return results


def _try_select(schema: ExtractionSchema, triples: Sequence[Triple], types: Mapping[str, str]) -> Selected | None:
    """Return the triples that the schema allows; None if no types can be read."""
    try:
        return schema.select(triples, types)
    except ReplyError:
        return None


def _belongs_to(triple: Triple, own: str, texts: Sequence[str]) -> bool:
    """Return True if the triple may come from its own text, and not from another of the texts or from none."""
    missing = [entity for entity in triple.entities if not contains_entity(own, entity)]
    return len(missing) < len(triple.entities) and not any(
        contains_entity(text, entity) for entity in missing for text in texts
    )


def _split_tokens(tokens: int, number: int, passages: int) -> int:
    """Return the tokens of the number-th passage; all parts add up to `tokens`."""
    return tokens * number // passages - tokens * (number - 1) // passages


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


@dataclass(frozen=True)
class PassageCalls:
    """The LLM calls of a `GeARTripleExtractor`, with its settings.

    `cost_budget` counts their cost, and `notes` keeps whether the model takes tools, and how much room it needs.
    """

    llm: LLM
    extract_prompt: BasePromptTemplate
    structured: bool | None
    max_retries: int
    cost_budget: CostBudget
    notes: ModelNotes
    schema: ExtractionSchema

    def fingerprint(self) -> str:
        """Return the fingerprint of the model, wherever it is served, of its prompts and the schema."""
        template = self.extract_prompt.get_template(llm=self.llm)
        settings = (getattr(self.llm, name, None) for name in ("temperature", "system_prompt"))
        about = [self.llm.class_name(), self.llm.metadata.model_name, template, str(self.structured), _FORM]
        if self.schema != ALL_ALLOWED:
            about.append(json.dumps(astuple(self.schema)))
        return hashlib.sha256("\0".join([*about, *map(str, settings)]).encode()).hexdigest()

    def text_and_title(self, node: BaseNode) -> tuple[str, str]:
        """Return text and title of a passage."""
        return node.get_content(metadata_mode=MetadataMode.NONE), str(node.metadata.get("title") or "")

    def expected_tokens(self, nodes: Sequence[BaseNode]) -> tuple[int, int]:
        """Return the expected prompt and completion tokens of a call."""
        prompt = "\n".join(message.content or "" for message in self._messages(nodes))
        return expected_tokens(prompt, [self.text_and_title(node)[0] for node in nodes], form=self._form(nodes))

    async def extract(
        self, nodes: Sequence[BaseNode], keys: Sequence[str]
    ) -> list[tuple[Sequence[Triple], ExtractionRecord]]:
        """Extract passages in one shared call, and then alone each passage that its reply does not cover."""
        shared = await self._call_llm(nodes) if len(nodes) > 1 else None
        if shared is None:  # there is one passage, or the shared call costs more than is left, which may do for one
            return [await self._extract_alone(node, ExtractionRecord(Outcome.OVER_BUDGET)) for node in nodes]
        results = parse_shared_extraction(shared, [self.text_and_title(node) for node in nodes], keys, self.schema)
        return [
            await self._extract_alone(node, record, is_retry=shared.error is None)
            if record.outcome.failure and not record.shared_call_id
            else (triples, record)
            for node, (triples, record) in zip(nodes, results, strict=True)
        ]

    async def _extract_alone(
        self, node: BaseNode, record: ExtractionRecord, *, is_retry: bool = False
    ) -> tuple[Sequence[Triple], ExtractionRecord]:
        """Extract one passage; ask a second time if the reply can't be read. `record` holds what was spent before."""
        said = Extraction(outcome=Outcome.OVER_BUDGET)
        for _ in range(2):
            reply = await self._call_llm([node], said.problem)
            if reply is None:
                if said.outcome is Outcome.OVER_BUDGET:
                    outcome, problem = self.cost_budget.end
                    record = replace(record, outcome=outcome, problem=problem)
                break
            said = self._drop_echoes(node, parse_extraction(reply, self.schema))
            record = replace(add_reply(record, reply, said), retried_alone=is_retry)
            if said.outcome not in (Outcome.UNREADABLE, Outcome.EMPTY):
                break
        return said.triples, record

    def _drop_echoes(self, node: BaseNode, said: Extraction) -> Extraction:
        """Leave out what a reply copied from the prompt's example; a reply of nothing else counts as unreadable."""
        own = drop_echoes(said.triples, self._alone_prompt, [" ".join(self.text_and_title(node))])
        if len(own) == len(said.triples):
            return said
        if not own:
            return Extraction((), Outcome.UNREADABLE, ECHO_PROBLEM)
        left_out = f"{count(len(said.triples) - len(own), 'triple')} of the prompt's example left out"
        return said._replace(triples=own, problem="; ".join(filter(None, [said.problem, left_out])))

    async def _call_llm(self, nodes: Sequence[BaseNode], problem: str = "") -> Reply | None:
        """Call the model and return the reply; None if it would cost more than is left, or no quota is.

        A reply that is cut off in its thoughts is asked for once more, with more room. Later calls have this room too.
        """
        llm = self.notes.roomy or self.llm
        reply = await self._call_once(llm, nodes, problem)
        roomy = None if reply is None or llm is not self.llm else give_room(llm, reply)
        again = None if roomy is None else await self._call_once(roomy, nodes, problem)
        if reply is None or again is None:
            return reply
        if again.error is None:
            self.notes.roomy = roomy
        return join_replies(reply, again)

    async def _call_once(self, llm: LLM, nodes: Sequence[BaseNode], problem: str) -> Reply | None:
        expected = (0, 0) if self.cost_budget.ceiling is None else self.expected_tokens(nodes)
        call = object()
        try:
            if not self.cost_budget.reserve(call, *expected):
                return None
            reply = await ask_for_facts(
                llm,
                self._messages(nodes, problem),
                output_cls=self._form(nodes),
                notes=self.notes,
                retries=Retries(self.max_retries),
            )
            self.cost_budget.spend(reply.calls, reply.prompt_tokens, reply.completion_tokens)
            self.cost_budget.note_call(is_out_of_quota=is_out_of_quota(reply))
        finally:
            self.cost_budget.reserved.pop(call, None)  # a single C call: no interrupt comes between
        return reply

    @property
    def _alone_prompt(self) -> BasePromptTemplate:
        return fit_to_schema(self.extract_prompt, self.schema)

    def _messages(self, nodes: Sequence[BaseNode], problem: str = "") -> list[ChatMessage]:
        passages = [self.text_and_title(node) for node in nodes]
        if len(nodes) > 1:
            several = fit_to_schema(EXTRACT_SEVERAL_PROMPT, self.schema)
            return several.format_messages(llm=self.llm, **self.schema.variables, **format_passages(passages))
        ((text, title),) = passages
        variables = {"title": format_title(title), "passage": escape_fences(text), "problem": format_problem(problem)}
        return self._alone_prompt.format_messages(llm=self.llm, **self.schema.variables, **variables)

    def _form(self, nodes: Sequence[BaseNode]) -> type[BaseModel] | None:
        """Return the form of the structured output; None for text."""
        if not (offers_functions(self.llm) if self.structured is None else self.structured):
            return None
        return self.schema.form(is_shared=len(nodes) > 1)
