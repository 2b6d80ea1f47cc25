"""Agents that could read no reply of their model: the answer's metadata begins with a warning, and one is logged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from llama_index_gear import (
    Budget,
    ExternalGeARRetriever,
    ExternalTripleStore,
    GeARQueryEngine,
    GeARRetriever,
    GeARVectorStore,
    SyncGERetriever,
    T2RAGQueryEngine,
    T2RAGRetriever,
    Triple,
)
from llama_index_gear.query_engines.gear import ANSWER_PROMPT
from llama_index_gear.query_engines.t2rag import CLUES_PROMPT
from llama_index_gear.retrievers.paper_gear import PaperGeARRetriever
from llama_index_gear.testing import ScriptedLLM, WordEmbedding
from llama_index_gear.tests.asking import MODES, fill_store
from llama_index_gear.tests.store_contract import passage
from llama_index_gear.trace.trace import Trace

QUESTION = "Where does the father of Ann live"
TEXTS = {"ann": "Ann has a father, who is Bob", "bob": "Bob lives in Rome"}
AGENTS = pytest.mark.parametrize("agent", ["separate", "merged", "single", "selection", "external", "t2rag"])
READABLE = {
    "separate": '{"answerable": true, "answer": "Rome"}',  # of "reason"; "read" and "gist" can't read it
    "merged": '{"triples": [["Ann", "father", "Bob"]], "answerable": true, "answer": "Rome"}',
    "single": '{"triples": []}',
    "selection": '{"needed": [], "answerable": true, "answer": "Rome"}',
    "external": '{"sufficient": true}',  # of "decide" alone
    "t2rag": '{"triples": [["Ann", "father", "?father"]]}',  # of "decompose"
}


@pytest.fixture(scope="module")  # nobody writes to it
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeARVectorStore]:
    yield from fill_store(
        tmp_path_factory.mktemp("store"), [passage(n, text, [(n, "says", text)]) for n, text in TEXTS.items()]
    )


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExternalTripleStore]:
    with ExternalTripleStore.from_path(tmp_path_factory.mktemp("graph"), embed_model=WordEmbedding()) as made:
        made.load([Triple("Ann", "father", "Bob")])
        yield made


def make_engine(
    agent: str, store: GeARVectorStore, graph: ExternalTripleStore, reply: str, budget: Budget | None = None
) -> tuple[Any, ScriptedLLM]:
    """Make an engine whose model answers every call of the agent with this reply, and writes "Perhaps Rome"."""
    endings = [prompt.get_template().splitlines()[0][:60] for prompt in (ANSWER_PROMPT, CLUES_PROMPT)]
    llm = ScriptedLLM(otherwise=lambda prompt: "Perhaps Rome" if any(ending in prompt for ending in endings) else reply)
    if agent == "t2rag":
        return T2RAGQueryEngine(T2RAGRetriever(store, llm=llm, budget=budget)), llm
    if agent == "external":
        return GeARQueryEngine(ExternalGeARRetriever(SyncGERetriever(store, llm=llm, graph=graph), budget=budget)), llm
    if agent == "selection":
        return GeARQueryEngine(GeARRetriever(store, llm=llm, budget=budget)), llm
    calls: Any = agent
    return GeARQueryEngine(PaperGeARRetriever(SyncGERetriever(store, llm=llm), calls=calls, budget=budget)), llm


async def query(mode: str, engine: Any) -> tuple[Any, Trace]:
    answered = engine.query_with_trace(QUESTION) if mode == "sync" else await engine.aquery_with_trace(QUESTION)
    return answered  # type: ignore[no-any-return]


@AGENTS
@MODES
async def test_where_no_reply_could_be_read_the_metadata_begins_with_a_warning(
    store: GeARVectorStore,
    graph: ExternalTripleStore,
    agent: str,
    mode: str,
    caplog: pytest.LogCaptureFixture,
    capsys: Any,
    tmp_path: Path,
) -> None:
    engine, llm = make_engine(agent, store, graph, "I am not sure what you want")
    response, trace = await query(mode, engine)
    metadata = response.metadata
    count = sum(call.purpose != "rewrite" for call in trace.calls)
    assert next(iter(metadata)) == "gear_warning" and count >= 2 and len(llm.history) == len(trace.calls) + 1
    assert metadata["gear_warning"] == trace.warning
    assert metadata["gear_warning"].startswith(f"none of the language model's replies ({count}) could be read")
    assert all(call.unreadable for call in trace.calls if call.purpose != "rewrite") and set(TEXTS) <= set(metadata)
    assert str(response) == "Perhaps Rome"
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.name.startswith("llama_index_gear") and record.getMessage() == trace.warning
    trace.show()
    assert "none of the language model's" in capsys.readouterr().out.replace("\n", " ")
    page = trace.to_html(tmp_path / "page.html").read_text("utf-8")
    assert f"<p class='problem'>{trace.warning}</p>" in unescape(page.split('class="steps"')[0])


@AGENTS
@MODES
async def test_one_reply_that_could_be_read_is_enough(
    store: GeARVectorStore, graph: ExternalTripleStore, agent: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine, _ = make_engine(agent, store, graph, READABLE[agent])
    response, trace = await query(mode, engine)
    assert next(iter(response.metadata)) == "gear_warning" and response.metadata["gear_warning"] == trace.warning == ""
    assert not all(call.unreadable for call in trace.calls) and not caplog.records


@MODES
async def test_a_reply_that_was_asked_for_once_more_was_read(store: GeARVectorStore, mode: str) -> None:
    llm = ScriptedLLM(["Hm", READABLE["selection"]])
    _, trace = await query(mode, GeARQueryEngine(GeARRetriever(store, llm=llm)))
    assert [call.unreadable for call in trace.calls] == [True, False] and trace.warning == ""
    assert [call.unreadable for call in Trace.model_validate_json(trace.model_dump_json()).calls] == [True, False]


@MODES
async def test_a_budget_that_ends_before_the_second_try_hides_nothing(store: GeARVectorStore, mode: str) -> None:
    llm = ScriptedLLM(["Hm", "Perhaps Rome"])
    agent = GeARRetriever(store, llm=llm, budget=Budget(max_llm_calls=1))
    response, trace = await query(mode, GeARQueryEngine(agent))
    assert trace.stopped == "max_llm_calls" and trace.calls[0].unreadable
    assert response.metadata["gear_warning"].startswith("none of the language model's replies (1) could be read")
