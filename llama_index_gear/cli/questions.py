"""Questions that `ask` reads one after another: from the keyboard, or from a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress

_PROMPT = "? "


def read_questions() -> Iterator[str]:
    """Yield a question a line, until the input ends; empty lines are none.

    At the keyboard a prompt asks for each. Ctrl-D and Ctrl-C end it.
    """
    with suppress(EOFError, KeyboardInterrupt):
        for line in _prompt() if sys.stdin.isatty() else sys.stdin:
            if line.strip():
                yield line.strip()


def _prompt() -> Iterator[str]:
    with suppress(ImportError):  # Windows has none
        import readline  # noqa: F401  # so that lines can be edited, and called back
    while True:
        yield input(_PROMPT)
