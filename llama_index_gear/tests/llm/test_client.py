"""Models that have sync calls only, or keep connections: the event loop goes on, and no call fails for it."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llama_index.core.base.llms.types import ChatResponse
from llama_index.core.llms import LLMMetadata
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import TextNode

from llama_index_gear import GeARTripleExtractor, GeARVectorStore, T2RAGQueryEngine, Triple, read_triples
from llama_index_gear.errors import OutOfTime
from llama_index_gear.llm.client import aask_llm
from llama_index_gear.testing import ScriptedLLM, WordEmbedding

PROMPT = PromptTemplate("Say {word}")
FACT = '{"entities": [], "triples": [["Ann", "father", "Bob"]]}'


T2RAG = [
    '{"triples": [["Ann", "father", "?father"]]}',
    '{"facts": [{"clue": 1, "triple": ["Ann", "father", "Bob"]}]}',
    "Bob [1]",
]


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
        replies.extend(await asyncio.gather(*(aask_llm(llm, PROMPT, {"word": word}) for word in "xyz")))

    assert await count_ticks(work) >= 5
    assert [reply.text for reply in replies] == ["a", "b", "c"] and at_once == [1, 1, 1]
    assert llm.history == ["Say x", "Say y", "Say z"]


async def test_its_calls_end_in_time_and_the_next_waits_for_the_late_one() -> None:
    llm, at_once = make_slow(["late", "next"])
    first = await aask_llm(llm, PROMPT, {"word": "x"}, within=0.02)
    assert isinstance(first.error, OutOfTime) and first.ms < 150
    assert (await aask_llm(llm, PROMPT, {"word": "y"}, within=5)).text == "next" and at_once == [1, 1]


async def test_it_extracts_without_blocking_the_event_loop() -> None:
    llm, at_once = make_slow([FACT] * 3, 0.1)
    extractor = GeARTripleExtractor(llm, num_workers=3)
    nodes: list[Any] = []

    async def work() -> None:
        nodes.extend(await extractor.acall([TextNode(text=f"Ann's father is Bob. {n}") for n in range(3)]))

    assert await count_ticks(work) >= 5
    assert [read_triples(node) for node in nodes] == [[Triple("Ann", "father", "Bob")]] * 3 and max(at_once) == 1


def test_no_event_loop_is_kept_once_its_calls_have_ended() -> None:
    llm, _ = make_slow(["a", "b"], 0.01)
    loops: list[weakref.ref[Any]] = []

    async def work() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await asyncio.gather(*(aask_llm(llm, PROMPT, {"word": word}) for word in "xy"))  # one waits for the other

    asyncio.run(work())
    for _ in range(100):  # the thread of the last call may still be ending
        gc.collect()
        if loops[0]() is None:
            break
        time.sleep(0.01)
    assert loops[0]() is None


async def test_errors_of_its_calls_are_in_the_reply() -> None:
    assert str((await aask_llm(ScriptedLLM([ValueError("no")]), PROMPT, {"word": "x"})).error) == "no"


async def test_a_chat_model_whose_async_calls_are_not_implemented_extracts_and_answers(tmp_path: Path) -> None:
    extractor = GeARTripleExtractor(SyncOnly([FACT]))  # type: ignore[call-arg, arg-type]  # pydantic's plugin is not at work
    (node,) = await extractor.acall([TextNode(id_="ann", text="Ann's father is Bob.")])
    assert read_triples(node) == [Triple("Ann", "father", "Bob")]
    node.embedding = WordEmbedding().get_text_embedding("Ann's father is Bob.")
    async with GeARVectorStore.from_path(tmp_path / "s", embed_model=WordEmbedding()) as store:
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
    assert (await aask_llm(llm, PROMPT, {"word": "x"})).text == "yes"
    llm.stale = 21
    assert str((await aask_llm(llm, PROMPT, {"word": "x"})).error) == "Event loop is closed"
