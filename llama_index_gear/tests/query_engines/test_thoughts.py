"""Engines over a model that thinks aloud: its thoughts are neither said nor cited; an empty answer names passages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.response_synthesizers import get_response_synthesizer

from llama_index_gear import (
    GeARQueryEngine,
    GeARVectorStore,
    SyncGERetriever,
    T2RAGQueryEngine,
    T2RAGRetriever,
)
from llama_index_gear.retrievers.paper_gear import PaperGeARRetriever
from llama_index_gear.testing import ScriptedLLM
from llama_index_gear.tests.asking import MODES, fill_store, unlabelled

QUESTION = "Where does Ann's father live?"
PASSAGES = {"Ann": "Ann's father is Bob.", "Bob": "Bob lives in Rome.", "Cid": "Cid sold tea.", "Dan": "Dan is old."}
STREAMED = pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
NOTHING = "The language model gave no answer. The passages that were found: [1] "


@pytest.fixture(scope="module")  # nobody writes to it
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeARVectorStore]:
    yield from fill_store(
        tmp_path_factory.mktemp("store"),
        [unlabelled(n, text, [(n, "in", text)], title=n) for n, text in PASSAGES.items()],
    )


async def ask(mode: str, engine: Any) -> tuple[str, Any, Any]:
    """Return the text of the response, its trace, and the response."""
    if mode == "sync":
        response, trace = engine.query_with_trace(QUESTION)
    else:
        response, trace = await engine.aquery_with_trace(QUESTION)
    if isinstance(response, AsyncStreamingResponse):
        return "".join([piece async for piece in response.async_response_gen()]), trace, response
    if isinstance(response, StreamingResponse):
        return "".join(response.response_gen), trace, response
    return str(response), trace, response


def answer_with(words: str, step: str = "{}") -> ScriptedLLM:
    return ScriptedLLM(otherwise=lambda prompt: words if "Answer a question" in prompt else step)


@MODES
@STREAMED
@pytest.mark.parametrize("kind", [GeARQueryEngine, T2RAGQueryEngine])
@pytest.mark.parametrize(
    "words",
    [
        "<think>Is it [3]? No, [4]?</think>\nRome [2]",
        "[THINK]Is it [3]?[/THINK]Rome [2]",
        "<|channel|>analysis<|message|>[3]?<|end|><|start|>assistant<|channel|>final<|message|>Rome [2]<|return|>",
        "Rome [2]<|im_end|>\n<|im_start|>user\nAnd [3]?",
    ],
)
async def test_thoughts_are_neither_said_nor_cited(
    store: GeARVectorStore, mode: str, streaming: bool, kind: Any, words: str
) -> None:
    llm = answer_with(words)
    of_gear = PaperGeARRetriever(SyncGERetriever(store, llm=llm), calls="single")
    engine = kind(of_gear if kind is GeARQueryEngine else T2RAGRetriever(store, llm=llm), streaming=streaming)
    text, trace, _ = await ask(mode, engine)
    assert text == trace.response == "Rome [2]" and list(trace.citations) == ["2"]


@MODES
async def test_a_stream_waits_for_a_model_that_thinks_without_an_opening_mark(
    store: GeARVectorStore, mode: str
) -> None:
    """Its earlier replies told so."""

    class Unopened(ScriptedLLM):
        @property
        def metadata(self) -> Any:
            return super().metadata.model_copy(update={"model_name": "unopened"})

    llm = Unopened(  # type: ignore[call-arg]  # pydantic's plugin is not at work
        otherwise=lambda prompt: "Is it [3]?\n</think>\n" + ("Rome [2]" if "Answer a question" in prompt else "{}")
    )
    engine = GeARQueryEngine(PaperGeARRetriever(SyncGERetriever(store, llm=llm), calls="single"), streaming=True)
    text, trace, _ = await ask(mode, engine)
    assert text == "Rome [2]" and list(trace.citations) == ["2"]


@MODES
@STREAMED
@pytest.mark.parametrize("words", [" \n", "<think>hm [3]</think>", "<think>hm [3]"])
async def test_an_empty_answer_names_the_passages(
    store: GeARVectorStore, mode: str, streaming: bool, words: str
) -> None:
    engine = GeARQueryEngine(
        PaperGeARRetriever(SyncGERetriever(store, llm=answer_with(words, '{"triples": []}')), calls="single"),
        streaming=streaming,
        answer_top_k=2,
    )
    text, trace, response = await ask(mode, engine)
    assert text == trace.response and text.startswith(NOTHING) and "[2]" in text and "[3]" not in text
    assert list(trace.citations.values()) == response.metadata["gear_cited"] == trace.passage_ids[:2]
    assert trace.unanswered and "gave no answer" in response.metadata["gear_warning"]


@MODES
@STREAMED
async def test_a_synthesizer_of_one_s_own_says_no_thoughts_either(
    store: GeARVectorStore, mode: str, streaming: bool
) -> None:
    own = get_response_synthesizer(llm=ScriptedLLM(["<think>hm</think>Rome, I say"] * 2), streaming=streaming)
    llm = ScriptedLLM(otherwise=lambda _: "{}")
    engine = GeARQueryEngine(
        PaperGeARRetriever(SyncGERetriever(store, llm=llm), calls="single"), response_synthesizer=own
    )
    text, trace, _ = await ask(mode, engine)
    assert text == trace.response == "Rome, I say"


@MODES
async def test_an_answer_that_a_busy_server_refuses_is_asked_for_again(
    store: GeARVectorStore, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llama_index_gear.llm.client.RETRY_BACKOFF", 0.001)
    llm = ScriptedLLM(['{"triples": []}', ConnectionError("lost"), TimeoutError("late"), "Rome [2]"])
    engine = GeARQueryEngine(PaperGeARRetriever(SyncGERetriever(store, llm=llm), calls="single"))
    text, _, _ = await ask(mode, engine)
    assert text == "Rome [2]" and llm.remaining == 0
