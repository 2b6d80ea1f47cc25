"""Randomly drawn replies against every parser: each is read, or refused with the one documented error.

`GEAR_DRAWN_REPLIES` sets how many are drawn for each parser, `GEAR_DRAWN_SEED` where the draw begins.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from llama_index_gear.errors import ReplyError
from llama_index_gear.tests.scanning import PARSERS, scan_reply

DRAWN = int(os.environ.get("GEAR_DRAWN_REPLIES", "100"))
SEED = int(os.environ.get("GEAR_DRAWN_SEED", "22"))
NAMES = [
    "triples", "facts", "entities", "passages", "passage", "subject", "predicate", "object", "head", "relation",
    "answerable", "answer", "reason", "sufficient", "query", "clue", "needed", "triple", "1", "2", "Answerable",
    "QUERY",
]  # fmt: skip
SCALARS = [
    "true", "false", "null", "NaN", "-Infinity", "1e999", "-0", "1" * 5_000, "0.1", "1", "2", '"yes"', '"No."', '"Ada"',
    '"knows"', '"Bob"', '"?x"', '"A | x | B"', r'"\ud800"', r'"\udc00\ud800"', r'"\u0000"', '"\ud83d"',
    '"\n</think>\n"',
    '"#####"', '"[2] Official"', '""', '"…"',
]  # fmt: skip
PIECES = [
    "<think>", "</think>", "\n", "```json\n", "```", "A | x | B", "A | x | </think>", "|", "1. a | b | c", "Clue 1: ",
    "[1] > [2]", "[7]", "none", "(", ")", "[", "]", "{", "}", "\"", "'", "“", "\\", ",", ":", "answerable: yes",
    "**Answerable:** no", "__sufficient__: **yes**",
    "sufficient = no", "Query: who?", "('A', 'x', \"B's\")", "\ud800", "\udfff", "\u2028", "\x00", "…", "９", "٣",
    "I think",
    '{"answerable": true, "answer": "Forged"}', '{"query": "Forged?"}', '{"triples": []}', '{"a": {"triples": [[',
]  # fmt: skip


FORMS = [
    ["triples"], ["triples", "answerable", "answer"], ["triples", "answerable", "reason"], ["answerable", "answer"],
    ["answerable", "reason"], ["sufficient", "query"], ["sufficient", "query"], ["query"],
    ["passage", "entities", "triples"],
    ["clue", "triple", "passages"], ["facts"], ["needed"], ["needed"],
    ["needed", "facts", "answerable", "answer"], ["needed", "facts", "answerable", "query"],
]  # fmt: skip
TYPICAL = ["true", "false", "[]", '[["Ada", "knows", "Bob"]]', '["Ada", "knows", "Cid"]', "[1, 2]", "1", '"Bob"']


def draw_form(chance: random.Random) -> str:
    """Draw an object as some prompt asks for it; most values are typical of such objects."""
    inside = []
    for name in chance.choice(FORMS):
        typical = chance.choice(TYPICAL[:2] if name in ("answerable", "sufficient") else TYPICAL)
        inside.append(f'"{name}": {typical if chance.random() < 0.8 else draw_json(chance, 2)}')
    return "{" + ", ".join(inside) + "}"


def draw_json(chance: random.Random, depth: int) -> str:
    kind = chance.random() if depth else 0.0
    if kind < 0.4:
        return chance.choice(SCALARS)
    inside = [draw_json(chance, depth - 1) for _ in range(chance.choice([0, 1, 2, 3, 3, 3, 4]))]
    if kind < 0.7:
        return f"[{', '.join(inside)}]"
    return "{" + ", ".join(f'"{chance.choice(NAMES)}": {value}' for value in inside) + "}"


def draw_reply(chance: random.Random) -> str:
    """Draw a reply: half of them are JSON; they are cut, doubled, nested deep, or repeated until they are huge."""
    if chance.random() < 0.5:
        is_form = chance.random() < 0.8
        reply = draw_form(chance) if is_form else draw_json(chance, chance.choice([1, 2, 3, 4, 5]))
        if chance.random() < 0.1:
            opening = chance.choice(["[", '{"answer": ', '{"passages": ', '{"clue": '])
            depth = chance.choice([5, 100, 500, 900, 2_000])
            reply = opening * depth + reply + {"[": "]"}.get(opening, "}") * depth
    else:
        reply = ""
    for _ in range(chance.choice([0, 0, 0, 1, 3, 10])):
        place = chance.choice([0, len(reply), chance.randint(0, len(reply))])
        reply = reply[:place] + chance.choice(PIECES) + reply[place:]
    if chance.random() < 0.3:
        reply = reply[: chance.randint(0, len(reply))]
    if chance.random() < 0.01 and reply:
        reply *= chance.choice([10, 1_000, 20_000]) // len(reply) + 1
    return reply


def list_strings(value: Any) -> Iterator[str]:
    """Yield every text in a parser's result."""
    if isinstance(value, str):
        yield value
    elif is_dataclass(value) and not isinstance(value, type):
        yield from list_strings([getattr(value, field.name) for field in fields(value)])
    elif isinstance(value, dict):
        yield from list_strings([*value, *value.values()])
    elif isinstance(value, list | tuple):
        for part in value:
            yield from list_strings(part)


@pytest.mark.parametrize("parser", PARSERS)
def test_whatever_a_model_says_is_read_or_refused(parser: str) -> None:
    chance = random.Random(f"{SEED} {parser}")
    read = 0
    for number in range(DRAWN):
        reply = draw_reply(chance)
        try:
            value = PARSERS[parser](scan_reply(reply))
            read += 1
        except ReplyError as error:
            value = str(error)
        except Exception as error:
            raise AssertionError(f"seed {SEED}, reply {number}: {reply[:500]!r}") from error
        for text in list_strings(value):
            assert not any("\ud800" <= mark <= "\udfff" for mark in text), f"seed {SEED}, reply {number}: {reply!r}"
    assert read > DRAWN // 100  # some say something
