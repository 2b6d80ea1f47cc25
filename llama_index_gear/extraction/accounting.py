"""The account of an extraction: the outcome of every passage, the expected cost, and the cost so far.

A problem may quote a reply, and so a passage: logs hold none but at level DEBUG.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from llama_index.core.schema import BaseNode
from llama_index.core.utils import get_tokenizer
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters

from llama_index_gear.characters import count
from llama_index_gear.errors import ArgumentError, check_numbers, format_value
from llama_index_gear.nodes import EXTRACTION_KEY, Outcome, read_triples, record_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExtractionLedger:
    """The account of a run.

    Attributes:
        passages: passages seen.
        triples: triples that the passages now carry.
        reused: passages that cost no call because an earlier run had extracted them.
        outcomes: outcome → number of passages.
        failures: (passage id, outcome, problem) of each passage that failed.
        calls: LLM calls, retries included.
        prompt_tokens: tokens sent.
        completion_tokens: tokens received.
        answered: passages for which a reply came in this run, readable or not.
        refused: triples of these passages that the extractor's schema refused.

    """

    passages: int = 0
    triples: int = 0
    reused: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    failures: tuple[tuple[str, str, str], ...] = ()
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    answered: int = 0
    refused: int = 0

    @classmethod
    def of(cls, nodes: Sequence[BaseNode]) -> ExtractionLedger:
        """Return the account of nodes as an extractor returned them, in any process."""
        records = [(node, record_of(node)) for node in nodes]
        recorded = [(node, record) for node, record in records if record is not None]
        return cls(
            passages=len(nodes),
            triples=sum(len(read_triples(node)) for node in nodes),
            reused=sum(record.reused for _, record in recorded),
            outcomes=dict(Counter(record.outcome.value for _, record in recorded)),
            failures=tuple(
                (node.node_id, record.outcome.value, record.problem)
                for node, record in recorded
                if record.outcome.failure
            ),
            calls=sum(record.calls for _, record in recorded),
            prompt_tokens=sum(record.prompt_tokens for _, record in recorded),
            completion_tokens=sum(record.completion_tokens for _, record in recorded),
            answered=sum(record.prompt_tokens > 0 for _, record in recorded),
            refused=sum(record.refused for _, record in recorded),
        )

    def __add__(self, more: ExtractionLedger) -> ExtractionLedger:
        """Add up both accounts."""
        outcomes = dict(Counter(self.outcomes) + Counter(more.outcomes))
        names = [field_.name for field_ in fields(self) if field_.name != "outcomes"]
        sums = {name: getattr(self, name) + getattr(more, name) for name in names}
        return ExtractionLedger(**sums, outcomes=outcomes)

    def __str__(self) -> str:
        parts = ", ".join(f"{number} {outcome}" for outcome, number in sorted(self.outcomes.items()))
        refused = f" and {self.refused} refused" if self.refused else ""
        passages, triples, calls = (
            count(self.passages, "passage"),
            count(self.triples, "triple"),
            count(self.calls, "call"),
        )
        return (
            f"{passages} ({parts}; {self.reused} reused), {triples}{refused}, {calls}, {self.prompt_tokens} "
            f"prompt and {self.completion_tokens} completion tokens"
        )


def _filter(outcomes: Iterable[Outcome]) -> MetadataFilters:
    """Return the filter of the passages whose extraction ended so."""
    key, names = f"{EXTRACTION_KEY}.outcome", [outcome.value for outcome in outcomes]
    return MetadataFilters(filters=[MetadataFilter(key=key, operator=FilterOperator.IN, value=names)])


EXTRACTIONS = _filter(Outcome)
"""Passages of a store that a model was asked to extract."""

FAILED_EXTRACTIONS = _filter(outcome for outcome in Outcome if outcome.failure)
"""Passages of a store whose extraction failed; `GeARTripleExtractor.retry_failed(store)` extracts them again."""

PAID_EXTRACTIONS = _filter(outcome for outcome in Outcome if outcome.paid)
"""Passages of a store whose triples a model was paid for, or for saying that they have none. A failed one may have
some too, of a reply that was cut off."""


_REPLY_RATIO = 2.1
"""Tokens of a reply per token of the passage. GPT-3.5's triples of 1,200 passages of some 110 tokens (MuSiQue's and
HotpotQA's) took 2.08 and 2.12."""
_MOST_REFUSALS = 8  # calls in a row that a server refuses for want of quota, before no more are made


class Price(NamedTuple):
    """The price of a million tokens, in any currency."""

    prompt: float
    completion: float

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the cost of so many tokens."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1_000_000


def format_cost(cost: float) -> str:
    """Write what was paid, or is expected to be, without a currency: a price has none."""
    return f"cost {cost:,.4f} in the unit of the price"


@dataclass(frozen=True)
class ExtractionEstimate:
    """The expected calls, tokens and cost of an extraction, computed without an LLM call.

    Attributes:
        passages: passages seen.
        reused: passages that will cost nothing: extracted before, or blank.
        calls: LLM calls, one a passage; retries come on top.
        prompt_tokens: tokens to send, by LlamaIndex's tokenizer (see `llama_index.core.set_global_tokenizer`).
        completion_tokens: tokens to receive, expected from the passages' lengths: 2.1 a token, as GPT-3.5's triples had
            for 1,200 passages of about 80 words. Longer passages yield less.
        cost: cost at the given price; None without a price.

    """

    passages: int = 0
    reused: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None

    def __add__(self, more: ExtractionEstimate) -> ExtractionEstimate:
        """Add up both estimates."""
        costs = [cost for cost in (self.cost, more.cost) if cost is not None]
        names = [field_.name for field_ in fields(self) if field_.name != "cost"]
        sums = {name: getattr(self, name) + getattr(more, name) for name in names}
        return ExtractionEstimate(**sums, cost=sum(costs) if costs else None)

    def __str__(self) -> str:
        cost = "" if self.cost is None else f", {format_cost(self.cost)}"
        passages = f"{count(self.passages, 'passage')} ({self.reused} already extracted or blank)"
        return (
            f"{passages}: {count(self.calls, 'call')}, "
            f"{self.prompt_tokens:,} prompt and some {self.completion_tokens:,} completion tokens{cost}"
        )


class CostBudget:
    """The amount spent on LLM calls, and what ends them: its ceiling, or a quota that is used up.

    Args:
        price: prices of a million prompt and a million completion tokens; None: nothing is counted.
        ceiling: highest amount that may be spent; None: no ceiling.

    Raises:
        ArgumentError: a price or a ceiling below 0 or that is no number, or a ceiling without a price.

    Attributes:
        spent: the amount spent so far.
        calls: number of calls so far, retries included.
        prompt_tokens: tokens sent in calls that were answered.
        completion_tokens: tokens received.
        reserved: call → expected cost, of the calls under way.
        refusals: number of the last calls, in a row, that the server refused because no quota was left.

    """

    def __init__(self, price: tuple[float, float] | None, ceiling: float | None) -> None:
        if price is not None:
            allowed = "two numbers, 0 or more: of a million prompt and completion tokens"
            if not isinstance(price, Sequence) or len(price) != 2:
                raise ArgumentError(f"price must be {allowed}; got {format_value(price)}")
            for cost in price:
                check_numbers(allowed, _is_cost, price=cost)
        if ceiling is not None:
            check_numbers("0 or more", _is_cost, max_cost=ceiling)
        if ceiling is not None and price is None:
            raise ArgumentError("max_cost needs price=(prompt, completion), what a million tokens cost")
        self.price = None if price is None else Price(*price)
        self.ceiling = ceiling
        self.spent = 0.0
        self.calls = self.prompt_tokens = self.completion_tokens = 0
        self.reserved: dict[object, float] = {}
        self.refusals = 0

    @property
    def end(self) -> tuple[Outcome, str]:
        """Why no call is made any more: the outcome of a passage that is left out, and the reason in words."""
        if self.refusals >= _MOST_REFUSALS:
            return Outcome.OUT_OF_QUOTA, f"the model's server had no quota left for {self.refusals} calls in a row"
        return Outcome.OVER_BUDGET, f"more than max_cost={self.ceiling} would have been spent"

    def note_call(self, *, is_out_of_quota: bool) -> None:
        """Count a call that the server refused because no quota was left; any other call ends the row.

        An answer that is late, of a call that began before the row, does not open again what the row has ended.
        """
        if is_out_of_quota:
            self.refusals += 1
        elif self.refusals < _MOST_REFUSALS:
            self.refusals = 0

    def forget_refusals(self) -> None:
        """Let calls be made again."""
        self.refusals = 0

    def reserve(self, call: object, prompt_tokens: int, completion_tokens: int) -> bool:
        """Reserve a call's expected cost; return False if no call is made any more. The caller removes it again."""
        if self.refusals >= _MOST_REFUSALS:
            return False
        expected = 0.0 if self.price is None else self.price.of(prompt_tokens, completion_tokens)
        if self.ceiling is not None and self.spent + sum(self.reserved.values()) + expected > self.ceiling:
            return False
        self.reserved[call] = expected
        return True

    def __str__(self) -> str:
        """Say what was paid for so far."""
        tokens = f"{self.prompt_tokens} prompt and {self.completion_tokens} completion tokens"
        cost = "" if self.price is None else f", {format_cost(self.spent)}"
        return f"{count(self.calls, 'call')}, {tokens}{cost}"

    def spend(self, calls: int, prompt_tokens: int, completion_tokens: int) -> None:
        """Count calls, their tokens and the cost of these."""
        self.calls += calls
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens
        if self.price is not None:
            self.spent += self.price.of(prompt_tokens, completion_tokens)


def _is_cost(value: float) -> bool:
    return value >= 0


def expected_tokens(prompt: str, passage: str) -> tuple[int, int]:
    """Return the expected prompt and completion tokens of a call."""
    tokenize = get_tokenizer()
    return len(tokenize(prompt)), math.ceil(_REPLY_RATIO * len(tokenize(passage)))


def log_ledger(ledger: ExtractionLedger) -> None:
    """Log the account of a run. Warn of failures, and of a schema that refused most."""
    logger.info("extraction: %s", ledger)
    if ledger.refused > ledger.triples:
        logger.warning(
            "%s of %s triples were refused: the schema allows no such relation, or no such entity. The problem in each "
            "passage's gear_extraction says which; a wider schema keeps more",
            ledger.refused,
            ledger.refused + ledger.triples,
        )
    if not ledger.failures:
        return
    kinds = Counter(_describe(outcome, problem) for _, outcome, problem in ledger.failures).most_common()
    summary = ", ".join(f"{number} {kind}" for kind, number in kinds)
    logger.warning("%s (%s); `ledger.failures` of the extractor says more", describe_failures(ledger), summary)
    for failure in ledger.failures:
        logger.debug("%s", ": ".join(failure))


def describe_failures(ledger: ExtractionLedger) -> str:
    """Say how many passages failed."""
    return f"{len(ledger.failures)} of {count(ledger.passages, 'passage')} could not be extracted"


def _describe(outcome: str, problem: str) -> str:
    """Describe a failure without quoting it: its outcome, and the error's class if there was an error."""
    error = problem.partition(":")[0] if outcome in (Outcome.FAILED.value, Outcome.TIMED_OUT.value) else ""
    return f"{outcome}: {error}" if error else outcome
