"""The ranking of a pool: one weighted sum of signals, which look at passages together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from llama_index_gear.ranking.pool import Pool
from llama_index_gear.ranking.signals import Company, Floats, Link, find_ranks, order, order_by_lists, scale_cosines
from llama_index_gear.ranking.weights import RankingWeights


class Ranked(NamedTuple):
    """A ranked passage.

    Attributes:
        id: its node id.
        score: its estimated share of what the pool holds for the question. The shares of a pool sum to 1.
        shares: name of a signal → what it adds to the weighted sum that ranks the passage, less what it adds on average
            in the pool.
        signals: names of the signals that are not 0 for it.
        first_rank: its place by the lists together, from 1.
        named_by: the fact of the best passages that names what it is about (`Company.named`); None if no fact does.
        linked_by: the fact of the best passages that names an entity of it (`Company.linked`); None if no fact does.
        leads: those of these two facts whose passage stands above it in the lists.
        new_words: the question's words that it has and the two best passages lack.
        phrases: the question's neighboring words that stand side by side in it.

    """

    id: str
    score: float
    shares: dict[str, float]
    signals: frozenset[str]
    first_rank: int
    named_by: Link | None
    linked_by: Link | None
    leads: list[Link]
    new_words: list[str]
    phrases: list[str]


def rank(pool: Pool, weights: RankingWeights, top_k: int | None = None) -> list[Ranked]:
    """Rank the passages of a pool; return the first `top_k`, or all. Equal scores keep the order of the pool."""
    if not pool.passages:
        return []
    company, signals = measure_signals(pool)
    table = choose_table(pool, weights)
    added = {name: table[name] * values for name, values in signals.items() if name in table}
    scores = np.sum(list(added.values()), axis=0) if added else np.zeros(len(pool.passages))
    powers = np.exp(scores - scores.max())
    powers /= powers.sum()
    shares = {name: values - values.mean() for name, values in added.items()}
    first_rank = {place: number for number, place in enumerate(company.order, start=1)}
    ranked = []
    for place in order(scores)[:top_k]:
        named, linked = company.named[place], company.linked[place]
        leads = [link for link in (named, linked) if link and first_rank[link.place] < first_rank[place]]
        ranked.append(
            Ranked(
                id=pool.passages[place].id,
                score=float(powers[place]),
                shares={name: float(values[place]) for name, values in shares.items()},
                signals=frozenset(name for name, values in signals.items() if values[place]),
                first_rank=first_rank[place],
                named_by=named,
                linked_by=linked,
                leads=leads,
                new_words=company.list_new_words(place),
                phrases=company.list_phrases(place),
            )
        )
    return ranked


def choose_table(pool: Pool, weights: RankingWeights) -> Mapping[str, float]:
    """Return the weights of a pool of this form."""
    return weights.base if "base" in pool.lists else weights.search


def measure_signals(pool: Pool) -> tuple[Company, dict[str, Floats]]:
    """Return the best passages of a pool, and all signals by name, each of shape (passages,)."""
    ranks = {name: find_ranks(ranked, pool.places) for name, ranked in pool.lists.items()}
    company = Company(pool, order_by_lists(ranks, len(pool.passages)))
    signals = company.compare()
    if "dense" in pool.lists:
        signals["dense"] = scale_cosines(pool.lists["dense"], pool.places)
    for name in ("bm25", "base"):
        if name in ranks:
            signals[name] = -np.log1p(ranks[name])
    return company, signals
