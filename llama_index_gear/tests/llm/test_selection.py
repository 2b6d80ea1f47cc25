"""The reader's selection: what is read in its replies, and what is refused."""

from __future__ import annotations

import pytest

from llama_index_gear.errors import ReplyError
from llama_index_gear.llm.selection import SELECT_PROMPT, parse_selection
from llama_index_gear.tests.growth import assert_linear
from llama_index_gear.tests.scanning import scan_reply


@pytest.mark.parametrize(
    ("reply", "positions"),
    [
        ('{"needed": [3, 1]}', [2, 0]),
        ('```json\n{"needed": [3, 1, 3, 3]}\n```', [2, 0]),
        ('Those are needed: {"needed": ["3", "[1]", "Passage 2"]}', [2, 0, 1]),
        ('{"Needed": [3.0, -1, 99, 0, 2]}', [2, 1]),
        ('{"needed": 4}', [3]),
        ('{"needed": [[2], [4]]}', [1, 3]),
        ('{"needed": []}', []),
        ('<think>{"needed": [1]}</think>{"needed": [2]}', [1]),
        ('{"needed": [2]} That is: {"needed": [2]}', [1]),
        ("3, 1", [2, 0]),
        ("[3] > [1]", [2, 0]),
        ("```json\n[3, 1]\n```", [2, 0]),
        ("Needed: [3, 1].", [2, 0]),
        ("Passages 3 and 1", [2, 0]),
        ("{'needed': [3, 1,]}", [2, 0]),
        ('{"needed": "3, 1"}', [2, 0]),
        ('{"needed": "[3][1]"}', [2, 0]),
        ('{"needed": ["[3] 2 Idiots", "#1"]}', [2, 0]),
        ('{"needed": [{"number": 3, "reason": "1"}, {"passage": "[1]"}]}', [2, 0]),
        ('{"needed": {"3": "the town", "1": "the yard"}}', [2, 0]),
        ("1. [3]\n2. [1]", None),
        ("not 3", None),
        ("3, 1.", [2, 0]),
        ("Passages 3 and 1.", [2, 0]),
        ("No. 3", [2]),
        ("3.1", None),
        ("[3, 1]", [2, 0]),
        ('{"needed": ' + str(list(range(1, 5000))) + "}", [0, 1, 2, 3]),
        ('{"needed": ["two", "the third"]}', None),
        ('{"needed": [7, -2, 0, 1e999]}', None),
        ('{"needed": ["3 Idiots"]}', None),
        ('{"needed": [3, 1', None),
        ('{"needed": null}', None),
        ('{"needed": true}', None),
        ('{"needed": [{"reason": 1}]}', None),
        ('{"needed": [1]} or {"needed": [2]}', None),
        ('{"needed": [1]} {"needed": [2', None),
        ('{"passages": [1]}', None),
        ("the first and the third", None),
        ("", None),
        (SELECT_PROMPT.get_template(), None),
        ("1" * 600_000, None),
    ],
)
def test_replies(reply: str, positions: list[int] | None) -> None:
    if positions is None:
        with pytest.raises(ReplyError):
            parse_selection(scan_reply(reply), 4)
    else:
        assert parse_selection(scan_reply(reply), 4) == positions


def test_a_long_reply_of_marks_is_read_in_linear_time() -> None:
    def read(reply: str) -> None:
        with pytest.raises(ReplyError):
            parse_selection(scan_reply(reply), 4)

    assert_linear(read, lambda size: "*" * size + "x", 16_000)
