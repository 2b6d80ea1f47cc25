"""Invisible characters are escaped as JSON escapes them; people's languages stay as they are."""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_index_gear.characters import count, escape_line, escape_unseen, escape_unwritable, unify_spelling
from llama_index_gear.extraction.accounting import ExtractionEstimate, ExtractionLedger
from llama_index_gear.ingestion.existing_collection import CollectionReport
from llama_index_gear.store.check_and_repair import StoreReport
from llama_index_gear.tests.growth import assert_linear
from llama_index_gear.triple import entity_key

UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of control and format characters, half characters, and separators of lines."""


def test_every_character_that_can_not_be_seen_is_escaped_wherever_it_stands() -> None:
    for number in range(sys.maxunicode + 1):
        character = chr(number)
        if unicodedata.category(character) in UNSEEN and character not in "\n\t":
            shown = escape_unseen(f"a{character}b")
            assert character not in shown and json.loads(f'"{shown}"') == f"a{character}b", hex(number)
            assert escape_line(character) == escape_unseen(character)
    assert escape_line("a\tb\r\nc") == r"a\u0009b\u000d\u000ac"


@pytest.mark.parametrize(
    "text",
    [
        "Max Born, born in Breslau:\n\t“naïve” – 5 µm²\u00a0…",
        "line\r\nline",
        "نمی\u200cخواهم",  # Persian, with a joiner that belongs to its spelling
        "क्\u200dष",
        "👩\u200d🔬 ❤\ufe0f 1\ufe0f\u20e3 葛\U000e0100",
        "שלום 東京 สวัสดี",
    ],
)
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert escape_unseen(text) == text


@pytest.mark.parametrize("text", ["Max\u200dBorn", "a\ufe0f", "\u200c", "ab\U000e0041", "\u3164", "пер\u200cвый"])
def test_names_that_look_alike_do_not(text: str) -> None:
    assert escape_unseen(text).isprintable() and "\\u" in escape_unseen(text)


@given(
    st.text(st.characters(codec=None, exclude_categories=["N", "P"]), max_size=20),
    st.sampled_from(["ascii", "latin-1", "utf-8"]),
)
def test_json_means_what_it_meant(text: str, encoding: str) -> None:
    for ascii_only in (True, False):
        written = json.dumps({"text": text, "n": 1}, ensure_ascii=ascii_only, indent=2)
        shown = escape_unwritable(escape_unseen(written), encoding)
        read = json.loads(shown.encode(encoding).decode(encoding))["text"]  # two halves in a row are read as the whole
        assert read.encode("utf-16", "surrogatepass") == text.encode("utf-16", "surrogatepass")


# -- one spelling ------------------------------------------------------------------------------------------------------


SPELLINGS = [
    ("Gro\u0308\u00dfe", "Größe"),
    ("ﬁnance oﬃce", "finance office"),
    ("ca\u034fré ❤\ufe0f 葛\U000e0100 ᠠ\u180b", "caré ❤ 葛 ᠠ"),
    ("so\u00adft ze\u200bro a\u2060b \ufeffstart", "soft zero ab start"),
    ("e\u00ad\u0301te\u0301", "été"),  # a format character between a letter and its accent
    ("ＦＵＬＬ　ＷＩＤＴＨ１２", "FULL WIDTH12"),
    ("ﾊﾝｶｸ", "ハンカク"),
    ("\u1112\u1161\u11ab\u1100\u116e\u11a8", "한국"),  # as macOS writes the names of files
    ("𝐁old Ⅳ x²", "Bold IV x2"),
    ("می\u200cخواهم", "میخواهم"),
]


@pytest.mark.parametrize(("one", "other"), SPELLINGS)
def test_two_spellings_of_the_same_letters_are_one(one: str, other: str) -> None:
    assert one != other and unify_spelling(one) == unify_spelling(other) == other
    assert entity_key(one) == entity_key(other)


@given(st.text(max_size=60))
def test_the_one_spelling_is_its_own_and_that_of_unicode(text: str) -> None:
    plain = "".join(mark for mark in text if unicodedata.category(mark) != "Cf")
    assert unify_spelling(text) == unicodedata.normalize("NFKC", plain) == unify_spelling(unify_spelling(text))


@pytest.mark.parametrize("spell", [unify_spelling, entity_key])
def test_marks_without_end_take_linear_time(spell: Callable[[str], str]) -> None:
    assert_linear(spell, lambda size: "a" + "\u0301\u0316" * size, 16_000)  # unicodedata.normalize's is quadratic


# -- one thing is counted in the singular, wherever a user reads a count -----------------------------------------------


WRONG = re.compile(r"(?<![\d,.])1 (?:\w+ed )?(?:passages|triples|calls|points|files|questions)\b")


def test_a_noun_has_its_number() -> None:
    assert [count(number, "file") for number in (0, 1, 2)] == ["0 files", "1 file", "2 files"]


@pytest.mark.parametrize(
    "report",
    [
        CollectionReport(1, 1, 0, {"no text under 'text'": 1}),
        ExtractionLedger(1, 1, outcomes={"extracted": 1}, calls=1),
        ExtractionEstimate(1, 0, 1, 100, 20, 0.1),
        StoreReport(1, 1, ("a",), ("a",), ("a",), ("a",), ("a",), ("a",), bm25_drift=1),
    ],
    ids=lambda report: type(report).__name__,
)
def test_a_report_of_one_says_one(report: object) -> None:
    assert not WRONG.search(str(report)) and re.search(r"\b1 (?:sampled )?passage\b", str(report))
