"""The triples of an open collection in memory: those of each entity and of each passage, as arrays.

A walk over the graph asks for a few triples of many entities. While a collection is open, no other process writes it:
what was read of it holds until this process writes. A file beside the collection keeps it for the next process. There
is none while the collection has a write that it lacks.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any, Self
from zipfile import BadZipFile

import numpy as np
import qdrant_edge as edge
from numpy.typing import NDArray

from llama_index_gear.errors import StoreError
from llama_index_gear.store.embedded import folder as edge_folder
from llama_index_gear.store.schema import ALIASES, INCIDENCE_FIELDS, has_sound_entities, to_incidence
from llama_index_gear.triple import Incidence

_ASKED_FIRST = 16  # requests that the engine answers before anything is read: a command asks one question
_PAGE = 512  # triples that are read at each further request, in some 5 ms
_MOST = 1 << 20  # triples of a collection that is read, in some 170 MB
_FEWEST = 10_000  # triples of a collection whose file is written: the engine opens fewer in 50 ms
_ID = 36  # characters of an id
_COLUMNS = ("names", "of_triples", "triples", "starts")


class _Names:
    """Some names, and which triples have each: their numbers, in order.

    Attributes:
        numbers: name → its number, until all are read; a new name gets the next.
        names: in order, once all are read: a name's number is then its place.
        of_triples: number of the name, for each name of each triple.

    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = defaultdict(count().__next__)
        self.names = np.zeros(0, object)
        self.of_triples: Any = array("i")
        self._triples = self._starts = np.zeros(0, np.int32)

    def sort(self, triples: NDArray[np.int32]) -> None:
        """Sort the names, and the triples by name; `triples` are the numbers of those that `of_triples` is about."""
        names = sorted(self.numbers)
        places = np.argsort([self.numbers[name] for name in names]).astype(np.int32)
        self.of_triples = places[np.frombuffer(self.of_triples, np.int32)]
        self._triples = triples[np.argsort(self.of_triples, kind="stable")]
        self._starts = np.cumsum(np.bincount(self.of_triples + 1, minlength=len(names) + 1), dtype=np.int32)
        self.names, self.numbers = np.array(names, object), {}

    def find(self, names: Sequence[str]) -> Iterator[NDArray[np.int32]]:
        """Yield the triples of each of these names that some triple has."""
        for name in names:
            number = bisect_left(self.names, name)
            if number < len(self.names) and self.names[number] == name:
                yield self._triples[self._starts[number] : self._starts[number + 1]]

    def to_columns(self) -> tuple[NDArray[Any], ...]:
        """Return what a file keeps of sorted names."""
        return _encode(self.names), self.of_triples, self._triples, self._starts

    @classmethod
    def from_columns(cls, names: NDArray[np.uint8], *columns: NDArray[np.int32]) -> Self:
        """Read what `to_columns` returned."""
        made = cls()
        made.names = np.array(_decode(names).split("\0"), object)
        made.of_triples, made._triples, made._starts = columns
        return made


def _encode(texts: Iterable[str]) -> NDArray[np.uint8]:
    return np.frombuffer("\0".join(texts).encode("utf-8", "surrogatepass"), np.uint8)


def _decode(column: NDArray[np.uint8]) -> str:
    return column.tobytes().decode("utf-8", "surrogatepass")


class Incidences:
    """Answers which triples name an entity or are of a passage, once all of a collection are read.

    A page of them is read at each request, so that none waits for all. A collection that is too large, or holds a point
    that is no triple, is left to the engine.
    """

    def __init__(self) -> None:
        self.written = 0
        self.forget()

    def forget(self, written: int = 0) -> None:
        """Forget what was read: points change. `written` is the number of those that are stored."""
        self.written += written
        self._state = b""  # that of the collection whose file has what was read; empty if none has
        self._asked = 0
        self._offset: Any = None
        self._is_whole = self._is_refused = False
        self._pages: list[str] = []  # ids of their triples, one behind the other
        self._ends: Any = array("i", [0])  # where the entities of a triple begin, and those of the last one end
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

    def save(self, shard: edge.EdgeShard, folder: Path) -> None:
        """Write the file of an open collection, if all is read, or half of its triples were written since it is open.

        A small collection gets none, nor does one on a disk that is nearly full.
        """
        if self._state or not (self._is_whole or self.written) or edge_folder.free_space(folder) < edge_folder.PLENTY:
            return
        points = shard.info().points_count
        if points < _FEWEST or not (self._is_whole or 2 * self.written >= points):
            return
        while not (self._is_whole or self._is_refused):
            self._is_refused = not self._read_page(shard)
        if self._is_refused or any("\0" in name for name in (*self._entities.names, *self._passages.names)):
            return
        shard.flush()  # closing it then writes nothing more
        linked = [[number, one.entities, one.aliases] for number, one in self._linked.items()]
        columns: dict[str, Any] = {"ids": _encode(self._pages), "linked": _encode([json.dumps(linked)])}
        columns["ends"] = np.frombuffer(self._ends, np.int32)
        for kind in ("entities", "passages"):
            names: _Names = getattr(self, f"_{kind}")
            columns |= {f"{kind}_{column}": values for column, values in zip(_COLUMNS, names.to_columns(), strict=True)}
        state = edge_folder.read_state(folder)
        edge_folder.write_kept(folder, lambda file: np.savez(file, state=np.frombuffer(state, np.uint8), **columns))

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Read the file of a collection; return None if there is none that has all that is written."""
        try:
            with np.load(edge_folder.get_kept(folder), allow_pickle=False) as columns:
                state = columns["state"].tobytes()
                return cls()._fill(columns, state) if state == edge_folder.read_state(folder) else None
        except (StoreError, OSError, ValueError, LookupError, EOFError, BadZipFile):  # none, or a part of one
            return None

    def is_of(self, folder: Path) -> bool:
        """Return True if the file, from which all was read, has all that is written."""
        return bool(self._state) and edge_folder.read_state(folder) == self._state

    def _fill(self, columns: Mapping[str, NDArray[Any]], state: bytes) -> Self:
        self._pages, self._ends = [_decode(columns["ids"])], columns["ends"]
        self._entities, self._passages = (
            _Names.from_columns(*(columns[f"{kind}_{column}"] for column in _COLUMNS))
            for kind in ("entities", "passages")
        )
        for number, entities, aliases in json.loads(_decode(columns["linked"])):
            (made,) = self._make(np.array([number]))
            self._linked[number] = made._replace(entities=tuple(entities), aliases=tuple(map(tuple, aliases)))
        self._is_whole, self._state = True, state
        return self

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
        bounds, of_triples = np.frombuffer(self._ends, np.int32), entities.of_triples
        starts = bounds[numbers]
        columns = (
            numbers,
            entities.names[of_triples[starts]],
            entities.names[of_triples.take(starts + 1, mode="clip")],
            bounds[numbers + 1] - starts,
            passages.names[passages.of_triples[numbers]],
        )
        made = [
            tuple.__new__(  # an `Incidence`, in half of the time
                Incidence, (ids[_ID * number : _ID * (number + 1)], (first, second)[:width], passage_id, ())
            )
            for number, first, second, width, passage_id in zip(*(column.tolist() for column in columns), strict=True)
        ]
        if not self._linked:
            return made
        return [self._linked.get(number, one) for number, one in zip(numbers.tolist(), made, strict=True)]
