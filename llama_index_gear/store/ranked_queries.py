"""Ranked queries whose answers are the same in every engine, in whatever order their points were written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from qdrant_client.http import models

from llama_index_gear.flow import Flow, QdrantCall

MOST_TIED = 10_000
"""Points that are looked at to end a tie; of a longer one the engine chooses."""
_MORE = 16  # times as many, when a tie has to be ended


@dataclass
class _Query:
    """A query, how many points it was last asked for, and what came."""

    request: models.QueryRequest
    asked: int = 0
    points: list[Any] = field(default_factory=list)
    read: dict[str, Any] = field(default_factory=dict)  # points that came with what was asked of their payload

    @property
    def wanted(self) -> int:
        """How many points are wanted, 1 or more."""
        return self.request.limit or 1

    def asking(self) -> models.QueryRequest:
        """What to ask next: one point more than is wanted; then the ids of many."""
        if not self.asked:
            self.asked = self.wanted if self.request.query is None else self.wanted + 1
            return self.request.model_copy(update={"limit": self.asked})
        self.asked = min(MOST_TIED, _MORE * self.asked)
        return self.request.model_copy(update={"limit": self.asked, "with_payload": False})

    def take(self, points: Sequence[Any]) -> None:
        """Take what came, ties (to six decimals) by id."""
        self.points = sorted(points, key=lambda point: (-round(point.score, 6), str(point.id)))
        self.read = self.read or {str(point.id): point for point in points}

    @property
    def is_cut_in_a_tie(self) -> bool:
        """Whether points that were not seen may tie with the last one that is wanted."""
        if self.request.query is None or len(self.points) < self.asked or self.asked >= MOST_TIED:
            return False
        return bool(round(self.points[self.wanted - 1].score, 6) == round(self.points[-1].score, 6))

    @property
    def winners(self) -> list[Any]:
        """The points that are wanted."""
        return self.points[: self.wanted]

    @property
    def unread(self) -> list[str]:
        """The ids of those whose payload is wanted and did not come."""
        ids = [str(point.id) for point in self.winners] if self.request.with_payload else []
        return [point_id for point_id in ids if point_id not in self.read]


def ranking(name: str, requests: Sequence[models.QueryRequest]) -> Flow[list[list[Any]]]:
    """Answers to several queries of a collection, each best first, ties (to six decimals) by id.

    Engines add up a dot product in different orders: equal vectors' scores differ by some 1e-7. Of points that tie for
    the last place an engine gives those that it met first. So each query is asked for one point more than is wanted;
    those whose last place is tied are asked again, together, for the ids of more, until no tie is cut or 10,000 points
    are seen; then the payloads of those that move up are read. A query without a vector gives points by id, and is
    asked once.
    """
    queries = tied = [_Query(request) for request in requests]
    while tied:
        asking = [query.asking() for query in tied]
        (responses,) = yield [QdrantCall("query_batch_points", {"collection_name": name, "requests": asking})]
        for query, response in zip(tied, responses, strict=True):
            query.take(response.points)
        tied = [query for query in tied if query.is_cut_in_a_tie]
    records = yield from _payloads(name, [query for query in queries if query.unread])
    return [_filled(query, records) for query in queries]


def _payloads(name: str, queries: Sequence[_Query]) -> Flow[dict[str, Any]]:
    """The payloads that queries lack, by id; a point that was deleted meanwhile has none."""
    if not queries:
        return {}
    reading = {"with_payload": queries[0].request.with_payload, "with_vectors": False}  # all of a batch want the same
    ids = list(dict.fromkeys(point_id for query in queries for point_id in query.unread))
    (records,) = yield [QdrantCall("retrieve", {"collection_name": name, "ids": ids, **reading})]
    return {str(record.id): record.payload for record in records}


def _filled(query: _Query, payloads: dict[str, Any]) -> list[Any]:
    """The winners with their payloads, if these are wanted."""
    if not query.request.with_payload:
        return query.winners
    filled = []
    for point in query.winners:
        if (point_id := str(point.id)) in query.read:
            filled.append(query.read[point_id])
        elif point_id in payloads:
            filled.append(point.model_copy(update={"payload": payloads[point_id]}))
    return filled
