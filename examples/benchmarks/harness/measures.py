"""Measures: exact match and F1 of answers, confidence intervals, and a paired test of two methods."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import bootstrap

from llama_index_gear.ranking.measures import permutation_p_value

RESAMPLES = 10_000
CONFIDENCE = 0.95
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED = ("yes", "no", "noanswer")


def normalize(answer: str) -> str:
    """Normalize as SQuAD's, HotpotQA's and MuSiQue's scripts do: lower case, no punctuation, no articles, one space."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, accepted: Sequence[str]) -> float:
    """Return 1 if the answer equals one of the accepted ones after normalization, else 0."""
    return float(any(normalize(answer) == normalize(reference) for reference in accepted))


def f1(answer: str, accepted: Sequence[str]) -> float:
    """Return the highest token F1 of the answer with one of the accepted answers, 0 to 1.

    As in HotpotQA's script, "yes", "no" and "noanswer" score only when both sides say the same.
    """
    return max((_token_f1(normalize(answer), normalize(reference)) for reference in accepted), default=0.0)


def _token_f1(answer: str, accepted: str) -> float:
    if answer != accepted and (answer in _CLOSED or accepted in _CLOSED):
        return 0.0
    answer_tokens, accepted_tokens = answer.split(), accepted.split()
    shared = sum((Counter(answer_tokens) & Counter(accepted_tokens)).values())
    return 2 * shared / (len(answer_tokens) + len(accepted_tokens)) if shared else 0.0


def interval(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of the mean."""
    if len(set(values)) == 1:
        return values[0], values[0]
    result = bootstrap(
        (np.asarray(values),),
        np.mean,
        confidence_level=CONFIDENCE,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


@dataclass(frozen=True)
class Comparison:
    """The comparison of two methods on the same questions.

    Attributes:
        difference: mean of the first minus mean of the second.
        low: lower end of the difference's 95 % bootstrap interval.
        high: upper end of that interval.
        p_value: p of the paired permutation test (signs of the differences), two-sided, exact.
        wins: number of questions on which the first is better.
        losses: number of questions on which the second is better.

    """

    difference: float
    low: float
    high: float
    p_value: float
    wins: int
    losses: int


def compare(first: Sequence[float], second: Sequence[float]) -> Comparison:
    """Compare two methods' values on the same questions, in the same order.

    Raises:
        ValueError: the methods have different numbers of values.

    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} values cannot be paired with {len(second)}")
    differences = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    low, high = interval(differences.tolist())
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    return Comparison(float(differences.mean()), low, high, permutation_p_value(differences.tolist()), wins, losses)


def correct_p_values(p_values: Sequence[float]) -> list[float]:
    """Return p-values after Holm's correction for the number of tests, in the given order.

    The probability that any value is below 0.05 by chance alone is then at most 0.05.
    """
    result = [0.0] * len(p_values)
    highest = 0.0
    for rank, number in enumerate(sorted(range(len(p_values)), key=lambda n: p_values[n])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[number]))
        result[number] = highest
    return result
