"""Fixtures that several test modules use."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, settings
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms import mock
from llama_index.core.llms.llm import ToolSelection

from llama_index_gear.store.passages import StoreReads

# Its failures are as readable as those of the tests.
pytest.register_assert_rewrite("llama_index_gear.tests.store_contract")

# No test depends on how fast the machine is, nor on chance; `pytest --hypothesis-profile=drawn` draws other examples.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", UNHURRIED, derandomize=True, max_examples=40)
settings.register_profile("drawn", UNHURRIED)
settings.load_profile("steady")

LongestPause: TypeAlias = Callable[[Callable[[], Awaitable[Any]]], Awaitable[float]]


@pytest.fixture(scope="session", autouse=True)
def calls_are_retried_at_once() -> Iterator[None]:
    """Spare the tests the seconds before a call of a model is made again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("llama_index_gear.llm.client.RETRY_BACKOFF", 0.001)
        yield


@pytest.fixture
def noted_reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[Any, ...]]]:
    """The reads of stores that flows begin from now on, as (name, arguments)."""
    noted: list[tuple[str, tuple[Any, ...]]] = []

    def note(name: str) -> None:
        flow = getattr(StoreReads, name)

        def noting_flow(reads: StoreReads, *arguments: Any, **options: Any) -> Any:
            noted.append((name, arguments))
            return flow(reads, *arguments, **options)

        monkeypatch.setattr(StoreReads, name, noting_flow)

    for name in ("points_flow", "lists_flow", "passage_triples_flow", "incident_flow"):
        note(name)
    return noted


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Have an interrupt raise KeyboardInterrupt, also in a process in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def longest_pause() -> LongestPause:
    """A function that returns the longest time, in seconds, for which some work kept the event loop from running.

    It counts processor time of this thread: neither other programs of the machine nor sleeping add to it.
    """

    async def measure(work: Callable[[], Awaitable[Any]]) -> float:
        longest, last = 0.0, time.thread_time()

        async def tick() -> None:
            nonlocal longest, last
            while True:
                await asyncio.sleep(0.001)
                longest, last = max(longest, time.thread_time() - last), time.thread_time()

        ticking = asyncio.create_task(tick())
        await work()
        await asyncio.sleep(0.01)  # so that a pause just before the end is seen
        ticking.cancel()
        return longest

    return measure


@pytest.fixture
def tool_caller() -> Callable[[str, str], tuple[Any, list[str]]]:
    """A maker of models that call a tool once with an input, then say "done"; with each, a list of all it was shown."""
    if not hasattr(mock, "MockFunctionCallingLLM"):
        pytest.skip("this llama-index-core has no mock of a function-calling model")

    def make(tool_name: str, tool_input: str) -> tuple[Any, list[str]]:
        turns = 0

        class Agentic(mock.MockFunctionCallingLLM):
            def get_tool_calls_from_response(
                self, response: Any, error_on_no_tool_call: bool = True, **kwargs: Any
            ) -> Any:
                nonlocal turns
                turns += 1
                call = ToolSelection(tool_id="1", tool_name=tool_name, tool_kwargs={"input": tool_input})
                return [call] if turns == 1 else []

        seen: list[str] = []

        def record_and_reply(messages: Any, **kwargs: Any) -> Any:
            seen.extend(str(message.content) for message in messages)
            return ChatMessage(role="assistant", content="done")

        return Agentic(response_generator=record_and_reply), seen  # type: ignore[call-arg]

    return make
