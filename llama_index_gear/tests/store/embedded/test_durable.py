"""A power cut leaves whole what takes its place by a rename: it is on the disk by then, and its name soon after."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from qdrant_client.http import models

from llama_index_gear.cli.store_note import StoreNote, read_note, write_note
from llama_index_gear.errors import StoreError, StoreLockedError
from llama_index_gear.ingestion.regular_files import NOTE
from llama_index_gear.store.embedded import folder as edge_folder
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.store.embedded.models import to_config
from llama_index_gear.store.embedded.packing import write_anew

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows syncs no folders")
VECTORS = {"v": models.VectorParams(size=4, distance=models.Distance.COSINE)}


class Disk:
    """The disk after a power cut: files and folders as they were when they were last synced."""

    def __init__(self) -> None:
        self.synced: dict[int, int] = {}
        self.renamed: list[Path] = []
        self.awaited: dict[int, Path] = {}  # folders with a new name that is not on the disk

    def sync(self, status: os.stat_result) -> None:
        self.synced[status.st_ino] = status.st_mtime_ns
        self.awaited.pop(status.st_ino, None)

    def rename(self, source: Path, target: Path) -> None:
        if not target.name.startswith("."):  # a hidden name is no place
            lacking = [path for path in (source, *source.rglob("*")) if not self.has(path)]
            assert not lacking, f"{target.name} takes its place without {lacking}"
            self.renamed.append(target)
            self.awaited[target.parent.stat().st_ino] = target

    def has(self, path: Path) -> bool:
        status = path.stat()
        return self.synced.get(status.st_ino) == status.st_mtime_ns


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """Watch what is synced and renamed; at the end, the names must be on the disk."""
    disk, sync = Disk(), os.fsync

    def fsync(descriptor: int) -> None:
        sync(descriptor)
        disk.sync(os.fstat(descriptor))

    def watch(name: str) -> Callable[..., None]:
        move = getattr(os, name)

        def call(source: Any, target: Any, **options: Any) -> None:
            disk.rename(Path(source), Path(target))
            move(source, target, **options)

        return call

    monkeypatch.setattr(os, "fsync", fsync)
    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, watch(name))
    yield disk
    assert disk.renamed and not disk.awaited


def test_a_note_is_on_the_disk_before_it_takes_its_place(disk: Disk, tmp_path: Path) -> None:
    note = StoreNote(embed_model="m", files="f", collection="c", llm="l", probe="p", limit=1)
    write_note(tmp_path, note)
    assert disk.renamed == [tmp_path / NOTE] and os.listdir(tmp_path) == [NOTE]


def test_a_new_collection_and_its_metadata_are_on_the_disk(disk: Disk, tmp_path: Path) -> None:
    client = EdgeClient(tmp_path / "store")
    client.create_collection("c", VECTORS, metadata={"a": 1})
    client.update_collection("c", metadata={"a": 2})
    client.close()
    assert {"c", "collection_metadata.json"} <= {path.name for path in disk.renamed}


def test_a_collection_that_is_written_anew_is_on_the_disk_before_the_old_one_goes(disk: Disk, tmp_path: Path) -> None:
    client = EdgeClient(tmp_path / "store")
    client.create_collection("c", VECTORS)
    client.upsert("c", [models.PointStruct(id=1, vector={"v": [1.0, 0, 0, 0]}, payload={"a": "b"})])
    folder = tmp_path / "store" / "c"
    config = to_config(edge_folder.read_config(folder))
    assert config is not None
    with client._shards.hold():
        shard = client._shard("c")
        write_anew(folder, config, lambda: shard, lambda: client._shards.close("c"))
    assert disk.renamed[-1] == folder
    assert client.count("c").count == 1
    client.close()


def refuse(monkeypatch: pytest.MonkeyPatch, code: int, is_refused: Callable[[os.stat_result], bool]) -> None:
    """Let the system refuse to sync what is named so."""
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        if is_refused(os.fstat(descriptor)):
            raise OSError(code, os.strerror(code))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
@pytest.mark.parametrize("only_folders", [True, False])
def test_a_file_system_that_cannot_sync_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, only_folders: bool
) -> None:
    refuse(monkeypatch, code, lambda status: not only_folders or stat.S_ISDIR(status.st_mode))
    note = StoreNote(embed_model="m")
    write_note(tmp_path, note)
    assert read_note(tmp_path) == note
    client = EdgeClient(tmp_path / "store")
    client.create_collection("c", VECTORS, metadata={"a": 1})
    client.close()
    assert EdgeClient(tmp_path / "store").collection_exists("c")


@pytest.mark.parametrize("only_place", [True, False])
def test_a_disk_that_fails_is_neither_passed_over_nor_called_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only_place: bool
) -> None:
    """It fails when the collection is written, or only when its name is."""
    client = EdgeClient(tmp_path / "store")
    client.create_collection("first", VECTORS)
    place = (tmp_path / "store").stat().st_ino
    refuse(monkeypatch, errno.EIO, lambda status: not only_place or status.st_ino == place)
    with pytest.raises(StoreError, match=os.strerror(errno.EIO)) as caught:
        client.create_collection("c", VECTORS)
    assert not isinstance(caught.value, StoreLockedError)
    client.close()
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        write_note(tmp_path / "store", StoreNote(embed_model="m"))
