"""An embedded collection is written anew where most of its folder is of what is gone; killed anywhere, it is whole."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode
from qdrant_client.http import models

from llama_index_gear.errors import StoreError
from llama_index_gear.store.embedded import folder as edge_folder
from llama_index_gear.store.embedded.client import EdgeClient, compact
from llama_index_gear.store.settings import CollectionSettings
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.kills import RENAMES, Killed, kill, kill_at_rename
from llama_index_gear.tests.store_contract import contents, passage

EMBED = WordEmbedding(32)
NAMES = ("gear", "gear_triples")
EDITIONS = 30


def draw(edition: int, count: int = 20) -> list[Any]:
    rng = random.Random(edition)
    words = [" ".join(f"word{rng.randrange(500)}" for _ in range(200)) for _ in range(count)]
    return [
        passage(f"p{n}", text, [(f"N{n}", "of", f"Town {edition}")], metadata={"year": 4.5 + n}, embed_model=EMBED)
        for n, text in enumerate(words)
    ]


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a store that was edited again and again."""
    folder = tmp_path_factory.mktemp("edited") / "store"
    with open_store(folder) as store:
        for edition in range(EDITIONS):
            store.add(draw(edition))
    return folder


def open_store(folder: Path, edited: Path | None = None) -> GeARVectorStore:
    """Open a store; with `edited`, a copy of that one."""
    if edited is not None:
        shutil.copytree(edited, folder)
    indexes = [{"field_name": "year", "field_schema": "float"}, {"field_name": "who", "field_schema": "keyword"}]
    return GeARVectorStore.from_path(
        folder, embed_model=EMBED, collection_settings=CollectionSettings(payload_indexes=indexes, bm25_avg_len=60.0)
    )


def measure(folder: Path) -> dict[str, int]:
    """Return how many bytes of a store's collections are not zero: how much of the rest is kept, the disk decides."""
    files = {name: [path for path in (folder / name).rglob("*") if path.is_file()] for name in NAMES}
    return {
        name: sum(int(np.count_nonzero(np.fromfile(path, np.uint8))) for path in paths) for name, paths in files.items()
    }


def describe(store: GeARVectorStore) -> list[Any]:
    """Return all that a store's collections say of themselves, but for the number of their segments."""
    infos = [store.client.get_collection(name) for name in NAMES]
    return [(info.config, info.payload_schema, info.points_count) for info in infos]


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_repair_gives_back_what_replaced_passages_took(tmp_path: Path, edited: Path, mode: str) -> None:
    store = open_store(tmp_path / "store", edited)
    query = VectorStoreQuery(query_str="word7 word8", mode=VectorStoreQueryMode.SPARSE, similarity_top_k=9)
    before, described, found = contents(store), describe(store), store.query(query)
    store.close()
    size = measure(tmp_path / "store")
    assert (store.repair() if mode == "sync" else await store.arepair()).ok
    assert contents(store) == before and describe(store) == described
    assert store.query(query).ids == found.ids and store.query(query).similarities == found.similarities
    store.close()
    fresh = GeARVectorStore.from_path(tmp_path / "fresh", embed_model=EMBED)
    fresh.add(draw(EDITIONS - 1))
    fresh.close()
    once, least = measure(tmp_path / "store"), measure(tmp_path / "fresh")
    assert size["gear"] > 5 * once["gear"] and once["gear"] < 1.5 * least["gear"]
    assert not compact(store.client, "none")
    assert sorted(place.name for place in (tmp_path / "store").iterdir()) == list(NAMES)
    store.add(draw(41))
    assert store.check().ok


def test_deleted_passages_are_given_back_too_and_little_is_left_alone(tmp_path: Path) -> None:
    store = GeARVectorStore.from_path(tmp_path, embed_model=EMBED)
    store.add(draw(0, 300))
    size = measure(tmp_path)["gear"]
    assert store.repair().ok and measure(tmp_path)["gear"] == size, "nothing was replaced"
    store.delete_nodes([f"p{n}" for n in range(290)])
    assert store.repair().ok and measure(tmp_path)["gear"] < size / 5
    store.delete_nodes([f"p{n}" for n in range(300)])
    assert store.repair().ok and store.get_nodes() == []
    store.add(draw(1))
    assert store.check().ok and len(store.get_nodes()) == 20


@pytest.mark.parametrize("step", ["build", "close", *RENAMES, "rmtree"])
def test_a_process_that_is_killed_leaves_the_collection_whole(
    tmp_path: Path, edited: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    folder = tmp_path / "store"
    store = open_store(folder, edited)
    before = contents(store)
    with monkeypatch.context() as dying, pytest.raises(Killed):
        if step in RENAMES:
            kill_at_rename(dying, step)
        elif step == "rmtree":
            dying.setattr(shutil, "rmtree", kill)
        else:
            place = "packing.fill" if step == "build" else "shards.OpenShards.close"
            dying.setattr(f"llama_index_gear.store.embedded.{place}", kill)
        compact(store.client, "gear")
    store.client.close()
    with EdgeClient(folder) as client:
        again = GeARVectorStore(
            client=client, embed_model=EMBED, collection_settings=CollectionSettings(bm25_avg_len=60.0)
        )
        assert again.check().ok and contents(again) == before
        again.repair()
        assert contents(again) == before
        client.delete_collection("gear")
        assert not client.collection_exists("gear"), "what was replaced does not come back"
    assert sorted(place.name for place in folder.iterdir()) == ["gear_triples"]


def test_without_room_nothing_is_changed(tmp_path: Path, edited: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "store"
    store = open_store(folder, edited)
    before, size = contents(store), measure(folder)
    monkeypatch.setattr(edge_folder, "free_space", lambda folder: edge_folder.RESERVE + 1000)
    with pytest.raises(StoreError, match="MiB free"):
        compact(store.client, "gear")
    monkeypatch.undo()
    assert contents(store) == before and measure(folder) == size


def test_a_collection_with_settings_of_another_program_is_left_as_it_is(tmp_path: Path, edited: Path) -> None:
    folder = tmp_path / "store"
    store = open_store(folder, edited)
    store.close()
    config = folder / "gear" / "edge_config.json"
    config.write_text(config.read_text("utf-8").replace('"size":32', '"size":32,"on_disk":true'), "utf-8")
    assert not compact(store.client, "gear") and compact(store.client, "gear_triples")


def test_an_index_of_a_tenant_stays_one(tmp_path: Path) -> None:
    with EdgeClient(tmp_path) as client:
        client.create_collection("c", models.VectorParams(size=2, distance=models.Distance.COSINE))
        tenant = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
        client.create_payload_index("c", "who", tenant)
        for _ in range(30):
            points = [
                models.PointStruct(id=n, vector=[1.0, n], payload={"who": "me", "text": "x" * 3_000}) for n in range(40)
            ]
            client.upsert("c", points)
        assert compact(client, "c")
        with client._shards.hold():
            index: Any = client._shard("c").info().payload_schema["who"]
        assert index.params.is_tenant and client.count("c").count == 40
