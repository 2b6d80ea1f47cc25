"""Synthetic graphs of ten triples a passage: one with many hubs, and one like an extraction from Wikipedia.

A mention is an entity of a passage. In HotpotQA's 9,221 passages GPT-3.5 found 82,169 entities in 110,043 mentions.
89 % of the entities stand in one passage. The entity of a mention drawn by chance stands in 6.3 passages. Nearly three
quarters of a passage's triples have an entity in common.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

BATCH = 6_400  # passages
Batches = Iterator[tuple[range, NDArray[np.int64]]]
"""Batches of passages: their numbers, and the two entities of each of their ten triples."""
_MENTIONS = 12  # of a passage
# After as many mentions as HotpotQA has: 77,194 entities, 90 % of them in one passage, 7.5 passages a mention's entity.
_DISCOUNT, _CONCENTRATION = 0.89, 2_000


def _split_passages(triples: int) -> Iterator[range]:
    for start in range(0, triples // 10, BATCH):
        yield range(start, min(start + BATCH, triples // 10))


def draw_hubs(triples: int) -> Batches:
    """Draw two entities a triple by Zipf's law. There are a quarter as many entities as triples.

    The most frequent entity stands in 3.6 % of 10,000 triples, and in 2.0 % of 1,000,000. The entity of a mention drawn
    by chance stands in 304 of 10,000 passages. Three quarters of the mentions are of entities in ten passages or more.
    """
    chance = np.random.default_rng(1)
    weights = 1 / np.arange(10, max(triples // 4, 100) + 10)
    cumulated = np.cumsum(weights / weights.sum())
    for numbers in _split_passages(triples):
        yield numbers, np.searchsorted(cumulated, chance.random((len(numbers), 10, 2)))


def draw_extracted(triples: int) -> Batches:
    """Draw twelve mentions a passage by a Pitman-Yor process, with entities about as frequent as HotpotQA's.

    Seven triples join a passage's first entity with others, three join others. The next mention is of a new entity with
    probability (θ + d · entities so far) / (θ + mentions so far). Otherwise it is of a known entity, with a probability
    proportional to its mentions less d (Pitman and Yor 1997). So new entities get rarer as the corpus grows, and known
    ones keep their share: the entity of a mention drawn by chance stands in 7.5 of 9,172 passages, and in 74 of
    100,000. After as many mentions as MuSiQue has, it stands in 2.2 passages instead of MuSiQue's 3.6, since MuSiQue
    has one entity in 9 % of its passages.
    """
    chance = random.Random(1).random
    mentions, times = array("i"), array("i")
    pairs = [(0, other) for other in range(1, 8)] + [(8, 9), (9, 10), (10, 11)]
    for numbers in _split_passages(triples):
        for _ in range(_MENTIONS * len(numbers)):
            entity = len(times)
            if chance() * (_CONCENTRATION + len(mentions)) < _CONCENTRATION + _DISCOUNT * entity:
                times.append(0)
            else:
                entity = mentions[int(chance() * len(mentions))]
                while chance() * times[entity] < _DISCOUNT:
                    entity = mentions[int(chance() * len(mentions))]
            mentions.append(entity)
            times[entity] += 1
        last = np.array(mentions[-_MENTIONS * len(numbers) :], dtype=np.int64).reshape(-1, _MENTIONS)
        yield numbers, last[:, pairs]


GRAPHS: dict[str, Callable[[int], Batches]] = {"hubs": draw_hubs, "extracted": draw_extracted}
