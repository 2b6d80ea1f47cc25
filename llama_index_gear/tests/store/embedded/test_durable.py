"""What takes its place by a rename is on the disk by then, and its name soon after: a power cut leaves it whole."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from qdrant_client.http import models

from llama_index_gear.cli.store_note import StoreNote, write_note
from llama_index_gear.errors import StoreError, StoreLockedError
from llama_index_gear.ingestion.regular_files import NOTE
from llama_index_gear.store.embedded import folder as edge_folder
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.store.embedded.models import to_config
from llama_index_gear.store.embedded.packing import write_anew

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows syncs no folders")
VECTORS = {"v": models.VectorParams(size=4, distance=models.Distance.COSINE)}
NOTE_OF_MODELS = StoreNote(embed_model="m", files="f", collection="c", llm="l", probe="p", limit=1)


class Disk:
    """What is on the disk, if the power is cut: files and folders as they were when they were last synced."""

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
    write_note(tmp_path, NOTE_OF_MODELS)
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


def fail(monkeypatch: pytest.MonkeyPatch, code: int, *, in_folder: Path | None = None) -> None:
    """Let each sync fail, or only those of a folder."""
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        if in_folder is None or os.path.samestat(os.fstat(descriptor), in_folder.stat()):
            raise OSError(code, os.strerror(code))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF])
def test_a_file_system_that_cannot_be_asked_to_write_out_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    """Some of a network or a virtual machine refuse it for folders, or at all."""
    fail(monkeypatch, code)
    write_note(tmp_path, NOTE_OF_MODELS)
    client = EdgeClient(tmp_path / "store")
    client.create_collection("c", VECTORS, metadata={"a": 1})
    assert client.count("c").count == 0 and {*os.listdir(tmp_path)} == {"store", NOTE}
    client.close()


def test_a_disk_that_fails_is_named_and_no_other_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    client = EdgeClient(tmp_path / "store")
    (tmp_path / "store").mkdir()
    fail(monkeypatch, errno.EIO, in_folder=tmp_path / "store")
    with pytest.raises(StoreError, match="Input/output error") as raised:
        client.create_collection("c", VECTORS)
    assert not isinstance(raised.value, StoreLockedError)
    monkeypatch.undo()
    assert client.collection_exists("c") and client.count("c").count == 0
    client.close()
