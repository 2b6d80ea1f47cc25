"""T²RAG's parsers on good and bad replies: questions decomposed, clues resolved."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llama_index.core.prompts import PromptTemplate

from llama_index_gear.agents.t2rag.clues import Clues, slots_of
from llama_index_gear.agents.t2rag.prompts import (
    DECOMPOSE_PROMPT,
    RESOLVE_PROMPT,
    parse_decomposition,
    parse_statements,
    resolve_flow,
)
from llama_index_gear.agents.t2rag.resolution import Statement, apply_statements
from llama_index_gear.errors import ReplyError
from llama_index_gear.flow import CallLLM
from llama_index_gear.tests.scanning import scan_reply
from llama_index_gear.triple import StoredTriple, Triple

TEMPLATE = DECOMPOSE_PROMPT.get_template()


def parse_slots(reply: str) -> list[tuple[str, str, str]]:
    return [slots_of(triple) for triple in parse_decomposition(scan_reply(reply), TEMPLATE)]


def read_statements(reply: str) -> list[tuple[int | None, str, tuple[int, ...]]]:
    return [
        (statement.number, " | ".join(slots_of(statement.triple)), statement.passages)
        for statement in parse_statements(scan_reply(reply))
    ]


DIRECTOR = ("Gift", "directed by", "?director")


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ('{"triples": [["Gift", "directed by", "?director"]]}', [DIRECTOR]),
        ('```json\n{"triples": [["Gift", "directed by", "?director"],]}\n```', [DIRECTOR]),
        ('Sure!\n[["Gift", "directed by", "?director"]]\nHope this helps. What else?', [DIRECTOR]),
        ("Reasoning: one must know the director.\nTriples:\n1. Gift | directed by | ?director", [DIRECTOR]),
        ("| subject | predicate | object |\n|---|---|---|\n| Gift | directed by | ?director |", [DIRECTOR]),
        ('{"triples": [["Gift", "directed by", "<director>"]]}', [DIRECTOR]),
        ('{"triples": [["Gift", "directed by", "[director]"], ["{director}", "born in", "[the year]"]]}',
         [DIRECTOR, ("?director", "born in", "?the_year")]),
        ('{"triples": [["Gift", "directed by", "?"], ["?", "born in", "?"]]}',
         [("Gift", "directed by", "?"), ("?", "born in", "?")]),
        ('{"triples": [["Yes | No", "an album by", "?band"]]}', [("Yes | No", "an album by", "?band")]),
        ('{"triples": [["Who | What?", "is", "?x"], ["Gift", "directed by"], ["", "is", "?y"]]}',
         [("Who | What?", "is", "?x")]),
        ('{"triples": [["What?", "directed by", "?director"]]}', [("What?", "directed by", "?director")]),
        ('{"triples": [["[Rec] 2", "directed by", "?director"]]}', [("[Rec] 2", "directed by", "?director")]),
        ('{"triples": [{"subject": "Gift", "predicate": "directed by", "object": "?director"}]}', [DIRECTOR]),
        ('{"triples": [["Gift", "directed by", "?director"], ["?director", "born', [DIRECTOR]),
        ("<think>Triples? [[\"a\", \"b\", \"c\"]]</think>[[\"Gift\", \"directed by\", \"?director\"]]", [DIRECTOR]),
        (TEMPLATE + '\n{"triples": [["Gift", "directed by", "?director"]]}', [DIRECTOR]),
        ("subject | predicate | object\nGift | directed by | ?director", [DIRECTOR]),
    ],
)  # fmt: skip
def test_a_question_taken_apart(reply: str, expected: list[Any]) -> None:
    assert parse_slots(reply) == expected


def test_a_question_that_is_the_prompt_s_own_example() -> None:
    own = '{"triples": [["Dune", "written by", "?authorA"]]}'
    assert parse_slots(own) == [("Dune", "written by", "?authorA")]


def test_a_question_that_shares_a_part_with_the_prompt_s_examples() -> None:
    house = '{"triples": [["Eiffel Tower", "designed by", "?architect"], ["?architect", "born in", "?country"]]}'
    assert len(parse_slots(house)) == 2
    books = [["Emma", "written by", "?authorA"], ["Ulysses", "written by", "?authorB"],
             ["?authorA", "born on", "?dateA"], ["?authorB", "born on", "?dateB"]]  # fmt: skip
    assert len(parse_slots(json.dumps({"triples": books}))) == 4


@pytest.mark.parametrize(
    "reply", ["", "I cannot do that.", "{}", '{"triples": []}', '{"triples": "none"}', "a | b", "None"]
)
def test_a_question_not_taken_apart(reply: str) -> None:
    with pytest.raises(ReplyError):
        parse_decomposition(scan_reply(reply), TEMPLATE)


@pytest.mark.parametrize("template", ["Nothing to learn here: {question}", "{question}", ""])
def test_a_prompt_without_an_example(template: str) -> None:
    assert parse_decomposition(scan_reply('[["Gift", "directed by", "?director"]]'), template) == (Triple(*DIRECTOR),)


BY = "Gift | directed by | Curtiz"


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ('{"facts": [{"clue": 1, "triple": ["Gift", "directed by", "Curtiz"], "passages": [2, 3]}]}',
         [(1, BY, (2, 3))]),
        ('[{"clue": "1", "triple": ["Gift", "directed by", "Curtiz"], "passages": "[2], [3]"}]', [(1, BY, (2, 3))]),
        ('{"facts": [{"Clue": "Clue 1", "Triple": ["Gift", "directed by", "Curtiz"], "passage": 2}]}', [(1, BY, (2,))]),
        ('{"facts": [{"clue": 1, "subject": "Gift", "predicate": "directed by", "object": "Curtiz"}]}', [(1, BY, ())]),
        ('{"facts": [{"clue": 1, "triple": "Gift | directed by | Curtiz"}]}', [(1, BY, ())]),
        ('{"facts": [{"clue": 1, "passages": [1, 2, 3], "triple": ["Gift", "directed by", "Curtiz"]}]}',
         [(1, BY, (1, 2, 3))]),
        ('{"facts": [{"clue": 1, "passages": ["1", "2", "3"], "fact": ["Gift", "directed by", "Curtiz"]}]}',
         [(1, BY, (1, 2, 3))]),
        ('{"facts": [{"clue": 2, "triple": ["Curtiz", "born in", 1886]}]}', [(2, "Curtiz | born in | 1886", ())]),
        ('{"facts": [{"clue": 2, "triple": ["Curtiz", "sons", ["Ann", "Bob"]]}]}',
         [(2, "Curtiz | sons | Ann, Bob", ())]),
        ('{"facts": [{"triple": ["Gift", "directed by", "Curtiz"]}]}', [(None, BY, ())]),
        ('{"facts": [["Gift", "directed by", "Curtiz"]]}', [(None, BY, ())]),
        ('{"facts": [{"clue": 1, "triple": ["Gift", "directed by", "Curtiz"]}, {"clue": 2, "triple": ["Cur',
         [(1, BY, ())]),
        ('{"facts": [{"clue": 1, "triple": ["Gift"]}, {"clue": 1, "triple": ["Gift", "directed by", "Curtiz"]}]}',
         [(1, BY, ())]),
        ("Fully Resolved Clue 1: Gift | directed by | Curtiz\nNewly Searchable Clue 3: Curtiz | born in | ?year",
         [(1, BY, ()), (3, "Curtiz | born in | ?year", ())]),
        ("Here is what I found:\n1. Gift | directed by | Curtiz", [(1, BY, ())]),
        ("Gift | directed by | Curtiz", [(None, BY, ())]),
        ('[{"clue": 1, "triple": {"head": "Gift", "type": "directed by", "tail": "Curtiz"}}]', [(1, BY, ())]),
        ('[{"clue": 1, "head": "Gift", "relation": "directed by", "tail": "Curtiz"}]', [(1, BY, ())]),
        ("{'clue': 1, 'triple': [{'name': 'Gift'}, 'directed by', {'name': 'Curtiz'}],}", [(1, BY, ())]),
        ('[{"clue": 1, "triple": [["Gift", "directed by", "Curtiz"]], "passages": [2]}]', [(1, BY, (2,))]),
        ('[{"clue": 1, "triple": ["Gift", "directed by", "Curtiz", 0.9]}]', [(1, BY, ())]),
        ('{"facts": [{"clue": 1, "triple": ["A | B", "made by", "C"]}]}', [(1, "A | B | made by | C", ())]),
        ('{"facts": [["Gift", "directed by", "Curtiz"], ["a", "b", "c"], ["d", "e", "f"]]}',
         [(None, BY, ()), (None, "a | b | c", ()), (None, "d | e | f", ())]),
        ('{"facts": ["Gift | directed by | Curtiz", "a | b | c", "d | e | f"]}',
         [(None, BY, ()), (None, "a | b | c", ()), (None, "d | e | f", ())]),
        ('{"1": ["Gift", "directed by", "Curtiz"], "2": ["a", "b", "c"]}', [(1, BY, ()), (2, "a | b | c", ())]),
        ('{"clue": 1, "evidence": [1, 2, 3], "triple": ["Gift", "directed by", "Curtiz"]}', [(1, BY, ())]),
        ('{"facts": []}', []),
        ('{"facts": [{"clue": 1, "triple": ["subject", "predicate", "object"], "passages": [2]}]}', []),
        ('{"facts": []}\n{"facts": []}', []),
        ("None", []),
        ("There is no information.", []),
    ],
)  # fmt: skip
def test_what_is_said_of_clues(reply: str, expected: list[Any]) -> None:
    assert read_statements(reply) == expected


@pytest.mark.parametrize("reply", ["", "Hm.", "{", '{"answer": "Curtiz"}', "Curtiz directed it, I think."])
def test_what_says_nothing_readable(reply: str) -> None:
    with pytest.raises(ReplyError):
        parse_statements(scan_reply(reply))


GIFT = '{"triples": [["Gift", "directed by", "?director"]]}'


def test_a_question_taken_apart_twice() -> None:
    for quoted in ('{"triples": [["?x", "directed", "Gift"]]}', '{"Triples": [["Gift", "directed by", "Curtiz"]]}'):
        with pytest.raises(ReplyError, match="more than one way"):
            parse_decomposition(scan_reply(f"It says {quoted}.\n{GIFT}"), TEMPLATE)
    assert parse_slots(f"{GIFT}\nSo:\n{GIFT}") == [DIRECTOR]
    assert parse_slots('["Gift", "directed by", "?director"]\n["?director", "born in", "?year"]') == [
        DIRECTOR,
        ("?director", "born in", "?year"),
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"clue": 1, "triple": ["Gift", "directed by", "Forged"]}', '{"clue": 1, "triple": ["Gift", "by", "Curtiz"]}'),
        ('{"facts": [{"clue": 1, "triple": ["a", "b", "c"]}]}', '{"facts": [{"clue": 1, "triple": ["a", "b", "d"]}]}'),
        ('{"1": ["a", "b", "c"]}', '{"clue": "1", "triple": "a | b | d"}'),
        ("Clue 1: a | b | c", "Clue 1: a | b | d"),
    ],
)
def test_first_this_then_that_is_no_statement(one: str, other: str) -> None:
    with pytest.raises(ReplyError, match="of clue 1"):
        parse_statements(scan_reply(f"{one}\n{other}"))
    assert len(parse_statements(scan_reply(f"{one}\n{one}"))) == 1


def test_one_value_may_say_several_things_of_a_clue() -> None:
    sons = [{"clue": 1, "triple": ["Curtiz", "father of", name]} for name in ("Ann", "Bob")]
    assert len(read_statements(json.dumps({"facts": sons}))) == 2
    assert len(read_statements(json.dumps(sons[0]) + json.dumps({**sons[1], "clue": 2}))) == 2


def test_numbers_are_not_looked_for_beyond_all_depth() -> None:
    deep = "[" * 300 + "2" + "]" * 300
    assert read_statements(f'{{"clue": {deep}, "triple": ["a", "b", "c"], "passages": {deep}}}') == [
        (2, "a | b | c", (2,))
    ]


# -- the prompts ------------------------------------------------------------------------------------------------------


def test_what_a_resolution_is_shown() -> None:
    clues = Clues()
    clues.add([Triple("Gift", "directed by", "?who"), Triple("?who", "born in", "?year"), Triple("A", "is", "B")], 0, 9)
    apply_statements(clues, [Statement(Triple("Gift", "directed by", "Curtiz"), 1)], 1, 9)
    fact = Triple("Curtiz", "born in", "1886")
    found = [StoredTriple(str(n), fact, f"p{n}", 0.5) for n in (2, 1, 3)]
    found += [StoredTriple(f"f{n}", Triple("Curtiz", "made", f"film {n}"), f"p{n}", 0.4) for n in (1, 1, 2)]
    found.append(StoredTriple("g", Triple("Curtiz", "made", "Gift ##### [2]"), "p1", 0.3))
    flow = resolve_flow(
        "When?", clues, [Triple("Gift", "is", "a #####")], found, {"p1": "one", "p2": "two #####"}, RESOLVE_PROMPT,
    )  # fmt: skip
    (asked,) = next(flow)
    assert isinstance(asked, CallLLM)
    assert asked.variables == {
        "question": "When?",
        "clues": "2. Curtiz | born in | ?year\n3. A | is | B",
        "known": "- Gift is a ####",
        "propositions": (
            "- Curtiz born in 1886 [1][2]\n- Curtiz made film 1; Gift #### (2) [1]\n- Curtiz made film 2 [2]"
        ),
        "passages": "[1] one\n\n[2] two ####",
        "problem": "",
    }
    assert set(RESOLVE_PROMPT.template_vars) == set(asked.variables)
    prompt = PromptTemplate("{clues}")
    (asked,) = next(resolve_flow("When?", clues, [], [], {"p1": "one"}, prompt))
    assert isinstance(asked, CallLLM)
    assert (asked.variables["known"], asked.variables["propositions"]) == ("(nothing)", "(no statement)")
    assert asked.variables["passages"] == "[1] one"
