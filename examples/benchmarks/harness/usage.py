"""The cost of a question: calls and tokens of the language model, and seconds of models and base retrieval.

    with count_spending() as spent:
        retriever.retrieve(question)
    print(spent.calls, spent.prompt_tokens)

The account belongs to the context (thread or task) that opened it, so that questions can be asked side by side.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.embedding import EmbeddingEndEvent, EmbeddingStartEvent
from llama_index.core.schema import NodeWithScore, QueryBundle


@dataclass
class Spent:
    """The account of a question.

    Attributes:
        calls: of the language model.
        prompt_tokens: as the model's client counts them, else by LlamaIndex's tokenizer.
        completion_tokens: likewise.
        llm_seconds: seconds that the model took when it first gave these replies.
        waited_seconds: seconds of waiting for replies in this run; next to nothing for recorded ones.
        base_seconds: seconds of base retrieval, embedding left out.
        embedding_seconds: seconds of the embedding model.

    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    llm_seconds: float = 0.0
    waited_seconds: float = 0.0
    base_seconds: float = 0.0
    embedding_seconds: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(**{name: amount + getattr(other, name) for name, amount in asdict(self).items()})

    def __sub__(self, other: Spent) -> Spent:
        return Spent(**{name: amount - getattr(other, name) for name, amount in asdict(self).items()})


_ACCOUNT: ContextVar[Spent | None] = ContextVar("spent", default=None)


@contextlib.contextmanager
def count_spending() -> Iterator[Spent]:
    """Open an account, to which `spend` adds in this context."""
    spent = Spent()
    token = _ACCOUNT.set(spent)
    try:
        yield spent
    finally:
        _ACCOUNT.reset(token)


def spend(**amounts: float) -> None:
    """Add these amounts to the open account, if there is one."""
    spent = _ACCOUNT.get()
    if spent is not None:
        for name, amount in amounts.items():
            setattr(spent, name, getattr(spent, name) + amount)


class TimedRetriever(BaseRetriever):
    """Retriever that adds the seconds of a base retriever to the open account."""

    def __init__(self, base: BaseRetriever) -> None:
        super().__init__()
        self._base = base

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        account = _ACCOUNT.get() or Spent()
        start, embedded = time.perf_counter(), account.embedding_seconds
        try:
            return list(self._base.retrieve(query_bundle))
        finally:
            spend(base_seconds=time.perf_counter() - start - (account.embedding_seconds - embedded))


class EmbeddingClock(BaseEventHandler):
    """Event handler that adds the seconds of embedding models to the open account, by LlamaIndex's own events."""

    _started: Any = PrivateAttr(default_factory=threading.local)

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        """Start the clock when a batch starts, and add its seconds when it ends."""
        if isinstance(event, EmbeddingStartEvent):
            self._started.at = time.perf_counter()
        elif isinstance(event, EmbeddingEndEvent):
            spend(embedding_seconds=time.perf_counter() - self._started.at)
