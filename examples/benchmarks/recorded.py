"""A language model whose replies are kept on disk: a run that was killed goes on, and others replay it for nothing."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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

_TABLE = """CREATE TABLE IF NOT EXISTS replies
    (key TEXT PRIMARY KEY, model TEXT, reply TEXT, prompt_tokens INTEGER, completion_tokens INTEGER)"""


class NotRecordedError(LookupError):
    """A replay asked for something that was never asked before."""


class RecordedLLM(LLM):
    """Replies from a file; what is not there is asked of the model, and written down at once.

    Args:
        llm: the model to ask; None: replies from the file alone.
        path: SQLite file.
        model: its name in the file. Default: the name that `llm` gives.

    Raises:
        NotRecordedError: by a call, without a model, that the file has no reply to.

    """

    _llm: LLM | None = PrivateAttr()
    _model: str = PrivateAttr()
    _file: sqlite3.Connection = PrivateAttr()
    _lock: threading.Lock = PrivateAttr(default_factory=threading.Lock)

    def __init__(self, llm: LLM | None, path: Path, model: str = "") -> None:
        super().__init__()
        self._llm = llm
        self._model = model or (llm.metadata.model_name if llm is not None else "")
        self._file = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._file.execute(_TABLE)

    @property
    def metadata(self) -> LLMMetadata:
        """The model's, without function calling: what is recorded is text."""
        known = self._llm.metadata if self._llm is not None else LLMMetadata(model_name=self._model)
        return known.model_copy(update={"is_chat_model": True, "is_function_calling_model": False})

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The recorded reply, or a new one."""
        key = self._key(messages, kwargs)
        return self._recorded(key) or self._record(key, self._asked(key).chat(messages, **kwargs))

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The recorded reply, or a new one."""
        key = self._key(messages, kwargs)
        return self._recorded(key) or self._record(key, await self._asked(key).achat(messages, **kwargs))

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

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _key(self, messages: Sequence[ChatMessage], options: dict[str, Any]) -> str:
        asked = [self._model, [[message.role.value, message.content] for message in messages], sorted(options.items())]
        return hashlib.sha256(json.dumps(asked, ensure_ascii=False).encode()).hexdigest()

    def _asked(self, key: str) -> LLM:
        if self._llm is None:
            raise NotRecordedError(f"no reply of {self._model or 'the model'} is recorded for {key[:12]}…")
        return self._llm

    def _recorded(self, key: str) -> ChatResponse | None:
        with self._lock:
            row = self._file.execute(
                "SELECT reply, prompt_tokens, completion_tokens FROM replies WHERE key = ?", [key]
            ).fetchone()
        return _response(*row) if row else None

    def _record(self, key: str, response: ChatResponse) -> ChatResponse:
        usage = response.additional_kwargs
        row = (response.message.content or "", usage.get("prompt_tokens"), usage.get("completion_tokens"))
        with self._lock:
            self._file.execute("INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?, ?)", [key, self._model, *row])
        return _response(*row)


def _response(text: str, prompt_tokens: int | None, completion_tokens: int | None) -> ChatResponse:
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    message = ChatMessage(role=MessageRole.ASSISTANT, content=text)
    return ChatResponse(message=message, additional_kwargs={} if prompt_tokens is None else usage)


def _text_of(response: ChatResponse) -> CompletionResponse:
    return CompletionResponse(
        text=response.message.content or "", additional_kwargs=response.additional_kwargs, raw=response.raw
    )
