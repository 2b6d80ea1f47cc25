"""What OpenInference's instrumentation of LlamaIndex, the one that Phoenix and others use, makes of a question."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.callbacks import CallbackManager, CBEventType, LlamaDebugHandler
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index_instrumentation import get_dispatcher
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from span_tree import draw_tree

from llama_index_gear import (
    Budget,
    DiverseTripleBeamSearch,
    GeARQueryEngine,
    GeARRetriever,
    GeARTripleExtractor,
    GeARVectorStore,
    GraphRetriever,
    LocalPageRank,
    MentionTripleExtractor,
    NaiveGERetriever,
    PassageRanker,
    PassageSelector,
    SyncGERetriever,
    T2RAGQueryEngine,
)
from llama_index_gear.retrievers.base import GeAREvent
from llama_index_gear.retrievers.paper_gear import PaperGeARRetriever
from llama_index_gear.testing import ScriptedLLM
from llama_index_gear.tests.asking import fill_store
from llama_index_gear.tests.store_contract import passage

# OpenInference's handler calls pydantic's old names; as an error that would lose a span.
pytestmark = pytest.mark.filterwarnings("ignore:The `(json|dict|copy)` method is deprecated:DeprecationWarning")

QUESTION = "Which land does the father of Ann live in"
WHERE_ROME = "Where is Rome"
FATHER, LIVES, LIES = ["Ann", "father", "Bob"], ["Bob", "lives in", "Rome"], ["Rome", "lies in", "Italy"]
PASSAGES = {
    "ann": ("Ann's father is Bob", FATHER),
    "bob": ("Bob lives in Rome", LIVES),
    "rome": ("Rome lies in Italy", LIES),
    "milk": ("Cheese is made of milk", ["Cheese", "made of", "milk"]),
}
FIRST = json.dumps({"needed": [1], "facts": [FATHER], "answerable": False, "query": WHERE_ROME})
LAST = json.dumps({"needed": [1], "facts": [LIES], "answerable": True, "answer": "Italy"})

SELECTION = """\
GeARQueryEngine.query
  GeARQueryEngine._query
    GeARRetriever.retrieve
      GeARRetriever._retrieve
        gear.step
          WordEmbedding.get_query_embedding
          gear.base_search
          gear.pagerank
          gear.ranking
          gear.llm.select
            ScriptedLLM.complete
        gear.step
          WordEmbedding.get_query_embedding
          gear.base_search
          gear.link_triples
            WordEmbedding.get_text_embedding_batch
          gear.pagerank
          gear.ranking
          gear.llm.select
            ScriptedLLM.complete
        gear.final_ranking
          WordEmbedding.get_query_embedding
          WordEmbedding.get_query_embedding
          WordEmbedding.get_text_embedding_batch"""
SEPARATE = """\
GeARQueryEngine.query
  GeARQueryEngine._query
    PaperGeARRetriever.retrieve
      PaperGeARRetriever._retrieve
        gear.step
          WordEmbedding.get_query_embedding
          gear.base_search
          gear.llm.read
            ScriptedLLM.complete
          gear.link_triples
            WordEmbedding.get_text_embedding_batch
          gear.beam_search
          gear.llm.gist
            ScriptedLLM.complete
          gear.llm.reason
            ScriptedLLM.complete
        gear.final_ranking
          WordEmbedding.get_query_embedding
          WordEmbedding.get_text_embedding_batch
    CompactAndRefine.synthesize"""
T2RAG = """\
T2RAGQueryEngine.query
  T2RAGQueryEngine._query
    T2RAGRetriever.retrieve
      T2RAGRetriever._retrieve
        gear.step
          gear.llm.decompose
            ScriptedLLM.complete
          gear.triple_search
            WordEmbedding.get_text_embedding_batch
          gear.llm.resolve
            ScriptedLLM.complete
        gear.final_ranking
    CompactAndRefine.synthesize"""
GRAPH = """\
GraphRetriever.retrieve
  GraphRetriever._retrieve
    WordEmbedding.get_query_embedding
    gear.base_search
    gear.pagerank
    gear.ranking"""
NAIVE = """\
NaiveGERetriever.retrieve
  NaiveGERetriever._retrieve
    WordEmbedding.get_query_embedding
    gear.base_search
    gear.beam_search
    gear.pagerank"""
SCRIPTS = {
    "selection": [FIRST, LAST],
    "separate": [
        json.dumps({"triples": [FATHER]}),
        json.dumps({"triples": [FATHER]}),
        json.dumps({"answerable": True, "answer": "Italy"}),
        "Italy [1]",
    ],
    "t2rag": [
        json.dumps({"triples": [["Ann", "father", "?father"]]}),
        json.dumps({"facts": [{"clue": 1, "triple": FATHER}]}),
        "Bob [1]",
    ],
}
TREES = {"selection": SELECTION, "separate": SEPARATE, "t2rag": T2RAG}


class Counter(SimpleSpanProcessor):
    """Hands ended spans to an exporter, and knows the names of those that are open."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        super().__init__(exporter)
        self.open: list[str] = []

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        super().on_start(span, parent_context)
        self.open.append(span.name)

    def on_end(self, span: ReadableSpan) -> None:
        self.open.remove(span.name)
        super().on_end(span)


class Tracer:
    """The spans of a test."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._processor = Counter(self._exporter)
        self.provider = TracerProvider()
        self.provider.add_span_processor(self._processor)

    @property
    def open(self) -> list[str]:
        """Names of the spans that have begun, and not ended."""
        return self._processor.open

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans that have ended."""
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[dict[str, Any]]:
        """Return the attributes of the spans of this name, first begun first."""
        found = sorted((span for span in self.spans if span.name == name), key=lambda span: span.start_time or 0)
        return [dict(span.attributes or {}) for span in found]

    def errors(self) -> dict[str, str]:
        """Return name → description, of the spans that have failed."""
        return {span.name: span.status.description or "" for span in self.spans if not span.status.is_ok}


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    tracer = Tracer()
    LlamaIndexInstrumentor().instrument(tracer_provider=tracer.provider)
    yield tracer
    LlamaIndexInstrumentor().uninstrument()


@pytest.fixture(scope="module")  # nobody writes to it
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeARVectorStore]:
    nodes = [passage(name, text, [fact]) for name, (text, fact) in PASSAGES.items()]
    yield from fill_store(tmp_path_factory.mktemp("tracing"), nodes)


Engine: TypeAlias = GeARQueryEngine | T2RAGQueryEngine


def make_engine(store: GeARVectorStore, method: str, script: list[Any] | None = None, **settings: Any) -> Engine:
    llm = ScriptedLLM(SCRIPTS[method] if script is None else script)
    if method == "t2rag":
        return T2RAGQueryEngine.from_vector_store(store, llm=llm, **settings)
    if method == "selection":
        return GeARQueryEngine.from_vector_store(store, llm=llm, **settings)
    calls: Any = method
    return GeARQueryEngine(PaperGeARRetriever(SyncGERetriever(store, llm=llm), calls=calls), **settings)


def to_sync(tree: str) -> str:
    """Return the tree of an async question, with the names that its spans have in sync mode."""
    for name in ("query", "retrieve", "get_query_embedding", "get_text_embedding_batch", "complete", "synthesize"):
        tree = tree.replace(f".a{name}", f".{name}").replace(f"._a{name}", f"._{name}")
    return tree


async def ask(mode: str, engine: Any) -> None:
    """Ask the question: sync, async, or as a stream of events."""
    if mode == "sync":
        engine.query(QUESTION)
    elif mode == "async":
        await engine.aquery(QUESTION)
    else:
        _ = [event async for event in engine.astream_events(QUESTION)]


@pytest.mark.parametrize("mode", ["sync", "async", "events"])
@pytest.mark.parametrize("method", list(TREES))
async def test_the_tree_of_a_question(store: GeARVectorStore, tracer: Tracer, method: str, mode: str) -> None:
    await ask(mode, make_engine(store, method))
    assert to_sync(draw_tree(tracer.spans)) == TREES[method]
    assert tracer.open == [] and tracer.errors() == {}


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_the_tree_of_a_retriever(store: GeARVectorStore, tracer: Tracer, mode: str) -> None:
    retrievers = [GraphRetriever(store), NaiveGERetriever(store, pagerank=LocalPageRank())]
    for retriever in retrievers:
        await retriever.aretrieve(QUESTION) if mode == "async" else retriever.retrieve(QUESTION)
    assert to_sync(draw_tree(tracer.spans)) == f"{GRAPH}\n{NAIVE}"


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_an_answer_that_is_streamed_and_one_that_is_checked(
    store: GeARVectorStore, tracer: Tracer, mode: str
) -> None:
    streaming: Any = make_engine(store, "separate", streaming=True)
    if mode == "sync":
        pieces = list(streaming.query(QUESTION).response_gen)
    else:
        pieces = [piece async for piece in (await streaming.aquery(QUESTION)).response_gen]
    assert len(pieces) > 1 and to_sync(draw_tree(tracer.spans)) == SEPARATE and tracer.open == []
    verdict = '{"follows": true}'
    await ask(mode, make_engine(store, "separate", [*SCRIPTS["separate"], verdict], verify=True))
    checked = "\n    gear.verification\n      gear.llm.verify\n        ScriptedLLM.complete"
    assert to_sync(draw_tree(tracer.spans)) == f"{SEPARATE}\n{SEPARATE}{checked}"


async def test_what_a_span_shows(store: GeARVectorStore, tracer: Tracer) -> None:
    await ask("async", make_engine(store, "selection"))
    first, last = tracer.named("gear.step")
    assert json.loads(first["input.value"]) == {"step": 1}
    shown = json.loads(first["output.value"])
    assert (shown["query"], shown["needed"], shown["gist"]) == (QUESTION, shown["passages"][:1], ["Ann father Bob"])
    assert shown["next_query"] == WHERE_ROME and set(shown["passages"]) <= PASSAGES.keys()
    assert json.loads(last["output.value"])["stopped"] == "answered"
    call = tracer.named("gear.llm.select")[1]
    assert call["openinference.span.kind"] == "LLM" and call["output.value"] == LAST
    assert call["llm.prompt_template.template"].startswith("You find the answer to a question")
    variables = json.loads(call["llm.prompt_template.variables"])
    assert variables["question"] == QUESTION and "Rome lies in Italy" in variables["passages"]
    assert json.loads(tracer.named("gear.link_triples")[0]["output.value"]) == ["Ann father Bob"]
    assert json.loads(tracer.named("gear.base_search")[1]["input.value"]) == {"query": WHERE_ROME}
    assert json.loads(tracer.named("gear.ranking")[0]["output.value"])["passages"] == len(PASSAGES)
    ours = [span for span in tracer.spans if span.name.startswith("gear.") and "llm" not in span.name]
    assert max(len(str(dict(span.attributes or {}))) for span in ours) < 1_000


class Events(BaseEventHandler):
    """Keeps this package's events as a tracer stores them."""

    seen: list[dict[str, Any]] = []

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        if isinstance(event, GeAREvent):
            assert event.span_id and event.span_id.startswith("gear.")
            self.seen.append(event.model_dump(exclude={"timestamp", "tags"}))


@pytest.mark.parametrize("method", list(TREES))
async def test_events_are_flat(store: GeARVectorStore, method: str) -> None:
    """OpenTelemetry's attributes are texts, numbers and lists of texts."""
    handler, dispatcher = Events(seen=[]), get_dispatcher()
    dispatcher.add_event_handler(handler)
    try:
        await ask("sync", make_engine(store, method))
    finally:
        dispatcher.event_handlers.remove(handler)
    values = [value for event in handler.seen for value in event.values()]
    assert len(handler.seen) > 5
    for value in values:
        assert isinstance(value, str | int | float) or [type(item) for item in value] == len(value) * [str], value
    (gist, *_) = (event["value"] for event in handler.seen if event.get("kind") == "gist")
    assert json.loads(gist) == [FATHER]


async def test_a_constructor_makes_no_span(store: GeARVectorStore, tracer: Tracer) -> None:
    llm = ScriptedLLM()
    for make in (NaiveGERetriever, GraphRetriever, DiverseTripleBeamSearch):
        make(store)
    for make_reader in (
        SyncGERetriever,
        GeARRetriever,
        GeARQueryEngine.from_vector_store,
        T2RAGQueryEngine.from_vector_store,
    ):
        make_reader(store, llm=llm)
    T2RAGQueryEngine.from_vector_store(store, llm=llm, verify=True)
    PassageRanker(), PassageSelector(llm=llm), MentionTripleExtractor(), GeARTripleExtractor(llm)
    assert tracer.spans == [] and tracer.open == []


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sync", "async", "events"])
async def test_a_call_that_fails_drops_its_span_with_its_error(
    store: GeARVectorStore, tracer: Tracer, mode: str
) -> None:
    await ask(mode, make_engine(store, "selection", [FIRST, ValueError("no more today"), "Italy"]))
    errors = tracer.errors()
    assert errors["gear.llm.select"] == errors["gear.step"] == "ValueError: no more today"
    assert "gear.final_ranking" not in errors and tracer.open == []


@pytest.mark.parametrize("mode", ["sync", "async", "events"])
async def test_a_spent_budget_ends_a_step_in_the_tree(store: GeARVectorStore, tracer: Tracer, mode: str) -> None:
    await ask(mode, make_engine(store, "selection", [FIRST, "Italy"], budget=Budget(max_llm_calls=1)))
    first, last = (span for span in tracer.spans if span.name == "gear.step")
    assert first.status.is_ok and not last.status.is_ok and "max_llm_calls" in str(last.status.description)
    assert tracer.open == []


class LateLLM(ScriptedLLM):
    """A model that answers after the budget's time: in sync mode when it is told to, in async mode never."""

    _may_answer: threading.Event = PrivateAttr(default_factory=threading.Event)

    def complete(self, *arguments: Any, **keywords: Any) -> Any:
        self._may_answer.wait()
        return super().complete(*arguments, **keywords)

    async def acomplete(self, *arguments: Any, **keywords: Any) -> Any:
        await asyncio.sleep(3600)


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_a_timeout_leaves_no_span_open(store: GeARVectorStore, tracer: Tracer, mode: str) -> None:
    llm = LateLLM([LAST])  # type: ignore[call-arg, arg-type]  # pydantic's plugin is not at work
    retriever = GeARRetriever(store, llm=llm, budget=Budget(timeout=0.3))
    retriever.retrieve(QUESTION) if mode == "sync" else await retriever.aretrieve(QUESTION)
    errors = tracer.errors()
    assert errors["gear.step"] == "StepEnded: timeout"
    assert errors.get("gear.llm.select", errors["gear.step"]) == errors["gear.step"]  # a slow machine doesn't get there
    assert [name for name in tracer.open if not name.startswith("LateLLM")] == []
    llm._may_answer.set()  # then LlamaIndex's own spans of the late call end too
    for _ in range(200):
        await asyncio.sleep(0.05 if tracer.open else 0)
    assert tracer.open == []


async def test_a_stream_that_is_closed_early_leaves_no_span_open(store: GeARVectorStore, tracer: Tracer) -> None:
    engine = make_engine(store, "selection")
    stream: Any = engine.astream_events(QUESTION)
    async for event in stream:
        if event.kind == "base":  # in the midst of a step
            assert "gear.step" in tracer.open
            break
    await stream.aclose()
    assert tracer.open == [] and "gear.step" in tracer.errors()
    response: Any = make_engine(store, "separate", streaming=True).query(QUESTION)
    assert next(iter(response.response_gen))
    response.response_gen.close()
    assert tracer.open == []
    response = await make_engine(store, "separate", streaming=True).aquery(QUESTION)
    assert await anext(response.response_gen)
    await response.response_gen.aclose()
    # LlamaIndex leaves the async stream of a model, which it reads, to the garbage collector.
    assert [name for name in tracer.open if not name.startswith(("ScriptedLLM.", "AnsweringLLM."))] == []


async def test_questions_side_by_side_have_trees_of_their_own(store: GeARVectorStore, tracer: Tracer) -> None:
    engines = [make_engine(store, method) for method in 3 * list(TREES)]
    await asyncio.gather(*(ask("async", engine) for engine in engines))
    threads = [make_engine(store, method) for method in 2 * list(TREES)]
    await asyncio.gather(*(asyncio.to_thread(engine.query, QUESTION) for engine in threads))
    traces: dict[int, list[ReadableSpan]] = {}
    for span in tracer.spans:
        assert span.context is not None
        traces.setdefault(span.context.trace_id, []).append(span)
    drawn = [to_sync(draw_tree(spans)) for spans in traces.values()]
    assert sorted(drawn) == sorted(5 * list(TREES.values()))


# -- postprocessors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_a_postprocessor_is_a_reranking(store: GeARVectorStore, tracer: Tracer, mode: str) -> None:
    nodes = [NodeWithScore(node=TextNode(id_=name, text=text)) for name, (text, _) in PASSAGES.items()]
    debug = LlamaDebugHandler(print_trace_on_end=False)
    manager = CallbackManager([debug])
    postprocessors: list[BaseNodePostprocessor] = [
        PassageRanker(top_n=2, callback_manager=manager),
        PassageSelector(llm=ScriptedLLM(['{"needed": [2]}']), top_n=2, callback_manager=manager),
        DiverseTripleBeamSearch(store, top_n=2, callback_manager=manager),
    ]
    for postprocessor in postprocessors:
        if mode == "sync":
            postprocessor.postprocess_nodes(nodes, query_str=QUESTION)
        else:
            await postprocessor.apostprocess_nodes(nodes, query_str=QUESTION)
    method = "_postprocess_nodes" if mode == "sync" else "_apostprocess_nodes"
    for postprocessor in postprocessors:
        (span,) = tracer.named(f"{postprocessor.class_name()}.{method}")
        assert span["openinference.span.kind"] == "RERANKER" and span["reranker.query"] == QUESTION
        assert {f"reranker.output_documents.{n}.document.id" for n in range(2)} <= span.keys()
    pairs = debug.get_event_pairs(CBEventType.RERANKING)
    assert [len((end.payload or {})["nodes"]) for _, end in pairs] == [2, 2, 2]
    assert [(begin.payload or {})["top_k"] for begin, _ in pairs] == [2, 2, 2]
    assert tracer.open == []
