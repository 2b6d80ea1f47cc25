"""Measures: recall@k, exact match and F1 of answers, confidence intervals, and a paired test of two methods."""

from __future__ import annotations

import math
import re
import string
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.stats import bootstrap

RESAMPLES = 10_000
CONFIDENCE = 0.95
DENOMINATOR = 1_000  # maximum of a question's gold passages, and so of a recall's denominator
SUMS = 2_000_000  # maximum of the sums that the test tells apart
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED = ("yes", "no", "noanswer")


def recall(found: Sequence[str], gold: Iterable[str], k: int) -> float:
    """Return the share of the gold passages that are among the first `k` found, 0 to 1.

    Raises:
        ValueError: no passage is gold.

    """
    wanted = set(gold)
    if not wanted:
        raise ValueError("a question without gold passages has no recall")
    return len(wanted & set(found[:k])) / len(wanted)


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


def compare(first: Sequence[float], second: Sequence[float], seed: int = 0) -> Comparison:
    """Compare two methods' values on the same questions, in the same order.

    Raises:
        ValueError: the methods have different numbers of values.

    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} values cannot be paired with {len(second)}")
    differences = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    low, high = interval(differences.tolist(), seed)
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    return Comparison(float(differences.mean()), low, high, permutation_p_value(differences.tolist()), wins, losses)


def permutation_p_value(differences: Sequence[float]) -> float:
    """Return the probability that random signs make the sum of these differences of recalls at least as far from 0.

    The value is exact, from the distribution of the sum over all signs, and never 0. If the recalls have so many
    denominators that there are more than two million sums, the differences are rounded, and sums that are less far from
    0 by no more than the rounding are counted too.
    """
    exact = [Fraction(difference).limit_denominator(DENOMINATOR) for difference in differences]
    exact = [difference for difference in exact if difference]  # the sign of 0 changes nothing
    scale = math.lcm(*(difference.denominator for difference in exact))
    finest = SUMS // (math.ceil(sum(map(abs, exact))) or 1)
    slack = 0 if scale <= finest else len(exact)
    steps = [round(difference * min(scale, finest)) for difference in exact]
    total, observed = sum(map(abs, steps)), abs(sum(steps))
    shares = np.zeros(total + 1)  # probability of each sum of the positive differences
    shares[0], reached = 1.0, 0
    for step in sorted(map(abs, steps)):
        half = shares[: reached + 1] / 2
        shares[: reached + 1] = half
        shares[step : reached + step + 1] += half
        reached += step
    beyond = float(shares[max(0, (total + observed) // 2 - slack) :].sum())
    return max(min(1.0, 2 * beyond), sys.float_info.min) if observed > 2 * slack else 1.0


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
