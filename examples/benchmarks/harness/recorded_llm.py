"""A language model whose replies are kept on disk: a run that was killed goes on, and others replay it for nothing."""

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
    """A replay asked for something that was never asked before."""


class Reply(TypedDict):
    """A line of the file."""

    key: str
    model: str
    text: str
    finish: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float


class RecordedLLM(LLM):
    """Replies from a file; what is not there is asked of the model, and written down at once.

    The file is JSON Lines; a reply's key is the SHA-256 of model, messages and options. A line that a kill cut off is
    dropped when the file is next opened with a model; without one it stays as it is. One process writes at a time.

    Args:
        llm: the model to ask; None: replies from the file alone.
        path: the file; made, with its folder, if absent. None: no file, replies are kept for as long as the object.
        model: its name in the file. Default: the name that `llm` gives; without `llm`, the only one in the file.
        context_window: tokens, the same with and without `llm`, so that the same prompts are written. Default 32,768.
        max_tokens: that a reply may have, whatever `llm` has; part of the key. Default None: as `llm` has it.

    Raises:
        NotRecordedError: by a call, without a model, that the file has no reply to.
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
        """The same for asking and for replaying; without function calling: what is recorded is text."""
        return LLMMetadata(model_name=self._model, context_window=self._window, is_chat_model=True)

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The recorded reply, or a new one."""
        kwargs = self._limit_tokens(kwargs)
        key, start = self._make_key(messages, kwargs), time.perf_counter()
        reply = self._replies.get(key)
        if reply is None:
            reply = self._record(key, messages, self._require_llm(key).chat(messages, **kwargs), start)
        return _spend_reply(reply, start)

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The recorded reply, or a new one."""
        kwargs = self._limit_tokens(kwargs)
        key, start = self._make_key(messages, kwargs), time.perf_counter()
        reply = self._replies.get(key)
        if reply is None:
            reply = self._record(key, messages, await self._require_llm(key).achat(messages, **kwargs), start)
        return _spend_reply(reply, start)

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The reply to a conversation of this one message."""
        return _to_completion(self.chat([ChatMessage(role=MessageRole.USER, content=prompt)], **kwargs))

    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The reply to a conversation of this one message."""
        return _to_completion(await self.achat([ChatMessage(role=MessageRole.USER, content=prompt)], **kwargs))

    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """The reply in one piece."""
        yield self.chat(messages, **kwargs)

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        """The reply in one piece."""

        async def pieces() -> ChatResponseAsyncGen:
            yield await self.achat(messages, **kwargs)

        return pieces()

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """The reply in one piece."""
        yield self.complete(prompt, **kwargs)

    async def astream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseAsyncGen:
        """The reply in one piece."""

        async def pieces() -> CompletionResponseAsyncGen:
            yield await self.acomplete(prompt, **kwargs)

        return pieces()

    def _limit_tokens(self, options: dict[str, Any]) -> dict[str, Any]:
        return options if self._max_tokens is None else {"max_tokens": self._max_tokens, **options}

    def _make_key(self, messages: Sequence[ChatMessage], options: dict[str, Any]) -> str:
        asked = [self._model, [[message.role.value, message.content] for message in messages], sorted(options.items())]
        return hashlib.sha256(json.dumps(asked, ensure_ascii=False).encode()).hexdigest()

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
            prompt_tokens=usage.get("prompt_tokens") or sum(_count_tokens(each.content or "") for each in messages),
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
    """The replies; unless the file is kept as it is, it can be added to afterwards."""
    if not is_kept:  # before a call is paid whose reply can't be written
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
    content = path.read_bytes()
    *lines, last = content.split(b"\n")
    replies = {reply["key"]: reply for reply in (_parse_line(path, *each) for each in enumerate(lines, start=1))}
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
    """Why the model stopped, as OpenAI's clients say it; empty if it is not said."""
    choices = getattr(response.raw, "choices", None) or (
        response.raw.get("choices") if isinstance(response.raw, dict) else None
    )
    first = choices[0] if choices else {}
    return str((first.get("finish_reason") if isinstance(first, dict) else first.finish_reason) or "")


def _count_tokens(text: str) -> int:
    return len(get_tokenizer()(text))


def _spend_reply(reply: Reply, start: float) -> ChatResponse:
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
