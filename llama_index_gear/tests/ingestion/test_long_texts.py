"""Reading a file takes time that grows with its length, whatever is in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from llama_index_gear.extraction.inline import Link
from llama_index_gear.extraction.lines import prepare_lines
from llama_index_gear.extraction.link_extractor import _find_words
from llama_index_gear.ingestion.converter import _prepare_org, sub_prose
from llama_index_gear.ingestion.emails import clean_letter, read_plain_letter
from llama_index_gear.ingestion.file_texts import explain_no_prose, read_wikitext
from llama_index_gear.ingestion.gherkin import read_gherkin
from llama_index_gear.ingestion.tex import clean_tex, prepare_tex, read_bibliography
from llama_index_gear.ingestion.transclusion import _HEADING, Transclusion
from llama_index_gear.tests.growth import assert_linear


def show(text: str) -> str:
    return Transclusion(["a.md", "b.md"], {"b.md": text}.__getitem__).fill(
        "![[b#^id]]\n\n![[b#Part]]\n\n![[b]]", "a.md"
    )


@pytest.mark.parametrize(
    ("read", "make"),
    [
        (lambda text: explain_no_prose("a.md", text), lambda n: "\n" * (n * 3 // 50) + "Hello"),
        (show, lambda n: "# a" + " " * n + "b"),
        (show, lambda n: "```a\n" * (10 * n)),
        (lambda text: sub_prose(_HEADING, lambda match: match[0], text), lambda n: "~~~a\n" * (10 * n)),
        (read_gherkin, lambda n: "Given a'" * 20 * n + ": x"),
        (read_wikitext, lambda n: "=" + " " * 3 * n + "x"),
        (read_wikitext, lambda n: "{{infobox |" + " " * 3 * n + "}}"),
        (read_wikitext, lambda n: "<!-- <ref> <ref name=a>" * 20 * n),
        (read_wikitext, lambda n: "{|\n| a\n" * 20 * n),
        (read_wikitext, lambda n: "[https://a" * 10 * n),
        (_prepare_org, lambda n: "#+begin_src a\nb\n" * 20 * n),
        (
            lambda text: list(_find_words(text, [Link("a" + " " * 7 + "b", "b", 0, 0)])),
            lambda n: "a" + " " * (n // 10) + "c",
        ),
        (read_plain_letter, lambda n: f"From: a\nTo: b\n\n{' ' * 30 * n}x\n"),
        (read_plain_letter, lambda n: f"From: a\nTo: b\n\n{'> ' * 15 * n}\n"),
        (clean_letter, lambda n: "[[" + "deleted " * 8 * n + "\n"),
        (prepare_tex, lambda n: " " * 30 * n + "x"),
        (prepare_tex, lambda n: rf"\def\a{{{'ab ' * 20 * n}}}" + r"\a " * 20 * n),
        (clean_tex, lambda n: "**author**: " + "\\" * 20 * n),
        (lambda text: list(read_bibliography(text)), lambda n: "@book{a," + "a" * 20 * n),
        (lambda text: prepare_lines(text, is_known=True), lambda n: "- a\n" + " \t" * 10 * n + "- b"),
        (lambda text: prepare_lines(text, is_known=True), lambda n: "[![x](" + "badge" * 20 * n),
    ],
    ids=[
        *(
            "blank lines",
            "heading",
            "open fences",
            "open tildes",
            "steps",
            "wiki's heading",
            "wiki's field",
            "wiki's notes",
            "wiki's tables",
            "wiki's addresses",
            "blocks of Org",
            "words of a link",
        ),
        *("blank line of a letter", "quoted line", "note of a list", "white space of TeX", "command for a long text"),
        *("backslashes", "field of a bibliography", "item that is set in far", "badges"),
    ],
)
def test_eight_times_the_text_takes_no_sixty_four_times_as_long(
    read: Callable[[str], Any], make: Callable[[int], str]
) -> None:
    assert_linear(read, make, 400)
