"""Every engine gives back what it stored, also after reopening; other values are refused and change nothing."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.schema import BaseNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import QdrantClient
from qdrant_client.http import models

from llama_index_gear.errors import ArgumentError, EmbeddingError
from llama_index_gear.nodes import attach_triples
from llama_index_gear.retrievers.graph_expansion import NaiveGERetriever
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.store.points import MAX_LEVELS, check_storable
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.tests.store_contract import contents, passage, read
from llama_index_gear.triple import Triple

HALF = "half \ud83d"
VECTOR = [1.0, 0.0, 0.0, 0.0]


def nest(levels: int, *, innermost: Any = 1, by: str = "lists") -> Any:
    value = innermost
    for _ in range(levels):
        value = [value] if by == "lists" else {"k": value}
    return value


def make_node(name: str, metadata: dict[str, Any]) -> BaseNode:
    plain = TextNode(id_=name, text=f"text of {name}", metadata=metadata, embedding=VECTOR)
    return attach_triples(plain, [Triple(name, "is", "B"), Triple(name, "has", "C")])


def open_store(folder: Path, **options: Any) -> GeARVectorStore:
    return GeARVectorStore.from_path(folder, embed_model=MockEmbedding(embed_dim=4), embed_triples=True, **options)


def is_same(given: Any, found: Any) -> bool:
    """Return True if values are equal and of one kind: floats within a few units in the last place, tuples as lists."""
    match given:
        case dict():
            return (
                type(found) is dict
                and given.keys() == found.keys()
                and all(is_same(value, found[key]) for key, value in given.items())
            )
        case list() | tuple():
            return type(found) is list and len(given) == len(found) and all(map(is_same, given, found))
        case float():
            return type(found) is float and abs(given - found) <= 4 * math.ulp(given)
    return type(given) is type(found) and given == found


CYCLE: list[Any] = []
CYCLE.append(CYCLE)
UNSTORABLE = {
    "lists": nest(MAX_LEVELS),
    "dicts": nest(MAX_LEVELS, by="dicts"),
    "far too deep": nest(500),
    "large": 2**64,
    "small": -(2**63) - 1,
    "nan": [{"deep": math.nan}],
    "infinite": -math.inf,
    "value": [HALF],
    "key": {HALF: 1},
    "number as key": {"a": {7: 1}},
    "nothing as key": {None: 1},
    "object": object(),
    "bytes": b"\xff",
    "cycle": CYCLE,
    "read once": iter([1]),
}


@pytest.mark.parametrize("value", UNSTORABLE.values(), ids=UNSTORABLE.keys())
@pytest.mark.parametrize("at", ["passage", "document"])
def test_what_cannot_be_read_back_is_refused_with_its_place_before_anything_is_written(
    tmp_path: Path, value: Any, at: str
) -> None:
    store = open_store(tmp_path, batch_size=1)
    store.add([make_node("old", {"a": 1})])
    before = contents(store)
    bad = make_node("bad", {"what": value} if at == "passage" else {})
    if at == "document":
        bad.relationships = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="d", metadata={"what": value})}
    with pytest.raises(
        ArgumentError, match=rf"node 'bad' .*{'metadata' if at == 'passage' else 'relationships'}.*what"
    ):
        store.add([make_node("new", {}), make_node("old", {"a": 2}), bad])
    assert contents(store) == before
    store.close()
    assert contents(open_store(tmp_path)) == before


def test_a_lone_surrogate_in_an_id_is_refused_where_there_are_tenants(tmp_path: Path) -> None:
    store = open_store(tmp_path, tenant_field="who")
    store.add([make_node("old", {"who": "x"})])
    with pytest.raises(ArgumentError, match="lone surrogate in node_id"):
        store.add([make_node(HALF, {"who": "x"})])


@pytest.mark.parametrize("by", ["lists", "dicts"])
def test_the_deepest_metadata_that_is_accepted_opens_again(tmp_path: Path, by: str) -> None:
    store = open_store(tmp_path)
    deepest = {"deep": nest(MAX_LEVELS - 2, by=by)}
    store.add([make_node("p", deepest)])
    with pytest.raises(ArgumentError, match="more than 100 levels deep"):
        store.add([make_node("p", {"deep": nest(MAX_LEVELS - 1, by=by)})])
    store.close()
    store = open_store(tmp_path)
    (found,) = store.get_nodes()
    assert found.metadata["deep"] == deepest["deep"]
    assert len(read(store).passage_triples_flow(["p"], VECTOR, None)) == 2
    assert store.check().ok


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(2**62, 2**66)
    | st.floats()
    | st.text(st.characters(codec=None), max_size=8)
)
KEYS = st.text(st.characters(codec=None), max_size=4) | st.sampled_from(["a.b", "", "a[0]", "doc_id", "_node_content"])
ODD_KEYS = st.integers() | st.none() | st.booleans() | st.tuples(st.integers())
VALUES = st.recursive(
    LEAVES | st.integers(MAX_LEVELS - 4, MAX_LEVELS + 4).map(nest),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.dictionaries(ODD_KEYS, inner, max_size=1)
    ),
    max_leaves=8,
)


@settings(max_examples=25)
@given(several=st.lists(st.dictionaries(KEYS, VALUES, max_size=3), min_size=1, max_size=6))
def test_any_metadata_comes_back_after_opening_again_or_is_refused_and_changes_nothing(
    several: list[dict[str, Any]],
) -> None:
    with TemporaryDirectory() as folder:
        assert_metadata_comes_back_or_is_refused(Path(folder), several)


def assert_metadata_comes_back_or_is_refused(folder: Path, several: list[dict[str, Any]]) -> None:
    store = open_store(folder)
    kept: dict[str, dict[str, Any]] = {}
    store.add([make_node("first", {})])
    for number, metadata in enumerate(several):
        before = contents(store)
        try:
            store.add([make_node(f"new {number}", {}), make_node(f"p{number}", metadata)])
        except ArgumentError:
            assert contents(store) == before
        else:
            kept[f"p{number}"] = metadata
    held = contents(store)
    store.close()
    store = open_store(folder)
    assert contents(store) == held
    for stored in store.get_nodes(list(kept)):
        metadata = {key: value for key, value in stored.metadata.items() if key != "gear_triples"}
        assert is_same(kept[stored.node_id], metadata)
    for payload, _ in contents(store)["gear_triples"].values():
        metadata = kept.get(payload["passage_id"], {})
        reserved = ("doc_id", "_node_content")  # the store's own values stand there
        seen = {key: value for key, value in metadata.items() if key not in reserved}
        assert is_same(seen, {key: payload["metadata"][key] for key in seen})
    store.close()


# -- the last door -------------------------------------------------------------------------------------------------


def make_collection(folder: Path) -> EdgeClient:
    client = EdgeClient(folder)
    client.create_collection("c", models.VectorParams(size=2, distance=models.Distance.DOT))
    client.upsert("c", [models.PointStruct(id=1, vector=[1.0, 0.0], payload={"old": 1})])
    return client


def make_point(number: int, payload: dict[Any, Any]) -> models.PointStruct:
    return models.PointStruct.model_construct(id=number, vector=[0.0, 1.0], payload=payload)


@pytest.mark.parametrize("value", UNSTORABLE.values(), ids=UNSTORABLE.keys())
def test_the_embedded_engine_takes_nothing_that_it_could_not_read(tmp_path: Path, value: Any) -> None:
    client = make_collection(tmp_path)
    with pytest.raises(ArgumentError, match="payload of point 3 .*what"):
        client.upsert("c", [make_point(2, {}), make_point(3, {"what": value})])
    client.close()
    records, _ = EdgeClient(tmp_path).scroll("c")
    assert [(record.id, record.payload) for record in records] == [(1, {"old": 1})]


def test_a_part_that_payloads_share_is_checked_at_each_level_that_it_stands_at(tmp_path: Path) -> None:
    client, shared = make_collection(tmp_path), nest(MAX_LEVELS - 2)
    client.upsert("c", [make_point(2, {"a": shared}), make_point(3, {"b": shared})])
    with pytest.raises(ArgumentError, match="point 3 .*levels deep"):
        client.upsert("c", [make_point(2, {"a": shared}), make_point(3, {"b": [[shared]]})])


def test_a_part_that_payloads_share_is_checked_once() -> None:
    looked_at: list[str] = []

    class Listened(dict[str, Any]):
        def items(self) -> Any:
            looked_at.append("once")
            return super().items()

    shared, checked = Listened(title="x"), set[tuple[int, int]]()
    for _ in range(5):
        check_storable("it", {"metadata": shared}, checked)
    assert looked_at == ["once"]


def test_llama_index_s_own_store_on_the_embedded_engine_is_refused_the_same(tmp_path: Path) -> None:
    client = EdgeClient(tmp_path)
    store = QdrantVectorStore(collection_name="c", client=client, index_doc_id=False)  # type: ignore[arg-type]
    store.add([passage(str(UUID(int=1)), "x")])
    with pytest.raises(ArgumentError, match="levels deep"):
        store.add([passage(str(UUID(int=2)), "x", metadata={"deep": nest(MAX_LEVELS)})])
    client.close()
    assert EdgeClient(tmp_path).count("c").count == 1


def test_a_copy_from_a_server_brings_nothing_that_would_not_open_again(tmp_path: Path) -> None:
    source = GeARVectorStore(
        client=QdrantClient(":memory:"), embed_model=MockEmbedding(embed_dim=4), embed_triples=True
    )
    source.add([make_node("p", {})])
    deep = {"deep": nest(MAX_LEVELS)}
    source.client.set_payload("gear_triples", deep, points=models.Filter())
    target = open_store(tmp_path)
    with pytest.raises(ArgumentError, match="levels deep"):
        source.copy_to(target)
    target.close()
    assert open_store(tmp_path).get_nodes() == []


@pytest.mark.parametrize(
    "changed",
    [
        {"excluded_embed_metadata_keys": [HALF]},
        {"excluded_llm_metadata_keys": [HALF]},
        {"text_template": HALF + "{content}"},
        {"metadata_separator": HALF},
        {"mimetype": HALF},
        {"relationships": {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc", hash=HALF)}},
        {"relationships": {NodeRelationship.NEXT: RelatedNodeInfo(node_id=HALF)}},
    ],
    ids=lambda changed: "-".join(changed),
)
def test_all_that_is_written_of_a_node_is_checked_before_its_triples_are(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    with open_store(tmp_path) as store:
        store.add([make_node("a", {}), make_node("b", {})])
        for name in ("a", "new"):
            before = contents(store)
            try:
                store.add([make_node(name, {"k": 1}).model_copy(update=changed)])
            except ArgumentError as error:
                assert re.search(f"{name}.*lone surrogate", str(error)) and contents(store) == before
            else:  # an older core writes the node's JSON in ASCII, which comes back
                assert [node.metadata["k"] for node in store.get_nodes([name])] == [1]
        assert store.check(sample_size=0).ok


def test_each_value_that_is_converted_is_checked() -> None:
    """Each converted value is checked, although it is gone at once and the next one may take its address."""
    for _ in range(100):
        with pytest.raises(ArgumentError, match="beyond 64 bits"):
            check_storable("p", {"a": {1}, "b": {2**70}})


@pytest.mark.parametrize("number", [np.float32(1), Fraction(1, 2), Decimal(1)])
def test_an_embedding_of_numbers_that_have_no_json_is_refused_by_name(tmp_path: Path, number: Any) -> None:
    for client in (EdgeClient(tmp_path), QdrantClient(":memory:")):
        store = GeARVectorStore(client=client, embed_model=MockEmbedding(embed_dim=4), embed_triples=True)
        bad = make_node("bad", {}).model_copy(update={"embedding": [number] * 4})
        with pytest.raises(EmbeddingError, match="embedding of node 'bad'"):
            store.add([make_node("good", {}), bad])
        assert store.get_nodes() == []
        store.close()


def test_half_a_character_in_a_question_or_an_id_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.add([make_node("a", {})])
        calls: list[Any] = [
            lambda: store.get_nodes([HALF]),
            lambda: store.delete_nodes([HALF]),
            lambda: store.delete(HALF),
            lambda: NaiveGERetriever(store).retrieve(HALF),
        ]
        for call in calls:
            with pytest.raises(ArgumentError, match="lone surrogate"):
                call()
        assert len(store.get_nodes()) == 1
