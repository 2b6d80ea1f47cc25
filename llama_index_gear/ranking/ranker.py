"""The ranking of a pool: by a first rule over its lists, then by a second that looks at passages together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from llama_index_gear.ranking.pool import Pool
from llama_index_gear.ranking.signals import BEST, Company, Link, list_signals
from llama_index_gear.ranking.weights import FIRST, RankingWeights


class Ranked(NamedTuple):
    """A ranked passage.

    Attributes:
        id: its node id.
        score: its estimated share of what the pool holds for the question. The shares of a pool sum to 1.
        shares: name of a list or signal → its contribution to the weighted sum that ranks the passage, minus the pool's
            mean.
        signals: names of the signals beside the best passages that are not 0 for it.
        named_by: the fact of the best passages that names what it is about (`Company.named_by`); None if no fact does.
        linked_by: the fact of the best passages that names an entity of it (`Company.linked_by`); None if no fact does.
        lead: of these two facts, the first whose passage stands above it in the first ranking; None if neither's does.

    """

    id: str
    score: float
    shares: dict[str, float]
    signals: frozenset[str]
    named_by: Link | None
    linked_by: Link | None
    lead: Link | None


def rank(pool: Pool, weights: RankingWeights, top_k: int | None = None) -> list[Ranked]:
    """Rank the passages of a pool; return the first `top_k`, or all. Equal scores keep the order of the pool."""
    if not pool.passages:
        return []
    first = first_signals(pool)
    first_scores = weigh(first, weights.first) or [0.0] * len(pool.passages)  # without a list all are equal
    first_order = order(first_scores)
    company = Company(pool, first_order[:BEST])
    second = {FIRST: first_scores, **second_signals(pool, company)}
    scores = weigh(second, weights.second)
    highest = max(scores)
    powers = [math.exp(score - highest) for score in scores]
    total = math.fsum(powers)
    shares = _share_tables(first, second, weights)
    first_rank = {place: number for number, place in enumerate(first_order)}
    ranked = []
    for place in order(scores)[:top_k]:
        named, linked = company.named_by(place), company.linked_by(place)
        leads = [link for link in (named, linked) if link and first_rank[link.place] < first_rank[place]]
        ranked.append(
            Ranked(
                id=pool.passages[place].id,
                score=powers[place] / total,
                shares={name: values[place] for name, values in shares.items()},
                signals=frozenset(name for name, values in second.items() if name != FIRST and values[place]),
                named_by=named,
                linked_by=linked,
                lead=leads[0] if leads else None,
            )
        )
    return ranked


def first_signals(pool: Pool) -> dict[str, list[float]]:
    """Return the signals of all lists, each with a number a passage."""
    signals: dict[str, list[float]] = {}
    for name, ranked in pool.lists.items():
        signals |= list_signals(name, ranked, pool.places)
    return signals


def second_signals(pool: Pool, company: Company) -> dict[str, list[float]]:
    """Return the signals beside the best passages, each with a number a passage."""
    rows = [company.signals(place) for place in range(len(pool.passages))]
    return {name: [row[name] for row in rows] for name in rows[0]}


def weigh(signals: Mapping[str, Sequence[float]], weights: Mapping[str, float]) -> list[float]:
    """Return the weighted sum of a passage's signals, for each passage. A signal without a weight counts nothing."""
    weighed = [(weights[name], values) for name, values in signals.items() if name in weights]
    number = len(next(iter(signals.values()), ()))
    return [math.fsum(weight * values[place] for weight, values in weighed) for place in range(number)]


def order(scores: Sequence[float]) -> list[int]:
    """Return the places of the scores, highest first; equal ones in their order."""
    return sorted(range(len(scores)), key=lambda place: -scores[place])


def _share_tables(
    first: Mapping[str, Sequence[float]], second: Mapping[str, Sequence[float]], weights: RankingWeights
) -> dict[str, list[float]]:
    """Return each list's and each signal's contribution to the weighted sum of each passage, minus the mean."""
    of_first = weights.second.get(FIRST, 0.0)
    tables: dict[str, list[float]] = {}
    for signals, scale, table in ((first, of_first, weights.first), (second, 1.0, weights.second)):
        for name, values in signals.items():
            if name != FIRST:
                weight = scale * table.get(name, 0.0)
                mean = math.fsum(values) / len(values)
                added = [weight * (value - mean) for value in values]
                shown = name.partition(".")[0]
                tables[shown] = [x + y for x, y in zip(tables[shown], added, strict=True)] if shown in tables else added
    return tables
