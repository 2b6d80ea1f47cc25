"""Flows, and the drivers that answer their requests.

A method is a generator (a `Flow`): it yields a batch of requests (`EmbedQuery`, `CallLLM`, `QdrantCall`, …), is sent
their answers in the same order, and returns its result. Its name ends in `_flow`. It holds no LLM and no `async`. Only
what leaves the process, or would block an event loop, is a request: a flow goes on into another one by `yield from`.
`run` answers the requests of a batch one by one; `arun` answers them concurrently. So every method is written once, for
sync and async.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
import time
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial, wraps
from itertools import chain, islice
from time import monotonic
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, cast

from llama_index.core.async_utils import asyncio_run
from llama_index.core.prompts import BasePromptTemplate

from llama_index_gear.errors import repair_surrogates

Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)
Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")


class Request(Generic[Answer_co]):
    """A request of a flow to the outside world; `Answer_co` is the type of its answer."""


@dataclass(frozen=True)
class EmbedQuery(Request[list[float]]):
    """Embed a question. Answer: `list[float]`."""

    text: str


@dataclass(frozen=True)
class EmbedTexts(Request[list[list[float]]]):
    """Embed documents. Answer: one `list[float]` a text."""

    texts: Sequence[str]


@dataclass(frozen=True)
class Reply:
    """The result of one LLM call.

    Attributes:
        text: the reply without thoughts. If the model refused, its words of
            refusal. Lone surrogates are replaced, since neither a trace nor a store can keep them.
        refused: True if the model, or its provider's filter, refused.
        truncated: True if the reply was cut off at the model's limit.
        is_thought: True if it was cut off in the model's thoughts, so that there is no text.
        error: the exception that ended the last try; None if there is a reply.
        calls: calls made, retries included.
        prompt_tokens: tokens of the answered calls' prompts, as the LLM's client counts them, else by LlamaIndex's
            tokenizer; for more than 500,000 characters, a quarter of their number. Two calls are answered if the first
            reply was cut off in its thoughts, and asked for again.
        completion_tokens: tokens of the replies, counted likewise.
        ms: duration in milliseconds, retries included.

    """

    text: str = ""
    refused: bool = False
    truncated: bool = False
    is_thought: bool = False
    error: Exception | None = None
    calls: int = 1
    prompt_tokens: int = 0
    completion_tokens: int = 0
    ms: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", repair_surrogates(self.text))


@dataclass(frozen=True)
class CallLLM(Request[Reply]):
    """Call the language model. Answer: a `Reply`, which holds the error if the call failed.

    `purpose` names the call in a trace. `timeout` is the time limit of the reply in seconds (None: no limit).
    `max_calls` limits the calls that are made for it, retries included (None: no further limit).
    """

    prompt: BasePromptTemplate
    variables: Mapping[str, str]
    purpose: str = ""
    timeout: float | None = None
    max_calls: int | None = None


@dataclass(frozen=True)
class RunFunction(Request[Answer_co]):
    """Run a function that would block an event loop for too long. Answer: what the function returns.

    An event loop awaits `afunction`. Without one, the function runs in a thread.
    """

    function: Callable[[], Answer_co]
    afunction: Callable[[], Awaitable[Answer_co]] | None = None

    def answer(self) -> Answer_co:
        """Run the function."""
        return self.function()

    async def aanswer(self) -> Answer_co:
        """`answer`, without blocking the event loop."""
        return await (self.afunction or partial(asyncio.to_thread, self.function))()


@dataclass(frozen=True)
class QdrantCall(Request[Any]):
    """Call a method of a Qdrant client. Answer: what the method returns."""

    method: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


Flow: TypeAlias = Generator[Sequence[Request[Any]], Sequence[Any], Result]
"""Yields batches of requests, is sent batches of answers, returns a result."""


def ask(request: Request[Answer]) -> Flow[Answer]:
    """Make one request and return its answer."""
    (answer,) = yield [request]
    return answer  # type: ignore[no-any-return]


def ask_all(requests: Sequence[Request[Answer]]) -> Flow[list[Answer]]:
    """Make requests of one kind in one batch, and return their answers in the same order."""
    answers = yield requests
    return list(answers)


def interleave(flows: Sequence[Flow[Result]]) -> Flow[list[Result]]:
    """Run flows side by side, and return their results in order: what they ask for at one time is one batch.

    A request that fails ends them all. They enter no span, since all run in one context.
    """
    results: dict[int, Result] = {}
    batches: dict[int, Sequence[Request[Any]]] = {}

    def go_on(number: int, answers: Any) -> None:
        try:
            batches[number] = flows[number].send(answers)
        except StopIteration as stop:
            batches.pop(number, None)
            results[number] = stop.value

    try:
        for number in range(len(flows)):
            go_on(number, None)
        while batches:
            asked = dict(batches)
            answers = iter((yield list(chain.from_iterable(asked.values()))))
            for number, batch in asked.items():
                go_on(number, list(islice(answers, len(batch))))
        return [results[number] for number in range(len(flows))]
    finally:
        for flow in flows:
            flow.close()


def relay(
    flow: Flow[Result], answer_batch: Callable[[Sequence[Request[Any]]], Generator[Any, Any, Sequence[Any]]]
) -> Generator[Any, Any, Result]:
    """Drive `flow` to its end, and return its result.

    Whatever `answer_batch` yields while it answers a batch is yielded on. An exception of `answer_batch` is thrown into
    the flow, at its `yield`: a flow that doesn't catch it ends with it. An interrupt, a cancellation or the end of the
    relay closes the flow.
    """
    try:
        batch = next(flow)
        while True:
            try:
                answers = yield from answer_batch(batch)
            except Exception as error:  # noqa: BLE001 - thrown into the flow, which raises or handles it
                batch = flow.throw(error)
            else:
                batch = flow.send(answers)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        flow.close()


_awaited_relay = types.coroutine(relay)
"""`relay` as an awaitable. It adds no frame, which a traceback would keep alive, and an open flow with it."""


def run(flow: Flow[Result], answer: Callable[[Any], Any]) -> Result:
    """Drive `flow` to its end, answering the requests one by one. Exceptions of `answer` go where `relay` sends them.

    This is `relay` without its `yield`: so nothing of it stands between the caller and what answers.
    """
    try:
        batch = next(flow)
        while True:
            try:
                answers = [answer(request) for request in batch]
            except Exception as error:  # noqa: BLE001 - thrown into the flow, which raises or handles it
                batch = flow.throw(error)
            else:
                batch = flow.send(answers)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        flow.close()


async def arun(flow: Flow[Result], answer: Callable[[Any], Awaitable[Any]]) -> Result:
    """Drive `flow` to its end, answering each batch concurrently. `relay` says what an exception of `answer` does.

    When one request of a batch fails, its siblings are cancelled and awaited before the exception is thrown into the
    flow. The same happens when the caller is cancelled.
    """
    return await _awaited_relay(flow, lambda batch: gather([answer(request) for request in batch]).__await__())


def blocking(method: Callable[Parameters, Flow[Result]]) -> Callable[Parameters, Result]:
    """Make a method that returns a flow one that returns the flow's result: `self._answer` answers the requests."""
    flow: Any = method  # its first parameter is `self`

    @wraps(flow)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return run(flow(self, *args, **kwargs), self._answer)

    _name(call, flow, "")
    return cast(Callable[Parameters, Result], call)


def unblocked(method: Callable[Parameters, Result]) -> Callable[Parameters, Coroutine[Any, Any, Result]]:
    """Return the async twin of a method that `blocking` made; `self._aanswer` answers the requests."""
    flow: Any = method.__wrapped__  # type: ignore[attr-defined]  # `wraps` put it there

    @wraps(flow)
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await arun(flow(self, *args, **kwargs), self._aanswer)

    _name(call, flow, "a")
    call.__doc__ = f"`{flow.__name__}`, without blocking the event loop."
    return cast(Callable[Parameters, Coroutine[Any, Any, Result]], call)


def _name(call: Any, flow: Any, prefix: str) -> None:
    """Give a call the name of its flow behind a prefix, and the flow's result as what it returns."""
    returned = str(flow.__annotations__.get("return", "")).removeprefix("Flow[").removesuffix("]")
    call.__annotations__ = {**flow.__annotations__, "return": returned}
    call.__signature__ = inspect.signature(flow).replace(return_annotation=returned)
    call.__qualname__ = f"{flow.__qualname__.removesuffix(flow.__name__)}{prefix}{flow.__name__}"
    call.__name__ = f"{prefix}{flow.__name__}"


async def gather(awaitables: Sequence[Awaitable[Any]]) -> list[Any]:
    """Await all concurrently. When one fails, or the caller is cancelled, the others are cancelled first."""
    if len(awaitables) == 1:  # without a task, context variables set inside stay visible outside
        return [await awaitables[0]]
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


_deadline: ContextVar[float] = ContextVar("deadline", default=math.inf)


@contextmanager
def limit_waiting(seconds: float | None) -> Iterator[None]:
    """Within the block, nothing that answers a request waits longer for a server that is away. None: no limit."""
    before = _deadline.get()
    limit = before if seconds is None else min(before, monotonic() + seconds)
    _deadline.set(limit)
    try:
        yield
    finally:
        if _deadline.get() == limit:  # a flow may be closed in another context, which has its own limit
            _deadline.set(before)


def remaining_seconds() -> float:
    """Return how long a server that is away may be waited for, in seconds: 0 or less if no longer."""
    return _deadline.get() - monotonic()


_stop: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


class StoppedError(Exception):
    """The end of a flow that runs beside others: one of them failed, or their caller was interrupted."""


@contextmanager
def stop_waiting_when(stopped: threading.Event) -> Iterator[None]:
    """Within the block, and in copies of its context, `sleep` ends as soon as the event is set."""
    token = _stop.set(stopped)
    try:
        yield
    finally:
        _stop.reset(token)


def sleep(seconds: float) -> None:
    """Sleep, in a sync call that answers a request.

    Raises:
        StoppedError: the flow is to end.

    """
    stopped = _stop.get()
    if stopped is None:
        time.sleep(seconds)
    elif stopped.wait(seconds):
        raise StoppedError


def run_coroutine(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine and return its result, also inside a running event loop. An interrupt ends the coroutine too.

    LlamaIndex's `asyncio_run` keeps its event loop from call to call: a coroutine that an interrupt left unfinished
    would go on in the next call. It also takes a `RuntimeError` for its own, so no exception passes through it.
    """
    tasks: list[asyncio.Task[Any]] = []
    errors: list[Exception] = []

    async def work() -> Result | None:
        tasks.extend(filter(None, [asyncio.current_task()]))
        try:
            return await coroutine
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)
            return None

    try:
        result = asyncio_run(work())
    finally:
        for task in tasks:
            _end(task)
    if errors:
        raise errors.pop()
    return result  # type: ignore[no-any-return]


def _end(task: asyncio.Task[Any]) -> None:
    """Cancel a task whose event loop stands still, and let it clean up, however often that is interrupted."""
    loop = task.get_loop()
    # A running loop is that of another thread, which was not interrupted.
    while not (task.done() or loop.is_closed() or loop.is_running()):
        task.cancel()
        try:
            loop.run_until_complete(asyncio.wait([task]))
        except KeyboardInterrupt:
            continue  # the caller raises the first one
    if task.done() and not task.cancelled():
        task.exception()  # marks it as seen: the caller raises it
