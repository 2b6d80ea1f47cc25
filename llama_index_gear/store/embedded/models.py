"""Translation between Qdrant's models and Qdrant Edge's. What has no counterpart is refused by name."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

import qdrant_edge as edge
from pydantic_core import to_jsonable_python
from qdrant_client.http import models

from llama_index_gear.errors import UnsupportedCall, UnsupportedFilter
from llama_index_gear.store.points import check_storable
from llama_index_gear.store.schema import NODE_FIELDS

Model = TypeVar("Model", models.Record, models.ScoredPoint)
Request = TypeVar("Request", models.QueryRequest, models.Prefetch)

_FIELD_NAMES = {kind: set(kind.model_fields) for kind in (models.Record, models.ScoredPoint)}
DISTANCES = {
    models.Distance.COSINE: edge.Distance.Cosine,
    models.Distance.DOT: edge.Distance.Dot,
    models.Distance.EUCLID: edge.Distance.Euclid,
    models.Distance.MANHATTAN: edge.Distance.Manhattan,
}

_NO_GRAPH: dict[str, Any] = {"m": 0, "ef_construct": 100, "full_scan_threshold": 10_000}
_STORED_GRAPH = {**_NO_GRAPH, "max_indexing_threads": 0}
_PACKED = {"id_tracker_memory": "cold", "hnsw_config": _STORED_GRAPH}
_PACKED_DENSE = {"memory": "cold", "hnsw_config": _STORED_GRAPH}
_PACKED_SPARSE = {"memory": "cold"}
_LAST_LOG = 2**26  # bytes of the log that the engine keeps when a collection is closed

UPDATE_MODES = {
    models.UpdateMode.UPSERT: edge.UpdateMode.Upsert,
    models.UpdateMode.INSERT_ONLY: edge.UpdateMode.InsertOnly,
    models.UpdateMode.UPDATE_ONLY: edge.UpdateMode.UpdateOnly,
}


def refuse(method: str, options: dict[str, Any], *harmless: str) -> None:
    """Refuse options of a server (shards, replicas, …) that have a value: the engine would ignore them."""
    for name, value in options.items():
        if value is not None and name not in harmless:
            raise UnsupportedCall(f"the embedded engine does not support `{name}={value!r}` of `{method}`")


def to_config(stored: Mapping[str, Any]) -> edge.EdgeConfig | None:
    """Translate the configuration that the engine stored; None if it has settings that a client here never makes.

    Of a collection that is packed with it, indexes are read from files, and each dense vector is compared.
    """
    own = _without(stored, _PACKED)
    dense = {name: _without(vector, _PACKED_DENSE) for name, vector in own.pop("vectors", {}).items()}
    sparse = {name: _without(vector, _PACKED_SPARSE) for name, vector in own.pop("sparse_vectors", {}).items()}
    optimizers = {name: value for name, value in own.pop("optimizers", {}).items() if value is not None}
    if own.keys() - {"on_disk_payload", "payload_memory"} or optimizers not in ({}, {"indexing_threshold": 1}):
        return None
    if any(set(vector) != {"size", "distance"} for vector in dense.values()):
        return None
    if any(set(vector) - {"modifier"} for vector in sparse.values()):
        return None
    return edge.EdgeConfig(
        vectors={
            name: edge.EdgeVectorParams(
                size=vector["size"],
                distance=DISTANCES[models.Distance(vector["distance"])],
                memory=edge.Memory.Cold,
                hnsw_config=edge.HnswIndexConfig(**_NO_GRAPH),
            )
            for name, vector in dense.items()
        },
        sparse_vectors={
            name: edge.EdgeSparseVectorParams(
                modifier=edge.Modifier.Idf if vector.get("modifier") == "idf" else None, memory=edge.Memory.Cold
            )
            for name, vector in sparse.items()
        },
        on_disk_payload=stored.get("on_disk_payload"),
        id_tracker_memory=edge.Memory.Cold,
        optimizers=edge.EdgeOptimizersConfig(indexing_threshold=1),  # KB: all is packed
    )


def _without(settings: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if known.get(name) != value}


def to_index(field_schema: models.PayloadSchemaType | models.KeywordIndexParams) -> Any:
    """Translate the index of a payload field; one of keywords is a file once the collection is packed.

    Raises:
        UnsupportedCall: it has an option that the engine lacks.

    """
    if isinstance(field_schema, models.KeywordIndexParams):
        refuse("create_payload_index", field_schema.model_dump(exclude_none=True), "type", "is_tenant")
        return edge.KeywordIndexParams(is_tenant=field_schema.is_tenant, memory=edge.Memory.Cold)
    if models.PayloadSchemaType(field_schema) == models.PayloadSchemaType.KEYWORD:
        return edge.KeywordIndexParams(memory=edge.Memory.Cold)
    return getattr(edge.PayloadSchemaType, models.PayloadSchemaType(field_schema).value.capitalize())


def to_points(points: Sequence[models.PointStruct]) -> list[edge.Point]:
    """Translate points to write; their payloads become plain JSON.

    Raises:
        ArgumentError: a payload could not be read back.

    """
    checked: set[tuple[int, int]] = set()
    for point in points:
        check_storable(f"the payload of point {point.id!r}", point.payload or {}, checked)
    return [_to_point(point) for point in points]


def _to_point(point: models.PointStruct) -> edge.Point:
    return edge.Point(point.id, _to_vectors(point.vector), to_jsonable_python(point.payload or {}))


def to_point_vectors(points: Sequence[models.PointVectors]) -> list[edge.PointVectors]:
    """Translate vectors to write of points that are there."""
    return [edge.PointVectors(point.id, _to_vectors(point.vector)) for point in points]


def _to_vectors(vector: Any) -> Any:
    return {name: _to_vector(value) for name, value in vector.items()} if isinstance(vector, dict) else vector


def list_vectors(points: Sequence[models.PointStruct | models.PointVectors]) -> set[str]:
    """List the names of the vectors that points have."""
    return {name for point in points if isinstance(point.vector, dict) for name in point.vector}


def estimate_size(point: models.PointStruct | models.PointVectors) -> int:
    """Return the maximum number of bytes that writing the point takes, in the engine's log and files together.

    Measured sizes are 2.3 times those of the vectors and texts: 9 bytes a number and 2.3 a character.
    """
    return 12 * (_count_values(point.vector) + _count_values(getattr(point, "payload", None)))


def estimate_disk(sample: Sequence[models.Record], number: int) -> int:
    """Return about the number of bytes that so many points take, in log and files together, if none was replaced.

    Measured sizes of points of 16 to 768 dimensions are 0.7 to 1.3 times as large. Of the log the last part stays.
    """
    texts = sum(len(json.dumps(point.payload)) for point in sample) / max(1, len(sample))
    numbers = sum(_count_values(point.vector) for point in sample) / max(1, len(sample))
    log = min(number * (1.2 * texts + 5 * numbers), _LAST_LOG)
    return int(log + number * (0.5 * texts + 4.5 * numbers + 700))


def _count_values(value: Any) -> int:
    """Count numbers and characters."""
    if isinstance(value, models.SparseVector):
        return 2 * len(value.indices)
    if isinstance(value, dict):
        return sum(_count_values(key) + _count_values(part) for key, part in value.items())
    if isinstance(value, list | tuple) and value and not isinstance(value[0], int | float):
        return sum(map(_count_values, value))
    return len(value) if hasattr(value, "__len__") else 1


def _to_vector(vector: Any) -> Any:
    if isinstance(vector, models.SparseVector):
        return edge.SparseVector(vector.indices, vector.values)
    return vector


def from_vector(vector: Any) -> Any:
    """Translate a vector, or named vectors, that were read."""
    if isinstance(vector, edge.SparseVector):
        return models.SparseVector.model_construct(indices=vector.indices, values=vector.values)
    if isinstance(vector, dict):
        return {name: from_vector(value) for name, value in vector.items()}
    return vector


def from_id(point_id: Any) -> int | str:
    """Translate a point's id: an integer, or a UUID as text."""
    return point_id if isinstance(point_id, int) else str(point_id)


def from_record(record: edge.Record) -> models.Record:
    """Translate a point of `scroll` or `retrieve`."""
    fields = {
        "id": from_id(record.id),
        "payload": record.payload,
        "vector": from_vector(record.vector),
        "shard_key": None,
        "order_value": None,
    }
    return _construct(models.Record, fields)


def from_scored(points: Sequence[edge.ScoredPoint], request: models.QueryRequest) -> list[models.ScoredPoint]:
    """Translate the points of an answer, with what the query requested."""
    payload, vector = bool(request.with_payload) and not is_of_nodes(request), bool(request.with_vector)
    scored = []
    for point in points:
        point_id = point.id
        fields = {
            "id": point_id if isinstance(point_id, int) else str(point_id),
            "version": point.version,
            "score": point.score,
            "payload": point.payload if payload else None,
            "vector": from_vector(point.vector) if vector else None,
            "shard_key": None,
            "order_value": None,
        }
        scored.append(_construct(models.ScoredPoint, fields))
    return scored


def _construct(kind: type[Model], fields: dict[str, Any]) -> Model:
    """Construct a model as `model_construct` does, without its search for defaults and aliases.

    A hop reads two thousand points, so this matters. All points of a kind share one set of field names: every field is
    set, and Pydantic lets nobody add another.
    """
    model = kind.__new__(kind)
    object.__setattr__(model, "__dict__", fields)
    object.__setattr__(model, "__pydantic_fields_set__", _FIELD_NAMES[kind])
    object.__setattr__(model, "__pydantic_extra__", None)
    object.__setattr__(model, "__pydantic_private__", None)
    return model


def is_of_nodes(request: models.QueryRequest) -> bool:
    """Return True if a query asks for passages, of which some are kept in memory."""
    return bool(request.with_payload == NODE_FIELDS)


def to_query(request: models.QueryRequest, with_idf: Collection[str], with_vector: Any) -> edge.QueryRequest:
    """Translate one query of a batch; one without a vector asks for the points that match, by id.

    Args:
        request: the query.
        with_idf: names of the sparse vectors whose words are weighed by their frequency.
        with_vector: the vectors to return, as in the query: True, False or a list of names.

    """
    refuse("query_batch_points", {"lookup_from": request.lookup_from, "shard_key": request.shard_key})
    return edge.QueryRequest(
        limit=_get_limit(request),
        offset=request.offset,
        query=_to_vector_query(request),
        prefetches=_to_prefetches(request, with_idf),
        filter=None if request.filter is None else to_filter(request.filter),
        score_threshold=request.score_threshold,
        params=_to_params(request, with_idf),
        with_payload=False if is_of_nodes(request) else _to_selector(request.with_payload),
        with_vector=with_vector,
    )


def without_vectors(request: Request, absent: Collection[str]) -> Request | None:
    """Return a query, or a stage before one, without the stages that search by vectors which no point has.

    None if nothing is left of it: it finds nothing.
    """
    if request.query is not None and request.using in absent:
        return None
    if not request.prefetch:
        return request
    stages = request.prefetch if isinstance(request.prefetch, list) else [request.prefetch]
    left = [known for stage in stages if (known := without_vectors(stage, absent)) is not None]
    return request.model_copy(update={"prefetch": left}) if left else None


def _to_prefetches(
    request: models.QueryRequest | models.Prefetch, with_idf: Collection[str]
) -> list[edge.Prefetch] | None:
    """Translate the stages that come before a query, which ranks their results."""
    if not request.prefetch:
        return None
    stages = request.prefetch if isinstance(request.prefetch, list) else [request.prefetch]
    for stage in stages:
        refuse("query_batch_points", {"lookup_from": stage.lookup_from})
    return [
        edge.Prefetch(
            limit=_get_limit(stage),
            query=_to_vector_query(stage),
            prefetches=_to_prefetches(stage, with_idf),
            params=_to_params(stage, with_idf),
            filter=None if stage.filter is None else to_filter(stage.filter),
            score_threshold=stage.score_threshold,
        )
        for stage in stages
    ]


def _get_limit(request: models.QueryRequest | models.Prefetch) -> int:
    return 10 if request.limit is None else request.limit


def _to_vector_query(request: models.QueryRequest | models.Prefetch) -> edge.Query | None:
    query = request.query.nearest if isinstance(request.query, models.NearestQuery) else request.query
    if query is None:
        return None
    if not isinstance(query, list | models.SparseVector):
        raise UnsupportedCall(f"the embedded engine answers dense and sparse query vectors, not {type(query).__name__}")
    return edge.Query.Nearest(_to_vector(query), using=request.using or None)


def _to_params(request: models.QueryRequest | models.Prefetch, with_idf: Collection[str]) -> edge.SearchParams | None:
    has_idf = request.using in with_idf
    if request.params is None and not has_idf:
        return None
    options = {} if request.params is None else request.params.model_dump(exclude_none=True)
    # The engine goes on counting the words of deleted points, unless it counts those of a filter anew.
    idf = edge.IdfParams(corpus=edge.Filter()) if has_idf else None
    converted = edge.SearchParams(
        exact=bool(options.pop("exact", False)), hnsw_ef=options.pop("hnsw_ef", None), idf=idf
    )
    refuse("query_batch_points", {name: value or None for name, value in options.items()})
    return converted


def _to_selector(selector: Any) -> Any:
    if selector is None or isinstance(selector, bool | list):
        return selector
    raise UnsupportedCall("the embedded engine returns the payload whole, not at all, or the fields of a list")


def to_filter(filter_: models.Filter) -> edge.Filter:
    """Translate a filter with all its nested conditions."""

    def translate(conditions: Any) -> list[Any] | None:
        if conditions is None:
            return None
        return [
            _to_condition(condition) for condition in (conditions if isinstance(conditions, list) else [conditions])
        ]

    minimum = filter_.min_should
    return edge.Filter(
        must=translate(filter_.must),
        should=translate(filter_.should),
        must_not=translate(filter_.must_not),
        min_should=None if minimum is None else edge.MinShould(translate(minimum.conditions) or [], minimum.min_count),
    )


def _to_condition(condition: Any) -> Any:
    match condition:
        case models.Filter():
            return to_filter(condition)
        case models.HasIdCondition():
            return edge.HasIdCondition(set(condition.has_id))
        case models.HasVectorCondition():
            return edge.HasVectorCondition(condition.has_vector)
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
    tests = {name for name, value in condition if name != "key" and value is not None}
    if unknown := tests - {"match", "range", "values_count", "is_empty", "is_null"}:
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
