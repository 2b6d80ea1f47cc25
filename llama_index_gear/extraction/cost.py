"""What a language model's tokens cost: prices, what an ingest will take, and a ceiling."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llama_index.core.bridge.pydantic import BaseModel
from llama_index.core.utils import get_tokenizer

from llama_index_gear.errors import ArgumentError, shown

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
        if price is not None and (not isinstance(price, Sequence) or len(price) != 2 or not all(map(_is_cost, price))):
            raise ArgumentError(
                f"price must be two numbers, 0 or more: of a million prompt and completion tokens; got {shown(price)}"
            )
        if ceiling is not None and not _is_cost(ceiling):
            raise ArgumentError(f"max_cost must be 0 or more, got {shown(ceiling)}")
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


def _is_cost(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= sys.float_info.max


def expected_tokens(prompt: str, passages: Sequence[str], *, form: type[BaseModel] | None) -> tuple[int, int]:
    """Prompt and completion tokens of a call that extracts passages, as text (no form) or structured output."""
    count = get_tokenizer()
    schema = 0 if form is None else len(count(json.dumps(form.model_json_schema())))
    ratio = _TEXT if form is None else _STRUCTURED
    return len(count(prompt)) + schema, sum(math.ceil(ratio * len(count(passage))) for passage in passages)
