"""Passages of an open collection in memory, so that a question reads none twice.

While a collection is open, no other process writes it: what was read of it holds until this process writes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import qdrant_edge as edge
from qdrant_client.http import models

from llama_index_gear.store.embedded.models import from_id
from llama_index_gear.store.schema import NODE_FIELDS

_KEPT = 1 << 25  # bytes: 9,000 passages of 100 words with their triples
_BESIDE = 500  # bytes of a passage beside its JSON
_MOST_AT_ONCE = 1 << 10  # passages that are kept of one answer: who asks for more reads all, once
_LONGEST = 1 << 14  # characters of a passage's JSON


class StoredPayload(Mapping[str, str]):
    """The fields of a passage's payload that make its node.

    Attributes:
        key: under which a reader keeps what it made of them; None until one has.

    """

    __slots__ = ("_fields", "key")

    def __init__(self, content: str, kind: str) -> None:
        self._fields = dict(zip(NODE_FIELDS, (content, kind), strict=True))
        self.key: Any = None

    def __getitem__(self, name: str) -> str:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(NODE_FIELDS)

    def __len__(self) -> int:
        return len(NODE_FIELDS)


class Payloads:
    """The payloads of passages that were read, by point id.

    They are forgotten before all take more bytes than `_KEPT`.
    """

    def __init__(self) -> None:
        self._kept: dict[Any, StoredPayload] = {}
        self._size = 0  # bytes that they take

    def forget(self) -> None:
        """Forget what was read: a point changes."""
        self._kept.clear()
        self._size = 0

    def fill(self, shard: edge.EdgeShard, points: Sequence[models.ScoredPoint]) -> None:
        """Give points their payloads, with the fields of nodes: the kept ones; the others are read, and kept."""
        ids = {point.id for point in points}
        known: dict[Any, Any] = {id_: self._kept[id_] for id_ in ids if id_ in self._kept}
        unread = list(ids - known.keys())
        records = shard.retrieve(unread, NODE_FIELDS, False) if unread else []
        longest = _LONGEST if len(records) <= _MOST_AT_ONCE else -1
        for record in records:
            point_id = from_id(record.id)
            payload = known[point_id] = record.payload or {}
            content, kind = (payload.get(name) for name in NODE_FIELDS)
            if isinstance(content, str) and isinstance(kind, str) and len(content) <= longest:
                known[point_id] = self._keep(point_id, StoredPayload(content, kind), measure(content))
        for point in points:
            point.__dict__["payload"] = known.get(point.id)  # not validated: it is a mapping

    def _keep(self, point_id: Any, payload: StoredPayload, size: int) -> StoredPayload:
        if self._size + size > _KEPT:
            self.forget()
        self._size += size
        self._kept[point_id] = payload
        return payload


def measure(content: str) -> int:
    """Return the bytes that a kept passage takes: a letter of its JSON takes up to four."""
    return sys.getsizeof(content) + _BESIDE
