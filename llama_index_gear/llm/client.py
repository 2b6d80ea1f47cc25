"""Calls of a language model, sync and async, with their token counts."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import random
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms import LLM
from llama_index.core.llms.custom import CustomLLM
from tenacity import AsyncRetrying, Retrying, retry_if_exception

from llama_index_gear.errors import OutOfTime, is_of_quota
from llama_index_gear.flow import CallLLM, Reply, sleep
from llama_index_gear.llm.client_responses import (
    aread_response,
    build_reply,
    find_status,
    give_room,
    read_response,
    read_text,
)

MAX_RETRIES = 3
"""Retries of a call, if nothing else is asked for."""
RETRY_BACKOFF = 1.0
"""Seconds before the first retry, if nothing else is asked for."""

_TRANSIENT_ERRORS = frozenset(
    {408, 409, 429, 500, 502, 503, 504, *range(520, 525), 529}
)  # HTTP status: worth another try
_LONGEST_WAIT = 60.0  # seconds


@dataclass
class Retries:
    """The retries of one call: only after an error that may pass, and only in time.

    Attributes:
        most: how many there may be.
        backoff: seconds before the first; doubled each time, with jitter. A `Retry-After` header (seconds, milliseconds
            or a date) that asks for more gets it, up to a minute.
        within: seconds that call, retries and waits may take together; None: no limit.
        failures: how many calls have failed so far.

    """

    most: int = field(default_factory=lambda: MAX_RETRIES)
    backoff: float = field(default_factory=lambda: RETRY_BACKOFF)
    within: float | None = None
    failures: int = 0

    def __post_init__(self) -> None:
        self._start, self._wait = time.monotonic(), 0.0

    @classmethod
    def of(cls, within: float | None, max_calls: int | None) -> Retries:
        """Return the usual retries of a call, as far as these limits allow them."""
        most = MAX_RETRIES if max_calls is None else min(MAX_RETRIES, max_calls - 1)
        return cls(most, within=within)

    def rest(self, max_calls: int | None) -> Retries | None:
        """Return the retries of another call within the same limits, behind this one; None if they are reached."""
        left = None if max_calls is None else max_calls - self.failures - 1
        return None if left == 0 or self.remaining == 0 else Retries.of(self.remaining, left)

    @property
    def remaining(self) -> float | None:
        """Seconds that are left; None: no limit."""
        return None if self.within is None else max(0.0, self.within - (time.monotonic() - self._start))

    def call(self, function: Callable[[], Any]) -> Any:
        """Call a function until it returns, or raise its last error."""
        return Retrying(**self._policy, sleep=sleep)(function)

    async def acall(self, function: Callable[[], Any]) -> Any:
        """`call` for a coroutine function."""
        return await AsyncRetrying(**self._policy)(function)

    @property
    def _policy(self) -> dict[str, Any]:
        return {
            "retry": retry_if_exception(self._note_failure),
            "stop": self._is_over,
            "wait": lambda _: self._wait,
            "reraise": True,
        }

    def _is_over(self, _: Any) -> bool:
        remaining = self.remaining
        return self.failures > self.most or (remaining is not None and remaining <= self._wait)

    def _note_failure(self, error: BaseException) -> bool:
        """Count a failure, and choose the wait behind it; return True if the error may pass."""
        self.failures += 1
        backoff = self.backoff * 2 ** (self.failures - 1) * (1 + random.random())
        self._wait = max(backoff, _retry_after(error))
        return is_transient(error)


def is_transient(error: BaseException) -> bool:
    """Return True for rate limits, time-outs, lost connections and servers' errors, in any client's classes.

    A quota that is used up is no rate limit, though it has its status.
    """
    if is_of_quota(error):
        return False
    status = find_status(error)
    if status is not None:
        return status in _TRANSIENT_ERRORS
    name = type(error).__name__.lower()
    return isinstance(error, TimeoutError | ConnectionError) or any(
        word in name for word in ("timeout", "ratelimit", "connection", "remoteprotocol", "overloaded")
    )


def _retry_after(error: BaseException) -> float:
    """Return the seconds that a server asks to wait: at most 60, and 0 if it doesn't."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    readings: tuple[tuple[str, Callable[[str], float]], ...] = (
        ("retry-after-ms", lambda text: float(text) / 1000),
        ("retry-after", float),
        ("retry-after", lambda text: parsedate_to_datetime(text).timestamp() - time.time()),
    )
    for name, read in readings:
        with suppress(KeyError, ValueError):  # another form follows; without any the back-off is enough
            return min(max(0.0, read(headers[name])), _LONGEST_WAIT)
    return 0.0


Result = TypeVar("Result")

NOT_ANSWERED_YET = "not_answered_yet"
"""The code of an error that says: a batch has yet to answer this call."""

_CLIENT_ERRORS = frozenset({401, 402, 403, 404})  # HTTP status: the account's or the model's, not the prompt's
_MOST_STALE = 20  # connections that an HTTP client keeps

_TURNS: WeakValueDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakValueDictionary()
"""Has the calls of models without async calls made one at a time: such a model is seldom made for several threads.

A lock is kept by the calls that use it: it holds its event loop, which is to go once these have ended.
"""


def ask_llm(llm: LLM, request: CallLLM) -> Reply:
    """Call the model for text. Never raises what the model's client raises: the reply carries the error.

    It is called again after an error that may pass (see `Retries`); and once, with more room, if its reply is cut off
    in its thoughts. A reply that comes after the request's `timeout` is ignored.
    """
    retries = Retries.of(request.timeout, request.max_calls)
    reply = _ask_once(llm, request, retries)
    roomy, rest = give_room(llm, reply), retries.rest(request.max_calls)
    return reply if roomy is None or rest is None else join_replies(reply, _ask_once(roomy, request, rest))


async def aask_llm(llm: LLM, request: CallLLM) -> Reply:
    """Call the model as `ask_llm` does, without blocking the event loop; a call that takes too long is cancelled."""
    retries = Retries.of(request.timeout, request.max_calls)
    reply = await aask_once(llm, request, retries)
    roomy, rest = give_room(llm, reply), retries.rest(request.max_calls)
    return reply if roomy is None or rest is None else join_replies(reply, await aask_once(roomy, request, rest))


def join_replies(first: Reply, second: Reply) -> Reply:
    """Return the second reply with the cost of both; the first one, if the second call failed for good."""
    kept = first if second.error is not None and not is_repeatable(second) else second
    names = ("calls", "prompt_tokens", "completion_tokens", "ms")
    return replace(kept, **{name: getattr(first, name) + getattr(second, name) for name in names})


def _ask_once(llm: LLM, request: CallLLM, retries: Retries) -> Reply:
    start = time.perf_counter()

    def attempt() -> Any:
        remaining = retries.remaining
        if remaining is None:
            return read_response(call)
        return read_response(functools.partial(_call_with_timeout, remaining, retries.within, call))

    try:
        shown, call = _build_call(llm, request, llm.chat, llm.complete)
        response = retries.call(attempt)
    except Exception as error:  # noqa: BLE001 - handed to the caller in the reply
        return Reply(error=error, calls=max(1, retries.failures), ms=_elapsed_ms(start))
    ms = _elapsed_ms(start)
    reply = build_reply(response, shown, read_text(response), llm.metadata.model_name)
    return replace(reply, calls=retries.failures + 1, ms=ms)


async def aask_once(llm: LLM, request: CallLLM, retries: Retries) -> Reply:
    """Call the model, and again after an error that may pass, as `retries` allow. The reply carries the last error."""
    start = time.perf_counter()

    async def attempt() -> Any:
        remaining = retries.remaining
        try:
            async with asyncio.timeout(remaining) as limit:
                return await aread_response(_call_async(llm, call, sync_call))
        except TimeoutError:
            if remaining is None or not limit.expired():
                raise
            raise _timeout_error(retries.within) from None

    try:
        shown, call = _build_call(llm, request, llm.achat, llm.acomplete)
        _, sync_call = _build_call(llm, request, llm.chat, llm.complete)
        response = await retries.acall(attempt)
    except Exception as error:  # noqa: BLE001 - handed to the caller in the reply
        return Reply(error=error, calls=max(1, retries.failures), ms=_elapsed_ms(start))
    ms = _elapsed_ms(start)
    reply = await asyncio.to_thread(build_reply, response, shown, read_text(response), llm.metadata.model_name)
    return replace(reply, calls=retries.failures + 1, ms=ms)


def has_timed_out(reply: Reply) -> bool:
    """Return True if the last call ended with a time-out."""
    return isinstance(reply.error, TimeoutError) or "timeout" in type(reply.error).__name__.lower()


def is_repeatable(reply: Reply) -> bool:
    """Return True if the call failed, and the same call may succeed later.

    This holds for a transient error, for an error that has nothing to do with the prompt (a wrong key, an unknown
    model), and while a batch has yet to answer the call.
    """
    if reply.error is None:
        return False
    is_waiting = getattr(reply.error, "code", None) == NOT_ANSWERED_YET
    is_of_account = is_out_of_quota(reply) or getattr(reply.error, "status_code", None) in _CLIENT_ERRORS
    return is_waiting or is_of_account or is_transient(reply.error)


def is_out_of_quota(reply: Reply) -> bool:
    """Return True if the call was refused because the account has no money or quota left."""
    return reply.error is not None and is_of_quota(reply.error)


def _build_call(llm: LLM, request: CallLLM, chat: Any, complete: Any) -> tuple[str, Callable[[], Any]]:
    """Return the prompt as text, and the call that sends it: messages for a chat model, else text, as `LLM.predict`."""
    if llm.metadata.is_chat_model:
        messages = llm._get_messages(request.prompt, **request.variables)
        return _join_messages(messages), lambda: chat(messages)
    text = llm._get_prompt(request.prompt, **request.variables)
    return text, lambda: complete(text, formatted=True)


def _join_messages(messages: Sequence[ChatMessage]) -> str:
    return "\n".join(message.content or "" for message in messages)


def _start(call: Callable[[], Result]) -> Future[Result]:
    """Start a call in a thread of its own, which cannot keep the process from ending."""
    outcome: Future[Result] = Future()
    outcome.set_running_or_notify_cancel()

    def run_call() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            outcome.set_exception(error)

    threading.Thread(target=contextvars.copy_context().run, args=(run_call,), daemon=True).start()
    return outcome


def _call_with_timeout(seconds: float, within: float | None, call: Callable[[], Result]) -> Result:
    """Return the call's result, or raise OutOfTime, which names `within` as the limit.

    A late call ends in its own thread, and its result is dropped.
    """
    outcome = _start(call)
    if not wait([outcome], seconds).done:
        raise _timeout_error(within)
    return outcome.result()


def _timeout_error(seconds: float | None) -> OutOfTime:
    return OutOfTime(f"no reply within {seconds:.3g} s")


def _elapsed_ms(start: float) -> float:
    return 1000 * (time.perf_counter() - start)


async def _call_async(llm: Any, call: Callable[[], Awaitable[Result]], sync_call: Callable[[], Result]) -> Result:
    """Make a call without blocking the event loop, whatever kind of client the model has.

    A model that has sync calls only is called in a thread. LlamaIndex's base class for these, `CustomLLM`, would block
    the loop. A client that keeps its connections (Ollama's) fails once for each that an event loop left behind which
    has ended, and drops it: then the call is made again.
    """
    if isinstance(llm, CustomLLM) and (type(llm).achat, type(llm).acomplete) == (CustomLLM.achat, CustomLLM.acomplete):
        return await _call_in_thread(sync_call)
    for _ in range(_MOST_STALE):
        try:
            return await call()
        except NotImplementedError:
            return await _call_in_thread(sync_call)
        except RuntimeError as error:
            if "event loop" not in str(error).lower():
                raise
    return await call()


async def _call_in_thread(call: Callable[[], Result]) -> Result:
    """Make a call in a thread of its own. The next one waits for its end, even if nobody waits for its result."""
    loop = asyncio.get_running_loop()
    turn = _TURNS.setdefault(loop, asyncio.Lock())
    await turn.acquire()

    def end(_: Any) -> None:
        with suppress(RuntimeError):  # the loop has ended: nobody waits
            loop.call_soon_threadsafe(turn.release)

    try:
        outcome = _start(call)
    except RuntimeError:  # there can be no more threads
        turn.release()
        raise
    outcome.add_done_callback(end)
    with suppress(TimeoutError):  # a call's own, which asyncio makes anew
        await asyncio.wrap_future(outcome)
    return outcome.result()
