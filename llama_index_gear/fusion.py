"""Reciprocal rank fusion: many ranked lists become one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from llama_index_gear.errors import ArgumentError, check_numbers

Item = TypeVar("Item")


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[Item]], *, k: int = 60, weights: Sequence[float] | None = None
) -> list[tuple[Item, float]]:
    """`score(d) = Σ_lists weight / (k + rank)`, rank from 1, best first; ties keep first-seen order.

    An item that a list names twice counts there once, at its better rank.

    Args:
        rankings: ranked lists, best first; items must be hashable.
        k: the constant of Cormack et al. 2009 (60 there and in GeAR).
        weights: one factor a list; default 1 each.

    Raises:
        ArgumentError: `k` below 0, a weight that is no number, or not as many weights as lists.

    """
    check_numbers("0 or more", lambda number: number >= 0, k=k)
    if weights is not None:
        if len(weights) != len(rankings):
            raise ArgumentError(f"{len(weights)} weights for {len(rankings)} rankings")
        for number, weight in enumerate(weights):
            check_numbers("a finite number", lambda _: True, **{f"weights[{number}]": weight})
    shares: dict[Item, list[float]] = {}
    for number, ranking in enumerate(rankings):
        weight = 1.0 if weights is None else weights[number]
        for rank, item in enumerate(dict.fromkeys(ranking), start=1):
            shares.setdefault(item, []).append(weight / (k + rank))
    # `fsum` rounds once: ranks 1, 2, 3 and 3, 2, 1 are the tie that they are, whatever the order of the lists.
    return sorted(((item, math.fsum(each)) for item, each in shares.items()), key=lambda entry: -entry[1])
