"""Qdrant's models and Qdrant Edge's, translated into each other; what has no counterpart is refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import qdrant_edge as edge
from pydantic_core import to_jsonable_python
from qdrant_client.http import models

from llama_index_gear.errors import UnsupportedCall, UnsupportedFilter
from llama_index_gear.store.payloads import check_storable

Model = TypeVar("Model", models.Record, models.ScoredPoint)

_ALL = {kind: set(kind.model_fields) for kind in (models.Record, models.ScoredPoint)}
DISTANCES = {
    models.Distance.COSINE: edge.Distance.Cosine,
    models.Distance.DOT: edge.Distance.Dot,
    models.Distance.EUCLID: edge.Distance.Euclid,
    models.Distance.MANHATTAN: edge.Distance.Manhattan,
}


def refuse(method: str, options: dict[str, Any], *harmless: str) -> None:
    """Options of a server (shards, replicas, …) may be passed as None; with a value they'd be ignored: refuse."""
    for name, value in options.items():
        if value is not None and name not in harmless:
            raise UnsupportedCall(f"the embedded engine cannot honour `{name}={value!r}` of `{method}`")


def to_points(points: Sequence[models.PointStruct]) -> list[edge.Point]:
    """Points to write; their payloads become plain JSON.

    Raises:
        ArgumentError: a payload could not be read back.

    """
    checked: set[tuple[int, int]] = set()
    for point in points:
        check_storable(f"the payload of point {point.id!r}", point.payload or {}, checked)
    return [_to_point(point) for point in points]


def _to_point(point: models.PointStruct) -> edge.Point:
    vector: Any = point.vector
    if isinstance(vector, dict):
        vector = {name: _to_vector(value) for name, value in vector.items()}
    return edge.Point(point.id, vector, to_jsonable_python(point.payload or {}))


def size_of(point: models.PointStruct) -> int:
    """Return how many bytes writing the point takes at the most, in the engine's log and files together.

    Measured are 2.3 times what the vectors and texts take: 9 bytes a number and 2.3 a character.
    """
    return 12 * (_length(point.vector) + _length(point.payload))


def _length(value: Any) -> int:
    """Count numbers and characters."""
    if isinstance(value, models.SparseVector):
        return 2 * len(value.indices)
    if isinstance(value, dict):
        return sum(_length(key) + _length(part) for key, part in value.items())
    if isinstance(value, list | tuple) and value and not isinstance(value[0], int | float):
        return sum(map(_length, value))
    return len(value) if hasattr(value, "__len__") else 1


def _to_vector(vector: Any) -> Any:
    if isinstance(vector, models.SparseVector):
        return edge.SparseVector(vector.indices, vector.values)
    return vector


def from_vector(vector: Any) -> Any:
    """A vector, or named vectors, as read."""
    if isinstance(vector, edge.SparseVector):
        return models.SparseVector.model_construct(indices=vector.indices, values=vector.values)
    if isinstance(vector, dict):
        return {name: from_vector(value) for name, value in vector.items()}
    return vector


def from_id(point_id: Any) -> int | str:
    """A point id: an integer, or a UUID as text."""
    return point_id if isinstance(point_id, int) else str(point_id)


def from_record(record: edge.Record) -> models.Record:
    """A point as `scroll` and `retrieve` return it."""
    fields = {
        "id": from_id(record.id),
        "payload": record.payload,
        "vector": from_vector(record.vector),
        "shard_key": None,
        "order_value": None,
    }
    return _made(models.Record, fields)


def from_scored(points: Sequence[edge.ScoredPoint], request: models.QueryRequest) -> list[models.ScoredPoint]:
    """Points as a query returns them, with what the query asked for."""
    payload, vector = bool(request.with_payload), bool(request.with_vector)
    made = []
    for point in points:
        fields = {
            "id": from_id(point.id),
            "version": point.version,
            "score": point.score,
            "payload": point.payload if payload else None,
            "vector": from_vector(point.vector) if vector else None,
            "shard_key": None,
            "order_value": None,
        }
        made.append(_made(models.ScoredPoint, fields))
    return made


def _made(kind: type[Model], fields: dict[str, Any]) -> Model:
    """What `model_construct` does, without its search for defaults and aliases: a hop reads two thousand points.

    All points of a kind share one set of fields' names: every field is set, and Pydantic lets nobody add another.
    """
    model = kind.__new__(kind)
    object.__setattr__(model, "__dict__", fields)
    object.__setattr__(model, "__pydantic_fields_set__", _ALL[kind])
    object.__setattr__(model, "__pydantic_extra__", None)
    object.__setattr__(model, "__pydantic_private__", None)
    return model


def to_query(request: models.QueryRequest) -> edge.QueryRequest:
    """One query of a batch; without a vector, the points that match, by id."""
    refuse("query_batch_points", {"lookup_from": request.lookup_from, "shard_key": request.shard_key})
    return edge.QueryRequest(
        limit=_limit(request),
        offset=request.offset,
        query=_to_vector_query(request),
        prefetches=_to_prefetches(request),
        filter=None if request.filter is None else to_filter(request.filter),
        score_threshold=request.score_threshold,
        params=_to_params(request.params),
        with_payload=_to_selector(request.with_payload),
        with_vector=request.with_vector,
    )


def _to_prefetches(request: models.QueryRequest | models.Prefetch) -> list[edge.Prefetch] | None:
    """The stages before a query: it ranks what they find."""
    if not request.prefetch:
        return None
    stages = request.prefetch if isinstance(request.prefetch, list) else [request.prefetch]
    for stage in stages:
        refuse("query_batch_points", {"lookup_from": stage.lookup_from})
    return [
        edge.Prefetch(
            limit=_limit(stage),
            query=_to_vector_query(stage),
            prefetches=_to_prefetches(stage),
            params=_to_params(stage.params),
            filter=None if stage.filter is None else to_filter(stage.filter),
            score_threshold=stage.score_threshold,
        )
        for stage in stages
    ]


def _limit(request: models.QueryRequest | models.Prefetch) -> int:
    return 10 if request.limit is None else request.limit


def _to_vector_query(request: models.QueryRequest | models.Prefetch) -> edge.Query | None:
    query = request.query.nearest if isinstance(request.query, models.NearestQuery) else request.query
    if query is None:
        return None
    if not isinstance(query, list | models.SparseVector):
        raise UnsupportedCall(f"the embedded engine answers dense and sparse query vectors, not {type(query).__name__}")
    return edge.Query.Nearest(_to_vector(query), using=request.using or None)


def _to_params(params: models.SearchParams | None) -> edge.SearchParams | None:
    if params is None:
        return None
    chosen = params.model_dump(exclude_none=True)
    made = edge.SearchParams(exact=bool(chosen.pop("exact", False)), hnsw_ef=chosen.pop("hnsw_ef", None))
    refuse("query_batch_points", {name: value or None for name, value in chosen.items()})
    return made


def _to_selector(selector: Any) -> Any:
    if selector is None or isinstance(selector, bool | list):
        return selector
    raise UnsupportedCall("the embedded engine returns the payload whole, not at all, or the fields of a list")


def to_filter(rest: models.Filter) -> edge.Filter:
    """A filter with all its nested conditions."""

    def translated(conditions: Any) -> list[Any] | None:
        if conditions is None:
            return None
        return [_to_condition(each) for each in (conditions if isinstance(conditions, list) else [conditions])]

    minimum = rest.min_should
    return edge.Filter(
        must=translated(rest.must),
        should=translated(rest.should),
        must_not=translated(rest.must_not),
        min_should=None if minimum is None else edge.MinShould(translated(minimum.conditions) or [], minimum.min_count),
    )


def _to_condition(condition: Any) -> Any:
    match condition:
        case models.Filter():
            return to_filter(condition)
        case models.HasIdCondition():
            return edge.HasIdCondition(set(condition.has_id))
        case models.IsEmptyCondition():
            return edge.IsEmptyCondition(condition.is_empty.key)
        case models.IsNullCondition():
            return edge.IsNullCondition(condition.is_null.key)
        case models.NestedCondition():
            return edge.NestedCondition(condition.nested.key, to_filter(condition.nested.filter))
        case models.FieldCondition():
            return _to_field_condition(condition)
    raise UnsupportedFilter(f"the embedded engine cannot filter by {type(condition).__name__}")


def _to_field_condition(condition: models.FieldCondition) -> edge.FieldCondition:
    if condition.model_fields_set == {"key", "match"} and condition.match is not None:  # nearly all of the store's
        return edge.FieldCondition(condition.key, match=_to_match(condition.match))
    asked = {name for name, value in condition if name != "key" and value is not None}
    if unknown := asked - {"match", "range", "values_count", "is_empty", "is_null"}:
        raise UnsupportedFilter(f"the embedded engine cannot filter by {', '.join(sorted(unknown))}")
    bounds: Any = condition.range
    if bounds is not None:
        kind = edge.RangeFloat if isinstance(bounds, models.Range) else edge.RangeDateTime
        bounds = kind(**{name: to_jsonable_python(value) for name, value in bounds if value is not None})
    count = condition.values_count
    return edge.FieldCondition(
        condition.key,
        match=None if condition.match is None else _to_match(condition.match),
        range=bounds,
        values_count=None if count is None else edge.ValuesCount(**count.model_dump(exclude_none=True)),
        is_empty=condition.is_empty,
        is_null=condition.is_null,
    )


def _to_match(match_: Any) -> Any:
    match match_:
        case models.MatchValue(value=bool()):  # Edge would look for 1 or 0
            raise UnsupportedFilter("the embedded engine cannot match true and false")
        case models.MatchValue():
            return edge.MatchValue(match_.value)
        case models.MatchAny():
            return edge.MatchAny(match_.any)
        case models.MatchExcept():
            return edge.MatchExcept(match_.except_)
        case models.MatchText():
            return edge.MatchText(match_.text)
        case models.MatchPhrase():
            return edge.MatchPhrase(match_.phrase)
    raise UnsupportedFilter(f"the embedded engine cannot match by {type(match_).__name__}")
