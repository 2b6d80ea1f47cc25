"""T²RAG as a retriever and a query engine on a real embedded store: searches, prompts, clues and answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

import llama_index_gear.agents.t2rag.policy as t2rag
from llama_index_gear import GeARVectorStore, T2RAGQueryEngine, T2RAGRetriever
from llama_index_gear.agents.loop import Budget
from llama_index_gear.errors import ArgumentError
from llama_index_gear.testing import Reply, ScriptedLLM, WordEmbedding
from llama_index_gear.tests.asking import MODES, fill_store, list_ids, unlabelled
from llama_index_gear.trace.trace import Trace, TraceEvent

Slots = list[str]
Mode = str

# T²RAG App. E.1, in words of our own: two films, two directors, two years of birth.
QUESTION = "Which film has the director born earlier, Gift or Annet?"
GIFT, ANNET = ["Gift", "directed by", "?directorA"], ["Annet", "directed by", "?directorB"]
BORN_A, BORN_B = ["?directorA", "born in", "?yearA"], ["?directorB", "born in", "?yearB"]
PASSAGES: dict[str, tuple[str, list[Slots]]] = {
    "gift": ("Gift is a film by Curtiz", [["Gift", "directed by", "Curtiz"], ["Gift", "is", "film"]]),
    "annet": ("Annet is a film by Carlmar", [["Annet", "directed by", "Carlmar"]]),
    "carlmar": ("Carlmar made Annet. Carlmar was born in 1911", [["Carlmar", "made", "Annet"]]),
    "curtiz": ("Curtiz was born in 1886", [["Curtiz", "born in", "1886"]]),
    "budapest": ("Curtiz grew up in Budapest", [["Curtiz", "grew up in", "Budapest"]]),
    "danube": ("Budapest lies on the Danube", [["Budapest", "lies on", "Danube"]]),
    "again": ("The Danube passes Budapest", [["Budapest", "lies on", "Danube"]]),
    "tea": ("Tea is grown in China", [["Tea", "grown in", "China"]]),
}


def write_clues(*slots: Slots) -> str:
    return json.dumps({"triples": slots})


def write_facts(*stated: tuple[int, Slots, list[int]]) -> str:
    return json.dumps({"facts": [{"clue": n, "triple": t, "passages": p} for n, t, p in stated]})


NOTHING = '{"facts": []}'
TWO_FILMS: list[Reply] = [
    write_clues(GIFT, ANNET, BORN_A, BORN_B),
    # Round 1 asks for both directors, and chances upon a year of birth.
    lambda prompt: write_facts(
        (1, ["Gift", "directed by", "Curtiz"], [find_number(prompt, "gift")]),
        (2, ["Annet", "directed by", "Carlmar"], [find_number(prompt, "annet")]),
        (4, ["Carlmar", "born in", "1911"], [find_number(prompt, "carlmar")]),
    ),
    # Round 2 asks for the other year.
    lambda prompt: write_facts((3, ["Curtiz", "born in", "1886"], [find_number(prompt, "curtiz")])),
]


def find_number(prompt: str, name: str) -> int:
    """Return the number of a passage in a prompt."""
    found = re.search(rf"^\[(\d+)\] {re.escape(PASSAGES[name][0])}$", prompt, re.MULTILINE)
    assert found, (name, prompt)
    return int(found[1])


@pytest.fixture(scope="module")  # nobody writes to it
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeARVectorStore]:
    yield from fill_store(
        tmp_path_factory.mktemp("store"), [unlabelled(name, *told, name=name) for name, told in PASSAGES.items()]
    )


async def search(mode: Mode, retriever: T2RAGRetriever, question: str = QUESTION) -> tuple[list[NodeWithScore], Trace]:
    if mode == "sync":
        return retriever.retrieve_with_trace(question)
    return await retriever.aretrieve_with_trace(question)


async def ask(mode: Mode, engine: T2RAGQueryEngine, question: str = QUESTION) -> tuple[Any, Trace]:
    return engine.query_with_trace(question) if mode == "sync" else await engine.aquery_with_trace(question)


def list_states(trace: Trace, number: int) -> list[tuple[str, str]]:
    return [(" ".join(clue.triple), clue.state) for clue in trace.steps[number - 1].clues]


# -- what the paper shows ---------------------------------------------------------------------------------------------


@MODES
async def test_two_films_two_directors_two_years(store: GeARVectorStore, mode: Mode) -> None:
    llm = ScriptedLLM(TWO_FILMS)
    found, trace = await search(mode, T2RAGRetriever(store, llm=llm, passages_per_round=3))
    assert (trace.stopped, llm.remaining, [call.purpose for call in trace.calls]) == (
        "resolved",
        0,
        ["decompose", "resolve", "resolve"],
    )
    one, two = trace.steps
    assert (one.searched, two.searched) == (["Gift directed by", "Annet directed by"], ["Curtiz born in"])
    assert list_states(trace, 1) == [
        ("Gift directed by Curtiz", "resolved"),
        ("Annet directed by Carlmar", "resolved"),
        ("Curtiz born in ?yearA", "searchable"),
        ("Carlmar born in 1911", "resolved"),
    ]
    assert one.values == {"?directorA": "Curtiz", "?directorB": "Carlmar", "?yearB": "1911"}
    assert [(unknown.name, unknown.round, unknown.tried) for unknown in one.open] == [("?yearA", 0, [])]
    assert [state for _, state in list_states(trace, 2)] == ["resolved"] * 4
    assert two.values == {"?yearA": "1886"} and two.open == [] and trace.open == []
    assert trace.gist == [
        ["Gift", "directed by", "Curtiz"],
        ["Annet", "directed by", "Carlmar"],
        ["Carlmar", "born in", "1911"],
        ["Curtiz", "born in", "1886"],
    ]
    assert [link.passages for link in trace.links] == [["gift"], ["annet"], ["carlmar"], ["curtiz"]]
    assert set(one.passages) == {"gift", "annet", "carlmar"} and "curtiz" in two.passages
    # By eye: a passage is in the list of its round, and, all four, first in that of a fact.
    expected = {
        name: 1 / 61 + sum(1 / (61 + step.passages.index(name)) for step in trace.steps if name in step.passages)
        for name in ("gift", "annet", "carlmar", "curtiz")
    }
    assert list_ids(found)[:4] == sorted(expected, key=lambda name: -expected[name])
    assert [node.score for node in found][:4] == pytest.approx(sorted(expected.values(), reverse=True))
    assert Trace.model_validate_json(trace.model_dump_json()) == trace


@MODES
async def test_the_answer_is_written_from_the_facts(store: GeARVectorStore, mode: Mode) -> None:
    llm = ScriptedLLM([*TWO_FILMS, "Gift [1]"])
    response, trace = await ask(mode, T2RAGQueryEngine.from_vector_store(store, llm=llm, passages_per_round=3))
    assert str(response) == "Gift [1]" and llm.remaining == 0
    numbers = {node_id: number for number, node_id in enumerate(list_ids(response.source_nodes), start=1)}
    context = llm.history[-1].split("#####")[2].strip().splitlines()
    assert context == [
        f"- Gift directed by Curtiz [{numbers['gift']}]",
        f"- Annet directed by Carlmar [{numbers['annet']}]",
        f"- Carlmar born in 1911 [{numbers['carlmar']}]",
        f"- Curtiz born in 1886 [{numbers['curtiz']}]",
    ]
    assert response.metadata["gear_stopped"] == "resolved" and response.metadata["gear_open"] == []
    assert response.metadata["gear_llm_calls"] == trace.llm_calls == 3
    assert response.source_nodes[0].node.metadata["gear_chain"]


@MODES
async def test_two_passages_that_state_the_same_fact_are_both_named(store: GeARVectorStore, mode: Mode) -> None:
    replies: list[Reply] = [
        write_clues(["Budapest", "lies on", "?river"]),
        lambda prompt: write_facts((1, ["Budapest", "lies on", "Danube"], [find_number(prompt, "danube")])),
    ]
    llm = ScriptedLLM(replies)
    _, trace = await search(mode, T2RAGRetriever(store, llm=llm, passages_per_round=2))
    assert trace.links[0].passages == ["danube", "again"]
    assert re.search(r"^- Budapest lies on Danube \[1\]\[2\]$", llm.history[1], re.MULTILINE)


@MODES
async def test_yes_or_no(store: GeARVectorStore, mode: Mode) -> None:
    """A question without an unknown has its claim searched; the claim is no fact before a passage states it."""
    claim = ["Carlmar", "made", "Annet"]
    replies: list[Reply] = [
        write_clues(claim),
        lambda prompt: write_facts((1, claim, [find_number(prompt, "carlmar")])),
        "Yes [1]",
    ]
    llm = ScriptedLLM(replies)
    response, trace = await ask(mode, T2RAGQueryEngine.from_vector_store(store, llm=llm), "Did Carlmar make Annet?")
    assert trace.steps[0].searched == ["Carlmar made Annet"]
    assert (str(response), trace.stopped, trace.gist, list_states(trace, 1)) == (
        "Yes [1]",
        "resolved",
        [claim],
        [("Carlmar made Annet", "resolved")],
    )
    engine = T2RAGQueryEngine.from_vector_store(store, llm=ScriptedLLM(replies), abstain=True)
    assert str((await ask(mode, engine, "Did Carlmar make Annet?"))[0]) == "Yes [1]"
    other = write_facts((1, ["Carlmar", "made", "Annet"], []))
    llm = ScriptedLLM([write_clues(["Carlmar", "made", "Gift"]), other])
    engine = T2RAGQueryEngine.from_vector_store(store, llm=llm, abstain=True)
    response, trace = await ask(mode, engine, "Did Carlmar make Gift?")
    assert (trace.stopped, trace.gist, list_states(trace, 1)) == (
        "nothing new",
        [claim],
        [("Carlmar made Gift", "given")],
    )
    assert str(response) == "I don't know. Not found: Carlmar, made, Gift."


@MODES
async def test_what_the_model_asserts_when_it_should_ask_is_no_fact(store: GeARVectorStore, mode: Mode) -> None:
    asserted = ["Gift", "directed by", "Spielberg"]
    llm = ScriptedLLM([write_clues(asserted, ["Gift", "is", "?kind"]), write_facts((2, ["Gift", "is", "film"], []))])
    _, trace = await search(mode, T2RAGRetriever(store, llm=llm))
    assert (trace.stopped, trace.gist, trace.steps[0].searched) == ("resolved", [["Gift", "is", "film"]], ["Gift is"])
    assert list_states(trace, 1)[0] == ("Gift directed by Spielberg", "given")


@MODES
async def test_what_no_passage_says_is_not_taken(store: GeARVectorStore, mode: Mode) -> None:
    """A value from the model's own memory is refused: no passage has it, or only another name's passage."""
    asked = write_clues(GIFT, ["?directorA", "born in", "?town"])
    wrong = write_facts(
        (1, ["Gift", "directed by", "Spielberg"], [1]), (2, ["Spielberg", "born in", "Cincinnati"], [1])
    )
    llm = ScriptedLLM([asked, wrong])
    _, trace = await search(mode, T2RAGRetriever(store, llm=llm, passages_per_round=1))
    assert (trace.stopped, trace.gist, trace.open) == ("nothing new", [], ["?directorA", "?town"])
    assert trace.steps[0].problems == [
        "no passage says: Gift directed by Spielberg; it was left out",
        "no passage says: Spielberg born in Cincinnati; it was left out",
    ]
    other = write_facts((1, ["Gift", "directed by", "Carlmar"], [1]))
    llm = ScriptedLLM([write_clues(GIFT, ANNET), other, NOTHING])
    _, trace = await search(mode, T2RAGRetriever(store, llm=llm, passages_per_round=2))
    assert trace.gist == [] and trace.open == ["?directorA", "?directorB"]
    llm = ScriptedLLM([asked, wrong])
    _, trace = await search(mode, T2RAGRetriever(store, llm=llm, require_grounding=False))
    assert (trace.stopped, trace.open, trace.steps[0].problems) == ("resolved", [], [])


@MODES
async def test_a_round_that_resolves_nothing_ends_it(store: GeARVectorStore, mode: Mode) -> None:
    script = [write_clues(["Gift", "costs", "?sum"], ["?sum", "paid by", "?who"]), NOTHING]
    llm = ScriptedLLM([*script, "The passages do not say."])
    response, trace = await ask(mode, T2RAGQueryEngine.from_vector_store(store, llm=llm), "Who paid for Gift?")
    assert (trace.stopped, len(trace.steps), trace.llm_calls, llm.remaining) == ("nothing new", 1, 2, 0)
    assert response.metadata["gear_open"] == ["?sum", "?who"]
    assert [(unknown.name, unknown.round, unknown.tried) for unknown in trace.steps[0].open] == [
        ("?sum", 0, ["Gift costs"]),
        ("?who", 0, []),
    ]
    assert "[1] " in llm.history[-1]  # no fact: the passages
    llm = ScriptedLLM(script)
    engine = T2RAGQueryEngine.from_vector_store(store, llm=llm, abstain=True)
    response, _ = await ask(mode, engine, "Who paid for Gift?")
    assert str(response) == "I don't know. Not found: Gift, costs, ?sum; ?sum, paid by, ?who."
    assert len(response.source_nodes) == 5 and llm.remaining == 0


@MODES
async def test_what_is_known_and_what_is_not_found_both_reach_the_answer(store: GeARVectorStore, mode: Mode) -> None:
    script: list[Reply] = [
        write_clues(["Gift", "directed by", "?who"], ["?who", "married to", "?wife"]),
        write_facts((1, ["Gift", "directed by", "Curtiz"], [])),
        NOTHING,
    ]
    llm = ScriptedLLM([*script, "Unknown."])
    response, trace = await ask(mode, T2RAGQueryEngine.from_vector_store(store, llm=llm))
    context = llm.history[-1].split("#####")[2].strip().splitlines()
    assert context[0].startswith("- Gift directed by Curtiz [") and context[1] == "- not found: Curtiz married to ?wife"
    assert trace.steps[-1].open[0].tried == ["Curtiz married to"]
    abstaining = T2RAGQueryEngine.from_vector_store(store, llm=ScriptedLLM(script), abstain=True)
    response, _ = await ask(mode, abstaining)
    assert str(response) == "I don't know. Not found: Curtiz, married to, ?wife."


@MODES
async def test_nothing_searchable_falls_back_to_the_question(store: GeARVectorStore, mode: Mode) -> None:
    question = "Who was born in the year Gift came out?"
    replies: list[Reply] = [
        write_clues(["?who", "born in", "?year"]),
        write_facts((1, ["?who", "born in", "1886"], [])),
        NOTHING,
    ]
    _, trace = await search(mode, T2RAGRetriever(store, llm=ScriptedLLM(replies)), question)
    one, two = trace.steps
    assert (one.query, one.searched) == (question, []) and one.fallback.startswith("no clue to search by")
    assert two.searched == ["born in 1886"] and two.fallback == ""
    assert (trace.stopped, trace.open) == ("nothing new", ["?who"])


@MODES
async def test_a_fallback_is_not_repeated(store: GeARVectorStore, mode: Mode) -> None:
    replies: list[Reply] = [
        write_clues(["?who", "born in", "?year"], ["?year", "before", "?other"]),
        write_facts((0, ["Curtiz", "born in", "1886"], [])),  # a fact beside the clues
    ]
    _, trace = await search(mode, T2RAGRetriever(store, llm=ScriptedLLM(replies)), "Who?")
    assert (trace.stopped, len(trace.steps), trace.gist) == ("nothing new", 1, [["Curtiz", "born in", "1886"]])


@MODES
@pytest.mark.parametrize("reply", ["I cannot do that.", ""])
async def test_a_question_that_is_not_taken_apart_is_searched_as_it_is(
    store: GeARVectorStore, mode: Mode, reply: str
) -> None:
    llm = ScriptedLLM([reply, reply, "Curtiz [1]"])
    engine = T2RAGQueryEngine.from_vector_store(store, llm=llm)
    response, trace = await ask(mode, engine, "Gift directed by")
    assert (trace.stopped, str(response), list_ids(response.source_nodes)[0]) == ("no clue", "Curtiz [1]", "gift")
    assert trace.steps[0].problems[0].endswith("the question is searched as it is")
    assert "Your last reply could not be read" in llm.history[1]


@MODES
async def test_a_resolution_that_cannot_be_read_resolves_nothing(store: GeARVectorStore, mode: Mode) -> None:
    llm = ScriptedLLM([write_clues(GIFT), "Hm.", "Hm."])
    _, trace = await search(mode, T2RAGRetriever(store, llm=llm))
    assert (trace.stopped, trace.open) == ("nothing new", ["?directorA"])
    assert trace.steps[0].problems[0].endswith("nothing was resolved")


@MODES
async def test_a_clue_that_the_model_brings_up_is_shown_with_its_round(store: GeARVectorStore, mode: Mode) -> None:
    replies: list[Reply] = [
        write_clues(["Gift", "directed by", "?who"]),
        json.dumps({"facts": [
            {"clue": 1, "triple": ["Gift", "directed by", "Curtiz"]},
            {"triple": ["Curtiz", "grew up in", "?town"]},
        ]}),
        write_facts((2, ["Curtiz", "grew up in", "Budapest"], [])),
    ]  # fmt: skip
    _, trace = await search(mode, T2RAGRetriever(store, llm=ScriptedLLM(replies)))
    assert [(clue.asked, clue.round) for clue in trace.steps[0].clues] == [
        (["Gift", "directed by", "?who"], 0),
        (["Curtiz", "grew up in", "?town"], 1),
    ]
    assert [(unknown.name, unknown.round) for unknown in trace.steps[0].open] == [("?town", 1)]
    assert trace.stopped == "resolved" and trace.steps[1].searched == ["Curtiz grew up in"]


@MODES
async def test_a_constraint_that_no_passage_confirms_is_not_met(store: GeARVectorStore, mode: Mode) -> None:
    asked = write_clues(["Gift", "directed by", "?who"], ["?who", "born in", "1911"])
    script: list[Reply] = [asked, write_facts((1, ["Gift", "directed by", "Curtiz"], [1])), NOTHING]
    engine = T2RAGQueryEngine.from_vector_store(store, llm=ScriptedLLM(script), passages_per_round=2, abstain=True)
    response, trace = await ask(mode, engine)
    assert [step.searched for step in trace.steps] == [["Gift directed by", "born in 1911"], ["Curtiz born in 1911"]]
    assert list_states(trace, 2)[1] == ("Curtiz born in 1911", "unconfirmed") and trace.stopped == "nothing new"
    assert str(response) == "I don't know. Not found: Curtiz, born in, 1911."


@MODES
async def test_the_model_is_shown_so_many_propositions_and_no_more(
    store: GeARVectorStore, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = []
    for limit in (100, 1):
        monkeypatch.setattr(t2rag, "MAX_PROPOSITIONS", limit)
        llm = ScriptedLLM([write_clues(["Gift", "directed by", "?who"]), NOTHING])
        _, trace = await search(mode, T2RAGRetriever(store, llm=llm, max_rounds=1))
        shown.append(sum(" ".join(link.triple) in llm.history[1] for link in trace.steps[0].linked))
    assert shown[0] > 1 and shown[1] == 1


@MODES
async def test_a_passage_that_does_not_state_a_fact_is_not_named_for_it(store: GeARVectorStore, mode: Mode) -> None:
    llm = ScriptedLLM(
        [write_clues(GIFT), write_facts((1, ["Gift", "directed by", "Curtiz"], [1, 2, 3, 4, 5, 99, 0, -1]))]
    )
    _, trace = await search(mode, T2RAGRetriever(store, llm=llm))
    assert len(trace.steps[0].passages) == 5 and trace.links[0].passages == ["gift"]


@MODES
async def test_a_store_without_triples_is_searched_by_its_passages(tmp_path: Any, mode: Mode) -> None:
    store = GeARVectorStore.from_path(tmp_path / "store", embed_model=WordEmbedding(), embed_triples=True)
    store.add([TextNode(id_="tea", text="Tea is grown in China", embedding=WordEmbedding().get_text_embedding("Tea"))])
    said = write_facts((1, ["Tea", "grown in", "China"], [1]))
    llm = ScriptedLLM([write_clues(["Tea", "grown in", "?land"]), said, "Hm.", "Hm."])
    found, trace = await search(mode, T2RAGRetriever(store, llm=llm))
    assert (list_ids(found), trace.gist, trace.stopped) == (["tea"], [["Tea", "grown in", "China"]], "resolved")
    assert trace.steps[0].fallback == "no triples: the passages are searched"
    found, trace = await search(mode, T2RAGRetriever(store, llm=llm), "Where is tea grown?")
    assert (list_ids(found), trace.stopped) == (["tea"], "no clue")
    store.close()


# -- ablations and expansion ------------------------------------------------------------------------------------------


@MODES
async def test_clues_compared_with_passages(store: GeARVectorStore, mode: Mode) -> None:
    llm = ScriptedLLM(
        [write_clues(["Curtiz", "born in", "?year"]), write_facts((1, ["Curtiz", "born in", "1886"], [1]))]
    )
    found, trace = await search(mode, T2RAGRetriever(store, llm=llm, search_by="passages", passages_per_round=2))
    dense = WordEmbedding()
    texts = {name: text for name, (text, _) in PASSAGES.items()}
    similar = sorted(
        texts,
        key=lambda name: (
            -sum(
                one * two
                for one, two in zip(
                    dense.get_text_embedding("Curtiz born in"), dense.get_text_embedding(texts[name]), strict=True
                )
            )
        ),
    )
    assert trace.steps[0].passages == similar[:2] and trace.steps[0].linked == []
    assert "(no statement)" in llm.history[1] and trace.links[0].passages == ["curtiz"]
    assert list_ids(found)[0] == "curtiz"
    llm = ScriptedLLM(["Hm.", "Hm."])
    _, trace = await search(mode, T2RAGRetriever(store, llm=llm, search_by="passages"), "Tea is grown in China")
    assert trace.steps[0].passages[0] == "tea" and len(trace.steps[0].passages) == 5


# -- filters, budget, failures, bad input -----------------------------------------------------------------------------


@MODES
async def test_a_budget_that_allows_for_no_round_gives_what_the_question_finds(
    store: GeARVectorStore, mode: Mode
) -> None:
    llm = ScriptedLLM(["Hm."])
    found, trace = await search(mode, T2RAGRetriever(store, llm=llm, budget=Budget(max_llm_calls=1)), "Tea grown in")
    assert (trace.stopped, list_ids(found)[0], len(found)) == ("max_llm_calls", "tea", 5)


@MODES
@pytest.mark.parametrize("question", ["", "  \n"])
async def test_an_empty_question(store: GeARVectorStore, mode: Mode, question: str) -> None:
    llm = ScriptedLLM([])
    with pytest.raises(ArgumentError, match="the question is empty"):
        await search(mode, T2RAGRetriever(store, llm=llm), question)


@MODES
async def test_more_clues_than_a_question_may_have(store: GeARVectorStore, mode: Mode) -> None:
    many = [[f"Gift {n}", "directed by", f"?who{n}"] for n in range(200)]
    _, trace = await search(mode, T2RAGRetriever(store, llm=ScriptedLLM([write_clues(*many), NOTHING])))
    assert len(trace.steps[0].clues) == len(trace.steps[0].searched) == 32
    assert trace.steps[0].problems == ["200 clues; the first 32 are taken"]


# -- at home in LlamaIndex --------------------------------------------------------------------------------------------


async def test_streams_of_words_and_of_events(store: GeARVectorStore) -> None:
    def make_engine(**options: Any) -> T2RAGQueryEngine:
        llm = ScriptedLLM([*TWO_FILMS, "Gift of course"])
        return T2RAGQueryEngine.from_vector_store(store, llm=llm, passages_per_round=3, **options)

    response = make_engine(streaming=True).query(QUESTION)
    assert isinstance(response, StreamingResponse) and list(response.response_gen) == ["Gift", " of", " course"]
    response = await make_engine(streaming=True).aquery(QUESTION)
    assert isinstance(response, AsyncStreamingResponse)
    assert [piece async for piece in response.async_response_gen()] == ["Gift", " of", " course"]
    events = [event async for event in make_engine().astream_events(QUESTION)]
    kinds = [(event.step, event.kind) for event in events if isinstance(event, TraceEvent)]
    order = [(1, "clues"), (1, "searched"), (1, "linked"), (1, "gist"), (1, "values"), (2, "searched"), (0, "stopped")]
    places = [kinds.index(kind) for kind in order]
    assert places == sorted(places)
    assert str(events[-1]) == "Gift of course"


def test_its_own_synthesizer_is_given_the_passages(store: GeARVectorStore) -> None:
    llm = ScriptedLLM([*TWO_FILMS, "Gift"])
    own = get_response_synthesizer(llm=llm)
    engine = T2RAGQueryEngine.from_vector_store(store, llm=llm, response_synthesizer=own, passages_per_round=3)
    assert str(engine.query(QUESTION)) == "Gift"
    assert PASSAGES["gift"][0] in llm.history[-1] and "not found" not in llm.history[-1]


async def test_the_event_loop_is_not_held_up(store: GeARVectorStore, longest_pause: Any) -> None:
    """Our own code places 40 clues and 60 statements without a pause of the event loop."""
    many = [[f"Gift {n}", "directed by", f"?who{n}"] for n in range(40)]
    said = [(n % 40, [f"Gift {n}", "directed by", f"Somebody {n}"], [1]) for n in range(60)]

    async def work() -> None:
        retriever = T2RAGRetriever(
            store, llm=ScriptedLLM([write_clues(*many), write_facts(*said)], otherwise=lambda _: NOTHING)
        )
        await retriever.aretrieve(QUESTION)

    await work()
    assert min([await longest_pause(work) for _ in range(5)]) < 0.05


# -- what always holds ------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(
    ["Gift", "Annet", "Curtiz", "Carlmar", "1886", "Budapest", "unknown", "?", "?a", "?b", "?c", "?new"]
)
SAID = st.tuples(NAMES, st.sampled_from(["directed by", "born in", "?relation"]), NAMES)


@settings(max_examples=60)
@given(
    st.lists(SAID, min_size=1, max_size=5),
    st.lists(
        st.lists(st.tuples(st.integers(0, 6), SAID, st.lists(st.integers(0, 9), max_size=2)), max_size=5), max_size=4
    ),
)
def test_what_always_holds(store: GeARVectorStore, asked: list[Any], rounds: list[list[Any]]) -> None:
    replies = [
        write_clues(*map(list, asked)),
        *(write_facts(*((n, list(t), p) for n, t, p in said)) for said in rounds),
    ]
    llm = ScriptedLLM(replies, otherwise=lambda _: NOTHING)
    found, trace = T2RAGRetriever(store, llm=llm, passages_per_round=2, max_rounds=4).retrieve_with_trace(QUESTION)
    assert 1 <= trace.llm_calls <= 1 + len(trace.steps) and len(trace.steps) <= 4
    before: Any = None
    for step in trace.steps:
        resolved = [clue.triple for clue in step.clues if clue.state == "resolved"]
        names = {unknown.name for unknown in step.open}
        assert all(not re.search(r"\?\w", " ".join(slots)) for slots in resolved)
        if before is not None:
            old = [clue for clue in step.clues if clue.round < step.number]
            assert [clue.asked for clue in old] == [clue.asked for clue in before.clues]
            for earlier, later in zip(before.clues, old, strict=True):
                assert earlier.state != "resolved" or earlier.triple == later.triple
            new_clues = {
                word
                for clue in step.clues
                if clue.round == step.number
                for word in re.findall(r"\?\w+", str(clue.asked))
            }
            assert names <= {unknown.name for unknown in before.open} | new_clues
        assert len(set(step.passages)) == len(step.passages) <= 2
        before = step
    assert len(trace.gist) == len(trace.links)
    for link in trace.links:
        words = set(re.findall(r"\w+", f"{link.triple[0]} {link.triple[2]}"))
        for node_id in link.passages:
            told = f"{PASSAGES[node_id][0]} {PASSAGES[node_id][1]}"
            assert words <= set(re.findall(r"\w+", told))
    for clue in trace.steps[-1].clues:
        assert clue.state != "resolved" or clue.triple in trace.gist
    assert len(set(list_ids(found))) == len(found) <= 10
    assert set(list_ids(found)) <= {passage_id for step in trace.steps for passage_id in step.passages}


@MODES
async def test_as_many_distinct_passages_as_asked_for_or_all(store: GeARVectorStore, mode: Mode) -> None:
    for count in (1, 3, 8, 20):
        llm = ScriptedLLM([write_clues(["Curtiz", "born in", "?year"], ["Tea", "grown in", "?land"]), NOTHING])
        _, trace = await search(mode, T2RAGRetriever(store, llm=llm, passages_per_round=count))
        (step,) = trace.steps
        assert len(step.passages) == min(count, len(PASSAGES))
        scores = [link.score for link in step.linked]
        assert scores == sorted(scores, reverse=True)
        assert len({(*link.triple, link.passage_id) for link in step.linked}) == len(step.linked)


def test_a_bundle_s_embedding_is_used_when_the_question_is_searched(store: GeARVectorStore) -> None:
    bundle = QueryBundle("Nothing of the kind", embedding=WordEmbedding().get_text_embedding("Tea grown in China"))
    _, trace = T2RAGRetriever(store, llm=ScriptedLLM(["Hm.", "Hm."])).retrieve_with_trace(bundle)
    assert trace.steps[0].passages[0] == "tea"
