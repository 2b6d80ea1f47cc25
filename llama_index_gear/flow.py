"""Flows, and the drivers that answer their requests.

A method is a generator (a `Flow`): it yields a batch of requests (see `requests`), is sent their answers in the same
order, and returns its result. Its name ends in `_flow`. It holds no client, no LLM and no `async`. `run` answers a
batch one request after the other; `arun` answers it concurrently. This is the only async control flow of the package:
every method is written once.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from llama_index.core.async_utils import asyncio_run

Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)
Result = TypeVar("Result")


class Request(Generic[Answer_co]):
    """What a flow asks of the outside world; `Answer_co` is the type of what it is sent in return."""


Flow: TypeAlias = Generator[Sequence[Request[Any]], Sequence[Any], Result]
"""Yields batches of requests, is sent batches of answers, returns a result."""


def ask(request: Request[Answer]) -> Flow[Answer]:
    """Make one request, and return its answer, whose type the request names."""
    (answer,) = yield [request]
    return answer  # type: ignore[no-any-return]


def ask_all(requests: Sequence[Request[Answer]]) -> Flow[list[Answer]]:
    """Make requests of one kind, in one batch, and return their answers, in the same order."""
    answers = yield requests
    return list(answers)


class Handler(NamedTuple):
    """How one request is answered: `answer` blocks, `aanswer` is awaited."""

    answer: Callable[[], Any]
    aanswer: Callable[[], Awaitable[Any]]


def relay(
    flow: Flow[Result], answer_batch: Callable[[Sequence[Request[Any]]], Generator[Any, Any, Sequence[Any]]]
) -> Generator[Any, Any, Result]:
    """Drive `flow` to its end; yields whatever `answer_batch` yields on its way to the answers of a batch.

    An exception of `answer_batch` is thrown into the flow, at its `yield`: a flow that doesn't catch it ends with it.
    An interrupt, a cancellation or the relay's own end closes the flow.
    """
    try:
        batch = next(flow)
        while True:
            try:
                answers = yield from answer_batch(batch)
            except Exception as error:  # noqa: BLE001 - handed on: the flow raises it, or knows what to do
                batch = flow.throw(error)
            else:
                batch = flow.send(answers)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        flow.close()


_awaited_relay = types.coroutine(relay)
"""`relay`, to be awaited. No frame lies between, which a traceback would keep, and an open flow with it."""


def run(flow: Flow[Result], answer: Callable[[Any], Any]) -> Result:
    """Drive `flow` to its end, answering one request after the other. Of what `answer` raises see `relay`."""

    def answer_batch(batch: Sequence[Request[Any]]) -> Generator[Any, Any, Sequence[Any]]:
        yield from ()  # a generator that never waits
        return [answer(request) for request in batch]

    relayed = relay(flow, answer_batch)
    while True:  # once: nothing waits
        try:
            next(relayed)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


async def arun(flow: Flow[Result], answer: Callable[[Any], Awaitable[Any]]) -> Result:
    """Drive `flow` to its end, answering each batch concurrently. Of what `answer` raises see `relay`.

    When one request of a batch fails, its siblings are cancelled and awaited before the exception is thrown into the
    flow; so they are when the caller is cancelled.
    """
    return await _awaited_relay(flow, lambda batch: gather([answer(request) for request in batch]).__await__())


async def gather(awaitables: Sequence[Awaitable[Any]]) -> list[Any]:
    """Await all of them concurrently; when one fails, or the caller is cancelled, the others are cancelled first."""
    if len(awaitables) == 1:  # no task needed, and context variables set inside stay visible outside
        return [await awaitables[0]]
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def run_coroutine(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """The coroutine's result, also inside a running event loop. An interrupt ends what it has begun.

    LlamaIndex's `asyncio_run` keeps an event loop from call to call, as clients' connections do: what an interrupt had
    left undone would go on in the next one.
    """
    begun: list[asyncio.Task[Any]] = []

    async def work() -> Result:
        begun.extend(filter(None, [asyncio.current_task()]))
        return await coroutine

    try:
        return asyncio_run(work())  # type: ignore[no-any-return]
    finally:
        for task in begun:
            _end(task)


def _end(task: asyncio.Task[Any]) -> None:
    """Cancel a task whose event loop stands still, and have it clean up, however often that is interrupted."""
    loop = task.get_loop()
    while not (task.done() or loop.is_closed() or loop.is_running()):  # that of a thread that was not interrupted
        task.cancel()
        try:
            loop.run_until_complete(asyncio.wait([task]))
        except KeyboardInterrupt:
            continue  # the caller raises the first one
    if task.done() and not task.cancelled():
        task.exception()  # noted: it is what the caller raises
