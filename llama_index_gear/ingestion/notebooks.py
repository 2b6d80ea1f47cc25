"""Notebooks of Jupyter as Markdown, without what their code printed and drew."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from llama_index_gear.errors import repair_surrogates
from llama_index_gear.ingestion.converter import CONVERTED, clean_links
from llama_index_gear.ingestion.typst import TYPST

NOTEBOOK = ".ipynb"
MADE_MARKDOWN = CONVERTED | {NOTEBOOK, TYPST}
"""Endings of the files that become Markdown."""


def read_notebook(text: str) -> str:
    """Return the texts of a notebook's cells, and the source of its code, fenced.

    Args:
        text: the file, of any format of Jupyter: before the fourth, cells stood in worksheets.

    Raises:
        ValueError: it is no notebook, or nests too deep.

    """
    try:
        notebook = json.loads(text)
        sheets = [notebook] if "cells" in notebook else notebook["worksheets"]
        cells = [_read_cell(cell) for sheet in sheets for cell in sheet["cells"]]
    except RecursionError:
        raise ValueError("nests too deep: save it as text") from None
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise ValueError("it is no notebook: save it as text") from error
    return clean_links(repair_surrogates("\n\n".join(filter(None, cells))))


def _read_cell(cell: Mapping[str, Any]) -> str:
    """Return what a cell says. Before the fourth format, code was its `input`, and a heading had a `level`."""
    kind, source = cell["cell_type"], cell.get("source", cell.get("input", ""))
    said = "".join(source).strip("\n")
    if kind == "code" and said.strip():
        fence = "`" * max(3, 1 + max(map(len, re.findall("`{3,}", said)), default=0))
        return f"{fence}\n{said}\n{fence}"
    return f"{'#' * min(cell['level'], 6)} {said}" if kind == "heading" else said
