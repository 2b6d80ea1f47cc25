"""The account of an extraction: what became of every passage, and what it costs, before and after."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from typing import Any, NamedTuple

from llama_index.core.bridge.pydantic import BaseModel
from llama_index.core.schema import BaseNode
from llama_index.core.utils import get_tokenizer
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters

from llama_index_gear.errors import ArgumentError, check_kinds, check_numbers, shown
from llama_index_gear.nodes import EXTRACTION_KEY, ONE_NODE, attach_triples, read_triples, with_metadata
from llama_index_gear.triple import Triple


class Outcome(Enum):
    """What became of a passage. All but the first three are failures: the next run extracts the passage again."""

    EXTRACTED = "extracted"
    NO_FACTS = "no facts"
    BLANK = "blank"
    EMPTY = "empty"
    UNREADABLE = "unreadable"
    REFUSED = "refused"
    TIMED_OUT = "timed out"
    TRUNCATED = "truncated"
    OVER_BUDGET = "over budget"
    FAILED = "failed"

    @property
    def failure(self) -> bool:
        """Whether the passage should be extracted again."""
        return self not in (Outcome.EXTRACTED, Outcome.NO_FACTS, Outcome.BLANK)


@dataclass(frozen=True)
class ExtractionRecord:
    """What became of one passage; rides on its node as `gear_extraction`.

    Attributes:
        outcome: value of `Outcome`.
        problem: what went wrong, in words; empty if nothing did.
        calls: calls of the model in this run, retries included.
        prompt_tokens: as the model's client counts them, else estimated with LlamaIndex's tokenizer.
        completion_tokens: likewise.
        reused: the triples come from an earlier run: from the node itself or from the extractor's cache.
        key: fingerprint of model, prompt, title, text and tenant: what the triples were extracted from.
        shared_call_id: names the call, by a fingerprint, of a passage that failed with all that shared it. The next
            try asks for them together again.
        retried_alone: the reply for several passages said nothing of this one, so that it was asked for again, alone.

    """

    outcome: Outcome
    problem: str = ""
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reused: bool = False
    key: str = ""
    shared_call_id: str = ""
    retried_alone: bool = False


@dataclass(frozen=True)
class ExtractionLedger:
    """The account of a run.

    Attributes:
        passages: passages seen.
        triples: triples that they now carry.
        reused: passages that cost no call because an earlier run had extracted them.
        outcomes: how many passages had which outcome, by its name.
        failures: (passage id, outcome, problem) of each passage that failed.
        calls: calls of the model, retries included.
        prompt_tokens: tokens sent.
        completion_tokens: tokens received.
        retried_alone: passages that a reply for several said nothing of, so that they were asked for again, alone.
        answered: passages that a reply was had for in this run, whatever it was worth.

    """

    passages: int = 0
    triples: int = 0
    reused: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    failures: tuple[tuple[str, str, str], ...] = ()
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    retried_alone: int = 0
    answered: int = 0

    @classmethod
    def of(cls, nodes: Sequence[BaseNode]) -> ExtractionLedger:
        """The account of nodes as an extractor returned them, in whatever process it ran."""
        check_kinds(BaseNode, hint=ONE_NODE, nodes=nodes)
        records = [(node, record_of(node)) for node in nodes]
        known = [(node, record) for node, record in records if record is not None]
        return cls(
            passages=len(nodes),
            triples=sum(len(read_triples(node)) for node in nodes),
            reused=sum(record.reused for _, record in known),
            outcomes=dict(Counter(record.outcome.value for _, record in known)),
            failures=tuple(
                (node.node_id, record.outcome.value, record.problem) for node, record in known if record.outcome.failure
            ),
            calls=sum(record.calls for _, record in known),
            prompt_tokens=sum(record.prompt_tokens for _, record in known),
            completion_tokens=sum(record.completion_tokens for _, record in known),
            retried_alone=sum(record.retried_alone for _, record in known),
            answered=sum(record.prompt_tokens > 0 for _, record in known),
        )

    def __add__(self, more: ExtractionLedger) -> ExtractionLedger:
        """Both accounts in one."""
        outcomes = dict(Counter(self.outcomes) + Counter(more.outcomes))
        names = [each.name for each in fields(self) if each.name != "outcomes"]
        sums = {name: getattr(self, name) + getattr(more, name) for name in names}
        return ExtractionLedger(**sums, outcomes=outcomes)

    def __str__(self) -> str:
        parts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items()))
        again = f"{self.retried_alone} passages asked for again, " if self.retried_alone else ""
        return (
            f"{self.passages} passages ({parts}; {self.reused} reused), {self.triples} triples, {self.calls} calls, "
            f"{again}{self.prompt_tokens} prompt and {self.completion_tokens} completion tokens"
        )


def record_of(node: BaseNode) -> ExtractionRecord | None:
    """The record that rides on a node; None if it was never extracted."""
    plain: Any = node.metadata.get(EXTRACTION_KEY)
    try:
        return ExtractionRecord(**{**plain, "outcome": Outcome(plain["outcome"])})
    except (TypeError, KeyError, ValueError):  # none, or what another program or version left there
        return None


def is_over_budget(node: BaseNode) -> bool:
    """Whether nothing was asked of a passage since that would have gone beyond the ceiling."""
    record = record_of(node)
    return record is not None and record.outcome is Outcome.OVER_BUDGET


def with_record(node: BaseNode, triples: Sequence[Triple], record: ExtractionRecord) -> BaseNode:
    """A copy of `node` that carries these triples and this record."""
    plain = {**asdict(record), "outcome": record.outcome.value}
    return with_metadata(attach_triples(node, triples), {EXTRACTION_KEY: plain})


FAILED_EXTRACTIONS = MetadataFilters(
    filters=[
        MetadataFilter(
            key=f"{EXTRACTION_KEY}.outcome",
            operator=FilterOperator.IN,
            value=[outcome.value for outcome in Outcome if outcome.failure],
        )
    ]
)
"""Passages of a store whose extraction failed; `GeARTripleExtractor.retry_failed(store)` extracts them again."""


# Tokens of a reply for a token of the passage: GPT-3.5's triples of 1,200 passages of some 110 tokens (MuSiQue's and
# HotpotQA's), as JSON text (2.08 and 2.12) and as the arguments of a function (2.86 and 2.91).
_TEXT, _STRUCTURED = 2.1, 2.9


class Price(NamedTuple):
    """What a million tokens cost, in whatever currency."""

    prompt: float
    completion: float

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """What so many tokens cost."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1_000_000


@dataclass(frozen=True)
class ExtractionEstimate:
    """What extracting passages will take, worked out without a call of the model.

    Attributes:
        passages: passages seen.
        reused: passages that will cost nothing: extracted before, or blank.
        calls: calls of the model, one for `passages_per_call` passages; retries and what replies leave out come on top.
        prompt_tokens: by LlamaIndex's tokenizer (see `llama_index.core.set_global_tokenizer`).
        completion_tokens: expected from the passages' lengths: 2.1 tokens a token, 2.9 in structured output, as
            GPT-3.5's triples had for 1,200 passages of about 80 words. Longer passages yield less.
        cost: at the given price; None without one.

    """

    passages: int = 0
    reused: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None

    def __str__(self) -> str:
        cost = "" if self.cost is None else f", cost {self.cost:,.4f}"
        return (
            f"{self.passages} passages ({self.reused} for nothing): {self.calls} calls, {self.prompt_tokens:,} prompt "
            f"and some {self.completion_tokens:,} completion tokens{cost}"
        )


class CostBudget:
    """What was spent, and what may be.

    Args:
        price: of a million tokens; None: nothing is counted.
        ceiling: what may be spent at most; None: anything.

    Raises:
        ArgumentError: a price or a ceiling below 0 or that is no number, or a ceiling without a price.

    Attributes:
        spent: so far.
        reserved: what calls that are under way will cost.

    """

    def __init__(self, price: tuple[float, float] | None, ceiling: float | None) -> None:
        if price is not None:
            two = "two numbers, 0 or more: of a million prompt and completion tokens"
            if not isinstance(price, Sequence) or len(price) != 2:
                raise ArgumentError(f"price must be {two}; got {shown(price)}")
            for cost in price:
                check_numbers(two, _is_cost, price=cost)
        if ceiling is not None:
            check_numbers("0 or more", _is_cost, max_cost=ceiling)
        if ceiling is not None and price is None:
            raise ArgumentError("max_cost needs price=(prompt, completion), what a million tokens cost")
        self.price = None if price is None else Price(*price)
        self.ceiling = ceiling
        self.spent = 0.0
        self.reserved: dict[object, float] = {}

    def reserve(self, call: object, prompt_tokens: int, completion_tokens: int) -> bool:
        """Set aside what a call will cost; False if that is more than is left. Who calls takes it out of `reserved`."""
        expected = 0.0 if self.price is None else self.price.of(prompt_tokens, completion_tokens)
        if self.ceiling is not None and self.spent + sum(self.reserved.values()) + expected > self.ceiling:
            return False
        self.reserved[call] = expected
        return True

    def spend(self, prompt_tokens: int, completion_tokens: int) -> None:
        """Count what a call took."""
        if self.price is not None:
            self.spent += self.price.of(prompt_tokens, completion_tokens)


def _is_cost(value: float) -> bool:
    return value >= 0


def expected_tokens(prompt: str, passages: Sequence[str], *, form: type[BaseModel] | None) -> tuple[int, int]:
    """Prompt and completion tokens of a call that extracts passages, as text (no form) or structured output."""
    count = get_tokenizer()
    schema = 0 if form is None else len(count(json.dumps(form.model_json_schema())))
    ratio = _TEXT if form is None else _STRUCTURED
    return len(count(prompt)) + schema, sum(math.ceil(ratio * len(count(passage))) for passage in passages)
