"""The notebook runs as a new user runs it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from repository import EXAMPLES

NOTEBOOK = "gear_agent.ipynb"

# What the model's libraries warn of at their own discretion.
pytestmark = pytest.mark.filterwarnings("default")


def run_notebook(folder: Path) -> Any:
    """Return the notebook, run from top to bottom in a folder of its own, with what its readers see of the outputs."""
    for name in (NOTEBOOK, "gear_agent.py", "openai_model.py", "quickstart.py"):
        (folder / name).write_bytes((EXAMPLES / name).read_bytes())
    (folder / "data").symlink_to(EXAMPLES / "data")
    book = nbformat.read(folder / NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(book, timeout=300, resources={"metadata": {"path": str(folder)}}, record_timing=False).execute()
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs = list(join_streams(output for output in cell.outputs if output.get("name") != "stderr"))
    return book


def join_streams(outputs: Iterable[Any]) -> Iterator[Any]:
    """Yield outputs as a reader sees them: text that came in pieces as one, and of an object the richest form."""
    last = None
    for output in outputs:
        if output.output_type == "stream" and last is not None:
            last.text += output.text
            continue
        last = output if output.output_type == "stream" else None
        if "text/html" in output.get("data", {}):
            output.data.pop("text/plain")
        yield output


def read_outputs(book: Any) -> list[tuple[str, str]]:
    """Return the outputs by cell, without durations, and of the trace's page what is seen and not folded.

    The folded lists hold dozens of passages; where two of them nearly tie, the processor decides.
    """
    found = []
    for cell in book.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            text = output.get("text") or data.get("text/html") or data.get("text/plain") or ""
            if text.startswith("<iframe"):
                text = text[text.index("&lt;h1&gt;") : text.index("&lt;details class=&quot;rest&quot;")]
            found.append((cell.id, re.sub(r"[0-9.]+ ms|kind='ms' value=[0-9.]+|'ms': [0-9.]+", "(ms)", text)))
    return found


def test_the_notebook_shows_what_it_does(tmp_path: Path) -> None:
    """Its outputs are committed; `WRITE_NOTEBOOK=1` writes them anew."""
    made = run_notebook(tmp_path)
    if os.environ.get("WRITE_NOTEBOOK"):
        nbformat.write(made, EXAMPLES / NOTEBOOK)  # type: ignore[no-untyped-call]
    committed = nbformat.read(EXAMPLES / NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    outputs = read_outputs(made)
    assert read_outputs(committed) == outputs
    said = "".join(text for _, text in outputs)
    assert "1982 [3] — answered" in said and "New Zealand" in said and "path: Dell Curry — father of" in said
    (page,) = [text for _, text in outputs if text.startswith("&lt;h1&gt;")]
    assert "Virginia Tech" in page and "The path to the answer" in page
