"""Replies are read without thoughts and without what follows the end of the turn, at once or in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_index_gear.llm.thoughts import ReplyStream, Said, clean_reply, read_said
from llama_index_gear.tests.growth import assert_linear

ANSWER = "Bremen [2]"
THOUGHTS = [
    "<think>hm [3]</think>{}",
    "<think>\n</think>\n<think>[3]</think>\n\n{}",
    "<think time='3'>[3]</think>{}",
    "<THINKING>\n[3]\n</Thinking>\n{}",
    "<thinking_process>[3]</thinking_process>{}",
    "<antthinking>[3]</antthinking>{}",
    "<seed:think>hm [3]</seed:think>{}",
    "[THINK]hm [3][/THINK]{}",
    "◁think▷hm [3]◁/think▷{}",
    "<thought>\nhm [3]\n</thought>\n{}",
    "<reasoning>\nThe passage says </think>. [3]\n</reasoning>\n{}",
    "<scratchpad>a [3]</scratchpad><answer>{}</answer>",
    "<inner_monologue>[3]</inner_monologue>\n{}",
    "<|begin_of_thought|>hm [3]<|end_of_thought|>\n<|begin_of_solution|>{}<|end_of_solution|>",
    "<|START_THINKING|>hm [3]<|END_THINKING|><|START_RESPONSE|>{}<|END_RESPONSE|>",
    "<|channel|>analysis<|message|>hm [3]<|end|><|start|>assistant<|channel|>final<|message|>{}<|return|>",
    "<|channel|>analysis<|message|>[3]<|end|><|start|>assistant<|channel|>commentary to=functions.PassageFacts "
    "<|constrain|>json<|message|>{}<|call|>",
    "analysisWe need [3].assistantfinal{}",
    "<|channel>thought\nhm [3]\n<channel|>{}",
    "<unused94>thought\nhm [3]<unused95>{}",
    '<details type="reasoning" done="true">\n<summary>Thought</summary>\nhm [3]\n</details>\n{}',
    "Here is my thought process: hm [3]\nHere is my response: {}",
    "<|think_start|>hm [3]<|think_end|>{}",
    "<|thinking|>hm [3]<|endofthinking|>{}",
    "<think>hm [3]</think >\n{}",
    "<think/>{}",
    "<think />\n{}",
    "<details><summary>Thoughts</summary>\n> hm [3]\n</details>\n{}",
    "**Here is my thought process:**\nhm [3]\n**Here is my response:**\n{}",
    "<|begin|>assistant<|think|>hm [3]<|end|><|begin|>assistant<|content|>{}<|end|>",
    "<|im_start|>assistant<|im_sep|><think>hm [3]</think>{}<|im_end|>",
    "{}\n<think>Is it [3]?</think>",
    "{}\n\n<think>\nIs it [3]?",
]
NESTED = ["<think>a <think>hm [3]</think> b [3]</think>\n{}", "<think>\n<think>\n[3]</think>\n</think>\n{}"]
UNOPENED = [
    "hm [3].\n</think>\n\n{}",
    "Is it [3]? No.</think>{}",
    "So [3].</reasoning>\n{}",
    'It says "[3]"</think>\n\n{}',
    "It is `[3]` </think>{}",
    "hm [3]<|end|><|start|>assistant<|channel|>final<|message|>{}",
    "hm [3][/THINK]{}",
    "Here are my reasoning steps:\nhm [3]\n[BEGIN FINAL RESPONSE]\n{}\n[END FINAL RESPONSE]",
]
TURNS = [
    "{}<|im_end|>\n<|im_start|>user\nAnd? [3]",
    "<|im_start|>assistant\n{}<|im_end|>",
    "{}<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n[3]",
    "{}</s>",
    "{}</s>[INST] And [3]? [/INST]",
    "{}\n</s>\n[3]",
    '{}</s>["Paul", "sold", "it"]',
    "{}<end_of_turn>\n<start_of_turn>user\n[3]",
    "{}<｜end▁of▁sentence｜><｜User｜>[3]",
    "{}<|endoftext|>Human: [3]",
    "{}\n\nUser: and [3]?",
    "{}\n### Instruction:\nName [3]",
    "<think>hm [3]\n</think>\n\n{}<|im_end|>",
    "<|begin_of_box|>{}<|end_of_box|>",
]
NAMED = [
    '{"triples": [["<think>", "is", "a tag"], ["A", "ends with", "</think>"], ["x", "y", "<|im_end|>"]]}',
    '[["<|channel|>final<|message|>", "is", "a head"]]',
    "<think> | opens | thoughts\n</think> | closes | thoughts",
    "`</s>` | ends | a sentence\nA | uses | </s>",
    "The tag <think> opens and </think> closes [2].",
    "The token </s> ends it [1].",
    '"<think>" is the tag [1]',
    "It ends with '</think>' [1]",
    'The mark ("</think>")\nis what "</think> and </s>" means [1]',
    '[["Nora", "writes", "</think>',
    "<details><summary>Yard</summary>It lies in Bremen.</details>\nNora founded it. [1]",
    "The price was <s>10</s> 5 [1].",
    "analysis of X [1]",
    '[["<|begin_of_box|>", "is", "a mark"]]',
    "Here are my reasoning steps:\n1. It is.\n\nAnswer: Bremen [1]",
    "User: Paul [1]",
    "[1] Paul",
]


def stream(reply: str, size: int, *, waits: bool = False) -> str:
    pieces = ReplyStream(waits=waits)
    said = [pieces.add(reply[start : start + size]) for start in range(0, len(reply), size)]
    return "".join([*said, pieces.end()])


@pytest.mark.parametrize("form", [*THOUGHTS, *UNOPENED, *TURNS])
@pytest.mark.parametrize("words", [ANSWER, '{"triples": [["A", "x", "B"]]}'], ids=["answer", "facts"])
def test_what_is_said(form: str, words: str) -> None:
    said = read_said(form.format(words))
    assert said == Said(words, is_unopened=form in UNOPENED)
    assert all(stream(form.format(words), size, waits=said.is_unopened) == words for size in (1, 3, 1_000))
    assert clean_reply(words).text == words


@pytest.mark.parametrize(
    "reply",
    [
        "<think>hm [3]",
        "< think >hm [3]",
        "[THINK]hm",
        '<thought>\n{"triples": [["A", "x", "B"]]}',
        "<|channel|>analysis<|message|>hm [3]",
        "analysisWe need",
        "<think>one</think><think>two",
    ],
)
def test_a_reply_that_ends_in_its_thoughts_says_nothing(reply: str) -> None:
    assert read_said(reply) == Said("", is_cut_off=True) and stream(reply, 3) == ""


@pytest.mark.parametrize("form", NESTED)
def test_thoughts_inside_thoughts(form: str) -> None:
    assert read_said(form.format(ANSWER)) == Said(ANSWER)


@pytest.mark.parametrize("reply", NAMED)
def test_marks_that_are_named_stay(reply: str) -> None:
    assert read_said(reply) == Said(reply) and stream(reply, 3) == reply


def test_a_stream_is_not_held_back() -> None:
    pieces = ReplyStream()
    words = ["Bremen", " is", " it", " [2]", "."]
    assert [pieces.add(word) for word in words] == words and pieces.end() == ""
    late = ReplyStream()  # what was handed on as words turns out to be thoughts: the words follow all the same
    assert [late.add("hm."), late.add("\n</think>\n"), late.add("Bremen"), late.end()] == ["hm.", "", "\nBremen", ""]


def test_json_in_a_json_text() -> None:
    assert clean_reply('"{\\"needed\\": [1]}"').text == '{"needed": [1]}'
    assert clean_reply('"```\\n[1]\\n```"').text == "```\n[1]\n```"
    assert clean_reply('"\\"[1]\\""').text == "[1]" and clean_reply('"\\"Bremen\\""').text == '"\\"Bremen\\""'
    assert clean_reply('"Bremen"').text == '"Bremen"'


PIECES = [
    "<think>",
    "</think>",
    "\n",
    "A | x | B",
    '["A", "y", "C"]',
    '"',
    "[",
    " ",
    "hm.",
    "</s>",
    "<|im_end|>",
    "[3]",
]


@given(st.lists(st.sampled_from(PIECES)), st.integers(1, 9))
def test_pieces_say_at_their_end_what_the_whole_says(pieces: list[str], size: int) -> None:
    said = read_said("".join(pieces))
    assert stream("".join(pieces), size, waits=True) == said.text
    if not said.is_unopened and "think" not in said.text:
        assert stream("".join(pieces), size) == said.text


@pytest.mark.parametrize("unit", ["</think> x", '"</s>', "</s> x", "\nUser:", "\n<think>\n", "\n<think>a</think>\n",
                                  "<|channel|>a<|message|>", "|</think>\n", "<s></s>\n", "here is my "])  # fmt: skip
def test_marks_without_end_are_read_in_linear_time(unit: str) -> None:
    assert_linear(read_said, lambda length: unit * (length // len(unit)), 160_000)
