"""Queries of a collection whose answers don't depend on the engine: ties are ordered by id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from qdrant_client.http import models

from llama_index_gear.flow import Flow, QdrantCall, ask

MAX_TIED = 500
"""Number of points that are read to resolve a tie; in a longer one the engine chooses."""


@dataclass
class _Query:
    """A query, the limit with which it was last asked, and the points that were returned."""

    request: models.QueryRequest
    last_limit: int = 0
    points: list[Any] = field(default_factory=list)
    read_points: dict[str, Any] = field(default_factory=dict)  # points returned with payload

    @property
    def wanted(self) -> int:
        """Number of points that are wanted, 1 or more."""
        return self.request.limit or 1

    def build_next_request(self) -> models.QueryRequest:
        """Build the next request.

        The first asks for one point more than is wanted. The second asks for the ids of many.
        """
        if not self.last_limit:
            self.last_limit = self.wanted + 1
            return self.request.model_copy(update={"limit": self.last_limit})
        self.last_limit = MAX_TIED
        return self.request.model_copy(update={"limit": self.last_limit, "with_payload": False})

    def take(self, points: Sequence[Any]) -> None:
        """Take the points of an answer; ties (to six decimals) are ordered by id."""
        self.points = sorted(points, key=lambda point: (-round(point.score, 6), str(point.id)))
        self.read_points = self.read_points or {str(point.id): point for point in points}

    @property
    def is_cut_in_tie(self) -> bool:
        """True if points that were not returned may tie with the last point that is wanted."""
        if len(self.points) < self.last_limit or self.last_limit >= MAX_TIED:
            return False
        return bool(round(self.points[self.wanted - 1].score, 6) == round(self.points[-1].score, 6))

    @property
    def winners(self) -> list[Any]:
        """The points that are wanted."""
        return self.points[: self.wanted]

    @property
    def unread(self) -> list[str]:
        """Ids of winners whose payload is wanted and was not returned."""
        ids = [str(point.id) for point in self.winners] if self.request.with_payload else []
        return [point_id for point_id in ids if point_id not in self.read_points]


def rank_flow(name: str, requests: Sequence[models.QueryRequest]) -> Flow[list[list[Any]]]:
    """Answer several queries of a collection, each best first, ties (to six decimals) by id.

    Engines add up a dot product in different orders, so the scores of equal vectors differ by some 1e-7. Among points
    that tie for the last place, an engine returns those that it met first. So each query first asks for one point more
    than is wanted. Queries whose last place is tied are repeated together, for the ids of 500 points, and the payloads
    of those that move up are read. In a longer tie the engine chooses.
    """
    queries = tied = [_Query(request) for request in requests]
    while tied:
        batch = [query.build_next_request() for query in tied]
        responses = yield from ask(QdrantCall("query_batch_points", {"collection_name": name, "requests": batch}))
        for query, response in zip(tied, responses, strict=True):
            query.take(response.points)
        tied = [query for query in tied if query.is_cut_in_tie]
    records = yield from _read_payloads_flow(name, [query for query in queries if query.unread])
    return [_fill_payloads(query, records) for query in queries]


def _read_payloads_flow(name: str, queries: Sequence[_Query]) -> Flow[dict[str, Any]]:
    """Read the payloads that queries lack, by id; a point that was deleted meanwhile has none."""
    if not queries:
        return {}
    options = {"with_payload": queries[0].request.with_payload, "with_vectors": False}  # the same for the whole batch
    ids = list(dict.fromkeys(point_id for query in queries for point_id in query.unread))
    records = yield from ask(QdrantCall("retrieve", {"collection_name": name, "ids": ids, **options}))
    return {str(record.id): record.payload for record in records}


def _fill_payloads(query: _Query, payloads: dict[str, Any]) -> list[Any]:
    """Return the winners, with their payloads if these are wanted."""
    if not query.request.with_payload:
        return query.winners
    filled = []
    for point in query.winners:
        if (point_id := str(point.id)) in query.read_points:
            filled.append(query.read_points[point_id])
        elif point_id in payloads:
            filled.append(point.model_copy(update={"payload": payloads[point_id]}))
    return filled
