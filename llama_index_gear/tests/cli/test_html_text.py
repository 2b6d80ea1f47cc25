"""The text of HTML pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llama_index_gear import GeARVectorStore
from llama_index_gear.cli.html_text import read_html
from llama_index_gear.testing import WordEmbedding

PAGE = """<!DOCTYPE html><html><head><title>Osprey</title><style>body{color:red}</style></head><body>
<h1>Osprey</h1> <p>Osprey is a fixed
 sensor of <b>Kestrel</b> &amp; Sons.</p><script>var x = "<p>no</p>";</script>
<h2>Supply</h2><ul><li>Bergmann GmbH<li>Fjordkraft</ul><table><tr><td>a</td><td>b</td></tr></table></body></html>"""
TEXT = """# Osprey

Osprey is a fixed sensor of Kestrel & Sons.

## Supply

Bergmann GmbH
Fjordkraft

a b"""


def test_a_page_is_what_a_browser_shows() -> None:
    assert read_html(PAGE) == ("Osprey", TEXT)


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("", ""),
        ("no tags < 3 & more", "no tags < 3 & more"),
        ("<head><title>T</title><body>Ann", "Ann"),
        ("<p>Ann</style> met</p><p>Bob", "Ann met\n\nBob"),
        ("<script>1 < 2", ""),
        ("<br/>Ann<hr>Bob", "Ann\nBob"),
        ("<![if !IE]>Ann<![endif]> met <![1]>Bob<![CDATA[x]]>", "Ann met Bob"),
    ],
)
def test_pages_that_are_not_whole(page: str, text: str) -> None:
    assert read_html(page).text == text


@pytest.mark.parametrize(
    ("page", "title", "text"),
    [
        ("<head></head><body><svg><title>Menu</title><text>M</text></svg><p>Ann</body>", "", "M\nAnn"),
        ("<head><title>T</title></head><body><svg><title>Menu</title></svg><p>Ann</body>", "T", "Ann"),
        ("<svg><title>Menu</title></svg><title>T</title><p>Ann", "T", "Ann"),
        ("<svg/><title>T</title><p>Ann", "T", "Ann"),
        ("<body><title>Late</title><p>Ann", "", "Ann"),
    ],
)
def test_only_the_title_in_the_head_is_the_pages(page: str, title: str, text: str) -> None:
    assert read_html(page) == (title, text)


@given(st.text(alphabet="<>/!-&;abhp1 \n=\"'?[]", max_size=200))
@example("<![1")
def test_any_text_is_read(page: str) -> None:
    read = read_html(page)
    assert read.text == read.text.strip() and read.title == read.title.strip()


def test_an_html_file_is_indexed_as_its_text(run: Callable[..., Any], docs: Path, tmp_path: Path) -> None:
    (docs / "osprey.html").write_text(PAGE)
    assert run("index", "docs", "--store", "s").code == 0
    with GeARVectorStore.from_path(tmp_path / "s", embed_model=WordEmbedding()) as store:
        (node,) = store.get_nodes(["osprey.html-0"])
    assert node.get_content() == TEXT
    facts = [(triple["subject"], triple["object"]) for triple in node.metadata["gear_triples"]]
    assert any("Kestrel" in object_ for _, object_ in facts)
