"""Reciprocal rank fusion of several ranked lists into one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from llama_index_gear.errors import ArgumentError, check_numbers

Item = TypeVar("Item")


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[Item]], *, k: int = 60, weights: Sequence[float] | None = None
) -> list[tuple[Item, float]]:
    """Fuse ranked lists by `score(d) = Σ_lists weight / (k + rank)`, with ranks from 1.

    An item that a list names twice counts there once, at its better rank.

    Args:
        rankings: ranked lists, best first; items must be hashable.
        k: the constant of Cormack et al. 2009 (60 there and in GeAR).
        weights: one factor a list. Default 1 each.

    Returns:
        (item, score), best first; ties keep first-seen order.

    Raises:
        ArgumentError: `k` below 0, a weight that is no number, or not as many weights as lists.

    """
    check_numbers("0 or more", lambda number: number >= 0, k=k)
    if weights is not None:
        if len(weights) != len(rankings):
            raise ArgumentError(f"{len(weights)} weights for {len(rankings)} rankings")
        for number, weight in enumerate(weights):
            check_numbers("a finite number of 32 bits", lambda _: True, **{f"weights[{number}]": weight})
    shares: dict[Item, list[float]] = {}
    for number, ranking in enumerate(rankings):
        weight = 1.0 if weights is None else weights[number]
        for rank, item in enumerate(dict.fromkeys(ranking), start=1):
            shares.setdefault(item, []).append(weight / (k + rank))
    # `fsum` rounds once, so that ranks 1, 2, 3 and 3, 2, 1 tie whatever the order of the lists.
    scores = [(item, math.fsum(parts)) for item, parts in shares.items()]
    return sorted(scores, key=lambda entry: -entry[1])
