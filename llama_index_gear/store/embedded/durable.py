"""Files and folders that take their place once they are on the disk: a power cut leaves them whole, or absent.

After a rename alone, a disk may have the new name, and nothing of what was written under the old one. Some file systems
of a network or a virtual machine cannot be asked to write out a folder, or at all: there, nothing is promised.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

_UNABLE = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF}
"""What a file system answers that cannot write out a file, or a folder, when it is asked to."""


def write_whole(path: Path, write: Callable[[BinaryIO], object], draft: Path) -> None:
    """Write a file, whole or not at all. It takes the place of one that is there.

    Args:
        path: of the file.
        write: writes the content.
        draft: path of the unfinished file, in the same folder. One that a killed process left is overwritten.

    Raises:
        OSError: the disk failed. What was there is there still, or the new file is whole in its place.

    """
    try:
        with draft.open("wb") as file:
            write(file)
            file.flush()
            _sync_open(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    sync_names(path.parent)


def sync_all(folder: Path) -> None:
    """Return once all files of a folder, and of those in it, are on the disk."""
    for root, _, names in os.walk(folder, topdown=False):
        for name in names:
            _sync(os.path.join(root, name), os.O_RDWR if os.name == "nt" else os.O_RDONLY)
        sync_names(Path(root))


def sync_names(folder: Path) -> None:
    """Return once the names in a folder are on the disk; Windows does this by itself."""
    if os.name != "nt":
        _sync(folder, os.O_RDONLY)


def _sync(path: str | Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        _sync_open(descriptor)
    finally:
        os.close(descriptor)


def _sync_open(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNABLE:
            raise
