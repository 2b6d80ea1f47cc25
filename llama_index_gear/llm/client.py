"""Calls of a language model, for structured output or for text, sync and async, with their token counts."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import json
import queue
import random
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse
from llama_index.core.bridge.pydantic import BaseModel, Field
from llama_index.core.llms import LLM
from llama_index.core.llms.custom import CustomLLM
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.program.function_program import get_function_tool
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.utils import get_tokenizer

from llama_index_gear.errors import OutOfTime, is_of_quota
from llama_index_gear.llm.tool_support import ToolSupport, refuses_tools
from llama_index_gear.requests import Reply

Result = TypeVar("Result")

NOT_ANSWERED_YET = "not_answered_yet"
"""The code of an error that says: a batch has yet to answer this call."""

_MAX_COUNTED_LENGTH = 500_000  # characters
_TRANSIENT_ERRORS = frozenset({408, 409, 429, 500, 502, 503, 504, 529})  # HTTP status: worth another try
_CLIENT_ERRORS = frozenset({401, 402, 403, 404})  # HTTP status: the account's or the model's, not the prompt's
_MOST_STALE = 20  # connections that an HTTP client keeps

_TURNS: WeakValueDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakValueDictionary()
"""Has the calls of models without async calls made one at a time: such a model is seldom made for several threads.

A lock is kept by the calls that use it: it holds its event loop, which is to go once these have ended.
"""


class Fact(BaseModel):
    """One fact of the passage."""

    subject: str = Field(description="name of who or what the fact is about")
    predicate: str = Field(description="short: what is said of the subject")
    object: str = Field(description="name, date, number or thing that the predicate leads to")


class PassageFacts(BaseModel):
    """The named entities and the facts of the passage."""

    entities: list[str] = Field(description="named entities of the passage")
    triples: list[Fact] = Field(description="facts, each with at least one of the entities")


class NumberedFacts(BaseModel):
    """The named entities and the facts of one of the passages."""

    passage: int = Field(description="the passage's number")
    entities: list[str] = Field(description="named entities of the passage")
    triples: list[Fact] = Field(description="facts, each with at least one of the entities")


class PassagesFacts(BaseModel):
    """The named entities and the facts of each passage."""

    passages: list[NumberedFacts] = Field(description="one entry a passage, in order")


def offers_functions(llm: LLM) -> bool:
    """Return True if this model gives structured output through function calling."""
    return isinstance(llm, FunctionCallingLLM) and llm.metadata.is_function_calling_model


async def ask_for_facts(
    llm: LLM,
    messages: Sequence[ChatMessage],
    *,
    output_cls: type[BaseModel] | None,
    tools: ToolSupport,
    max_retries: int,
    retry_backoff: float,
) -> Reply:
    """Call the model, and call it again after a transient error.

    Transient are rate limits, time-outs, lost connections and servers' errors. Never raises what the model's client
    raises: the reply carries the error.

    Args:
        llm: the model.
        messages: the prompt.
        output_cls: the form of the structured output; None asks for text. A server that says that its model has no
            tools is asked for text too.
        tools: what earlier calls said of the model's tools; this one adds to it.
        max_retries: how many further calls a transient error gets.
        retry_backoff: seconds to wait before the first of them; doubled each time, with jitter. A `Retry-After` header
            (seconds, milliseconds or a date) that asks for more gets it, up to a minute.

    """
    start = time.perf_counter()
    calls = failures = 0
    while True:
        form = None if tools.refusing is llm else output_cls
        calls += 1
        try:
            response = await _call(llm, list(messages), form)
            break
        except Exception as error:  # noqa: BLE001 - handed to the caller in the reply
            if form is not None and refuses_tools(error):
                tools.note_refused(llm, error)
                output_cls = None
                continue
            if failures == max_retries or not _is_transient(error):
                return Reply(error=error, calls=calls, ms=_elapsed_ms(start))
            delay = retry_backoff * 2**failures * (1 + random.random())
            failures += 1
            await asyncio.sleep(max(delay, _retry_after(error)))
    if form is not None:
        tools.note_accepted(llm)
    text = response.message.content or "" if form is None else _join_arguments(llm, response)
    # In a thread: if the client counts no tokens, a tokenizer does, which takes long and has to be loaded first.
    reply = await asyncio.to_thread(_build_reply, response, _join_messages(messages), text)
    return replace(reply, calls=calls, ms=_elapsed_ms(start))


def ask_llm(
    llm: LLM, prompt: BasePromptTemplate, variables: Mapping[str, str], *, within: float | None = None
) -> Reply:
    """Call the model once, for text. Never raises what the model's client raises: the reply carries the error.

    The client does its own retries.

    Args:
        llm: the model.
        prompt: its template.
        variables: the template's.
        within: seconds to wait for the reply; a later one is ignored. Default None: no limit.

    """
    start = time.perf_counter()
    try:
        shown, call = _build_call(llm, prompt, variables, llm.chat, llm.complete)
        response = call() if within is None else _call_with_timeout(within, call)
    except Exception as error:  # noqa: BLE001 - handed to the caller in the reply
        return Reply(error=error, ms=_elapsed_ms(start))
    ms = _elapsed_ms(start)
    return replace(_build_reply(response, shown, _response_text(response)), ms=ms)


async def aask_llm(
    llm: LLM, prompt: BasePromptTemplate, variables: Mapping[str, str], *, within: float | None = None
) -> Reply:
    """Call the model as `ask_llm` does, without blocking the event loop; a call that takes too long is cancelled."""
    start = time.perf_counter()
    try:
        shown, call = _build_call(llm, prompt, variables, llm.achat, llm.acomplete)
        _, sync_call = _build_call(llm, prompt, variables, llm.chat, llm.complete)
        async with asyncio.timeout(within) as limit:
            response = await _call_async(llm, call, sync_call)
    except Exception as error:  # noqa: BLE001 - handed to the caller in the reply
        is_late = isinstance(error, TimeoutError) and within is not None and limit.expired()
        return Reply(error=_timeout_error(within) if is_late else error, ms=_elapsed_ms(start))
    ms = _elapsed_ms(start)
    return replace(await asyncio.to_thread(_build_reply, response, shown, _response_text(response)), ms=ms)


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
    return is_waiting or is_of_account or _is_transient(reply.error)


def is_out_of_quota(reply: Reply) -> bool:
    """Return True if the call was refused because the account has no money or quota left."""
    return reply.error is not None and is_of_quota(reply.error)


def _build_call(
    llm: LLM, prompt: BasePromptTemplate, variables: Mapping[str, str], chat: Any, complete: Any
) -> tuple[str, Callable[[], Any]]:
    """Return the prompt as text, and the call that sends it: messages for a chat model, else text, as `LLM.predict`."""
    if llm.metadata.is_chat_model:
        messages = llm._get_messages(prompt, **variables)
        return _join_messages(messages), lambda: chat(messages)
    text = llm._get_prompt(prompt, **variables)
    return text, lambda: complete(text, formatted=True)


def _response_text(response: ChatResponse | CompletionResponse) -> str:
    return response.text if isinstance(response, CompletionResponse) else response.message.content or ""


def _join_messages(messages: Sequence[ChatMessage]) -> str:
    return "\n".join(message.content or "" for message in messages)


def _call_with_timeout(seconds: float, call: Callable[[], Result]) -> Result:
    """Return the call's result, or raise OutOfTime. A late call ends in its own thread, and its result is dropped."""
    outcome: queue.SimpleQueue[tuple[Result | None, BaseException | None]] = queue.SimpleQueue()

    def run_call() -> None:
        try:
            outcome.put((call(), None))
        except BaseException as error:  # noqa: BLE001 - raised by the waiting thread
            outcome.put((None, error))

    threading.Thread(target=contextvars.copy_context().run, args=(run_call,), daemon=True).start()
    try:
        result, error = outcome.get(timeout=seconds)
    except queue.Empty:
        raise _timeout_error(seconds) from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # None only beside an error, or because the call returned it


def _timeout_error(seconds: float | None) -> OutOfTime:
    return OutOfTime(f"no reply within {seconds:.3g} s")


def _elapsed_ms(start: float) -> float:
    return 1000 * (time.perf_counter() - start)


def _build_reply(response: ChatResponse | CompletionResponse, prompt: str, text: str) -> Reply:
    sent, received = _count_tokens(response, prompt, text)
    finish, refusal = _find_ending(response)
    return Reply(
        text=refusal or text,
        refused=bool(refusal) or finish in ("content_filter", "refusal", "SAFETY"),
        truncated=finish in ("length", "max_tokens", "MAX_TOKENS"),
        prompt_tokens=sent,
        completion_tokens=received,
    )


async def _call(llm: Any, messages: list[ChatMessage], output_cls: type[BaseModel] | None) -> ChatResponse:
    if output_cls is None:
        call, sync_call = functools.partial(llm.achat, messages), functools.partial(llm.chat, messages)
    else:
        form: dict[str, Any] = {"chat_history": messages, "tool_required": True, "allow_parallel_tool_calls": False}
        tools = [get_function_tool(output_cls)]
        call = functools.partial(llm.achat_with_tools, tools, **form)
        sync_call = functools.partial(llm.chat_with_tools, tools, **form)
    return await _call_async(llm, call, sync_call)


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
    """Make a call in a thread of its own. The next one waits until it has ended, even if nobody waits for its result.

    The thread cannot keep the process from ending.
    """
    loop = asyncio.get_running_loop()
    turn = _TURNS.setdefault(loop, asyncio.Lock())
    await turn.acquire()
    outcome: asyncio.Future[Result] = loop.create_future()

    def end(result: Result | None, error: BaseException | None) -> None:
        turn.release()
        if outcome.done():  # cancelled
            return
        if error is None:
            outcome.set_result(result)  # type: ignore[arg-type]  # None only if the call returned it
        else:
            outcome.set_exception(error)

    def run_call() -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as raised:  # noqa: BLE001 - raised where the call is awaited
            error = raised
        with suppress(RuntimeError):  # the loop has ended: nobody waits
            loop.call_soon_threadsafe(end, result, error)

    try:
        threading.Thread(target=contextvars.copy_context().run, args=(run_call,), daemon=True).start()
    except RuntimeError:  # there can be no more threads
        turn.release()
        raise
    return await outcome


def _join_arguments(llm: Any, response: ChatResponse) -> str:
    """Return the arguments of all function calls as one JSON object, or the reply's text if it calls none.

    Lists of the same name are joined. JSON that small models write into a text, `"triples": "[{…}]"`, is read.
    Arguments that the client can't read give a text that no parser can read, not an exception: the reply has its cost
    all the same.
    """
    try:
        calls = llm.get_tool_calls_from_response(response, error_on_no_tool_call=False)
        arguments: dict[str, Any] = {}
        for name, text in (argument for call in calls for argument in call.tool_kwargs.items()):
            value = _decode_json(text)
            are_lists = isinstance(value, list) and isinstance(arguments.get(name), list)
            arguments[name] = [*arguments[name], *value] if are_lists else arguments.get(name, value)
        return json.dumps(arguments) if calls else response.message.content or ""
    except Exception as error:  # noqa: BLE001 - any client's; the parser's error quotes it
        return f"{type(error).__name__}: {error}"


def _decode_json(value: Any) -> Any:
    """Return the list or object that a text holds as JSON; in a list, of each text in it. Other values stay."""
    if isinstance(value, list):
        return [_decode_json(entry) if isinstance(entry, str) else entry for entry in value]
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        with suppress(ValueError, RecursionError):  # a name may begin so too
            return json.loads(value)
    return value


def _is_transient(error: BaseException) -> bool:
    """Return True for rate limits, time-outs, lost connections and servers' errors, in any client's classes.

    A quota that is used up is no rate limit, though it has its status.
    """
    if is_of_quota(error):
        return False
    status = getattr(error, "status_code", None)
    if status is not None:
        return status in _TRANSIENT_ERRORS
    name = type(error).__name__.lower()
    return isinstance(error, TimeoutError | ConnectionError) or any(
        word in name for word in ("timeout", "ratelimit", "connection", "remoteprotocol")
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
            return min(max(0.0, read(headers[name])), 60.0)
    return 0.0


def _get(raw: Any, *names: Any) -> Any:
    """Follow names and indexes through dicts, lists and objects; return None where one is missing."""
    for name in names:
        if isinstance(raw, dict):
            raw = raw.get(name)
        elif isinstance(name, int):
            raw = raw[name] if isinstance(raw, list) and len(raw) > name else None
        else:
            raw = getattr(raw, name, None)
    return raw


def _find_ending(response: ChatResponse | CompletionResponse) -> tuple[str, str]:
    """Return the finish reason and the refusal of a response, as OpenAI, Anthropic, Ollama and others name them."""
    raw = response.raw
    finish = _get(raw, "choices", 0, "finish_reason") or _get(raw, "stop_reason") or _get(raw, "done_reason")
    return str(finish or ""), str(_get(raw, "choices", 0, "message", "refusal") or "")


def _count_tokens(response: ChatResponse | CompletionResponse, prompt: str, completion: str) -> tuple[int, int]:
    """Return the prompt and completion tokens: the client's own counts, else the tokenizer's."""
    for source in (response.additional_kwargs, _get(response.raw, "usage")):
        sent = _get(source, "prompt_tokens") or _get(source, "input_tokens")
        received = _get(source, "completion_tokens") or _get(source, "output_tokens")
        if isinstance(sent, int):
            return sent, received if isinstance(received, int) else 0
    return count_tokens(prompt), count_tokens(completion)


def count_tokens(text: str) -> int:
    """Count tokens with LlamaIndex's tokenizer; estimate them in very long texts, where it may take quadratic time."""
    return len(get_tokenizer()(text)) if len(text) <= _MAX_COUNTED_LENGTH else len(text) // 4
