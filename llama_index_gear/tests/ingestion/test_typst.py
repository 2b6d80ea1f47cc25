"""Typst, without the converter."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from llama_index_gear.ingestion.files import FolderReader
from llama_index_gear.ingestion.typst import read_typst
from llama_index_gear.tests.growth import assert_linear

DOCUMENT = """#import "@preview/yard:0.1.2": canvas, draw
#set page(
  margin: (top: 64pt, bottom: 20pt),
  header: [Furniture of #place(top)[Weserkran]],
)
#show: paper.with(
  title: "The Osthafen",
  // a comment (with a bracket
  authors: ((name: "Ida Falk"),),
  abstract: [It tells of Bremen.],
)
#let gate(width) = { rect(fill: red)[Hidden] }
#show heading.where(level: 1): it => [#set text(font: "Noto Serif") #it.body]

= Cranes <cranes>
#text(fill: red)[Nora *Blum*] built them, see @fig-1 and https://x.example/a. \\
/ Slip: where _ships_ stand /* or lie */.
#figure(image("a.png"), caption: [The hall [old]])
== Code
```py
#set x = 1
= y
```
In $#x = "[" + y$ and `#raw(` it is \\#1.
#pagebreak()
"""


def test_a_document_is_what_it_shows() -> None:
    found = read_typst(DOCUMENT)
    assert found.title == "The Osthafen"
    lines = [line.strip() for line in found.text.split("\n") if line.strip()]
    assert lines == [
        "It tells of Bremen.",
        "# Cranes",
        "Nora **Blum** built them, see  and https://x.example/a.",
        "- Slip: where _ships_ stand .",
        "The hall [old]",
        "## Code",
        "```py",
        "#set x = 1",
        "= y",
        "```",
        'In $#x = "[" + y$ and `#raw(` it is #1.',
    ]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("#if a == 1 [Nora] else [Paul]\nIda", "Nora Paul \nIda"),
        ('#link("https://x.example")[Osthafen]; it #emph[is].', "Osthafen it is."),
        ("#{ let x = [a] }Nora #(1 + 2) Blum", "Nora  Blum"),
        ("#table(columns: 2, [Nora], [Blum])", "Nora Blum"),
        ("A # b [c] ] d ` e $ f", "A # b [c] ] d ` e $ f"),
        ("#let x = (\n  1,\n)\nNora", "Nora"),
        ("nora\\@x.example and nora@x.example", "nora\\@x.example and nora@x.example"),
    ],
)
def test_functions_settings_and_what_is_none(source: str, text: str) -> None:
    assert read_typst(source).text == text


def test_it_is_read_as_markdown_and_a_style_has_no_text(tmp_path: Path) -> None:
    (tmp_path / "yard.typ").write_text(DOCUMENT)
    (tmp_path / "style.typ").write_text("#let paper(title: none, body) = {\n  set page()\n  [By #title]\n}\n")
    (tmp_path / "deep.typ").write_text("#a[" * 20_000)
    with FolderReader(tmp_path) as reader:
        (document,) = reader.load_data()
    assert document.metadata["title"] == "The Osthafen"
    assert document.metadata["file_type"] == "text/markdown"
    assert reader.skipped == {"style.typ": "there is no text in it"}
    assert reader.failed == {"deep.typ": "nests too deep: save it as text"}


@pytest.mark.parametrize("mark", ["$", "`", "/*", "#a(", "#a(/*", '#a("', "@a", "<a>", "\t", "\\", "\n"])
def test_odd_marks_take_linear_time(mark: str) -> None:
    def read(source: str) -> None:
        with suppress(ValueError):  # it nests too deep
            read_typst(source)

    assert_linear(read, lambda size: f"{mark} " * size, 20_000)
