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
from spent import spend


class NotRecordedError(LookupError):
    """A replay asked for something that was never asked before."""


class Reply(TypedDict):
    """A line of the file."""

    key: str
    model: str
    text: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float


class RecordedLLM(LLM):
    """Replies from a file; what is not there is asked of the model, and written down at once.

    The file is JSON Lines; a reply's key is the SHA-256 of model, messages and options. A line that a kill cut off is
    dropped when the file is next opened. One process writes at a time.

    Args:
        llm: the model to ask; None: replies from the file alone.
        path: the file; made if absent.
        model: its name in the file. Default: the name that `llm` gives; without `llm`, the only one in the file.

    Raises:
        NotRecordedError: by a call, without a model, that the file has no reply to.
        ValueError: a line of the file is no reply, or no model is named and the file has several.

    """

    _llm: LLM | None = PrivateAttr()
    _model: str = PrivateAttr()
    _path: Path = PrivateAttr()
    _replies: dict[str, Reply] = PrivateAttr()
    _lock: threading.Lock = PrivateAttr(default_factory=threading.Lock)

    def __init__(self, llm: LLM | None, path: Path, model: str = "") -> None:
        super().__init__()
        self._llm = llm
        self._path = path
        self._replies = _read(path)
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
        """The model's, without function calling: what is recorded is text."""
        known = self._llm.metadata if self._llm is not None else LLMMetadata(model_name=self._model)
        return known.model_copy(update={"is_chat_model": True, "is_function_calling_model": False})

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The recorded reply, or a new one."""
        key, start = self._key(messages, kwargs), time.perf_counter()
        reply = self._replies.get(key)
        if reply is None:
            reply = self._record(key, messages, self._asked(key).chat(messages, **kwargs), start)
        return _accounted(reply, start)

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The recorded reply, or a new one."""
        key, start = self._key(messages, kwargs), time.perf_counter()
        reply = self._replies.get(key)
        if reply is None:
            reply = self._record(key, messages, await self._asked(key).achat(messages, **kwargs), start)
        return _accounted(reply, start)

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The reply to a conversation of this one message."""
        return _text_of(self.chat([ChatMessage(role=MessageRole.USER, content=prompt)], **kwargs))

    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The reply to a conversation of this one message."""
        return _text_of(await self.achat([ChatMessage(role=MessageRole.USER, content=prompt)], **kwargs))

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

    def _key(self, messages: Sequence[ChatMessage], options: dict[str, Any]) -> str:
        asked = [self._model, [[message.role.value, message.content] for message in messages], sorted(options.items())]
        return hashlib.sha256(json.dumps(asked, ensure_ascii=False).encode()).hexdigest()

    def _asked(self, key: str) -> LLM:
        if self._llm is None:
            raise NotRecordedError(f"no reply of {self._model or 'the model'} is recorded for {key[:12]}…")
        return self._llm

    def _record(self, key: str, messages: Sequence[ChatMessage], response: ChatResponse, start: float) -> Reply:
        text, usage = response.message.content or "", response.additional_kwargs
        reply = Reply(
            key=key,
            model=self._model,
            text=text,
            prompt_tokens=usage.get("prompt_tokens") or sum(_count(each.content or "") for each in messages),
            completion_tokens=usage.get("completion_tokens") or _count(text),
            seconds=round(time.perf_counter() - start, 3),
        )
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(reply, ensure_ascii=False) + "\n")
            self._replies[key] = reply
        return reply


def _read(path: Path) -> dict[str, Reply]:
    if not path.exists():
        return {}
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        os.truncate(path, len(whole))
    replies: dict[str, Reply] = {}
    for number, line in enumerate(whole.decode("utf-8").split("\n")[:-1], start=1):
        try:
            reply: Reply = json.loads(line)
            replies[reply["key"]] = reply
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}:{number} is no recorded reply: {error!r}") from error
    return replies


def _count(text: str) -> int:
    return len(get_tokenizer()(text))


def _accounted(reply: Reply, start: float) -> ChatResponse:
    tokens = {name: reply[name] for name in ("prompt_tokens", "completion_tokens")}
    spend(calls=1, llm_seconds=reply["seconds"], waited_seconds=time.perf_counter() - start, **tokens)
    message = ChatMessage(role=MessageRole.ASSISTANT, content=reply["text"])
    return ChatResponse(message=message, additional_kwargs=tokens)


def _text_of(response: ChatResponse) -> CompletionResponse:
    return CompletionResponse(
        text=response.message.content or "", additional_kwargs=response.additional_kwargs, raw=response.raw
    )
