"""A dense vector takes no room before a point has it; a process may die at any moment of the step that makes it."""

import json
import os
import random
import shutil
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from qdrant_client.http import models

from llama_index_gear.errors import StoreError
from llama_index_gear.store.embedded import folder as edge_folder
from llama_index_gear.store.embedded.client import EdgeClient, compact
from llama_index_gear.store.embedded.folder import measure
from llama_index_gear.tests.processes import PROCESSES

NAME, SIZE, POINTS = "points", 64, 300
KILLS = int(os.environ.get("GEAR_KILLS", "4"))
VECTOR = [1.0] + [0.0] * (SIZE - 1)
WORDS = models.SparseVector(indices=[1, 2], values=[0.5, 0.25])
RECORD = "declared_vectors.json"


def make(path: Path, *, with_vectors: bool = False) -> None:
    """Make a collection of points without the vector "v", or with it."""
    with EdgeClient(path) as client:
        vectors = {"v": models.VectorParams(size=SIZE, distance=models.Distance.COSINE)}
        client.create_collection(NAME, vectors, {"s": models.SparseVectorParams()}, metadata={"owner": "me"})
        client.upsert(NAME, [point(number, with_vectors=with_vectors) for number in range(POINTS)])


def point(number: int, *, with_vectors: bool) -> models.PointStruct:
    vector: Any = {"s": WORDS, "v": VECTOR} if with_vectors else {"s": WORDS}
    return models.PointStruct(id=number, vector=vector, payload={"n": number})


def count(client: EdgeClient, *, with_vector: bool) -> int:
    condition: Any = [models.HasVectorCondition(has_vector="v")]
    match_ = models.Filter(must=condition) if with_vector else models.Filter(must_not=condition)
    return client.count(NAME, match_).count


def search(client: EdgeClient) -> list[int]:
    found = client.query_points(NAME, VECTOR, using="v", limit=POINTS).points
    return sorted(int(point.id) for point in found)


def check_whole(path: Path, *, given: int = 0) -> None:
    """Check that a collection opens with all its points, `given` of them with the vector at most, and one takes it."""
    with EdgeClient(path) as client:
        config: Any = client.get_collection(NAME).config
        assert config.params.vectors["v"].size == SIZE and config.metadata == {"owner": "me"}
        assert client.count(NAME).count == POINTS
        having = count(client, with_vector=True)
        assert having <= given and having + count(client, with_vector=False) == POINTS
        client.upsert(NAME, [point(7, with_vectors=True)])
    with EdgeClient(path) as client:
        assert 7 in search(client) and client.count(NAME).count == POINTS
        (read,) = client.retrieve(NAME, [7], with_vectors=["v"])
        assert read.vector == {"v": VECTOR} and read.payload == {"n": 7}
        assert not (path / NAME / RECORD).exists()
        assert client.delete_collection(NAME)


def test_it_takes_no_room(tmp_path: Path) -> None:
    make(tmp_path / "without")
    make(tmp_path / "with", with_vectors=True)
    sizes = [measure(tmp_path / name / NAME / "segments") for name in ("without", "with")]
    assert sizes[1] - sizes[0] > POINTS * SIZE * 4
    check_whole(tmp_path / "without")
    check_whole(tmp_path / "with", given=POINTS)


def test_nothing_is_found_by_it_and_everything_else_is(tmp_path: Path) -> None:
    make(tmp_path)
    with EdgeClient(tmp_path) as client:
        assert search(client) == []
        requests = [
            models.QueryRequest(query=VECTOR, using="v", limit=3, with_vector=["v"]),
            models.QueryRequest(query=WORDS, using="s", limit=3, with_vector=["v", "s"]),
            models.QueryRequest(limit=2, with_vector=["v"]),
            models.QueryRequest(
                query=WORDS,
                using="s",
                limit=3,
                prefetch=[models.Prefetch(query=VECTOR, using="v"), models.Prefetch(query=WORDS, using="s")],
            ),
            models.QueryRequest(query=WORDS, using="s", prefetch=models.Prefetch(query=VECTOR, using="v")),
        ]
        found: list[list[Any]] = [answer.points for answer in client.query_batch_points(NAME, requests)]
        assert list(map(len, found)) == [0, 3, 2, 3, 0]
        assert all(point.vector.keys() == {"s"} for point in found[1]) and not found[2][0].vector
        (read,) = client.retrieve(NAME, [3], with_vectors=["v"])
        scrolled: Any = client.scroll(NAME, with_vectors=["v", "s"])[0][0].vector
        assert not read.vector and scrolled.keys() == {"s"}
        assert (count(client, with_vector=True), count(client, with_vector=False)) == (0, POINTS)
        update = models.PointVectors(id=5, vector={"v": VECTOR})
        client.batch_update_points(
            NAME, [models.UpdateVectorsOperation(update_vectors=models.UpdateVectors(points=[update]))]
        )
        assert search(client) == [5]


def test_it_stays_declared_where_the_collection_is_written_anew(tmp_path: Path) -> None:
    make(tmp_path)
    with EdgeClient(tmp_path) as client:
        client.upsert(
            NAME, [models.PointStruct(id=n, vector={"s": WORDS}, payload={"x": "y" * 9_999}) for n in range(POINTS)]
        )
        client.upsert(NAME, [point(n, with_vectors=False) for n in range(POINTS)])
        assert compact(client, NAME) and search(client) == []
    check_whole(tmp_path)


def forget_config(folder: Path, before: Path) -> None:
    shutil.copy(before / "edge_config.json", folder)


def forget_segment(folder: Path, before: Path) -> None:
    forget_config(folder, before)
    (segment,) = (folder / "segments").iterdir()
    shutil.copy(before / "segments" / segment.name / "segment.json", segment)


def forget_storage(folder: Path, before: Path) -> None:
    forget_segment(folder, before)
    (segment,) = (folder / "segments").iterdir()
    shutil.rmtree(segment / "vector_storage-v")


@pytest.mark.parametrize("forget", [lambda *_: None, forget_config, forget_segment, forget_storage])
def test_a_step_that_ended_anywhere_is_completed(tmp_path: Path, forget: Callable[[Path, Path], None]) -> None:
    """The files are as a kill leaves them: the engine writes its storage, then its segment, then its configuration."""
    make(tmp_path / "before")
    shutil.copytree(tmp_path / "before", tmp_path / "killed")
    with EdgeClient(tmp_path / "killed") as client:
        client.upsert(NAME, [point(9, with_vectors=True)])
        client.delete(NAME, [9])
        client.upsert(NAME, [point(9, with_vectors=False)])
    folder, before = (tmp_path / name / NAME for name in ("killed", "before"))
    shutil.copy(before / RECORD, folder)
    forget(folder, before)
    check_whole(tmp_path / "killed")


def test_what_is_missing_later_is_damage(tmp_path: Path) -> None:
    make(tmp_path, with_vectors=True)
    (segment,) = (tmp_path / NAME / "segments").iterdir()
    shutil.rmtree(segment / "vector_storage-v")
    with EdgeClient(tmp_path) as client, pytest.raises(StoreError, match="has other vectors"):
        client.count(NAME)
    make(tmp_path / "other")
    (tmp_path / "other" / NAME / RECORD).write_text("[]")
    with (
        EdgeClient(tmp_path / "other") as client,
        pytest.raises(StoreError, match="declared_vectors.json is no object"),
    ):
        client.count(NAME)


def give_vectors(path: Path, pipe: Connection) -> None:
    with EdgeClient(path) as client:
        client.count(NAME)
        pipe.send("open")
        client.upsert(NAME, [point(number, with_vectors=True) for number in range(20)])
        pipe.send("done")
        time.sleep(60)


@pytest.mark.parametrize("kill", range(KILLS))
def test_a_kill_in_this_moment_costs_nothing(tmp_path: Path, kill: int) -> None:
    make(tmp_path)
    here, there = PROCESSES.Pipe()
    process = PROCESSES.Process(target=give_vectors, args=(tmp_path, there))
    process.start()
    assert here.recv() == "open"
    time.sleep(random.Random(kill).random() * 0.01)
    process.kill()
    process.join()
    check_whole(tmp_path, given=20)


def test_the_record_is_of_what_was_declared(tmp_path: Path) -> None:
    make(tmp_path)
    record = json.loads((tmp_path / NAME / RECORD).read_text())
    assert record == {"v": {"size": SIZE, "distance": "Cosine"}}


@pytest.mark.parametrize("step", ["read_config", "write_declared"])
def test_a_step_that_fails_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Before the engine is told, and after it was told and the record could not be removed."""
    make(tmp_path)

    def fail(*_arguments: object) -> None:
        raise OSError("no")

    with EdgeClient(tmp_path) as client:
        client.count(NAME)
        with monkeypatch.context() as patched, pytest.raises(StoreError, match="cannot use"):
            patched.setattr(edge_folder, step, fail)
            client.upsert(NAME, [point(3, with_vectors=True)])
        assert count(client, with_vector=True) == 0 and (tmp_path / NAME / RECORD).exists()
    check_whole(tmp_path)


def test_room_for_a_vector_in_each_point_is_looked_for_before_the_first_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path)
    free = edge_folder.RESERVE + POINTS * SIZE * 2  # half of it
    with EdgeClient(tmp_path) as client:
        client.count(NAME)
        with monkeypatch.context() as patched:
            patched.setattr(edge_folder, "free_space", lambda folder: free)
            patched.setattr(edge_folder, "PLENTY", free)  # enough for a batch
            client.upsert(NAME, [point(3, with_vectors=False)])
            with pytest.raises(StoreError, match="make room"):
                client.upsert(NAME, [point(3, with_vectors=True)])
        assert search(client) == [] and (tmp_path / NAME / RECORD).exists()
        client.upsert(NAME, [point(3, with_vectors=True)])
        with monkeypatch.context() as patched:
            patched.setattr(edge_folder, "free_space", lambda folder: free)
            client.upsert(NAME, [point(4, with_vectors=True)])
        assert search(client) == [3, 4]
    check_whole(tmp_path, given=2)


def test_a_collection_goes_with_its_record(tmp_path: Path) -> None:
    make(tmp_path)
    with EdgeClient(tmp_path) as client:
        assert client.delete_collection(NAME) and not (tmp_path / NAME).exists()
