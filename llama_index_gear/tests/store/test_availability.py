"""A server that is away, over both protocols, sync and async. Time is faked: nobody sleeps."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import grpc
import httpx
import pytest
from llama_index.core.vector_stores.types import VectorStoreQuery
from pydantic import BaseModel, ValidationError
from qdrant_client import AsyncQdrantClient, QdrantClient
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from llama_index_gear import flow
from llama_index_gear.agents.loop import Budget
from llama_index_gear.errors import ArgumentError, StoreError, StoreUnavailable
from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.retrievers.gear import GeARRetriever
from llama_index_gear.store import availability
from llama_index_gear.store.availability import describe_address
from llama_index_gear.store.settings import CollectionSettings
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import ScriptedLLM, WordEmbedding
from llama_index_gear.tests.store_contract import contents, passage

EMBED = WordEmbedding(64)
METHODS = (
    *("collection_exists", "get_collection", "create_collection", "create_payload_index", "upsert", "delete"),
    *("retrieve", "scroll", "count", "query_batch_points", "batch_update_points", "delete_collection"),
)
Fail: TypeAlias = Callable[[str, int], BaseException | None]
"""A function from a method and the number of its tries in a row, from 1, to the error that the try ends with."""


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert 0 < seconds
        self.slept.append(seconds)
        self.now += seconds

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (availability, flow):
        monkeypatch.setattr(module, "monotonic", clock.monotonic)
    monkeypatch.setattr(availability, "sleep", clock.sleep)
    monkeypatch.setattr(availability, "asleep", clock.asleep)
    return clock


class Flaky(QdrantClient):
    """Qdrant in memory, whose calls fail as they are told to."""

    def __init__(self, fail: Fail, lose: Fail = lambda method, tries: None) -> None:
        super().__init__(":memory:")
        self.fail = fail
        self.lose = lose  # the error that takes the place of a call's answer, once it is carried out
        self.tries: list[str] = []

    def try_once(self, method: str) -> None:
        self.tries.append(method)
        if error := self.fail(method, self.count_in_a_row(method)):
            raise error

    def count_in_a_row(self, method: str) -> int:
        """Count how often a method was tried without an answer; calls of other methods may go on beside it."""
        answers = [n for n, name in enumerate(self.tries) if name == f"{method} answered"]
        return self.tries[answers[-1] + 1 if answers else 0 :].count(method)


class FlakyAwaited(AsyncQdrantClient):
    """The async client of the same memory."""

    def __init__(self, flaky: Flaky) -> None:
        super().__init__(":memory:")
        self.flaky = flaky


def make_methods(name: str) -> tuple[Any, Any]:
    def call(self: Flaky, *arguments: Any, **options: Any) -> Any:
        self.try_once(name)
        answer = getattr(QdrantClient, name)(self, *arguments, **options)
        if error := self.lose(name, self.count_in_a_row(name)):
            raise error
        self.tries += [f"{name} answered", "answered"]
        return answer

    async def acall(self: FlakyAwaited, *arguments: Any, **options: Any) -> Any:
        await asyncio.sleep(0)
        return getattr(self.flaky, name)(*arguments, **options)

    return call, acall


for _name in METHODS:
    _call, _acall = make_methods(_name)
    setattr(Flaky, _name, _call)
    setattr(FlakyAwaited, _name, _acall)


class RpcFailure(grpc.RpcError):  # type: ignore[misc]  # grpc has no types
    """An error of a sync gRPC call, as grpc makes them: its class is private there."""

    def __init__(self, code: grpc.StatusCode, details: str = "a reason") -> None:
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details


def refuse_connection() -> grpc.RpcError:
    """Return the error of a gRPC call to a port that nobody listens at."""
    with grpc.insecure_channel("127.0.0.1:1") as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/qdrant.Points/Count")(b"", timeout=10)
    return caught.value


def lose(source: Exception) -> ResponseHandlingException:
    return ResponseHandlingException(source)


def respond(status: int, content: bytes = b'{"status": {"error": "a reason"}}') -> UnexpectedResponse:
    return UnexpectedResponse(status, "Reason", content, httpx.Headers())


def await_rpc(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "a reason")


STARTING = "Service internal error: 1 of 1 read operations failed: Service internal error: Local shard 1 not found"
NODE_AWAY = (
    "Service internal error: 2 out of 3 shards failed to apply operation. First error captured: Tonic status error: "
    "code: 'The service is currently unavailable', message: Failed to connect to http://10.0.0.3:6335/"
)
CUT_OFF = (
    "Service internal error: 2 out of 3 shards failed to apply operation. First error captured: Tonic status error: "
    "code: 'Unknown error', message: \"transport error\", source: tonic::transport::Error(ConnectionReset)"
)
AWAY: dict[str, Callable[[], BaseException]] = {
    "refused": lambda: lose(httpx.ConnectError("[Errno 111] Connection refused")),
    "reset": lambda: lose(httpx.ReadError("[Errno 104] Connection reset by peer")),
    "cut off": lambda: lose(httpx.RemoteProtocolError("Server disconnected without sending a response.")),
    "no connection in time": lambda: lose(httpx.ConnectTimeout("timed out")),
    "no answer in time": lambda: lose(httpx.ReadTimeout("timed out")),
    "late": lambda: respond(408),
    "too many": lambda: respond(429),
    "too many, with a time": lambda: ResourceExhaustedResponse("Rate limiting exceeded", 1),
    "bad gateway": lambda: respond(502, b"<html>"),
    "starting": lambda: respond(503, b""),
    "gateway timeout": lambda: respond(504, b"\xff"),
    "a node is starting": lambda: respond(500, STARTING.encode()),
    "a node is away": lambda: respond(500, NODE_AWAY.encode()),
    "grpc refused": refuse_connection,
    "grpc, a node is starting": lambda: RpcFailure(grpc.StatusCode.INTERNAL, STARTING),
    "grpc, a node is cut off": lambda: RpcFailure(grpc.StatusCode.INTERNAL, CUT_OFF),
    "grpc, a node is away": lambda: RpcFailure(grpc.StatusCode.INTERNAL, NODE_AWAY),
    "grpc late": lambda: RpcFailure(grpc.StatusCode.DEADLINE_EXCEEDED),
    "grpc too many": lambda: RpcFailure(grpc.StatusCode.RESOURCE_EXHAUSTED),
    "grpc refused, awaited": lambda: await_rpc(grpc.StatusCode.UNAVAILABLE),
    "grpc late, awaited": lambda: await_rpc(grpc.StatusCode.DEADLINE_EXCEEDED),
}
MODES = ("sync", "async", "async in threads")


def make_store(mode: str, flaky: Flaky, **arguments: Any) -> GeARVectorStore:
    aclient = FlakyAwaited(flaky) if mode == "async" else None
    return GeARVectorStore(client=flaky, aclient=aclient, embed_model=EMBED, **arguments)


async def add_and_search(mode: str, store: GeARVectorStore) -> list[str]:
    node = passage("p", "Ada met Bob.", [("Ada", "met", "Bob")], document="d", embed_model=EMBED)
    edited = passage("p", "Ada saw Bob.", [("Ada", "saw", "Bob")], document="d", embed_model=EMBED)
    query = VectorStoreQuery(query_str="Ada", similarity_top_k=1)
    if mode == "sync":
        store.add([node])
        store.add([edited])
        return store.query(query).ids or []
    await store.async_add([node])
    await store.async_add([edited])
    return (await store.aquery(query)).ids or []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", AWAY)
async def test_a_server_that_comes_back_is_waited_for(clock: Clock, kind: str, mode: str) -> None:
    """Every call fails twice, and the store holds what it holds without a failure."""
    flaky = Flaky(lambda method, tries: AWAY[kind]() if tries <= 2 else None)
    plain = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=EMBED)
    assert await add_and_search(mode, make_store(mode, flaky)) == await add_and_search("sync", plain) == ["p"]
    assert flaky.tries.count("upsert") == 3 * 4 and len(clock.slept) == 2 * flaky.tries.count("answered")
    flaky.fail = lambda method, tries: None
    assert contents(make_store("sync", flaky)) == contents(plain)
    assert max(clock.slept) <= 2


@pytest.mark.parametrize("mode", MODES)
async def test_calls_whose_answers_were_lost_are_made_again(clock: Clock, mode: str) -> None:
    """Every call is carried out twice, and a writer takes its own first try for no other's."""
    once: Fail = lambda method, tries: AWAY["reset"]() if tries == 1 else None  # noqa: E731
    never: Fail = lambda method, tries: None  # noqa: E731
    flaky = Flaky(never, once)
    plain = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=EMBED)
    store = make_store(mode, flaky)
    assert await add_and_search(mode, store) == await add_and_search("sync", plain) == ["p"]
    assert flaky.tries.count("upsert") == 2 * 4
    flaky.lose = never
    assert contents(store) == contents(plain) and store.check() == plain.check()
    flaky.lose = once
    await store.adelete("d")
    flaky.lose = never
    assert not any(contents(store).values())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", AWAY)
async def test_a_server_that_stays_away_ends_the_wait(
    clock: Clock, kind: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    cause = AWAY[kind]()
    flaky = Flaky(lambda method, tries: cause)
    with caplog.at_level(logging.WARNING), pytest.raises(StoreUnavailable) as caught:
        await add_and_search(mode, make_store(mode, flaky, collection_settings=CollectionSettings(retry_seconds=20)))
    assert 1019 <= clock.now <= 1020.001 and set(flaky.tries) == {"collection_exists"}
    assert 10 <= len(flaky.tries) == len(clock.slept) + 1 <= 40
    assert caught.value.__cause__ is cause
    for part in ("Qdrant at ", "`collection_exists`", f"{len(flaky.tries)} times", "repeat your call", "retry_seconds"):
        assert part in str(caught.value)
    assert [record.levelname for record in caplog.records if record.name == availability.__name__] == ["WARNING"]


@pytest.mark.parametrize("mode", MODES)
async def test_without_retry_seconds_a_call_is_made_once(clock: Clock, mode: str) -> None:
    flaky = Flaky(lambda method, tries: AWAY["refused"]())
    with pytest.raises(StoreUnavailable, match=r"`collection_exists` failed once \(.*Connection refused\)"):
        await add_and_search(mode, make_store(mode, flaky, collection_settings=CollectionSettings(retry_seconds=0)))
    assert len(flaky.tries) == 1 and not clock.slept


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "30", None, True])
def test_the_time_to_wait_is_a_number_of_seconds(seconds: Any) -> None:
    where: dict[str, Any] = {"url": "http://localhost:6333", "embed_model": EMBED}
    with pytest.raises(ArgumentError, match="retry_seconds must be 0 or more seconds"):
        GeARVectorStore("mine", **where, collection_settings=CollectionSettings(retry_seconds=seconds))
    with pytest.raises(ArgumentError, match="retry_seconds must be 0 or more seconds"):
        ExternalTripleStore("mine", **where, retry_seconds=seconds)


def test_a_graph_waits_for_its_server_too(clock: Clock) -> None:
    flaky = Flaky(lambda method, tries: AWAY["refused"]())
    with pytest.raises(StoreUnavailable):
        ExternalTripleStore("mine", flaky, embed_model=EMBED, retry_seconds=4).count()
    assert clock.now == pytest.approx(1004)
    flaky.fail = lambda method, tries: AWAY["refused"]() if tries == 1 else None
    assert ExternalTripleStore("mine", flaky, embed_model=EMBED).count() == 0


# -- what is not repeated ------------------------------------------------------------------------------------------


class Parsed(BaseModel):
    """The model of an answer that a client reads."""

    count: int


def fail_to_parse() -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        Parsed.model_validate({"number": 1})
    return caught.value


PLAIN: dict[str, Callable[[], BaseException]] = {
    "bad request": lambda: respond(400),
    "not found": lambda: respond(404),
    "conflict": lambda: respond(409),
    "internal": lambda: respond(500),
    "closed client": lambda: lose(RuntimeError("Cannot send a request, as the client has been closed.")),
    "grpc not found": lambda: RpcFailure(grpc.StatusCode.NOT_FOUND),
    "grpc internal": lambda: RpcFailure(grpc.StatusCode.INTERNAL),
    "grpc exists": lambda: await_rpc(grpc.StatusCode.ALREADY_EXISTS),
    "closed channel": lambda: ValueError("Cannot invoke RPC on closed channel!"),
    "the engine's own": lambda: StoreError("the disk is full"),
    "the disk's": lambda: OSError("a network drive"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", PLAIN)
async def test_other_errors_are_raised_at_once_as_they_are(clock: Clock, kind: str, mode: str) -> None:
    error = PLAIN[kind]()
    flaky = Flaky(lambda method, tries: error)
    with pytest.raises(type(error)) as caught:
        await add_and_search(mode, make_store(mode, flaky))
    assert caught.value is error and len(flaky.tries) == 1 and not clock.slept


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_ends_a_call_and_a_wait(clock: Clock, monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    interrupted = Flaky(lambda method, tries: kind())
    with pytest.raises(kind):
        make_store("sync", interrupted).get_nodes()
    assert len(interrupted.tries) == 1 and not clock.slept

    def interrupt(seconds: float) -> None:
        raise kind

    monkeypatch.setattr(availability, "sleep", interrupt)
    away = Flaky(lambda method, tries: AWAY["refused"]())
    with pytest.raises(kind):
        make_store("sync", away).get_nodes()
    assert len(away.tries) == 1


def make_tls_error(kind: type[ssl.SSLError], words: str) -> ResponseHandlingException:
    error = httpx.ConnectError(words)
    error.__cause__ = kind(1, words)
    return lose(error)


REFUSED: dict[str, tuple[Callable[[], BaseException], str]] = {
    "key": (
        lambda: respond(401, b"Invalid API key or JWT"),
        r"API key \(401 Reason: Invalid API key or JWT\).*api_key",
    ),
    "grpc key": (lambda: RpcFailure(grpc.StatusCode.UNAUTHENTICATED), r"API key \(UNAUTHENTICATED: a reason\)"),
    "awaited key": (lambda: await_rpc(grpc.StatusCode.UNAUTHENTICATED), "does not accept the API key"),
    "right": (
        lambda: respond(403),
        r"no right to call `collection_exists` of collection 'gear'.*\(403 Reason: a reason",
    ),
    "grpc right": (lambda: RpcFailure(grpc.StatusCode.PERMISSION_DENIED), "no right to call `collection_exists`"),
    "no tls": (lambda: make_tls_error(ssl.SSLError, "WRONG_VERSION_NUMBER"), "no TLS connection .* write http://"),
    "certificate": (lambda: make_tls_error(ssl.SSLCertVerificationError, "self-signed"), "or give it a valid one"),
    "grpc no tls": (
        lambda: RpcFailure(grpc.StatusCode.UNAVAILABLE, "last error: Tls handshake failed (TSI_PROTOCOL_FAILURE)"),
        "no gRPC at .* grpc_port",
    ),
    "grpc at rest": (
        lambda: RpcFailure(grpc.StatusCode.UNAVAILABLE, "(Trying to connect an http1.x server (HTTP status 400))"),
        "no gRPC at .* grpc_port",
    ),
    "unknown call": (lambda: respond(404, b""), r"qdrant-client \d.* do not understand each other in `collection_ex"),
    "unknown method": (lambda: respond(405, b"<html>"), "differ by one minor number"),
    "grpc unknown": (lambda: RpcFailure(grpc.StatusCode.UNIMPLEMENTED), "differ by one minor number"),
    "unknown answer": (lambda: lose(fail_to_parse()), "differ by one minor number"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", REFUSED)
async def test_what_a_server_refuses_is_said_in_plain_words(clock: Clock, kind: str, mode: str) -> None:
    make, words = REFUSED[kind]
    error = make()
    flaky = Flaky(lambda method, tries: error)
    with pytest.raises(StoreError, match=words) as caught:
        await add_and_search(mode, make_store(mode, flaky))
    assert type(caught.value) is StoreError and caught.value.__cause__ is error
    assert len(flaky.tries) == 1 and not clock.slept and "\n" not in str(caught.value)


def test_a_connection_cut_while_tls_begins_is_made_again(clock: Clock) -> None:
    cut = make_tls_error(ssl.SSLEOFError, "EOF occurred in violation of protocol")
    flaky = Flaky(lambda method, tries: cut if tries == 1 else None)
    assert make_store("sync", flaky).get_nodes() == [] and len(clock.slept) == 1


# -- how long it is waited -----------------------------------------------------------------------------------------


def test_a_server_that_names_a_time_is_asked_again_then(clock: Clock) -> None:
    flaky = Flaky(lambda method, tries: ResourceExhaustedResponse("Rate limiting exceeded", 7) if tries == 1 else None)
    assert make_store("sync", flaky).get_nodes() == [] and clock.slept == [7.0]
    flaky.fail = lambda method, tries: ResourceExhaustedResponse("Rate limiting exceeded", 40)
    with pytest.raises(StoreUnavailable, match="Rate limiting exceeded"):
        make_store("sync", flaky).get_nodes()
    assert clock.slept == [7.0]  # it is not waited in vain


def test_the_wait_counts_from_a_call_s_first_failure(clock: Clock) -> None:
    """A call that takes ten seconds to fail is repeated all the same, and each call has its own time."""

    def fail(method: str, tries: int) -> BaseException | None:
        clock.now += 10
        return AWAY["no answer in time"]() if tries <= 3 else None

    assert make_store("sync", Flaky(fail), collection_settings=CollectionSettings(retry_seconds=25)).get_nodes() == []
    flaky = Flaky(lambda method, tries: AWAY["no answer in time"]())
    with pytest.raises(StoreUnavailable, match=r"QdrantClient\(…, timeout=60\)"):
        make_store("sync", flaky).get_nodes()


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[asyncio.Event]:
    """An event that is set when a call waits; the wait never ends by itself."""
    event = asyncio.Event()

    async def wait(seconds: float) -> None:
        event.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(availability, "asleep", wait)
    yield event


@pytest.mark.parametrize("mode", MODES[1:])
async def test_a_caller_that_is_cancelled_waits_for_no_server(waiting: asyncio.Event, mode: str) -> None:
    """A write under way is waited for, but not the time until its next try."""
    flaky = Flaky(lambda method, tries: AWAY["refused"]() if method == "create_collection" else None)
    working = asyncio.create_task(add_and_search(mode, make_store(mode, flaky)))
    await waiting.wait()
    tries = list(flaky.tries)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(working, 60)
    assert flaky.tries == tries and tries[-1] == "create_collection"


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_agent_s_time_limit_holds_while_a_server_is_away(clock: Clock, is_async: bool) -> None:
    flaky = Flaky(lambda method, tries: AWAY["refused"]())
    store = make_store("async" if is_async else "sync", flaky)
    retriever = GeARRetriever(store, llm=ScriptedLLM([]), budget=Budget(timeout=5))
    with pytest.raises(StoreUnavailable):
        await retriever.aretrieve("Who met Ada?") if is_async else retriever.retrieve("Who met Ada?")
    assert 1004 < clock.now <= 1005
    with pytest.raises(StoreUnavailable):  # the limit is that of one question
        store.get_nodes()
    assert clock.now >= 1030


@pytest.mark.parametrize("kind", [GeARVectorStore, ExternalTripleStore])
@pytest.mark.parametrize(("chosen", "expected"), [({}, 1000), ({"grpc.max_reconnect_backoff_ms": 5}, 5)])
def test_grpc_connects_again_each_second_unless_its_owner_chose_otherwise(
    kind: Any, chosen: dict[str, Any], expected: int
) -> None:
    options: dict[str, Any] = {"prefer_grpc": True, "check_compatibility": False}
    client = QdrantClient(grpc_options=dict(chosen), **options)
    aclient = AsyncQdrantClient(grpc_options=dict(chosen), **options)
    kind("mine", client, aclient, embed_model=EMBED)
    remotes: list[Any] = [client._client, aclient._client]
    for made in remotes:
        assert made._grpc_options["grpc.max_reconnect_backoff_ms"] == expected


# -- the address ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "address"),
    [
        ({"url": "http://localhost:6333"}, "http://localhost:6333"),
        ({"location": "http://localhost:7333"}, "http://localhost:7333"),
        ({"url": "https://user:hidden@qdrant.example.org/prefix?key=hidden"}, "https://qdrant.example.org:6333"),
        ({"url": "qdrant.example.org:7333"}, "qdrant.example.org:7333"),
        ({"host": "10.0.0.7", "port": 7333}, "10.0.0.7:7333"),
        ({"host": "10.0.0.7", "prefer_grpc": True, "grpc_port": 7334}, "10.0.0.7:7334 (gRPC)"),
        ({}, "localhost:6333"),
    ],
)
@pytest.mark.parametrize("kind", [QdrantClient, AsyncQdrantClient])
def test_an_address_is_named_without_its_secrets(kind: Any, options: dict[str, Any], address: str) -> None:
    assert describe_address(kind(**options, check_compatibility=False)) == address


@pytest.mark.parametrize("client", [object(), QdrantClient(":memory:")])
def test_a_client_without_an_address_has_a_message_too(client: Any) -> None:
    assert describe_address(client) in ("localhost", "an unknown address")
