"""The embedded engine against qdrant-client's own local mode, on the same random points."""

import random
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from qdrant_client import QdrantClient
from qdrant_client.http import models

from llama_index_gear.errors import StoreError, UnsupportedCall, UnsupportedFilter
from llama_index_gear.store.embedded.client import EdgeClient

NAME = "points"
COUNT = 120
DENSE = 8
VECTORS = {"text-dense": models.VectorParams(size=DENSE, distance=models.Distance.COSINE)}
SPARSE = {"sparse": models.SparseVectorParams(modifier=models.Modifier.IDF)}
TOLERANCE = 1e-5
"""Both engines compute in 32-bit floats, in different orders."""


def draw_points(count: int = COUNT, seed: int = 0) -> list[models.PointStruct]:
    rng = random.Random(seed)
    numbers = np.random.default_rng(seed)
    few = numbers.standard_normal((count // 3, DENSE))  # repeated, so that there are ties
    points = []
    for number in range(count):
        words = sorted(rng.sample(range(30), rng.randint(1, 6)))
        payload: dict[str, Any] = {
            "kind": rng.choice(["a", "b", "c"]),
            "number": rng.randrange(10),
            "price": rng.choice([0.5, 1.0, 2.5]),
            "tags": rng.sample(["x", "y", "z"], rng.randint(0, 3)),
            "text": " ".join(rng.sample(["red", "blue", "house", "boat"], 2)),
            "deep": {"level": rng.randrange(3)},
        }
        for key in rng.sample(sorted(payload), rng.randint(0, 2)):
            payload[key] = None if rng.random() < 0.5 else payload.pop(key)
            if payload[key] is not None:
                del payload[key]
        points.append(
            models.PointStruct(
                id=str(uuid.UUID(int=rng.getrandbits(128))) if number % 2 else number,
                vector={
                    "text-dense": few[rng.randrange(len(few))].tolist(),
                    "sparse": models.SparseVector(indices=words, values=[rng.uniform(0.1, 2) for _ in words]),
                },
                payload=payload,
            )
        )
    return points


def fill(client: Any, points: list[models.PointStruct]) -> None:
    client.create_collection(NAME, vectors_config=VECTORS, sparse_vectors_config=SPARSE)
    client.upsert(NAME, points=points, wait=True)


@pytest.fixture(scope="module")
def points() -> list[models.PointStruct]:
    return draw_points()


@pytest.fixture(scope="module")
def read_only(tmp_path_factory: pytest.TempPathFactory, points: list[models.PointStruct]) -> Iterator[tuple[Any, Any]]:
    """Both engines with the same points, for tests that only read."""
    edge, local = EdgeClient(tmp_path_factory.mktemp("edge")), QdrantClient(":memory:")
    for client in (edge, local):
        fill(client, points)
    yield edge, local
    edge.close()
    local.close()


@pytest.fixture
def both(tmp_path: Path, points: list[models.PointStruct]) -> Iterator[tuple[Any, Any]]:
    """Both engines with the same points, for tests that write."""
    edge, local = EdgeClient(tmp_path), QdrantClient(":memory:")
    for client in (edge, local):
        fill(client, points)
    yield edge, local
    edge.close()
    local.close()


def read_all_points(client: Any) -> dict[str, Any]:
    records, following = client.scroll(NAME, limit=10_000, with_payload=True, with_vectors=True)
    assert following is None
    return {str(record.id): (record.payload, convert_vectors(record.vector)) for record in records}


def convert_vectors(vectors: Any) -> dict[str, Any]:
    sparse = vectors["sparse"]
    weights = sorted(zip(sparse.indices, sparse.values, strict=True))
    return {
        "text-dense": pytest.approx(list(vectors["text-dense"]), abs=TOLERANCE),
        "sparse": [(index, pytest.approx(value, abs=TOLERANCE)) for index, value in weights],
    }


def assert_same_ranking(answer: Any, expected: Any, limit: int) -> None:
    """Assert equal scores rank by rank, and the same ids for each score, except for equals that the limit cuts off."""
    left, right = answer.points, expected.points
    assert len(left) == len(right)
    np.testing.assert_allclose([p.score for p in left], [p.score for p in right], rtol=TOLERANCE, atol=TOLERANCE)
    cut = right[-1].score + TOLERANCE * 10 if len(right) == limit else -np.inf
    groups: list[dict[int, set[str]]] = []
    for ranked in (left, right):
        sets: dict[int, set[str]] = {}
        group, previous = 0, None
        for reference, point in zip(right, ranked, strict=True):
            if previous is not None and previous - reference.score > TOLERANCE * 10:
                group += 1
            previous = reference.score
            if reference.score > cut:
                sets.setdefault(group, set()).add(str(point.id))
        groups.append(sets)
    assert groups[0] == groups[1]


# -- filters -------------------------------------------------------------------------------------------------------

KEYS = st.sampled_from(["kind", "number", "price", "tags", "text", "deep.level", "missing"])


# Named functions: Hypothesis cannot print a lambda that mentions `models`.
def value_is(key: str, value: Any) -> models.Condition:
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))


def one_of(key: str, values: list[Any]) -> models.Condition:
    return models.FieldCondition(key=key, match=models.MatchAny(any=values))


def none_of(key: str, values: list[Any]) -> models.Condition:
    return models.FieldCondition(key=key, match=models.MatchExcept(**{"except": values}))


def within(key: str, bounds: dict[str, float]) -> models.Condition:
    return models.FieldCondition(key=key, range=models.Range(**bounds))


def text_has(text: str) -> models.Condition:
    return models.FieldCondition(key="text", match=models.MatchText(text=text))


def is_empty(key: str) -> models.Condition:
    return models.IsEmptyCondition(is_empty=models.PayloadField(key=key))


def is_null(key: str) -> models.Condition:
    return models.IsNullCondition(is_null=models.PayloadField(key=key))


def tags_count(bounds: dict[str, int]) -> models.Condition:
    return models.FieldCondition(key="tags", values_count=models.ValuesCount(**bounds))


def all_any_not(must: Any, should: Any, must_not: Any) -> models.Filter:
    return models.Filter(must=must, should=should, must_not=must_not)


def two_of(conditions: Any) -> models.Filter:
    return models.Filter(min_should=models.MinShould(conditions=conditions, min_count=2))


FIELDS = st.one_of(
    st.builds(value_is, KEYS, st.sampled_from(["a", "x", 1, 3, "none"])),
    st.builds(one_of, KEYS, st.sampled_from([["a", "b"], ["x", "z"], [1, 2, 3], ["none"]])),
    st.builds(none_of, KEYS, st.sampled_from([["a"], ["x", "y"], [1, 2], [7]])),
    st.builds(within, KEYS, st.sampled_from([{"gt": 3}, {"gte": 1.0, "lte": 2.5}, {"lt": 5}, {"lte": 0.5}])),
    st.builds(text_has, st.sampled_from(["red", "RED house", "boat blue", "hous", "none"])),
    st.builds(is_empty, KEYS),
    st.builds(is_null, KEYS),
    st.just(models.HasIdCondition(has_id=[0, 2, 4, 400])),
    st.builds(tags_count, st.sampled_from([{"gt": 1}, {"lte": 1}, {"gte": 3}])),
)


def group_filters(inner: Any) -> Any:
    some, none = st.lists(inner, min_size=1, max_size=3), st.none()
    return st.one_of(
        st.builds(all_any_not, some, none, none),
        st.builds(all_any_not, none, some, none),
        st.builds(all_any_not, none, none, some),
        st.builds(all_any_not, some, some, some),
        st.builds(two_of, st.lists(inner, min_size=2, max_size=4)),
    )


FILTERS = group_filters(st.recursive(FIELDS, group_filters, max_leaves=6))


@settings(max_examples=120, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(match_=FILTERS)
def test_filters_mean_the_same(read_only: tuple[Any, Any], match_: models.Filter) -> None:
    edge, local = read_only
    answer, expected = (
        {record.id for record in client.scroll(NAME, scroll_filter=match_, limit=COUNT)[0]} for client in (edge, local)
    )
    assert answer == expected
    assert edge.count(NAME, count_filter=match_).count == len(expected)
    vector = [1.0] * DENSE
    found = edge.query_points(NAME, query=vector, using="text-dense", query_filter=match_, limit=COUNT)
    assert {point.id for point in found.points} == expected


def test_a_nested_condition_means_the_same(tmp_path: Path) -> None:
    payloads: list[dict[str, Any]] = [{"t": [{"s": "a", "n": 1}, {"s": "b", "n": 2}]}, {"t": [{"s": "a", "n": 2}]}, {}]
    inner = models.Filter(
        must=[
            models.FieldCondition(key="s", match=models.MatchValue(value="a")),
            models.FieldCondition(key="n", match=models.MatchValue(value=2)),
        ]
    )
    match_ = models.Filter(must=[models.NestedCondition(nested=models.Nested(key="t", filter=inner))])
    edge, local = EdgeClient(tmp_path), QdrantClient(":memory:")
    for client in (edge, local):
        client.create_collection(NAME, vectors_config=VECTORS)
        client.upsert(
            NAME,
            points=[
                models.PointStruct(id=n, vector={"text-dense": [1.0] * DENSE}, payload=payload)
                for n, payload in enumerate(payloads)
            ],
        )
        assert [record.id for record in client.scroll(NAME, scroll_filter=match_)[0]] == [1]
        client.close()


def test_dates_and_phrases_and_null_filter(tmp_path: Path) -> None:
    edge = EdgeClient(tmp_path)
    edge.create_collection(NAME, vectors_config=VECTORS)
    payloads: list[dict[str, Any]] = [
        {"when": "2020-01-01T00:00:00Z"},
        {"when": "2021-06-01T00:00:00Z"},
        {"when": None},
    ]
    edge.upsert(
        NAME,
        points=[
            models.PointStruct(id=n, vector={"text-dense": [1.0] * DENSE}, payload=payload)
            for n, payload in enumerate(payloads)
        ],
    )
    late = models.FieldCondition(key="when", range=models.DatetimeRange(gte="2021-01-01T00:00:00Z"))  # type: ignore[arg-type]
    assert [record.id for record in edge.scroll(NAME, scroll_filter=models.Filter(must=[late]))[0]] == [1]
    null = models.FieldCondition(key="when", is_null=True)
    assert [record.id for record in edge.scroll(NAME, scroll_filter=models.Filter(must=[null]))[0]] == [2]
    edge.close()


GEO = models.GeoRadius(center=models.GeoPoint(lon=1, lat=1), radius=1)
UNSUPPORTED_CONDITIONS: dict[str, Any] = {
    "geo_radius": models.FieldCondition(key="at", geo_radius=GEO),
    "MatchTextAny": models.FieldCondition(key="text", match=models.MatchTextAny(text_any="red")),
    "true and false": models.FieldCondition(key="flag", match=models.MatchValue(value=True)),
}


@pytest.mark.parametrize("name", UNSUPPORTED_CONDITIONS)
def test_conditions_without_counterpart_are_refused_by_name(read_only: tuple[Any, Any], name: str) -> None:
    edge, _ = read_only
    alone = models.Filter(must=[UNSUPPORTED_CONDITIONS[name]])
    calls: list[Callable[[models.Filter], Any]] = [
        lambda match_: edge.scroll(NAME, scroll_filter=match_),
        lambda match_: edge.count(NAME, count_filter=match_),
        lambda match_: edge.query_points(NAME, query=[1.0] * DENSE, using="text-dense", query_filter=match_),
        lambda match_: edge.delete(NAME, points_selector=match_),
    ]
    for match_ in (alone, models.Filter(should=[models.Filter(must_not=[alone])])):
        for call in calls:
            with pytest.raises(UnsupportedFilter, match=name):
                call(match_)


# -- search --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("limit", [1, 7, COUNT])
def test_dense_search_is_the_same(read_only: tuple[Any, Any], seed: int, limit: int) -> None:
    vector = np.random.default_rng(seed).standard_normal(DENSE).tolist()
    answer, expected = (
        client.query_points(NAME, query=vector, using="text-dense", limit=limit, with_payload=True)
        for client in read_only
    )
    assert_same_ranking(answer, expected, limit)
    assert all(-1 - TOLERANCE <= point.score <= 1 + TOLERANCE for point in answer.points)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("limit", [1, 7, COUNT])
def test_sparse_search_with_inverse_document_frequency_is_the_same(
    read_only: tuple[Any, Any], seed: int, limit: int
) -> None:
    rng = random.Random(seed)
    words = sorted(rng.sample(range(33), 4))  # 30 to 32 are in no point
    vector = models.SparseVector(indices=words, values=[rng.uniform(0.1, 1) for _ in words])
    answer, expected = (client.query_points(NAME, query=vector, using="sparse", limit=limit) for client in read_only)
    assert_same_ranking(answer, expected, limit)


def test_batches_answer_each_query_with_what_was_asked_of_it(read_only: tuple[Any, Any]) -> None:
    only_a = models.Filter(must=[models.FieldCondition(key="kind", match=models.MatchValue(value="a"))])
    requests = [
        models.QueryRequest(query=[1.0] * DENSE, using="text-dense", limit=5, with_payload=["kind"]),
        models.QueryRequest(query=[-1.0] * DENSE, using="text-dense", limit=3, filter=only_a, with_payload=True),
        models.QueryRequest(
            query=models.SparseVector(indices=[1], values=[1.0]), using="sparse", limit=4, with_vector=True
        ),
        models.QueryRequest(query=[1.0] * DENSE, using="text-dense", limit=4, offset=3, score_threshold=0.1),
        models.QueryRequest(query=models.NearestQuery(nearest=[1.0] * DENSE), using="text-dense"),
        models.QueryRequest(query=[1.0] * DENSE, using="text-dense", limit=COUNT, score_threshold=0.3),
    ]
    edge, local = (client.query_batch_points(NAME, requests=requests) for client in read_only)
    for answer, expected, limit in zip(edge, local, [5, 3, 4, 4, 10, COUNT], strict=True):
        if limit != 4 or answer.points[0].vector is not None:  # an offset may start amid ties: scores only
            assert_same_ranking(answer, expected, limit)
    np.testing.assert_allclose([p.score for p in edge[3].points], [p.score for p in local[3].points], atol=TOLERANCE)
    assert all(set(point.payload) <= {"kind"} for point in edge[0].points)
    assert all(point.payload["kind"] == "a" for point in edge[1].points)
    assert all(set(point.vector) == {"text-dense", "sparse"} for point in edge[2].points)
    assert all(point.payload is None and point.vector is None for point in edge[3].points)
    assert 0 < len(edge[5].points) < COUNT and all(point.score >= 0.3 for point in edge[5].points)
    assert read_only[0].query_batch_points(NAME, requests=[]) == []
    (record, *_), _ = read_only[0].scroll(NAME)
    for point, kind in ((edge[0].points[0], models.ScoredPoint), (record, models.Record)):
        assert set(point.__dict__) == point.model_fields_set == set(kind.model_fields)


@pytest.mark.parametrize("seed", range(4))
def test_a_query_ranks_what_the_stages_before_it_found(read_only: tuple[Any, Any], seed: int) -> None:
    rng = random.Random(seed)
    words = models.SparseVector(indices=sorted(rng.sample(range(30), 3)), values=[1.0, 0.7, 0.4])
    only_a = models.Filter(must=[models.FieldCondition(key="kind", match=models.MatchValue(value="a"))])
    dense: dict[str, Any] = {"query": [rng.uniform(-1, 1) for _ in range(DENSE)], "using": "text-dense"}
    worded = models.Prefetch(query=words, using="sparse", limit=COUNT, filter=only_a)  # no limit cuts ties
    many = models.Filter(must=[models.FieldCondition(key="number", range=models.Range(gte=2))])
    near = models.Prefetch(**dense, limit=COUNT, filter=many, params=models.SearchParams(exact=True))
    few = models.Prefetch(prefetch=[worded, near], **dense, limit=7)
    far = models.Prefetch(**dense, limit=3, score_threshold=2.0)
    for prefetch, least, upper in ((worded, 6, COUNT), ([worded, near], 6, COUNT), (few, 7, 7), (far, 0, 0)):
        answer, expected = (client.query_points(NAME, prefetch=prefetch, **dense, limit=COUNT) for client in read_only)
        assert_same_ranking(answer, expected, upper or COUNT)
        assert least <= len(answer.points) <= upper
    stage = read_only[0].query_points(NAME, query=words, using="sparse", limit=COUNT, query_filter=only_a)
    ranked = read_only[0].query_points(NAME, prefetch=worded, **dense, limit=COUNT)
    assert {point.id for point in ranked.points} == {point.id for point in stage.points} != set()
    assert len(stage.points) < COUNT
    best = read_only[0].query_points(NAME, prefetch=models.Prefetch(query=words, using="sparse", limit=1), **dense)
    assert len(best.points) == 1


def test_a_search_parameter_is_honoured_or_refused(read_only: tuple[Any, Any]) -> None:
    edge, _ = read_only
    arguments = {"query": [1.0] * DENSE, "using": "text-dense", "limit": 3}
    exact = edge.query_points(NAME, search_params=models.SearchParams(exact=True, hnsw_ef=10), **arguments)
    assert exact.points == edge.query_points(NAME, **arguments).points
    assert exact.points[0].payload is not None  # as QdrantClient, whose single queries return payloads
    quantized = models.SearchParams(quantization=models.QuantizationSearchParams(rescore=True))
    for option in (
        {"search_params": quantized},
        {"search_params": models.SearchParams(indexed_only=True)},
        {"prefetch": models.Prefetch(query=models.FusionQuery(fusion=models.Fusion.RRF))},
        {"prefetch": models.Prefetch(query=[1.0] * DENSE, lookup_from=models.LookupLocation(collection="other"))},
        {"prefetch": [models.Prefetch(prefetch=models.Prefetch(query=[1.0] * DENSE, params=quantized))]},
        {"lookup_from": models.LookupLocation(collection="other")},
        {"shard_key_selector": "eu"},
        {"consistency": 2},
        {"with_payload": models.PayloadSelectorExclude(exclude=["kind"])},
    ):
        with pytest.raises(UnsupportedCall):
            edge.query_points(NAME, **{**arguments, **option})
    for query in (models.FusionQuery(fusion=models.Fusion.RRF), 7, models.RecommendQuery(recommend=_make_recommend())):
        with pytest.raises(UnsupportedCall):
            edge.query_points(NAME, query=query, using="text-dense")


def _make_recommend() -> models.RecommendInput:
    return models.RecommendInput(positive=[0])


# -- reading by id -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 7, 50, COUNT, 1000])
def test_scrolling_pages_are_the_same(read_only: tuple[Any, Any], limit: int) -> None:
    only = models.Filter(must=[models.FieldCondition(key="number", range=models.Range(gte=2))])
    walks = []
    for client in read_only:
        pages, offset = [], None
        while True:
            page, offset = client.scroll(NAME, scroll_filter=only, limit=limit, offset=offset)
            pages.append([record.id for record in page])
            if offset is None:
                break
        walks.append(pages)
    assert walks[0] == walks[1]


def test_retrieve_is_in_the_order_asked(read_only: tuple[Any, Any], points: list[models.PointStruct]) -> None:
    ids = [points[n].id for n in (7, 2, 40, 3)]
    asked = [ids[0], ids[1], 4_000, ids[2], str(uuid.UUID(int=5)), ids[3]]
    edge, local = read_only
    for options in ({}, {"with_payload": False}, {"with_vectors": True}, {"with_vectors": ["text-dense"]}):
        answer, expected = (client.retrieve(NAME, ids=asked, **options) for client in (edge, local))
        assert [record.id for record in answer] == ids
        assert {record.id for record in expected} == set(ids)
        by_id = {record.id: record for record in expected}
        for record in answer:
            assert record.payload == by_id[record.id].payload
            assert (record.vector is None) == (by_id[record.id].vector is None)
            if record.vector is not None:
                assert set(record.vector) == set(by_id[record.id].vector)
    assert edge.retrieve(NAME, ids=[]) == []


def test_all_points_are_the_same(read_only: tuple[Any, Any]) -> None:
    edge, local = read_only
    answer, expected = read_all_points(edge), read_all_points(local)
    assert len(answer) == COUNT
    assert {key: payload for key, (payload, _) in answer.items()} == {key: p for key, (p, _) in expected.items()}
    for record in local.scroll(NAME, limit=COUNT, with_vectors=True)[0]:
        vectors = answer[str(record.id)][1]
        assert list(record.vector["text-dense"]) == vectors["text-dense"]
        sparse = record.vector["sparse"]
        assert sorted(zip(sparse.indices, sparse.values, strict=True)) == vectors["sparse"]


# -- writing -------------------------------------------------------------------------------------------------------


def make_selectors(points: list[models.PointStruct]) -> dict[str, Any]:
    match_ = models.Filter(must=[models.FieldCondition(key="kind", match=models.MatchValue(value="a"))])
    ids = [point.id for point in points[:5]] + [4_000]
    return {
        "list": ids,
        "PointIdsList": models.PointIdsList(points=ids),
        "Filter": match_,
        "FilterSelector": models.FilterSelector(filter=match_),
    }


@pytest.mark.parametrize("name", ["list", "PointIdsList", "Filter", "FilterSelector"])
def test_deleting_is_the_same(both: tuple[Any, Any], points: list[models.PointStruct], name: str) -> None:
    left = []
    for client in both:
        client.delete(NAME, points_selector=make_selectors(points)[name], wait=True)
        left.append(set(read_all_points(client)))
    assert left[0] == left[1]
    assert 0 < len(left[0]) < COUNT


def test_upsert_overwrites_the_whole_point(both: tuple[Any, Any], points: list[models.PointStruct]) -> None:
    new = models.PointStruct(
        id=points[0].id,
        vector={"text-dense": [1.0] + [0.0] * (DENSE - 1), "sparse": models.SparseVector(indices=[3], values=[1.0])},
        payload={"only": "this"},
    )
    for client in both:
        client.upsert(NAME, points=[new])
        assert client.count(NAME).count == COUNT
        (record,) = client.retrieve(NAME, ids=[new.id], with_vectors=True)
        assert record.payload == {"only": "this"}
        assert list(record.vector["text-dense"]) == [1.0] + [0.0] * (DENSE - 1)
        assert (list(record.vector["sparse"].indices), list(record.vector["sparse"].values)) == ([3], [1.0])


@pytest.mark.parametrize("mode", [None, *models.UpdateMode])
def test_upsert_under_a_condition_is_the_same(
    both: tuple[Any, Any], points: list[models.PointStruct], mode: models.UpdateMode | None
) -> None:
    match_ = make_selectors(points)["Filter"]
    new = [point.model_copy(update={"payload": {"only": "this"}}) for point in points[:40]]
    new.append(new[0].model_copy(update={"id": 4_001}))
    changed = []
    for client in both:
        client.upsert(NAME, points=new, update_filter=match_, update_mode=mode)
        records = client.retrieve(NAME, ids=[point.id for point in new])
        changed.append({record.id for record in records if record.payload == {"only": "this"}})
    assert changed[0] == changed[1]
    assert (4_001 in changed[0]) == (mode != models.UpdateMode.UPDATE_ONLY)
    assert len(changed[0]) < len(new)


def test_points_and_payloads_change_by_filter_in_the_same_way(
    both: tuple[Any, Any], points: list[models.PointStruct]
) -> None:
    match_ = make_selectors(points)["Filter"]
    gone = models.Filter(must=[models.HasIdCondition(has_id=[points[0].id, 4_000])])
    last = models.Filter(must=[models.HasIdCondition(has_id=[points[-1].id])])
    for client in both:
        client.batch_update_points(
            NAME,
            update_operations=[
                models.SetPayloadOperation(set_payload=models.SetPayload(payload={"mark": 1}, filter=match_)),
                models.DeletePayloadOperation(delete_payload=models.DeletePayload(keys=["kind"], filter=gone)),
                models.DeleteOperation(delete=models.FilterSelector(filter=last)),
            ],
        )
    one, other = ({key: value[0] for key, value in read_all_points(client).items()} for client in both)
    assert one == other and sum("mark" in payload for payload in one.values()) > 1
    assert "kind" not in one[str(points[0].id)] and str(points[-1].id) not in one


def test_uploading_in_batches_is_upserting(both: tuple[Any, Any]) -> None:
    more = draw_points(50, seed=1)
    for client in both:
        client.upload_points(NAME, points=iter(more), batch_size=7, wait=True)
    assert set(read_all_points(both[0])) == set(read_all_points(both[1]))


def test_a_vector_of_another_dimension_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    edge = EdgeClient(tmp_path)
    fill(edge, draw_points(3))
    before = set(read_all_points(edge))
    with pytest.raises(Exception, match="(?i)dim"):
        edge.upsert(NAME, points=[models.PointStruct(id=9, vector={"text-dense": [1.0]}, payload={})])
    assert set(read_all_points(edge)) == before
    edge.close()


def test_no_points_is_no_error(tmp_path: Path) -> None:
    edge = EdgeClient(tmp_path)
    fill(edge, [])
    assert edge.count(NAME).count == 0
    assert edge.query_points(NAME, query=[1.0] * DENSE, using="text-dense").points == []
    edge.close()


# -- collections ---------------------------------------------------------------------------------------------------


def test_collections(both: tuple[Any, Any]) -> None:
    for client in both:
        client.create_payload_index(NAME, field_name="kind", field_schema=models.PayloadSchemaType.KEYWORD)
        info = client.get_collection(NAME)
        assert info.points_count == COUNT
        assert info.config.params.vectors == VECTORS
        assert info.config.params.sparse_vectors["sparse"].modifier == models.Modifier.IDF
        assert client.collection_exists(NAME)
        with pytest.raises((StoreError, ValueError), match="already exists"):
            client.create_collection(NAME, vectors_config=VECTORS)
        assert client.count(NAME).count == COUNT  # and it is still there
        assert client.delete_collection(NAME)
        assert not client.collection_exists(NAME)
        with pytest.raises((StoreError, ValueError), match="not found"):
            client.get_collection(NAME)
        assert not client.delete_collection(NAME)
        fill(client, draw_points(5))  # the name is free again
        assert client.count(NAME).count == 5


def test_metadata_are_added_to_and_kept(tmp_path: Path, points: list[models.PointStruct]) -> None:
    for client in (edge := EdgeClient(tmp_path), QdrantClient(":memory:")):
        client.create_collection(NAME, VECTORS, metadata={"one": 1, "two": 2})
        client.update_collection(NAME, metadata={"two": 3, "more": "x"})
        assert client.get_collection(NAME).config.metadata == {"one": 1, "two": 3, "more": "x"}
    edge.close()
    assert edge.get_collection(NAME).config.metadata == {"one": 1, "two": 3, "more": "x"}
    assert edge.delete_collection(NAME) and list(tmp_path.iterdir()) == []
    with pytest.raises(StoreError, match="not found"):
        edge.update_collection(NAME, metadata={})
    with pytest.raises(UnsupportedCall, match="hnsw_config"):
        edge.update_collection(NAME, metadata={}, hnsw_config={"m": 1})


def test_payload_schema(tmp_path: Path, points: list[models.PointStruct]) -> None:
    """Edge alone is tested: qdrant-client's local mode has no payload indexes."""
    edge = EdgeClient(tmp_path)
    fill(edge, points)
    kinds = {"kind": "keyword", "number": "integer", "price": "float", "text": "text", "flag": "bool"}
    for field, kind in kinds.items():
        edge.create_payload_index(NAME, field_name=field, field_schema=models.PayloadSchemaType(kind))
        edge.create_payload_index(NAME, field_name=field, field_schema=kind)  # type: ignore[arg-type]
    schema = edge.get_collection(NAME).payload_schema
    assert {field: index.data_type.value for field, index in schema.items()} == kinds
    assert schema["kind"].points == sum(1 for point in points if (point.payload or {}).get("kind"))
    edge.close()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../up", ".hidden", "/abs"])
def test_a_name_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    edge = EdgeClient(tmp_path / "inner")
    for call in (edge.collection_exists, edge.delete_collection, lambda n: edge.create_collection(n, VECTORS)):
        with pytest.raises(StoreError, match="names a folder"):
            call(name)
    assert not (tmp_path / "inner").exists()


def test_reopening_keeps_all(tmp_path: Path, points: list[models.PointStruct]) -> None:
    edge = EdgeClient(tmp_path)
    fill(edge, points)
    edge.create_payload_index(NAME, field_name="kind", field_schema=models.PayloadSchemaType.KEYWORD)
    before = {key: payload for key, (payload, _) in read_all_points(edge).items()}
    query = {"query": models.SparseVector(indices=[1, 2], values=[1.0, 1.0]), "using": "sparse", "limit": COUNT}
    ranking = edge.query_points(NAME, **query).points
    info = edge.get_collection(NAME)
    edge.close()
    edge.close()  # twice does no harm
    assert edge.count(NAME).count == COUNT  # the same client opens again
    edge.close()
    again = EdgeClient(tmp_path)
    assert {key: payload for key, (payload, _) in read_all_points(again).items()} == before
    assert [(p.id, p.score) for p in again.query_points(NAME, **query).points] == [(p.id, p.score) for p in ranking]
    assert again.get_collection(NAME).config == info.config
    assert set(again.get_collection(NAME).payload_schema) == {"kind"}
    again.close()


# -- what is refused -----------------------------------------------------------------------------------------------

SUPPORTED = {
    "batch_update_points",
    "close",
    "collection_exists",
    "count",
    "create_collection",
    "create_payload_index",
    "delete",
    "delete_collection",
    "get_aliases",
    "get_collection",
    "query_batch_points",
    "query_points",
    "retrieve",
    "scroll",
    "update_collection",
    "upload_points",
    "upsert",
}


def test_every_other_method_of_a_client_is_refused_by_name(tmp_path: Path) -> None:
    edge = EdgeClient(tmp_path)
    others = {name for name in dir(QdrantClient) if not name.startswith("_")} - SUPPORTED
    assert len(others) > 30
    for name in sorted(others):
        with pytest.raises(UnsupportedCall, match=f"`{name}`"):
            getattr(edge, name)
    assert {name for name in vars(EdgeClient) if not name.startswith("_")} == {*SUPPORTED, "find_incidences"}


OPTIONS: dict[str, Callable[[Any], Any]] = {
    "shard_number": lambda edge: edge.create_collection("new", VECTORS, shard_number=2),
    "quantization_config": lambda edge: edge.create_collection("new", VECTORS, quantization_config="scalar"),
    "shard_key_selector": lambda edge: edge.upsert(NAME, points=[], shard_key_selector="eu"),
    "ordering": lambda edge: edge.delete(NAME, points_selector=[1], ordering="strong"),
    "order_by": lambda edge: edge.scroll(NAME, order_by="number"),
    "consistency": lambda edge: edge.retrieve(NAME, ids=[1], consistency=2),
    "timeout": lambda edge: edge.count(NAME, timeout=3),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_a_server_are_refused_by_name(read_only: tuple[Any, Any], name: str) -> None:
    edge, _ = read_only
    with pytest.raises(UnsupportedCall, match=f"`{name}="):
        OPTIONS[name](edge)
    assert not edge.collection_exists("new")
    assert edge.count(NAME).count == COUNT


def test_options_that_say_nothing_are_no_matter(read_only: tuple[Any, Any]) -> None:
    edge, _ = read_only
    assert edge.count(NAME, timeout=None, shard_key_selector=None).count == COUNT
    found = edge.query_points(NAME, query=[1.0] * DENSE, using="text-dense", limit=1, shard_key_selector=None)
    assert len(found.points) == 1


def test_vector_options_that_edge_would_ignore_are_refused(tmp_path: Path) -> None:
    edge = EdgeClient(tmp_path)
    for params in (
        models.VectorParams(size=4, distance=models.Distance.COSINE, on_disk=True),
        models.VectorParams(
            size=4,
            distance=models.Distance.COSINE,
            multivector_config=models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM),
        ),
        models.VectorParams(
            size=4,
            distance=models.Distance.COSINE,
            quantization_config=models.ScalarQuantization(
                scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8)
            ),
        ),
    ):
        with pytest.raises(UnsupportedCall):
            edge.create_collection(NAME, {"text-dense": params})
    sparse = models.SparseVectorParams(index=models.SparseIndexParams(on_disk=True))
    with pytest.raises(UnsupportedCall, match="`index="):
        edge.create_collection(NAME, VECTORS, {"sparse": sparse})
    assert not edge.collection_exists(NAME)


@pytest.mark.parametrize("modifier", [models.Modifier.IDF, None])
def test_sparse_search_counts_no_points_that_are_gone(
    tmp_path: Path, points: list[models.PointStruct], modifier: models.Modifier | None
) -> None:
    edge, local = EdgeClient(tmp_path), QdrantClient(":memory:")
    query = models.SparseVector(indices=list(range(30)), values=[1.0] * 30)
    scores = []
    for client in (edge, local):
        sparse = {"sparse": models.SparseVectorParams(modifier=modifier)}
        client.create_collection(NAME, vectors_config=VECTORS, sparse_vectors_config=sparse)
        client.upsert(NAME, points=points, wait=True)
        client.delete(NAME, [point.id for point in points[:80]], wait=True)
        client.upsert(NAME, points=points[60:90], wait=True)
        found = client.query_points(NAME, query, using="sparse", limit=100).points
        scores.append({point.id: pytest.approx(point.score, abs=TOLERANCE * 10) for point in found})
    assert scores[0] == {key: value.expected for key, value in scores[1].items()} and len(scores[0]) == 60
    edge.close()
