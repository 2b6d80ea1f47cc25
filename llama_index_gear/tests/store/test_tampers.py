"""Single changes of a store's points: `check` sees each, and `repair` mends it or goes on naming it."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters, VectorStoreQuery, VectorStoreQueryMode
from qdrant_client import QdrantClient
from qdrant_client.http import models

from llama_index_gear.errors import GeARError, StoreError
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.store.schema import (
    ALIASES,
    ANY_CALL,
    DELETED,
    DENSE,
    SPARSE,
    UNFINISHED,
    WRITE,
    point_id_of,
)
from llama_index_gear.store.settings import CollectionSettings
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import contents, passage, read
from llama_index_gear.triple import Triple

EMBED = WordEmbedding(64)
FACTS = {
    "p-son": [("Dell Curry", "is the father of", "Stephen Curry"), ("Stephen Curry", "plays for", "the Warriors")],
    "p-drafted": [("Wardell Curry", "was drafted by", "the Jazz")],
    "p-town": [("the Jazz", "play in", "Salt Lake City"), ("the Jazz", "came from", "New Orleans")],
    "p-born": [("Stephen Curry", "was born in", "Akron")],
    "p-none": [],
}
FACT = Triple(*FACTS["p-son"][0])  # at one of its ends is a linked name
FACT_ID = FACT.id("p-son")
PASSAGE_ID = point_id_of("p-son")
OTHER_ID = str(uuid.UUID(int=7))
SERVER = os.environ.get("QDRANT_URL")

Change = Callable[[Any], Any]


ENGINES = ["edge", "memory", *(["server"] if SERVER else [])]


def name_cases(tampers: Mapping[str, Any]) -> pytest.MarkDecorator:
    """Have each change made on an engine, the next on the other; on a server, and if `GEAR_MODES=all`, all of them."""
    is_whole = os.environ.get("GEAR_MODES") == "all"
    cases = [
        (engine, change)
        for number, change in enumerate(tampers)
        for engine in ENGINES
        if is_whole or engine in ("server", ENGINES[number % 2])
    ]
    return pytest.mark.parametrize(("store", "name"), cases, indirect=["store"])


@pytest.fixture(params=ENGINES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GeARVectorStore]:
    """A store with documents, tenants and a link."""
    client: Any
    if request.param == "server":
        client = QdrantClient(SERVER, check_compatibility=False, timeout=60)
    else:
        client = EdgeClient(tmp_path / "store") if request.param == "edge" else QdrantClient(":memory:")
    name = f"tampers_{uuid.uuid4().hex}"
    store = GeARVectorStore(name, client, embed_model=EMBED, embed_triples=True, tenant_field="who")
    for number, (node_id, facts) in enumerate(FACTS.items()):
        text = f"{node_id} tells: " + "; ".join(map(" ".join, facts))
        metadata = {"who": "me", "year": 1980 + number}
        node = passage(node_id, text, facts, document=f"d{number}", metadata=metadata)
        store.add(EMBED([node]))
    store.for_tenant("me").link_aliases([("Dell Curry", "Wardell Curry")])
    yield store
    store.clear()
    client.close()


def change(store: GeARVectorStore, name: str, point_id: str, payload: Change, vector: Change, new_id: str = "") -> None:
    """Write a point back with another payload or other vectors; under another id it is a copy."""
    (point,) = store.client.retrieve(name, ids=[point_id], with_payload=True, with_vectors=True)
    point = models.PointStruct(id=new_id or point.id, payload=payload(point.payload), vector=vector(dict(point.vector)))
    store.client.upsert(name, points=[point], wait=True)


def same(value: Any) -> Any:
    return value


def without(key: str) -> Change:
    return lambda fields: {name: value for name, value in fields.items() if name != key}


def having(**values: Any) -> Change:
    return lambda fields: {**fields, **values}


def of_metadata(**values: Any) -> Change:
    return lambda payload: {**payload, "metadata": {**payload["metadata"], **values}}


def of_node(edit: Callable[[dict[str, Any]], None]) -> Change:
    def apply(payload: dict[str, Any]) -> dict[str, Any]:
        node = json.loads(payload["_node_content"])
        edit(node)
        return {**payload, "_node_content": json.dumps(node)}

    return apply


def other_weights(vectors: dict[str, Any]) -> dict[str, Any]:
    sparse = vectors[SPARSE]
    return {**vectors, SPARSE: models.SparseVector(indices=sparse.indices, values=[9.0] * len(sparse.values))}


OTHER_VECTOR = {DENSE: EMBED.get_text_embedding("a loaf of bread")}
NO_VECTOR = {DENSE: [0.0] * 64}
OTHER_WORDS = {SPARSE: models.SparseVector(indices=[1, 2], values=[1.0, 1.0])}

TRIPLES: dict[str, tuple[Change, Change]] = {
    **{f"no {key}": (without(key), same) for key in ("passage_id", "subject", "predicate", "object", "entities")},
    **{f"no {key}": (without(key), same) for key in ("doc_id", "metadata", ALIASES, WRITE)},
    "another subject": (having(subject="Nobody"), same),
    "a predicate that is no text": (having(predicate=[1]), same),
    "entities of no list": (having(entities=5), same),
    "another entity": (having(entities=["nobody", "stephen curry"]), same),
    "entities without the link": (having(entities=list(FACT.entities)), same),
    "links of no list": (having(**{ALIASES: 5}), same),
    "a link of one end": (having(**{ALIASES: [{"alias": "wardell curry"}]}), same),
    "a link of numbers": (having(**{ALIASES: [{"entity": 5, "alias": {"x": 1}}]}), same),
    "a link of a name that is gone": (
        having(
            **{ALIASES: [{"entity": "dell curry", "alias": "nobody"}]},
            entities=["dell curry", "stephen curry", "nobody"],
        ),
        same,
    ),
    "another passage": (having(passage_id="p-born"), same),
    "a passage that is not stored": (having(passage_id="nobody"), same),
    "two passages": (having(passage_id=["p-son", "p-born"]), same),
    "a passage that is no text": (having(passage_id=5), same),
    "another document": (having(doc_id="d9"), same),
    "another year": (of_metadata(year=3000), same),
    "another tenant": (of_metadata(who="you"), same),
    "tenants that are a list": (of_metadata(who=["you"]), same),
    "metadata of no dict": (having(metadata=5), same),
    "the mark of a deletion": (having(**{DELETED: True}), same),
    "another write": (having(**{WRITE: "0-0-0-0"}), same),
    "a write that is no text": (having(**{WRITE: {"x": 1}}), same),
    **{
        f"calls at work that are {calls!r}": (having(**{UNFINISHED: calls}), same)
        for calls in (5, "call", [], ["call"], ["call", 5], ["call", None], ["call", {"x": 1}], ["x", "y"], {"x": 1})
    },
    "no embedding": (same, without(DENSE)),
    "no weights": (same, without(SPARSE)),
    "another embedding": (same, having(**OTHER_VECTOR)),
    "weights of other words": (same, having(**OTHER_WORDS)),
    "other weights": (same, other_weights),
}
PASSAGES: dict[str, tuple[Change, Change]] = {
    **{f"no {key}": (without(key), same) for key in ("doc_id", "who", "year", WRITE, "_node_type")},
    "no document": (having(doc_id="None"), same),
    "another year": (having(year=3000), same),
    "a field more": (having(color="red"), same),
    "another class": (having(_node_type="Node"), same),
    "a class that cannot be read": (having(_node_type="IndexNode"), same),
    "another write": (having(**{WRITE: "0-0-0-0"}), same),
    "a write that is no text": (having(**{WRITE: {"x": 1}}), same),
    "triples of no list": (of_node(lambda node: node["metadata"].update(gear_triples=5)), same),
    "a triple of two": (of_node(lambda node: node["metadata"]["gear_triples"][0].pop("object")), same),
    "no embedding": (same, without(DENSE)),
    "no weights": (same, without(SPARSE)),
    "another embedding": (same, having(**OTHER_VECTOR)),
    "an embedding of zeros": (same, having(**NO_VECTOR)),
    "weights of other words": (same, having(**OTHER_WORDS)),
    "other weights": (same, other_weights),
}


def search(store: GeARVectorStore) -> list[Any]:
    """Return the results of searches of every kind."""
    mine, question = store.for_tenant("me"), "Whose father was drafted by the Jazz?"
    vector = EMBED.get_query_embedding(question)
    found: list[Any] = []
    for mode in (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.HYBRID):
        result = mine.query(VectorStoreQuery(query_str=question, query_embedding=vector, mode=mode, similarity_top_k=9))
        found.append((result.ids, [round(score, 4) for score in result.similarities or ()]))
    links = read(mine).link_flow([question, "Dell Curry"], 9, vector)
    found.append([[(hit.id, round(hit.score, 4), hit.entities, hit.aliases) for hit in hits] for hits in links])
    found.append([sorted(hit.id for hit in read(mine).passage_triples_flow(list(FACTS), vector, None))])
    year = MetadataFilters(filters=[MetadataFilter(key="year", value=1980)])
    for filters in (None, year):
        neighbors = read(mine, filters).neighbors_flow([("wardell curry",), ("stephen curry",)], vector, [], 9)
        found.append([[(near.id, round(near.score, 4)) for near in group] for group in neighbors])
        groups = [(["wardell curry"], []), ([], ["p-son"])]
        incidences = read(mine, filters).incident_flow(groups, [9, 9])
        found.append([sorted(map(str, group)) for group in incidences])
    return found


def read_all(store: GeARVectorStore) -> Any:
    """Return all that the store holds; the triples of a passage in the order of their texts."""
    held = contents(store)
    for payload, _ in held[store.collection_name].values():
        node = json.loads(payload["_node_content"])
        node["metadata"]["gear_triples"] = sorted(node["metadata"].get("gear_triples", ()), key=str)
        payload["_node_content"] = node
    return held


def require_mended(store: GeARVectorStore, tamper: Callable[[], None]) -> None:
    """Check that the change is seen, and that after the repair all is as it was."""
    assert store.check().ok
    before, found = read_all(store), search(store)
    tamper()
    report = store.check()
    assert not report.ok, report
    repaired = store.repair()
    assert repaired.ok, (str(report), str(repaired))
    assert read_all(store) == before
    assert search(store) == found


@name_cases(TRIPLES)
def test_a_changed_triple_is_seen_and_mended(store: GeARVectorStore, name: str) -> None:
    require_mended(store, lambda: change(store, store.triple_collection_name, FACT_ID, *TRIPLES[name]))


@name_cases(PASSAGES)
def test_a_changed_passage_is_seen_and_mended(store: GeARVectorStore, name: str) -> None:
    require_mended(store, lambda: change(store, store.collection_name, PASSAGE_ID, *PASSAGES[name]))


def test_a_triple_that_is_gone_or_there_twice_is_seen_and_mended(store: GeARVectorStore) -> None:
    name = store.triple_collection_name
    require_mended(store, lambda: store.client.delete(name, points_selector=[FACT_ID]))
    require_mended(store, lambda: change(store, name, FACT_ID, same, same, OTHER_ID))


def test_triples_of_a_passage_that_is_gone_are_seen_and_deleted(store: GeARVectorStore) -> None:
    store.client.delete(store.collection_name, points_selector=[PASSAGE_ID])
    assert store.check().orphaned == ("p-son",)
    assert store.repair().ok and FACT_ID not in contents(store)[store.triple_collection_name]


@pytest.mark.parametrize("kind", ["no passage", "a copy", "nobody's"])
def test_what_cannot_be_mended_is_named_before_and_after(store: GeARVectorStore, kind: str) -> None:
    def leave_tenant(node: dict[str, Any]) -> None:
        del node["metadata"]["who"]

    payload, new_id = {
        "no passage": (without("_node_content"), ""),
        "a copy": (same, OTHER_ID),
        "nobody's": (of_node(leave_tenant), ""),
    }[kind]
    change(store, store.collection_name, PASSAGE_ID, payload, same, new_id)
    for report in (store.check(), store.repair(), store.check()):
        assert not report.ok
        assert report.foreign == ({"no passage": (PASSAGE_ID,), "a copy": (OTHER_ID,)}.get(kind, ()))
        assert report.without_tenant == (("p-son",) if kind == "nobody's" else ())


def test_a_search_names_what_is_damaged_and_the_repair(store: GeARVectorStore) -> None:
    """Both kinds of search say so in the same words, and none by an error of Python's."""
    change(store, store.triple_collection_name, FACT_ID, having(**{ALIASES: 5}), same)
    vector = EMBED.get_query_embedding("Curry")
    for request in (
        methodcaller("passage_triples_flow", ["p-son"], vector, None),
        methodcaller("incident_flow", [([], ["p-son"])], [9]),
    ):
        with pytest.raises(GeARError, match=r"holds no triple .*repair\(\) makes the triples of stored passages anew"):
            request(read(store.for_tenant("me")))


@pytest.mark.parametrize("entities", ["dell curry", [5, 6], ["dell curry", None], 5])
def test_a_walk_refuses_a_triple_whose_entities_are_no_list_of_texts(store: GeARVectorStore, entities: object) -> None:
    """The letters of a text would be names, and so would numbers: PageRank would go astray, and nobody would know."""
    change(store, store.triple_collection_name, FACT_ID, having(entities=entities), same)
    with pytest.raises(StoreError, match=r"holds no triple .*its entities are no list of texts"):
        methodcaller("incident_flow", [([], ["p-son"])], [9])(read(store.for_tenant("me")))


CUT = [ANY_CALL, "1-a-1-1"]
"""The mark of a call of another process that ended long ago."""
DAMAGED: dict[str, tuple[str, Change, Change]] = {
    "calls of numbers": ("triple", having(**{UNFINISHED: ["call", 5]}), same),
    "a passage that is no text": ("triple", having(passage_id=5, **{UNFINISHED: CUT}), same),
    "two passages": ("triple", having(passage_id=["p-son", "p-born"], **{UNFINISHED: CUT}), same),
    "a write that is no text": ("triple", having(**{WRITE: {"x": 1}, UNFINISHED: CUT}), same),
    "no embedding": ("passage", same, without(DENSE)),
    "a write of the passage that is no text": ("passage", having(**{WRITE: {"x": 1}}), same),
    "triples of no list": ("passage", of_node(lambda node: node["metadata"].update(gear_triples=5)), same),
    "a class that cannot be read": ("passage", having(_node_type="IndexNode"), same),
    "another tenant": ("passage", having(who="you"), same),
    "no passage": ("passage", without("_node_content"), same),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_damaged_and_marked_stops_no_writer(store: GeARVectorStore, name: str) -> None:
    """It is left as it is, and the other marked passages are written once more. `check` and `repair` say what it is."""
    kind, payload, vector = DAMAGED[name]
    before = read_all(store)
    marked = [FACT_ID] if kind == "passage" else []
    marked += [Triple(*fact).id(node_id) for node_id in ("p-town", "p-born") for fact in FACTS[node_id]]
    mark = models.SetPayload(payload={UNFINISHED: CUT}, points=list(marked))
    store.client.batch_update_points(
        store.triple_collection_name, [models.SetPayloadOperation(set_payload=mark)], wait=True
    )
    collection, point = (
        (store.triple_collection_name, FACT_ID) if kind == "triple" else (store.collection_name, PASSAGE_ID)
    )
    change(store, collection, point, payload, vector)
    store.finish_writes()
    points, _ = store.client.scroll(store.triple_collection_name, limit=100)
    left = {point.id for point in points if UNFINISHED in point.payload}
    assert left == (set() if name == "calls of numbers" else {FACT_ID})
    store.for_tenant("me").delete("d1")
    store.add(store.for_tenant("me").get_nodes(["p-town"]))
    assert store.repair().ok is (name != "no passage")
    store.finish_writes()
    held = contents(store)
    assert "p-drafted" not in str(held) and PASSAGE_ID in held[store.collection_name]
    if name != "no passage":
        held = read_all(store)
        assert held[store.collection_name][PASSAGE_ID] == before[store.collection_name][PASSAGE_ID]
        assert "'call'" not in str(held)


def test_a_passage_whose_write_is_no_text_is_named_by_who_would_replace_it(store: GeARVectorStore) -> None:
    change(store, store.collection_name, PASSAGE_ID, having(**{WRITE: {"x": 1}}), same)
    nodes = store.for_tenant("me").get_nodes(["p-son"])
    is_alone, store._locks.is_alone = store._locks.is_alone, False  # as on a server, where another process may write
    with pytest.raises(StoreError, match=r"'p-son' has a gear_write that is no text: call repair\(\)"):
        store.add(nodes)
    store._locks.is_alone = is_alone
    assert is_alone or store.repair().ok
    store.add(nodes)
    assert store.check().ok


def test_what_is_deleted_is_gone_where_a_point_is_damaged(store: GeARVectorStore) -> None:
    for collection, point, payload in (
        (store.triple_collection_name, FACT_ID, having(passage_id=5)),
        (store.triple_collection_name, FACT_ID, having(passage_id=["p-son"], **{UNFINISHED: CUT})),
        (store.triple_collection_name, FACT_ID, having(**{WRITE: {"x": 1}})),
        (store.collection_name, PASSAGE_ID, having(**{WRITE: {"x": 1}})),
    ):
        (node,) = store.for_tenant("me").get_nodes(["p-son"])
        change(store, collection, point, payload, same)
        store.for_tenant("me").delete("d0")
        assert "p-son" not in str(contents(store)) and not store.check().foreign
        store.add([node])
        store.for_tenant("me").link_aliases([("Dell Curry", "Wardell Curry")])


def test_a_document_is_replaced_where_a_triple_is_damaged(store: GeARVectorStore) -> None:
    before = contents(store)
    for vector, payload in ((without(DENSE), same), (same, having(**{ALIASES: 5}))):
        change(store, store.triple_collection_name, FACT_ID, payload, vector)
        (node,) = store.for_tenant("me").get_nodes(["p-son"])
        store.add([node])
        assert contents(store) == before and store.check().ok


def test_a_collection_without_an_index_or_of_another_kind_is_named(tmp_path: Path) -> None:
    with EdgeClient(tmp_path / "store") as client:
        old = GeARVectorStore(client=client, embed_model=EMBED)
        old.add([passage("p", "Ada knows Bob.", [("Ada", "knows", "Bob")], embed_model=EMBED)])
        index = {"field_name": "year", "field_schema": "integer"}
        store = GeARVectorStore(
            client=client, embed_model=EMBED, collection_settings=CollectionSettings(payload_indexes=[index])
        )
        report = store.check()
        assert report.settings == ("gear has no index of 'year'", "gear_triples has no index of 'metadata.year'")
        assert "gear has no index of 'year'" in str(report) and store.repair().ok
        client.create_collection("dot", {DENSE: models.VectorParams(size=64, distance=models.Distance.DOT)})
        store = GeARVectorStore("dot", client, embed_model=EMBED)
        assert store.check().settings == (
            f"dot has no vector {DENSE!r} that is compared by cosine",
            f"dot has no vector {SPARSE!r}: no search by words finds anything in it",
        )
