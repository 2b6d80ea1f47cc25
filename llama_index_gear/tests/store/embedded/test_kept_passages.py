"""The passages of an open collection in memory are those that are stored, whatever is written in between."""

import random
import tracemalloc
import uuid
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.vector_stores.types import VectorStoreQuery
from qdrant_client.http import models

from llama_index_gear.errors import StoreError
from llama_index_gear.store.embedded import payloads
from llama_index_gear.store.embedded.payloads import StoredPayload
from llama_index_gear.store.schema import NODE_FIELDS, point_id_of
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.processes import PROCESSES
from llama_index_gear.tests.store_contract import passage

EMBED = WordEmbedding()
NAMES = [f"p{number}" for number in range(20)]
SEARCH = models.QueryRequest(
    query=EMBED.get_text_embedding("word"), using="text-dense", limit=50, with_payload=NODE_FIELDS
)


@pytest.fixture
def store(tmp_path: Path) -> GeARVectorStore:
    store = GeARVectorStore.from_path(tmp_path / "store", embed_model=EMBED)
    store.add([passage(name, f"word {name}", embed_model=EMBED) for name in NAMES])
    return store


def search(store: GeARVectorStore) -> dict[str, Any]:
    """Return point id → the fields of the node that a search gives."""
    (answer,) = store.client.query_batch_points("gear", [SEARCH])
    return {str(point.id): dict(point.payload or {}) for point in answer.points}


def read_plainly(store: GeARVectorStore) -> dict[str, Any]:
    """Return the same by a call that nothing is kept of."""
    points, _ = store.client.scroll("gear", limit=100, with_payload=NODE_FIELDS)
    return {str(point.id): point.payload for point in points}


def set_fields(store: GeARVectorStore, payload: dict[str, Any]) -> None:
    change = models.SetPayload(payload=payload, points=[point_id_of("p3")])
    store.client.batch_update_points("gear", [models.SetPayloadOperation(set_payload=change)])


WRITES: dict[str, Callable[[GeARVectorStore, Any], Any]] = {
    "add": lambda store, _: store.add([passage("p1", "word anew", embed_model=EMBED)]),
    "delete": lambda store, _: store.delete_nodes(["p2", "p3"]),
    "clear": lambda store, _: clear_and_add(store),
    "a payload": lambda store, _: set_fields(store, {"_node_type": "Other"}),
    "a payload of another kind": lambda store, _: set_fields(store, {"_node_content": 7}),
    "a payload without": lambda store, _: store.client.batch_update_points(
        "gear",
        [
            models.DeletePayloadOperation(
                delete_payload=models.DeletePayload(keys=NODE_FIELDS, points=[point_id_of("p4")])
            )
        ],
    ),
    "close": lambda store, _: store.close(),
    "another process": lambda store, _: write_elsewhere(store),
}


@pytest.mark.parametrize("name", WRITES)
def test_whatever_is_written_the_next_search_gives_what_is_stored(store: GeARVectorStore, name: str) -> None:
    assert search(store) == search(store) == read_plainly(store)
    WRITES[name](store, None)
    assert search(store) == read_plainly(store) == search(store)


def clear_and_add(store: GeARVectorStore) -> None:
    store.clear()
    store.add([passage("p1", "word", embed_model=EMBED)])


def write_elsewhere(store: GeARVectorStore) -> None:
    store.close()
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=replace_all, args=(store.client.path, theirs))
    process.start()
    assert ours.recv() == "done"
    process.join()


def replace_all(path: Path, done: Connection) -> None:
    with GeARVectorStore.from_path(path, embed_model=EMBED) as store:
        store.add([passage(name, f"word of another {name}", embed_model=EMBED) for name in NAMES])
    done.send("done")


def test_a_passage_is_read_once(store: GeARVectorStore, monkeypatch: pytest.MonkeyPatch) -> None:
    first = search(store)
    monkeypatch.setattr(payloads, "StoredPayload", lambda *_: pytest.fail("it is read again"))
    assert search(store) == first
    store.add([passage("p1", "word anew", embed_model=EMBED)])
    with pytest.raises(pytest.fail.Exception):
        search(store)


@pytest.mark.parametrize("limit", ["_KEPT", "_MOST_AT_ONCE", "_LONGEST"])
def test_what_is_kept_is_bounded(store: GeARVectorStore, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    sizes = [payloads.measure(record.payload["_node_content"]) for record in store.client.scroll("gear", limit=20)[0]]
    monkeypatch.setattr(payloads, limit, 5 * max(sizes) if limit == "_KEPT" else 5)
    for _ in range(2):
        assert search(store) == read_plainly(store)
    kept = store.client._shards.get_payloads("gear")._kept
    assert len(kept) <= (5 if limit == "_KEPT" else 0)
    numbers = []
    for name in random.Random(0).sample(NAMES, 10):
        store.query(VectorStoreQuery(query_embedding=EMBED.get_text_embedding(name), similarity_top_k=2))
        numbers.append(len(kept))
    assert limit != "_KEPT" or 1 < max(numbers) <= 5


def test_what_is_kept_of_a_passage_is_measured_in_bytes() -> None:
    """It takes no more memory than that, whatever its letters are."""
    for letter in "xж字😀":
        content = f'{{"text": "{letter * 100}"}}'
        number, kept = 2_000, payloads.Payloads()
        tracemalloc.start()
        for point_id in range(number):
            copy = content.encode().decode()
            kept._keep(str(uuid.UUID(int=point_id)), StoredPayload(copy, "TextNode"), payloads.measure(copy))
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert 0.6 * kept._size < taken < kept._size, letter


@pytest.mark.parametrize("text", ["plain", "Größe 父亲 \n" * 100, ""])
def test_a_kept_payload_is_the_one_that_was_stored(text: str) -> None:
    payload = StoredPayload(text, "TextNode")
    assert dict(payload) == {"_node_content": text, "_node_type": "TextNode"} and len(payload) == 2
    assert payload.get("other") is None


def test_a_damaged_point_is_named_as_before(store: GeARVectorStore) -> None:
    search(store)
    set_fields(store, {"_node_content": "{"})
    with pytest.raises(StoreError, match="holds no passage"):
        store.query(VectorStoreQuery(query_embedding=EMBED.get_text_embedding("word"), similarity_top_k=20))
