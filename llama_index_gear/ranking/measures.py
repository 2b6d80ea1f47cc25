"""Measures of retrieval: recall of the first passages, and a paired test of two methods."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from llama_index_gear.errors import ArgumentError

DENOMINATOR = 1_000
"""Maximum of a question's gold passages, and so of a recall's denominator."""
SUMS = 2_000_000
"""Maximum of the sums that the test tells apart."""


def recall(found: Sequence[str], gold: Iterable[str], k: int) -> float:
    """Return the share of the gold passages that are among the first `k` found, 0 to 1.

    Raises:
        ArgumentError: no passage is gold.

    """
    wanted = set(gold)
    if not wanted:
        raise ArgumentError("a question without gold passages has no recall")
    return len(wanted & set(found[:k])) / len(wanted)


def permutation_p_value(differences: Sequence[float]) -> float:
    """Return the probability that random signs make the sum of these differences of recalls at least as far from 0.

    This is the paired permutation test, two-sided. The value is exact, from the distribution of the sum over all signs,
    and never 0. If the recalls have so many denominators that there are more than two million sums, the differences are
    rounded, and sums that are less far from 0 by no more than the rounding are counted too.
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
