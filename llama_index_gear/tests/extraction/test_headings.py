"""The subject of a section's sentences: its heading, where that names something."""

from __future__ import annotations

import pytest
from llama_index.core.node_parser import MarkdownNodeParser
from llama_index.core.schema import Document, TextNode

from llama_index_gear.extraction.mention_extractor import MentionTripleExtractor
from llama_index_gear.nodes import read_triples


def pairs(text: str, title: str | None = "T") -> list[tuple[str, str]]:
    return [(triple.subject, triple.object) for triple in MentionTripleExtractor().extract(text, title)]


HANDBOOK = """Ask Ann Lee.

## Deployment of Atlas

It runs in Frankfurt.

### Rollback

Tell Nils Berg.

### Getting Started

Ask Bo Ek.

## Backup

The dumps go to Hetzner.
"""


def test_a_heading_that_names_something_is_the_subject_of_its_section() -> None:
    assert pairs(HANDBOOK) == [
        ("T", "Ann Lee"),
        ("Deployment of Atlas", "Frankfurt"),
        ("Deployment of Atlas", "Nils Berg"),
        ("Deployment of Atlas", "Bo Ek"),
        ("T", "Hetzner"),
    ]


@pytest.mark.parametrize(
    ("heading", "subject"),
    [
        ("# Zermatt", "Zermatt"),
        ("Zermatt\n=======", "Zermatt"),
        ("<h1>Zermatt</h1>", "Zermatt"),
        ("## 3.2 The **Zermatt** Railway (1891):", "The Zermatt Railway"),
        ("## `certifi`", "certifi"),
        ("## ledger-sync", "ledger-sync"),
        ("## About the Bank of Rome", "About the Bank of Rome"),
        ("# Summary", "T"),
        ("## Summary", "T"),
        ("## Zermatt", "T"),  # one word with a capital letter could be anything
        ("## Getting Started", "T"),
        ("# Conclusions", "T"),
        ("# Osthafen $821.14", "T"),
        ("# Symbolverzeichnis", "T"),
        ("# Vorwort", "T"),
        ("# Backgrounds", "T"),
        ("# Kaiser", "Kaiser"),  # a common noun in German alone
        ("## Cameras at the barriers", "T"),
        ("## Frequently Asked Questions", "T"),
        ("## Things that people who live here have asked us again and again about Rome", "T"),
        ("##", "T"),
    ],
)
def test_headings_that_name_something(heading: str, subject: str) -> None:
    assert pairs(f"{heading}\n\nThen came Ann Lee.")[-1] == (subject, "Ann Lee")


def test_in_german_a_heading_needs_a_name() -> None:
    text = "## {}\n\nDas Werk wurde von Jonas Weber gebaut, und es ist groß."
    assert pairs(text.format("Betrieb der Anlage")) == [("T", "Jonas Weber")]
    assert pairs(text.format("Ärger mit SAP"))[-1] == ("Ärger mit SAP", "Jonas Weber")
    assert pairs("# Verwaltungen\n\nDas Werk wurde von Jonas Weber gebaut.") == [("T", "Jonas Weber")]


def test_a_heading_s_own_names_belong_to_the_section_around_it() -> None:
    assert pairs("# Zermatt\n\n## Team Ledger\n\nAsk Team Ledger and Ann.") == [
        ("Zermatt", "Team Ledger"),
        ("Team Ledger", "Ann"),
    ]


def test_without_a_title_the_heading_comes_before_the_first_name() -> None:
    assert pairs("# Zermatt\n\nAnn met Bob Lee.", None) == [("Zermatt", "Ann"), ("Zermatt", "Bob Lee")]
    assert pairs("# Summary\n\nthen Ann met Bob Lee.", None) == [("Ann", "Bob Lee")]


def test_the_headings_that_llamaindex_s_parser_leaves_above_a_node_count() -> None:
    document = Document(text=f"# Zermatt\n\n{HANDBOOK}", metadata={"title": "T"})
    nodes = MentionTripleExtractor()(MarkdownNodeParser()([document]))
    found = [(triple.subject, triple.object) for node in nodes for triple in read_triples(node)]
    assert found == [
        ("Zermatt", "Ann Lee"),
        ("Deployment of Atlas", "Frankfurt"),
        ("Deployment of Atlas", "Nils Berg"),
        ("Deployment of Atlas", "Bo Ek"),
        ("Zermatt", "Hetzner"),
    ]


@pytest.mark.parametrize("path", ["/", "", None, 5, "/Summary/"])
def test_a_path_that_names_nothing_leaves_the_title(path: object) -> None:
    (node,) = MentionTripleExtractor()([TextNode(text="in Rome", metadata={"title": "T", "header_path": path})])
    assert [triple.subject for triple in read_triples(node)] == ["T"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_front_matter_is_no_text(end: str) -> None:
    fields = ["---", "# a page of Ann Lee", "title: Big Bertha", "author: Tomas Viklund", "tags:", "  - Probat", "---"]
    text = end.join([*fields, "", "It came from Nordlager.", ""])
    assert pairs(text) == [("T", "Nordlager")]
    assert pairs(text, None) == []
    assert pairs(end.join(fields)) == []


def test_a_rule_in_front_of_a_text_is_no_front_matter() -> None:
    assert pairs("---\nIt came from Nordlager.\n\nIt went to Probat.") == [("T", "Nordlager"), ("T", "Probat")]
