"""Files read in bounded time and size: what is no regular file is refused before it is waited for.

A folder that a store made is told from those of a user.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from llama_index_gear.errors import GeARError

NOTE = "index.json"
"""Name of the note beside a store."""
_COLLECTION = ("edge_config.json", "segments", "wal")  # what Qdrant Edge makes of a collection


class UnreadableFile(GeARError):
    """A file cannot be read, or not within its bounds; the message says why, and what to do."""


class NoText(UnreadableFile):
    """A file holds no text, or none that can be read without a package that is not installed."""


def is_collection(folder: Path) -> bool:
    """Return True if a folder is one that a store made: of its passages, or of its triples."""
    return all((folder / part).exists() for part in _COLLECTION)


def check_file(path: Path, most: int) -> None:
    """Refuse what is no regular file, or is too large.

    Args:
        path: of the file.
        most: highest number of bytes.

    Raises:
        UnreadableFile: it is a pipe, a device or a socket, or larger.
        OSError: it can't be looked at.

    """
    _check(path.stat(), most)


def read_file(path: Path, most: int) -> bytes:
    """Read a file as it is now. What is appended meanwhile is read up to the limit.

    Args:
        path: of the file.
        most: highest number of bytes.

    Raises:
        UnreadableFile: it is no regular file, or larger.
        OSError: it can't be read.

    """
    check_file(path, most)
    # A pipe that has taken the file's place is opened without waiting for its writer.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with open(descriptor, "rb") as file:
        _check(os.fstat(descriptor), most)
        data = file.read(most + 1)
    if len(data) > most:
        raise _make_size_error(most)
    return data


def _check(found: os.stat_result, most: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise UnreadableFile("no regular file but a pipe, a device or a socket: move it out of the folder")
    if found.st_size > most:
        raise _make_size_error(most)


def _make_size_error(most: int) -> UnreadableFile:
    return UnreadableFile(f"larger than {most // 10**6:,} MB: split it")
