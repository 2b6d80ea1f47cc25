"""The end of a process at a step of its work, in the test's own process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RENAMES = ("first rename", "second rename")


class Killed(BaseException):
    """Ends a process at a step."""


def kill(*_: Any, **__: Any) -> None:
    """End the process."""
    raise Killed


def kill_at_rename(dying: pytest.MonkeyPatch, step: str) -> None:
    """End the process at the first or second time that a path is renamed; `step` is one of `RENAMES`."""
    left = RENAMES.index(step) + 1

    def rename(path: Path, target: Path, _rename: Callable[..., Any] = Path.rename) -> Any:
        nonlocal left
        left -= 1
        return kill() if left == 0 else _rename(path, target)

    dying.setattr(Path, "rename", rename)
