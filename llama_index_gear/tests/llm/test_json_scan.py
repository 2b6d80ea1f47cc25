"""JSON in a model's reply: objects found, objects refused, and the work that this takes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_index_gear.errors import ReplyError
from llama_index_gear.llm.json_scan import (
    MAX_REPLY_LENGTH,
    UNSEARCHED,
    Fields,
    Number,
    ScannedReply,
    scan,
)
from llama_index_gear.tests.scanning import PARSERS, scan_reply


def scan_values(text: str) -> list[Any]:
    return [span.value for span in scan(text) if span.is_read]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", []),
        ("No JSON (here).", []),
        ('{"a": 1}', [{"a": "1"}]),
        ('So: ```json\n[1, {"a": []}]\n``` and {"b": null}!', [["1", {"a": []}], {"b": None}]),
        ('{broken {"a": true}', [{"a": True}]),
        ('{"a": [{"b": "c"}, {"d": "e', [{"b": "c"}]),
        ('{"a": "b",} [1]', [{"a": "b"}, ["1"]]),
        ("{'a': True, 'b': ('c', None, 'Ann\\'s d\"e')}, [\"x\" \"y\"]", [{"a": True, "b": ["c", None, "Ann's d\"e"]}]),
        ('{a: 1, // one\n "b": /* two */ [2,], # three\n}', [{"a": "1", "b": ["2"]}]),
        ('{"a": "so "called" b", "c": "C:\\dir \\alpha"}', [{"a": 'so "called" b', "c": "C:\\dir \\alpha"}]),
        ("{“a”: [“b”]} {'a': 'b', c} {'a': 'b'", [{"a": ["b"]}]),
        ('{"a": "b\nc"}', [{"a": "b\nc"}]),
        ('{"a": 1, "a": 2}', [{"a": "2"}]),
        ("[1.50, -0, 1e999, NaN, " + "9" * 9_999 + "]", [["1.50", "-0", "1e999", "NaN", "9" * 9_999]]),
    ],
)
def test_values_of_a_text(text: str, values: list[Any]) -> None:
    assert scan_values(text) == values
    for span in scan(text):
        assert text[span.start] in "[{" and (not span.is_read or text[span.end - 1] in "]}")


def test_numbers_are_texts_that_are_known_for_numbers() -> None:
    ((number, text, flag),) = scan_values('[1.0, "1.0", true]')
    assert (number, type(number), type(text), flag) == ("1.0", Number, str, True)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (r"\ud800", "\ufffd"),
        (r"\uDFFFx", "\ufffdx"),
        (r"\ud83d\ude00", "\U0001f600"),
        (r"\uD83D\uDE00", "\U0001f600"),
        (r"\ude00\ud83d", "\ufffd\ufffd"),
        (r"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        (r"\\ud800", r"\ud800"),
        (r"\\\ud800", "\\\ufffd"),
        (r"\u00e9\n", "é\n"),
    ],
)
def test_texts_hold_no_half_characters(written: str, value: str) -> None:
    assert scan_values(f'{{"{written}": ["{written}"]}}') == [{value: [value]}]


@given(st.text(st.characters(), max_size=40), st.lists(st.text(st.characters(codec=None), max_size=9), max_size=4))
def test_what_is_read_can_be_written(prose: str, strings: list[str]) -> None:
    text = prose.replace("[", "(").replace("{", "(") + json.dumps(strings)
    (value,) = scan_values(text)
    json.dumps(value, ensure_ascii=False).encode()
    assert len(value) == len(strings)


# -- how much is done -----------------------------------------------------------------------------------------------

NASTY = {
    "lists": ("", "["),
    "objects": ("", '{"a":'),
    "closed lists": ("", "[]"),
    "closed objects": ("", "{}"),
    "cut off behind objects": ("[" * 60, '{"a":1},'),
    "cut off behind numbers": ('{"a":[' * 30, "1,"),
    "cut off behind pairs": ('{"b":' * 60 + "{", '"a":1,'),
    "quotes": ("[", '"'),
    "quotes in tuples": ("", "('a','b',"),
    "backslashes": ('["', "\\"),
    "half characters": ('["', "\\ud800"),
    "digits": ("[", "1"),
    "fences": ("", "```"),
    "fences in lines": ("", "```\n"),
    "thoughts": ("", "<think>"),
    "thoughts in lines": ("", "<think>\n"),
    "thoughts that end in a statement": ("", "<think>\na|</think>"),
    "ends of thoughts": ("", "</think>\n"),
    "ends of thoughts in JSON": ("", '["\n</think>\n"]'),
    "flags": ("", "answerable: sufficient: query: "),
    "rankings": ("", "[1] > "),
    "clues": ("", "1. a | b | c\n"),
    "facts that are cut off": ("", '{"facts": [{"clue": 1, "triple": ["a", '),
    "long notes": ('{"query": "Who?", "notes": "', "x"),
    "pipes": ("", "|"),
}


def count_steps(parse: Callable[[ScannedReply], Any], reply: str) -> tuple[int, int]:
    """Count the function calls during the parsing of a reply, and the JSON objects that are made."""
    calls = made = 0

    def count(frame: Any, event: str, _: Any) -> None:
        nonlocal calls, made
        calls += event in ("call", "c_call")
        made += event == "call" and frame.f_code is Fields.__init__.__code__

    sys.setprofile(count)
    try:
        parse(scan_reply(reply))
    except ReplyError:
        pass
    finally:
        sys.setprofile(None)
    return calls, made


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("kind", NASTY)
def test_twice_the_reply_takes_twice_the_steps(parser: str, kind: str) -> None:
    start, unit = NASTY[kind]
    counts = []
    for size in (1_000, 2_000, 4_000):
        calls, made = count_steps(PARSERS[parser], start + unit * (size // len(unit)))
        counts.append(calls)
        assert made <= 25 * (60 + size // len(unit))  # a value that is cut off is read some times, not fifty
    assert counts[2] - counts[1] < 2.5 * max(counts[1] - counts[0], 0) + 2_000, counts
    assert counts[2] < 60 * 4_000


@pytest.mark.parametrize("text", ["[" * 10_000, "{ " * 51, "{" * 49 + '{"a": "b"}' * 9 + "{{", "[" * 49 + "1," * 9_999])
def test_the_search_ends_and_says_so(text: str) -> None:
    spans = list(scan(text))
    assert len(spans) <= 61 and spans[-1].value is UNSEARCHED and spans[-1].end == len(text)
    assert all(span.value is not UNSEARCHED for span in spans[:-1])


@pytest.mark.parametrize("parser", PARSERS)
def test_a_reply_that_no_one_asked_for_is_not_read(parser: str) -> None:
    reply = '{"triples": [["a", "b", "c"]], "answerable": true, "sufficient": true, "query": "Who?", "needed": [1]} [1]'
    long = reply + " " * (MAX_REPLY_LENGTH + 1 - len(reply))
    with pytest.raises(ReplyError, match="has 500001 characters; none of more than 500000 is read"):
        PARSERS[parser](scan_reply(long))
    PARSERS[parser](scan_reply(long[:-1]))
