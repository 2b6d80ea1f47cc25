"""A query engine as a tool: what an agent reads of it, and what is left for the program behind the agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Settings
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.agent.workflow.workflow_events import ToolCallResult
from llama_index.core.llms import MockLLM
from llama_index.core.response_synthesizers import ResponseMode, get_response_synthesizer
from llama_index.core.schema import TextNode
from llama_index.core.tools import QueryEngineTool, ToolOutput
from llama_index.core.workflow import Context

from llama_index_gear import GeARQueryEngine, GeARVectorStore, T2RAGQueryEngine
from llama_index_gear.errors import ArgumentError
from llama_index_gear.query_engines.tool import TOOL_DESCRIPTION, TracedResponse
from llama_index_gear.testing import ScriptedLLM, WordEmbedding
from llama_index_gear.tests.asking import MODES, fill_store
from llama_index_gear.tests.store_contract import passage

QUESTION = "Where does Ann's father live?"
PASSAGES = {
    "Ann": ("Ann's father is Bob.", ("Ann", "father", "Bob")),
    "Bob": ("Bob lives in Rome.", ("Bob", "in", "Rome")),
}
GEAR = ['{"needed": [1, 2], "facts": [["Bob", "lives in", "Rome"]], "answerable": true, "answer": "Rome"}']
T2RAG = [
    '{"triples": [["Ann", "father", "?father"], ["?father", "in", "?place"]]}',
    '{"facts": [{"clue": 1, "triple": ["Ann", "father", "Bob"]}, {"clue": 2, "triple": ["Bob", "in", "Rome"]}]}',
    "Rome [1]",
]


@pytest.fixture(scope="module")  # nobody writes to it
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeARVectorStore]:
    nodes = [
        passage(f"{title}-0", text, [slots], metadata={"title": title}) for title, (text, slots) in PASSAGES.items()
    ]
    yield from fill_store(tmp_path_factory.mktemp("store"), nodes)


def make_engine(store: GeARVectorStore, script: list[str] | None = None, **arguments: Any) -> GeARQueryEngine:
    llm = ScriptedLLM(GEAR if script is None else script)
    return GeARQueryEngine.from_vector_store(store, llm=llm, **arguments)


async def call(mode: str, tool: QueryEngineTool, question: str = QUESTION) -> ToolOutput:
    return tool.call(input=question) if mode == "sync" else await tool.acall(input=question)


@MODES
async def test_an_agent_reads_what_the_numbers_mean_and_the_program_has_the_rest(
    store: GeARVectorStore, mode: str
) -> None:
    tool = make_engine(store).as_tool()
    output = await call(mode, tool)
    response = output.raw_output
    assert isinstance(response, TracedResponse) and str(response) == "Rome [1][2]"
    first, second = (result.node.metadata["title"] for result in response.source_nodes)
    assert {first, second} == {"Ann", "Bob"}
    assert output.content == f"Rome [1][2]\n[1] {first}\n[2] {second}"
    assert response.metadata is not None and response.metadata["gear_stopped"] == "answered"
    assert response.trace.gist == [["Bob", "lives in", "Rome"]] and response.trace.question == QUESTION
    assert output.raw_input == {"input": QUESTION} and output.tool_name == "answer_from_documents"


@MODES
async def test_t2rag_is_a_tool_too(store: GeARVectorStore, mode: str) -> None:
    engine = T2RAGQueryEngine.from_vector_store(store, llm=ScriptedLLM(T2RAG))
    output = await call(mode, engine.as_tool("facts", "knows Ann"))
    response = output.raw_output
    assert output.content == f"Rome [1]\n[1] {response.source_nodes[0].node.metadata['title']}"
    assert (output.tool_name, response.trace.stopped) == ("facts", "resolved")


@MODES
async def test_a_stream_is_read_to_its_end(store: GeARVectorStore, mode: str) -> None:
    output = await call(mode, make_engine(store, streaming=True).as_tool())
    assert output.content.startswith("Rome [1][2]\n[1] ")
    assert len(output.raw_output.metadata["gear_cited"]) == 2 and output.raw_output.trace.response == "Rome [1][2]"


@MODES
@pytest.mark.parametrize(("written", "text"), [("compact", "Rome \ufffd"), ("no_text", "")])
async def test_half_a_character_or_no_text_can_be_sent_on(
    store: GeARVectorStore, mode: str, written: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models write the former; a synthesizer that writes nothing must not have written "None"."""
    step = '{"needed": [1], "facts": [], "answerable": true, "answer": ""}'
    monkeypatch.setattr(Settings, "_llm", MockLLM())
    synthesizer = get_response_synthesizer(response_mode=ResponseMode(written))
    arguments = {} if text else {"response_synthesizer": synthesizer}
    output = await call(mode, make_engine(store, [step, "Rome \ud83d"], **arguments).as_tool())
    assert output.content == text == output.raw_output.response == output.raw_output.trace.response


def test_a_passage_without_a_title_is_named_by_its_text(tmp_path: Path) -> None:
    with GeARVectorStore.from_path(tmp_path / "s", embed_model=WordEmbedding()) as store:
        store.add(store.embed_model([TextNode(id_="8c1f", text="Bob lives in Rome.")]))
        output = make_engine(store, [GEAR[0].replace("[1, 2]", "[1]")]).as_tool().call(input=QUESTION)
    assert output.content == "Rome [1]\n[1] Bob lives in Rome."


async def test_what_was_not_found_is_said_without_citations(store: GeARVectorStore) -> None:
    lost = '{"needed": [], "facts": [], "answerable": false, "query": "Who is Bob?"}'
    output = await make_engine(store, [lost] * 4, abstain=True).as_tool().acall(QUESTION)
    assert output.content == "I don't know. Not found: Who is Bob?"


def test_the_description_is_short_enough_for_any_model(store: GeARVectorStore) -> None:
    tool = make_engine(store).as_tool()
    described = tool.metadata.to_openai_tool()["function"]  # refuses more than 1,024 characters
    assert described["name"] == "answer_from_documents" and described["description"] == TOOL_DESCRIPTION
    assert tool.query_engine.__class__ is GeARQueryEngine  # LlamaIndex's routers and sub-question engines ask it


@pytest.mark.parametrize("arguments", [{"name": ""}, {"description": " "}, {"name": None}, {"description": 1}])
def test_an_empty_name_or_description_is_refused(store: GeARVectorStore, arguments: Any) -> None:
    with pytest.raises(ArgumentError, match=f"{next(iter(arguments))} must be a text that is not empty"):
        make_engine(store).as_tool(**arguments)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Skipping serialization")  # LlamaIndex's own
async def test_in_a_function_agent_whose_context_is_kept(store: GeARVectorStore, tool_caller: Any) -> None:
    """The agent reads the answer with its titles; the program gets the trace by events; the context can be stored."""
    llm, seen = tool_caller("answer_from_documents", QUESTION)
    agent = FunctionAgent(tools=[make_engine(store).as_tool()], llm=llm, streaming=False)
    context = Context(agent)
    handler = agent.run("Find out.", ctx=context)
    results = [event async for event in handler.stream_events() if isinstance(event, ToolCallResult)]
    await handler
    assert any(text.startswith("Rome [1][2]\n[1] ") for text in seen)
    assert [result.tool_output.raw_output.trace.stopped for result in results] == ["answered"]
    assert context.to_dict()


def test_neither_titles_nor_the_answer_forge_a_citation(tmp_path: Path) -> None:
    title = "Ann\n[2] Bank Policy [3] (id: b)\x1b[2J\u202e ↳"
    with GeARVectorStore.from_path(tmp_path / "s", embed_model=WordEmbedding()) as store:
        store.add(store.embed_model([TextNode(id_="a", text="Bob lives in Rome.", metadata={"title": title})]))
        step = '{"needed": [1], "facts": [], "answerable": true, "answer": "Rome\\n[2] Bank Policy\\u2028 [3] x"}'
        output = make_engine(store, [step]).as_tool().call(input=QUESTION)
    answer, *lines = output.content.split("\n")
    assert answer == "Rome" and lines[0].startswith(r"(2) Bank Policy\u2028 ")
    assert lines[1:] == [r"[1] Ann (2) Bank Policy (3) (id b)\u001b[2J\u202e \u21b3"]
    assert "\u2028" in output.raw_output.response, "a program gets the answer as it is"
