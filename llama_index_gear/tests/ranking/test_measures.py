"""Measures of retrieval."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_index_gear.ranking.measures import permutation_p_value, recall


def test_recall() -> None:
    assert recall(["a", "x", "b"], ["a", "b", "c"], 3) == pytest.approx(2 / 3)
    assert recall(["a", "x", "b"], ["a", "b", "c"], 1) == pytest.approx(1 / 3)
    assert recall(["a", "a"], ["a"], 2) == 1.0 and recall([], ["a"], 5) == 0.0
    with pytest.raises(ValueError, match="without gold"):
        recall(["a"], [], 5)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 4)), min_size=1, max_size=9))
def test_the_paired_test_is_exact(cases: list[tuple[int, int, int]]) -> None:
    """The p-value equals a count over all signs in whole numbers."""
    pairs = [(min(hits, gold), min(base_hits, gold), gold) for hits, base_hits, gold in cases]
    steps = [12 * (hits - base_hits) // gold for hits, base_hits, gold in pairs]
    sums = [abs(sum(sign * step for sign, step in zip(signs, steps, strict=True)))
            for signs in product((1, -1), repeat=len(steps))]  # fmt: skip
    expected = sum(total >= abs(sum(steps)) for total in sums) / len(sums)
    p_value = permutation_p_value([hits / gold - base_hits / gold for hits, base_hits, gold in pairs])
    assert p_value == pytest.approx(expected, rel=1e-12) and (sum(steps) != 0 or p_value == 1.0)


def test_how_small_a_p_value_can_be() -> None:
    assert permutation_p_value([0.5] * 3 + [1 / 3] * 37 + [0.0] * 60) == pytest.approx(2 / 2**40, rel=1e-12)
    assert permutation_p_value([1 / 3, 2 / 3, -1.0]) == 1.0 == permutation_p_value([])  # a tie
    assert 0 < permutation_p_value([1.0] * 2000) < 1e-300
    primes = [1 / n for n in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31)]  # more sums than can be told apart
    sums = [abs(np.dot(signs, primes)) for signs in product((1, -1), repeat=len(primes))]
    for turned in (0, 1, 3):
        signed = [-prime if n < turned else prime for n, prime in enumerate(reversed(primes))]
        assert permutation_p_value(signed) == np.mean([total >= abs(sum(signed)) - 1e-12 for total in sums])
