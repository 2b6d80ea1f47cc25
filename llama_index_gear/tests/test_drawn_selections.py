"""Randomly drawn replies against everything that reads passage numbers: no passage is lost, and no order changed.

`GEAR_DRAWN_REPLIES` sets how many are drawn for each reader, `GEAR_DRAWN_SEED` where the draw begins.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Sequence

import pytest
from llama_index.core.schema import NodeWithScore, TextNode

from llama_index_gear import PassageSelector
from llama_index_gear.agents.gear.external_policy import parse_ranking
from llama_index_gear.agents.gear.policy import STEP_PROMPT, parse_step
from llama_index_gear.errors import ReplyError
from llama_index_gear.llm.selection import SELECT_PROMPT, parse_selection
from llama_index_gear.testing import ScriptedLLM
from llama_index_gear.tests.asking import MODES
from llama_index_gear.tests.scanning import scan_reply

DRAWN = int(os.environ.get("GEAR_DRAWN_REPLIES", "100"))
SEED = int(os.environ.get("GEAR_DRAWN_SEED", "22"))
QUESTION = "Where does the father of Ann live"
TEXTS = ["Ann has a father, who is Bob", "Bob lives in Rome", "Rome lies in Italy", "Cheese is made of milk", "Tea"]
COUNT = len(TEXTS)

ENTRIES = ["1", "2", "3", "5", "2", "0", "-1", "-2", "6", "99", "1e3", "1e999", "3.0", "3.5", '"4"', '"[2]"', '"two"',
           '"passage 5"', '"number"', "number", "null", "true", "{}", "[3]", "٣", '"…"', "…", "1" * 5_000]  # fmt: skip
EXAMPLES = [STEP_PROMPT.get_template(), SELECT_PROMPT.get_template(), "[4] > [1] > [7]", '{"needed": [number, …]}']
PARTS: dict[str, list[str]] = {
    "facts": ["[]", '[["Ann", "father", "Bob"]]', '[["…", "…", "…"]]', '["a", "b", "c"]', "null", '[["a"]]', "[["],
    "answerable": ["true", "false", '"yes"', "null", "1", "maybe"],
    "answer": ['"Rome"', '""', '"…"', "7", "null", '["a", "b"]'],
    "query": ['"Where is Rome"', '""', '"…"', "null", '["a", "b"]', '"' + "x" * 2_000 + '"'],
}
PIECES = ['{"needed": [', "1, 2", "5]", '"answerable": ', "true", ", ", '"query": "Where is Rome"', "}", "[3]", "none",
          "…", "4, 4, -4, 400", "<think>", "</think>", "```json\n", "The second and the third."]  # fmt: skip


def draw_needed(chance: random.Random) -> str:
    """Draw the value of "needed": a list, now and then of thousands of numbers, or something else in its place."""
    if chance.random() < 0.05:
        return json.dumps([chance.randrange(-9, 3_000) for _ in range(chance.choice([2_000, 5_000]))])
    if chance.random() < 0.1:
        return chance.choice(ENTRIES)
    pool = ENTRIES[:10] if chance.random() < 0.6 else ENTRIES
    return f"[{', '.join(chance.choices(pool, k=chance.randrange(7)))}]"


def draw_reply(chance: random.Random) -> str:
    """Draw a reply in some form that a prompt asks for; it is whole, or cut, doubled, in prose, or shreds of one."""
    kind = chance.random()
    if kind < 0.05:
        reply = chance.choice(EXAMPLES)
    elif kind < 0.2:
        reply = "".join(chance.choices(PIECES, k=chance.randrange(1, 12)))
    elif kind < 0.3:
        reply = chance.choice([", ", " > "]).join(chance.choices(ENTRIES, k=chance.randrange(1, 6)))
    else:
        names = [name for name in PARTS if chance.random() < 0.7]
        fields = [f'"needed": {draw_needed(chance)}', *(f'"{name}": {chance.choice(PARTS[name])}' for name in names)]
        reply = "{" + ", ".join(fields) + "}"
    if chance.random() < 0.2:
        reply = reply[: chance.randrange(len(reply) + 1)] + chance.choice(["", reply])
    if chance.random() < 0.1:
        reply = f"Of [1] and [5] I think: {reply} That is all."
    return reply


PARSERS: dict[str, Callable[[str], list[int]]] = {
    "parse_selection": lambda reply: parse_selection(scan_reply(reply), COUNT),
    "parse_step": lambda reply: parse_step(scan_reply(reply), COUNT).needed,
    "parse_ranking": lambda reply: parse_ranking(scan_reply(reply), COUNT),
}


@pytest.mark.parametrize("parser", PARSERS)
def test_numbers_are_of_passages_and_each_stands_once_or_the_reply_is_refused(parser: str) -> None:
    chance = random.Random(f"{SEED} {parser}")
    read = 0
    for number in range(DRAWN):
        reply = draw_reply(chance)
        try:
            positions = PARSERS[parser](reply)
        except ReplyError:
            continue
        except Exception as error:
            raise AssertionError(f"seed {SEED}, reply {number}: {reply[:500]!r}") from error
        read += 1
        assert set(positions) <= set(range(COUNT)), f"seed {SEED}, reply {number}: {reply[:500]!r}"
        assert len(set(positions)) == len(positions), f"seed {SEED}, reply {number}: {reply[:500]!r}"
    assert DRAWN // 10 < read < DRAWN


@pytest.mark.parametrize("parser", ["parse_selection", "parse_step"])
def test_a_whole_list_of_numbers_is_read_as_it_stands(parser: str) -> None:
    chance = random.Random(f"{SEED} {parser} whole")
    for _ in range(DRAWN):
        numbers = chance.choices(range(-2, COUNT + 3), k=chance.choice([0, 1, 3, 6, 6, 4_000]))
        reply = json.dumps({"needed": numbers, "facts": [], "answerable": False})
        expected = list(dict.fromkeys(number - 1 for number in numbers if 1 <= number <= COUNT))
        if numbers and not expected:
            with pytest.raises(ReplyError):
                PARSERS[parser](reply)
        else:
            assert PARSERS[parser](reply) == expected, reply[:500]


def check_order(found: Sequence[NodeWithScore], ranking: Sequence[str]) -> int:
    """Check that nothing is lost, that the named come first, and the others as they were ranked; count the named."""
    ids = [result.node.node_id for result in found]
    needed = [result.node.metadata["gear_ranks"].get("needed") for result in found]
    named = sum(place is not None for place in needed)
    assert sorted(ids) == sorted(ranking)
    assert needed[:named] == list(range(1, named + 1))
    assert ids[named:] == [name for name in ranking if name not in ids[:named]]
    return named


@MODES
async def test_whatever_is_replied_to_a_selector_no_passage_is_lost_and_the_others_keep_their_order(mode: str) -> None:
    chance = random.Random(f"{SEED} selector {mode}")
    last: list[str] = []
    llm = ScriptedLLM(otherwise=lambda prompt: last.append(draw_reply(chance)) or last[-1])  # type: ignore[func-returns-value]
    selector = PassageSelector(llm=llm)
    nodes = [NodeWithScore(node=TextNode(id_=f"p{number}", text=text)) for number, text in enumerate(TEXTS)]
    ranking = [result.node.node_id for result in nodes]
    named = 0
    for number in range(DRAWN):
        if mode == "sync":
            found = selector.postprocess_nodes(nodes, query_str=QUESTION)
        else:
            found = await selector.apostprocess_nodes(nodes, query_str=QUESTION)
        try:
            named += check_order(found, ranking)
        except AssertionError as error:
            raise AssertionError(f"seed {SEED}, reply {number}: {last[-1][:500]!r}") from error
    assert DRAWN // 4 < named < DRAWN * COUNT  # some name passages
