"""The triples of an open collection in memory: those of each entity and of each passage, as arrays.

A walk over the graph asks for a few triples of many entities. While a collection is open, no other process writes it:
what was read of it holds until this process writes.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import Any

import numpy as np
import qdrant_edge as edge
from numpy.typing import NDArray

from llama_index_gear.store.schema import ALIASES, INCIDENCE_FIELDS, has_sound_entities, to_incidence
from llama_index_gear.triple import Incidence

_ASKED_FIRST = 16  # requests that the engine answers before anything is read: a command asks one question
_PAGE = 512  # triples that are read at each further request, in some 5 ms
_MOST = 1 << 20  # triples of a collection that is read, in some 170 MB
_ID = 36  # characters of an id


class _Names:
    """Some names, and which triples have each: their numbers, in order.

    Attributes:
        numbers: name → its number; a new name gets the next.
        of_triples: number of the name, for each name of each triple.

    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = defaultdict(count().__next__)
        self.of_triples = array("i")
        self.names = np.zeros(0, object)
        self._triples = np.zeros(0, np.int32)
        self._starts: list[int] = []

    def sort(self, triples: NDArray[np.int32]) -> None:
        """Sort the triples by name; `triples` are the numbers of those that `of_triples` is about."""
        self.names = np.array([*self.numbers], object)
        of_triples = np.frombuffer(self.of_triples, np.int32)
        self._triples = triples[np.argsort(of_triples, kind="stable")]
        self._starts = [0, *np.cumsum(np.bincount(of_triples, minlength=len(self.names))).tolist()]

    def find(self, names: Sequence[str]) -> Iterator[NDArray[np.int32]]:
        """Yield the triples of each of these names that some triple has."""
        for number in map(self.numbers.get, names):
            if number is not None:
                yield self._triples[self._starts[number] : self._starts[number + 1]]


class Incidences:
    """Answers which triples name an entity or are of a passage, once all of a collection are read.

    A page of them is read at each request, so that none waits for all. A collection that is too large, or holds a point
    that is no triple, is left to the engine.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget what was read: a point changes."""
        self._asked = 0
        self._offset: Any = None
        self._is_whole = self._is_refused = False
        self._pages: list[str] = []  # ids of their triples, one behind the other
        self._ends = array("i", [0])  # where the entities of a triple begin, and those of the last one end
        self._entities, self._passages = _Names(), _Names()
        self._linked: dict[int, Incidence] = {}  # triples with links of aliases, by number

    def read(self, shard: edge.EdgeShard) -> bool:
        """Read the next page of a collection; return True if all of it is read."""
        if self._is_whole or self._is_refused:
            return self._is_whole
        self._asked += 1
        if self._asked > _ASKED_FIRST:
            self._is_refused = not self._read_page(shard)
        return self._is_whole

    def _read_page(self, shard: edge.EdgeShard) -> bool:
        """Read a page; return False if the collection is left to the engine."""
        if self._offset is None and shard.info().points_count > _MOST:
            return False
        records, self._offset = shard.scroll(
            edge.ScrollRequest(offset=self._offset, limit=_PAGE, with_payload=INCIDENCE_FIELDS)
        )
        ids = []
        for record in records:
            point_id, payload = record.id, record.payload or {}
            keys, passage_id = payload.get("entities", []), payload.get("passage_id")
            if isinstance(point_id, int) or not isinstance(passage_id, str) or not has_sound_entities(payload):
                return False
            if not keys or len(set(keys)) < len(keys):
                return False
            if payload.get(ALIASES):
                self._linked[len(self._passages.of_triples)] = to_incidence(record)
            elif len(keys) > 2:
                return False
            ids.append(str(point_id))
            self._passages.of_triples.append(self._passages.numbers[passage_id])
            self._entities.of_triples.extend([self._entities.numbers[key] for key in keys])
            self._ends.append(len(self._entities.of_triples))
        self._pages.append("".join(ids))
        if self._offset is None:
            self._pages = ["".join(self._pages)]
            triples = np.arange(len(self._passages.of_triples), dtype=np.int32)
            self._passages.sort(triples)
            self._entities.sort(np.repeat(triples, np.diff(self._ends)))
            self._is_whole = True
        return True

    def find(
        self, groups: Sequence[tuple[Sequence[str], Sequence[str]]], limits: Sequence[int]
    ) -> list[list[Incidence]]:
        """Find the triples of each group, as `TripleReads.incident_flow` does, once all are read."""
        answers = []
        for (entities, passage_ids), limit in zip(groups, limits, strict=True):
            found = [*self._entities.find(entities), *self._passages.find(passage_ids)]
            several = found[0] if len(found) == 1 else np.unique(np.concatenate([np.zeros(0, np.int32), *found]))
            answers.append(several[:limit])
        made = iter(self._make(np.concatenate([np.zeros(0, np.int32), *answers])))
        return [list(islice(made, len(several))) for several in answers]

    def _make(self, numbers: NDArray[np.int32]) -> list[Incidence]:
        """Make the incidences of triples, all at once: nearly all have one entity or two."""
        (ids,), entities, passages = self._pages, self._entities, self._passages
        bounds, of_triples = np.frombuffer(self._ends, np.int32), np.frombuffer(entities.of_triples, np.int32)
        starts = bounds[numbers]
        columns = (
            numbers,
            entities.names[of_triples[starts]],
            entities.names[of_triples.take(starts + 1, mode="clip")],
            bounds[numbers + 1] - starts,
            passages.names[np.frombuffer(passages.of_triples, np.int32)[numbers]],
        )
        made = [
            Incidence(ids[_ID * number : _ID * (number + 1)], (first, second)[:width], passage_id)
            for number, first, second, width, passage_id in zip(*(column.tolist() for column in columns), strict=True)
        ]
        if not self._linked:
            return made
        return [self._linked.get(number, one) for number, one in zip(numbers.tolist(), made, strict=True)]
