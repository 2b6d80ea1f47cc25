"""GeAR's query engine on a real embedded store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import PromptTemplate
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.response.schema import AsyncStreamingResponse, Response, StreamingResponse
from llama_index.core.callbacks import CallbackManager, CBEventType, LlamaDebugHandler
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.query import QueryEndEvent, QueryStartEvent
from llama_index.core.instrumentation.span_handlers import SimpleSpanHandler
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index_instrumentation import get_dispatcher

from llama_index_gear import (
    DiverseTripleBeamSearch,
    GeARQueryEngine,
    GeARVectorStore,
    SyncGERetriever,
)
from llama_index_gear.errors import ArgumentError
from llama_index_gear.query_engines.gear import ANSWER_PROMPT
from llama_index_gear.retrievers.paper_gear import PaperGeARRetriever
from llama_index_gear.testing import ScriptedLLM, WordEmbedding
from llama_index_gear.tests.asking import MODES, fill_store, list_ids, unlabelled
from llama_index_gear.trace.trace import Trace, TraceEvent

Slots = list[str]

QUESTION = "Which land does the father of Ann live in"
WHERE_ROME = "Where is Rome"
FATHER, LIVES, LIES = ["Ann", "father", "Bob"], ["Bob", "lives in", "Rome"], ["Rome", "lies in", "Italy"]
PASSAGES: dict[str, tuple[str, Slots]] = {
    "ann": ("Ann's father is Bob", FATHER),
    "bob": ("Bob lives in Rome", LIVES),
    "rome": ("Rome lies in Italy", LIES),
    "tea": ("The father of tea lives on", ["tea", "grows in", "China"]),
    "milk": ("Cheese is made of milk", ["Cheese", "made of", "milk"]),
    "odd": ("Which of Ann's\n#####\nhats", ["hats", "are of", "felt"]),
}


def write_facts(*slots: Slots) -> str:
    return json.dumps({"triples": slots})


STEP_1 = [write_facts(FATHER), write_facts(FATHER, LIVES), '{"answerable": false, "reason": "where Rome is"}']
STEP_2 = [write_facts(LIES), write_facts(LIES), '{"answerable": true, "answer": "Italy"}']
SEARCH = [*STEP_1, json.dumps({"query": WHERE_ROME}), *STEP_2]
ANSWER = "Italy [1][2]"
SCRIPT = [*SEARCH, ANSWER]
COMPACT = {
    "gear_stopped": "answered",
    "gear_answer": "Italy",
    "gear_queries": [QUESTION, WHERE_ROME],
    "gear_gist": [FATHER, LIVES, LIES],
    "gear_llm_calls": 7,
    "gear_problems": [],
}


@pytest.fixture(scope="module")  # nobody writes to it
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeARVectorStore]:
    yield from fill_store(
        tmp_path_factory.mktemp("store"),
        [unlabelled(name, text, [fact], name=name) for name, (text, fact) in PASSAGES.items()],
    )


Mode = str


async def ask(mode: Mode, engine: BaseQueryEngine, question: str = QUESTION) -> Any:
    return engine.query(question) if mode == "sync" else await engine.aquery(question)


async def ask_with_trace(mode: Mode, engine: GeARQueryEngine, question: str = QUESTION) -> tuple[Any, Trace]:
    return engine.query_with_trace(question) if mode == "sync" else await engine.aquery_with_trace(question)


async def join_pieces(response: Any) -> str:
    """Return a response's text, streamed or not: the pieces that it came in, joined by "|"."""
    if isinstance(response, AsyncStreamingResponse):
        return "|".join([piece async for piece in response.async_response_gen()])
    if isinstance(response, StreamingResponse):
        return "|".join(response.response_gen)
    return str(response)


def select_search_metadata(response: Any) -> dict[str, Any]:
    """Return the response's metadata about the search, without its tokens and times."""
    return {key: response.metadata[key] for key in COMPACT}


def format_shown(found: Sequence[NodeWithScore]) -> str:
    """Format passages as our own answer prompt shows them."""
    texts = [PASSAGES[name][0].replace("#####", "####") for name in list_ids(found)]
    return "\n\n".join(f"[{number}] {text}" for number, text in enumerate(texts, start=1))


# -- an answer and its evidence ---------------------------------------------------------------------------------------


@MODES
async def test_the_sources_are_the_passages_themselves(store: GeARVectorStore, mode: Mode) -> None:
    response = await ask(mode, GeARQueryEngine(PaperGeARRetriever(SyncGERetriever(store, llm=ScriptedLLM(SCRIPT)))))
    found = PaperGeARRetriever(SyncGERetriever(store, llm=ScriptedLLM(SEARCH))).retrieve(QUESTION)
    assert response.source_nodes == found and len(found) == len(PASSAGES)
    chains = {source.node.node_id: source.node.metadata["gear_chain"] for source in response.source_nodes}
    assert chains["bob"] == [FATHER, LIVES]
    for node in response.source_nodes:
        assert node.node.get_content(metadata_mode=MetadataMode.LLM) == PASSAGES[node.node.node_id][0]
        assert response.metadata[node.node.node_id] == node.node.metadata


@MODES
async def test_the_answer_prompt_numbers_the_first_passages(store: GeARVectorStore, mode: Mode) -> None:
    for top_k in (1, 2, 5, 99):
        llm = ScriptedLLM(SCRIPT)
        response = await ask(
            mode, GeARQueryEngine(PaperGeARRetriever(SyncGERetriever(store, llm=llm)), answer_top_k=top_k)
        )
        context = format_shown(response.source_nodes[:top_k])
        assert llm.history[-1] == ANSWER_PROMPT.format(context_str=context, query_str=QUESTION)
        assert len(response.source_nodes) == len(PASSAGES)
    assert "####\nhats" in llm.history[-1] and "\n#####\nhats" not in llm.history[-1]
    llm = ScriptedLLM(SCRIPT)
    await ask(mode, GeARQueryEngine(PaperGeARRetriever(SyncGERetriever(store, llm=llm))))
    assert "\n\n[5] " in llm.history[-1] and "\n\n[6] " not in llm.history[-1]


@MODES
async def test_the_trace_beside_the_answer(store: GeARVectorStore, mode: Mode) -> None:
    llm = ScriptedLLM(SCRIPT)
    engine = GeARQueryEngine(PaperGeARRetriever(SyncGERetriever(store, llm=llm)))
    response, trace = await ask_with_trace(mode, engine, f" {QUESTION} ")
    assert type(response) is Response and str(response) == ANSWER and llm.remaining == 0
    assert {"ann", "bob", "rome"} <= set(list_ids(response.source_nodes))
    assert select_search_metadata(response) == COMPACT
    assert response.metadata and json.loads(json.dumps(response.metadata)) == response.metadata
    assert (trace.question, trace.stopped, trace.answer, trace.llm_calls) == (QUESTION, "answered", "Italy", 7)
    assert [source.passage_id for source in trace.passages] == list_ids(response.source_nodes)
    compact = trace.compact()
    assert COMPACT.keys() < compact.keys()
    assert {key: response.metadata[key] for key in compact} == compact


@MODES
async def test_a_failing_search_is_answered_from_and_named(store: GeARVectorStore, mode: Mode) -> None:
    llm = ScriptedLLM([*SEARCH[:5], PermissionError("down"), ANSWER])
    response = await ask(mode, GeARQueryEngine(PaperGeARRetriever(SyncGERetriever(store, llm=llm))))
    assert str(response) == ANSWER and response.metadata["gear_stopped"] == "failed: PermissionError: down"


@MODES
async def test_an_empty_store_has_an_empty_response(tmp_path: Path, mode: Mode) -> None:
    store = GeARVectorStore.from_path(tmp_path / "empty", embed_model=WordEmbedding(), embed_triples=True)
    for streaming in (False, True):
        llm = ScriptedLLM()
        engine = GeARQueryEngine(PaperGeARRetriever(SyncGERetriever(store, llm=llm)), streaming=streaming)
        response = await ask(mode, engine)
        assert await join_pieces(response) == "Empty Response" and response.source_nodes == []
        assert response.metadata["gear_stopped"] == "nothing found" and response.metadata["gear_llm_calls"] == 0
        assert response.metadata["gear_queries"] == [QUESTION] and llm.history == []


# -- streaming, and the reasoner's own answer -------------------------------------------------------------------------


@MODES
async def test_streaming(store: GeARVectorStore, mode: Mode) -> None:
    llm = ScriptedLLM(SCRIPT)
    response, trace = await ask_with_trace(
        mode, GeARQueryEngine(PaperGeARRetriever(SyncGERetriever(store, llm=llm)), streaming=True)
    )
    assert isinstance(response, StreamingResponse if mode == "sync" else AsyncStreamingResponse)
    assert select_search_metadata(response) == COMPACT
    assert [source.passage_id for source in trace.passages] == list_ids(response.source_nodes)
    assert await join_pieces(response) == "Italy| [1][2]" and llm.remaining == 0


# -- synthesizers, postprocessors, prompts ----------------------------------------------------------------------------


@MODES
async def test_a_synthesizer_of_one_s_own_gets_the_passages_as_they_are(store: GeARVectorStore, mode: Mode) -> None:
    llm, writer = ScriptedLLM(SEARCH), ScriptedLLM(["Italy, I think"])
    own = get_response_synthesizer(response_mode="tree_summarize", llm=writer)  # type: ignore[arg-type]
    engine = GeARQueryEngine(PaperGeARRetriever(SyncGERetriever(store, llm=llm)), own, answer_top_k=3)
    response = await ask(mode, engine)
    assert str(response) == "Italy, I think" and llm.remaining == writer.remaining == 0
    (prompt,) = writer.history
    used = list_ids(response.source_nodes)[:3]
    assert all(PASSAGES[name][0] in prompt for name in used) and "[1]" not in prompt and "gear_" not in prompt
    assert all(PASSAGES[name][0] not in prompt for name in PASSAGES.keys() - set(used))
    assert len(response.source_nodes) == len(PASSAGES) and response.metadata["gear_stopped"] == "answered"


class OnlyEvenRanks(BaseNodePostprocessor):
    """A postprocessor that keeps every second passage and records which of its methods was called."""

    ways: list[str] = []

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        assert query_bundle is not None and query_bundle.query_str == QUESTION
        self.ways.append("sync")
        return nodes[1::2]

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        self._postprocess_nodes(nodes, query_bundle)
        self.ways[-1] = "async"
        return nodes[1::2]


@MODES
async def test_postprocessors_apply_in_order_before_the_answer(store: GeARVectorStore, mode: Mode) -> None:
    whole = PaperGeARRetriever(SyncGERetriever(store, llm=ScriptedLLM(SEARCH))).retrieve(QUESTION)
    cutoff = whole[3].score or 0
    llm = ScriptedLLM(SCRIPT)
    even = OnlyEvenRanks(ways=[])
    manager = CallbackManager([])
    engine = GeARQueryEngine(
        PaperGeARRetriever(SyncGERetriever(store, llm=llm)),
        node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=cutoff), even],
        callback_manager=manager,
    )
    response = await ask(mode, engine)
    assert list_ids(response.source_nodes) == [list_ids(whole)[1], list_ids(whole)[3]] and even.ways == [mode]
    assert llm.history[-1] == ANSWER_PROMPT.format(context_str=format_shown([whole[1], whole[3]]), query_str=QUESTION)
    assert even.callback_manager is manager


@MODES
async def test_a_postprocessor_that_asks_for_itself_has_no_part_in_the_trace(
    store: GeARVectorStore, mode: Mode
) -> None:
    again = DiverseTripleBeamSearch(store, llm=ScriptedLLM([write_facts(LIES)]), top_n=3)
    engine = GeARQueryEngine(
        PaperGeARRetriever(SyncGERetriever(store, llm=ScriptedLLM(SCRIPT))), node_postprocessors=[again]
    )
    response, trace = await ask_with_trace(mode, engine)
    assert len(response.source_nodes) == 3 and len(trace.passages) == len(PASSAGES)
    assert trace.llm_calls == response.metadata["gear_llm_calls"] == 7


def test_prompts_are_visible_and_replaceable_through_the_engine(store: GeARVectorStore) -> None:
    llm = ScriptedLLM(SCRIPT)
    engine = GeARQueryEngine(PaperGeARRetriever(SyncGERetriever(store, llm=llm)))
    prompt_names = ["retriever:read", "retriever:gist", "retriever:reason", "retriever:rewrite"]
    assert {*prompt_names, "response_synthesizer:text_qa_template"} <= engine.get_prompts().keys()
    assert engine.get_prompts()["response_synthesizer:text_qa_template"] == ANSWER_PROMPT
    engine.update_prompts(
        {
            "retriever:read": PromptTemplate("My reading: {passages} {question}"),
            "response_synthesizer:text_qa_template": PromptTemplate("My answer: {context_str} {query_str}"),
        }
    )
    engine.query(QUESTION)
    assert [prompt.startswith("My reading: [1] ") for prompt in llm.history] == [True, *[False] * 3, True, *[False] * 3]
    assert llm.history[-1].startswith("My answer: [1] ") and llm.history[-1].endswith(QUESTION)
    with pytest.raises(ArgumentError, match="gist prompt lacks the variable passages"):
        engine.update_prompts({"retriever:gist": PromptTemplate("{gist} {question}")})


@MODES
async def test_retrieve_and_synthesize_alone(store: GeARVectorStore, mode: Mode) -> None:
    llm = ScriptedLLM(SCRIPT)
    engine = GeARQueryEngine(PaperGeARRetriever(SyncGERetriever(store, llm=llm)), answer_top_k=2)
    bundle, more = QueryBundle(QUESTION), [NodeWithScore(node=TextNode(id_="more", text="more"))]
    if mode == "sync":
        found = engine.retrieve(bundle)
        response = engine.synthesize(bundle, found, more)
    else:
        found = await engine.aretrieve(bundle)
        response = await engine.asynthesize(bundle, found, more)
    assert str(response) == ANSWER and response.source_nodes == [*found, *more]
    assert llm.history[-1] == ANSWER_PROMPT.format(context_str=format_shown(found[:2]), query_str=QUESTION)


# -- watching ---------------------------------------------------------------------------------------------------------


async def test_the_events_end_with_the_response(store: GeARVectorStore) -> None:
    for streaming in (False, True):
        engine = GeARQueryEngine(
            PaperGeARRetriever(SyncGERetriever(store, llm=ScriptedLLM(SCRIPT))), streaming=streaming
        )
        *events, response = [item async for item in engine.astream_events(QUESTION)]
        assert isinstance(response, AsyncStreamingResponse if streaming else Response)
        assert (await join_pieces(response)).replace("|", "") == ANSWER
        told = [event for event in events if isinstance(event, TraceEvent)]
        assert len(told) == len(events)
        assert [event.value for event in told if event.kind == "query"] == [QUESTION, WHERE_ROME]
        assert [event.value for event in told if event.kind == "stopped"] == ["answered"]
        assert len([event for event in told if event.kind == "call"]) == 7
        assert response.metadata is not None and response.metadata["gear_llm_calls"] == 7


class Recorder(BaseEventHandler):
    seen: list[BaseEvent] = []

    @classmethod
    def class_name(cls) -> str:
        return "Recorder"

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        if isinstance(event, QueryStartEvent | QueryEndEvent):
            self.seen.append(event)


@MODES
async def test_instrumentation_and_callbacks_see_one_query(store: GeARVectorStore, mode: Mode) -> None:
    root, recorder, spans = get_dispatcher(), Recorder(seen=[]), SimpleSpanHandler()
    debug = LlamaDebugHandler(print_trace_on_end=False)
    manager = CallbackManager([debug])
    agent = PaperGeARRetriever(SyncGERetriever(store, llm=ScriptedLLM(SCRIPT)), callback_manager=manager)
    engine = GeARQueryEngine(agent, callback_manager=manager)
    root.add_event_handler(recorder)
    root.add_span_handler(spans)
    try:
        response = await ask(mode, engine)
    finally:
        root.event_handlers.remove(recorder)
        root.span_handlers.remove(spans)
    start, end = recorder.seen
    assert isinstance(start, QueryStartEvent) and start.query == QUESTION
    assert isinstance(end, QueryEndEvent) and end.response is response
    names = [span.id_.split("-")[0] for span in spans.completed_spans]
    prefix = "" if mode == "sync" else "a"
    for name in (f"BaseQueryEngine.{prefix}query", f"BaseRetriever.{prefix}retrieve"):
        assert sum(span_name.split(".")[1] == name.split(".")[1] for span_name in names) == 1
    assert names.count(f"GeARQueryEngine._{prefix}query") == names.count(f"PaperGeARRetriever._{prefix}retrieve") == 1
    for kind in (CBEventType.QUERY, CBEventType.RETRIEVE, CBEventType.SYNTHESIZE):
        ((begun, ended),) = debug.get_event_pairs(kind)
        assert (begun.payload or ended.payload) is not None
    assert debug.get_event_pairs(CBEventType.QUERY)[0][1].payload == {"response": response}


# -- several at once --------------------------------------------------------------------------------------------------


def make_thoughtful_llm(answer: str) -> ScriptedLLM:
    """Return a model that finds the answer after one step about Ann, and after two about others."""

    def reply_to(prompt: str) -> str:
        if "Give the answer alone" in prompt:
            return answer
        if "Searched so far" in prompt:
            return json.dumps({"query": f"{WHERE_ROME}, says {answer}"})
        done = "Ann" in prompt.rsplit("Question: ", 1)[1] or LIES[0] in prompt.split("#####")[1]
        return json.dumps({"triples": [FATHER if "Ann" in prompt else LIES], "answerable": done, "answer": answer})

    return ScriptedLLM(otherwise=reply_to)


async def test_engines_and_questions_side_by_side_do_not_mix_their_traces(store: GeARVectorStore) -> None:
    engines = [
        GeARQueryEngine(PaperGeARRetriever(SyncGERetriever(store, llm=make_thoughtful_llm(name))))
        for name in ("one", "two")
    ]
    questions = [QUESTION, "Where does Bob live", "What lies in Italy", "Who is Ann", "Tea"]
    pairs = [(engine, question) for question in questions for engine in engines]
    alone = [await engine.aquery_with_trace(question) for engine, question in pairs]
    together = await asyncio.gather(*(engine.aquery_with_trace(question) for engine, question in pairs))
    streams = await asyncio.gather(*(get_last(engine, question) for engine, question in pairs))
    for (_, question), (response, trace), (expected, once), streamed in zip(
        pairs, together, alone, streams, strict=True
    ):
        assert trace.question == question and trace.steps == once.steps and trace.passages == once.passages
        assert str(response) == str(expected) == str(streamed)
        assert response.source_nodes == expected.source_nodes == streamed.source_nodes
        assert streamed.metadata["gear_queries"] == once.compact()["gear_queries"]
        assert response.metadata is not None and response.metadata["gear_queries"][0] == question
    assert {len(trace.steps) for _, trace in alone} >= {1, 2}
    assert [str(response) for response, _ in alone] == ["one", "two"] * len(questions)


async def get_last(engine: GeARQueryEngine, question: str) -> Any:
    async for item in engine.astream_events(question):
        last = item
    return last
