"""What is measured: recall@k, exact match and F1 of answers, confidence intervals, and a paired test of two methods."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import bootstrap, permutation_test

RESAMPLES = 10_000
PERMUTATIONS = 100_000
CONFIDENCE = 0.95
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


def normalised(answer: str) -> str:
    """As SQuAD's, HotpotQA's and MuSiQue's scripts do: lower case, no punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, accepted: Sequence[str]) -> float:
    """1 if the answer equals one of the accepted ones after normalisation, else 0."""
    return float(any(normalised(answer) == normalised(each) for each in accepted))


def f1(answer: str, accepted: Sequence[str]) -> float:
    """Token F1 with the accepted answer that it is best for, 0 to 1.

    As in HotpotQA's script, "yes", "no" and "noanswer" score only when both sides say the same.
    """
    return max((_f1(normalised(answer), normalised(each)) for each in accepted), default=0.0)


def _f1(answer: str, accepted: str) -> float:
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
        p_value: of the paired permutation test (signs of the differences), two-sided.
        wins: questions on which the first is better.
        losses: questions on which the second is.

    """

    difference: float
    low: float
    high: float
    p_value: float
    wins: int
    losses: int


def compared(mine: Sequence[float], its: Sequence[float], seed: int = 0) -> Comparison:
    """The paired comparison of two methods' values on the same questions, in the same order.

    Raises:
        ValueError: they are not as many.

    """
    if len(mine) != len(its):
        raise ValueError(f"{len(mine)} values cannot be paired with {len(its)}")
    differences = np.asarray(mine, dtype=float) - np.asarray(its, dtype=float)
    low, high = interval(differences.tolist(), seed)
    p_value = 1.0
    different = differences[differences != 0]  # where the two agree, a sign changes nothing
    if len(different) > 1:  # of one question nothing can be said
        test: Any = permutation_test(
            (different,),
            np.mean,
            permutation_type="samples",
            vectorized=True,
            n_resamples=PERMUTATIONS,
            batch=1_000,
            rng=np.random.default_rng(seed),
        )
        p_value = float(test.pvalue)
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    return Comparison(float(differences.mean()), low, high, p_value, wins, losses)


def corrected(p_values: Sequence[float]) -> list[float]:
    """Holm's correction for as many tests, in the order given: below 0.05, even the best of them is no accident."""
    result = [0.0] * len(p_values)
    highest = 0.0
    for rank, number in enumerate(sorted(range(len(p_values)), key=lambda n: p_values[n])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[number]))
        result[number] = highest
    return result
