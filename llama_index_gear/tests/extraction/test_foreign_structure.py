"""The structure of files of all kinds ends names, and is no name."""

from __future__ import annotations

import pytest
from llama_index.core.schema import TextNode

from llama_index_gear import MentionTripleExtractor, read_triples


def find(text: str, **metadata: object) -> dict[str, set[str]]:
    """Return subject → names of a passage."""
    node = TextNode(text=text, metadata={"title": "Yard", **metadata})
    found: dict[str, set[str]] = {}
    for triple in read_triples(MentionTripleExtractor()([node])[0]):
        found.setdefault(triple.subject, set()).add(triple.object)
    return found


MARKDOWN = {"file": "a.md"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (  # steps, each with a line
            "Scenario: Yard\nGiven the yard Osthafen is open\nWhen she opens Booking Portal\nThen Paul Kern sees it\n",
            {"Osthafen", "Booking Portal", "Paul Kern"},
        ),
        ("the yard is open\nand she sees the Booking\nPortal of\nPaul Kern\n", {"Booking Portal", "Paul Kern"}),
        ("Network Working Hall      N. Blum\n\nBlum       Bremen        1999\n", {"Network Working Hall", "N. Blum"}),
        ("Nora Blum   lives in Bremen.", {"Nora Blum", "Bremen"}),
        ("**Nora**    Blum is here. [LAUGHTER]\n\n[CROSSTALK]\n\nIt is over in Bremen.", {"Bremen"}),
        ("<p>&lt;b&gt;Osthafen&lt;/b&gt;</p> stands in Bremen.", {"Bremen"}),
        ("We call `a</b>` in Bremen.", {"a</b>", "Bremen"}),
        ("- TODO Call [[Nora Blum]]\n- DONE Visit Bremen\n- #+BEGIN_QUOTE\n  Paul Kern said so.\n", None),
    ],
)
def test_structure_ends_names(text: str, names: set[str] | None) -> None:
    found = find(text, file="a.xml" if "&lt;" in text else "a.md").get("Yard", set())
    if names is None:
        assert found == {"Nora Blum", "Bremen", "Paul Kern"}
    else:
        assert names <= found
        wrong = ("LAUGHTER", "CROSSTALK", "title", "Scenario", "Then", "gt;")
        assert not [name for name in found for word in wrong if word in name]
        assert not found & {"Booking", "Portal", "Blum Bremen", "Network Working Hall N. Blum"}


@pytest.mark.parametrize(
    "address", ["https://a.example/v1?filter[name]=ada&page[size]=10", "https://a.example/x?b=[2]"]
)
def test_brackets_of_an_address_are_no_text_of_a_link(address: str) -> None:
    node = TextNode(text=f"We call {address} daily.", metadata={"title": "Yard"})
    (triple,) = read_triples(MentionTripleExtractor()([node])[0])
    assert triple.predicate == node.text and triple.object.rstrip("]") == address.rstrip("]")
    assert find("We call https://a.example/x[Paul Kern] daily.") == {"Yard": {"Paul Kern", "https://a.example/x"}}


def test_a_word_of_marks_that_show_nothing_is_no_word() -> None:
    text = "The arc stands at 27.46 \ufeff / \ufeff 153.04 in Bremen \u200b\u2060 and \u3164 Visby."
    assert {"Bremen", "Visby"} <= find(text)["Yard"]


def test_what_is_left_of_a_version_is_no_subject() -> None:
    text = "## [1.2.0] - 2024-05-01\n\nNora Blum joins.\n\n[1.2.0]: https://x.example/1\n"
    assert set(find(text, **MARKDOWN)) == {"Yard"}


def test_what_points_to_a_link_is_no_name() -> None:
    text = "- Ver [[Osthafen]]\n- Detalle [[Bremen]]\n- Nora [[Bremen|in town]], where Nora paints."
    assert find(text, **MARKDOWN)["Yard"] == {"Osthafen", "Bremen", "Nora"}


def test_a_piece_of_a_sentence_is_no_subject() -> None:
    assert set(find("# month of Osthafen.\n\nNora Blum joins.\n", **MARKDOWN)) == {"Yard"}
    assert find("# pump-house\n\nNora Blum joins.\n", **MARKDOWN)["pump-house"] == {"Nora Blum"}


@pytest.mark.parametrize(
    ("link", "name"),
    [
        ("In Depth: Naive Bayes Classification", True),
        ("Computation on NumPy Arrays", True),
        ("The Cranes of Bremen – a History", True),
        ("Cranes in Bremen and how they work", False),
        ("Nora Blum", False),
        ("Read the manual of Bremen", False),
    ],
)
def test_the_text_of_a_link_in_title_case_is_one_name(link: str, name: bool) -> None:
    found = find(f"We see more in [{link}](b.md), and stop.", **MARKDOWN)["Yard"]
    assert (link in found) == (name or link == "Nora Blum")
    assert not name or found == {link, "b.md"}
    stated = find(f"We see more in {link}, and stop.", links=[[link, "b.ipynb"]]).get("Yard", set())
    assert (link in stated) == (name or link == "Nora Blum")


def test_links_of_any_form_in_the_metadata_are_left() -> None:
    assert find("Nora Blum is here.", links=["x", ["a", 1, 2], [3, 4], None]) == find("Nora Blum is here.", links="x")


def test_kinds_and_places_are_no_names() -> None:
    text = "- *Learning*: Models that predict labels\n- Osthafen, by Nora. We see it in the Appendix, in Bremen."
    found = find(text, **MARKDOWN)["Yard"]
    assert "Bremen" in found and not found & {"Models", "Appendix"}


def test_decorators_and_commands_of_code_are_no_persons() -> None:
    code = "@property\ndef crane(self): ...\n\n@pytest.mark.slow\ndef pump(self): ...\n# Ask @nora of Bremen.\n"
    assert {"@nora", "Bremen", "pytest.mark.slow"} <= find(code, file="crane.py")["Yard"]
    assert "@property" not in find(code, file="crane.py")["Yard"]
    assert find("all:\n\t@echo\n\n\t@echo Build is in Bremen.\n", file="Makefile")["Yard"] == {"Bremen"}
    assert find("echo.\necho.Build is in Bremen.\n", file="make.bat")["Yard"] == {"Bremen"}
    assert find("```python\n@property\ndef crane(self): pump_id\n```\n", **MARKDOWN)["Yard"] == {"pump_id"}


def test_commands_that_print_are_no_part_of_what_they_print() -> None:
    lines = "echo.Build is in Bremen.\n\nechoed by Nora Blum\n"
    (node,) = MentionTripleExtractor()([TextNode(text=lines, metadata={"title": "Yard", "file": "make.bat"})])
    assert [triple.predicate for triple in read_triples(node)] == ["Build is in Bremen.", "echoed by Nora Blum"]


def test_a_choice_of_those_that_a_label_lists_is_no_name() -> None:
    text = "town: Bremen; layoff/closure: {} Permanent; yard/owner: Nora Blum."
    for choice in ("Layoff", "Closure"):
        assert find(text.format(choice), **MARKDOWN)["Yard"] == {"Bremen", "Nora Blum"}
    assert "Osthafen Permanent" in find(text.format("Osthafen"), **MARKDOWN)["Yard"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("#Harbour Nora Blum met #Ships/Cranes Paul Kern.", {"Harbour", "Nora Blum", "Ships/Cranes", "Paul Kern"}),
        ("The yard ((Osthafen)) is in Bremen ((64a1b2-c3)).", {"Osthafen", "Bremen"}),
        ("- TODO Paul Kern paints\n- DONE [[Bremen]]\n  id:: 6423-Abc\n  collapsed:: true", {"Paul Kern", "Bremen"}),
        ("- Nora Blum ((64230000-ab12-4000-8000-000000000000)) is in [[Bremen]]", {"Nora Blum", "Bremen"}),
        ("{{% notice tip %}}Nora Blum is here.{{% /notice %}}", {"Nora Blum"}),
        ('{{< tab "Weser" >}} {% raw %}\nNora Blum is here.', {"Nora Blum"}),
        (".. note:: Nora Blum is here.\n\n.. image:: Weser.png\n", {"Nora Blum"}),
        ("{/* Paul Kern */}\n\nNora Blum is here.", {"Nora Blum"}),
        ("\x1b[31mNora Blum\x1b[0m is here.", {"Nora Blum"}),
        ("SORT(1)         User Commands         SORT(1)\n\nNora Blum is here.\n\nGNU   2025   SORT(1)", {"Nora Blum"}),
        ('=== "Python"\n    Nora Blum is here.\n\n===! "Java"\n    Paul Kern is here.', {"Nora Blum", "Paul Kern"}),
        ("[![Build Status](https://a.b/c.svg)](https://a.b) [![Of MIT](https://shields.b/c)](x)\n\nAsk Ann.", {"Ann"}),
        ("Nora Blum is here.\n\nPage 13 of 40\n\nPaul Kern is here.", {"Nora Blum", "Paul Kern"}),
        ("Nora Blum<sup>3</sup> is in Bremen[3](#fn3).", {"Nora Blum", "Bremen"}),
        ("She is in [[yards:bremen|Bremen]].", {"Bremen"}),
        ("/**\n * It lifts Nora Blum.\n * @param crane it\n * @return no\n */\nlift();", {"Nora Blum"}),
        ("Token eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0 for Nora Blum.", {"Nora Blum"}),
        ("export PATH=$HOME/Bin:$PATH by Nora Blum, in Mode=${Weser}", {"Nora Blum"}),
        ("Clone git@github.com:Nora/Osthafen.git here.", {"git@github.com:Nora/Osthafen.git"}),
    ],
)
def test_marks_of_notes_pages_and_terminals_are_no_names(text: str, names: set[str]) -> None:
    assert find(text, **MARKDOWN)["Yard"] == names
