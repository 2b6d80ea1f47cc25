"""The signals of a ranking: numbers that a passage has in a list, or beside the best passages of a first ranking."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from llama_index_gear.ranking.pool import Pool, RankedPassage
from llama_index_gear.triple import Triple

BEST = 5
"""Passages of the first ranking that every passage is compared with."""
_READ_FIRST = 2
"""Of these, the passages whose words of the question count as covered."""
_ABSENT_RANK = 300
"""The rank, from 0, of a passage that a list doesn't have."""
_FLOOR = 1e-4
"""Added to a share of the best score before its logarithm is taken."""
_LEAST = 1e-3
"""Added to a fact's likeness to the question: a fact without a word of the question still joins passages."""


# -- signals of a list -------------------------------------------------------------------------------------------


def list_signals(name: str, ranked: Sequence[RankedPassage], places: Mapping[str, int]) -> dict[str, list[float]]:
    """Return the signals of a list by name, each with a number a passage.

    - `NAME.reciprocal_rank`: 1 / (1 + r), with the rank r from 0, and 300 for a passage that the list doesn't have.
    - `NAME.log_rank`: −ln(1 + r).
    - `NAME.score`, if the list has scores and they mean something: of "dense" the cosine less the best cosine (absent:
      the last one's); of "bm25" the share of the best score (absent: 0); of "pagerank" ln(share of the best + 10⁻⁴).

    Args:
        name: name of the list.
        ranked: the list, best first.
        places: node id → place of the passage in the pool.

    """
    ranks = [_ABSENT_RANK] * len(places)
    scores: dict[int, float] = {}
    for rank, (passage_id, score) in enumerate(ranked):
        place = places.get(passage_id)
        if place is not None:
            ranks[place] = min(rank, ranks[place])
            if score is not None:
                scores.setdefault(place, score)
    signals = {
        f"{name}.reciprocal_rank": [1 / (1 + rank) for rank in ranks],
        f"{name}.log_rank": [-math.log(1 + rank) for rank in ranks],
    }
    if name in _SCALES:
        signals[f"{name}.score"] = _SCALES[name](scores, len(places))
    return signals


def _scale_cosines(scores: Mapping[int, float], number: int) -> list[float]:
    best, last = max(scores.values(), default=0.0), min(scores.values(), default=0.0)
    return [scores.get(place, last) - best for place in range(number)]


def _scale_by_best(scores: Mapping[int, float], number: int) -> list[float]:
    best = max(scores.values(), default=0.0)
    return [scores.get(place, 0.0) / best if best > 0 else 0.0 for place in range(number)]


def _scale_by_logarithm(scores: Mapping[int, float], number: int) -> list[float]:
    return [math.log(max(share, 0.0) + _FLOOR) for share in _scale_by_best(scores, number)]


_SCALES = {"dense": _scale_cosines, "bm25": _scale_by_best, "pagerank": _scale_by_logarithm}


# -- signals beside the best passages ----------------------------------------------------------------------------


class Link(NamedTuple):
    """A fact of one of the best passages that leads to another passage.

    Attributes:
        place: the place, in the pool, of the best passage that states the fact.
        triple: the fact.
        entity: key of the entity that both passages name.
        likeness: the fact's likeness to the question.

    """

    place: int
    triple: Triple
    entity: str
    likeness: float


class Company:
    """The best passages of a first ranking, with their facts: every passage of the pool is compared with them.

    A passage is never compared with itself. A fact's likeness is the share of the question that its words make up
    (`Pool.coverage`), and a thousandth. Entities that more than twelve passages of the pool name are no links. What two
    passages are both about is no link between these two.

    Args:
        pool: the pool.
        best: places of the best passages, best first.

    """

    def __init__(self, pool: Pool, best: Sequence[int]) -> None:
        self._pool = pool
        self._best = list(best)
        self._links: dict[str, list[Link]] = {}
        for place in self._best:
            for entity, facts in pool.group_facts(place).items():
                if pool.is_link(entity):
                    fact = max(facts, key=pool.triple_coverage)
                    likeness = pool.triple_coverage(fact) + _LEAST
                    link = Link(place, fact, entity, likeness)
                    for name in pool.names_of(entity):
                        self._links.setdefault(name, []).append(link)

    def signals(self, place: int) -> dict[str, float]:
        """Return the signals of the passage at this place, by name.

        - `new_words`: the share of the question whose words the passage has and the two best passages lack.
        - `named`: 1 if a fact of the best passages names what the passage is about.
        - `named_likeness`: the likeness of the most similar such fact.
        - `linked`: of the facts of the best passages that name any entity of the passage, the highest likeness /
          log₂(1 + passages that name the entity).
        - `in_question`: 1 if all words of the name of what the passage is about stand in the question.
        """
        named, linked = self.named_by(place), self.linked_by(place)
        return {
            "new_words": self._new_words(place),
            "named": float(named is not None),
            "named_likeness": named.likeness if named else 0.0,
            "linked": self._strength(linked) if linked else 0.0,
            "in_question": float(any(map(self._pool.is_in_question, self._pool.contents[place].topics))),
        }

    def named_by(self, place: int) -> Link | None:
        """Return the most similar fact of the other best passages that names what this passage is about."""
        links = [link for key in self._pool.contents[place].topics for link in self._links_of_others(key, place)]
        return max(links, key=lambda link: link.likeness, default=None)

    def linked_by(self, place: int) -> Link | None:
        """Return the strongest fact of the other best passages that names any entity of this passage."""
        shared = [entity for entity in self._pool.contents[place].entities if entity in self._links]
        links = [link for entity in shared for link in self._links_of_others(entity, place)]
        return max(links, key=self._strength, default=None)

    def _links_of_others(self, entity: str, place: int) -> list[Link]:
        """Return the facts of the other best passages that name an entity, under any of its names.

        If such a passage and this one are both about the entity, that is no link: chunks of one document share a title.
        """
        links = [link for link in self._links.get(entity, ()) if link.place != place]
        contents, names = self._pool.contents, self._pool.names_of(entity)
        if not links or contents[place].topics.keys().isdisjoint(names):
            return links
        return [link for link in links if contents[link.place].topics.keys().isdisjoint(names)]

    def _strength(self, link: Link) -> float:
        return link.likeness / math.log2(1 + self._pool.entity_passages[link.entity])

    def _new_words(self, place: int) -> float:
        covered = 0
        for other in self._best[:_READ_FIRST]:
            if other != place:
                covered |= self._pool.contents[other].words
        return self._pool.coverage(self._pool.contents[place].words & ~covered)
