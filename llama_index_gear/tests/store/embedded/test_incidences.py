"""The triples of an open collection in memory answer as the engine does, whatever is written in between.

So do those that a file keeps for the next process, whoever writes or is killed meanwhile.
"""

import os
import random
import shutil
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest
import qdrant_edge as edge
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from qdrant_client.http import models

from llama_index_gear.errors import StoreError, StoreLockedError
from llama_index_gear.nodes import attach_triples
from llama_index_gear.store.embedded import client as edge_client
from llama_index_gear.store.embedded import folder as edge_folder
from llama_index_gear.store.embedded import incidences, shards
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.store.embedded.packing import call_engine
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.processes import PROCESSES
from llama_index_gear.tests.store_contract import passage, read
from llama_index_gear.triple import Incidence, Triple

EMBED = WordEmbedding()
NAMES = [f"N{number}" for number in range(12)]
PASSAGES = [f"p{number}" for number in range(20)]
TRIPLES = "gear_triples"
KILLS = int(os.environ.get("GEAR_KILLS", "6"))
Groups = list[tuple[list[str], list[str]]]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GeARVectorStore:
    """A store with some triples, links of aliases among them, of which a page is read from the first request on."""
    monkeypatch.setattr(incidences, "_ASKED_FIRST", 0)
    monkeypatch.setattr(incidences, "_PAGE", 7)
    store = GeARVectorStore.from_path(tmp_path / "store", embed_model=EMBED)
    fill(store, random.Random(0))
    store.link_aliases([("N0", "N1"), ("N2", "N3")])
    return store


def fill(store: GeARVectorStore, draw: random.Random) -> None:
    store.add([make(name, draw) for name in PASSAGES])


def clear_and_fill(store: GeARVectorStore, draw: random.Random) -> None:
    store.clear()
    fill(store, draw)


def make(name: str, draw: random.Random) -> Any:
    facts = [(draw.choice(NAMES), f"meets {number}", draw.choice(NAMES)) for number in range(draw.randint(0, 6))]
    return passage(name, " ".join(map(" ".join, facts)), facts, metadata={"year": draw.choice([1, 2])})


def draw_groups(draw: random.Random, number: int = 12) -> tuple[Groups, list[int]]:
    """Draw groups of an entity, of a passage, of several of both, and of none, with their limits."""
    names, passages = [*map(str.lower, NAMES), "unknown"], [*PASSAGES, "unknown"]
    groups: Groups = [([draw.choice(names)], []) for _ in range(number)]
    groups += [([], [draw.choice(passages)]) for _ in range(number)]
    groups += [(draw.sample(names, draw.randint(0, 3)), draw.sample(passages, draw.randint(0, 3))) for _ in groups]
    return groups, [draw.choice([1, 2, 5, 100]) for _ in groups]


def ask(
    store: GeARVectorStore, groups: Groups, limits: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[list[Incidence]], list[list[Incidence]], bool]:
    """Return what is answered, what the engine answers, and whether the first came from memory."""
    asked: list[Any] = []
    query = store.client.query_batch_points

    def note(**given: Any) -> Any:
        asked.append(given)
        return query(**given)

    with monkeypatch.context() as patch:
        patch.setattr(store.client, "query_batch_points", note)
        answers = read(store).incident_flow(groups, limits)
    with monkeypatch.context() as patch:
        patch.setattr(EdgeClient, "find_incidences", lambda *_, **__: None)
        expected = read(store).incident_flow(groups, limits)
    return answers, expected, not asked


def read_whole(store: GeARVectorStore) -> None:
    for _ in range(30):
        read(store).incident_flow([(["n0"], [])], [1])


def test_answers_are_the_engine_s_before_and_after_all_is_read(
    store: GeARVectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, from_memory = random.Random(1), list[bool]()
    for _ in range(20):
        answers, expected, is_kept = ask(store, *draw_groups(draw), monkeypatch)
        assert answers == expected and any(expected)
        from_memory.append(is_kept)
    assert not from_memory[0] and from_memory[-1] and from_memory == sorted(from_memory)
    assert any(incidence.aliases for answer in expected for incidence in answer)


WRITES: dict[str, Callable[[GeARVectorStore, random.Random], Any]] = {
    "add": lambda store, draw: store.add([make("p0", draw), make("p1", draw)]),
    "delete": lambda store, _: store.delete_nodes(["p2", "p3"]),
    "delete by filter": lambda store, _: store.delete_nodes(
        filters=MetadataFilters(filters=[MetadataFilter(key="year", value=1)])
    ),
    "link": lambda store, _: store.link_aliases([("N4", "N5")]),
    "unlink": lambda store, _: store.unlink_aliases(),
    "take triples": lambda store, _: store.add([attach_triples(node, []) for node in store.get_nodes(["p4", "p5"])]),
    "clear and fill": lambda store, draw: clear_and_fill(store, draw),
    "a payload": lambda store, _: store.client.batch_update_points(
        TRIPLES,
        [
            models.SetPayloadOperation(
                set_payload=models.SetPayload(payload={"entities": ["x"]}, filter=models.Filter())
            )
        ],
    ),
    "vectors": lambda store, _: store.embed_stored_triples(),
    "repair": lambda store, _: store.repair(),
    "close": lambda store, _: store.close(),
}


@pytest.mark.parametrize("name", WRITES)
def test_whatever_is_written_the_next_answers_are_the_engine_s(
    store: GeARVectorStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    draw = random.Random(name)
    for _ in range(2):
        read_whole(store)
        assert ask(store, *draw_groups(draw), monkeypatch)[2]
        WRITES[name](store, draw)
        for _ in range(3):
            answers, expected, _ = ask(store, *draw_groups(draw), monkeypatch)
            assert answers == expected


def test_what_another_process_wrote_meanwhile_is_seen(store: GeARVectorStore, monkeypatch: pytest.MonkeyPatch) -> None:
    read_whole(store)
    store.close()
    path = store.client.path
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=replace_all, args=(path, theirs))
    process.start()
    assert ours.recv() == "done"
    process.join()
    answers, expected, is_kept = ask(store, [([], PASSAGES), (["rome"], [])], [500, 500], monkeypatch)
    assert answers == expected and not is_kept
    assert {entity for incidence in answers[0] for entity in incidence.entities} == {"rome", "tiber"}


def replace_all(path: Path, done: Connection) -> None:
    with GeARVectorStore.from_path(path, embed_model=EMBED) as store:
        store.add([passage(name, "Rome lies at the Tiber", [("Rome", "lies at", "Tiber")]) for name in PASSAGES])
    done.send("done")


def test_filters_and_tenants_are_left_to_the_engine(store: GeARVectorStore, monkeypatch: pytest.MonkeyPatch) -> None:
    read_whole(store)
    monkeypatch.setattr(EdgeClient, "find_incidences", lambda *_, **__: pytest.fail("it knows no filters"))
    years = {node.node_id: node.metadata["year"] for node in store.get_nodes()}
    only = MetadataFilters(filters=[MetadataFilter(key="year", value=1)])
    (found,) = read(store, only).incident_flow([(list(map(str.lower, NAMES)), PASSAGES)], [500])
    assert found and {years[incidence.passage_id] for incidence in found} == {1}


@pytest.mark.parametrize(
    "payload",
    [
        {"entities": 7},
        {"entities": [7]},
        {"entities": ["x", "x"]},
        {"entities": ["x", "y", "z"]},
        {"entities": []},
        {"entities": [], "aliases": [{"entity": "x", "alias": "y"}]},
        {"passage_id": 7},
        {"aliases": [7]},
    ],
    ids=str,
)
def test_a_collection_with_a_damaged_point_is_left_to_the_engine(
    store: GeARVectorStore, monkeypatch: pytest.MonkeyPatch, payload: Any
) -> None:
    first = next(point for point in store.client.scroll(TRIPLES, limit=50)[0] if "aliases" not in point.payload)
    change = models.SetPayload(payload=payload, points=[first.id])
    store.client.batch_update_points(TRIPLES, [models.SetPayloadOperation(set_payload=change)])
    others = [name for name in PASSAGES if name != first.payload["passage_id"]]
    for _ in range(30):
        answers, expected, is_kept = ask(store, [([], others)], [500], monkeypatch)
        assert answers == expected and not is_kept
    if payload in ({"entities": 7}, {"entities": [7]}):
        with pytest.raises(StoreError, match="holds no triple"):
            read(store).incident_flow([([], [first.payload["passage_id"]])], [9])


def test_a_large_collection_is_left_to_the_engine(store: GeARVectorStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incidences, "_MOST", 10)
    monkeypatch.setattr(incidences, "has_sound_entities", lambda _: pytest.fail("nothing is read"))
    read_whole(store)
    assert not ask(store, [(["n0"], [])], [9], monkeypatch)[2]


def test_a_single_question_reads_nothing_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incidences, "has_sound_entities", lambda _: pytest.fail("nothing is read"))
    with GeARVectorStore.from_path(tmp_path / "store", embed_model=EMBED) as store:
        fill(store, random.Random(0))
        for _ in range(16):
            read(store).incident_flow([(["n0"], [])], [9])


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_readers_beside_a_writer_see_what_is_stored(store: GeARVectorStore, mode: str) -> None:
    """A passage is written again and again, each time with one fact: a read that follows sees that fact alone."""
    read_whole(store)
    for number in range(20):
        fact = ("Ada", f"says {number}", f"Word {number}")
        node = passage("p0", f"Word {number}", [fact])
        await (store.async_add([node]) if mode == "async" else read_async(store, node))
        for _ in range(2):
            (found,) = methodcaller("incident_flow", [(["ada"], [])], [9])(read(store))
            assert [incidence.id for incidence in found] == [Triple(*fact).id("p0")]
        read_whole(store)


async def read_async(store: GeARVectorStore, node: Any) -> None:
    store.add([node])


# -- the file ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def kept(store: GeARVectorStore, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a closed store, whose triples were all read."""
    monkeypatch.setattr(incidences, "_FEWEST", 1)
    read_whole(store)
    store.close()
    assert edge_folder.get_kept(store.client.path / TRIPLES).exists()
    return edge_folder.get_kept(store.client.path / TRIPLES)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the collections that the engine opens."""
    names: list[str] = []

    def note(work: Callable[[], Any], folder: Path) -> Any:
        names.append(folder.name)
        return call_engine(work, folder)

    monkeypatch.setattr(shards, "call_engine", note)
    return names


def check_answers(store: GeARVectorStore, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Compare answers with the engine's; return True if they came from memory."""
    answers, expected, from_memory = ask(store, *draw_groups(random.Random(5)), monkeypatch)
    assert answers == expected and any(expected)
    return from_memory


def test_a_file_answers_without_the_collection(
    store: GeARVectorStore, kept: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, limits = draw_groups(random.Random(2))
    found = read(store).incident_flow(groups, limits)
    assert opened == ["gear"]
    assert any(incidence.aliases for answer in found for incidence in answer)
    assert store.client.count(TRIPLES).count and opened == ["gear", TRIPLES]
    assert read(store).incident_flow(groups, limits) == found
    assert check_answers(store, monkeypatch)
    store.close()
    assert check_answers(store, monkeypatch) and kept.exists()


@pytest.mark.parametrize("name", WRITES)
def test_a_write_removes_the_file(
    store: GeARVectorStore, kept: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(edge_client, "_MOST_TIMES", 0)
    monkeypatch.setattr(edge_client, "_NO_WASTE", 0)  # a repair writes the collections anew
    read(store).incident_flow([(["n0"], [])], [1])
    WRITES[name](store, random.Random(name))
    assert kept.exists() is (name == "close")
    for _ in range(2):
        check_answers(store, monkeypatch)
        store.close()
    read_whole(store)
    store.close()
    assert check_answers(store, monkeypatch)


def test_a_repair_that_writes_nothing_leaves_the_file(
    store: GeARVectorStore, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_client, "_NO_WASTE", 1 << 40)
    assert store.repair().ok and kept.exists()
    check_answers(store, monkeypatch)
    store.close()
    assert kept.exists() and check_answers(store, monkeypatch)


def test_random_histories_answer_as_a_fresh_store(
    store: GeARVectorStore, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(7)
    for _ in range(25):
        WRITES[draw.choice(list(WRITES))](store, draw)
        if draw.random() < 0.5:
            read_whole(store)
        if draw.random() < 0.5:
            store.close()
        check_answers(store, monkeypatch)


def test_the_store_that_was_filled_keeps_its_triples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incidences, "_FEWEST", 20)
    store = GeARVectorStore.from_path(tmp_path / "store", embed_model=EMBED)
    fill(store, random.Random(0))
    store.close()
    kept = edge_folder.get_kept(store.client.path / TRIPLES)
    assert kept.exists() and not edge_folder.get_kept(store.client.path / "gear").exists()
    assert check_answers(store, monkeypatch)
    store.add([make("p0", random.Random(1))])
    store.close()
    assert not kept.exists()  # to read all for one passage would take too long
    monkeypatch.setattr(incidences, "_FEWEST", 10_000)
    read_whole(store)
    store.close()
    assert not kept.exists()
    monkeypatch.setattr(incidences, "_FEWEST", 20)
    monkeypatch.setattr(edge_folder, "free_space", lambda _: edge_folder.PLENTY - 1)
    read_whole(store)
    store.close()
    assert not kept.exists()


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_a_program_wrote_that_knows_only_the_engine_is_seen(
    store: GeARVectorStore, kept: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    process = PROCESSES.Process(target=write_raw, args=(kept.parent, is_killed))
    process.start()
    process.join()
    assert process.exitcode == (9 if is_killed else 0) and kept.exists()
    assert not check_answers(store, monkeypatch)
    (found,) = read(store).incident_flow([(["raw"], [])], [9])
    assert len(found) == 1


def write_raw(folder: Path, is_killed: bool) -> None:
    shard = edge.EdgeShard.load(str(folder))
    (record,), _ = shard.scroll(edge.ScrollRequest(limit=1))
    shard.update(edge.UpdateOperation.set_payload([record.id], {"entities": ["raw", "words"], "aliases": []}))
    if is_killed:
        os._exit(9)
    shard.close()


def test_such_a_program_is_kept_out_while_a_file_answers(store: GeARVectorStore, kept: Path) -> None:
    read(store).incident_flow([(["n0"], [])], [1])
    with pytest.raises(Exception, match="WouldBlock"):
        edge.EdgeShard.load(str(kept.parent))
    store.close()
    edge.EdgeShard.load(str(kept.parent)).close()


def test_a_forked_process_leaves_the_file_to_its_parent(
    store: GeARVectorStore, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(store).incident_flow([(["n0"], [])], [1])
    if not (child := os.fork()):
        try:
            store.client.find_incidences(TRIPLES, [], [])
        except StoreLockedError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert check_answers(store, monkeypatch)


def test_a_folder_that_is_moved_is_refused(store: GeARVectorStore, kept: Path) -> None:
    read(store).incident_flow([(["n0"], [])], [1])
    kept.parent.rename(kept.parent.with_name("other"))
    shutil.copytree(kept.parent.with_name("other"), kept.parent)
    with pytest.raises(StoreError, match="was moved, deleted or replaced"):
        read(store).incident_flow([(["n0"], [])], [1])
    store.close()
    assert read(store).incident_flow([(["n0"], [])], [1])[0]


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "of another kind", "of another collection"])
def test_a_damaged_file_is_not_used(
    store: GeARVectorStore, kept: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    content = bytearray(kept.read_bytes())
    if damage == "of another collection":
        write_raw(kept.parent, False)
    elif damage == "changed":
        content[len(content) // 2] ^= 1
        kept.write_bytes(content)
    else:
        damaged = {"cut": bytes(content[: len(content) // 2]), "empty": b"", "of another kind": b"{}" * 20}
        kept.write_bytes(damaged[damage])
    assert not check_answers(store, monkeypatch)
    store.clear()
    assert not kept.exists()


@pytest.mark.parametrize("number", range(KILLS))
def test_a_kill_leaves_no_file_or_a_right_one(
    store: GeARVectorStore, kept: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=write_and_close, args=(store.client.path, number, theirs))
    process.start()
    assert ours.recv() == "begin"
    time.sleep(random.Random(number).random() * 0.3)
    process.kill()
    process.join()
    check_answers(store, monkeypatch)
    store.repair()
    check_answers(store, monkeypatch)


def write_and_close(path: Path, seed: int, done: Connection) -> None:
    incidences._ASKED_FIRST, incidences._FEWEST = 0, 1
    draw, store = random.Random(seed), GeARVectorStore.from_path(path, embed_model=EMBED)
    done.send("begin")
    while True:
        store.add([make("p0", draw), make("p1", draw)])
        read(store).incident_flow([(["n0"], [])], [1])
        store.close()
        read(store).incident_flow([(["n0"], [])], [1])
