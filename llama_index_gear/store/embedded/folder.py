"""The folder of a collection of the embedded engine, which is whole or absent.

A collection is made under a hidden name beside its place, then renamed into its place. To be deleted, it is first
renamed to a hidden name. One that is written anew first takes the place of the old one, which is then deleted. So a
process that is killed, or a power cut, leaves a whole collection or none, and hidden folders that a later call removes,
or puts back.
Files that the engine did not make are never removed.

The engine keeps room for a dense vector in each point, also in those that have none. So it is told of a dense vector
with the first point that has one. Until then a file beside its own says what was declared. While the file is there, no
point has the vector: whatever a killed process left of it is no damage, and the engine completes it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

from llama_index_gear.errors import StoreError, StoreLockedError
from llama_index_gear.store.embedded.durable import sync_all, sync_names, write_whole

_CONFIG, _SEGMENTS, LOG = "edge_config.json", "segments", "wal"
_PARTS = (_CONFIG, _SEGMENTS, LOG)
_METADATA = "collection_metadata.json"  # ours: the engine keeps none
_DECLARED = "declared_vectors.json"  # ours: dense vectors that no point has had yet
_KEPT = "kept_triples.npz"  # ours: what graph questions ask for, see `store.embedded.incidences`
_PACKING = "temp_segments"  # the engine's, empty but while it packs
_OWN = (*_PARTS, _METADATA, _DECLARED, _KEPT, _PACKING)
_KINDS = ("vectors", "sparse_vectors")
_SEGMENT_PARTS = (
    "segment.json",
    "version.info",
    "payload_storage",
)  # without one the engine drops the segment, unasked
_IDS, _VERSIONS = "mutable_id_tracker.mappings", "mutable_id_tracker.versions"
_PACKED_IDS = "id_tracker.versions"
_VERSION = 8  # bytes of a point in that file
_BLOCK = 2**16  # bytes of a file
_WRITING = ".atomicwrite"  # prefix of the engine's unfinished files
_UNFINISHED, _DELETED, _REPLACED = "unfinished", "deleted", "replaced"
_MEBIBYTE = 2**20
RESERVE = 128 * _MEBIBYTE
"""Free bytes of the disk that a call needs to open or write. With 76 MiB, opening a store was killed."""

PLENTY = 2**30
"""Free bytes of the disk that are enough for any batch."""

Place = tuple[int, int]
"""The identity of a folder, whatever takes its path later: device and inode."""


def holds_collection(folder: Path) -> bool:
    """Return True if the folder holds a collection; an absent or empty folder holds none.

    Raises:
        StoreError: the folder holds something else, or a collection that lacks a part.

    """
    try:
        with raise_store_errors(folder):
            names = os.listdir(folder)
            if names:
                _check_whole(folder)
    except StoreError:
        if os.path.lexists(folder):
            raise
        return False  # not there, or deleted just now
    return bool(names)


def read_config(folder: Path) -> dict[str, Any]:
    """Read the engine's configuration of the vectors.

    Raises:
        StoreError: the configuration cannot be read.

    """
    try:
        config = json.loads((folder / _CONFIG).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise _make_damage_error(folder, f"{_CONFIG} cannot be read ({error})") from error
    if not isinstance(config, dict) or not all(isinstance(config.get(kind, {}), dict) for kind in _KINDS):
        raise _make_damage_error(folder, f"{_CONFIG} names no vectors")
    return config


def list_with_idf(folder: Path) -> frozenset[str]:
    """List the sparse vectors of a collection whose words are weighed by their frequency.

    Raises:
        StoreError: the configuration cannot be read.

    """
    vectors = read_config(folder).get("sparse_vectors", {})
    return frozenset(name for name, vector in vectors.items() if isinstance(vector, dict) and vector.get("modifier"))


def read_metadata(folder: Path) -> dict[str, Any] | None:
    """Read the collection's metadata; None if it was made without.

    Raises:
        StoreError: they cannot be read.

    """
    return _read_object(folder, _METADATA)


def write_metadata(folder: Path, metadata: Mapping[str, Any]) -> None:
    """Write the metadata of a collection, in one step."""
    _write_object(folder, _METADATA, metadata)


def read_declared(folder: Path) -> dict[str, Any]:
    """Read the dense vectors that no point has had yet: name → its size and distance, as in the configuration.

    Raises:
        StoreError: they cannot be read.

    """
    return _read_object(folder, _DECLARED) or {}


def write_declared(folder: Path, vectors: Mapping[str, Any]) -> None:
    """Write which dense vectors no point has had yet, in one step."""
    if vectors:
        _write_object(folder, _DECLARED, vectors)
    else:
        (folder / _DECLARED).unlink(missing_ok=True)


def get_kept(folder: Path) -> Path:
    """Return the path of the file that keeps a collection's triples as arrays, if there is one."""
    return folder / _KEPT


def write_kept(folder: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write that file, in one step; leave it out if the disk fails."""
    with suppress(OSError):
        write_whole(folder / _KEPT, write, folder / f"{_WRITING}{_KEPT}")


def read_state(folder: Path) -> bytes:
    """Return a digest of what was written into a collection: each write changes the end of its log.

    Opening it, and closing it after `flush`, change nothing of this.
    """
    digest = sha256()
    with raise_store_errors(folder):
        for file in sorted([*folder.glob(f"{_SEGMENTS}/*/segment.json"), *(folder / LOG).iterdir()]):
            digest.update(f"{file.relative_to(folder)} {file.stat().st_size}\n".encode())
            if not file.name.startswith("closed-"):
                digest.update(file.read_bytes())
    return digest.digest()


def _read_object(folder: Path, name: str) -> dict[str, Any] | None:
    try:
        value = json.loads((folder / name).read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _make_damage_error(folder, f"{name} cannot be read ({error})") from error
    if not isinstance(value, dict):
        raise _make_damage_error(folder, f"{name} is no object")
    return value


def _write_object(folder: Path, name: str, value: Mapping[str, Any]) -> None:
    content = json.dumps(value).encode()
    write_whole(folder / name, lambda file: file.write(content), folder / f"{_WRITING}{name}")


def _check_parts(folder: Path) -> None:
    for part in _PARTS:
        if not os.path.exists(os.path.join(folder, part)):  # checked at each call: `Path` takes four times as long
            raise _make_damage_error(folder, f"{part} is missing")


def _check_whole(folder: Path) -> None:
    _check_parts(folder)
    config = read_config(folder)
    vectors = sum(len(config.get(kind, {})) for kind in _KINDS)
    unfinished = read_declared(folder).keys() - config.get("vectors", {}).keys()
    segments = [entry for entry in (folder / _SEGMENTS).iterdir() if entry.is_dir() and "." not in entry.name]
    if not segments:
        raise _make_damage_error(folder, f"{_SEGMENTS} is empty")
    for segment in segments:
        names = set(os.listdir(segment))
        missing = [part for part in _SEGMENT_PARTS if part not in names]
        missing += [_IDS] if _IDS not in names and _VERSIONS in names else []  # the ids are written first
        if missing:
            raise _make_damage_error(folder, f"{_SEGMENTS}/{segment.name}/{missing[0]} is missing")
        if not 0 <= sum(name.startswith("vector_storage") for name in names) - vectors <= len(unfinished):
            raise _make_damage_error(folder, f"{_SEGMENTS}/{segment.name} has other vectors than {_CONFIG}")
    if not any((folder / LOG).iterdir()):
        raise _make_damage_error(folder, f"{LOG} is empty")


def _make_damage_error(folder: Path, fault: str) -> StoreError:
    """Make the error for a folder that is no whole collection."""
    return StoreError(
        f"{folder} is not a whole collection of the embedded engine: {fault}. Restore the folder from a copy, or "
        "choose another folder or collection_name; nothing in it was changed"
    )


def get_place(folder: Path) -> Place | None:
    """Return the identity of the collection in this folder; None if there is none.

    It is that of its log's folder: the engine holds it open, so no other folder gets its inode meanwhile.
    """
    try:
        status = os.stat(os.path.join(folder, LOG))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def check_in_place(folder: Path, place: Place | None) -> None:
    """Refuse a folder that is not the one that was opened.

    Raises:
        StoreError: it was moved, deleted or replaced, or lost a part.

    """
    with raise_store_errors(folder):
        if get_place(folder) != place:
            raise StoreError(
                f"{folder} was moved, deleted or replaced while the store was open: call close(), then open the folder "
                "that you mean"
            )
        _check_parts(folder)


def check_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written: the engine writes even when it reads.

    Raises:
        StoreError: it is read-only.

    """
    if not os.access(folder, os.W_OK):
        raise StoreError(
            f"{folder} is read-only, and the embedded engine writes even when it reads: make it writable for this "
            "user, or copy it to where it is"
        )


def free_space(folder: Path) -> int:
    """Return the number of bytes that this user may still write there."""
    return shutil.disk_usage(folder).free


def check_room(folder: Path, size: Callable[[], int] = int, storage: int = 0) -> None:
    """Refuse to write on a nearly full disk, where a signal of the engine's memory map would end the process.

    Args:
        folder: a folder on that disk.
        size: counts the bytes that will be written, besides the `RESERVE`; called only if the disk is short of room.
        storage: bytes that will be taken at once for what a collection has. Default 0.

    Raises:
        StoreError: there is too little room.

    """
    with raise_store_errors(folder):
        free = free_space(folder)
    if free - storage < PLENTY and free < (needed := RESERVE + storage + size()):
        raise StoreError(
            f"the disk of {folder} has {free // _MEBIBYTE} MiB free, and this call needs "
            f"{-(-needed // _MEBIBYTE)} MiB: make room, then repeat it"
        )


def make(folder: Path, build: Callable[[str], object]) -> None:
    """Make a collection in its place.

    Args:
        folder: place of the collection; absent, or an empty folder.
        build: makes the collection in an empty folder, whose path it gets, and closes it.

    Raises:
        StoreError: the disk is full, or the folder read-only.
        StoreLockedError: another process or client makes the same collection.

    """
    with raise_store_errors(folder):
        check_writable(folder.parent)
        _remove_leftovers(folder, _UNFINISHED, _DELETED)
        check_room(folder.parent)
        draft = _make_hidden_path(folder, _UNFINISHED)
        draft.mkdir()
        try:
            build(str(draft))
            sync_all(draft)
            if folder.exists():
                folder.rmdir()  # empty, or it raises; not everywhere does a rename replace it
            draft.rename(folder)
        except (OSError, StoreError) as error:
            if draft.exists():
                raise
            raise StoreLockedError(f"another process or client makes {folder} just now: repeat the call") from error
        sync_names(folder.parent)


def check_own(folder: Path) -> None:
    """Refuse to delete or replace a collection whose folder also holds files that the engine did not make.

    Raises:
        StoreError: there are such files, or the folder is a link.

    """
    if folder.is_symlink():
        raise StoreError(
            f"{folder} is a link, which the embedded engine did not make: put the folder itself in its place, or "
            "remove the link yourself"
        )
    foreign_names = sorted(name for name in os.listdir(folder) if name not in _OWN and not name.startswith(_WRITING))
    if foreign_names:
        raise StoreError(
            f"{folder} also holds what the embedded engine did not make ({', '.join(foreign_names[:3])}): move it "
            "elsewhere, then repeat the call"
        )


def measure(folder: Path) -> int:
    """Return the number of bytes that a folder takes on the disk."""
    statuses = [os.stat(os.path.join(root, name)) for root, _, names in os.walk(folder) for name in names]
    return sum(getattr(status, "st_blocks", -(-status.st_size // 512)) * 512 for status in statuses)


def count_unpacked(folder: Path) -> int:
    """Count the points that were written since the collection was packed, also those that are gone; all is flushed."""
    return sum(file.stat().st_size for file in folder.glob(f"{_SEGMENTS}/*/{_VERSIONS}")) // _VERSION


def is_packed(folder: Path) -> bool:
    """Return True if some points of the collection are packed."""
    return any(folder.glob(f"{_SEGMENTS}/*/{_PACKED_IDS}"))


def copy_parts(folder: Path, target: Path) -> None:
    """Copy what the engine made of a collection."""
    for part in _PARTS:
        copy = shutil.copytree if (folder / part).is_dir() else shutil.copyfile
        copy(folder / part, target / part)


def free_zeros(folder: Path) -> None:
    """Write the files of a folder anew, with holes where there are zeros; the engine fills what it reserves."""
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        draft = path.with_name(f"{_WRITING}{path.name}")
        with path.open("rb") as source, draft.open("wb") as target:
            while block := source.read(_BLOCK):
                if block != bytes(len(block)):
                    target.write(block)
                else:
                    target.seek(len(block), os.SEEK_CUR)
            target.truncate()
        draft.replace(path)


def replace(folder: Path, build: Callable[[str], object], close: Callable[[], object]) -> None:
    """Put another collection in the place of one. Its folder is open to the same users.

    Args:
        folder: of the collection.
        build: makes the other one in an empty folder, whose path it gets, and closes it.
        close: closes the collection in its place.

    Raises:
        StoreError: the disk is full, or `check_own` refuses it.

    """
    with raise_store_errors(folder):
        check_own(folder)
        draft = _make_hidden_path(folder, _UNFINISHED)
        draft.mkdir()
        try:
            shutil.copymode(folder, draft)
            build(str(draft))
            for name in (_METADATA, _DECLARED):
                if (folder / name).exists():
                    shutil.copyfile(folder / name, draft / name)
            sync_all(draft)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        close()
        folder.rename(_make_hidden_path(folder, _REPLACED))
        draft.rename(folder)
        sync_names(folder.parent)
        _remove_leftovers(folder, _REPLACED)


def finish_replacing(folder: Path) -> None:
    """Put a collection back that a process was killed in replacing, if nothing is in its place."""
    with raise_store_errors(folder):
        for replaced in _list_leftovers(folder, _REPLACED):
            if not folder.exists():
                replaced.rename(folder)


def remove(folder: Path) -> None:
    """Delete a closed collection."""
    with raise_store_errors(folder):
        _remove_leftovers(folder, _REPLACED)
        folder.rename(_make_hidden_path(folder, _DELETED))
    finish_removing(folder)


def finish_removing(folder: Path) -> None:
    """Delete what an interrupted deletion of this collection left behind."""
    with raise_store_errors(folder):
        _remove_leftovers(folder, _DELETED)


def remove_leftovers(folder: Path) -> None:
    """Delete what killed processes left beside a collection that is in its place."""
    with raise_store_errors(folder):
        _remove_leftovers(folder, _UNFINISHED, _DELETED, _REPLACED)


def _make_hidden_prefix(folder: Path) -> str:
    """Return the prefix of a collection's hidden names: its name, or, if that is long, its fingerprint."""
    return f".{folder.name if len(folder.name) <= 100 else sha256(folder.name.encode()).hexdigest()}"


def _make_hidden_path(folder: Path, kind: str) -> Path:
    return folder.with_name(f"{_make_hidden_prefix(folder)}.{uuid4().hex}.{kind}")


def _remove_leftovers(folder: Path, *kinds: str) -> None:
    """Remove the folders whose hidden names mark them as left over.

    A process that makes this very collection at the same time notices it.
    """
    for leftover in _list_leftovers(folder, *kinds):
        try:
            if not leftover.name.endswith(
                _DELETED
            ):  # first out of reach of a process that may rename it into its place
                leftover = leftover.rename(_make_hidden_path(folder, _DELETED))
            shutil.rmtree(leftover)
        except FileNotFoundError:  # another process also removes it, or has renamed it into its place
            continue


def _list_leftovers(folder: Path, *kinds: str) -> list[Path]:
    if not folder.parent.exists():
        return []
    pattern = re.compile(rf"{re.escape(_make_hidden_prefix(folder))}\.[0-9a-f]{{32}}\.({'|'.join(kinds)})")
    return [folder.with_name(name) for name in filter(pattern.fullmatch, os.listdir(folder.parent))]


@contextmanager
def raise_store_errors(folder: Path) -> Iterator[None]:
    """Turn an error of the file system into a `StoreError` that names the folder."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"the embedded engine cannot use {folder}: {error}") from error
