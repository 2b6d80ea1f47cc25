"""Points of other programs in a store's collections: refused when read, named by `check`, never mistaken for ours."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.vector_stores.types import VectorStoreQuery
from qdrant_client import QdrantClient
from qdrant_client.http import models

from llama_index_gear.errors import StoreError
from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.store.schema import DENSE
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import contents, passage, read
from llama_index_gear.triple import Triple

EMBED = WordEmbedding(8)
VECTOR = EMBED.get_text_embedding("x")
FOREIGN = str(uuid.UUID(int=7))

NO_PASSAGES: dict[str, dict[str, Any] | None] = {
    "nothing": None,
    "text alone": {"text": "x", "page": 5},
    "no text": {"_node_content": 5},
    "half": {"_node_content": '{"id_": "x", "te'},
    "a list": {"_node_content": "[1, 2]"},
    "a number": {"_node_content": "5"},
    "null": {"_node_content": "null"},
    "another kind": {"_node_content": json.dumps({"id_": "x", "text": "x", "metadata": 5}), "_node_type": "TextNode"},
    "an embedding of text": {"_node_content": json.dumps({"id_": "x", "text": "x", "embedding": "y"})},
}
NO_TRIPLES: dict[str, dict[str, Any] | None] = {
    "nothing": None,
    "other words": {"text": "x"},
    "no entities": {"passage_id": "p", "subject": "A", "predicate": "is", "object": "B"},
    "numbers": {"passage_id": "p", "subject": 1, "predicate": 2, "object": 3, "entities": ["1"]},
    "empty": {"passage_id": "p", "subject": " ", "predicate": "is", "object": "B", "entities": ["b"]},
    "no list": {"passage_id": "p", "subject": "A", "predicate": "is", "object": "B", "entities": 5},
    "nobody's": {"subject": "A", "predicate": "is", "object": "B", "entities": ["a", "b"]},
}
Client = QdrantClient | EdgeClient


@pytest.fixture(params=["edge", "memory"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Client:
    return EdgeClient(tmp_path / "store") if request.param == "edge" else QdrantClient(":memory:")


@pytest.fixture
def store(client: Client) -> GeARVectorStore:
    store = GeARVectorStore(client=client, embed_model=EMBED)
    store.add([passage("p", "Ada knows Bob.", [("Ada", "knows", "Bob")], embed_model=EMBED)])
    return store


def put(client: Client, name: str, payload: dict[str, Any] | None, vector: dict[str, Any] | None = None) -> None:
    point = models.PointStruct(id=FOREIGN, payload=payload, vector={DENSE: VECTOR} if vector is None else vector)
    client.upsert(name, points=[point], wait=True)


@pytest.mark.parametrize("payload", NO_PASSAGES.values(), ids=NO_PASSAGES.keys())
def test_a_point_that_holds_no_passage_is_refused_and_named(
    store: GeARVectorStore, client: Client, payload: dict[str, Any] | None
) -> None:
    put(client, "gear", payload)
    said = rf"point '{FOREIGN}' holds no passage .*check\(\) names all.*another collection_name"
    calls: list[Callable[[], object]] = [
        store.get_nodes,
        lambda: store.query(VectorStoreQuery(query_embedding=VECTOR, similarity_top_k=5)),
        lambda: store.copy_to(GeARVectorStore(client=QdrantClient(":memory:"), embed_model=EMBED)),
    ]
    for call in calls:
        with pytest.raises(StoreError, match=said):
            call()
    for report in (store.check(), store.repair(), store.repair(reembed=True)):
        assert report.foreign == (FOREIGN,) and not report.ok and report.passages == 2
        assert f"1 point of another program ({FOREIGN})" in str(report)
        assert not (report.incomplete or report.outdated or report.orphaned or report.wrong_embedder)
    assert store.client.retrieve("gear", ids=[FOREIGN]), "what others wrote is not ours to delete"
    assert [node.node_id for node in store.get_nodes(["p"])] == ["p"]
    store.client.delete("gear", points_selector=[FOREIGN])
    assert store.check().ok


@pytest.mark.parametrize("payload", NO_TRIPLES.values(), ids=NO_TRIPLES.keys())
def test_a_point_that_holds_no_triple_is_refused_and_named(
    store: GeARVectorStore, client: Client, payload: dict[str, Any] | None
) -> None:
    put(client, store.triple_collection_name, payload)
    report = store.check()
    assert not report.ok and not report.orphaned and not report.wrong_embedder
    if "passage_id" not in (payload or {}):
        assert report.foreign == (FOREIGN,) and not report.outdated
        return
    assert report.outdated == ("p",) and not report.foreign, "it says whose it is: a triple that p does not state"
    with pytest.raises(StoreError, match=rf"point '{FOREIGN}' holds no triple"):
        read(store).fetch_triples_flow([FOREIGN])
    assert store.repair().ok and FOREIGN not in contents(store)[store.triple_collection_name]


def test_a_passage_without_a_vector_is_checked(store: GeARVectorStore, client: Client) -> None:
    store.add([passage("q", "Eve.", embed_model=EMBED)])
    points, _ = store.client.scroll("gear", limit=10, with_payload=True, with_vectors=False)
    (other,) = (point for point in points if "Eve" in str(point.payload))
    store.client.delete("gear", points_selector=[other.id])
    put(client, "gear", other.payload, {})
    assert store.check().passages == 2


def test_a_document_is_deleted_where_another_program_wrote_into_it(store: GeARVectorStore, client: Client) -> None:
    store.add([passage("q", "Eve met Bob.", [("Eve", "met", "Bob")], document="d", embed_model=EMBED)])
    put(client, "gear", {"doc_id": "d", "text": "x"})
    store.delete("d")
    assert set(node.node_id for node in store.get_nodes()) == {"p"} and store.check().ok


def test_a_graph_s_point_that_is_no_triple_is_refused(tmp_path: Path) -> None:
    with ExternalTripleStore.from_path(tmp_path, embed_model=EMBED) as graph:
        graph.load([Triple("Ada", "knows", "Bob")])
        put(graph.client, "graph", {"subject": "A"}, {})
        assert graph.count() == 2
        with pytest.raises(StoreError, match=f"point '{FOREIGN}' holds no triple"):
            read(graph).fetch_triples_flow([FOREIGN])
