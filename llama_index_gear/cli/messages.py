"""Lines on stderr that leave progress bars whole: what the command line, Python and libraries have to say."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from tqdm import tqdm

from llama_index_gear.counts import count

_OWN_REPORT = "llama_index_gear.extraction.reporting"
"""Logger of an extraction's account, which the commands print themselves."""


_said_of_file: ContextVar[dict[str, None] | None] = ContextVar("said_of_file", default=None)


def show_line(text: str) -> None:
    """Print a text as one line on stderr, above the progress bars that stand there."""
    tqdm.write(" ".join(text.split()), file=sys.stderr)


class _Lines(logging.Handler):
    def filter(self, record: logging.LogRecord) -> bool:
        return record.name != _OWN_REPORT

    def emit(self, record: logging.LogRecord) -> None:
        _show(f"{record.levelname.lower()}: {_read_message(record)}")


def _read_message(record: logging.LogRecord) -> str:
    """Return what is logged; as it stands, if its arguments don't fit it. A library's mistake ends no command."""
    with suppress(Exception):
        return record.getMessage()
    with suppress(Exception):
        return f"{record.msg} {record.args}"
    return f"a message of {record.name} that can't be written"


def _show(text: str) -> None:
    """Print a message, or keep it for the line of the file that is read."""
    said = _said_of_file.get()
    if said is None:
        show_line(text)
    else:
        said[text] = None


@contextmanager
def name_file(name: str) -> Iterator[None]:
    """Put a file's name before what libraries say while they read it: a line with the first message, and their number.

    Args:
        name: of the file.

    """
    said: dict[str, None] = {}
    token = _said_of_file.set(said)
    try:
        yield
    finally:
        _said_of_file.reset(token)
        if said:
            level, _, text = next(iter(said)).partition(": ")
            more = f" (and {count(len(said) - 1, 'message')} more)" if len(said) > 1 else ""
            show_line(f"{level}: {name}: {text}{more}")


@contextmanager
def show_messages() -> Iterator[None]:
    """Show Python's warnings, and what is logged as a warning or worse, as lines.

    A library that would set up logging of its own when it is imported finds it set up.
    """
    handler, root = _Lines(logging.WARNING), logging.getLogger()
    root.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: _show(f"warning: {message}")
            yield
    finally:
        root.removeHandler(handler)
