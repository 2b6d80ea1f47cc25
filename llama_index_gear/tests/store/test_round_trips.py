"""The calls that a write and a deletion make: on a server each is a round trip, unless two go out together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import BaseNode
from qdrant_client import QdrantClient

from llama_index_gear import GeARVectorStore
from llama_index_gear.flow import QdrantCall
from llama_index_gear.store.access import reads_of
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import make_process, passage

EMBED = WordEmbedding(16)
SERVER = os.environ.get("QDRANT_URL")
ENGINES = ["embedded", "shared", *(["server"] if SERVER else [])]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(engine: str, tmp_path: Path) -> Iterator[GeARVectorStore]:
    """A store with a passage, whose collections are known. One that is shared has other processes beside it."""
    if engine == "embedded":
        store = GeARVectorStore.from_path(tmp_path, embed_model=EMBED)
    elif engine == "shared":
        store = make_process(QdrantClient(":memory:"), EMBED)
    else:
        store = GeARVectorStore("round_trips", url=SERVER, embed_model=EMBED)
        store.clear()
    store.add([make_node("beside", "Bea")])
    yield store
    store.clear()
    store.close()


def make_node(name: str, *objects: str) -> BaseNode:
    facts = [("Ann", "knows", given) for given in objects]
    return passage(name, f"{name} {objects}", facts, document=f"d-{name}", embed_model=EMBED)


def make_calls(store: GeARVectorStore, flow: Any) -> list[list[str]]:
    """Run a flow; return the calls of each round trip."""
    trips: list[list[str]] = []
    try:
        batch = next(flow)
        while True:
            if calls := [request.method for request in batch if isinstance(request, QdrantCall)]:
                trips.append(calls)
            batch = flow.send([store._connection.answer(request) for request in batch])
    except StopIteration:
        return trips


def read(store: GeARVectorStore) -> Any:
    return reads_of(store).get_flow(["beside"], None)


@pytest.mark.parametrize("before", [[], [make_node("p", "Bea")], [make_node("p", "Eve", "Bea")], [make_node("p")]])
def test_a_passage_with_triples_is_written_in_five_round_trips(
    engine: str, store: GeARVectorStore, before: list[BaseNode]
) -> None:
    if before:
        store.add(before)
    trips = make_calls(store, store._writes.add_flow([make_node("p", "Bea", "Dora")]))
    assert len(trips) == 5 and sum(map(len, trips)) == (5 if engine == "embedded" else 7), trips
    assert store.check().ok and store.check().triples == 3


def test_a_passage_without_triples_is_written_in_fewer(engine: str, store: GeARVectorStore) -> None:
    trips = make_calls(store, store._writes.add_flow([make_node("p")]))
    assert trips == [["scroll"], ["upsert"], *([] if engine == "embedded" else [["retrieve"]])]


@pytest.mark.parametrize("by", ["document", "id"])
def test_a_passage_with_triples_is_deleted_in_five_round_trips(store: GeARVectorStore, by: str) -> None:
    store.add([make_node("p", "Bea", "Dora")])
    deletes = store._deletes
    flow = deletes.delete_document_flow("d-p") if by == "document" else deletes.delete_nodes_flow(["p"], None)
    trips = make_calls(store, flow)
    assert trips == [["scroll"], ["batch_update_points"], ["delete"], ["scroll"], ["delete"]]
    assert store.check().ok and store.check().passages == 1


def test_what_is_not_there_is_looked_for_once_in_each_collection(store: GeARVectorStore) -> None:
    assert make_calls(store, store._deletes.delete_document_flow("nothing")) == [["scroll"], ["scroll"]]


def test_collections_are_looked_up_once_and_anew_after_they_were_cleared_or_closed(
    engine: str, store: GeARVectorStore
) -> None:
    looks = {"collection_exists", "get_collection"}
    assert make_calls(store, read(store)) == [["scroll"]]
    store.clear()
    assert make_calls(store, read(store)) == [["collection_exists"]]
    store.add([make_node("beside", "Bea")])
    if engine == "embedded":
        store.close()
        assert make_calls(store, read(store)) == [
            ["collection_exists"],
            ["get_collection"],
            ["scroll"],
        ]
        trips = make_calls(store, store._writes.add_flow([make_node("p", "Bea")]))
        assert looks & {call for calls in trips for call in calls}
        trips = make_calls(store, store._writes.add_flow([make_node("p", "Bea")]))
        assert not looks & {call for calls in trips for call in calls}
