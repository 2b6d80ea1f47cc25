"""Paths that a user gives."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from llama_index_gear.errors import check_kind


def read_path(*, hint: str = "", **path: Any) -> Path:
    """Return a path, with the user's home folder in place of a `~` at its beginning.

    To name a file or folder `~`, write `./~`.

    Args:
        hint: what to write instead, for the message. Default: nothing.
        **path: the path, by the name of its argument.

    Raises:
        ArgumentError: it is no path.

    """
    check_kind((str, Path), hint=hint, **path)
    (value,) = path.values()
    return Path(os.path.expanduser(value))
