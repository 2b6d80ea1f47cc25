"""A model's good and bad replies about an external graph's facts and passages."""

from __future__ import annotations

from typing import Any

import pytest

from llama_index_gear.agents.gear.external_policy import (
    DECIDE_PROMPT,
    RANK_PROMPT,
    Decision,
    decide_flow,
    parse_decision,
    parse_ranking,
    rank_flow,
)
from llama_index_gear.agents.memory import GistMemory
from llama_index_gear.errors import ReplyError
from llama_index_gear.tests.scanning import scan_reply
from llama_index_gear.triple import Triple

COUNT = 7
RANKINGS: list[tuple[str, list[int]]] = [
    ("[2] > [5]", [1, 4]),
    ("[2]>[5]>[1]", [1, 4, 0]),
    ("[7]", [6]),
    ("Ranking: [3] > [1].", [2, 0]),
    ("The most helpful passages are [3] and [1], because passage 3 names 1998.", [2, 0]),
    ("[3, 1] > [2]", [2, 0, 1]),
    ("[ 3 ] > [ 1 ]", [2, 0]),
    ("```\n[4] > [6]\n```", [3, 5]),
    ("<think>[1] looks good, [2] too</think>[6] > [4]", [5, 3]),
    ("**[4]** > **[6]**", [3, 5]),
    ("4 > 6 > 1", [3, 5, 0]),
    ("4, 6, 1", [3, 5, 0]),
    ("4\n6\n1", [3, 5, 0]),
    ("5", [4]),
    ("[2] > [2] > [5] > [2]", [1, 4]),  # repeated
    ("[2] > [99] > [0] > [5]", [1, 4]),  # unknown
    ("[2] > [5] > [", [1, 4]),  # cut off
    ("none", []),
    ("None.", []),
    ("NONE of the passages help.", []),
    ('"none"', []),
    ("No passage is relevant.", []),
    ("No passages are relevant.", []),
    ("[]", []),
    ('{"ranking": []}', []),
]
UNREADABLE = [
    "",
    "Sure, here is the ranking:",
    "Passage two, then passage five.",
    "[99]",
    "[0] > [12]",
    "I think 2 or 3.",
    "99",
]


@pytest.mark.parametrize(("reply", "places"), RANKINGS)
def test_rankings(reply: str, places: list[int]) -> None:
    assert parse_ranking(scan_reply(reply), COUNT) == places


@pytest.mark.parametrize("reply", UNREADABLE)
def test_rankings_that_cannot_be_read(reply: str) -> None:
    with pytest.raises(ReplyError, match="no ranking of the passages 1 to 7"):
        parse_ranking(scan_reply(reply), COUNT)


@pytest.mark.parametrize(
    ("reply", "decision"),
    [
        ('{"sufficient": true}', Decision(True)),
        ('{"sufficient": false, "query": "Where is Rome?"}', Decision(False, "Where is Rome?")),
        ('```json\n{"sufficient": "No", "query": "Where is Rome?"}\n```', Decision(False, "Where is Rome?")),
        ('Well: {"Sufficient": false, "Query": " Where  is Rome? "} So.', Decision(False, "Where is Rome?")),
        ('{"sufficient": "yes."}', Decision(True)),
        ("sufficient: true", Decision(True)),
        ("**Sufficient:** yes", Decision(True)),
        ('{"sufficient": true, "query": "unused"}', Decision(True)),
        ('<think>{"sufficient": true}</think>{"sufficient": false, "query": "Q"}', Decision(False, "Q")),
    ],
)
def test_decisions(reply: str, decision: Decision) -> None:
    assert parse_decision(scan_reply(reply)) == decision


@pytest.mark.parametrize(
    "reply",
    [
        'It says {"sufficient": true}. {"sufficient": false, "query": "Where is Rome?"}',
        '{"sufficient": false, "query": "Forged?"} {"sufficient": false, "query": "Where is Rome?"}',
        '{"sufficient": true, "Sufficient": false, "query": "Where is Rome?"}',
        '{"sufficient": true} {"query": "Where is Rome?", "sufficient": false,}',
        '{"sufficient": true} sufficient: no',
        "sufficient: false",
    ],
)
def test_two_decisions_are_none(reply: str) -> None:
    with pytest.raises(ReplyError):
        parse_decision(scan_reply(reply))


@pytest.mark.parametrize(
    "reply",
    [
        "It says [7] > [1]. I say [2] > [5].",
        "[7] > [1]\n[1] > [7]",
        '{"ranking": [7, 1]}\n{"ranking": [2, 5]}',
        "[2] > [5]\nNone.",
    ],
)
def test_two_rankings_are_none(reply: str) -> None:
    with pytest.raises(ReplyError, match="more than one way"):
        parse_ranking(scan_reply(reply), COUNT)


def test_the_same_ranking_twice_is_one() -> None:
    assert parse_ranking(scan_reply("[2] > [5]\nSo: **[2]** > **[5]**, since [5] names Rome."), COUNT) == [1, 4]


def _get_request(flow: Any) -> Any:
    (request,) = next(flow)
    return request


def test_prompts_show_what_they_are_about_and_fence_it() -> None:
    gist = GistMemory(9)
    gist.add([Triple("Ann", "father", "Bob #####")])
    request = _get_request(decide_flow("Who?", gist, ["Who is\n2. Ann?", "Who ##### is Bob?"], DECIDE_PROMPT))
    prompt = request.prompt.format(**request.variables)
    assert request.purpose == "decide" and "1. Who is 2. Ann?\n2. Who #### is Bob?" in prompt
    assert "- Ann father Bob ####\n" in prompt and prompt.count("#####") == 3 and "Question: Who?" in prompt
    request = _get_request(rank_flow("Who?", gist, ["Ann's father is Bob. #####", "Rome"], RANK_PROMPT))
    prompt = request.prompt.format(**request.variables)
    assert request.purpose == "rank" and "[1] Ann's father is Bob. ####\n\n[2] Rome\n" in prompt
    assert prompt.count("#####") == 5
