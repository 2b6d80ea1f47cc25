"""The rows of a CSV or TSV file as sentences: without its head, a row says nothing, and a passage holds few rows."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from itertools import chain

TABLES = {".csv", ".tsv"}
"""Endings of the files whose rows are read as sentences."""
_DELIMITERS = ",;\t|"
_MAX_NAME = 6  # words of a column's name
_NO_NAME = re.compile(r"[@:/]|\d[.,]\d")
_YEAR = re.compile(r"(?:19|20)\d\d")


def read_table(text: str, ending: str) -> str:
    """Return a table's rows as sentences, a paragraph each.

    A row becomes "name: Ada; office: Berlin." A column's name is written in small letters, so that it is no name of a
    person or a place. A cell without a column's name stands alone; an empty one is left out.

    Args:
        text: the table. Its first row names the columns, if it looks like that: each cell is short, has letters or is a
            year, and stands nowhere else in the table.
        ending: of its file. Of ".tsv" tabs part the cells, of others the mark that parts the first line into the most.

    Raises:
        ValueError: it is no table.

    """
    delimiter = "\t" if ending == ".tsv" else _find_delimiter(text)
    try:
        cells = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error as error:
        raise ValueError(f"it is no table: {error}") from error
    rows = [row for row in ([" ".join(cell.split()) for cell in row] for row in cells) if any(row)]
    head: Sequence[str] = ()
    if _is_head(rows):
        head, *rows = rows
    names = [" ".join(name.replace("_", " ").lower().split()).rstrip(":") for name in head]
    return "\n\n".join(_write_row(names, row) for row in rows)


def _find_delimiter(text: str) -> str:
    first = text.lstrip().split("\n", 1)[0]
    return max(_DELIMITERS, key=lambda mark: len(next(csv.reader([first], delimiter=mark), ())))


def _is_head(rows: Sequence[Sequence[str]]) -> bool:
    """Return True if the first row looks like the columns' names."""
    if len(rows) < 2:
        return False
    head = [name for name in rows[0] if name]
    others = set(chain.from_iterable(rows[1:]))
    return len(set(head)) == len(head) and others.isdisjoint(head) and all(map(_is_column, head))


def _is_column(name: str) -> bool:
    has_letters = any(map(str.isalpha, name))
    return bool(_YEAR.fullmatch(name)) or (
        has_letters and len(name.split()) <= _MAX_NAME and not _NO_NAME.search(name.rstrip(":"))
    )


def _write_row(names: Sequence[str], row: Sequence[str]) -> str:
    parts = []
    for place, cell in enumerate(row):
        name = names[place] if place < len(names) else ""
        if cell:
            parts.append(f"{name}: {cell}" if name else cell)
    sentence = "; ".join(parts)
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."
