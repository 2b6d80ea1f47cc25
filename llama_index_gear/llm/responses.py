"""Reads a client's response: its words, the arguments of its function calls, its ending, its tokens, its error."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from traceback import walk_tb
from typing import Any, TypeVar

from llama_index.core.base.llms.types import ChatResponse, CompletionResponse
from llama_index.core.utils import get_tokenizer

from llama_index_gear.errors import ModelServerError
from llama_index_gear.llm.json_scan import scan
from llama_index_gear.llm.replies import MAX_REPLY_LENGTH, Said, read_said
from llama_index_gear.requests import Reply

Response = TypeVar("Response", bound=ChatResponse | CompletionResponse)

_MAX_COUNTED_LENGTH = 500_000  # characters
_CUT_OFF = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
_REFUSED = frozenset({"content_filter", "refusal", "safety"})
_STATUS_OF_WORDS = (
    (re.compile(r"rate.?limit|too many requests", re.IGNORECASE), 429),
    (re.compile(r"overloaded|at capacity|capacity temporarily exceeded", re.IGNORECASE), 529),
    (re.compile(r"unavailable|try again later", re.IGNORECASE), 503),
    (re.compile(r"timed? ?out", re.IGNORECASE), 504),
    (re.compile(r"internal|server.?error", re.IGNORECASE), 500),
)

_unopened: set[str] = set()
"""Names of models that closed thoughts which no mark had opened."""


def thinks_unopened(model_name: str) -> bool:
    """Return True if a reply of this model had thoughts that no mark opens."""
    return model_name in _unopened


def build_reply(response: ChatResponse | CompletionResponse, prompt: str, text: str, model_name: str) -> Reply:
    """Return the reply that a response holds.

    JSON that a server puts among the thoughts is the reply, if there is no other and it ends them.

    Args:
        response: of the client.
        prompt: as text, for clients that count no tokens.
        text: the response's words, or the arguments of its function calls.
        model_name: of the model.

    """
    sent, received = _count_tokens(response, prompt, text)
    finish, refusal = _find_ending(response)
    said = read_said(text) if len(text) <= MAX_REPLY_LENGTH else Said(text)
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
    """Return a response's words, thoughts in them included."""
    return response.text if isinstance(response, CompletionResponse) else response.message.content or ""


def find_thoughts(response: ChatResponse | CompletionResponse) -> str:
    """Return the thoughts that a server sends beside the words."""
    message = getattr(response, "message", None)
    blocks = [block.content or "" for block in getattr(message, "blocks", ()) if block.block_type == "thinking"]
    raw = _get(response.raw, "choices", 0, "message") or _get(response.raw, "message")
    sources = (response.additional_kwargs, getattr(message, "additional_kwargs", {}), raw)
    named = (_get(source, name) for source in sources for name in ("reasoning_content", "reasoning", "thinking"))
    return "\n".join(blocks) or next((text for text in named if isinstance(text, str) and text), "")


def _find_conclusion(thoughts: str) -> str:
    """Return the JSON value that ends a text, alone or in a fence; empty if none does."""
    if not thoughts.strip() or len(thoughts) > MAX_REPLY_LENGTH:
        return ""
    text = read_said(thoughts).text.removesuffix("```").rstrip()
    return next((text[span.start :] for span in scan(text) if span.is_read and span.end == len(text)), "")


def read_arguments(llm: Any, response: ChatResponse) -> str:
    """Return the arguments of all function calls as one JSON object, or the reply's text if it calls none.

    Lists of the same name are joined. JSON that small models write into a text, `"triples": "[{…}]"`, is read.
    Arguments that the client can't read are given as the text that they are. Never raises: the reply has its cost.
    """
    try:
        calls = llm.get_tool_calls_from_response(response, error_on_no_tool_call=False)
    except Exception as error:  # noqa: BLE001 - any client's; the parser's error quotes it
        return "\n".join(_list_written_arguments(response)) or f"{type(error).__name__}: {error}"
    if not calls:
        return read_text(response)
    arguments: dict[str, Any] = {}
    rest: list[str] = []
    written = _list_written_arguments(response)
    for number, call in enumerate(calls):
        given = call.tool_kwargs or _decode_twice(written[number] if number < len(written) else "")
        if not isinstance(given, dict):
            rest.append(str(given))
            continue
        for name, text in given.items():
            value = _decode_json(text)
            are_lists = isinstance(value, list) and isinstance(arguments.get(name), list)
            arguments[name] = [*arguments[name], *value] if are_lists else arguments.get(name, value)
    return "\n".join([*([json.dumps(arguments)] if arguments or not any(rest) else []), *rest])


def _list_written_arguments(response: ChatResponse) -> list[str]:
    """Return the arguments of the function calls, as the model wrote them."""
    blocks = [block for block in response.message.blocks if block.block_type == "tool_call"]
    older = response.message.additional_kwargs.get("tool_calls") or []
    written = [_get(block, "tool_kwargs") for block in blocks] or [
        _get(call, "function", "arguments") for call in older
    ]
    return [text if isinstance(text, str) else "" for text in written]


def _decode_twice(text: str) -> Any:
    """Return the object that a text holds as JSON, if need be of a JSON text; another text stays."""
    value: Any = text
    for _ in range(3):
        with suppress(ValueError, TypeError, RecursionError):
            value = json.loads(value)
    return value if isinstance(value, dict | str) else text


def _decode_json(value: Any) -> Any:
    """Return the list or object that a text holds as JSON; in a list, of each text in it. Other values stay."""
    if isinstance(value, list):
        return [_decode_json(entry) if isinstance(entry, str) else entry for entry in value]
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        with suppress(ValueError, RecursionError):  # a name may begin so too
            return json.loads(value)
    return value


@contextmanager
def served_errors() -> Iterator[None]:
    """Raise the error that a server writes into an answer of status 200, in place of the client's failure to read it.

    Raises:
        ModelServerError: the server's error.

    """
    try:
        yield
    except (TypeError, IndexError, AttributeError, KeyError) as error:
        if isinstance(error, AttributeError) and error.name == "choices" and isinstance(error.obj, str):
            raise ModelServerError(f"the answer is no JSON: {error.obj!r:.300}") from error
        frames = reversed([frame for frame, _ in walk_tb(error.__traceback__)])
        bodies = [value for frame in frames for value in frame.f_locals.values() if _is_unread(value)]
        if not bodies:
            raise
        unread = ModelServerError(f"the answer has no reply: {bodies[0]!r:.300}")
        raise _find_error(bodies[0]) or unread from error


def check_response(response: Response) -> Response:
    """Return a response.

    Raises:
        ModelServerError: it is a server's error.

    """
    error = _find_error(response.raw)
    if error is not None:
        raise error
    return response


def _is_unread(value: Any) -> bool:
    """Return True for an answer of OpenAI's protocol without a reply in it."""
    return (
        not isinstance(value, type)
        and hasattr(value, "choices")
        and hasattr(value, "model_extra")
        and not value.choices
    )


def _find_error(body: Any) -> ModelServerError | None:
    """Return the error that a server writes into an answer; None if there is none."""
    is_error = _get(body, "object") == "error"
    error = _get(body, "error") or _get(body, "choices", 0, "error") or (body if is_error else None)
    if error is None and not _get(body, "choices"):
        is_code = _get(body, "code") and _get(body, "msg")
        refused = _get(body, "base_resp") if _get(body, "base_resp", "status_code") else None
        error = _get(body, "detail") or _get(body, "errors", 0) or refused or (body if is_code else None)
    if not error:
        return None
    told = [error] if isinstance(error, str) else [_get(error, name) for name in ("message", "msg", "status_msg")]
    message = next(filter(None, told), str(error))
    names = ("code", "status", "type", "status_code")
    kinds = [str(kind) for name in names if (kind := _get(error, name) or _get(body, name))]
    number = next((int(kind) for kind in kinds if re.fullmatch(r"[45]\d\d", kind)), None)
    words = " ".join([*kinds, str(message)])
    status = number or next((status for pattern, status in _STATUS_OF_WORDS if pattern.search(words)), None)
    code = "".join(f"; {kind}" for kind in kinds if not kind.isdigit())
    return ModelServerError(f"{message} (status code: {status}{code})", status)


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
