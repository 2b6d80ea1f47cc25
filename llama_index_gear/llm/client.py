"""One call of a language model: for facts or for text, sync or async, and what it cost."""

from __future__ import annotations

import asyncio
import contextvars
import json
import queue
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse
from llama_index.core.bridge.pydantic import BaseModel, Field
from llama_index.core.llms import LLM
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.program.function_program import get_function_tool
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.utils import get_tokenizer

from llama_index_gear.errors import OutOfTime
from llama_index_gear.requests import Reply

Result = TypeVar("Result")

NOT_ANSWERED_YET = "not_answered_yet"
"""Code of the error of a call that waits for its batch."""

_LONGEST_COUNTED = 500_000  # characters
_TRANSIENT = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
_OF_THE_CLIENT = frozenset({401, 402, 403, 404})


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
    """Whether structured output can be had from this model through function calling."""
    return isinstance(llm, FunctionCallingLLM) and llm.metadata.is_function_calling_model


async def ask_for_facts(
    llm: LLM, messages: Sequence[ChatMessage], *, form: type[BaseModel] | None, max_retries: int, retry_backoff: float
) -> Reply:
    """Ask once, for structured output of a form or (None) for text; after what may pass, `max_retries` times more.

    That is a rate limit, a time-out, a lost connection or a server's error. Waits `retry_backoff` seconds, doubled each
    time, with jitter, or what a `Retry-After` header asks for (a minute at most). Never raises what the model's client
    raises: it is in the reply.
    """
    start = time.perf_counter()
    for attempt in range(max_retries + 1):
        try:
            response = await _call(llm, list(messages), form)
        except Exception as error:  # noqa: BLE001 - handed to the caller in the reply
            if attempt == max_retries or not _is_transient(error):
                return Reply(error=error, calls=attempt + 1, ms=_since(start))
            delay = retry_backoff * 2**attempt * (1 + random.random())
            await asyncio.sleep(max(delay, _retry_after(error)))
        else:
            break
    text = response.message.content or "" if form is None else _arguments(llm, response)
    # In a thread: where the client does not count tokens, a tokenizer does, and the first time it has to be loaded.
    reply = await asyncio.to_thread(_reply, response, _joined(messages), text)
    return replace(reply, calls=attempt + 1, ms=_since(start))


def ask_llm(
    llm: LLM, prompt: BasePromptTemplate, variables: Mapping[str, str], *, within: float | None = None
) -> Reply:
    """Ask for text, once: the model's client has its own way with rate limits. Never raises what the client raises.

    Args:
        llm: the model.
        prompt: its template.
        variables: what to fill it with.
        within: seconds to wait for the reply; one that comes later is ignored. None: as long as it takes.

    """
    start = time.perf_counter()
    try:
        shown, call = _spoken_to(llm, prompt, variables, llm.chat, llm.complete)
        response = call() if within is None else _no_longer_than(within, call)
    except Exception as error:  # noqa: BLE001 - handed to the caller in the reply
        return Reply(error=error, ms=_since(start))
    ms = _since(start)
    return replace(_reply(response, shown, _text(response)), ms=ms)


async def aask_llm(
    llm: LLM, prompt: BasePromptTemplate, variables: Mapping[str, str], *, within: float | None = None
) -> Reply:
    """`ask_llm`, without blocking the event loop; a call that takes too long is cancelled."""
    start = time.perf_counter()
    try:
        shown, call = _spoken_to(llm, prompt, variables, llm.achat, llm.acomplete)
        async with asyncio.timeout(within) as limit:
            response = await call()
    except Exception as error:  # noqa: BLE001 - handed to the caller in the reply
        late = isinstance(error, TimeoutError) and within is not None and limit.expired()
        return Reply(error=_late(within) if late else error, ms=_since(start))
    ms = _since(start)
    return replace(await asyncio.to_thread(_reply, response, shown, _text(response)), ms=ms)


def has_timed_out(reply: Reply) -> bool:
    """Whether the last try ended with a time-out."""
    return isinstance(reply.error, TimeoutError) or "timeout" in type(reply.error).__name__.lower()


def is_repeatable(reply: Reply) -> bool:
    """Whether the same call may succeed another time.

    Its failure may pass, has nothing to do with what was asked (a wrong key, an unknown model), or a batch is yet to
    answer it.
    """
    if reply.error is None:
        return False
    waits = getattr(reply.error, "code", None) == NOT_ANSWERED_YET
    return waits or _is_transient(reply.error) or getattr(reply.error, "status_code", None) in _OF_THE_CLIENT


def _spoken_to(
    llm: LLM, prompt: BasePromptTemplate, variables: Mapping[str, str], chat: Any, complete: Any
) -> tuple[str, Callable[[], Any]]:
    """What the model is shown, and the call that shows it: messages or a text, as `LLM.predict` chooses."""
    if llm.metadata.is_chat_model:
        messages = llm._get_messages(prompt, **variables)
        return _joined(messages), lambda: chat(messages)
    text = llm._get_prompt(prompt, **variables)
    return text, lambda: complete(text, formatted=True)


def _text(response: ChatResponse | CompletionResponse) -> str:
    return response.text if isinstance(response, CompletionResponse) else response.message.content or ""


def _joined(messages: Sequence[ChatMessage]) -> str:
    return "\n".join(message.content or "" for message in messages)


def _no_longer_than(seconds: float, call: Callable[[], Result]) -> Result:
    """The call's result, or TimeoutError; a call that is late ends in a thread of its own, unheard."""
    done: queue.SimpleQueue[tuple[Result | None, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            done.put((call(), None))
        except BaseException as error:  # noqa: BLE001 - raised by the waiting thread
            done.put((None, error))

    threading.Thread(target=contextvars.copy_context().run, args=(work,), daemon=True).start()
    try:
        result, error = done.get(timeout=seconds)
    except queue.Empty:
        raise _late(seconds) from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # None only beside an error, or because the call returned it


def _late(seconds: float | None) -> OutOfTime:
    return OutOfTime(f"no reply within {seconds:.3g} s")


def _since(start: float) -> float:
    return 1000 * (time.perf_counter() - start)


def _reply(response: ChatResponse | CompletionResponse, prompt: str, text: str) -> Reply:
    sent, received = _usage(response, prompt, text)
    finish, refusal = _ending(response)
    return Reply(
        text=refusal or text,
        refused=bool(refusal) or finish in ("content_filter", "refusal", "SAFETY"),
        truncated=finish in ("length", "max_tokens", "MAX_TOKENS"),
        prompt_tokens=sent,
        completion_tokens=received,
    )


async def _call(llm: Any, messages: list[ChatMessage], form: type[BaseModel] | None) -> ChatResponse:
    if form is None:
        response = await llm.achat(messages)
    else:
        response = await llm.achat_with_tools(
            [get_function_tool(form)], chat_history=messages, tool_required=True, allow_parallel_tool_calls=False
        )
    return response  # type: ignore[no-any-return]


def _arguments(llm: Any, response: ChatResponse) -> str:
    """What functions were called with, as JSON: of several calls, all lists as one; without any, the reply's words.

    Arguments that the client can't read are a reply that can't be read: it was paid for all the same.
    """
    try:
        calls = llm.get_tool_calls_from_response(response, error_on_no_tool_call=False)
        arguments: dict[str, Any] = {}
        for name, value in (argument for call in calls for argument in call.tool_kwargs.items()):
            both = isinstance(value, list) and isinstance(arguments.get(name), list)
            arguments[name] = [*arguments[name], *value] if both else arguments.get(name, value)
        return json.dumps(arguments) if calls else response.message.content or ""
    except Exception as error:  # noqa: BLE001 - any client's; said where the reply is found unreadable
        return f"{type(error).__name__}: {error}"


def _is_transient(error: BaseException) -> bool:
    """Rate limits, time-outs, lost connections and servers' errors, in whatever class a model's client clothes them."""
    status = getattr(error, "status_code", None)
    if status is not None:
        return status in _TRANSIENT
    name = type(error).__name__.lower()
    return isinstance(error, TimeoutError | ConnectionError) or any(
        word in name for word in ("timeout", "ratelimit", "connection", "remoteprotocol")
    )


def _retry_after(error: BaseException) -> float:
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        return min(float(headers.get("retry-after", 0)), 60.0)
    except ValueError:  # a date: the back-off will do
        return 0.0


def _get(raw: Any, *names: Any) -> Any:
    """Walk through dicts, lists and objects; None where the way ends."""
    for name in names:
        if isinstance(raw, dict):
            raw = raw.get(name)
        elif isinstance(name, int):
            raw = raw[name] if isinstance(raw, list) and len(raw) > name else None
        else:
            raw = getattr(raw, name, None)
    return raw


def _ending(response: ChatResponse | CompletionResponse) -> tuple[str, str]:
    """Why the model stopped, and its words of refusal, as OpenAI, Anthropic, Ollama and their likes say it."""
    raw = response.raw
    finish = _get(raw, "choices", 0, "finish_reason") or _get(raw, "stop_reason") or _get(raw, "done_reason")
    return str(finish or ""), str(_get(raw, "choices", 0, "message", "refusal") or "")


def _usage(response: ChatResponse | CompletionResponse, prompt: str, completion: str) -> tuple[int, int]:
    for source in (response.additional_kwargs, _get(response.raw, "usage")):
        sent = _get(source, "prompt_tokens") or _get(source, "input_tokens")
        received = _get(source, "completion_tokens") or _get(source, "output_tokens")
        if isinstance(sent, int):
            return sent, received if isinstance(received, int) else 0
    return _tokens_in(prompt), _tokens_in(completion)


def _tokens_in(text: str) -> int:
    """Count by LlamaIndex's tokenizer; estimate of what is longer than a prompt: it is quadratic in a word's length."""
    return len(get_tokenizer()(text)) if len(text) <= _LONGEST_COUNTED else len(text) // 4
