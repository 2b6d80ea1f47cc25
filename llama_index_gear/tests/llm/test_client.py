"""Models that have sync calls only, or keep connections: the event loop goes on, and no call fails for it."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
import weakref
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, ToolCallBlock
from llama_index.core.llms import LLMMetadata
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import TextNode

from llama_index_gear import GeARTripleExtractor, GeARVectorStore, T2RAGQueryEngine, Triple
from llama_index_gear.errors import OutOfTime
from llama_index_gear.flow import CallLLM
from llama_index_gear.llm import client
from llama_index_gear.llm.client import aask_llm, ask_llm
from llama_index_gear.llm.client_responses import count_tokens, read_text
from llama_index_gear.nodes import read_triples
from llama_index_gear.testing import ScriptedLLM, WordEmbedding
from llama_index_gear.tests.asking import MODES

FACT = '{"entities": [], "triples": [["Ann", "father", "Bob"]]}'


T2RAG = [
    '{"triples": [["Ann", "father", "?father"]]}',
    '{"facts": [{"clue": 1, "triple": ["Ann", "father", "Bob"]}]}',
    "Bob [1]",
]


def make_request(word: str, **limits: Any) -> CallLLM:
    return CallLLM(PromptTemplate("Say {word}"), {"word": word}, **limits)


class SyncOnly(ScriptedLLM):
    """A chat model whose client has no async calls, and says so as LlamaIndex's integrations do."""

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="sync", is_chat_model=True, context_window=8_192)

    async def achat(self, messages: Any, **kwargs: Any) -> ChatResponse:
        raise NotImplementedError("Async chat is not supported")


def make_slow(replies: list[str], seconds: float = 0.2) -> tuple[ScriptedLLM, list[int]]:
    """Return a completion model that blocks its thread, and a list of how many calls ran at once."""
    at_once, running, lock = list[int](), 0, threading.Lock()

    class Slow(ScriptedLLM):
        def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
            nonlocal running
            with lock:
                running += 1
                at_once.append(running)
            time.sleep(seconds)
            with lock:
                running -= 1
            return super().complete(prompt, formatted, **kwargs)

    return Slow(replies), at_once  # type: ignore[call-arg, arg-type]  # pydantic's plugin is not at work


async def count_ticks(work: Callable[[], Any]) -> int:
    """Return how often the event loop came round every 10 ms while some work was awaited."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await work()
    ticking.cancel()
    return ticks


async def test_a_completion_model_without_async_calls_leaves_the_event_loop_free() -> None:
    """Its calls are made one at a time, in order: such a model is seldom made for several threads."""
    llm, at_once = make_slow(["a", "b", "c"])
    replies: list[Any] = []

    async def work() -> None:
        replies.extend(await asyncio.gather(*(aask_llm(llm, make_request(word)) for word in "xyz")))

    assert await count_ticks(work) >= 5
    assert [reply.text for reply in replies] == ["a", "b", "c"] and at_once == [1, 1, 1]
    assert llm.history == ["Say x", "Say y", "Say z"]


async def test_its_calls_end_in_time_and_the_next_waits_for_the_late_one() -> None:
    llm, at_once = make_slow(["late", "next"])
    first = await aask_llm(llm, make_request("x", timeout=0.02))
    assert isinstance(first.error, OutOfTime) and first.ms < 150
    assert (await aask_llm(llm, make_request("y", timeout=5))).text == "next" and at_once == [1, 1]


def test_no_event_loop_is_kept_once_its_calls_have_ended() -> None:
    llm, _ = make_slow(["a", "b"], 0.01)
    loops: list[weakref.ref[Any]] = []

    async def work() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await asyncio.gather(*(aask_llm(llm, make_request(word)) for word in "xy"))  # one waits for the other

    asyncio.run(work())
    for _ in range(100):  # the thread of the last call may still be ending
        gc.collect()
        if loops[0]() is None:
            break
        time.sleep(0.01)
    assert loops[0]() is None


async def test_a_chat_model_whose_async_calls_are_not_implemented_extracts_and_answers(tmp_path: Path) -> None:
    extractor = GeARTripleExtractor(SyncOnly([FACT]))  # type: ignore[call-arg, arg-type]  # pydantic's plugin is not at work
    (node,) = await extractor.acall([TextNode(id_="ann", text="Ann's father is Bob.")])
    assert read_triples(node) == [Triple("Ann", "father", "Bob")]
    node.embedding = WordEmbedding().get_text_embedding("Ann's father is Bob.")
    async with GeARVectorStore.from_path(tmp_path / "s", embed_model=WordEmbedding(), embed_triples=True) as store:
        await store.async_add([node])
        llm = SyncOnly(T2RAG)  # type: ignore[call-arg, arg-type]  # pydantic's plugin is not at work
        engine = T2RAGQueryEngine.from_vector_store(store, llm=llm)
        assert str(await engine.aquery("Who is Ann's father?")) == "Bob [1]"


class Reconnecting(ScriptedLLM):
    """A model whose client holds connections of event loops that have ended."""

    stale: int = 0

    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        if self.stale:
            self.stale -= 1
            raise RuntimeError("Event loop is closed")
        return self.complete(prompt, formatted, **kwargs)


async def test_connections_of_an_ended_event_loop_are_passed_over() -> None:
    llm = Reconnecting(["yes"])  # type: ignore[call-arg, arg-type]  # pydantic's plugin is not at work
    llm.stale = 20
    assert (await aask_llm(llm, make_request("x"))).text == "yes"
    llm.stale = 21
    assert str((await aask_llm(llm, make_request("x"))).error) == "Event loop is closed"


class Overloaded(Exception):
    """An error of a client, with the status of a server that has too much to do."""

    status_code = 529


async def ask(mode: str, llm: ScriptedLLM, **limits: Any) -> Any:
    request = make_request("x", **limits)
    return ask_llm(llm, request) if mode == "sync" else await aask_llm(llm, request)


@MODES
@pytest.mark.parametrize("error", [Overloaded("full"), TimeoutError("late"), ConnectionError("lost")])
async def test_an_error_that_may_pass_is_retried_as_often_as_allowed(
    mode: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llama_index_gear.llm.client.RETRY_BACKOFF", 0.001)
    reply = await ask(mode, ScriptedLLM([error, error, "yes"]))
    assert (reply.text, reply.calls, reply.error) == ("yes", 3, None)
    reply = await ask(mode, ScriptedLLM([error] * 4))
    assert (reply.error, reply.calls) == (error, 4)
    reply = await ask(mode, ScriptedLLM([error] * 2), max_calls=2)
    assert (reply.error, reply.calls) == (error, 2)
    reply = await ask(mode, ScriptedLLM([ValueError("no")]))
    assert (str(reply.error), reply.calls) == ("no", 1)


@MODES
async def test_no_retry_begins_that_would_be_late(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RETRY_BACKOFF", 600.0)
    reply = await ask(mode, ScriptedLLM([Overloaded("full")]), timeout=300.0)
    assert isinstance(reply.error, Overloaded) and reply.calls == 1


class Roomy(ScriptedLLM):
    """A model with a limit of its replies."""

    max_tokens: int = 100
    limits: list[int] = []

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        self.limits.append(self.max_tokens)
        return super().complete(prompt, formatted, **kwargs)


@MODES
async def test_a_reply_that_is_cut_off_in_its_thoughts_is_asked_for_once_more_with_more_room(mode: str) -> None:
    llm = Roomy(["<think>hm", "<think>hm</think>yes"], limits=[])  # type: ignore[call-arg, arg-type]  # pydantic's plugin is not at work
    reply = await ask(mode, llm)
    assert (reply.text, reply.calls, llm.limits) == ("yes", 2, [100, 400]) and not reply.is_thought
    assert reply.completion_tokens == sum(count_tokens(text) for text in ("<think>hm", "<think>hm</think>yes"))
    llm = Roomy(["<think>hm"] * 2, limits=[])  # type: ignore[call-arg, arg-type]  # pydantic's plugin is not at work
    reply = await ask(mode, llm)
    assert (reply.text, reply.calls, reply.is_thought) == ("", 2, True)
    llm = Roomy(["<think>hm", ValueError("context too small")], limits=[])  # type: ignore[call-arg, arg-type]  # see above
    reply = await ask(mode, llm)
    assert (reply.text, reply.calls, reply.is_thought, reply.error) == ("", 2, True, None)
    llm = Roomy(["<think>hm"], limits=[])  # type: ignore[call-arg, arg-type]  # pydantic's plugin is not at work
    reply = await ask(mode, llm, max_calls=1)
    assert (reply.calls, reply.is_thought) == (1, True)
    reply = await ask(mode, ScriptedLLM(["<think>hm"]))  # nothing tells how to give it more room
    assert (reply.calls, reply.is_thought) == (1, True)


def test_arguments_of_a_call_that_no_one_asked_for_are_the_reply() -> None:
    """As clients of LlamaIndex give them: blocks, or OpenAI's own form; words beside them come first."""
    older = {"tool_calls": [{"function": {"arguments": FACT}}]}
    for message, said in (
        (ChatMessage(blocks=[ToolCallBlock(tool_name="facts", tool_kwargs=FACT)]), FACT),
        (ChatMessage(blocks=[ToolCallBlock(tool_name="facts", tool_kwargs=json.loads(FACT))]), FACT),
        (ChatMessage(content=None, additional_kwargs=older), FACT),
        (ChatMessage(content="No facts.", additional_kwargs=older), "No facts."),
        (
            ChatMessage(blocks=[ToolCallBlock(tool_name="facts", tool_kwargs={"day": date(2026, 1, 2)})]),
            '{"day": "2026-01-02"}',
        ),
        (ChatMessage(content=None, additional_kwargs={"tool_calls": [{"name": "facts", "input": {}}]}), ""),
    ):
        assert read_text(ChatResponse(message=message)) == said
