"""The rows of a CSV or TSV file as sentences: without its head, a row says nothing, and a passage holds few rows."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice, takewhile, zip_longest

TABLES = {".csv": ",", ".tsv": "\t"}
"""Endings of the files whose rows are read as sentences, each with the mark that parts cells if no other does."""
_MARKS = ",;\t|"
_HEAD_ROWS = 50  # rows that tell which mark parts the cells
_STATED_MARK = re.compile(r"\s*sep=([,;|\t])[ ]*(?:\r\n|\n|\r|$)")
"""Matches the line that Excel reads before a table."""
_PARAGRAPH = "\n\n\n"  # the mark at which LlamaIndex's SentenceSplitter divides a text first
_MAX_ROW = 500
"""Characters of a sentence of several cells: fewer than a passage has, so that it is cut between cells."""
_MAX_NAME = 6  # words of a column's name
_MAX_NAME_LENGTH = 100  # characters of it: each row repeats it
_NO_NAME = re.compile(r"[@:]|(?<![^\W\d_])/|/(?![^\W\d_])|\d[.,]\d")
_YEAR = re.compile(r"(?:19|20)\d\d")


def read_table(text: str, ending: str) -> str:
    """Return a table's rows as sentences, a paragraph each.

    A row becomes "name: Ada; office: Berlin." A column's name is written in small letters, so that it is no name of a
    person or a place. A cell without a column's name stands alone; an empty one is left out. A row of more than
    500 characters is several sentences, each with its first cell.

    Args:
        text: the table. Its first row names the columns, if it looks like that: each cell is short, has letters or is a
            year, and stands nowhere else in its column. Lines of one cell above it stand alone.
        ending: of its file. Cells are parted by the comma, semicolon, tab or stroke that parts most of the first rows
            alike; if none does, by tabs in ".tsv" and by commas in ".csv".

    Raises:
        ValueError: a quote is not closed.

    """
    default = TABLES[ending]
    if stated := _STATED_MARK.match(text):
        default, text = stated[1], text[stated.end() :]
    lines = list(io.StringIO(text, newline=""))
    with _allow_cells(len(text)):
        cells = list(_read_rows(lines, default if stated else _find_mark(lines, default)))
    rows = [row for row in ([" ".join(cell.split()) for cell in row] for row in cells) if any(row)]
    titles = list(takewhile(lambda row: row[0] and not any(row[1:]), rows))  # lines above the table, if it is one
    if len(titles) == len(rows):
        titles = []
    rows = rows[len(titles) :]
    head: Sequence[str] = ()
    if _is_head(rows):
        head, *rows = rows
    return _PARAGRAPH.join(filter(None, [write_rows((), titles), write_rows(head, rows)]))


def write_rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows as sentences, a paragraph each, with the names of their columns; empty ones are left out.

    Args:
        head: the columns' names, as they stand above the table.
        rows: the cells of each row.

    """
    names = [" ".join(name.replace("_", " ").lower().split()).rstrip(":") for name in head]
    return _PARAGRAPH.join(sentence for row in rows if any(row) for sentence in _write_row(names, row))


@contextmanager
def _allow_cells(length: int) -> Iterator[None]:
    """Let cells be this long; Python's limit is 131,072 characters."""
    limit = csv.field_size_limit()
    csv.field_size_limit(max(limit, length))
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _find_mark(lines: Sequence[str], default: str) -> str:
    """Return the mark that parts most of the first rows into the same number of cells; the default, if none does."""
    text = "".join(islice(lines, _HEAD_ROWS))

    def rate(mark: str) -> tuple[int, bool, bool, int]:
        rows = islice(csv.reader(lines, delimiter=mark, skipinitialspace=True), _HEAD_ROWS)
        ((width, count),) = Counter(len(row) for row in rows if len(row) > 1).most_common(1) or [(0, 0)]
        return count, f"{mark} " not in text, mark == default, width

    return max(_MARKS, key=rate)


def _read_rows(lines: Sequence[str], mark: str) -> Iterator[list[str]]:
    """Read the rows of a table.

    A quote inside a line, as of an inch, is a letter. One that runs over lines must be closed at the end of its cell:
    else it would take the rows behind it for one cell.

    Raises:
        ValueError: it isn't.

    """
    reader = csv.reader(lines, delimiter=mark, skipinitialspace=True, strict=True)
    while True:
        start = reader.line_num
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            line = lines[start]
            if reader.line_num > start + 1 or line.count('"') % 2:
                raise ValueError(
                    f'a quote (") in line {start + 1} is not closed at the end of its cell: close it, or write two for '
                    "one that is part of the text"
                ) from error
            yield next(csv.reader([line], delimiter=mark, skipinitialspace=True))


def _is_head(rows: Sequence[Sequence[str]]) -> bool:
    """Return True if the first row looks like the columns' names."""
    if len(rows) < 2:
        return False
    head = [(place, name) for place, name in enumerate(rows[0]) if name]
    others = set(chain.from_iterable(map(enumerate, rows[1:])))
    return others.isdisjoint(head) and all(_is_column(name) for _, name in head)


def _is_column(name: str) -> bool:
    has_letters = any(map(str.isalpha, name))
    return bool(_YEAR.fullmatch(name)) or (
        has_letters
        and len(name) <= _MAX_NAME_LENGTH
        and len(name.split()) <= _MAX_NAME
        and not _NO_NAME.search(name.rstrip(":"))
    )


def _write_row(names: Sequence[str], row: Sequence[str]) -> Iterator[str]:
    """Write a row as a sentence, or a long one as several that begin with its first cell."""
    cells = [f"{name}: {cell}" if name else cell for name, cell in zip_longest(names, row, fillvalue="") if cell]
    first = cells[:1] if len(cells[0]) < _MAX_ROW // 2 else []
    parts = cells[:1]
    for cell in cells[1:]:
        if len(parts) > 1 and len("; ".join([*parts, cell])) > _MAX_ROW:
            yield _end_sentence(parts)
            parts = [*first]
        parts.append(cell)
    yield _end_sentence(parts)


def _end_sentence(parts: Sequence[str]) -> str:
    sentence = "; ".join(parts)
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."
