"""Synthetic graphs of ten triples a passage: one of many hubs, and one like what is extracted from Wikipedia.

In HotpotQA's 9,221 passages GPT-3.5 found 82,169 entities in 110,043 mentions (an entity of a passage). 89 % of them
stand in one passage; that of a mention drawn by chance stands in 6.3. Nearly three quarters of a passage's triples have
an entity in common.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

BATCH = 6_400  # passages
Batches = Iterator[tuple[range, NDArray[np.int64]]]
"""Passages, by their numbers, and the two entities of each of their ten triples, a batch at a time."""
_MENTIONS = 12  # of a passage
_DISCOUNT, _CONCENTRATION = 0.89, 2_000  # 77,194 entities, 90 % in one passage, 7.5, after HotpotQA's mentions


def _split_passages(triples: int) -> Iterator[range]:
    for start in range(0, triples // 10, BATCH):
        yield range(start, min(start + BATCH, triples // 10))


def draw_hubs(triples: int) -> Batches:
    """Two entities a triple by Zipf's law, from a quarter as many as there are triples.

    The most frequent one stands in 3.6 % of 10,000 triples, in 2.0 % of 1,000,000; that of a mention drawn by chance
    stands in 304 of 10,000 passages; three quarters of the mentions are of entities in ten passages or more.
    """
    chance = np.random.default_rng(1)
    weights = 1 / np.arange(10, max(triples // 4, 100) + 10)
    cumulated = np.cumsum(weights / weights.sum())
    for numbers in _split_passages(triples):
        yield numbers, np.searchsorted(cumulated, chance.random((len(numbers), 10, 2)))


def draw_extracted(triples: int) -> Batches:
    """Twelve mentions a passage, drawn by a Pitman-Yor process: its entities are about as frequent as HotpotQA's.

    Seven triples join a passage's first entity with others, three join others. A new entity is met with chance
    (θ + d · entities so far) / (θ + mentions so far), one that was met with a chance in proportion to its mentions less
    d (Pitman and Yor 1997). So new ones get rarer as the corpus grows, and those that are known keep their share: that
    of a mention drawn by chance stands in 7.5 of 9,172 passages, in 74 of 100,000. After as many mentions as MuSiQue
    has it stands in 2.2 instead of 3.6, for want of one entity that stands in 9 % of the passages.
    """
    chance = random.Random(1).random
    mentions, times = array("i"), array("i")
    joined = [(0, each) for each in range(1, 8)] + [(8, 9), (9, 10), (10, 11)]
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
        yield numbers, last[:, joined]


GRAPHS: dict[str, Callable[[int], Batches]] = {"hubs": draw_hubs, "extracted": draw_extracted}
