"""Runs independent flows concurrently, such as the batches of a load."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from llama_index_gear.flow import (
    EmbedTexts,
    Flow,
    Request,
    RunFunction,
    StoppedError,
    arun,
    ask,
    gather,
    run,
    stop_waiting_when,
)

SERVER_LIMIT = 4
"""Batches of one call that are under way at once, on a server."""


@dataclass(frozen=True)
class RunFlows(Request[list[Any]]):
    """Run flows that don't concern each other, at most `limit` at once. Answer: what they return, in their order.

    When one fails, no other makes another request, and the error is raised once all have ended.
    """

    flows: Sequence[Flow[Any]]
    limit: int


def run_all_flow(flows: Sequence[Flow[Any]], limit: int) -> Flow[list[Any]]:
    """Run flows side by side, at most `limit` at once, and return their results; with a limit of 1 one by one."""
    if limit > 1 and len(flows) > 1:
        return (yield from ask(RunFlows(flows, limit)))
    results = []
    for flow in flows:
        results.append((yield from flow))
    return results


def run_flows(request: RunFlows, answer: Callable[[Any], Any]) -> list[Any]:
    """Answer the request in threads; one by one where the caller would block an event loop.

    Only one thread at a time embeds or computes: an embedding model need not be safe for several. When one flow fails,
    or the caller is interrupted, no other makes a further request or waits: not for a server, nor for a lock.
    """
    if _is_in_event_loop():  # another call may hold passages until that loop goes on
        return [run(flow, answer) for flow in request.flows]
    stopped, turn = threading.Event(), threading.Lock()

    def answer_on(inner: Any) -> Any:
        with turn if _is_work(inner) else nullcontext():
            if stopped.is_set():
                raise StoppedError
            return answer(inner)

    with ThreadPoolExecutor(request.limit, thread_name_prefix="gear-load") as pool:
        try:
            with stop_waiting_when(stopped):
                futures = [pool.submit(copy_context().run, run, flow, answer_on) for flow in request.flows]
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)
    errors = [error for future in futures if not future.cancelled() and (error := future.exception())]
    for error in errors:
        if not isinstance(error, StoppedError):
            raise error
    return [future.result() for future in futures]


async def arun_flows(request: RunFlows, answer: Callable[[Any], Awaitable[Any]]) -> list[Any]:
    """`run_flows`, in tasks of the event loop."""
    results: list[Any] = [None] * len(request.flows)
    numbered = enumerate(request.flows)

    async def work() -> None:
        for number, flow in numbered:
            results[number] = await arun(flow, answer)

    await gather([work() for _ in range(min(request.limit, len(request.flows)))])
    return results


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _is_work(request: Any) -> bool:
    """Return True if a request is answered in this process, without a server."""
    return isinstance(getattr(request, "request", request), EmbedTexts | RunFunction)
