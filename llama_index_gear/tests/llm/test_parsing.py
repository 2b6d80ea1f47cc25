import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_index_gear.errors import ReplyError
from llama_index_gear.llm.parsing import parse_triples
from llama_index_gear.llm.thoughts import clean_reply
from llama_index_gear.tests.growth import assert_linear
from llama_index_gear.tests.scanning import scan_reply
from llama_index_gear.triple import Triple

REPLIES = Path(__file__).parent / "replies"
NAMES = sorted(path.stem for path in REPLIES.glob("*.txt"))

MANGLED = st.text(alphabet="[](){}\",:'|\\ \n.-ab1“”entis", max_size=60)
TRIPLES = st.builds(Triple, *[st.text(min_size=1).filter(str.strip)] * 3)
PLAIN = st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\"\\'“”"), min_size=1)
SIMPLE = st.builds(Triple, *[PLAIN.filter(str.strip)] * 3)


def _list_slots(triple: Triple) -> list[str]:
    return [triple.subject, triple.predicate, triple.object]


FACT = "A | x | B"


@pytest.mark.parametrize(
    ("reply", "left"),
    [
        (f"<think>hm</think>{FACT}", FACT),
        (f"\n <THINKING> hm\n</Thinking>\n{FACT}", FACT),
        (f"<think>\nhm, </think> is a tag.\n</think>\n{FACT}", FACT),
        (f"<think>\nSo it is.</think>\n{FACT}", FACT),
        (f"<think>one</think> <think>\ntwo\n</think>\n{FACT}", FACT),
        (f"<think>\none</think>\n<think>two</think>{FACT}", FACT),
        (f"hm\n</think>\n{FACT}", FACT),
        (f"hm. So it is.  </think> \r\n{FACT}", FACT),
        (f"hm\n</think>\n<think>\nmore\n</think>\n{FACT}", FACT),
        (f'["a", "b", "c"]?\nNo.\n</think>\n{FACT}', FACT),
        (f"<think>{FACT}", ""),
        (f"<think>\n{FACT}\n", ""),
        ("<think>one</think><think>two", ""),
        ("</think>", ""),
        (f"{FACT}\n<think>late</think>\n{FACT}", f"{FACT}\n\n{FACT}"),
        # No thought: a statement
        (f"{FACT}\nA | x | </think>", f"{FACT}\nA | x | </think>"),
        (f"{FACT}\nA | x | </think>\n{FACT}", f"{FACT}\nA | x | </think>\n{FACT}"),
        (f'{FACT}\n("A", "x", "</think>', f'{FACT}\n("A", "x", "</think>'),
        (f"{FACT}\nno tag </think> at the end", f"{FACT}\nno tag </think> at the end"),
        (f"{FACT}\nbut <think>late</think>\n{FACT}", f"{FACT}\nbut <think>late</think>\n{FACT}"),
        (f"<think>hm</think>\n{FACT}\n</think>\n{FACT}", f"{FACT}\n</think>\n{FACT}"),
        (f"hm\n</think>\n{FACT}\n</think>\n{FACT}", f"{FACT}\n</think>\n{FACT}"),
        (f"<think>\nhm\n</think>\n{FACT}\n</think>\n{FACT}", f"{FACT}\n</think>\n{FACT}"),
        ('{"triples": [["A", "x", "</think>"]]}', '{"triples": [["A", "x", "</think>"]]}'),
        ('[["A", "x", "B"], ["A", "x", "\n</think>\n"]]', '[["A", "x", "B"], ["A", "x", "\n</think>\n"]]'),
        ('[["A", "\n</think>\n"]]\nhm\n</think>\n[]', "[]"),
    ],
)
def test_what_was_thought_and_what_is_said(reply: str, left: str) -> None:
    assert clean_reply(reply).text == left


WHOLE = ("Nora Blum", "founded", "Osthafen")
FACTS = json.dumps([WHOLE])
SHAPES = {
    "type": '[{"head": "Nora Blum", "type": "founded", "tail": "Osthafen"}]',
    "types of ends": '[{"head": "Nora Blum", "head_type": "person", "relation": "founded", "tail": "Osthafen"}]',
    "names in words": '[{"subject_name": "Nora Blum", "relation": "founded", "Object Label": "Osthafen"}]',
    "nodes' ids": '{"edges": [{"source_node_id": "Nora Blum", "target_node_id": "Osthafen", "type": "founded"}]}',
    "numbered ends": '[{"entity_1": "Nora Blum", "relationship_type": "founded", "entity_2": "Osthafen"}]',
    "arguments": '[{"arg1": "Nora Blum", "rel": "founded", "arg2": "Osthafen"}]',
    "shortened": "[{'subj': 'Nora Blum', 'pred': 'founded', 'obj': 'Osthafen',}]",
    "an end by its type": '[{"subject": {"Person": "Nora Blum"}, "predicate": {"type": "founded"}, "object": '
    '{"Yard": "Osthafen"}}]',
    "lists as slots": '[{"subject": ["Nora Blum"], "predicate": ["founded"], "object": ["Osthafen"]}]',
    "rows in lists": '{"triples": [["Nora Blum | founded | Osthafen"]]}',
    "a source": '[["Nora Blum", "founded", "Osthafen", [2]], ["Nora Blum", "founded", "Osthafen", "[2]"]]',
    "a comment": '[["Nora Blum", "founded", "Osthafen"], // the first\n]',
    "a fence in a text": json.dumps(f"```json\n{FACTS}\n```"),
    "short names": '[{"s": "Nora Blum", "p": "founded", "o": "Osthafen"}]',
    "edges of nodes": '[{"node_1": "Nora Blum", "node_2": "Osthafen", "edge": "founded"}]',
    "from and to": '{"edges": [{"from": "Nora Blum", "to": "Osthafen", "label": "founded"}]}',
    "objects as ends": '[{"subject": {"name": "Nora Blum", "type": "person"}, "predicate": "founded", "object": '
    '{"name": "Osthafen"}}]',
    "ids as ends": '{"nodes": ["Nora Blum", "Osthafen", "Bremen"], "relationships": [{"source": {"id": "Nora Blum"}, '
    '"target": {"id": "Osthafen", "type": "Yard"}, "type": "founded"}]}',
    "objects in a list": '[[{"name": "Nora Blum"}, "founded", {"name": "Osthafen"}]]',
    "objects in Python": "[{'head': {'name': 'Nora Blum'}, 'type': 'founded', 'tail': {'name': 'Osthafen'}}]",
    "a confidence": '[["Nora Blum", "founded", "Osthafen", 0.93]]',
    "a confidence in words": '[["Nora Blum", "founded", "Osthafen", "high"]]',
    "a high confidence": '[["Nora Blum", "founded", "Osthafen", "very high confidence"]]',
    "a confidence in an object": '[["Nora Blum", "founded", "Osthafen", {"confidence": 0.9}]]',
    "a confidence in a row": "Nora Blum | founded | Osthafen | 95%",
    "a confidence in a tuple": "('Nora Blum', 'founded', 'Osthafen', 0.9)",
    "lists of lists": f"[{FACTS}]",
    "lists around slots": '[[["Nora Blum"], ["founded"], ["Osthafen"]]]',
    "a call": f'<tool_call>\n{{"name": "f", "arguments": {{"triples": {FACTS}}}}}\n</tool_call>',
    "a call as text": json.dumps({"name": "f", "arguments": json.dumps({"triples": [WHOLE]})}),
    "a call in Python": f"PassageFacts(entities=['Nora Blum', 'Osthafen', 'Bremen'], triples=[{WHOLE}])",
    "a table in bold": "| subject | predicate | object |\n|---|---|---|\n| **Nora Blum** | founded | « Osthafen » |",
    "DeepSeek's call": "<think>hm</think>\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>facts\n"
    f'```json\n{{"triples": {FACTS}}}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "DeepSeek's newer call": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>facts<｜tool▁sep｜>"
    f'{{"triples": {FACTS}}}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "a list as text": json.dumps({"triples": FACTS}),
    "JSON in a JSON text": json.dumps(json.dumps({"triples": [WHOLE]})),
}
THREE = '["Nora Blum", "Osthafen", "Bremen"]'
ENTITIES = {
    "bold": f"**Named entities:**\n{THREE}\n\n**Triples:**\n{FACTS}",
    "heading": f"### Entities\n{THREE}\n\n### Triples\n{FACTS}",
    "counted": f"1. Named entities (3):\n{THREE}\n2. Triples:\n{FACTS}",
    "words": f"The entities are {THREE}. The triples are {FACTS}.",
    "fences": f"Entities:\n```json\n{THREE}\n```\nTriples:\n```json\n{FACTS}\n```",
    "tags": f"<entities>{THREE}</entities>\n<triples>{FACTS}</triples>",
    "Python": f"**Entities**\n('Nora Blum', 'Osthafen', 'Bremen')\n**Triples**\n{WHOLE}",
    "people": f"People: {THREE}\nTriples: {FACTS}",
    "no label": f"{THREE}\n{FACTS}",
    "behind": f"Triples:\n{FACTS}\n\nNamed entities found:\n{THREE}",
    "a flat fact": f"**Entities**\n{THREE}\n**Triple**\n{json.dumps(WHOLE)}",
    "a row": "Entities: Nora Blum | Osthafen | Bremen\nTriples:\nNora Blum | founded | Osthafen",
    "a table": "### Entities\n| name | type | note |\n|---|---|---|\n| Nora Blum | person | founder |\n\n### Triples\n"
    "| subject | predicate | object |\n|---|---|---|\n| Nora Blum | founded | Osthafen |",
    "another key": f'{{"people": {THREE}, "facts": {FACTS}}}',
}
BEHIND = {
    "ChatML": f'{{"triples": {FACTS}}}<|im_end|>\n<|im_start|>user\n["Paul Kern", "sold", "Osthafen"]',
    "Llama 2": f'{FACTS}</s>\n\n[INST] ["Paul Kern", "sold", "Osthafen"]',
    "DeepSeek": f'{FACTS}<｜end▁of▁sentence｜><｜User｜>["Paul Kern", "sold", "Osthafen"]',
    "glued": f'{FACTS}</s>["Paul Kern", "sold", "Osthafen"]',
    "Gemma": "Nora Blum | founded | Osthafen<end_of_turn>\n<start_of_turn>user\nPaul Kern | sold | Osthafen",
    "a made-up turn": f'{FACTS}\n\nUser: ["Paul Kern", "sold", "Osthafen"]',
}


@pytest.mark.parametrize(
    "reply", [*SHAPES.values(), *ENTITIES.values(), *BEHIND.values()], ids=[*SHAPES, *ENTITIES, *BEHIND]
)
def test_a_fact_in_every_shape_and_nothing_beside_it(reply: str) -> None:
    assert parse_triples(scan_reply(reply)).triples == (Triple(*WHOLE),)


@pytest.mark.parametrize(
    ("reply", "facts"),
    [
        ('[1] says that (as far as I see) [["a", "b", "c"]]', [("a", "b", "c")]),
        ('["a", "b", "c"]\n["d", "e", "f"]', [("a", "b", "c"), ("d", "e", "f")]),
        ('Facts about these entities. The list: [["a", "b", "c"]]', [("a", "b", "c")]),
        ('[["a", "b", "c"]]\n["d", "e", "f"]', [("a", "b", "c"), ("d", "e", "f")]),
        ('{"triple": ["a", "b", "c"], "sources": [[1, 2]]}', [("a", "b", "c")]),
        ('[["a", "cites", "[1]"], ["b", "has", "{x}"]]', [("a", "cites", "[1]"), ("b", "has", "{x}")]),
        ('[{"source": "Wikipedia", "type": "article"}, ["a", "b", "c"]]', [("a", "b", "c")]),
    ],
)
def test_what_looks_like_entities_and_is_none(reply: str, facts: list[tuple[str, str, str]]) -> None:
    assert parse_triples(scan_reply(reply)).triples == tuple(Triple(*slots) for slots in facts)


def test_half_characters_are_none() -> None:
    triples = (
        parse_triples(scan_reply("a\ud800 | b | c\ud83d\ude00")).triples
        + parse_triples(scan_reply("[('\\ud83d\\ude00', '\\ude00', 'x')]")).triples
    )
    assert triples == (Triple("a\ufffd", "b", "c\U0001f600"), Triple("\U0001f600", "\ufffd", "x"))


def test_every_golden_reply_has_its_expectation() -> None:
    assert len(NAMES) > 65
    assert NAMES == sorted(path.stem for path in REPLIES.glob("*.json"))


@pytest.mark.parametrize("name", NAMES)
def test_golden(name: str) -> None:
    reply = (REPLIES / f"{name}.txt").read_bytes().decode()
    expected = json.loads((REPLIES / f"{name}.json").read_text(encoding="utf-8"))
    if expected == {"error": True}:
        with pytest.raises(ReplyError):
            parse_triples(scan_reply(reply))
        return
    parsed = parse_triples(scan_reply(reply))
    assert {"triples": list(map(_list_slots, parsed.triples)), "malformed": parsed.malformed} == expected


def test_the_error_shows_the_reply_in_short() -> None:
    with pytest.raises(ReplyError, match="empty"):
        parse_triples(scan_reply("\n"))
    with pytest.raises(ReplyError, match="Sorry, no can do"):
        parse_triples(scan_reply("Sorry, no can do"))
    with pytest.raises(ReplyError, match="none of the 2 entries"):
        parse_triples(scan_reply('[["a", "b"], ["c"]]'))
    with pytest.raises(ReplyError) as caught:
        parse_triples(scan_reply("start " + "x" * 100_000 + " end"))
    assert len(str(caught.value)) < 400 and "start" in str(caught.value) and "end" in str(caught.value)


@pytest.mark.parametrize("case", [str.lower, str.upper, str.swapcase], ids=["lower", "upper", "swapped"])
def test_letters_keep_their_case(case: Callable[[str], str]) -> None:
    slots = [case(slot) for slot in ("McDonald's", "is Based in", "Oak Brook, iLLinois")]
    for reply in (
        json.dumps({"triples": [slots]}),
        " | ".join(slots),
        str(tuple(slots)),
        f"```\n[{tuple(slots)},]\n```",
    ):
        assert parse_triples(scan_reply(reply)).triples == (Triple(*slots),)


def test_a_triple_at_any_depth_is_found() -> None:
    for depth in (1, 10, 500, 900, 20_000):
        reply = "[" * depth + '"a", "b", "c"' + "]" * depth
        assert parse_triples(scan_reply(reply)).triples == (Triple("a", "b", "c"),)


@pytest.mark.parametrize(
    ("start", "unit", "size"),
    [
        ("", "[]", 80_000),
        ("[", '"x", ', 80_000),
        ("", "['", 80_000),
        ('["', "('a'b", 80_000),
        ('["', '\\\\"a', 80_000),
        ("", "no a ", 80_000),
        ("", "entities:[", 80_000),
        ("", '"triples": ', 80_000),
        ("", "1, [1 ", 80_000),
        ("", "a|b|c\n", 80_000),
        ("", "(a, b) ", 80_000),
        ("a | b | ", "id", 20_000),
        ('["', "“", 80_000),
        ("", "<think>", 80_000),
        ("", "</think>x", 80_000),
        ("", "<think>\na|</think>", 80_000),
    ],
)
def test_long_garbage_is_read_in_linear_time(start: str, unit: str, size: int) -> None:
    def read(reply: str) -> None:
        with suppress(ReplyError):
            parse_triples(scan_reply(reply))

    assert_linear(read, lambda length: start + unit * (length // len(unit)), size)


@settings(max_examples=200)
@given(st.one_of(st.text(), MANGLED, MANGLED.map(lambda text: f'{{"triples": [["a", "b", "c"], {text}')))
def test_only_reply_errors_are_raised(reply: str) -> None:
    try:
        parsed = parse_triples(scan_reply(reply))
    except ReplyError:
        return
    assert len(set(parsed.triples)) == len(parsed.triples)
    json.dumps([_list_slots(triple) for triple in parsed.triples], ensure_ascii=False).encode()  # no half surrogates


@given(st.lists(TRIPLES, min_size=1, max_size=8, unique=True), st.booleans(), st.sampled_from([None, 1, 2]))
def test_json_of_any_triples_comes_back(triples: list[Triple], escaped: bool, indent: int | None) -> None:
    listed = [_list_slots(triple) for triple in triples]
    roles = [{"subject": t.subject, "predicate": t.predicate, "object": t.object} for t in triples]
    for value in (listed, {"triples": listed}, {"named_entities": ["a", "b", "c"], "triples": roles}):
        dumped = json.dumps(value, ensure_ascii=escaped, indent=indent)
        for reply in (dumped, f"Here's the JSON:\n```json\n{dumped}\n```\nThat's it."):
            parsed = parse_triples(scan_reply(reply))
            assert parsed.triples == tuple(triples) and parsed.malformed == 0


@given(st.lists(SIMPLE, min_size=2, max_size=5, unique=True), st.data())
def test_a_cut_loses_nothing_that_was_whole(triples: list[Triple], data: st.DataObject) -> None:
    """Wherever a reply is cut, all triples with a closing bracket are read, and no other is made up."""
    dumped = json.dumps({"named_entities": ["x", "y", "z"], "triples": list(map(_list_slots, triples))})
    ends = [dumped.index(json.dumps(_list_slots(triple))) + len(json.dumps(_list_slots(triple))) for triple in triples]
    cut = data.draw(st.integers(ends[0], len(dumped)))
    whole = sum(end <= cut for end in ends)
    assert parse_triples(scan_reply(dumped[:cut])).triples == tuple(triples[:whole])


def test_a_fact_longer_than_any_honest_one_is_none() -> None:
    """An overlong fact is dropped, because it would become a query to the index."""
    reply = json.dumps({"triples": [["a", "b", "c" * 9_990], ["a", "b", "c" * 10_000], ["d", "e", "f"]]})
    parsed = parse_triples(scan_reply(reply))
    assert [len(triple.object) for triple in parsed.triples] == [9_990, 1] and parsed.malformed == 1
