"""A large embedded collection is packed when it is closed; whatever is done before, meanwhile or later, all is kept."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import qdrant_edge as edge
from llama_index.core.vector_stores.types import (
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from qdrant_client.http import models

from llama_index_gear.errors import StoreError
from llama_index_gear.nodes import attach_triples
from llama_index_gear.store.aliases import AliasPair
from llama_index_gear.store.embedded import folder as edge_folder
from llama_index_gear.store.embedded import packing
from llama_index_gear.store.embedded.client import EdgeClient, compact
from llama_index_gear.store.settings import CollectionSettings
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.kills import RENAMES, Killed, kill, kill_at_rename
from llama_index_gear.tests.processes import PROCESSES
from llama_index_gear.tests.store_contract import contents, passage

EMBED = WordEmbedding(32)
NAMES = ("gear", "gear_triples")
WORDS = [f"word{number}" for number in range(60)]
PASSAGES = [f"p{number}" for number in range(40)]
HISTORIES = int(os.environ.get("GEAR_HISTORIES", "6"))
KILLS = int(os.environ.get("GEAR_KILLS", "4"))
QUERY = "word3 word4 word5"


@contextmanager
def set_fewest(fewest: int) -> Iterator[None]:
    """Set how many written points are packed."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(packing, "_FEWEST", fewest)
        yield


def open_store(folder: Path, **arguments: Any) -> GeARVectorStore:
    settings = CollectionSettings(
        payload_indexes=[{"field_name": "year", "field_schema": "integer"}], bm25_avg_len=60.0
    )
    return GeARVectorStore.from_path(folder, embed_model=EMBED, collection_settings=settings, **arguments)


def draw_passage(name: str, draw: random.Random) -> Any:
    triples = [(f"N{draw.randrange(12)}", "meets", f"N{draw.randrange(12)}") for _ in range(draw.randrange(1, 4))]
    text = " ".join(draw.choices(WORDS, k=30))
    return passage(name, text, triples, metadata={"year": draw.randrange(4)}, embed_model=EMBED)


def fill(store: GeARVectorStore, seed: int = 0) -> None:
    draw = random.Random(seed)
    store.add([draw_passage(name, draw) for name in PASSAGES])


def search(store: GeARVectorStore, mode: VectorStoreQueryMode, **arguments: Any) -> VectorStoreQueryResult:
    return store.query(
        VectorStoreQuery(
            query_str=QUERY,
            query_embedding=EMBED.get_query_embedding(QUERY),
            mode=mode,
            similarity_top_k=20,
            sparse_top_k=20,
            **arguments,
        )
    )


def is_packed(folder: Path) -> dict[str, bool]:
    """Return of each collection whether all of its points are packed."""
    places = {name: folder / name for name in NAMES}
    return {
        name: edge_folder.is_packed(place) and not edge_folder.count_unpacked(place) for name, place in places.items()
    }


def compare(store: GeARVectorStore, reference: GeARVectorStore) -> None:
    """Check that two stores hold the same and find the same. Sums of BM25 may differ in the last digit of a float."""
    assert contents(store) == contents(reference)
    assert store.check().ok
    years = MetadataFilters(filters=[MetadataFilter(key="year", value=1)])
    for arguments in ({}, {"filters": years}):
        for mode in (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.SPARSE):
            found, expected = search(store, mode, **arguments), search(reference, mode, **arguments)
            scores = [dict(zip(each.ids or (), each.similarities or (), strict=True)) for each in (found, expected)]
            assert scores[0] == pytest.approx(scores[1], rel=1e-6)


def test_what_was_written_is_packed_once_and_opens_without_indexes_to_make(tmp_path: Path) -> None:
    with set_fewest(1):
        store = open_store(tmp_path)
        fill(store)
        before = contents(store)
        found = search(store, VectorStoreQueryMode.SPARSE)
        assert not any(is_packed(tmp_path).values())
        store.close()
        assert is_packed(tmp_path) == dict.fromkeys(NAMES, True)
        places = [edge_folder.get_place(tmp_path / name) for name in NAMES]
        assert contents(store) == before and store.check().ok
        assert search(store, VectorStoreQueryMode.SPARSE).ids == found.ids
        store.close()
        assert [edge_folder.get_place(tmp_path / name) for name in NAMES] == places, "who reads packs nothing"
        store.add([draw_passage(f"new{number}", random.Random(number)) for number in range(12)])
        store.close()
        assert [edge_folder.get_place(tmp_path / name) for name in NAMES] == places, "less than half is written"
        assert store.check().ok and store.client.count("gear").count == len(PASSAGES) + 12
        fill(store, 2)
        store.close()
        assert is_packed(tmp_path) == dict.fromkeys(NAMES, True)
        assert sorted(place.name for place in tmp_path.iterdir()) == list(NAMES)
        assert store.client.delete_collection("gear")


def test_a_small_collection_and_one_that_is_only_read_are_left_as_they_are(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store)
    store.close()
    with set_fewest(1):
        assert len(contents(store)) == 2
        store.close()
    assert not any(edge_folder.is_packed(tmp_path / name) for name in NAMES), "who reads packs nothing"


def make_index(store: GeARVectorStore, name: str) -> None:
    if store.client.collection_exists("gear_triples"):
        store.client.create_payload_index("gear_triples", name, models.PayloadSchemaType.KEYWORD)


STEPS: dict[str, Callable[[GeARVectorStore, random.Random], Any]] = {
    "add": lambda store, draw: store.add([draw_passage(name, draw) for name in draw.sample(PASSAGES, 8)]),
    "add new": lambda store, draw: store.add([draw_passage(f"q{draw.randrange(30)}", draw)]),
    "delete": lambda store, draw: store.delete_nodes(draw.sample(PASSAGES, 5)),
    "delete by filter": lambda store, draw: store.delete_nodes(
        filters=MetadataFilters(filters=[MetadataFilter(key="year", value=draw.randrange(4))])
    ),
    "take triples": lambda store, draw: store.add(
        [attach_triples(node, []) for node in store.get_nodes(draw.sample(PASSAGES, 3))]
    ),
    "link": lambda store, draw: store.link_aliases(
        [AliasPair(*(f"N{number}" for number in draw.sample(range(12), 2)))]
    ),
    "unlink": lambda store, _: store.unlink_aliases(),
    "fill": lambda store, draw: fill(store, draw.randrange(9)),
    "clear": lambda store, _: store.clear(),
    "index": lambda store, draw: make_index(store, f"f{draw.randrange(3)}"),
    "vectors": lambda store, _: store.embed_stored_triples(),
    "repair": lambda store, _: store.repair(),
}


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_no_history_of_writes_shows_that_it_was_packed(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    store, reference = open_store(tmp_path / "packed"), open_store(tmp_path / "reference")
    for step in [
        "fill",
        *draw.choices(sorted({*STEPS} - {"clear", "vectors"}), k=8),
        *draw.choices(sorted(STEPS), k=6),
    ]:
        drawn = draw.random()
        for each in (store, reference):
            STEPS[step](each, random.Random(drawn))
        if draw.random() < 0.6:
            with set_fewest(1):
                store.close()
            reference.close()
        if draw.random() < 0.4:
            compare(store, reference)
    with set_fewest(1):
        store.close()
    compare(store, reference)
    assert not edge_folder.is_packed(tmp_path / "reference" / "gear")


def test_vectors_come_to_packed_triples(tmp_path: Path) -> None:
    """The engine itself can't open packed points that lack a vector which others have."""
    with set_fewest(1):
        for name in ("some", "all"):
            store = open_store(tmp_path / name)
            fill(store)
            store.close()
            assert is_packed(tmp_path / name)["gear_triples"]
            triples = store.client.count(NAMES[1]).count
            if name == "some":
                with open_store(tmp_path / name, embed_triples=True) as other:
                    store.close()
                    other.add([draw_passage("p1", random.Random(5))])
                store = open_store(tmp_path / name)
            assert store.embed_stored_triples() <= triples
            having = models.Filter(must=[models.HasVectorCondition(has_vector="text-dense")])
            for _ in range(2):
                assert store.client.count(NAMES[1], having).count == store.client.count(NAMES[1]).count > 0
                assert store.check().ok
                store.close()


def test_vectors_come_to_packed_triples_where_a_copy_of_them_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    fill(store)
    with set_fewest(1):
        store.close()
    free = edge_folder.RESERVE + edge_folder.measure(tmp_path / NAMES[1])
    with monkeypatch.context() as patched, pytest.raises(StoreError, match="make room"):
        patched.setattr(edge_folder, "free_space", lambda folder: free)
        store.embed_stored_triples()
    assert is_packed(tmp_path)[NAMES[1]]
    assert store.embed_stored_triples() == store.client.count(NAMES[1]).count > 0


def test_zeros_of_files_take_no_room(tmp_path: Path) -> None:
    content = b"a" + bytes(2**22) + b"b" + bytes(2**22)
    (tmp_path / "file").write_bytes(content)
    edge_folder.free_zeros(tmp_path)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [content]
    assert edge_folder.measure(tmp_path) < 2**20


def test_tenants_stay_apart_where_they_are_packed(tmp_path: Path) -> None:
    with set_fewest(1):
        store = open_store(tmp_path, tenant_field="who")
        for tenant in ("me", "you"):
            store.for_tenant(tenant).add([draw_passage(f"{tenant}{n}", random.Random(n)) for n in range(20)])
        store.close()
        assert is_packed(tmp_path) == dict.fromkeys(NAMES, True)
        ids = search(store.for_tenant("me"), VectorStoreQueryMode.SPARSE).ids or []
        assert ids and all(name.startswith("me") for name in ids)
        store.for_tenant("you").delete_nodes([f"you{n}" for n in range(20)])
        assert store.client.count("gear").count == 20 and store.check().ok


KILLED = {
    "copy": "packing.edge_folder.copy_parts",
    "optimize": "packing._optimize",
    "free": "packing.edge_folder.free_zeros",
    "close": "shards.OpenShards.close",
    "rmtree": "folder.shutil.rmtree",
}


@pytest.mark.parametrize("step", [*KILLED, *RENAMES])
def test_a_process_that_is_killed_at_a_step_leaves_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    store = open_store(tmp_path)
    fill(store)
    before = contents(store)
    with set_fewest(1), monkeypatch.context() as dying, pytest.raises(Killed):
        if step in KILLED:
            dying.setattr(f"llama_index_gear.store.embedded.{KILLED[step]}", kill)
        else:
            kill_at_rename(dying, step)
        store.close()
    again = open_store(tmp_path)
    assert contents(again) == before and again.check().ok
    again.close()
    assert sorted(place.name for place in tmp_path.iterdir()) == list(NAMES), "opening removes what was left"


def pack_in_process(folder: Path, pipe: Connection) -> None:
    with set_fewest(1):
        store = open_store(folder)
        fill(store, 1)
        pipe.send("filled")
        store.close()
        pipe.send("done")
        time.sleep(60)


@pytest.mark.parametrize("kill", range(KILLS))
def test_a_kill_in_this_moment_loses_nothing(tmp_path: Path, kill: int) -> None:
    expected = open_store(tmp_path / "expected")
    fill(expected, 1)
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=pack_in_process, args=(tmp_path / "store", theirs))
    process.start()
    assert ours.recv() == "filled"
    time.sleep(random.Random(kill).random() * 0.4)
    process.kill()
    process.join()
    compare(open_store(tmp_path / "store"), expected)


@pytest.mark.parametrize("fault", ["room", "engine", "disk", "size", "settings"])
def test_where_packing_fails_the_collection_is_closed_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no") if fault == "engine" else OSError("no")

    store = open_store(tmp_path)
    fill(store)
    before = contents(store)
    with set_fewest(1), monkeypatch.context() as patched:
        if fault == "room":
            patched.setattr(edge_folder, "free_space", lambda folder: edge_folder.PLENTY + 1000)
        elif fault == "settings":
            patched.setattr(packing, "to_config", lambda stored: None)
        elif fault == "engine":
            patched.setattr(packing, "_optimize", fail)
        else:
            patched.setattr(edge_folder, {"disk": "copy_parts", "size": "measure"}[fault], fail)
        store.close()
    assert not any(is_packed(tmp_path).values())
    assert sorted(place.name for place in tmp_path.iterdir()) == list(NAMES)
    assert contents(open_store(tmp_path)) == before


@pytest.mark.skipif(os.name == "nt", reason="a link needs rights there")
@pytest.mark.parametrize("foreign", ["file", "link"])
def test_what_others_put_there_keeps_a_collection_from_being_replaced(tmp_path: Path, foreign: str) -> None:
    store, place = open_store(tmp_path / "store"), tmp_path / "store" / "gear"
    fill(store)
    store.close()
    if foreign == "file":
        (place / "NOTES.txt").write_text("mine")
    else:
        place.rename(tmp_path / "elsewhere")
        place.symlink_to(tmp_path / "elsewhere")
    before = sorted(os.listdir(place))
    with set_fewest(1):
        fill(store, 1)
        written = contents(store)
        store.close()
    assert place.is_symlink() == (foreign == "link") and {*before} <= {*os.listdir(place)}
    assert sorted(each.name for each in place.parent.iterdir()) == list(NAMES)
    assert contents(store) == written and store.check().ok


@pytest.mark.skipif(os.name == "nt", reason="there files have no modes")
def test_a_packed_collection_is_open_to_the_same_users(tmp_path: Path) -> None:
    store, place = open_store(tmp_path), tmp_path / "gear"
    fill(store)
    place.chmod(0o700)
    with set_fewest(1):
        store.close()
    assert is_packed(tmp_path)["gear"] and place.stat().st_mode & 0o777 == 0o700


def test_a_packed_collection_is_written_anew_by_repair(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store)
    with set_fewest(1):
        store.close()
    for edition in range(30):
        draw = random.Random(edition)
        text = " ".join(draw.choices(WORDS, k=200))
        store.add([passage(name, f"{name} {text}", [], embed_model=EMBED) for name in PASSAGES])
    before = contents(store)
    assert compact(store.client, "gear")
    assert contents(store) == before and store.check().ok
    with set_fewest(1):
        store.close()
    assert is_packed(tmp_path)["gear"], "what was written anew is packed at the next close"


def test_the_engine_reads_what_was_packed_without_this_package(tmp_path: Path) -> None:
    with set_fewest(1):
        store = open_store(tmp_path)
        fill(store)
        store.close()
    shutil.copytree(tmp_path / "gear", tmp_path / "copy")
    shard = edge.EdgeShard.load(str(tmp_path / "copy"))
    assert shard.info().points_count == len(PASSAGES)
    shard.close()


def test_a_part_of_a_packed_collection_that_is_missing_is_damage(tmp_path: Path) -> None:
    with set_fewest(1):
        store = open_store(tmp_path)
        fill(store)
        store.close()
    packed = next((tmp_path / "gear" / "segments").glob("*/id_tracker.versions")).parent
    shutil.rmtree(packed / "vector_storage-text-dense")
    with EdgeClient(tmp_path) as client, pytest.raises(StoreError, match="has other vectors"):
        client.count("gear")
