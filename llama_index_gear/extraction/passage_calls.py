"""Calls of a language model for the facts of passages: what they show, what they will cost, what came of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import BaseModel
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.schema import BaseNode, MetadataMode

from llama_index_gear.extraction.accounting import ExtractionRecord, Outcome
from llama_index_gear.extraction.calls import (
    EXTRACT_SEVERAL_PROMPT,
    add_reply,
    parse_extraction,
    parse_shared_extraction,
    shown_title,
    shown_together,
)
from llama_index_gear.extraction.cost import CostBudget, expected_tokens
from llama_index_gear.llm.client import (
    PassageFacts,
    PassagesFacts,
    Reply,
    ask_for_facts,
    complaint,
    offers_functions,
    unfenced,
)
from llama_index_gear.triple import Triple

_FORM = "1"  # of what is read from a reply: another one makes what was extracted so far outdated


@dataclass(frozen=True)
class PassageCalls:
    """Asks as a `GeARTripleExtractor` is set, whose arguments these are; `purse` pays."""

    llm: LLM
    extract_prompt: BasePromptTemplate
    extract_several_prompt: BasePromptTemplate
    structured: bool | None
    title_key: str
    max_retries: int
    retry_backoff: float
    purse: CostBudget

    def fingerprint(self) -> str:
        """What tells this model, and what it is asked, from others."""
        template = self.extract_prompt.get_template(llm=self.llm)
        settings = (getattr(self.llm, name, None) for name in ("temperature", "system_prompt", "api_base"))
        about = [self.llm.class_name(), self.llm.metadata.model_name, template, str(self.structured), _FORM]
        several = self.extract_several_prompt.get_template(llm=self.llm)
        if several != EXTRACT_SEVERAL_PROMPT.get_template():  # how many share a call does not matter
            about.append(several)
        return hashlib.sha256("\0".join([*about, *map(str, settings)]).encode()).hexdigest()

    def shown(self, node: BaseNode) -> tuple[str, str]:
        """Text and title of a passage."""
        return node.get_content(metadata_mode=MetadataMode.NONE), str(node.metadata.get(self.title_key) or "")

    def expected_tokens(self, nodes: Sequence[BaseNode]) -> tuple[int, int]:
        """Prompt and completion tokens of a call."""
        prompt = "\n".join(message.content or "" for message in self._messages(nodes))
        return expected_tokens(prompt, [self.shown(node)[0] for node in nodes], form=self._form(nodes))

    async def ask(
        self, nodes: Sequence[BaseNode], keys: Sequence[str]
    ) -> list[tuple[Sequence[Triple], ExtractionRecord]]:
        """What the model says of each passage: of several together first, then of those alone of which it didn't."""
        over_budget = ExtractionRecord(
            Outcome.OVER_BUDGET, f"more than max_cost={self.purse.ceiling} would have been spent"
        )
        shared = await self._reply(nodes) if len(nodes) > 1 else None
        if shared is None:  # too dear, perhaps, for what is left, which may do for one
            return [await self._ask_alone(node, over_budget) for node in nodes]
        told = parse_shared_extraction(shared, [self.shown(node) for node in nodes], keys)
        return [
            await self._ask_alone(
                node,
                replace(record, outcome=over_budget.outcome, problem=over_budget.problem),
                again=shared.error is None,
            )
            if record.outcome.failure and not record.shared_call_id
            else (found, record)
            for node, (found, record) in zip(nodes, told, strict=True)
        ]

    async def _ask_alone(
        self, node: BaseNode, record: ExtractionRecord, *, again: bool = False
    ) -> tuple[Sequence[Triple], ExtractionRecord]:
        """One reply, and a second if the first can't be read; what was spent before is counted in the record."""
        triples: Sequence[Triple] = ()
        complained = ""
        for _ in range(2):
            reply = await self._reply([node], complained)
            if reply is None:
                break
            triples, outcome, complained = parse_extraction(reply)
            record = replace(add_reply(record, reply, outcome, complained), retried_alone=again)
            if outcome not in (Outcome.UNREADABLE, Outcome.EMPTY):
                break
        return triples, record

    async def _reply(self, nodes: Sequence[BaseNode], problem: str = "") -> Reply | None:
        """The model's; None if it would cost more than is left."""
        expected = (0, 0) if self.purse.ceiling is None else self.expected_tokens(nodes)
        call = object()
        try:
            if not self.purse.reserve(call, *expected):
                return None
            reply = await ask_for_facts(
                self.llm,
                self._messages(nodes, problem),
                form=self._form(nodes),
                max_retries=self.max_retries,
                retry_backoff=self.retry_backoff,
            )
            self.purse.spend(reply.prompt_tokens, reply.completion_tokens)
        finally:
            self.purse.reserved.pop(call, None)  # a single call of C, as in `turns`: no interrupt comes before it
        return reply

    def _messages(self, nodes: Sequence[BaseNode], problem: str = "") -> list[ChatMessage]:
        shown = [self.shown(node) for node in nodes]
        if len(nodes) > 1:
            return self.extract_several_prompt.format_messages(llm=self.llm, **shown_together(shown))
        ((text, title),) = shown
        variables = {"title": shown_title(title), "passage": unfenced(text), "problem": complaint(problem)}
        return self.extract_prompt.format_messages(llm=self.llm, **variables)

    def _form(self, nodes: Sequence[BaseNode]) -> type[BaseModel] | None:
        """Of the structured output; None: text."""
        if not (offers_functions(self.llm) if self.structured is None else self.structured):
            return None
        return PassageFacts if len(nodes) == 1 else PassagesFacts
