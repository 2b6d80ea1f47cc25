"""The connection of a store: it answers the flows' requests with a Qdrant client and an embedding model."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from inspect import iscoroutinefunction
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.settings import Settings
from qdrant_client import AsyncQdrantClient, QdrantClient
from qdrant_client.http import models
from qdrant_client.local.async_qdrant_local import AsyncQdrantLocal
from qdrant_client.local.qdrant_local import QdrantLocal

from llama_index_gear.errors import ArgumentError, StoreError, check_kind, check_numbers, format_value
from llama_index_gear.flow import (
    Answer_co,
    EmbedQuery,
    EmbedTexts,
    Flow,
    QdrantCall,
    Request,
    Result,
    RunFunction,
    ask_all,
    relay,
    run_coroutine,
)
from llama_index_gear.resources import BoundToProcess, ClosedByWith, free_in_child
from llama_index_gear.store.availability import Tries, arepeat, describe_address, reconnect_soon, repeat
from llama_index_gear.store.embedded.client import EdgeClient, check_process
from llama_index_gear.store.locks import AcquirePassages
from llama_index_gear.store.side_by_side import RunFlows, arun_flows, run_flows

_READ_METHODS = frozenset(
    {
        "collection_exists",
        "get_aliases",
        "get_collection",
        "count",
        "retrieve",
        "scroll",
        "query_batch_points",
        "find_incidences",
    }
)
_CLIENTS = (QdrantClient, AsyncQdrantClient)
RETRY_SECONDS = 30.0
"""Seconds for which a server that is away is waited for, by default: it may be starting anew."""
NAME_FIRST = "the name comes first, as in LlamaIndex's QdrantVectorStore: write client=… for a client"
"""The hint for those who write `GeARVectorStore(client)`."""


class Connection:
    """Answers `QdrantCall`, `EmbedQuery`, `EmbedTexts`, `RunFunction`, `AcquirePassages`, `RunFlows` and `Routed`.

    Nothing is opened before the first call.

    Args:
        owner: name of the class that has the connection, for messages.
        client: a `QdrantClient`, or the embedded engine.
        aclient: the async client of the same server; without it async calls run `client` in worker threads.
        url: a server's address; both clients are made for it.
        api_key: the server's API key.
        embed_model: the model that embeds queries and texts. Default: LlamaIndex's `Settings.embed_model`, looked up
            when needed.
        retry_seconds: how long a server that is away is waited for, in each call.
        consistency: what calls are told of replicas. Default: nothing.

    Raises:
        ArgumentError: neither a client nor a url is given, or both are, or one has the wrong type, or a number is out
            of range.

    """

    def __init__(
        self,
        owner: str,
        client: QdrantClient | EdgeClient | None,
        aclient: AsyncQdrantClient | None,
        url: str | None,
        api_key: str | None,
        embed_model: BaseEmbedding | None,
        retry_seconds: float,
        consistency: Consistency | None = None,
    ) -> None:
        check_numbers("0 or more seconds", lambda seconds: seconds >= 0, retry_seconds=retry_seconds)
        check_kind(
            BaseEmbedding,
            hint="make the model, or leave it out to have Settings.embed_model",
            optional=True,
            embed_model=embed_model,
        )
        _check_clients(owner, client, aclient, url, api_key)
        if url is not None:
            client, aclient = _make_clients(url, api_key)
        reconnect_soon(client)
        reconnect_soon(aclient)
        self._has_made_clients = url is not None
        self.sync: Any = client
        self.native = aclient
        self._embed_model = embed_model
        self._retry_seconds = retry_seconds
        self._consistency = Consistency() if consistency is None else consistency
        is_local = isinstance(client, QdrantClient) and isinstance(client._client, QdrantLocal)  # it is not thread-safe
        self._turn: AbstractContextManager[Any] = free_in_child(threading.RLock()) if is_local else nullcontext()

    @property
    def embed_model(self) -> BaseEmbedding:
        """The embedding model."""
        return Settings.embed_model if self._embed_model is None else self._embed_model

    def get_known_model(self) -> BaseEmbedding | None:
        """Return the embedding model if the store or LlamaIndex's `Settings` has one; make none."""
        return Settings._embed_model if self._embed_model is None else self._embed_model

    @property
    def client(self) -> Any:
        """The client; the sync one if there are two."""
        return self.sync if self.sync is not None else self.native

    @property
    def engine(self) -> Hashable:
        """The identity of the engine: a server's address, however the client was given it, else the client's own."""
        return self._find_address() or id(self.client)

    @property
    def place(self) -> str:
        """Where the collections are, the same in every process: a server's address, or a folder; else "memory"."""
        if isinstance(self.client, EdgeClient):
            return str(self.client.path.resolve())
        inner = getattr(self.client, "_client", None)
        if isinstance(inner, QdrantLocal | AsyncQdrantLocal) and inner.persistent:
            return str(Path(inner.location).resolve())
        return self._find_address() or "memory"

    def _find_address(self) -> str:
        """Return the server's host, port and prefix, without a key or password; "" if there is no server."""
        if not isinstance(self.client, _CLIENTS) or not self.is_server:
            return ""
        options = self.client.init_options
        url = str(options.get("location") or options.get("url") or options.get("host") or "localhost")
        parts = urlsplit(url if "//" in url else f"//{url}")
        host = (parts.hostname or "").lower()
        prefix = (parts.path or options.get("prefix") or "").strip("/")
        port = parts.port or options.get("port") or 6333
        return f"{'localhost' if _is_this_machine(host) else host}:{port}{prefix and f'/{prefix}'}"

    @property
    def is_server(self) -> bool:
        """False for the embedded engine, and for Qdrant in this process's memory."""
        inner = getattr(self.client, "_client", None) if isinstance(self.client, _CLIENTS) else None
        return not isinstance(self.client, EdgeClient) and not isinstance(inner, QdrantLocal | AsyncQdrantLocal)

    @property
    def takes_several_calls(self) -> bool:
        """True for a server. Qdrant in this process's memory, also behind a wrapper, isn't made for several threads."""
        return self.is_server and not isinstance(getattr(self.client, "_client", None), QdrantLocal | AsyncQdrantLocal)

    def route_flow(self, flow: Flow[Result]) -> Flow[Result]:
        """Run a flow whose requests this connection answers, whichever answers those of the flow around it."""
        return relay(flow, lambda batch: ask_all([Routed(request, self) for request in batch]))

    @property
    def for_writes(self) -> Connection:
        """This connection as calls that write or copy need it: it reads each list of points from one replica.

        Replicas differ in a point while it is being written. A list of points on which they must agree lacks it, and
        what a writer overlooks it leaves behind.
        """
        if self._consistency.consistency is None:
            return self
        connection = copy.copy(self)
        connection._consistency = replace(self._consistency, must_lists_agree=False)
        return connection

    def write_flow(self, flow: Flow[Result]) -> Flow[Result]:
        """Run a flow that writes or copies; see `for_writes`."""
        connection = self.for_writes
        return flow if connection is self else connection.route_flow(flow)

    def answer(self, request: Request[Any]) -> Any:
        """Answer a request.

        Raises:
            StoreError: a connection has no answer to it.

        """
        self._check_process()
        match request:
            case QdrantCall():
                return self._call(self._consistency.apply(request))
            case EmbedQuery():
                return self.embed_model.get_query_embedding(request.text)
            case EmbedTexts():
                return self.embed_model.get_text_embedding_batch(list(request.texts))
            case RunFunction():
                return request.answer()
            case AcquirePassages():
                return request.claim.acquire()
            case RunFlows():
                return run_flows(request, self.answer)
            case Routed():
                return request.connection.answer(request.request)
        raise _make_error(request)

    async def aanswer(self, request: Request[Any]) -> Any:
        """`answer`, without blocking the event loop."""
        self._check_process()
        match request:
            case QdrantCall():
                return await self._acall(self._consistency.apply(request))
            case EmbedQuery():
                return await self.embed_model.aget_query_embedding(request.text)
            case EmbedTexts():
                return await self.embed_model.aget_text_embedding_batch(list(request.texts))
            case RunFunction():
                return await request.aanswer()
            case AcquirePassages():
                return await request.claim.aacquire()
            case RunFlows():
                return await arun_flows(request, self.aanswer)
            case Routed():
                return await request.connection.aanswer(request.request)
        raise _make_error(request)

    def close(self) -> None:
        """Write out and release the embedded engine; close a server's client, or both if they were made here."""
        if self.sync is not None:
            self.sync.close()
        if self._has_made_clients and self.native is not None:
            run_coroutine(self.native.close())

    async def aclose(self) -> None:
        """Do the same as `close`, and close the async client."""
        if self.native is not None:
            await self.native.close()
        if isinstance(self.sync, EdgeClient):
            await asyncio.to_thread(self.sync.close)  # it may pack what was written
        elif self.sync is not None:
            self.sync.close()

    def _check_process(self) -> None:
        """Refuse an engine that a parent process has open.

        This comes before waiting for any lock, which a thread of the parent may have held at the fork.
        """
        if isinstance(self.sync, EdgeClient):
            check_process(self.sync)

    def _call(self, call: QdrantCall) -> Any:
        """Call the sync client, again and again while its server is away."""
        if self.sync is None:
            raise StoreError("there is only an async client: use the async methods, or pass `client` too")
        return repeat(partial(self._call_once, call), self._make_tries(call, self.sync))

    def _call_once(self, call: QdrantCall) -> Any:
        with self._turn:
            return getattr(self.sync, call.method)(**call.arguments)

    async def _acall(self, call: QdrantCall) -> Any:
        """`_call`, without blocking the event loop.

        A caller that is cancelled waits for a write that is under way: it could otherwise land after the next write of
        the same passages, which then has their lock. It does not wait for a server that is away.
        """
        client = self.sync if self.native is None else self.native
        return await arepeat(partial(self._acall_once, call), self._make_tries(call, client))

    async def _acall_once(self, call: QdrantCall) -> Any:
        answer: Awaitable[Any]
        if self.native is not None:
            answer = getattr(self.native, call.method)(**call.arguments)
        else:  # not to_thread: when the event loop ends, its task is cancelled, and the thread goes on
            work = partial(copy_context().run, self._call_once, call)
            answer = asyncio.get_running_loop().run_in_executor(None, work)
        return await (answer if call.method in _READ_METHODS else _await_to_end(answer))

    def _make_tries(self, call: QdrantCall, client: Any) -> Tries:
        return Tries(call, partial(describe_address, client), self._retry_seconds)


@dataclass(frozen=True)
class Routed(Request[Answer_co]):
    """A request that another connection answers than the one that drives its flow. Answer: the request's."""

    request: Request[Answer_co]
    connection: Connection


def _make_error(request: Request[Any]) -> StoreError:
    return StoreError(f"a store's engine has no answer to {type(request).__name__}")


class Connected(ClosedByWith, BoundToProcess):
    """Base class of stores: a connection, to a server or to the embedded engine in a folder, answers their flows."""

    _connection: Connection

    @classmethod
    def from_path(cls, path: str | Path, **arguments: Any) -> Self:
        """Make an embedded store in the folder `path`: Qdrant Edge in this process, one process at a time.

        Close it after use, or open it by `with`. It also closes when the last
        reference to it goes. The folder must be writable, even for reading. Its disk needs 128 MiB of free space,
        besides what is written. Files that the engine did not make are never removed.

        Args:
            path: the folder; made when something is written first.
            **arguments: the constructor's arguments, without the clients.

        Raises:
            ArgumentError: the arguments name a server or a client.
            StoreError: (from any call) the folder holds something else in a collection's place, or a damaged
                collection; it was moved or deleted while the store was open; it is read-only; or its disk has too
                little space.
            StoreLockedError: (from any call) another process has the store open, or had it open when it forked this
                process.

        """
        if extra := [name for name in ("client", "aclient", "url", "api_key") if name in arguments]:
            raise ArgumentError(f"from_path makes its own client: leave {', '.join(extra)} out")
        return cls(client=EdgeClient(path), **arguments)  # type: ignore[call-arg]  # the subclass's constructor

    @property
    def client(self) -> Any:
        """The Qdrant client, for calls that this class does not offer."""
        return self._connection.client

    @property
    def embed_model(self) -> BaseEmbedding:
        """The embedding model."""
        return self._connection.embed_model

    def close(self) -> None:
        """Write out and release an embedded store; close a server's client, or both clients if the store made them."""
        self._connection.close()

    async def aclose(self) -> None:
        """Do the same as `close`, and close the async client."""
        await self._connection.aclose()

    @property
    def _answer(self) -> Callable[[Any], Any]:
        return self._connection.answer

    @property
    def _aanswer(self) -> Callable[[Any], Awaitable[Any]]:
        return self._connection.aanswer


def _check_clients(owner: str, client: Any, aclient: Any, url: Any, api_key: Any) -> None:
    """Refuse arguments that lead to no server, or to two.

    Raises:
        ArgumentError: they do, or one has the wrong type.

    """
    check_kind(str, hint="write url='http://localhost:6333'", optional=True, url=url)
    check_kind(str, optional=True, api_key=api_key)
    for name, value, kind in (("client", client, QdrantClient), ("aclient", aclient, AsyncQdrantClient)):
        if value is not None and not _is_client(value, is_async=kind is AsyncQdrantClient):
            raise ArgumentError(
                f"{name} must be a {kind.__name__}, got {format_value(value)}: write {name}={kind.__name__}(…)"
            )
    if client is None and aclient is None and url is None:
        raise ArgumentError(
            f"{owner} needs a Qdrant server, url='http://localhost:6333' or client=QdrantClient(…), or a folder: "
            f"{owner}.from_path(folder)"
        )
    if url is not None and not (client is None and aclient is None):
        raise ArgumentError("url and a client may lead to two servers: pass either url, or client and aclient")
    if api_key is not None and url is None:
        raise ArgumentError("api_key goes with url: give a client its own, QdrantClient(url=…, api_key=…)")
    if isinstance(client, EdgeClient) and aclient is not None:
        raise ArgumentError("the embedded engine has no async client: leave aclient out")


def _is_client(value: Any, *, is_async: bool) -> bool:
    """Return True if the value has a client's methods, as wrappers of clients do."""
    method = getattr(value, "query_batch_points", None)
    return callable(method) and not isinstance(value, type) and iscoroutinefunction(method) is is_async


def _make_clients(url: str, api_key: str | None) -> tuple[QdrantClient, AsyncQdrantClient]:
    """Make both clients of a server.

    They do not ask the server for its version: nothing is sent before the first call.

    Raises:
        ArgumentError: the url names no server.

    """
    options: dict[str, Any] = {"url": url, "api_key": api_key, "check_compatibility": False}
    try:
        if not urlsplit(url if "//" in url else f"//{url}").hostname:
            raise ValueError("no server is named")
        return QdrantClient(**options), AsyncQdrantClient(**options)
    except ValueError as error:
        raise ArgumentError(
            "url must be a server's address like 'http://localhost:6333' (a folder: from_path), "
            f"got {format_value(url)}: {error}"
        ) from error


def _is_this_machine(host: str) -> bool:
    """Return True for an address by which this machine reaches itself."""
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback or address.is_unspecified


async def _await_to_end(work: Awaitable[Any]) -> Any:
    """Return the work's result. If the caller is cancelled meanwhile, even repeatedly, wait for the end, then raise."""
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


_WRITES = frozenset({"upsert", "delete", "batch_update_points"})
_READS_BY_ID = frozenset({"retrieve"})
_READS = frozenset({*_READS_BY_ID, "scroll", "query_batch_points"})


@dataclass(frozen=True)
class Consistency:
    """The wishes of a store; None: the server's defaults.

    Attributes:
        ordering: of writes.
        consistency: of reads: a number of replicas, or a kind.
        must_lists_agree: False if it is that of points read by their ids alone.

    """

    ordering: models.WriteOrdering | None = None
    consistency: int | models.ReadConsistencyType | None = None
    must_lists_agree: bool = True

    @classmethod
    def read(cls, write_ordering: Any, read_consistency: Any, *, has_replicas: bool) -> Consistency:
        """Read a store's arguments: Qdrant's values, or their names.

        Raises:
            ArgumentError: one is none of Qdrant's, or the engine has no replicas.

        """
        is_count = isinstance(read_consistency, int) and not isinstance(read_consistency, bool)
        if is_count and read_consistency < 1:
            raise ArgumentError(f"read_consistency must be 1 or more replicas, got {read_consistency}")
        made = cls(
            _read(models.WriteOrdering, write_ordering=write_ordering),
            read_consistency
            if is_count
            else _read(models.ReadConsistencyType, "a number of replicas", read_consistency=read_consistency),
        )
        if not has_replicas and made != cls():
            raise ArgumentError(
                "the embedded engine has one copy of each point: leave write_ordering and read_consistency out"
            )
        return made

    def apply(self, call: QdrantCall) -> QdrantCall:
        """Return the call with what it takes of this."""
        if self.ordering is not None and call.method in _WRITES:
            return replace(call, arguments={**call.arguments, "ordering": self.ordering})
        if self.consistency is not None and call.method in (_READS if self.must_lists_agree else _READS_BY_ID):
            return replace(call, arguments={**call.arguments, "consistency": self.consistency})
        return call


def _read(kind: Any, other: str = "", **given: Any) -> Any:
    ((name, value),) = given.items()
    if value is None:
        return None
    try:
        return kind(value)
    except ValueError as error:
        names = [repr(member.value) for member in kind] + ([other] if other else [])
        raise ArgumentError(f"{name} must be {' or '.join(names)}, got {format_value(value)}") from error
