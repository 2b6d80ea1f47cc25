"""Calls that end at each of their writes, as if killed there, and `finish_writes` in another process afterwards.

Each client stands for a process: its store knows nothing of the calls of another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from qdrant_client import QdrantClient

from llama_index_gear import GeARVectorStore
from llama_index_gear.extraction.llm_extractor import GeARTripleExtractor
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.store.schema import UNFINISHED, point_id_of
from llama_index_gear.testing import ScriptedLLM, WordEmbedding
from llama_index_gear.tests.store_contract import Contents, contents, make_process, passage

EMBED = WordEmbedding(16)


class Killed(BaseException):
    """The end of a process: nothing catches it."""


class DyingClient(EdgeClient):
    """An embedded engine whose process dies before or after its nth write."""

    def __init__(self, path: Path, last: int, *, is_done: bool) -> None:
        super().__init__(path)
        self._left, self._is_done = last, is_done

    def _write_or_die(self, work: Callable[[], Any]) -> Any:
        self._left -= 1
        if self._left <= 0 and not self._is_done:
            raise Killed
        result = work()
        if self._left <= 0:
            raise Killed
        return result

    def _update(self, *arguments: Any) -> None:
        self._write_or_die(lambda: super(DyingClient, self)._update(*arguments))

    def delete_collection(self, *arguments: Any, **options: Any) -> bool:
        return bool(self._write_or_die(lambda: super(DyingClient, self).delete_collection(*arguments, **options)))


def make_node(name: str, version: str, *objects: str, **metadata: Any) -> BaseNode:
    facts = [("Ann", "knows", given) for given in objects]
    metadata = {"version": version, **metadata}
    return passage(name, f"{name} {version}", facts, document=f"d-{name}", embed_model=EMBED, metadata=metadata)


OLD = [
    make_node("p", "old", "Bea", "Cleo"),
    make_node("q", "old", "Bea", "Dora"),
    make_node("bare", "old"),
    make_node("beside", "old", "Beatrice Kern"),
]
NEW = [make_node("p", "new", "Bea", "Eve"), make_node("q", "new", "Bea", "Dora"), make_node("r", "new", "Eve")]
WITHOUT = [make_node("p", "new"), make_node("bare", "new", "Eve")]
OF_OLD = MetadataFilters(filters=[MetadataFilter(key="version", value="old")])


def open_store(folder: Path, *, tenant_field: str | None = None) -> GeARVectorStore:
    return GeARVectorStore.from_path(folder, embed_model=EMBED, tenant_field=tenant_field)


def copy_new(target: GeARVectorStore) -> None:
    source = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=EMBED)
    source.add(NEW)
    source.copy_to(target)


CALLS: dict[str, Callable[[GeARVectorStore], object]] = {
    "edit": lambda store: store.add(NEW),
    "edit to passages without triples, and with some": lambda store: store.add(WITHOUT),
    "delete": lambda store: store.delete("d-p"),
    "delete_nodes": lambda store: store.delete_nodes(filters=OF_OLD),
    "copy_to": copy_new,
    "clear": lambda store: store.clear(),
}


def fill(folder: Path, *, links: bool = True) -> Contents:
    """Store passages, some of whose names are linked."""
    with open_store(folder) as store:
        store.add(OLD)
        if links:
            store.link_aliases([("Bea", "Beatrice Kern")])
        return read_whole(store)


def cut(folder: Path, call: Callable[[GeARVectorStore], object], last: int, *, is_done: bool) -> bool:
    """Make a call that dies before or after its nth write; return False if it ends before."""
    client = DyingClient(folder, last, is_done=is_done)
    try:
        call(GeARVectorStore(client=client, embed_model=EMBED))
    except Killed:
        return True
    finally:
        client.close()
    return False


def list_marked(store: GeARVectorStore) -> list[str]:
    """List the passages with a triple that says that a call is at work on it."""
    if not store.client.collection_exists(store.triple_collection_name):
        return []
    points, _ = store.client.scroll(store.triple_collection_name, limit=1000)
    return sorted({point.payload["passage_id"] for point in points if UNFINISHED in point.payload})


def read_whole(store: GeARVectorStore) -> Contents:
    """Return what a store holds, which is in order; no triple says that a call is at work on it."""
    report = store.check()
    assert report.ok, report
    assert not list_marked(store)
    return contents(store)


def split(held: Contents) -> dict[str, list[Any]]:
    """Return what a store holds passage by passage, by the passage's point."""
    parts: dict[str, list[Any]] = {}
    for name in sorted(held):
        for point_id in sorted(held[name]):
            payload = held[name][point_id][0]
            owner = point_id_of(payload["passage_id"]) if "passage_id" in payload else point_id
            parts.setdefault(owner, []).append(held[name][point_id])
    return parts


@pytest.mark.parametrize("is_done", [False, True], ids=["before a write", "after a write"])
@pytest.mark.parametrize("name", CALLS)
def test_what_was_cut_in_two_is_finished_or_undone(tmp_path: Path, name: str, is_done: bool) -> None:
    """Afterwards each passage is as before the call or as after it, with its triples. The call can be repeated."""
    links = name != "copy_to"  # it replaces triples as they are, without the links of the target
    before = split(fill(tmp_path / "whole", links=links))
    with open_store(tmp_path / "whole") as store:
        CALLS[name](store)
        expected = read_whole(store)
    after, last, met = split(expected), 1, 0
    while True:
        folder = tmp_path / str(last)
        fill(folder, links=links)
        if not cut(folder, CALLS[name], last, is_done=is_done):
            break
        with open_store(folder) as store:
            met += bool(store.check().orphaned or store.check().outdated)
            store.finish_writes()
            ended = split(read_whole(store))
            for owner in before.keys() | after.keys() | ended.keys():
                assert ended.get(owner) in (before.get(owner), after.get(owner)), f"write {last}"
            CALLS[name](store)
            assert split(read_whole(store)) == after, f"write {last}"
        last += 1
    assert met, "some end leaves something"


def test_a_copy_and_a_retry_of_what_failed_finish_it_first(tmp_path: Path) -> None:
    """Neither looks at the passage that is gone."""
    source = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=EMBED)
    source.add([make_node("r", "new", "Eve")])
    works: dict[str, Callable[[GeARVectorStore], object]] = {
        "copy_to": source.copy_to,
        "retry_failed": lambda store: GeARTripleExtractor(ScriptedLLM([])).retry_failed(store),
    }
    for name, work in works.items():
        fill(tmp_path / name, links=False)
        assert cut(tmp_path / name, CALLS["delete"], 2, is_done=True)
        with open_store(tmp_path / name) as store:
            assert store.check().orphaned == ("p",)
            work(store)
            read_whole(store)


def test_an_async_call_finishes_what_another_left(tmp_path: Path) -> None:
    fill(tmp_path)
    assert cut(tmp_path, CALLS["delete"], 2, is_done=True)
    with open_store(tmp_path) as store:
        assert store.check().orphaned == ("p",)
        asyncio.run(store.afinish_writes())
        read_whole(store)


def test_a_store_that_is_in_order_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[str]()
    with open_store(tmp_path / "s") as store:
        store.finish_writes()
        assert not (tmp_path / "s").exists()
        store.add(OLD)
        store.finish_writes()
        answer = store._connection.answer

        def count(call: Any) -> Any:
            calls.append(call.method)
            return answer(call)

        monkeypatch.setattr(store._connection, "answer", count)
        store.finish_writes()
        assert calls == ["scroll"]


def test_repair_finishes_too(tmp_path: Path) -> None:
    """A call that ended after its last deletion leaves only its marks, which are no fault."""
    last = 1
    fill(tmp_path / str(last))
    while cut(tmp_path / str(last), CALLS["edit"], last, is_done=True):
        with open_store(tmp_path / str(last)) as store:
            found, marked = store.check(), list_marked(store)
            assert store.repair().ok
            read_whole(store)
        if found.ok and marked:
            return
        last += 1
        fill(tmp_path / str(last))
    raise AssertionError("no end left marks alone")


def test_a_tenants_calls_are_left_to_that_tenant(tmp_path: Path) -> None:
    with open_store(tmp_path, tenant_field="team") as store:
        for team in ("red", "blue"):
            store.for_tenant(team).add([make_node(f"{team}-p", "old", "Bea", team=team)])
    for team in ("red", "blue"):
        client = DyingClient(tmp_path, 2, is_done=True)
        bound = GeARVectorStore(client=client, embed_model=EMBED, tenant_field="team").for_tenant(team)
        with pytest.raises(Killed):
            bound.delete(f"d-{team}-p")
        client.close()
    with open_store(tmp_path, tenant_field="team") as store:
        assert sorted(store.check().orphaned) == ["blue-p", "red-p"]
        store.for_tenant("red").finish_writes()
        assert store.check().orphaned == ("blue-p",)
        store.finish_writes()
        read_whole(store)


def test_a_call_of_this_process_that_is_under_way_is_left_alone() -> None:
    store = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=EMBED)
    store.add(OLD)
    flow = store._writes.add_flow(NEW)
    batch = next(flow)
    while not list_marked(store):
        batch = flow.send([store._connection.answer(request) for request in batch])
    store.finish_writes()
    assert list_marked(store) == ["p", "q", "r"]
    flow.close()  # the call ends early, by an error or a cancellation
    store.finish_writes()
    read_whole(store)
    assert [node.metadata["version"] for node in store.get_nodes(["p", "q", "r"])] == ["old", "old"]


def test_where_no_other_process_writes_one_triple_of_each_passage_is_marked(tmp_path: Path) -> None:
    """The engine stores a triple once more to take its mark off."""
    marked: dict[bool, list[str]] = {}
    for is_alone in (False, True):
        store = open_store(tmp_path) if is_alone else make_process(QdrantClient(":memory:"), EMBED)
        flow = store._writes.add_flow(NEW)
        batch = next(flow)
        while not list_marked(store):
            batch = flow.send([store._connection.answer(request) for request in batch])
        points, _ = store.client.scroll(store.triple_collection_name, limit=1000)
        marked[is_alone] = sorted(point.payload["passage_id"] for point in points if UNFINISHED in point.payload)
        flow.close()
        store.close()
    assert marked == {False: ["p", "p", "q", "q", "r"], True: ["p", "q", "r"]}


@pytest.mark.parametrize("is_late", [False, True])
def test_another_process_of_a_server_may_be_about_to_store_a_passage(
    monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """Its new triples are spared for ten minutes. All else that it left is finished at once."""
    client = QdrantClient(":memory:")

    def cut_at(flow: Any, is_there: Callable[[], bool]) -> None:
        batch, other = next(flow), make_process(client, EMBED)
        while not is_there():
            batch = flow.send([other._connection.answer(request) for request in batch])

    store = make_process(client, EMBED)
    store.add(OLD)
    dead = [make_process(client, EMBED), make_process(client, EMBED)]
    cut_at(dead[0]._writes.add_flow(NEW), lambda: bool(list_marked(store)))
    cut_at(dead[1]._deletes.delete_document_flow("d-beside"), lambda: not store.get_nodes(["beside"]))
    assert set(store.check().orphaned) == {"r", "beside"}
    if is_late:
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 601)
    store.finish_writes()
    report = store.check()
    assert report.orphaned == (() if is_late else ("r",)) and not report.outdated and not report.incomplete
    assert {node.metadata["version"] for node in store.get_nodes()} == {"old"}


@pytest.mark.parametrize("undo", [False, True])
def test_links_of_two_processes_of_a_server_at_once_are_whole(undo: bool) -> None:
    """At each moment of one call, another process links names of which this one has one too."""
    last = 0
    while True:
        client = QdrantClient(":memory:")
        one, other = (make_process(client, EMBED) for _ in range(2))
        facts = [(name, "met", f"friend of {name}") for name in ("Ann", "Bea", "Cleo", "Dora")]
        one.add([passage("p", "Text.", facts, embed_model=EMBED)])
        one.link_aliases([("Ann", "Dora")])
        pairs = [("Ann", "Bea")]
        flow = one._aliases.unlink_flow([("Ann", "Dora")]) if undo else one._aliases.link_flow(pairs)
        batch, moment = next(flow), 0
        try:
            while True:
                if moment == last:
                    linked = other.link_aliases([("Bea", "Cleo"), ("Ann", "Cleo")])
                    assert len(linked) == 2
                batch, moment = flow.send([one._connection.answer(request) for request in batch]), moment + 1
        except StopIteration as ended:
            assert [pair.keys for pair in ended.value] == [("ann", "dora") if undo else ("ann", "bea")]
        if moment < last:
            break
        assert one.check().ok, last
        keys = {pair.keys for pair in one.list_aliases()}
        assert keys == {("bea", "cleo"), ("ann", "cleo"), *([] if undo else [("ann", "dora"), ("ann", "bea")])}, last
        last += 1
    assert last > 5


@pytest.mark.parametrize("field", ["gear_write", "passage_id", "aliases"])
def test_a_damaged_triple_that_is_linked_stops_no_writer(field: str) -> None:
    """Nor does it beside other processes, where a writer reads the links and the names of writes together."""
    client = QdrantClient(":memory:")
    store = make_process(client, EMBED)
    facts = [("Ada", "met", "Bob"), ("Countess", "met", "Bob")]
    store.add([passage("p", "x", facts, embed_model=EMBED)])
    assert store.link_aliases([("Ada", "Countess")])
    points = client.scroll(store.triple_collection_name)[0]
    for damage in ([1], {"a": 1}, 5, None):
        payload = {field: [{"entity": damage, "alias": "ada"}] if field == "aliases" else damage}
        client.set_payload(store.triple_collection_name, payload, points=[point.id for point in points])
        store.add([passage("q", f"{damage}", facts[:1], embed_model=EMBED)])
        assert [node.get_content() for node in store.get_nodes(["q"])] == [str(damage)]
    assert store.repair().ok
