"""A collection that is lost: triples are rebuilt from the passages, which carry them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from qdrant_client import QdrantClient

from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.store.settings import CollectionSettings
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import contents, passage

EMBED = WordEmbedding(16)
FACTS = [("Ada", "met", "Bob"), ("Bob", "wrote", "Emma"), ("Bobby", "is read in", "Rome")]


def fill(client: Any, **arguments: Any) -> GeARVectorStore:
    store = GeARVectorStore(client=client, embed_model=EMBED, batch_size=2, **arguments)
    metadata = {"who": "me", "year": 1990}
    store.add(
        [
            passage(f"p{n}", f"text {n}", FACTS[n % 3 :], document="d", embed_model=EMBED, metadata=metadata)
            for n in range(7)
        ]
    )
    return store


@pytest.mark.parametrize("engine", ["memory", "embedded"])
@pytest.mark.parametrize("is_new_process", [False, True])
def test_repair_rebuilds_the_triples_from_the_passages(tmp_path: Path, engine: str, is_new_process: bool) -> None:
    client: Any = QdrantClient(":memory:") if engine == "memory" else EdgeClient(tmp_path / "store")
    store = fill(
        client,
        tenant_field="who",
        collection_settings=CollectionSettings(payload_indexes=[{"field_name": "year", "field_schema": "integer"}]),
    )
    before, indexes = contents(store), set(client.get_collection(store.triple_collection_name).payload_schema)
    client.delete_collection(store.triple_collection_name)
    if is_new_process:
        store = GeARVectorStore(
            client=client,
            embed_model=EMBED,
            tenant_field="who",
            collection_settings=CollectionSettings(payload_indexes=[{"field_name": "year", "field_schema": "integer"}]),
        )
    report = store.check()
    assert len(report.incomplete) == 7 and report.triples == 0
    assert store.repair().ok
    assert contents(store) == before
    assert set(client.get_collection(store.triple_collection_name).payload_schema) == indexes
    client.close()


def test_links_are_not_in_passages_and_are_made_again() -> None:
    store = fill(QdrantClient(":memory:"))
    store.link_aliases([("Bob", "Bobby")])
    linked = contents(store)
    store.client.delete_collection(store.triple_collection_name)
    assert store.repair().ok and store.list_aliases() == []
    store.link_aliases([("Bob", "Bobby")])
    assert contents(store) == linked


def test_triples_without_their_passages_are_left_over() -> None:
    """The words of a passage stand in no triple."""
    store = fill(QdrantClient(":memory:"))
    store.client.delete_collection(store.collection_name)
    report = store.check()
    assert report.passages == 0 and len(report.orphaned) == 7
