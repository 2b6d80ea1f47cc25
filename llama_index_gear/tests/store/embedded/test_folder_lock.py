"""The lock of a store's folder: processes take turns, each from before it reads files until it has written them."""

from __future__ import annotations

import ctypes
import errno
import gc
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import pytest
from qdrant_client.http import models

from llama_index_gear.errors import StoreError, StoreLockedError
from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.store.embedded import folder_lock
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.store.embedded.folder_lock import FolderLock
from llama_index_gear.store.embedded.shards import OpenShards
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import passage
from llama_index_gear.triple import Triple

fcntl = pytest.importorskip("fcntl", reason="Windows locks no folders")
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

EMBED = WordEmbedding(16)
PROCESSES = multiprocessing.get_context("fork")
NAME = "points"
TURNS = 12
LIMIT = 120  # seconds; a process that takes so long hangs


def create(client: EdgeClient) -> bool:
    return client.create_collection(NAME, models.VectorParams(size=2, distance=models.Distance.COSINE))


def is_locked(folder: Path) -> bool:
    """Return True if somebody has the folder locked: seen from an open file of its own, as another process has it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextmanager
def lock_outside(place: Path) -> Iterator[None]:
    """Lock a folder or file as another process does."""
    descriptor = os.open(place, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield
    os.close(descriptor)


def list_files(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def take_turns(folder: Path, writer: int, sent: Connection) -> None:
    """Open the store, add a passage and close it, again and again; a store that is locked for too long is an error."""
    try:
        for turn in range(TURNS):
            node = passage(f"{writer}-{turn}", f"turn {turn} " * (turn + 1), [("A", "is", "B")], embed_model=EMBED)
            with GeARVectorStore.from_path(folder, embed_model=EMBED) as store:
                store.add([node])
                store.get_nodes()
        sent.send("done")
    except BaseException as error:  # noqa: BLE001 - the parent tells
        sent.send(repr(error))


def hold(folder: Path, sent: Connection) -> None:
    """Open the store and keep it open."""
    client = EdgeClient(folder)
    client.count(NAME)
    sent.send("open")
    time.sleep(LIMIT)
    client.close()


def start(work: Any, *arguments: Any) -> tuple[Any, Connection]:
    received, sent = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=work, args=(*arguments, sent))
    process.start()
    sent.close()
    return process, received


def test_processes_that_take_turns_wait_for_each_other_and_tear_nothing(tmp_path: Path) -> None:
    workers = [start(take_turns, tmp_path, writer) for writer in (1, 2)]
    for process, received in workers:
        assert received.poll(LIMIT) and received.recv() == "done"
        process.join()
    with GeARVectorStore.from_path(tmp_path, embed_model=EMBED) as store:
        assert {node.node_id for node in store.get_nodes()} == {f"{w}-{t}" for w in (1, 2) for t in range(TURNS)}
        assert store.check().ok


def test_a_folder_is_locked_before_a_shard_is_loaded_and_until_it_is_closed(tmp_path: Path) -> None:
    """The engine's own lock begins after the files are read and ends before they are written."""
    seen: list[tuple[str, bool]] = []

    def look(_frame: object, event: str, called: Any) -> None:
        if event.startswith("c_") and "EdgeShard" in getattr(called, "__qualname__", ""):
            seen.append((f"{event} {called.__name__}", is_locked(tmp_path)))

    client = EdgeClient(tmp_path)
    sys.setprofile(look)
    try:
        create(client)
        assert is_locked(tmp_path)
        client.close()
        client.count(NAME)
        client.delete_collection(NAME)
    finally:
        sys.setprofile(None)
    assert {called for called, _ in seen} >= {"c_call load", "c_return load", "c_call close", "c_return close"}
    assert all(locked for _, locked in seen) and not is_locked(tmp_path)
    assert os.listdir(tmp_path) == []


def test_what_another_process_has_locked_is_not_even_read(tmp_path: Path) -> None:
    with EdgeClient(tmp_path) as client:
        create(client)
    before = list_files(tmp_path)
    calls = (
        lambda: client.collection_exists(NAME),
        lambda: client.count(NAME),
        lambda: client.delete_collection(NAME),
        lambda: client.create_collection("other", models.VectorParams(size=2, distance=models.Distance.COSINE)),
    )
    with lock_outside(tmp_path):
        for call in calls:
            with pytest.raises(StoreLockedError, match=r"is open in another process or client .*waited for 2 s"):
                call()
        queue = tmp_path / ".queue"
        assert list_files(tmp_path) == {**before, queue: queue.stat().st_mtime_ns}
    assert client.count(NAME).count == 0
    client.close()


def test_the_error_names_the_process_and_its_death_frees_the_folder(tmp_path: Path) -> None:
    with EdgeClient(tmp_path) as client:
        create(client)
    process, received = start(hold, tmp_path)
    assert received.poll(LIMIT) and received.recv() == "open"
    with pytest.raises(StoreLockedError) as refused:
        client.count(NAME)
    assert not Path("/proc/locks").exists() or f"process {process.pid}, " in str(refused.value)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert client.count(NAME).count == 0  # though the error, with its traceback, still stands
    client.close()


def test_a_child_neither_holds_nor_frees_its_parent_s_lock(tmp_path: Path) -> None:
    client = EdgeClient(tmp_path)
    create(client)
    begun, begin = os.pipe()
    end, ended = os.pipe()
    if (child := os.fork()) == 0:
        os.close(ended)
        client.close()
        del client
        os.write(begin, b"x")
        os.read(end, 1)
        os._exit(0)
    os.read(begun, 1)
    assert is_locked(tmp_path)  # the child has closed its client
    client.close()
    assert not is_locked(tmp_path)  # the child lives
    create_again = client.count(NAME)
    os.close(ended)
    os.waitpid(child, 0)
    assert create_again.count == 0 and is_locked(tmp_path)  # the child has ended
    client.close()
    for descriptor in (begun, begin, end):
        os.close(descriptor)


def test_a_child_that_outlives_its_parent_does_not_hold_the_folder(tmp_path: Path) -> None:
    end, ended = os.pipe()
    if (parent := os.fork()) == 0:
        lock = folder_lock.lock_folder(tmp_path)
        if os.fork() == 0:
            os.close(ended)
            os.read(end, 1)
        os._exit(lock is None)
    assert os.waitpid(parent, 0)[1] == 0 and not is_locked(tmp_path)
    os.close(ended)
    os.close(end)


def test_a_child_that_python_does_not_know_of_does_not_hold_the_folder(tmp_path: Path) -> None:
    """So `subprocess` makes them: until they are another program, they have what their parent has open.

    Their parent is a fork: it has no other thread. A child that Python does not know of may wait for ever for the
    interpreter's lock if another thread asked for it.
    """
    if (parent := os.fork()) == 0:
        is_well = False
        try:
            lock = folder_lock.lock_folder(tmp_path)
            end, ended = os.pipe()
            if (child := ctypes.PyDLL(None).fork()) == 0:
                os.close(ended)
                os.read(end, 1)
                os._exit(0)
            is_well = is_locked(tmp_path)
            del lock
            is_well = is_well and not is_locked(tmp_path)
            os.close(ended)
            os.waitpid(child, 0)
        finally:
            os._exit(not is_well)
    assert os.waitpid(parent, 0)[1] == 0


def test_a_store_that_is_open_at_the_exit_is_closed_before_its_folder_is_free(tmp_path: Path) -> None:
    script = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from {Path(__file__).stem} import create, is_locked
from llama_index_gear.store.embedded.client import EdgeClient

def look(_frame, event, called):
    if event == "c_return" and getattr(called, "__qualname__", "") == "EdgeShard.close":
        os.write(1, str(is_locked(Path({str(tmp_path)!r}))).encode())

client = EdgeClient({str(tmp_path)!r})
create(client)
sys.setprofile(look)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=LIMIT)
    assert done.stdout == "True" and not is_locked(tmp_path)


def test_clients_of_a_process_share_a_folder_but_no_collection(tmp_path: Path) -> None:
    store = GeARVectorStore.from_path(tmp_path, embed_model=EMBED)
    store.add([passage("p", "x", [("A", "is", "B")], embed_model=EMBED)])
    graph = ExternalTripleStore.from_path(tmp_path, embed_model=EMBED)
    graph.load([Triple("A", "is", "B")])
    other = EdgeClient(tmp_path)
    with pytest.raises(StoreLockedError, match="another client of this process"):
        other.count("graph")
    store.close()
    assert is_locked(tmp_path)
    graph.close()
    assert not is_locked(tmp_path)
    assert other.count("graph").count == 1
    other.close()


def wait_until_awaited(folder: Path) -> None:
    """Return once another process waits for the folder."""
    end = time.monotonic() + LIMIT
    while not folder_lock.is_awaited(folder):
        assert time.monotonic() < end
        time.sleep(0.01)


def lock_in_child(folder: Path, mark: Path) -> int:
    """Fork a child that waits for the folder, makes a file in it, and then ends; return the child's id."""
    if (child := os.fork()) == 0:
        lock = folder_lock.lock_folder(folder, LIMIT)
        mark.touch()
        os._exit(0 if lock is not None and lock.place[1] == folder.stat().st_ino else 1)
    return child


def test_who_waits_goes_before_one_that_comes_again(tmp_path: Path) -> None:
    """A process that opens a store again and again, without a pause, leaves turns to others."""
    for turn in range(5):
        lock = folder_lock.lock_folder(tmp_path)
        child = lock_in_child(tmp_path, tmp_path / f"{turn}")
        wait_until_awaited(tmp_path)
        del lock
        lock = folder_lock.lock_folder(tmp_path, LIMIT)
        assert (tmp_path / f"{turn}").exists()
        assert os.waitpid(child, 0)[1] == 0
        del lock


def test_who_waits_for_a_folder_that_is_replaced_gets_the_new_one(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    lock = folder_lock.lock_folder(folder, make=True)
    child = lock_in_child(folder, folder / "mark")
    wait_until_awaited(folder)
    shutil.rmtree(folder)
    folder.mkdir()
    del lock
    assert os.waitpid(child, 0)[1] == 0 and (folder / "mark").exists()


def test_a_folder_that_is_replaced_as_it_is_locked_is_not_taken_for_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, flock = tmp_path / "store", fcntl.flock
    folder.mkdir()

    def lock_late(descriptor: int, operation: int) -> None:
        monkeypatch.undo()
        folder.rename(tmp_path / "earlier")
        folder.mkdir()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    lock = folder_lock.lock_folder(folder)
    assert lock is not None and is_locked(folder) and not is_locked(tmp_path / "earlier")


def test_who_waits_to_fill_a_store_that_is_given_up_locks_the_file_that_stands_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run before has deleted the file of its lock: who has locked that one keeps nobody out."""
    flock = fcntl.flock

    def lock_late(descriptor: int, operation: int) -> None:
        monkeypatch.undo()
        folder_lock.drop_filler(tmp_path)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    lock = folder_lock.lock_filler(tmp_path, LIMIT)
    assert lock is not None and lock.is_in_place
    with pytest.raises(StoreLockedError):
        folder_lock.lock_filler(tmp_path, 0)


def test_a_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StoreError, match="cannot be locked .No locks available.*local disk, or a Qdrant server"):
        create(EdgeClient(tmp_path))
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []


class Interrupted(OpenShards):
    """Shards whose caller is interrupted as soon as it has the folder."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if isinstance(value, FolderLock):
            raise KeyboardInterrupt


def test_an_interrupt_leaves_no_folder_locked(tmp_path: Path) -> None:
    shards = Interrupted(tmp_path)
    with pytest.raises(KeyboardInterrupt), shards.hold():
        raise AssertionError("the interrupt comes before")
    gc.collect()
    assert not is_locked(tmp_path)


def test_a_close_that_fails_leaves_neither_other_shards_open_nor_the_folder_locked(tmp_path: Path) -> None:
    class Broken:
        def close(self) -> None:
            raise OSError("no space left on device")

    for number in range(3):
        client = EdgeClient(tmp_path)
        for name in ("one", "two", "three"):
            client.create_collection(name, {"dense": models.VectorParams(size=2, distance=models.Distance.COSINE)})
        shards = client._shards._open_shards
        name = list(shards)[number]
        shards[name].shard.close()
        shards[name] = shards[name]._replace(shard=cast("Any", Broken()))
        with pytest.raises(OSError, match="no space left"):
            client.close()
        assert not client._shards._open_shards and not is_locked(tmp_path)
        for name in ("one", "two", "three"):
            client.delete_collection(name)
        client.close()
