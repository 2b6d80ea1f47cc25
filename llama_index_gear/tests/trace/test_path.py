"""The path to an answer: which facts and passages it has, how its trees hang together, and how it is written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.schema import TextNode

from llama_index_gear.nodes import name_passage
from llama_index_gear.trace import trace_page as rendering
from llama_index_gear.trace.evidence import ClueState, PassageLink, Slots, Source, Unknown, Walked
from llama_index_gear.trace.path import MAX_FACTS, MAX_PASSAGES, PathFact, PathNode, find_answer_path, list_facts
from llama_index_gear.trace.trace import Trace

SON = ["Stephen Curry", "son of", "Dell Curry"]
PLAYED = ["Dell Curry", "played for", "Hokies"]
JOINED = ["Dell Curry", "joined in", "1982"]
ASIDE = ["Klay Thompson", "teammate of", "Stephen Curry"]


def make_trace(
    gist: Sequence[Slots], links: Sequence[Sequence[str]], chains: dict[str, list[Slots]], **fields: Any
) -> Trace:
    trace = Trace(question="When did the father of Stephen Curry join the team?", answer="1982")
    step = trace.open_step()
    trace.note(step, query=trace.question, gist=[list(slots) for slots in gist], passages=list(chains))
    trace.note(
        titles={passage_id: f"Title {passage_id}" for passage_id in chains},
        links=[PassageLink(triple=slots, passages=list(ids)) for slots, ids in zip(gist, links, strict=True)],
        passages=[
            Source(passage_id=passage_id, title=f"Title {passage_id}", text="", score=1.0, ranks={}, chain=chain)
            for passage_id, chain in chains.items()
        ],
    )
    trace.note(**fields)
    return trace


def write(node: PathNode) -> str:
    """Return a tree in one line: `>` leads down, `<` up, `…` to a name that stands elsewhere."""
    parts = []
    for branch in node.branches:
        arrows = "".join(">" if leads_down else "<" for _, leads_down in branch.facts)
        parts.append(f"{arrows}{write(branch.node)}")
    name = node.name + "?" * node.is_asked + "!" * node.is_answer + "…" * node.is_repeat
    return f"{name}({' '.join(parts)})" if parts else name


def test_it_leads_from_the_question_to_the_answer() -> None:
    gist, links = [SON, PLAYED, JOINED, ASIDE], [["a"], ["b"], ["b"], ["c"]]
    trace = make_trace(gist, links, {"a": [], "b": [], "c": []}, citations={"1": "b"})
    path = find_answer_path(trace)
    assert path.passages == ["b", "a"]
    assert [(fact.slots, fact.passages) for fact in path.facts] == [(SON, ("a",)), (PLAYED, ("b",)), (JOINED, ("b",))]
    assert [write(tree) for tree in path.trees] == ["Stephen Curry?(>Dell Curry(>Hokies >1982!))"]


def test_a_reader_says_in_which_passages_it_read() -> None:
    trace = make_trace([SON, JOINED], [["c", "b", "a"], ["a", "c"]], {"a": [], "b": [], "c": []})
    trace.note(trace.steps[0], needed=["b", "a"])
    assert [fact.passages for fact in find_answer_path(trace).facts] == [("b",), ("a",)]
    trace.note(trace.steps[0], needed=["d", "e"])  # neither is linked to a fact
    assert [fact.passages for fact in find_answer_path(trace).facts] == [(), ()]
    assert find_answer_path(trace).passages == ["d", "e"]


def test_stored_triples_lead_to_a_passage_without_a_fact_and_join_what_is_apart() -> None:
    adviser = ["Oppenheimer", "studied under", "Max Born"]
    daughter = ["Newton-John", "granddaughter of", "Max Born"]
    born = ["Newton-John", "born in", "Cambridge"]
    trace = make_trace([born], [["b"]], {"a": [adviser], "b": [adviser, daughter]}, citations={"1": "b", "2": "a"})
    trace.note(question="Where was the granddaughter of Oppenheimer's adviser born?", answer="Cambridge")
    path = find_answer_path(trace)
    assert [(fact.slots, fact.passages, fact.is_noted) for fact in path.facts] == [
        (born, ("b",), True),
        (adviser, ("a",), False),
        (daughter, ("b",), False),
    ]
    assert [write(tree) for tree in path.trees] == ["Oppenheimer?(>Max Born(<Newton-John(>Cambridge!)))"]
    noted = make_trace([["Max Born", "taught", "Oppenheimer"]], [["a"]], {"a": [adviser]}, citations={"1": "a"})
    assert [fact.is_noted for fact in find_answer_path(noted).facts] == [True]  # says the same


def test_where_a_stored_triple_was_read() -> None:
    walked = ["Dell Curry", "met", "Nobody"]
    sentence = "He was a member of the side from 1982 to 1986 and then left it."
    quoted = ["Hokies", sentence, "Dell Curry"]
    trace = make_trace([], [], {"a": [walked, quoted, SON], "b": []})
    trace.passages[1].text = f"The Hokies play. {sentence}"
    trace.note(trace.steps[0], beams=[Walked(score=1.0, chain=[walked], passage_ids=["z"])])
    found = {tuple(fact.slots): fact.passages for fact in find_answer_path(trace).facts}
    assert found == {tuple(walked): ("z",), tuple(quoted): ("b",), tuple(SON): ("a",)}


def test_a_fact_that_is_a_whole_chain_is_of_the_passage_that_has_its_sentence() -> None:
    """Else it is of the passage that it leads to."""
    sentence = "He was a member of the side from 1982 to 1986 and then left it."
    trace = make_trace([], [], {"a": [["Hokies", sentence, "Dell Curry"]], "b": [SON], "c": []})
    for text, origin in ((f"The Hokies play. {sentence}", "c"), ("The Hokies play.", "a")):
        trace.passages[2].text = text
        assert [fact.passages for fact in find_answer_path(trace).facts] == [(origin,), ("b",)]


def test_rings_and_facts_both_ways_are_drawn_without_a_second_line() -> None:
    gist = [["A", "knows", "B"], ["B", "likes", "A"], ["B", "knows", "C"], ["C", "knows", "A"], ["C", "is", "C"]]
    trace = make_trace(gist, [["p"]] * 5, {"p": []}, question="A?", answer="C")
    (tree,) = find_answer_path(trace).trees
    assert write(tree) == "A?(><B(>C…) <C!(>C…))"


NAMES = st.sampled_from(["Stephen Curry", "Dell Curry", "1982", *"ABCDEFG"])
FACTS = st.lists(st.tuples(NAMES, st.sampled_from(["knows", "likes"]), NAMES).map(list), max_size=20)


@settings(max_examples=150, deadline=None)
@given(FACTS, FACTS, st.lists(st.integers(0, 11), max_size=11))
def test_each_fact_stands_once_and_each_name_once(gist: list[Slots], chain: list[Slots], cited: list[int]) -> None:
    ids = [f"p{number}" for number in range(12)]
    chains = {passage_id: chain[at : at + 2] for at, passage_id in enumerate(ids)}
    citations = {str(number): ids[number] for number in cited}
    trace = make_trace(gist, [[ids[at % 12]] for at in range(len(gist))], chains, citations=citations)
    path = find_answer_path(trace)
    assert len(path.facts) <= MAX_FACTS and len(path.passages) <= MAX_PASSAGES
    drawn: list[PathFact] = []
    names: list[str] = []

    def visit(node: PathNode) -> None:
        if not node.is_repeat:
            names.append(node.name)
        assert not (node.is_repeat and node.branches)
        for branch in node.branches:
            drawn.extend(fact for fact, _ in branch.facts)
            visit(branch.node)

    for tree in path.trees:
        visit(tree)
    assert sorted(map(id, drawn)) == sorted(map(id, path.facts)) and list(list_facts(path.trees)) == drawn
    assert sorted(names) == sorted({name for fact in path.facts for name in (fact.slots[0], fact.slots[2])})
    rendering.to_html(trace)


def test_the_page_has_the_path_the_passages_and_a_legend_of_what_occurs() -> None:
    gist, links = [SON, PLAYED, JOINED], [["a"], ["b"], ["b"]]
    trace = make_trace(gist, links, {"a": [], "b": [], "c": []}, citations={"2": "b"}, response="1982 [2]")
    html = rendering.to_html(trace)
    top, folded = html.split('<details class="rest">', 1)
    assert re.findall("<span class='box([a-z ]*)'>([^<]+)</span></div>", top) == [
        (" asked", "Stephen Curry"),
        ("", "Dell Curry"),
        ("", "Hokies"),
        (" answer", "1982"),
    ]
    assert "<i>joined in</i> <a class='chip' href='#passage-2'>[2] Title b</a>" in top
    assert "<details class='passage' open id='passage-2'" in top and "id='passage-3'" in folded
    legend = top.split("class='legend'")[1].split("</div>")[0]
    assert "in the answer" in legend and "that the model noted" in legend
    assert "stored triple" not in legend and "elsewhere" not in legend


@pytest.mark.parametrize("answer", ["", "1982 [1]"])
def test_t2rags_answer_and_open_clues_stand_under_the_heading(answer: str) -> None:
    trace = make_trace([SON], [["a"]], {"a": []}, response=answer, answer="")
    clue = ClueState(asked=["?x", "joined", "?y <b>"], triple=["Dell", "joined", "?y <b>"], state="searchable", round=0)
    unknown = Unknown(name="?y <b>", round=0, tried=["Dell joined"])
    trace.note(trace.steps[0], clues=[clue], open=[unknown], values={"?x": "Dell"})
    head = rendering.to_html(trace).split("</h1>")[1].split('<div class="columns">')[0]
    assert (answer or "No answer.") in head and "Found out: ?x = Dell" in head
    assert "Open: Dell — joined — ?y &lt;b&gt;" in head


def test_a_passage_without_a_title_is_called_by_its_file() -> None:
    text = "One two three four five six seven eight nine ten eleven twelve"
    assert name_passage(TextNode(text=text, metadata={"title": "T", "file_name": "a.md"})) == "T"
    called = name_passage(TextNode(text=text, metadata={"file_name": "a.md"}))
    assert called == "a.md: One two three four five six seven eight nine ten …"
    assert name_passage(TextNode(text="One two")) == "One two"
