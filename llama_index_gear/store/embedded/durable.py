"""Files and folders that take their place once they are on the disk: a power cut leaves them whole, or absent.

After a rename alone, a disk may have the new name, and nothing of what was written under the old one. Some file
systems, of networks for example, refuse to sync folders, or anything: there all is written without it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

_REFUSALS = {errno.EBADF, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
"""Errors of a file system that cannot sync."""


def write_whole(path: Path, write: Callable[[BinaryIO], object], draft: Path) -> None:
    """Write a file, whole or not at all. It takes the place of one that is there.

    Args:
        path: of the file.
        write: writes the content.
        draft: path of the unfinished file, in the same folder. One that a killed process left is overwritten.

    Raises:
        OSError: the disk failed. What was there is there still.

    """
    try:
        with draft.open("wb") as file:
            write(file)
            file.flush()
            _sync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    sync_names(path.parent)


def sync_all(folder: Path) -> None:
    """Return once all files of a folder, and of those in it, are on the disk."""
    for root, _, names in os.walk(folder, topdown=False):
        for name in names:
            _open_and_sync(os.path.join(root, name), os.O_RDWR if os.name == "nt" else os.O_RDONLY)
        sync_names(Path(root))


def sync_names(folder: Path) -> None:
    """Return once the names in a folder are on the disk; Windows does this by itself."""
    if os.name != "nt":
        _open_and_sync(folder, os.O_RDONLY)


def _open_and_sync(path: str | Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        _sync(descriptor)
    finally:
        os.close(descriptor)


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise
