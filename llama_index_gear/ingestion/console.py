"""Everything that the commands print: without characters that mislead, and in lines that leave progress bars whole."""

from __future__ import annotations

import logging
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TextIO, cast

from tqdm import tqdm

from llama_index_gear.characters import count, escape_unseen, escape_unwritable

_OWN_REPORT = "llama_index_gear.extraction.accounting"
"""Logger of an extraction's account, which the commands print themselves."""


_said_of_file: ContextVar[dict[str, None] | None] = ContextVar("said_of_file", default=None)


class EscapedStream:
    """Stdout or stderr, for text that others wrote: what can't be seen is escaped, and what can't be written.

    A progress bar's return to the start of its line is let through. There is no `buffer`, since bytes would pass as
    they are.

    Attributes:
        stream: the stream itself.

    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Write a text, escaped."""
        start = "\r" if text.startswith("\r") and not text.endswith("\n") else ""
        shown = escape_unwritable(escape_unseen(text[len(start) :]), self.stream.encoding or "utf-8")
        self.stream.write(start + shown)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts, escaped."""
        for line in lines:
            self.write(line)


@contextmanager
def escape_output() -> Iterator[None]:
    """Escape what is written to stdout and stderr: by the commands, by Python and by libraries."""
    out, err = cast(TextIO, EscapedStream(sys.stdout)), cast(TextIO, EscapedStream(sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        yield


@contextmanager
def lend_stdout() -> Iterator[None]:
    """Give stdout to a protocol, as it is."""
    with redirect_stdout(sys.stdout.stream if isinstance(sys.stdout, EscapedStream) else sys.stdout):
        yield


def show_fault(kind: type[BaseException], fault: BaseException, trace: TracebackType | None) -> None:
    """Print a fault of this program with its traceback, escaped, as `sys.excepthook`."""
    with escape_output():
        traceback.print_exception(kind, fault, trace)


def show_line(text: str) -> None:
    """Print a text as one line on stderr, above the progress bars that stand there."""
    tqdm.write(" ".join(text.split()), file=sys.stderr)


def shorten_line(text: str, most: int = 300) -> str:
    """Return a text as one line of bounded length: its two ends, without what lies between them.

    Args:
        text: the text.
        most: characters of the line. Default 300.

    """
    line = " ".join(text.split())
    end = most * 2 // 5  # it says what to do
    return line if len(line) <= most else f"{line[: most - end - 3]} … {line[-end:]}"


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
