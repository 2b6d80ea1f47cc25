"""The title of a file, by its name and its text."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llama_index_gear import GeARVectorStore
from llama_index_gear.ingestion import titles
from llama_index_gear.ingestion.files import FolderReader
from llama_index_gear.ingestion.titles import find_title
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
        "हिन्दी",
        "C",
        "水",
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
        ("03_osprey.ipynb", "**Chapter 3 – The Osprey**\n\n# Setup\n\n# Sensors\n", "Chapter 3 – The Osprey"),
        ("03_osprey.md", "**Status: a draft**\n\n# The Osprey\n\n## Sensors\n", "The Osprey"),
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
        ("max-born/page_017.txt", "and so on", "Max Born page 017"),
        ("book/1.txt", "and so on", "book 1"),
        ("book/part_2/1.txt", "and so on", "book part 2 1"),
        ("book/2024-03-12.txt", "and so on", "book 2024-03-12"),
        ("docs/README.txt", "and so on", "docs"),
        ("languages/c.txt", "It is old.", "c"),
        ("languages/C++.txt", "It is old.", "C++"),
        ("languages/cpp.md", "# C++\n\nIt is old.", "C++"),
        ("fairy-tale.txt", "O\n\nnce upon a time.\n", "Fairy Tale"),
        ("hindi.md", "# हिन्दी\n\nText.", "हिन्दी"),
        ("hindi.md", "---\r\ntitle: हिन्दी\r\n---\r\n\r\nText.", "हिन्दी"),
        ("osprey-sensor.md", "---\r\ntitle: Osprey\r\n---\r\n# Other\r\n", "Osprey"),
        ("osprey-sensor.md", "---\n# a comment\nlayout: x\n---\n# Osprey\n", "Osprey"),
        ("osprey-sensor.md", "---\n# a comment\n---\nText.", "Osprey Sensor"),
        ("osprey-sensor.md", "---\n---\n# Osprey\n", "Osprey"),
        ("osprey-sensor.md", "---\n# Osprey\n\nNot YAML.\n\n---\n# Other\n", "Osprey"),
        ("osprey-sensor.md", '---\ntitle: "Osprey" # note\n---\n', "Osprey"),
        ("osprey-sensor.md", "---\ntitle: Osprey # note\n---\n", "Osprey"),
        ("osprey-sensor.md", "---\ntitle: 'Ann''s #1' # note\n---", "Ann's #1"),
        ("osprey-sensor.md", '---\ntitle: "Ann\'s \\"best\\" #1"\n---', 'Ann\'s "best" #1'),
        ("osprey-sensor.md", "---\ntitle: C# in Depth\n---\n", "C# in Depth"),
        ("osprey-sensor.md", "---\ntitle: All about robots.txt\n---\n", "All about robots.txt"),
        ("osprey-sensor.md", "---\ntitle: # none\nlayout: x\n---\n# Osprey", "Osprey"),
        ("max-born.txt", "CONFIDENTIAL\n\nHe lived.\n", "Max Born"),
        ("max-born.txt", "For internal use only\n\nHe lived.\n", "Max Born"),
        ("max-born.txt", "Dear Sir\n\nHe lived.\n", "Max Born"),
        ("max-born.txt", "Sehr geehrte Frau Ekström\n\nHe lived.\n", "Max Born"),
        ("films.txt", "Hi-Fi\n\nA club.\n", "Hi-Fi"),
        ("film.txt", "L.A. Confidential\n\nA film of 1997.\n", "L.A. Confidential"),
        ("page_017.txt", "and so on", "Page 017"),
        ("page_017.md", "% Crane Manual\n% Nora Blum\n\nText.", "Crane Manual"),
        ("page_017.md", "%% to do: rewrite %%\n# Crane Manual\n\nText.", "Crane Manual"),
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
        ("annual_report.pdf", "and so on", "report_final.docx\0", "Annual Report"),
        ("annual_report.pdf", "and so on", "905_Precinct_NoOU", "Annual Report"),
        ("annual_report.pdf", "and so on", "10811.exe", "Annual Report"),
        ("annual_report.pdf", "and so on", "COVID-19", "COVID-19"),
        ("annual_report.pdf", "and so on", "PowerPoint Presentation", "Annual Report"),
        ("annual_report.pdf", "and so on", "Layout 1", "Annual Report"),
        ("annual_report.pdf", "and so on", "(anonymous)", "Annual Report"),
        ("annual_report.pdf", "and so on", "Unbenanntes Dokument", "Annual Report"),
        ("annual_report.pdf", "and so on", "Präsentation1", "Annual Report"),
        ("annual_report.pdf", "and so on", "Pra\u0308sentation1", "Annual Report"),
        ("page_017.html", "Text.", "Unbenanntes Dokument", "Page 017"),
        ("annual_report.pdf", "and so on", "Osprey\0 handbook\0", "Osprey handbook"),
        ("annual_report.pdf", "and so on", "What's New in Python 3.12", "What's New in Python 3.12"),
        ("annual_report.pdf", "and so on", "Introduction to Node.js", "Introduction to Node.js"),
        ("page_017.pdf", "", "Microsoft Corporation Annual Report", "Microsoft Corporation Annual Report"),
        ("annual_report.docx", "# Kestrel in *2023*\n\nIt grew.", "Document1", "Kestrel in 2023"),
        ("annual_report.tex", "Text.", "On \\emph{Kestrel}", "On Kestrel"),
        ("annual_report.tex", "Text.", "\\centering Quantum vs.\\ Kestrel", "Quantum vs. Kestrel"),
        ("annual_report.tex", "Text.", "\\kestrel", "Annual Report"),
        ("annual_report.pdf", "and so on", "Of C:\\temp", "Of C:\\temp"),
        ("annual_report.rst", "# Kestrel :sub:\\`x\\`\n\nIt grew.", "", "Kestrel x"),
        ("annual_report.pdf", "Kestrel in 2023\n\nIt grew.", "untitled", "Kestrel in 2023"),
    ],
)
def test_what_a_file_states_of_itself_comes_first(file: str, text: str, stated: str, title: str) -> None:
    assert find_title(file, text, stated) == title


@given(
    st.text(max_size=60) | st.text(alphabet="\xa0\u3000 _-aÉ1/", max_size=6),
    st.text(alphabet="# -=_\n`*aBéßİ1.", max_size=200),
    st.sampled_from([".md", ".txt", ".html", ".py"]),
)
@example("\xa0_\xa0", "a-b", ".txt")
@example("\u3000", "", ".txt")
@example("\u3000", "", ".py")
@example("\u3000/1", "", ".txt")
@example("\u0301 \u0301", "a-b", ".txt")
def test_every_file_has_a_title(stem: str, text: str, ending: str) -> None:
    title = find_title(f"{stem}{ending}", text)
    assert title == title.strip() != ""


@pytest.mark.parametrize("file", ["a\xa0.txt", "A\xa0.txt", "\u3000a.md"])
def test_spaces_around_a_name_are_left_out(file: str) -> None:
    assert find_title(file, "Some - text.").casefold() == "a"


@pytest.mark.parametrize("stem", ["\xa0_\xa0", "\u0301 \u0301"])
def test_a_name_without_words_is_not_looked_for_in_the_text(stem: str) -> None:
    assert find_title(f"{stem}.txt", "Some - text.") == stem.strip()


def test_pages_of_a_site_have_different_titles(tmp_path: Path) -> None:
    docs = tmp_path / "site"
    docs.mkdir()
    pages = {"1": "Acme | Products", "2": "Acme | Team", "3": "Osprey | Kestrel", "4": "Max Born | Kestrel"}
    for stem, title in pages.items():
        (docs / f"{stem}.html").write_text(f"<title>{title}</title><p>Text.", "utf-8")
    (docs / "5.html").write_text("<title>Acme | Jobs</title><h1>Acme</h1><p>Text.", "utf-8")
    (docs / "6.html").write_text("<title>Acme | Jena</title><h1>Works in Jena</h1><p>Text.", "utf-8")
    reader = FolderReader(docs, tmp_path / "s")
    found = [document.metadata["title"] for path in reader.list_files() for document in reader.read(path)]
    assert found == ["Acme | Products", "Acme | Team", "Osprey", "Max Born", "Acme | Jobs", "Works in Jena"]


class Watched:
    """A pattern that keeps the length of the longest line that it was matched with."""

    longest = 0

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern = pattern

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def match(*arguments: str) -> Any:
            Watched.longest = max(Watched.longest, *map(len, arguments[-1].split("\n")))
            return getattr(self.pattern, method)(*arguments)

        return match


def test_patterns_that_try_every_place_see_no_long_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """On such a line they would take minutes."""
    monkeypatch.setattr(titles, "_MARKUP", [(Watched(pattern), text) for pattern, text in titles._MARKUP])
    for name in ("_HEADING", "_STATED_IN_FRONT"):
        monkeypatch.setattr(titles, name, Watched(getattr(titles, name)))
    for text in (
        "# " + "*a_ #" * 100_000,
        "`" * 500_000 + "\n\nText.",
        "max " * 100_000,
        f"---\ntitle: x{' ' * 500_000}x\n---\n",
    ):
        assert find_title("max-born.md", text) == find_title("max-born.txt", text) == "Max Born"
    assert find_title("max-born.md", f"# {'x' * 450}") == "Max Born" and 450 <= Watched.longest <= 500


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


@pytest.mark.parametrize(
    ("file", "text", "title"),
    [
        ("a.txt", ":toc:\n= Pump Manual\n\nx", "Pump Manual"),
        ("whats-new.txt", "= What's New in {version}\n\nx", "Whats New"),
        ("a.md", "# The {py:mod}`pump` &amp; :ref:`its yard`\n\nx", "The pump & its yard"),
        ("a.txt", ".. _x:\n\n=======\n Pump A\n=======\n\ntext", "Pump A"),
        ("guide.txt", "Pump Guide\n==========\n\ntext", "Pump Guide"),
        ("sort-page.txt", "SORT(1)        User Commands        SORT(1)\n\nNAME\n  sort - x", "sort"),
        ("sort.1", '.\\" c\n.TH SORT "1" x', "sort"),
        ("x.dist-info/METADATA", "Metadata-Version: 2.1\nName: click\nVersion: 8\n\nText.", "click"),
        ("PKG-INFO", "Metadata-Version: 2.1\nName: click\n", "click"),
        ("Yard Plan 0123456789abcdef0123456789abcdef.md", "text", "Yard Plan"),
        ("p.md", '+++\ndate = 2025\ntitle = "Hugo Page"\n+++\nx', "Hugo Page"),
        ("p.md", '+++\ntitle = """Hugo Page"""\n"quoted" = 1\ntags = [\n"a",\n]\n+++\n# Other\n', "Hugo Page"),
        ("p.md", '{\n  "tags": ["a"],\n  "title": "Hugo \\"Page\\"",\n  "a": {"b": 1}\n}\n\n# Other\n', 'Hugo "Page"'),
        ("p.md", ';;;\n{\n  "title": "Hexo Page"\n}\n;;;\n# Other\n', "Hexo Page"),
        ("p.md", "---\ntitle: >-\n  The Folded\n  Yard\nauthor: Nora\n---\n# Other\n", "The Folded Yard"),
        ("p.md", "---\ntitle: |\n  The Literal Yard\n---\n# Other\n", "The Literal Yard"),
        ("p.md", '---\n"title":\n  The Next\n  Line\nbook:\n  title: No\n---\n# Other\n', "The Next Line"),
        ("p.md", "---\nbook:\n  title: No\n---\n# Other\n", "Other"),
        ("p.md", "{\n\n}\n# Other\n", "Other"),
        (
            "p.md",
            '<p><img src="x.png"></p>\n<h1 align="center">\n  Crane\n  <br>Planner\n</h1>\n\n# Other\n',
            "Crane Planner",
        ),
        ("p.md", "```html\n<h1>\nNo\n</h1>\n```\n\n# Other\n", "Other"),
        ("l.md", "alias:: x\ntitle:: Log Page\n\n- a", "Log Page"),
        ("minutes.txt", "Nora Blum opened the meeting.\n----------\nPaul", "minutes"),
        ("note.txt", "[tabs]\n======\nJava", "note"),
    ],
)
def test_a_title_in_the_form_of_its_format(file: str, text: str, title: str) -> None:
    assert find_title(file, text) == title
