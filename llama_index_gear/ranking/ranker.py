"""The ranking of a pool: one weighted sum of signals, which look at passages together."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from llama_index_gear.ranking.pool import Pool
from llama_index_gear.ranking.signals import Company, Floats, Link, order
from llama_index_gear.ranking.weights import RankingWeights

_FIRST = 10
"""Passages of a ranking that tell what the question is about."""


class Ranked(NamedTuple):
    """A ranked passage.

    Attributes:
        id: its node id.
        score: its estimated share of what the pool holds for the question. The shares of a pool sum to 1.
        shares: name of a signal → what it adds to the weighted sum that ranks the passage, less what it adds on average
            in the pool.
        signals: names of the signals that are not 0 for it.
        named_by: the fact of the best passages that names what it is about (`Company.named`); None if no fact does.
        linked_by: the fact of the best passages that names an entity of it (`Company.linked`); None if no fact does.
        page_link: the link between its page and one of the first passages (`Company.page_links`); None if there is
            none.
        leads: those of these three facts that another passage states, above it in the lists.
        phrases: parts of the question, of two words or more, that stand in it word for word.
        first: places, in the pool, of the first ten passages of this ranking.

    """

    id: str
    score: float
    shares: dict[str, float]
    signals: frozenset[str]
    named_by: Link | None
    linked_by: Link | None
    page_link: Link | None
    leads: list[Link]
    phrases: list[str]
    first: list[int]


def rank(pool: Pool, weights: RankingWeights, top_k: int | None = None) -> list[Ranked]:
    """Rank the passages of a pool; return the first `top_k`, or all. Equal scores keep the order of the pool."""
    if not pool.passages:
        return []
    company, signals, added, scores = _add_up(pool, weights)
    powers = np.exp(scores - scores.max())
    powers /= powers.sum()
    shares = {name: values - values.mean() for name, values in added.items()}
    first_rank = {place: number for number, place in enumerate(company.order, start=1)}
    ranked, places = [], order(scores)
    for place in places[:top_k]:
        named, linked, page_link = company.named[place], company.linked[place], company.page_links[place]
        leads = [link for link in (page_link, named, linked) if link and first_rank[link.place] < first_rank[place]]
        ranked.append(
            Ranked(
                id=pool.passages[place].id,
                score=float(powers[place]),
                shares={name: float(values[place]) for name, values in shares.items()},
                signals=frozenset(name for name, values in signals.items() if values[place]),
                named_by=named,
                linked_by=linked,
                page_link=page_link,
                leads=leads,
                phrases=company.list_phrases(place),
                first=places[:_FIRST],
            )
        )
    return ranked


def rank_ids(pool: Pool, weights: RankingWeights) -> list[str]:
    """Return the ids of all passages of a pool in the order of `rank`, without what places them."""
    return [pool.passages[place].id for place in order(_add_up(pool, weights)[-1])] if pool.passages else []


def _add_up(pool: Pool, weights: RankingWeights) -> tuple[Company, dict[str, Floats], dict[str, Floats], Floats]:
    """Return a pool's best passages, its signals, what each adds to the sum, and the sum of each passage."""
    company = Company(pool, weights.signals)
    signals = company.compare()
    added = {name: weight * signals[name] for name, weight in weights.signals.items()}
    scores: Floats = np.sum(list(added.values()), axis=0) if added else np.zeros(len(pool.passages))
    return company, signals, added, scores
