"""What is measured: recall@k, exact match and F1 of answers, confidence intervals, and a paired test of two methods."""

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
DENOMINATOR = 1_000  # gold passages of a question at most: what a recall is a fraction of
SUMS = 2_000_000  # that are told apart at most
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED = ("yes", "no", "noanswer")


def recall(found: Sequence[str], gold: Iterable[str], k: int) -> float:
    """Share of the gold passages among the first `k` found, 0 to 1.

    Raises:
        ValueError: no passage is gold.

    """
    wanted = set(gold)
    if not wanted:
        raise ValueError("a question without gold passages has no recall")
    return len(wanted & set(found[:k])) / len(wanted)


def normalize(answer: str) -> str:
    """As SQuAD's, HotpotQA's and MuSiQue's scripts do: lower case, no punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, accepted: Sequence[str]) -> float:
    """1 if the answer equals one of the accepted ones after normalisation, else 0."""
    return float(any(normalize(answer) == normalize(each) for each in accepted))


def f1(answer: str, accepted: Sequence[str]) -> float:
    """Token F1 with the accepted answer that it is best for, 0 to 1.

    As in HotpotQA's script, "yes", "no" and "noanswer" score only when both sides say the same.
    """
    return max((_token_f1(normalize(answer), normalize(each)) for each in accepted), default=0.0)


def _token_f1(answer: str, accepted: str) -> float:
    if answer != accepted and (answer in _CLOSED or accepted in _CLOSED):
        return 0.0
    mine, its = answer.split(), accepted.split()
    shared = sum((Counter(mine) & Counter(its)).values())
    return 2 * shared / (len(mine) + len(its)) if shared else 0.0


def interval(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of the mean."""
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
    """Two methods on the same questions.

    Attributes:
        difference: mean of the first minus mean of the second.
        low: lower end of its 95 % bootstrap interval.
        high: upper end.
        p_value: of the paired permutation test (signs of the differences), two-sided, exact.
        wins: questions on which the first is better.
        losses: questions on which the second is.

    """

    difference: float
    low: float
    high: float
    p_value: float
    wins: int
    losses: int


def compare(mine: Sequence[float], its: Sequence[float], seed: int = 0) -> Comparison:
    """The paired comparison of two methods' values on the same questions, in the same order.

    Raises:
        ValueError: they are not as many.

    """
    if len(mine) != len(its):
        raise ValueError(f"{len(mine)} values cannot be paired with {len(its)}")
    differences = np.asarray(mine, dtype=float) - np.asarray(its, dtype=float)
    low, high = interval(differences.tolist(), seed)
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    return Comparison(float(differences.mean()), low, high, permutation_p_value(differences.tolist()), wins, losses)


def permutation_p_value(differences: Sequence[float]) -> float:
    """How often the sum of these differences of recalls would be as far from 0 if their signs were drawn by chance.

    Exact, by the distribution of the sum over all signs; never 0. Where recalls have so many denominators that the sums
    are more than two millions, differences are rounded, and what is as far but for the rounding is counted too.
    """
    exact = [Fraction(each).limit_denominator(DENOMINATOR) for each in differences]
    exact = [each for each in exact if each]  # where two agree, a sign changes nothing
    scale = math.lcm(*(each.denominator for each in exact))
    finest = SUMS // (math.ceil(sum(map(abs, exact))) or 1)
    slack = 0 if scale <= finest else len(exact)
    steps = [round(each * min(scale, finest)) for each in exact]
    total, observed = sum(map(abs, steps)), abs(sum(steps))
    shares = np.zeros(total + 1)  # of the sums of the positive ones
    shares[0], reached = 1.0, 0
    for step in sorted(map(abs, steps)):
        half = shares[: reached + 1] / 2
        shares[: reached + 1] = half
        shares[step : reached + step + 1] += half
        reached += step
    beyond = float(shares[max(0, (total + observed) // 2 - slack) :].sum())
    return max(min(1.0, 2 * beyond), sys.float_info.min) if observed > 2 * slack else 1.0


def correct_p_values(p_values: Sequence[float]) -> list[float]:
    """Holm's correction for as many tests, in the order given: below 0.05, even the best of them is no accident."""
    result = [0.0] * len(p_values)
    highest = 0.0
    for rank, number in enumerate(sorted(range(len(p_values)), key=lambda n: p_values[n])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[number]))
        result[number] = highest
    return result
