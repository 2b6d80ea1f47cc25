"""A language model whose replies are kept on disk, so that a killed run goes on and any run can be replayed."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import LLM
from llama_index.core.utils import get_tokenizer

from harness.usage import spend

_START = b'{"key": "'


class NotRecordedError(LookupError):
    """A replay's prompt has no recorded reply."""


class Reply(TypedDict):
    """A recorded reply: a line of the file."""

    key: str
    model: str
    text: str
    finish: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float


class RecordedLLM(LLM):
    """Model that replies from a file, and asks another model for the replies that the file lacks.

    A new reply is written at once. The file is JSON Lines; a reply's key is the SHA-256 of model, messages and options.
    A line that a kill cut off is dropped when the file is next opened with a model; without one the file stays as it
    is. One process writes at a time.

    Args:
        llm: the model to ask. None: replies come from the file alone.
        path: the file; made, with its folder, if absent. None: no file, replies are kept for as long as the object.
        model: the model's name in the file. Default: that of `llm`; without `llm`, the only one in the file.
        context_window: tokens, the same with and without `llm`, so that the same prompts are written. Default 32,768.
        max_tokens: maximum tokens of a reply, instead of that of `llm`; part of the key. Default None: as `llm` has it.

    Raises:
        NotRecordedError: by a call, if there is no model and the file has no reply to the prompt.
        OSError: the file can't be written or, without a model, is not there.
        ValueError: a line of the file is no reply, or no model is named and the file has several.

    """

    _llm: LLM | None = PrivateAttr()
    _model: str = PrivateAttr()
    _path: Path | None = PrivateAttr()
    _window: int = PrivateAttr()
    _max_tokens: int | None = PrivateAttr()
    _replies: dict[str, Reply] = PrivateAttr()
    _lock: threading.Lock = PrivateAttr(default_factory=threading.Lock)

    def __init__(
        self,
        llm: LLM | None,
        path: Path | None,
        model: str = "",
        *,
        context_window: int = 32_768,
        max_tokens: int | None = None,
    ) -> None:
        super().__init__()
        if llm is not None and max_tokens is not None and getattr(llm, "max_tokens", None) is not None:
            llm = llm.model_copy(update={"max_tokens": max_tokens})  # its own would overrule the call's
        self._llm = llm
        self._path = path
        self._window, self._max_tokens = context_window, max_tokens
        self._replies = _read_replies(path, is_kept=llm is None) if path is not None else {}
        if not model and llm is not None:
            model = llm.metadata.model_name
        elif not model:
            models = {reply["model"] for reply in self._replies.values()}
            if len(models) != 1:
                raise ValueError(f"{path} holds replies of {len(models)} models: name the one to replay")
            (model,) = models
        self._model = model

    @property
    def metadata(self) -> LLMMetadata:
        """The model's description, the same for asking and replaying; no function calling, since replies are text."""
        return LLMMetadata(model_name=self._model, context_window=self._window, is_chat_model=True)

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Return the recorded reply, or ask for a new one."""
        kwargs = self._limit_tokens(kwargs)
        key, start = self._make_key(messages, kwargs), time.perf_counter()
        reply = self._replies.get(key)
        if reply is None:
            reply = self._record(key, messages, self._require_llm(key).chat(messages, **kwargs), start)
        return _spend_reply(reply, start)

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Return the recorded reply, or ask for a new one."""
        kwargs = self._limit_tokens(kwargs)
        key, start = self._make_key(messages, kwargs), time.perf_counter()
        reply = self._replies.get(key)
        if reply is None:
            reply = self._record(key, messages, await self._require_llm(key).achat(messages, **kwargs), start)
        return _spend_reply(reply, start)

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Return the reply to a conversation of this one message."""
        return _to_completion(self.chat([ChatMessage(role=MessageRole.USER, content=prompt)], **kwargs))

    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Return the reply to a conversation of this one message."""
        return _to_completion(await self.achat([ChatMessage(role=MessageRole.USER, content=prompt)], **kwargs))

    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """Yield the reply in one piece."""
        yield self.chat(messages, **kwargs)

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        """Return a generator of the reply in one piece."""

        async def generate() -> ChatResponseAsyncGen:
            yield await self.achat(messages, **kwargs)

        return generate()

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """Yield the reply in one piece."""
        yield self.complete(prompt, **kwargs)

    async def astream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseAsyncGen:
        """Return a generator of the reply in one piece."""

        async def generate() -> CompletionResponseAsyncGen:
            yield await self.acomplete(prompt, **kwargs)

        return generate()

    def _limit_tokens(self, options: dict[str, Any]) -> dict[str, Any]:
        return options if self._max_tokens is None else {"max_tokens": self._max_tokens, **options}

    def _make_key(self, messages: Sequence[ChatMessage], options: dict[str, Any]) -> str:
        call = [self._model, [[message.role.value, message.content] for message in messages], sorted(options.items())]
        return hashlib.sha256(json.dumps(call, ensure_ascii=False).encode()).hexdigest()

    def _require_llm(self, key: str) -> LLM:
        if self._llm is None:
            raise NotRecordedError(
                f"no reply of {self._model or 'the model'} is recorded for {key[:12]}…: compare --max-steps, --sample, "
                "--max-tokens, --embed and OPENAI_MODEL with those of the run that was recorded"
            )
        return self._llm

    def _record(self, key: str, messages: Sequence[ChatMessage], response: ChatResponse, start: float) -> Reply:
        text, usage = response.message.content or "", response.additional_kwargs
        reply = Reply(
            key=key,
            model=self._model,
            text=text,
            finish=finish_reason(response),
            prompt_tokens=usage.get("prompt_tokens")
            or sum(_count_tokens(message.content or "") for message in messages),
            completion_tokens=usage.get("completion_tokens") or _count_tokens(text),
            seconds=round(time.perf_counter() - start, 3),
        )
        with self._lock:
            if self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(reply, ensure_ascii=False) + "\n")
            self._replies[key] = reply
        return reply


def _read_replies(path: Path, is_kept: bool) -> dict[str, Reply]:
    """Return the replies of a file, by key. Unless the file is kept as it is, make it ready for new lines."""
    if not is_kept:  # fails before a call is paid for whose reply can't be written
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
    content = path.read_bytes()
    *lines, last = content.split(b"\n")
    parsed = (_parse_line(path, number, line) for number, line in enumerate(lines, start=1))
    replies = {reply["key"]: reply for reply in parsed}
    if not last:
        return replies
    try:
        reply = _parse_line(path, len(lines) + 1, last)
        replies[reply["key"]] = reply
        ending = b"\n"
    except ValueError:
        if not last.startswith(_START[: len(last)]):
            raise
        ending = b""
    if not is_kept and ending:
        with path.open("ab") as file:
            file.write(ending)
    elif not is_kept:
        os.truncate(path, len(content) - len(last))
    return replies


def _parse_line(path: Path, number: int, line: bytes) -> Reply:
    try:
        reply: Reply = json.loads(line)
        if missing := Reply.__required_keys__ - reply.keys():
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{path}:{number} is no recorded reply: {error}") from error
    return reply


def finish_reason(response: ChatResponse) -> str:
    """Return the reason for which the model stopped, in OpenAI's words; empty if it gives none."""
    choices = getattr(response.raw, "choices", None) or (
        response.raw.get("choices") if isinstance(response.raw, dict) else None
    )
    first = choices[0] if choices else {}
    return str((first.get("finish_reason") if isinstance(first, dict) else first.finish_reason) or "")


def _count_tokens(text: str) -> int:
    return len(get_tokenizer()(text))


def _spend_reply(reply: Reply, start: float) -> ChatResponse:
    """Add a reply's cost to the open account, and return the reply as a response."""
    tokens = {name: reply[name] for name in ("prompt_tokens", "completion_tokens")}
    spend(calls=1, llm_seconds=reply["seconds"], waited_seconds=time.perf_counter() - start, **tokens)
    message = ChatMessage(role=MessageRole.ASSISTANT, content=reply["text"])
    return ChatResponse(
        message=message, additional_kwargs=tokens, raw={"choices": [{"finish_reason": reply["finish"]}]}
    )


def _to_completion(response: ChatResponse) -> CompletionResponse:
    return CompletionResponse(
        text=response.message.content or "", additional_kwargs=response.additional_kwargs, raw=response.raw
    )
