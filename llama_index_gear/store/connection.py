"""How the requests of a store's flows reach a Qdrant client and an embedding model, in both modes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Hashable
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from functools import partial
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.settings import Settings
from qdrant_client import AsyncQdrantClient, QdrantClient
from qdrant_client.local.qdrant_local import QdrantLocal

from llama_index_gear.errors import ArgumentError, StoreError
from llama_index_gear.flow import Answer, Handler, Request
from llama_index_gear.fork_safety import free_in_child
from llama_index_gear.requests import EmbedQuery, EmbedTexts, QdrantCall, RunFunction
from llama_index_gear.store.edge.client import EdgeClient, check_process
from llama_index_gear.store.locks import AcquirePassages

_READING = frozenset({"collection_exists", "get_collection", "count", "retrieve", "scroll", "query_batch_points"})


class Connection:
    """Answers `QdrantCall`, `EmbedQuery`, `EmbedTexts`, `RunFunction` and `AcquirePassages`.

    Nothing is opened before the first call.

    Args:
        client: a `QdrantClient`, or the embedded engine.
        aclient: the async client of the same server; without it async calls run `client` in worker threads.
        embed_model: embeds queries and texts. Default: LlamaIndex's `Settings.embed_model`, looked up when needed.

    Raises:
        ArgumentError: there is no client at all.

    """

    def __init__(
        self,
        client: QdrantClient | EdgeClient | None,
        aclient: AsyncQdrantClient | None,
        embed_model: BaseEmbedding | None,
    ) -> None:
        if client is None and aclient is None:
            raise ArgumentError("pass a Qdrant client, or make an embedded store with from_path(folder)")
        self.sync: Any = client
        self.native = aclient
        self._embed_model = embed_model
        is_local = isinstance(client, QdrantClient) and isinstance(client._client, QdrantLocal)  # it knows no threads
        self._turn: AbstractContextManager[Any] = free_in_child(threading.RLock()) if is_local else nullcontext()

    @property
    def embed_model(self) -> BaseEmbedding:
        """The embedding model."""
        return Settings.embed_model if self._embed_model is None else self._embed_model

    @property
    def client(self) -> Any:
        """The client that there is; the sync one if there are two."""
        return self.sync if self.sync is not None else self.native

    @property
    def engine(self) -> Hashable:
        """What tells this engine from others: a server's address, as the client was given it; else the client."""
        options = self.client.init_options if isinstance(self.client, QdrantClient | AsyncQdrantClient) else {}
        location, url, host, port, prefix = (
            options.get(name) for name in ("location", "url", "host", "port", "prefix")
        )
        address = (location or url, host, port, prefix)
        return address if any(address[:2]) and location != ":memory:" else id(self.client)

    def answer(self, request: Request[Answer]) -> Answer:
        """Answer a request."""
        return self._handler(request).answer()  # type: ignore[no-any-return]

    async def aanswer(self, request: Request[Answer]) -> Answer:
        """`answer`, without blocking the event loop."""
        return await self._handler(request).aanswer()  # type: ignore[no-any-return]

    def _handler(self, request: Request[Any]) -> Handler:
        self._check_process()
        match request:
            case QdrantCall():
                return Handler(partial(self._call, request), partial(self._acall, request))
            case EmbedQuery():
                model, text = self.embed_model, request.text
                return Handler(partial(model.get_query_embedding, text), partial(model.aget_query_embedding, text))
            case EmbedTexts():
                model, texts = self.embed_model, list(request.texts)
                return Handler(
                    partial(model.get_text_embedding_batch, texts), partial(model.aget_text_embedding_batch, texts)
                )
            case RunFunction():
                return Handler(request.function, partial(asyncio.to_thread, request.function))
            case AcquirePassages():
                return Handler(request.claim.take, request.claim.atake)
        raise StoreError(f"a store's engine has no answer to {type(request).__name__}")

    def close(self) -> None:
        """Write out and release the embedded engine; a server's client is closed."""
        if self.sync is not None:
            self.sync.close()

    async def aclose(self) -> None:
        """`close`, and the async client besides."""
        if self.native is not None:
            await self.native.close()
        self.close()

    def _check_process(self) -> None:
        """Refuse what a parent process has open before waiting for anything that a thread of the parent's may hold."""
        if isinstance(self.sync, EdgeClient):
            check_process(self.sync)

    def _call(self, call: QdrantCall) -> Any:
        if self.sync is None:
            raise StoreError("there is only an async client: use the async methods, or pass `client` too")
        with self._turn:
            return getattr(self.sync, call.method)(**call.arguments)

    async def _acall(self, call: QdrantCall) -> Any:
        """`_call`, without blocking the event loop. Who is cancelled waits for a write that is under way.

        Otherwise it might land after the next one of the same passages, whose turn it then is.
        """
        answer: Awaitable[Any]
        if self.native is not None:
            answer = getattr(self.native, call.method)(**call.arguments)
        else:  # not by to_thread: the end of an event loop cancels its task, and the thread goes on
            work = partial(copy_context().run, self._call, call)
            answer = asyncio.get_running_loop().run_in_executor(None, work)
        return await (answer if call.method in _READING else _to_its_end(answer))


async def _to_its_end(work: Awaitable[Any]) -> Any:
    """The work's result; whoever is cancelled meanwhile, however often, ends when the work has."""
    future = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from (None if future.cancelled() else future.exception())
    return future.result()
