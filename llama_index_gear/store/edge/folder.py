"""The folder of a collection of the embedded engine: whole or absent; what the engine did not make is never removed.

A collection is made beside its place, under a hidden name of ours, and renamed into it; to be deleted, it is renamed
away first. So a process that is killed leaves a whole collection or none, and hidden folders that a later call removes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

from llama_index_gear.errors import StoreError, StoreLockedError

_CONFIG, _SEGMENTS, _LOG = "edge_config.json", "segments", "wal"
_PARTS = (_CONFIG, _SEGMENTS, _LOG)
_KINDS = ("vectors", "sparse_vectors")
_SEGMENT_PARTS = (
    "segment.json",
    "version.info",
    "payload_storage",
)  # without one the engine drops the segment, unasked
_IDS, _VERSIONS = "mutable_id_tracker.mappings", "mutable_id_tracker.versions"
_WRITING = ".atomicwrite"  # how the names of the engine's unfinished files begin
_UNFINISHED, _DELETED = "unfinished", "deleted"
_MEBIBYTE = 2**20
RESERVE = 128 * _MEBIBYTE
"""Bytes of the disk that are to be free for a call that opens or writes. With 76 MiB, opening a store was killed."""

PLENTY = 2**30
"""Bytes of the disk that are room enough for any batch."""

Place = tuple[int, int]
"""What tells a folder from one that takes its path later: device and inode."""


def holds_collection(folder: Path) -> bool:
    """Return whether there is a collection; nothing, or an empty folder, is none.

    Raises:
        StoreError: there is something else, or a collection that lacks a part.

    """
    try:
        with plain_words(folder):
            names = os.listdir(folder)
            if names:
                _check_whole(folder)
    except StoreError:
        if os.path.lexists(folder):
            raise
        return False  # not there, or deleted just now
    return bool(names)


def read_config(folder: Path) -> dict[str, Any]:
    """Read what the engine noted of its vectors.

    Raises:
        StoreError: it cannot be read.

    """
    try:
        config = json.loads((folder / _CONFIG).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(folder, f"{_CONFIG} cannot be read ({error})") from error
    if not isinstance(config, dict) or not all(isinstance(config.get(kind, {}), dict) for kind in _KINDS):
        raise _damaged(folder, f"{_CONFIG} names no vectors")
    return config


def _check_parts(folder: Path) -> None:
    for part in _PARTS:
        if not os.path.exists(os.path.join(folder, part)):  # of each call: a `Path` takes four times as long
            raise _damaged(folder, f"{part} is missing")


def _check_whole(folder: Path) -> None:
    _check_parts(folder)
    config = read_config(folder)
    vectors = sum(len(config.get(kind, {})) for kind in _KINDS)
    segments = [entry for entry in (folder / _SEGMENTS).iterdir() if entry.is_dir() and "." not in entry.name]
    if not segments:
        raise _damaged(folder, f"{_SEGMENTS} is empty")
    for segment in segments:
        names = set(os.listdir(segment))
        missing = [part for part in _SEGMENT_PARTS if part not in names]
        missing += [_IDS] if _IDS not in names and _VERSIONS in names else []  # the ids are written first
        if missing:
            raise _damaged(folder, f"{_SEGMENTS}/{segment.name}/{missing[0]} is missing")
        if sum(name.startswith("vector_storage") for name in names) != vectors:
            raise _damaged(folder, f"{_SEGMENTS}/{segment.name} has other vectors than {_CONFIG}")
    if not any((folder / _LOG).iterdir()):
        raise _damaged(folder, f"{_LOG} is empty")


def _damaged(folder: Path, fault: str) -> StoreError:
    """Make the error of a folder that is no whole collection."""
    return StoreError(
        f"{folder} is not a whole collection of the embedded engine: {fault}. Restore the folder from a copy, or "
        "choose another folder or collection_name; nothing in it was changed"
    )


def place_of(folder: Path) -> Place | None:
    """Return what tells this collection from another one in its place; None if it isn't there.

    That is its log's folder: the engine holds it open, so nothing else is given its inode meanwhile.
    """
    try:
        status = os.stat(os.path.join(folder, _LOG))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def check_in_place(folder: Path, place: Place | None) -> None:
    """Refuse a folder that is not the one that was opened.

    Raises:
        StoreError: it was moved, deleted or replaced, or lost a part.

    """
    with plain_words(folder):
        if place_of(folder) != place:
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
    """Return the bytes that this user may still write there."""
    return shutil.disk_usage(folder).free


def check_room(folder: Path, size: Callable[[], int] = int) -> None:
    """Refuse to write when the disk is nearly full: there, a signal of the engine's memory map ends the process.

    Args:
        folder: is on that disk.
        size: counts the bytes that will be written, besides the `RESERVE`; asked only where the disk is short of room.

    Raises:
        StoreError: there is too little room.

    """
    with plain_words(folder):
        free = free_space(folder)
    if free < PLENTY and free < (needed := RESERVE + size()):
        raise StoreError(
            f"the disk of {folder} has {free // _MEBIBYTE} MiB free, and this call needs "
            f"{-(-needed // _MEBIBYTE)} MiB: make room, then repeat it"
        )


def make(folder: Path, build: Callable[[str], object]) -> None:
    """Make a collection.

    Args:
        folder: its place; nothing, or an empty folder.
        build: makes it in an empty folder, whose path it is given, and closes it.

    Raises:
        StoreError: the disk is full, or the folder read-only.
        StoreLockedError: another process or client makes the same.

    """
    with plain_words(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        check_writable(folder.parent)
        _remove_leftovers(folder, _UNFINISHED, _DELETED)
        check_room(folder.parent)
        draft = _hidden(folder, _UNFINISHED)
        draft.mkdir()
        try:
            build(str(draft))
            if folder.exists():
                folder.rmdir()  # empty, or it raises; not everywhere does a rename replace it
            draft.rename(folder)
        except (OSError, StoreError) as error:
            if draft.exists():
                raise
            raise StoreLockedError(f"another process or client makes {folder} just now: repeat the call") from error


def check_own(folder: Path) -> None:
    """Refuse to delete a collection whose folder holds what the engine did not make.

    Raises:
        StoreError: it does, or it is a link.

    """
    if folder.is_symlink():
        raise StoreError(f"{folder} is a link, which the embedded engine did not make: remove it yourself")
    others = sorted(n for n in os.listdir(folder) if n not in _PARTS and not n.startswith(_WRITING))
    if others:
        raise StoreError(
            f"{folder} also holds what the embedded engine did not make ({', '.join(others[:3])}): move it elsewhere, "
            "then repeat the call"
        )


def remove(folder: Path) -> None:
    """Delete a collection that is closed."""
    with plain_words(folder):
        folder.rename(_hidden(folder, _DELETED))
    finish_removing(folder)


def finish_removing(folder: Path) -> None:
    """Delete what a call that was interrupted while it deleted this collection left."""
    with plain_words(folder):
        _remove_leftovers(folder, _DELETED)


def _own(folder: Path) -> str:
    """How our hidden names for a collection begin: by its name, or where that is long, by a fingerprint of it."""
    return f".{folder.name if len(folder.name) <= 100 else sha256(folder.name.encode()).hexdigest()}"


def _hidden(folder: Path, kind: str) -> Path:
    return folder.with_name(f"{_own(folder)}.{uuid4().hex}.{kind}")


def _remove_leftovers(folder: Path, *kinds: str) -> None:
    """Remove what our own hidden names tell as left over; whoever makes this very collection just now is told."""
    if not folder.parent.exists():
        return
    own = re.compile(rf"{re.escape(_own(folder))}\.[0-9a-f]{{32}}\.({'|'.join(kinds)})")
    for name in filter(own.fullmatch, os.listdir(folder.parent)):
        leftover = folder.with_name(name)
        try:
            if not name.endswith(_DELETED):  # first out of reach of whoever might rename it into its place
                leftover = leftover.rename(_hidden(folder, _DELETED))
            shutil.rmtree(leftover)
        except FileNotFoundError:  # another process removes it too, or has it in its place by now
            continue


@contextmanager
def plain_words(folder: Path) -> Iterator[None]:
    """Turn an error of the file system into one that says which folder it is about."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"the embedded engine cannot use {folder}: {error}") from error
