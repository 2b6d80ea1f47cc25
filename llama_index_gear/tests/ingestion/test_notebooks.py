"""Notebooks, without the converter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llama_index_gear.extraction.mention_extractor import MentionTripleExtractor
from llama_index_gear.ingestion.files import FolderReader
from llama_index_gear.nodes import read_triples

BASE64 = "iVBOR" * 30


@pytest.fixture(autouse=True)
def _has_no_converter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llama_index_gear.ingestion.files.is_installed", lambda: False)


def read(folder: Path, name: str, text: str) -> tuple[list[tuple[str, str]], FolderReader]:
    (folder / name).write_text(text, "utf-8")
    with FolderReader(folder) as reader:
        documents = reader.read(folder / name)
    assert all(document.metadata["file_type"] == "text/markdown" for document in documents)
    return [(document.metadata["title"], document.text) for document in documents], reader


def make(*cells: dict[str, Any]) -> str:
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def test_a_notebook_is_its_texts_and_its_code(tmp_path: Path) -> None:
    notebook = make(
        {"cell_type": "markdown", "source": ["# Cranes\n", "by *Nora* & Paul, see [it](hall.ipynb)\n", "1 < 2"]},
        {"cell_type": "code", "source": "# not a heading\n'```'", "outputs": [{"text": "Bremen"}]},
        {"cell_type": "code", "source": []},
        {"cell_type": "raw", "source": "Osthafen\n"},
    )
    said = "# Cranes\nby *Nora* & Paul, see it\n1 < 2\n\n````\n# not a heading\n'```'\n````\n\nOsthafen"
    found, _ = read(tmp_path, "a_1.ipynb", notebook)
    assert found == [("Cranes", said)]


@pytest.mark.parametrize(
    "outputs",
    [
        [{"output_type": "stream", "name": "stdout", "text": ["Bremen\n"]}],
        [{"output_type": "display_data", "data": {"image/png": BASE64, "text/plain": "<Bremen>"}}],
        [{"output_type": "execute_result", "data": {"text/html": "<td>Bremen</td>"}, "execution_count": 1}],
        [{"output_type": "error", "ename": "Bremen", "evalue": "", "traceback": ["\u001b[0;31mBremen"]}],
    ],
    ids=["printed", "drawn", "shown", "raised"],
)
def test_what_code_gives_is_left_out(tmp_path: Path, outputs: list[dict[str, Any]]) -> None:
    found, _ = read(tmp_path, "b_1.ipynb", make({"cell_type": "code", "source": ["x = 1"], "outputs": outputs}))
    assert found == [("B 1", "```\nx = 1\n```")]


def test_pictures_are_left_out(tmp_path: Path) -> None:
    cell = {
        "cell_type": "markdown",
        "source": f"# Yard\nA ![crane](data:image/png;base64,{BASE64}) of Nora Blum ![hall](attachment:x.png).",
        "attachments": {"x.png": {"image/png": BASE64}},
    }
    found, _ = read(tmp_path, "c_1.ipynb", make(cell))
    assert BASE64[:20] not in found[0][1]
    with FolderReader(tmp_path) as reader:
        (node,) = MentionTripleExtractor()(reader.load_data())
    assert {triple.object for triple in read_triples(node)} == {"Nora Blum"}


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ({"cell_type": "code", "input": ["x = 1\n", "y"], "outputs": []}, "```\nx = 1\ny\n```"),
        ({"cell_type": "code", "input": "x = 1", "collapsed": False}, "```\nx = 1\n```"),
        ({"cell_type": "heading", "level": 2, "source": ["Yards"]}, "## Yards"),
        ({"cell_type": "heading", "level": 10**9, "source": "Yards"}, "###### Yards"),
        ({"cell_type": "markdown", "source": "Yards"}, "Yards"),
    ],
)
def test_a_notebook_of_an_older_format(tmp_path: Path, cell: dict[str, Any], said: str) -> None:
    other = {"cell_type": "markdown", "source": ["Osthafen"]}
    notebook = {"worksheets": [{"cells": [cell]}, {"cells": [other]}], "metadata": {"name": "d"}, "nbformat": 3}
    found, _ = read(tmp_path, "d_1.ipynb", json.dumps(notebook))
    assert [text for _, text in found] == [f"{said}\n\nOsthafen"]


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "5", '{"cells": 5}', '{"cells": [5]}', '{"cells": [{"source": "x"}]}', "[" * 20_000,
     make({"cell_type": "markdown", "source": None}), make({"cell_type": "markdown", "source": [5]}),
     make({"cell_type": "heading", "source": "x"}), make({"cell_type": "heading", "source": "x", "level": "y"}),
     json.dumps({"nbformat": 3, "worksheets": None})],
)  # fmt: skip
def test_a_damaged_notebook_is_named_and_others_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "good.ipynb").write_text(make({"cell_type": "markdown", "source": "Osthafen"}))
    found, reader = read(tmp_path, "bad.ipynb", text)
    assert found == []
    assert reader.failed["bad.ipynb"].endswith(": save it as text")
    assert [document.text for document in reader.load_data()] == ["Osthafen"]


def test_a_notebook_without_text_is_named(tmp_path: Path) -> None:
    for number, text in enumerate((make(), make({"cell_type": "code", "source": " \n"}))):
        found, reader = read(tmp_path, f"e{number}.ipynb", text)
        assert (found, reader.skipped) == ([], {f"e{number}.ipynb": "there is no text in it"})


def test_half_a_character_is_written_as_a_whole_one(tmp_path: Path) -> None:
    found, _ = read(tmp_path, "f_1.ipynb", make({"cell_type": "markdown", "source": "Osthafen \ud83d"}))
    assert found[0][1].encode() and found[0][1].startswith("Osthafen ")
