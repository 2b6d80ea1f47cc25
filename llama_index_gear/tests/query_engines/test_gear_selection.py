"""`GeARQueryEngine` with a `GeARRetriever`: the answer of the agent's last call, and its citations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import NodeWithScore

from llama_index_gear import Budget, GeARQueryEngine, GeARRetriever, GeARVectorStore
from llama_index_gear.testing import Reply, ScriptedLLM
from llama_index_gear.tests.asking import MODES, fill_store, list_ids
from llama_index_gear.tests.store_contract import passage
from llama_index_gear.trace import trace_page as rendering
from llama_index_gear.trace.trace import Trace

QUESTION = "Where does the father of Ann live"
TEXTS = {
    "ann": "Ann has a father, who is Bob",
    "bob": "Bob lives in Rome",
    "tea": "Tea is grown where rain falls",
}


@pytest.fixture(scope="module")  # nobody writes to it
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeARVectorStore]:
    yield from fill_store(tmp_path_factory.mktemp("store"), [passage(*item) for item in TEXTS.items()])


def say(*names: str, **rest: Any) -> Callable[[str], str]:
    """Make a reply that names passages by their numbers in the prompt."""

    def reply(prompt: str) -> str:
        shown = prompt.split("#####")[2].strip().split("\n\n")
        places = {text.split("] ", 1)[1]: number for number, text in enumerate(shown, start=1)}
        return json.dumps({"needed": [places[TEXTS[name]] for name in names], **rest})

    return reply


def say_answer(*names: str, answer: str = "Rome") -> Callable[[str], str]:
    return say(*names, answerable=True, answer=answer)


UNANSWERED: list[Reply] = [say("bob", facts=[["Bob", "lives in", "Rome"]], answerable=False)]
NEXT = say("ann", answerable=False, query="Where does Bob live")


def make_engine(
    store: GeARVectorStore, replies: Sequence[Reply], budget: Budget | None = None, **arguments: Any
) -> tuple[GeARQueryEngine, ScriptedLLM]:
    llm = ScriptedLLM(replies)
    return GeARQueryEngine(GeARRetriever(store, llm=llm, budget=budget), **arguments), llm


async def query(mode: str, engine: GeARQueryEngine) -> Any:
    return engine.query(QUESTION) if mode == "sync" else await engine.aquery(QUESTION)


async def query_with_trace(mode: str, engine: GeARQueryEngine, question: str = QUESTION) -> tuple[Any, Trace]:
    return engine.query_with_trace(question) if mode == "sync" else await engine.aquery_with_trace(question)


class Backwards(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes: list[NodeWithScore], query_bundle: Any = None) -> list[NodeWithScore]:
        return nodes[::-1]


@MODES
async def test_the_last_call_s_answer_is_the_answer(store: GeARVectorStore, mode: str) -> None:
    engine, llm = make_engine(store, [NEXT, say_answer("bob", "ann", answer="Rome [7]")])
    response = await query(mode, engine)
    assert str(response) == "Rome (7) [1][2]" and list_ids(response.source_nodes) == ["ann", "bob", "tea"]
    assert (response.metadata["gear_answer"], response.metadata["gear_answered"]) == ("Rome [7]", True)
    assert llm.remaining == 0 and response.metadata["gear_llm_calls"] == 2


@MODES
async def test_citations_are_of_the_last_call(store: GeARVectorStore, mode: str) -> None:
    response = await query(mode, make_engine(store, [NEXT, say_answer("bob")])[0])
    assert str(response) == "Rome [2]"
    response = await query(mode, make_engine(store, [NEXT, say_answer()])[0])
    assert str(response) == "Rome [1]"  # it rests on the notes
    response = await query(mode, make_engine(store, [say_answer()])[0])
    assert str(response) == "Rome"


@MODES
async def test_the_trace_and_the_metadata_say_which_passages_are_cited(store: GeARVectorStore, mode: str) -> None:
    engine, _ = make_engine(store, [NEXT, say_answer("bob", answer="Rome [1]")], node_postprocessors=[Backwards()])
    response, trace = await query_with_trace(mode, engine)
    assert list_ids(response.source_nodes) == ["tea", "bob", "ann"] and str(response) == "Rome (1) [2]"
    assert (trace.response, trace.citations) == ("Rome (1) [2]", {"2": "bob"})
    assert response.metadata["gear_cited"] == ["bob"] and Trace.model_validate_json(trace.model_dump_json()) == trace
    html = rendering.to_html(trace)
    assert "Rome (1) <a href='#passage-2'" in html and "[2] Bob lives in Rome</a></li>" in html
    engine, _ = make_engine(store, UNANSWERED, abstain=True)
    response, trace = await query_with_trace(mode, engine, f"{QUESTION} [1]")
    assert str(response) == f"I don't know. Not found: {QUESTION} (1)" == trace.response
    assert response.metadata["gear_cited"] == [] and trace.citations == {}


@MODES
async def test_a_synthesizer_cites_what_it_was_shown(store: GeARVectorStore, mode: str) -> None:
    written = "Perhaps Rome [1][3] [9] [0]"
    replies: list[Reply] = [say("bob", facts=[["Bob", "lives in", "Rome [3]"]], answerable=False), written]
    for streaming in (False, True):
        engine, llm = make_engine(store, replies, answer_top_k=2, streaming=streaming)
        response, trace = await query_with_trace(mode, engine)
        if streaming:  # known when the stream ends
            assert trace.citations == {} and response.metadata["gear_cited"] == []
            stream = response.response_gen if mode == "sync" else response.async_response_gen()
            assert "".join([*stream] if mode == "sync" else [part async for part in stream]) == written
        assert "- Bob lives in Rome (3)" in llm.history[1] and "[3]" not in llm.history[1].split("Question")[0]
        assert trace.response == written and trace.citations == {"1": "bob"}
        assert response.metadata["gear_cited"] == ["bob"]
    own = get_response_synthesizer(llm=ScriptedLLM(["Mine [1]"]))
    response, trace = await query_with_trace(mode, make_engine(store, UNANSWERED, response_synthesizer=own)[0])
    assert (trace.response, trace.citations) == ("Mine [1]", {})  # its passages had no numbers


@MODES
async def test_without_an_answer_one_more_call_answers_from_what_there_is(store: GeARVectorStore, mode: str) -> None:
    engine, llm = make_engine(store, [*UNANSWERED, "Perhaps Rome [1]"])
    response = await query(mode, engine)
    assert str(response) == "Perhaps Rome [1]" and llm.remaining == 0
    assert response.metadata["gear_answered"] is False and response.metadata["gear_llm_calls"] == 1
    assert "[1] Bob lives in Rome" in llm.history[1] and "- Bob lives in Rome" in llm.history[1]
    assert list_ids(response.source_nodes)[0] == "bob"
    engine, llm = make_engine(store, [say("ann", answerable=True, answer=""), "Rome [1]"])  # says yes, and no more
    response = await query(mode, engine)
    assert str(response) == "Rome [1]" and llm.remaining == 0 and response.metadata["gear_answered"] is False


@MODES
async def test_abstaining_makes_no_call(store: GeARVectorStore, mode: str) -> None:
    engine, llm = make_engine(store, UNANSWERED, abstain=True)
    response = await query(mode, engine)
    assert str(response) == f"I don't know. Not found: {QUESTION}" and not response.metadata["gear_answered"]
    engine, llm = make_engine(store, [NEXT], abstain=True, budget=Budget(max_llm_calls=1))
    assert str(await query(mode, engine)) == "I don't know. Not found: Where does Bob live"
    engine, llm = make_engine(store, [say("ann", answerable=True, answer=""), "Rome"], abstain=True)
    assert str(await query(mode, engine)) == f"I don't know. Not found: {QUESTION}" and llm.remaining == 1
    engine, llm = make_engine(store, [say_answer("bob")], abstain=True)
    assert str(await query(mode, engine)) == "Rome [1]" and llm.remaining == 0


@MODES
async def test_a_synthesizer_of_the_user_s_gets_the_named_passages(store: GeARVectorStore, mode: str) -> None:
    own = ScriptedLLM(["Mine", "Mine"])
    for replies, shown in (([say_answer("bob")], ["bob"]), ([say_answer()], list(TEXTS))):
        engine, _ = make_engine(store, replies, response_synthesizer=get_response_synthesizer(llm=own))
        assert str(await query(mode, engine)) == "Mine"
        assert [name for name, text in TEXTS.items() if text in own.history[-1]] == shown
