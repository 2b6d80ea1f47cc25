"""The title of a file, by its name and its text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_index_gear import GeARVectorStore
from llama_index_gear.cli.titles import find_title
from llama_index_gear.testing import WordEmbedding

PROSE = "He was born in Uppsala.\n\nMikael Ekström leads the team at Kestrel."


@pytest.mark.parametrize(
    "stem",
    [
        "Max Born",
        "J. Robert Oppenheimer",
        "Jamestown, Virginia",
        "Olivia Newton-John",
        "Lego",
        "Apollo 11",
        "華為",
    ],
)
@pytest.mark.parametrize("ending", [".txt", ".md", ".html", ".pdf"])
def test_a_name_stays_as_it_is(stem: str, ending: str) -> None:
    assert find_title(f"people/{stem}{ending}", "# Another\n\nText.", "Stated") == stem


@pytest.mark.parametrize(
    ("file", "text", "title"),
    [
        ("page_017.md", "Intro.\n\n# Max Born\n\nText.", "Max Born"),
        ("README.md", "# The [Osprey](x.html) `sensor` {#top}\n\nText.", "The Osprey sensor"),
        ("readme.md", "```sh\n# not this\n```\n# Osprey #\n", "Osprey"),
        ("osprey-sensor.md", "Osprey Sensor Handbook\n===\n\nText.", "Osprey Sensor Handbook"),
        ("osprey-sensor.md", "---\nlayout: x\ntitle: 'Osprey: the sensor'\n---\n# Other\n", "Osprey: the sensor"),
        ("osprey-sensor.md", "# Overview\n\nText.", "Osprey Sensor"),
        ("osprey-sensor.md", "## 3.0.0\n\nText.", "Osprey Sensor"),
        ("index.html", "# Max Born\n\nText.", "Max Born"),
        ("doc.txt", "Max Born\n\nHe was a physicist.", "Max Born"),
        ("doc.txt", "Max Born\n--------\nHe was a physicist.", "Max Born"),
        ("max-born.txt", "Dear Ann,\n\nMAX BORN wrote.", "MAX BORN"),
        ("max-born.txt", "From: Ann\n\nText.", "Max Born"),
        ("max-born.txt", "He was a physicist.\n\nText.", "Max Born"),
        ("max-born.txt", "Only line", "Max Born"),
        ("people-mikael-ekstrom.txt", PROSE, "Mikael Ekström"),
        ("people_mikael_ekstrom.txt", "Nothing.", "People Mikael Ekstrom"),
        ("ledger-sync.md", "It stops ledger-sync at night.", "ledger-sync"),
        ("Coca-Cola.txt", "A drink.", "Coca-Cola"),
        ("Albert-Einstein.txt", "Here Albert Einstein lived.", "Albert Einstein"),
        ("paygate.md", "It pays.", "paygate"),
        ("2024-03-12_minutes.txt", "- all agreed", "2024-03-12 Minutes"),
        ("history-of-the-house.txt", "It is old.", "History of the House"),
        ("max born.txt", "He lived.", "Max Born"),
        ("Max Born/index.md", "Text.", "Max Born"),
        ("max-born/page_017.txt", "and so on", "Max Born"),
        ("page_017.txt", "and so on", "Page 017"),
        ("my_module.py", "Max Born\n\nText.", "my_module"),
        ("table.csv", "Name\n\nAda", "table"),
    ],
)
def test_a_name_that_says_little_gives_way_to_the_text(file: str, text: str, title: str) -> None:
    assert find_title(file, text) == title


@pytest.mark.parametrize(
    ("file", "text", "stated", "title"),
    [
        ("page_017.html", "# Max Born\n\nText.", "Max Born | Physics", "Max Born"),
        ("page_017.html", "# Physics\n\nText.", "Max Born - Physics", "Max Born"),
        ("page_017.html", "Text.", "Max Born – Physics", "Max Born"),
        ("page_017.pdf", "and so on", "Annual Report 2023", "Annual Report 2023"),
        ("annual_report.pdf", "and so on", "Microsoft Word - draft3.docx", "Annual Report"),
        ("annual_report.pdf", "and so on", "report_final.tex", "Annual Report"),
        ("annual_report.pdf", "Kestrel in 2023\n\nIt grew.", "untitled", "Kestrel in 2023"),
    ],
)
def test_what_a_file_states_of_itself_comes_first(file: str, text: str, stated: str, title: str) -> None:
    assert find_title(file, text, stated) == title


@given(st.text(max_size=60), st.text(alphabet="# -=_\n`*aBéßİ1.", max_size=200), st.sampled_from([".md", ".txt"]))
def test_every_file_has_a_title(stem: str, text: str, ending: str) -> None:
    assert find_title(f"x{stem.replace('/', '')}{ending}", text).strip()


def test_a_long_line_takes_no_time() -> None:
    for text in ("# " + "*a_ #" * 100_000, "`" * 500_000 + "\n\nText.", "max " * 100_000):
        assert find_title("max-born.md", text) == find_title("max-born.txt", text) == "Max Born"


def test_titles_are_subjects_of_facts(run: Callable[..., Any], docs: Path, tmp_path: Path) -> None:
    (docs / "people-mikael-ekstrom.md").write_text("# Mikael Ekström\n\nHe was taught by Max Born.", "utf-8")
    (docs / "page_3.html").write_text("<title>Osprey | Kestrel</title><p>A sensor from Jena.", "utf-8")
    assert run("index", "docs", "--store", "s").code == 0
    with GeARVectorStore.from_path(tmp_path / "s", embed_model=WordEmbedding()) as store:
        stored = {node.metadata["file"]: node.metadata for node in store.get_nodes()}
    subjects = {file: {triple["subject"] for triple in values["gear_triples"]} for file, values in stored.items()}
    assert subjects["people-mikael-ekstrom.md"] == {"Mikael Ekström"} and subjects["page_3.html"] == {"Osprey"}
    asked = run("ask", "Who taught Mikael?", "--store", "s")
    assert " Mikael Ekström (people-mikael-ekstrom.md)\n" in asked.out
