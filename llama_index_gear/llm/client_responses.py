"""Reads a client's response: its words, its ending, its tokens, its error."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from traceback import walk_tb
from typing import Any, TypeVar

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse
from llama_index.core.llms import LLM
from llama_index.core.utils import get_tokenizer
from pydantic import BaseModel, ValidationError

from llama_index_gear.errors import ModelServerError
from llama_index_gear.flow import Reply
from llama_index_gear.llm.json_scan import MAX_REPLY_LENGTH, scan
from llama_index_gear.llm.thoughts import clean_reply, read_said

Response = TypeVar("Response", bound=ChatResponse | CompletionResponse)

UNREAD = (TypeError, IndexError, AttributeError, KeyError, ValidationError, json.JSONDecodeError)
"""Errors of a client that can't read an answer."""
_THOUGHTS = ("thinking", "reasoning", "thought")  # types of parts
_MAX_COUNTED_LENGTH = 500_000  # characters
_CUT_OFF = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
_REFUSED = frozenset({"content_filter", "refusal", "safety"})
_STATUS_OF_WORDS = (
    (re.compile(r"rate.?limit|too many requests|throttl", re.IGNORECASE), 429),
    (re.compile(r"overloaded|at capacity|capacity temporarily exceeded", re.IGNORECASE), 529),
    (re.compile(r"unavailable|try again later", re.IGNORECASE), 503),
    (re.compile(r"timed? ?out", re.IGNORECASE), 504),
    (re.compile(r"internal|server.?error", re.IGNORECASE), 500),
)
_BROKEN = 502  # the status that says what an answer without JSON does: something between broke it off

_unopened: set[str] = set()
"""Names of models that closed thoughts which no mark had opened."""
_in_parts: set[str] = set()
"""Names of models whose streams came in parts."""


def thinks_unopened(model_name: str) -> bool:
    """Return True if a reply of this model had thoughts that no mark opens."""
    return model_name in _unopened


def build_reply(response: ChatResponse | CompletionResponse, prompt: str, text: str, model_name: str) -> Reply:
    """Return the reply that a response holds.

    JSON that a server puts among the thoughts is the reply, if there is no other and it ends them.

    Args:
        response: of the client.
        prompt: as text, for clients that count no tokens.
        text: the response's words.
        model_name: of the model.

    """
    sent, received = _count_tokens(response, prompt, text)
    finish, refusal = _find_ending(response)
    said = clean_reply(text)
    if said.is_unopened:
        _unopened.add(model_name)
    thoughts = "" if said.text else find_thoughts(response)
    words = said.text or _find_conclusion(thoughts)
    is_limited = finish in _CUT_OFF
    is_thought = said.is_cut_off or bool(thoughts.strip()) or not text
    return Reply(
        text=refusal or words,
        refused=bool(refusal) or finish in _REFUSED,
        truncated=is_limited,
        is_thought=not words and is_thought and (is_limited or (said.is_cut_off and not finish)),
        prompt_tokens=sent,
        completion_tokens=received,
    )


def read_text(response: ChatResponse | CompletionResponse) -> str:
    """Return a response's words, thoughts in them included; of one that calls functions unasked, their arguments."""
    if isinstance(response, CompletionResponse):
        return response.text
    message = response.message
    called = [block.tool_kwargs for block in message.blocks if block.block_type == "tool_call"]
    older = [_get(call, "function", "arguments") for call in message.additional_kwargs.get("tool_calls") or []]
    oldest = _get(response.raw, "choices", 0, "message", "function_call", "arguments")
    values = called or [value for value in [*older, oldest] if value is not None]
    written = (value if isinstance(value, str) else json.dumps(value, default=str) for value in values)
    return message.content or "\n".join(written)


def find_thoughts(response: ChatResponse | CompletionResponse) -> str:
    """Return the thoughts that a server sends beside the words."""
    message = getattr(response, "message", None)
    blocks = [block.content or "" for block in getattr(message, "blocks", ()) if block.block_type == "thinking"]
    raw = _get(response.raw, "choices", 0, "message") or _get(response.raw, "message")
    sources = (response.additional_kwargs, getattr(message, "additional_kwargs", {}), raw)
    names = ("reasoning_content", "reasoning", "thinking", "reasoning_details", "thinking_blocks")
    named = (_join_texts(_get(source, name)) for source in sources for name in names)
    return "\n".join(blocks) or next(filter(None, named), "")


def _join_texts(thoughts: Any) -> str:
    """Join thoughts that are a text or a list of parts."""
    parts = thoughts if isinstance(thoughts, list) else [thoughts]
    texts = (part if isinstance(part, str) else _get(part, "text") or _get(part, "thinking") for part in parts)
    return "\n".join(text for text in texts if isinstance(text, str))


def _find_conclusion(thoughts: str) -> str:
    """Return the JSON value that ends a text, alone or in a fence; empty if none does."""
    if not thoughts.strip() or len(thoughts) > MAX_REPLY_LENGTH:
        return ""
    text = read_said(thoughts).text.removesuffix("```").rstrip()
    return next((text[span.start :] for span in scan(text) if span.is_read and span.end == len(text)), "")


def read_response(call: Callable[[], Response]) -> Response | ChatResponse:
    """Make a call, and return its response. One whose content is a list of parts is read too.

    Raises:
        ModelServerError: the answer is an error, though its status is 200.

    """
    try:
        return _check_response(call())
    except UNREAD as error:
        return _join_parts(find_parts(error))


async def aread_response(call: Awaitable[Response]) -> Response | ChatResponse:
    """`read_response` for a call that is awaited."""
    try:
        return _check_response(await call)
    except UNREAD as error:
        return _join_parts(find_parts(error))


def find_parts(error: Exception) -> Any:
    """Return the answer that a client failed to read, because its content is no text: a list of parts, or an object.

    LlamaIndex's OpenAI client takes a text only. Mistral's models that think send `[{"type": "thinking", …}, …]`.

    Args:
        error: the client's, one of `UNREAD`.

    Raises:
        ModelServerError: the answer is a server's error.
        Exception: the error itself, if it has another reason.

    """
    if isinstance(error, json.JSONDecodeError):
        raise ModelServerError(f"the answer is no JSON: {error.doc!r:.300}", _BROKEN) from error
    if isinstance(error, AttributeError) and error.name == "choices" and isinstance(error.obj, str | list):
        raise _find_error(error.obj) or error
    frames = reversed([frame for frame, _ in walk_tb(error.__traceback__)])
    body = next((value for frame in frames for value in frame.f_locals.values() if _is_unread(value)), None)
    if body is None:
        raise error
    if not _has_reply(body):
        raise _find_error(body) or error
    return body


def note_parts(llm: LLM, error: Exception, said: str = "") -> None:
    """Note that a model's stream can't be read, since its server streams in parts.

    Args:
        llm: the model.
        error: the client's.
        said: the words that were handed on before. Default: none.

    Raises:
        ModelServerError: there were words; or the answer is a server's error.
        Exception: the error itself, if it has another reason.

    """
    find_parts(error)
    _in_parts.add(llm.metadata.model_name)
    if said:
        problem = "the server went over to a stream in parts, which LlamaIndex's client can't read: ask again"
        raise ModelServerError(problem) from error


def streams_parts(llm: LLM) -> bool:
    """Return True if a stream of this model came in parts."""
    return llm.metadata.model_name in _in_parts


def _is_unread(value: Any) -> bool:
    """Return True for an answer of OpenAI's protocol without a reply in it, or with a reply in parts."""
    if isinstance(value, type) or not hasattr(value, "choices") or not hasattr(value, "model_extra"):
        return False
    return not _has_reply(value) or any(
        isinstance(_get(value, "choices", 0, kind, "content"), list | dict) for kind in ("message", "delta")
    )


def _has_reply(body: Any) -> bool:
    """Return True for an answer of OpenAI's protocol with a reply, a part of one, or a text."""
    return any(_get(body, "choices", 0, kind) is not None for kind in ("message", "delta", "text"))


def _join_parts(body: Any) -> ChatResponse:
    """Return the response whose reply is in parts: the texts are its words, and thoughts are thoughts.

    An object that is no part is the reply itself.
    """
    message = body.choices[0].message
    words: list[str] = []
    thoughts: list[str] = []
    content = message.content if isinstance(message.content, list) else [message.content]
    for part in content:
        if isinstance(part, dict) and "type" not in part and "text" not in part:
            words.append(json.dumps(part))
            continue
        inside = part if isinstance(part, str) else _get(part, _get(part, "type") or "text") or _get(part, "text")
        inner = inside if isinstance(inside, list) else [inside]
        texts = (entry if isinstance(entry, str) else _get(entry, "text") for entry in inner)
        kept = thoughts if _get(part, "type") in _THOUGHTS else words
        kept.extend(text for text in texts if isinstance(text, str))
    message.content, message.reasoning_content = "".join(words), "".join(thoughts)
    calls = {"tool_calls": message.tool_calls} if message.tool_calls else {}
    return ChatResponse(message=ChatMessage(message.content, role="assistant", additional_kwargs=calls), raw=body)


def _check_response(response: Response) -> Response:
    """Return a response.

    Raises:
        ModelServerError: it is a server's error.

    """
    error = _find_error(response.raw)
    if error is not None:
        raise error
    return response


def _find_error(body: Any) -> ModelServerError | None:
    """Return the error that a server writes into an answer; None if there is none."""
    body = body[0] if isinstance(body, list) and body else body
    if isinstance(body, str):
        status = _find_status(body) if body.strip() else _BROKEN
        return ModelServerError(f"the answer is no JSON: {body!r:.300}", status)
    is_error = _get(body, "object") == "error"
    error = _get(body, "error") or _get(body, "choices", 0, "error") or (body if is_error else None)
    if error is None and not _has_reply(body):
        is_answer = hasattr(body, "choices") or (_get(body, "code") and _get(body, "msg"))
        refused = _get(body, "base_resp") if _get(body, "base_resp", "status_code") else None
        error = _get(body, "detail") or _get(body, "errors", 0) or refused or (body if is_answer else None)
    if not error:
        return None
    names = ("message", "msg", "status_msg", "error_msg", "error_message", "faultstring")
    told = [error] if isinstance(error, str) else [_get(error, name) for name in names]
    message = next(filter(None, told), None) or f"the answer has no reply: {_write(error):.300}"
    of_kinds = ("code", "status", "type", "status_code", "error_code")
    kinds = [str(kind) for name in of_kinds if (kind := _get(error, name) or _get(body, name))]
    number = next((int(kind) for kind in kinds if re.fullmatch(r"[45]\d\d", kind)), None)
    status = number or _find_status(" ".join([*kinds, str(message)]))
    code = "".join(f"; {kind}" for kind in kinds if not kind.isdigit())
    return ModelServerError(f"{message} (status code: {status}{code})", status)


def find_status(error: BaseException) -> int | None:
    """Return the HTTP status of a client's error, or the one that says what a server wrote into a stream; else None."""
    status: int | None = getattr(error, "status_code", None)
    if status is None and (body := getattr(error, "body", None)):
        found = _find_error({"error": body})
        status = None if found is None else found.status_code
    return status


def _write(body: Any) -> str:
    """Write an answer's own fields for a message."""
    fields = body.model_dump(exclude_none=True) if isinstance(body, BaseModel) else body
    return json.dumps(fields, default=str, ensure_ascii=False)


def _find_status(words: str) -> int | None:
    """Return the status that the words of an error mean; None: none is known."""
    return next((status for pattern, status in _STATUS_OF_WORDS if pattern.search(words)), None)


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


def find_finish(raw: Any) -> str:
    """Return why a response ended, as OpenAI, Anthropic, Ollama, Google and others name it, in lower case."""
    places = (
        *(("choices", 0, "finish_reason"), ("stop_reason",), ("done_reason",), ("finish_reason",), ("stopReason",)),
        *(("candidates", 0, "finish_reason"), ("incomplete_details", "reason"), ("details", "finish_reason")),
    )
    finish = next((found for place in places if (found := _get(raw, *place))), "")
    return str(getattr(finish, "name", finish)).lower()


def _find_ending(response: ChatResponse | CompletionResponse) -> tuple[str, str]:
    """Return the finish reason and the refusal of a response."""
    return find_finish(response.raw), str(_get(response.raw, "choices", 0, "message", "refusal") or "")


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


_LIMITS = ("max_tokens", "max_completion_tokens", "max_new_tokens", "max_output_tokens", "num_predict")
_MORE, _LEAST = 4, 2_048  # times as many tokens, and of at least so many


def give_room(llm: Any, reply: Reply) -> Any:
    """Return the model with more room for a reply that was cut off in its thoughts; None if it needs or has no more."""
    if not reply.is_thought:
        return None
    changes: dict[str, Any] = {}
    for name, value in llm:
        if isinstance(value, dict) and (limits := {key: value[key] for key in _LIMITS if _is_limit(value.get(key))}):
            changes[name] = {**value, **{key: _MORE * limit for key, limit in limits.items()}}
        elif name in _LIMITS and _is_limit(value):
            changes[name] = _MORE * value
    open_ended = [name for name in _LIMITS if name in type(llm).model_fields]
    if not changes and open_ended:
        changes[open_ended[0]] = _MORE * max(reply.completion_tokens, _LEAST)
    return llm.model_copy(update=changes) if changes else None


def _is_limit(value: Any) -> bool:
    return isinstance(value, int) and value > 0
