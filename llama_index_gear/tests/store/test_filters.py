"""Filters hold for odd keys and numbers, in every method, in both engines; a filter that says nothing deletes nothing.

`holds` is the meaning of a filter in plain Python. `GEAR_FILTER_CALLS` says how many calls are drawn of it.
"""

import math
import os
import random
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from operator import gt, lt
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.bridge.pydantic import BaseModel
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import QdrantClient
from qdrant_client.http import models

import llama_index_gear
from llama_index_gear.errors import ArgumentError, StoreError, TenantError, UnsupportedFilter
from llama_index_gear.flow import run
from llama_index_gear.retrievers.graph_expansion import NaiveGERetriever
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.store.filters import bound_float, build_conditions, list_indexed_fields, require_conditions
from llama_index_gear.store.settings import CollectionSettings
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import contents, passage, read

EMBED = WordEmbedding()
O = FilterOperator  # noqa: E741 - it stands in tables
AND, OR, NOT = FilterCondition.AND, FilterCondition.OR, FilterCondition.NOT
CALLS, SEED = int(os.environ.get("GEAR_FILTER_CALLS", "50")), int(os.environ.get("GEAR_FILTER_SEED", "22"))


def is_(key: str, value: Any = None, operator: FilterOperator = O.EQ) -> MetadataFilter:
    return MetadataFilter(key=key, value=value, operator=operator)


def group_filters(condition: FilterCondition | None, *filters: MetadataFilter | MetadataFilters) -> MetadataFilters:
    return MetadataFilters(filters=list(filters), condition=condition)


@pytest.fixture(params=["edge", "memory"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., GeARVectorStore]]:
    made: list[GeARVectorStore] = []

    def maker(**arguments: Any) -> GeARVectorStore:
        options = {"embed_model": EMBED, "embed_triples": True, **arguments}
        if request.param == "edge":
            made.append(GeARVectorStore.from_path(tmp_path / f"store-{len(made)}", **options))
        else:
            made.append(GeARVectorStore(client=QdrantClient(":memory:"), **options))
        return made[-1]

    yield maker
    for store in made:
        store.close()


def make_stone(node_id: str, metadata: dict[str, Any]) -> BaseNode:
    """Return a passage that every question about stones finds, with a triple that all questions about the Hub find."""
    node = passage(node_id, "stone", [(node_id, "is", "Hub")], metadata=metadata)
    node.excluded_embed_metadata_keys += metadata
    return node


# -- the meaning of a filter, in plain Python ----------------------------------------------------------------------


def split_path(key: str) -> list[str | int | None] | None:
    """Split a nested path into names, positions and None (every element); return None if the key is no path."""
    steps: list[str | int | None] = []
    for part in key.split("."):
        name, *brackets = part.split("[")
        if not name or "]" in name:
            return None
        steps.append(name)
        for bracket in brackets:
            inside = bracket[:-1]
            if not bracket.endswith("]") or not re.fullmatch("[0-9]{0,18}", inside):
                return None
            steps.append(int(inside) if inside else None)
    return steps


def select_values(value: Any, steps: list[str | int | None]) -> list[Any]:
    if not steps:
        return [value]
    step, rest = steps[0], steps[1:]
    if isinstance(step, str):
        return select_values(value[step], rest) if isinstance(value, dict) and step in value else []
    if not isinstance(value, list):
        return []
    return [
        leaf for element in (value if step is None else value[step : step + 1]) for leaf in select_values(element, rest)
    ]


def read_values(key: str, metadata: dict[str, Any]) -> list[list[Any]]:
    """Return the values under the literal key, and those at its nested path."""
    literal, steps = [metadata[key]] if key in metadata else [], split_path(key)
    return [literal] if steps in (None, [key]) else [literal, select_values(metadata, steps or [])]


def is_same(stored: Any, value: Any) -> bool:
    if isinstance(value, float):
        return is_number(stored) and math.isclose(stored, value, rel_tol=1e-14)
    return type(stored) is type(value) and stored == value


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def flatten_elements(values: list[Any]) -> list[Any]:
    return [element for value in values for element in (value if isinstance(value, list) else [value])]


def is_empty(values: list[Any]) -> bool:
    return all(value is None or value == [] for value in values)


def list_words(text: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[^\W_]+", text)}


def is_among(wants: list[Any], some: list[Any]) -> bool:
    return any(is_same(element, want) for element in some for want in wants)


def is_outside(wants: list[Any], values: list[Any]) -> bool:
    """Return True if some value is none of the wanted ones; if floats are wanted, no value may be a wanted one."""
    if any(isinstance(want, float) for want in wants):
        return not is_empty(values) and not is_among(wants, flatten_elements(values))
    return any(element is not None and not is_among(wants, [element]) for element in flatten_elements(values))


def has_words(wanted: str, values: list[Any]) -> bool:
    texts = (list_words(element) for element in flatten_elements(values) if isinstance(element, str))
    return bool(list_words(wanted)) and list_words(wanted) <= set().union(*texts)


def has_number(wanted: float, values: list[Any], how: Callable[[Any, Any], bool], equal: bool) -> bool:
    numbers = [element for element in flatten_elements(values) if is_number(element)]
    return any(equal if is_same(number, float(wanted)) else how(number, wanted) for number in numbers)


def passes(operator: FilterOperator, wanted: Any, values: list[Any]) -> bool:
    """Return True if the values under one reading of a key satisfy an operator."""
    wants = wanted.split(",") if isinstance(wanted, str) and operator in (O.IN, O.NIN) else wanted
    wants = wants if isinstance(wants, list) else [wants]
    arrays = [value for value in values if isinstance(value, list)]
    tests: dict[FilterOperator, Callable[[], bool]] = {
        **dict.fromkeys((O.EQ, O.IN), lambda: is_among(wants, flatten_elements(values))),
        **dict.fromkeys((O.NE, O.NIN), lambda: is_outside(wants, values)),
        O.GT: lambda: has_number(wanted, values, gt, equal=False),
        O.GTE: lambda: has_number(wanted, values, gt, equal=True),
        O.LT: lambda: has_number(wanted, values, lt, equal=False),
        O.LTE: lambda: has_number(wanted, values, lt, equal=True),
        **dict.fromkeys((O.TEXT_MATCH, O.TEXT_MATCH_INSENSITIVE), lambda: has_words(wanted, values)),
        **dict.fromkeys((O.CONTAINS, O.ANY), lambda: any(is_among(wants, array) for array in arrays)),
        O.ALL: lambda: all(any(is_among([want], array) for array in arrays) for want in wants),
    }
    return tests[operator]()


def holds(filters: MetadataFilter | MetadataFilters, metadata: dict[str, Any]) -> bool:
    if isinstance(filters, MetadataFilters):
        held = [holds(part, metadata) for part in filters.filters]
        return {None: all(held), AND: all(held), OR: any(held), NOT: not any(held)}[filters.condition]
    both = read_values(filters.key, metadata)
    if filters.operator == O.IS_EMPTY:
        return all(map(is_empty, both))
    passed = [passes(filters.operator, filters.value, values) for values in both]
    if filters.operator in (O.NE, O.NIN) and len(both) > 1:
        return any(passed) and all(ok or is_empty(values) for ok, values in zip(passed, both, strict=True))
    return any(passed)


# -- what LlamaIndex's Qdrant store supports means the same --------------------------------------------------------

SCALARS: list[Any] = ["a", "b", "a,b", "red house", "Red", "", 0, 1, 2, -3, 0.5, 2.0, 0.1, True, False, None]
PLAIN = ["kind", "year", "dash-ed", "_x", "1st", "größe", "日本"]


def payloads() -> st.SearchStrategy[dict[str, Any]]:
    scalars = st.sampled_from(SCALARS)
    values = st.one_of(scalars, st.lists(scalars, max_size=3), st.dictionaries(st.sampled_from("xy"), scalars))
    return st.dictionaries(st.sampled_from(PLAIN), values)


def supported() -> st.SearchStrategy[MetadataFilters]:
    keys, texts, numbers = st.sampled_from(PLAIN), st.sampled_from(["a", "b", "a,b", ""]), st.sampled_from([0, 1, 2])
    floats = st.sampled_from([0.5, 2.0, 0.1])
    lists = st.one_of(st.lists(texts, max_size=2), st.lists(numbers, min_size=1, max_size=2), texts)
    bounds = st.sampled_from([O.GT, O.GTE, O.LT, O.LTE])
    leaves = st.one_of(
        st.builds(is_, keys, st.one_of(texts, numbers, floats), st.just(O.EQ)),
        st.builds(lambda key, value: MetadataFilter.model_construct(key=key, value=value, operator=None), keys, texts),
        st.builds(is_, keys, st.one_of(texts, numbers), st.just(O.NE)),
        st.builds(is_, keys, lists, st.sampled_from([O.IN, O.NIN])),
        st.builds(is_, keys, st.one_of(numbers, floats), bounds),
        st.builds(is_, keys, st.sampled_from(["red", "house RED", "", "a"]), st.just(O.TEXT_MATCH)),
        st.builds(is_, keys, st.sampled_from(["red", "RED"]), st.just(O.TEXT_MATCH_INSENSITIVE)),
        st.builds(is_, keys, st.none(), st.just(O.IS_EMPTY)),
    )
    joined = st.sampled_from([AND, OR, NOT])

    def groups(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[MetadataFilters]:
        return st.builds(
            lambda some, condition: MetadataFilters.model_construct(filters=some, condition=condition),
            st.lists(inner, min_size=1, max_size=3),
            joined,
        )

    return groups(st.recursive(leaves, groups, max_leaves=5))


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    clients: list[Any] = [EdgeClient(tmp_path_factory.mktemp("edge")), QdrantClient(":memory:")]
    for client in clients:
        client.create_collection("c", {"v": models.VectorParams(size=1, distance=models.Distance.DOT)})
    yield clients
    for client in clients:
        client.close()


@settings(max_examples=300)
@given(drawn=st.lists(payloads(), min_size=4, max_size=4), filters=supported())
def test_what_llama_index_s_store_supports_means_the_same(
    engines: list[Any], drawn: list[dict[str, Any]], filters: MetadataFilters
) -> None:
    qdrant_filter = QdrantVectorStore.model_construct()._build_query_filter(VectorStoreQuery(filters=filters))
    own_filter = models.Filter(must=build_conditions(filters))
    under = models.Filter(must=build_conditions(filters, under="metadata."))
    for client in engines:
        points = [
            models.PointStruct(id=n, vector={"v": [1.0]}, payload={**payload, "metadata": payload})
            for n, payload in enumerate(drawn)
        ]
        client.upsert("c", points=points)
        found, same_, triples = (
            [point.id for point in client.scroll("c", scroll_filter=match_)[0]]
            for match_ in (qdrant_filter, own_filter, under)
        )
        assert found == same_ == triples


# -- keys ----------------------------------------------------------------------------------------------------------

ODD = [
    *("a.b", "br[0]", "br[]", "a.b[0].c", "page label", "page label.x", "dash-ed", "1st", "日本", "größe", "e\u0301"),
    *("x[", "x]", "[]", "[0]", ".", "a.", ".a", "a..b", "🙂", "$", "it's", "tab\t", "line\n", "a/b", "\x01", "²"),
    *("br[99999999999999999999]", "br[-1]", "br[٣]", "objs[].x"),
]
QUESTIONS: list[tuple[FilterOperator, Any]] = [
    *((O.EQ, value) for value in ("x", 1, 1.5)),
    *((O.NE, value) for value in ("x", 1, 1.5)),
    *((operator, 1) for operator in (O.GT, O.GTE, O.LT, O.LTE)),
    *((operator, value) for operator in (O.IN, O.NIN) for value in (["x", "z"], "x,z", [1, 7], [1.5], [])),
    *((O.TEXT_MATCH, "x"), (O.TEXT_MATCH_INSENSITIVE, "X"), (O.IS_EMPTY, None), (O.CONTAINS, "x"), (O.CONTAINS, 1)),
    *((O.ANY, ["x", "y"]), (O.ANY, []), (O.ALL, ["x", "y"])),
]


def put(value: Any, steps: list[str | int | None]) -> Any:
    """Wrap a value at a nested path."""
    if not steps:
        return value
    inner = put(value, steps[1:])
    return {steps[0]: inner} if isinstance(steps[0], str) else [None] * int(steps[0] or 0) + [inner]


@pytest.mark.parametrize("key", ODD)
def test_a_key_names_a_field_and_a_path(make: Callable[..., GeARVectorStore], key: str) -> None:
    store, steps = make(), split_path(key)
    table: list[dict[str, Any]] = [{}, {"other": "x"}]
    for value in ("x", "y", 1, 2, 1.5, None, [], ["x", "y"], ["y", 1], [["x"], 7], {"x": "x"}):
        table.append({key: value})
        if steps is not None and steps != [key]:
            path = put(value, steps)
            table += [path, {**path, key: "x"}, {**put("x", steps), key: value}]
    nodes = {f"n{n}": make_stone(f"n{n}", metadata) for n, metadata in enumerate(table)}
    store.add(list(nodes.values()))
    for number, (operator, value) in enumerate(QUESTIONS):
        for condition in (AND, NOT)[(number + ODD.index(key)) % 2 :: 2]:  # of the next key, the other
            filters = group_filters(condition, is_(key, value, operator))
            wanted = {node_id for node_id, node in nodes.items() if holds(filters, node.metadata)}
            assert {node.node_id for node in store.get_nodes(filters=filters)} == wanted, filters
            (found,) = read(store, filters).incident_flow([(["hub"], [])], [99])
            assert {triple.passage_id for triple in found} == wanted, filters


@pytest.mark.parametrize("key", ["", 'a"b', '"a.b"', "a\\b", "a.\\", "\ud800"])
def test_a_key_that_cannot_be_addressed_is_refused(make: Callable[..., GeARVectorStore], key: str) -> None:
    store = make()
    store.add([make_stone("n", {"year": 1})])
    for operator, value in QUESTIONS:
        with pytest.raises(UnsupportedFilter, match="address"):
            store.get_nodes(filters=group_filters(AND, is_(key, value, operator)))
    with pytest.raises(ArgumentError, match="payload_indexes"):
        make(collection_settings=CollectionSettings(payload_indexes=[{"field_name": key, "field_schema": "keyword"}]))


@pytest.mark.parametrize(
    "key",
    [
        *("_node_content", "_node_content.x", "_node_type[0]", "gear_triples[].subject", "gear_triples[0]"),
        *("gear_extraction.calls", "gear_extraction.outcome.x", "gear_extraction[0]"),
    ],
)
def test_a_key_of_the_store_s_own_is_refused(key: str) -> None:
    for condition in (AND, NOT):
        with pytest.raises(UnsupportedFilter, match="don't see"):
            build_conditions(group_filters(condition, is_(key, "x")))


def test_an_index_serves_both_readings(tmp_path: Path) -> None:
    schema = {"field_schema": models.PayloadSchemaType.KEYWORD}
    indexes = [{"field_name": name, **schema} for name in ("kind", "a.b", "page label")]
    store = GeARVectorStore.from_path(
        tmp_path, embed_model=EMBED, embed_triples=True, collection_settings=CollectionSettings(payload_indexes=indexes)
    )
    store.add([make_stone("n", {"a.b": "x"}), make_stone("m", {"a": {"b": "x"}}), make_stone("o", {"a.b": "y"})])
    names = {"kind", "a.b", '"a.b"', '"page label"'}
    passages, triples = (
        set(store.client.get_collection(name).payload_schema)
        for name in (store.collection_name, store.triple_collection_name)
    )
    assert names <= passages and {f"metadata.{name}" for name in names} <= triples
    assert {node.node_id for node in store.get_nodes(filters=group_filters(AND, is_("a.b", "x")))} == {"n", "m"}
    store.close()


@pytest.mark.parametrize("index", [{}, {"field_name": "a"}, {"field_name": "a", "field_schema": "keyword", "x": 1}])
def test_an_index_without_its_name_or_schema_is_refused(index: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="payload_indexes"):
        GeARVectorStore(
            client=QdrantClient(":memory:"), collection_settings=CollectionSettings(payload_indexes=[index])
        )


# -- values and groups ---------------------------------------------------------------------------------------------

LISTS, BOUNDS = (O.IN, O.NIN, O.ANY, O.ALL), (O.GT, O.GTE, O.LT, O.LTE)
ONES, TEXTS = (O.EQ, O.NE, O.CONTAINS), (O.TEXT_MATCH, O.TEXT_MATCH_INSENSITIVE)
NO_NUMBERS = [float("nan"), float("inf"), -float("inf"), 2**63, -(2**63) - 1, 2**70, True]
WRONG: list[tuple[Any, Any]] = [
    *((operator, value) for operator in ONES for value in (None, [], ["a"], [1], {"a": 1}, "\ud800", *NO_NUMBERS)),
    *((operator, value) for operator in BOUNDS for value in (None, "a", "1", [1], *NO_NUMBERS)),
    *((operator, value) for operator in TEXTS for value in (None, 1, 1.5, True, ["a"], "\ud800")),
    *((operator, value) for operator in LISTS for value in (None, 1, 1.5, ("a",), [None], ["\ud800"], [[1]])),
    *((operator, [value]) for operator in LISTS for value in NO_NUMBERS),
    *((operator, "a,b") for operator in (O.ANY, O.ALL)),
    *((O.IN, "a,\ud800"), (O.ALL, [])),
    *((unknown, 1) for unknown in ("like", 3)),
]


@pytest.mark.parametrize(("operator", "value"), WRONG, ids=repr)
def test_a_value_of_the_wrong_kind_is_refused_by_name(operator: Any, value: Any) -> None:
    wrong = MetadataFilter.model_construct(key="field", value=value, operator=operator)
    for filters in (group_filters(None), group_filters(OR, is_("a", 1), group_filters(NOT, is_("b", 2)))):
        filters.filters.append(wrong)
        with pytest.raises(UnsupportedFilter) as raised:
            build_conditions(filters)
        assert "'field'" in str(raised.value) and repr(value) in str(raised.value)


NOTHING = [group_filters(condition) for condition in (AND, OR, NOT, None)]
HOLLOW = [
    *(group_filters(condition, empty) for condition in (AND, OR, NOT, None) for empty in NOTHING),
    *(group_filters(condition, is_("open", "yes"), empty) for condition in (AND, OR, NOT, None) for empty in NOTHING),
    *(group_filters(AND, group_filters(OR, group_filters(NOT, empty))) for empty in NOTHING),
    *(group_filters(condition) for condition in (OR, NOT)),
]


@pytest.mark.parametrize("hollow", HOLLOW, ids=repr)
def test_an_empty_group_is_refused_and_deletes_nothing(
    make: Callable[..., GeARVectorStore], hollow: MetadataFilters
) -> None:
    store = make()
    store.add([make_stone(f"n{n}", {"open": "yes" if n % 2 else "no"}) for n in range(4)])
    before = contents(store)
    for attempt in (
        lambda: store.delete_nodes(filters=hollow),
        lambda: store.delete_nodes(["n1"], hollow),
        lambda: store.get_nodes(filters=hollow),
        lambda: store.query(VectorStoreQuery(query_str="stone", filters=hollow)),
        lambda: read(store, hollow).search_flow(["Hub"], 9),
        lambda: NaiveGERetriever(store, filters=hollow).retrieve("stone"),
    ):
        with pytest.raises(UnsupportedFilter, match="empty group"):
            attempt()
    assert contents(store) == before


@pytest.mark.parametrize("condition", ["and", "xor", 1])
def test_filters_are_joined_by_what_llama_index_has(condition: Any) -> None:
    filters = MetadataFilters.model_construct(filters=[is_("a", 1)], condition=condition)
    if condition == "and":  # an enum of texts
        assert build_conditions(filters) == build_conditions(group_filters(AND, is_("a", 1)))
    else:
        with pytest.raises(UnsupportedFilter, match="joined"):
            build_conditions(filters)


def test_a_group_without_a_condition_is_an_and(make: Callable[..., GeARVectorStore]) -> None:
    store = make()
    store.add([make_stone(f"n{n}", {"open": n % 2, "year": n}) for n in range(6)])
    for filters in (
        group_filters(None, is_("open", 1), is_("year", 2, O.GT)),
        group_filters(NOT, group_filters(None, is_("open", 0))),
    ):
        wanted = {node.node_id for node in store.get_nodes() if holds(filters, node.metadata)}
        assert 0 < len(wanted) < 6
        assert {node.node_id for node in NaiveGERetriever(store, filters=filters).retrieve("stone")} == wanted
    assert len(store.get_nodes(filters=group_filters(None))) == 6
    store.delete_nodes(filters=group_filters(None, is_("open", 1), is_("year", 2, O.GT)))
    assert {node.node_id for node in store.get_nodes()} == {"n0", "n1", "n2", "n4"}


def test_filters_as_deep_as_a_server_reads_them(make: Callable[..., GeARVectorStore]) -> None:
    store = make()
    store.add([make_stone("n", {"a": {"b": [1]}})])
    filters = group_filters(AND, is_("a.b", [1], O.ALL))
    for _ in range(39):
        filters = group_filters(AND, filters)
    assert len(store.get_nodes(filters=filters)) == 1
    for depth in (1, 200):
        for _ in range(depth):
            filters = group_filters(AND, filters)
        with pytest.raises(UnsupportedFilter, match="deep"):
            store.get_nodes(filters=filters)


# -- floats: an engine that keeps JSON loses their last places -----------------------------------------------------


@pytest.mark.parametrize("is_indexed", [True, False])
def test_floats_are_what_was_stored_also_when_the_store_is_opened_again(tmp_path: Path, is_indexed: bool) -> None:
    rng = random.Random(500)
    drawn = [rng.random() * 10.0 ** rng.choice((0, 0, 0, -200, -9, 9, 200)) * rng.choice((1, -1)) for _ in range(200)]
    numbers = {f"n{n}": number for n, number in enumerate(drawn)}
    indexes = [{"field_name": "f", "field_schema": "float"}] if is_indexed else []
    store = GeARVectorStore.from_path(
        tmp_path, embed_model=EMBED, embed_triples=True, collection_settings=CollectionSettings(payload_indexes=indexes)
    )
    store.add([make_stone(node_id, {"f": f, "deep": [{"f": [f, "text"]}]}) for node_id, f in numbers.items()])

    def search_both(value: float, operator: FilterOperator, *, key: str = "f") -> set[str]:
        filters = group_filters(AND, is_(key, [value] if operator in (O.IN, O.NIN) else value, operator))
        nodes = {node.node_id for node in store.get_nodes(filters=filters)}
        (triples,) = read(store, filters).incident_flow([(["hub"], [])], [999])
        assert {triple.passage_id for triple in triples} == nodes
        return nodes

    for _ in range(2):
        assert store.check().ok and store.repair().ok
        for node_id, number in list(numbers.items())[:: 1 if is_indexed else 10]:
            (node,) = store.get_nodes(filters=group_filters(AND, is_("f", number)))
            assert node.node_id == node_id and node.metadata["f"] == number
        for node_id, number in list(numbers.items())[:5]:
            less = {other for other in numbers if numbers[other] < number}
            greater, itself = {other for other in numbers if numbers[other] > number}, {node_id}
            assert (
                search_both(number, O.EQ, key="deep[].f") == search_both(number, O.CONTAINS, key="deep[0].f") == itself
            )
            assert search_both(number, O.EQ) == search_both(number, O.IN) == itself
            assert search_both(number, O.NE) == search_both(number, O.NIN) == less | greater
            assert (search_both(number, O.LT), search_both(number, O.LTE)) == (less, less | itself)
            assert (search_both(number, O.GT), search_both(number, O.GTE)) == (greater, greater | itself)
        store.close()


def test_floats_stand_being_copied(tmp_path: Path) -> None:
    rng = random.Random(300)
    numbers = {f"n{n}": rng.random() * 10.0 ** rng.randrange(-200, 200) for n in range(300)}
    stores = [GeARVectorStore.from_path(tmp_path / str(n), embed_model=EMBED, embed_triples=True) for n in range(4)]
    stores[0].add([make_stone(node_id, {"f": number}) for node_id, number in numbers.items()])
    for source, target in pairwise(stores):
        source.copy_to(target)
    assert stores[-1].check().ok
    for node_id, number in list(numbers.items())[:30]:
        assert [node.node_id for node in stores[-1].get_nodes(filters=group_filters(AND, is_("f", number)))] == [
            node_id
        ]
    for store in stores:
        store.close()


@pytest.mark.parametrize("value", [1.7976931348623157e308, -1.7976931348623157e308, 5e-324, 0.0, -0.0, 1e22])
def test_the_greatest_and_the_least_floats(make: Callable[..., GeARVectorStore], value: float) -> None:
    store = make()
    store.add([make_stone("n", {"f": value}), make_stone("m", {"f": 7})])
    assert all(map(math.isfinite, bound_float(value)))  # JSON, in which a server is asked, has no infinity
    for operator in (O.EQ, O.GTE, O.LTE):
        assert "n" in {node.node_id for node in store.get_nodes(filters=group_filters(AND, is_("f", value, operator)))}
    for operator in (O.NE, O.GT, O.LT):
        assert "n" not in {
            node.node_id for node in store.get_nodes(filters=group_filters(AND, is_("f", value, operator)))
        }


@pytest.mark.parametrize(
    "other", [{"f": 0.1 + 1e-12}, {"f": 0.2}, {"f": "0.1"}, {"f": None}, {"l": [0.1]}, {"l": [0.2, 0.1]}, {"d": {}}]
)
def test_check_still_sees_what_differs(make: Callable[..., GeARVectorStore], other: dict[str, Any]) -> None:
    store = make()
    store.add([make_stone("n", {"f": 0.1, "l": [0.1, 0.2], "d": {"x": 0.1}})])
    assert store.check().ok
    for name, changed in ((store.collection_name, other), (store.triple_collection_name, {"metadata": other})):
        (point,) = store.client.scroll(name, with_vectors=True)[0]
        payload = {**point.payload, **changed}
        store.client.upsert(name, points=[models.PointStruct(id=point.id, vector=point.vector, payload=payload)])
        assert store.check().outdated == ("n",)
        assert store.repair().ok


# -- no delete is unbounded ----------------------------------------------------------------------------------------

SOME = models.FieldCondition(key="a", match=models.MatchValue(value=1))
EVERYTHING = [
    models.Filter(),
    models.Filter(must=[], should=[], must_not=[]),
    models.Filter(must=models.Filter(should=[])),
    models.Filter(must=[models.Filter(must=[models.Filter()])]),
    models.Filter(should=[SOME, models.Filter()]),
    models.Filter(must=[models.Filter(should=[SOME, models.Filter(must=[])])]),
]
BOUNDED = [
    models.Filter(must=SOME),
    models.Filter(must=[models.Filter(), SOME]),
    models.Filter(must=[], should=[SOME]),
    models.Filter(must_not=[models.Filter()]),
    models.Filter(must_not=[SOME]),
    models.Filter(min_should=models.MinShould(conditions=[SOME], min_count=1)),
]


@pytest.mark.parametrize("match_", EVERYTHING, ids=repr)
def test_what_matches_everything_deletes_nothing(make: Callable[..., GeARVectorStore], match_: models.Filter) -> None:
    store = make()
    store.add([make_stone("n", {"a": 1})])
    before = contents(store)
    deletes, collections = store._deletes, store._collections
    for flow in (
        collections.delete_flow(store.collection_name, match_),
        collections.delete_flow(store.triple_collection_name, match_),
        deletes._delete_matching_flow(None, [match_, match_]),
        deletes._delete_matching_flow(None, [SOME, match_]),
        deletes._delete_matching_flow(None, [match_, SOME]),
        deletes._delete_matching_flow(None, []),
        deletes._delete_matching_flow(group_filters(AND), []),
    ):
        with pytest.raises(StoreError, match="clear"):
            run(flow, store._connection.answer)
    assert contents(store) == before


def test_points_are_deleted_in_one_place() -> None:
    modules = (Path(llama_index_gear.__file__).parent / "store").glob("*.py")
    assert [path.name for path in modules if 'Call("delete"' in path.read_text("utf-8")] == ["collections.py"]


@pytest.mark.parametrize("match_", BOUNDED, ids=repr)
def test_what_says_something_is_no_accident(match_: models.Filter) -> None:
    assert require_conditions(match_) is match_


# -- tenants -------------------------------------------------------------------------------------------------------


def test_a_tenant_is_named_by_a_group_without_a_condition_too(make: Callable[..., GeARVectorStore]) -> None:
    store = make(tenant_field="who")
    store.add([make_stone(f"n{n}", {"who": "one" if n % 2 else "other", "year": n}) for n in range(6)])
    for filters in (
        group_filters(None, is_("who", "one")),
        group_filters(None, group_filters(None, is_("who", "one")), is_("year", 0, O.GTE)),
    ):
        assert {node.node_id for node in store.get_nodes(filters=filters)} == {"n1", "n3", "n5"}
    for empty in NOTHING:
        with pytest.raises(TenantError):
            store.get_nodes(filters=empty)
    one = store.for_tenant("one")
    assert len(one.get_nodes(filters=group_filters(None))) == 3
    for hollow in HOLLOW:
        with pytest.raises(UnsupportedFilter):
            one.delete_nodes(filters=hollow)
    one.clear()
    assert {node.node_id for node in store.for_tenant("other").get_nodes()} == {"n0", "n2", "n4"}
    assert len(one.get_nodes()) == 0


# -- calls drawn at random, against the oracle, through every door -------------------------------------------------

LEAVES: list[Any] = ["x", "y", "x y", "X", "", "x,y", 0, 1, 2, -7, 2**40, 0.1, 1.5, 0.1 + 0.2, True, False, None]
FIELDS = ["kind", "year", "a", "a.b", "a.b.c", "br", "br[0]", "objs", "page label", "日本", "x[", "🙂.x", "tab\t"]
PATHS = ["a.x", "a.b.x", "br[]", "br[1]", "objs[].x", "objs[0].x", "objs[].a.b", "page label.x", "none"]


def draw_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.random()
    if kind < 0.5 or depth > 2:
        return rng.choice(LEAVES)
    if kind < 0.7:
        return [rng.choice(LEAVES) for _ in range(rng.randrange(4))]
    if kind < 0.85:
        return {rng.choice(["a", "b", "c", "x", "b.c"]): draw_value(rng, depth + 1) for _ in range(rng.randrange(3))}
    return [{rng.choice("ax"): draw_value(rng, 3)} for _ in range(rng.randrange(3))]


def draw_metadata(rng: random.Random, number: int | None) -> dict[str, Any]:
    """Draw a passage's metadata; every second passage belongs to tenant "one", if there are tenants."""
    owner = {} if number is None else {"who": "one" if number % 2 else "other"}
    return {**owner, **{field: draw_value(rng) for field in FIELDS if rng.random() < 0.5}}


def draw_filter(rng: random.Random) -> MetadataFilter:
    key, operator = rng.choice(FIELDS + PATHS), rng.choice(list(O))
    texts, whole, floats = ([leaf for leaf in LEAVES if type(leaf) is kind] for kind in (str, int, float))
    kind: list[Any] = rng.choice([texts, whole, floats])
    value: Any = rng.choice(kind)
    if operator in BOUNDS:
        value = rng.choice(whole + floats)
    elif operator in TEXTS:
        value = rng.choice(texts)
    elif operator in LISTS:
        value = rng.choices(kind, k=rng.randrange(1 if operator == O.ALL else 0, 3))
        if operator in (O.IN, O.NIN) and kind is texts and rng.random() < 0.3:
            value = rng.choice(texts)
    return is_(key, None if operator == O.IS_EMPTY else value, operator)


def draw_filters(rng: random.Random, depth: int = 0) -> MetadataFilters:
    some = range(rng.randrange(1, 4))
    parts = [draw_filters(rng, depth + 1) if depth < 3 and rng.random() < 0.3 else draw_filter(rng) for _ in some]
    return group_filters(rng.choice([AND, OR, NOT, None]), *parts)


@pytest.mark.parametrize("tenant", [None, "one"])
def test_drawn_calls_answer_what_the_oracle_says(make: Callable[..., GeARVectorStore], tenant: str | None) -> None:
    rng = random.Random(f"{SEED} {tenant}")
    whole = make(tenant_field="who" if tenant else None)
    nodes = {f"n{n}": make_stone(f"n{n}", draw_metadata(rng, n if tenant else None)) for n in range(24)}
    whole.add(list(nodes.values()))
    visible = {node_id: node for node_id, node in nodes.items() if node.metadata.get("who") == tenant}
    store = whole.for_tenant(tenant) if tenant else whole
    before, sizes = contents(whole), set()

    def query_ids(mode: VectorStoreQueryMode, filters: MetadataFilters) -> set[str]:
        query = VectorStoreQuery(query_str="stone", similarity_top_k=99, mode=mode, filters=filters)
        return set(store.query(query).ids or [])

    def delete_ids(filters: MetadataFilters) -> set[str]:
        store.delete_nodes(filters=filters)
        gone = set(visible) - {node.node_id for node in store.get_nodes()}
        store.add([nodes[node_id] for node_id in gone])
        assert contents(whole) == before
        return gone

    doors: list[Callable[[MetadataFilters], set[str]]] = [
        lambda filters: query_ids(VectorStoreQueryMode.DEFAULT, filters),
        lambda filters: query_ids(VectorStoreQueryMode.SPARSE, filters),
        lambda filters: query_ids(VectorStoreQueryMode.HYBRID, filters),
        lambda filters: {node.node_id for node in store.get_nodes(filters=filters)},
        lambda filters: {node.node_id for node in store.get_nodes(list(nodes), filters)},
        lambda filters: {triple.passage_id for triple in read(store, filters).search_flow(["Hub"], 99)},
        lambda filters: {
            node.node_id for node in NaiveGERetriever(store, filters=filters, similarity_top_k=99).retrieve("stone")
        },
        delete_ids,
    ]
    for call in range(CALLS):
        filters, door = draw_filters(rng), call % len(doors)
        wanted = {node_id for node_id, node in visible.items() if holds(filters, node.metadata)}
        sizes.add(len(wanted))
        assert doors[door](filters) == wanted, (SEED, call, door, filters)
    assert len(sizes) > 5  # neither all nor nothing
    assert whole.check().ok


# -- indexes: none changes what a filter finds (the contract has all kinds) --------------------------------------------


@pytest.mark.parametrize(
    ("schema", "made"),
    [
        *(("integer", "float"), (models.PayloadSchemaType.INTEGER, "float"), ("uuid", "keyword"), ("float", "float")),
        (models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, on_disk=True), "float"),
        (models.UuidIndexParams(type=models.UuidIndexType.UUID, is_tenant=True), "keyword"),
        (models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True), "keyword"),
    ],
)
def test_an_index_is_of_a_type_that_changes_no_filter(schema: Any, made: str) -> None:
    ((_, chosen),) = list_indexed_fields([{"field_name": "year", "field_schema": schema}])
    given = schema.model_dump(exclude_none=True) if isinstance(schema, BaseModel) else {}
    kept = chosen.model_dump(exclude_none=True) if isinstance(chosen, BaseModel) else {"type": chosen}
    assert kept == {**given, "type": made}


@pytest.mark.parametrize("schema", ["datetime", models.DatetimeIndexParams(type=models.DatetimeIndexType.DATETIME)])
def test_an_index_that_changes_filters_is_refused(schema: Any) -> None:
    with pytest.raises(ArgumentError, match=r"index of datetime.*'day'.*create_payload_index"):
        GeARVectorStore(
            client=QdrantClient(":memory:"),
            collection_settings=CollectionSettings(payload_indexes=[{"field_name": "day", "field_schema": schema}]),
        )


def test_an_index_of_integers_that_a_store_has_is_named_and_made_anew(tmp_path: Path) -> None:
    with EdgeClient(tmp_path) as client:
        old = GeARVectorStore(client=client, embed_model=EMBED, embed_triples=True)
        old.add([make_stone("a", {"year": 4.5}), make_stone("b", {"year": 1840})])
        for name, path in (("gear", "year"), ("gear_triples", "metadata.year")):
            client.create_payload_index(name, path, models.PayloadSchemaType.INTEGER)
        below = group_filters(AND, is_("year", 5, O.LT))
        assert old.check().ok and not old.get_nodes(filters=below)
        index = {"field_name": "year", "field_schema": "integer"}
        store = GeARVectorStore(
            client=client,
            embed_model=EMBED,
            embed_triples=True,
            collection_settings=CollectionSettings(payload_indexes=[index]),
        )
        assert "gear has an index of 'year' (integer) by which filters find something else" in store.check().settings
        assert store.repair().ok and [node.node_id for node in store.get_nodes(filters=below)] == ["a"]


def test_a_filter_by_an_integer_asks_for_a_range_too() -> None:
    """An index of floats knows ranges alone: equality asks for one too."""
    (asked,) = build_conditions(group_filters(AND, is_("year", 1840)))
    (leaf,) = asked.must
    assert [condition.range for condition in leaf.must][1] == models.Range(gte=1840, lte=1840)
    (big,) = build_conditions(group_filters(AND, is_("year", 2**60 + 1)))
    assert big.must[0].range is None, "floats do not tell such integers apart"
