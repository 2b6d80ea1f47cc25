"""Lines that the pages of a site share are no part of any of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from llama_index_gear import FolderReader
from llama_index_gear.ingestion.files import Furniture

MENU = "- [Home](index.html)\n- [Nora Blum](nora.html)"
FOOTER = "© 2025 Weserkran GmbH"


def take_off(pages: dict[str, str]) -> dict[str, str]:
    furniture = Furniture((file, [text]) for file, text in pages.items())
    return {file: furniture.take_off(file, text) for file, text in pages.items()}


def test_what_most_pages_have_is_left_out() -> None:
    own = ["# Pump House\n\nIt is old.", "# Crane Hall\n\nIt is new.", "# Slipway\n\nIt is wet."]
    pages = {f"{number}.html": f"{MENU}\n\n{text}\n\n{FOOTER}" for number, text in enumerate(own)}
    assert list(take_off(pages).values()) == own


@pytest.mark.parametrize("text", ["## Synopsis", "```\nimport os\n```", "| --- | --- |", "---"])
def test_headings_code_and_rules_stay(text: str) -> None:
    pages = {f"{number}.html": f"{text}\n\nPage {number}." for number in range(9)}
    assert take_off(pages) == pages


def test_a_page_that_was_saved_several_times_stays() -> None:
    pages = {f"{number}.html": "# Pump House\n\nIt is old." for number in range(4)}
    assert take_off(pages) == pages


def test_a_line_of_some_pages_stays() -> None:
    two = {f"{number}.html": "- [Nora Blum](nora.html)" for number in range(2)}
    assert take_off(two) == two
    half = {f"{number}.html": "- [Nora Blum](nora.html)" if number % 2 else "Text." * number for number in range(12)}
    assert take_off(half) == half


def test_a_site_may_be_a_folder_among_others() -> None:
    """Its menu is found, and what is no menu in another folder stays there."""
    site = {f"harbour/{number}.html": f"{MENU}\n\nPage {number}." for number in range(3)}
    others = {f"notes/{number}.html": f"Note {number}." for number in range(9)} | {"notes/x.html": MENU}
    taken = take_off(site | others)
    assert [taken[file] for file in site] == ["Page 0.", "Page 1.", "Page 2."] and taken["notes/x.html"] == MENU


def test_a_drawing_has_its_words_alone(tmp_path: Path) -> None:
    front = "---\nexcalidraw-plugin: parsed\n---\n"
    data = '%%\n# Drawing\n```json\n{"elements": [{"strokeColor": "#1e1e1e"}]}\n```\n%%\n'
    for name, head in (("Crane.excalidraw.md", front), ("Yard.md", "")):
        (tmp_path / name).write_text(f"{head}# Text Elements\nNora Blum ^x1\n{data}End.\n", "utf-8")
    crane, yard = (document.text for document in FolderReader(tmp_path).load_data())
    assert "Nora Blum" in crane and "Text Elements" not in crane and "Text Elements" in yard
    assert "End." in crane and "strokeColor" not in crane and "strokeColor" in yard
