"""A server that is away: its calls are repeated for a while. What it refuses is said in plain words.

Every call of the store can be repeated: a write sets points to a state, and a deletion names what is to be gone. So a
call whose answer was lost is made again, whether or not the server has carried it out. After a
conditional write, the writer reads back what was stored (`commits`).
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import random
import re
import ssl
from asyncio import sleep as asleep
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import urlsplit

import grpc
import httpx
from pydantic import ValidationError
from qdrant_client import AsyncQdrantClient, QdrantClient
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from llama_index_gear.errors import StoreError, StoreUnavailable, repair_surrogates
from llama_index_gear.flow import QdrantCall, remaining_seconds, sleep

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

_FIRST_DELAY, _LONGEST_DELAY = 0.1, 2.0  # seconds
_RECONNECT_MS = 1000
_LOST = (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError)
_UNAVAILABLE_STATUS = {408, 429, 502, 503, 504}
_UNAVAILABLE_CODES = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_WRONG_PROTOCOL = ("Tls handshake failed", "http1.x server")  # what gRPC says where no other try can succeed
_NODE_AWAY = re.compile(  # what one node of a cluster says of another that is away, or only just starting
    r"Local shard \d+ not found|The service is currently unavailable|transport error|not have enough active replicas"
)
_MAX_REASON = 300  # characters


@dataclass
class Tries:
    """The tries of one call.

    Attributes:
        call: the call.
        get_address: returns the server's address, for messages.
        seconds: how long after its first failure the call is repeated; 0: it is not.
        count: failed tries so far.
        gives_up_at: the clock when the last try begins; None before the first failure.

    """

    call: QdrantCall
    get_address: Callable[[], str]
    seconds: float
    count: int = field(default=0, init=False)
    gives_up_at: float | None = field(default=None, init=False)

    def get_delay(self, error: Exception) -> float | None:
        """Return the seconds until the next try; None if the error is to be raised as it is.

        Raises:
            StoreUnavailable: the server is away, and time is up.
            StoreError: the server refuses the key or the call.

        """
        if not is_unavailable(error):
            if refusal := _explain_refusal(error, self.call, self.get_address):
                raise StoreError(refusal) from error
            return None
        now = monotonic()
        if self.gives_up_at is None:
            self.gives_up_at = now + self.seconds
        self.count += 1
        left = min(self.gives_up_at - now, remaining_seconds())
        asked = float(error.retry_after_s) if isinstance(error, ResourceExhaustedResponse) else 0.0
        if left <= 0 or asked > left:
            raise StoreUnavailable(self._explain(error)) from error
        if self.count == 1:
            logger.warning(
                "Qdrant at %s is away (%s): `%s` is repeated for up to %.3g s",
                *(self.get_address(), _get_reason(error), self.call.method, left),
            )
        delay = min(_LONGEST_DELAY, _FIRST_DELAY * 2.0 ** (self.count - 1)) * random.uniform(0.5, 1)
        return min(left, max(delay, asked))

    def _explain(self, error: Exception) -> str:
        times = "once" if self.count == 1 else f"{self.count} times"
        hint = ""
        if _is_timeout(error):
            hint = " If the server is only slow, make the client with a longer timeout: QdrantClient(…, timeout=60)."
        return (
            f"Qdrant at {self.get_address()} is away: `{self.call.method}` failed {times} ({_get_reason(error)}). "
            "Start the server, or correct its address, and repeat your call: what was written stays, and is not "
            f"written twice. retry_seconds says how long to wait for a server, here {self.seconds:.3g} s.{hint}"
        )


def repeat(attempt: Callable[[], Answer], tries: Tries) -> Answer:
    """Return what the attempt returns. While the server is away, wait and try again.

    Raises:
        StoreUnavailable: the server is away, and time is up.
        StoreError: the server refuses the key or the call.
        StoppedError: while it waits, the flow is to end.
        Exception: any other error of the attempt.

    """
    while True:
        try:
            return attempt()
        except Exception as error:
            delay = tries.get_delay(error)
            if delay is None:
                raise
        sleep(delay)


async def arepeat(attempt: Callable[[], Awaitable[Answer]], tries: Tries) -> Answer:
    """`repeat`, without blocking the event loop."""
    while True:
        try:
            return await attempt()
        except Exception as error:
            delay = tries.get_delay(error)
            if delay is None:
                raise
        await asleep(delay)


def reconnect_soon(client: Any) -> None:
    """Have a client connect again at least once a second, if it speaks gRPC and has made no call yet.

    By itself it would wait for up to two minutes between two tries, and fail all calls meanwhile. An option of its
    owner's, `grpc_options={"grpc.max_reconnect_backoff_ms": …}`, is kept.
    """
    remote: Any = client._client if isinstance(client, QdrantClient | AsyncQdrantClient) else None
    options = getattr(remote, "_grpc_options", None)  # Qdrant in memory has none
    if isinstance(options, dict):
        options.setdefault("grpc.max_reconnect_backoff_ms", _RECONNECT_MS)


def is_unavailable(error: Exception) -> bool:
    """Return True if a server was not reached, or did not answer, or is too busy, or lacks another node."""
    match error:
        case ResourceExhaustedResponse():
            return True
        case ResponseHandlingException(source=source):
            return isinstance(source, _LOST) and not _is_wrong_tls(source)
        case UnexpectedResponse(status_code=500):
            return bool(_NODE_AWAY.search(_get_reason(error)))
        case UnexpectedResponse(status_code=status):
            return status in _UNAVAILABLE_STATUS
        case grpc.RpcError() if _get_code(error) == grpc.StatusCode.INTERNAL:
            return bool(_NODE_AWAY.search(_get_reason(error)))
        case grpc.RpcError():
            return _get_code(error) in _UNAVAILABLE_CODES and not any(
                words in _get_reason(error) for words in _WRONG_PROTOCOL
            )
    return False


def is_missing(error: Exception) -> bool:
    """Return True if a server has no collection of the name that it was given."""
    return getattr(error, "status_code", None) == 404 or _get_code(error) == grpc.StatusCode.NOT_FOUND


def describe_address(client: Any) -> str:
    """Return the address of a client's server, without a password."""
    options = getattr(client, "init_options", None) or {}
    address = str(options.get("url") or options.get("location") or options.get("host") or "localhost")
    parts = urlsplit(address if "//" in address else f"//{address}")
    host = parts.hostname or "an unknown address"
    if options.get("prefer_grpc"):
        return f"{host}:{options.get('grpc_port')} (gRPC)"
    try:
        port = parts.port or options.get("port")
    except ValueError:  # no server's address
        port = None
    return f"{parts.scheme and f'{parts.scheme}://'}{host}{f':{port}' if port else ''}"


def _explain_refusal(error: Exception, call: QdrantCall, get_address: Callable[[], str]) -> str:
    """Say why a server refuses a call, and what to do; "" for an error that says so itself."""
    status, code = getattr(error, "status_code", None), _get_code(error)
    reason = _get_reason(error)
    if status == 401 or code == grpc.StatusCode.UNAUTHENTICATED:
        return (
            f"Qdrant at {get_address()} does not accept the API key ({reason}): pass the server's with url=…, "
            "api_key=…; a client has its own, QdrantClient(url=…, api_key=…)"
        )
    if status == 403 or code == grpc.StatusCode.PERMISSION_DENIED:
        return (
            f"the API key has no right to call `{call.method}` of collection "
            f"{call.arguments.get('collection_name')!r} at {get_address()} ({reason}): a store reads and writes its "
            "collection and that of the triples, the first `add` creates both, and `clear` deletes them"
        )
    source = getattr(error, "source", None)
    if isinstance(source, httpx.TransportError) and _is_wrong_tls(source):
        return (
            f"no TLS connection with Qdrant at {get_address()} ({reason}): write http:// before the address of a "
            "server without a certificate (with an API key https:// is assumed), or give it a valid one"
        )
    if code == grpc.StatusCode.UNAVAILABLE:  # gRPC's words for a wrong protocol
        return (
            f"no gRPC at {get_address()} ({reason}): give the client the server's grpc_port (6334 by default), and "
            "http:// or https:// as the server has it"
        )
    is_unknown = status in (404, 405) and not _read_status(error)
    if is_unknown or code == grpc.StatusCode.UNIMPLEMENTED or isinstance(source, ValidationError):
        version = importlib.metadata.version("qdrant-client")
        return (
            f"qdrant-client {version} and the server at {get_address()} do not understand each other in "
            f"`{call.method}` ({reason}): the server is older or newer, or no Qdrant. Bring both to versions that "
            "differ by one minor number at most; the server shows its own at the root of its address"
        )
    return ""


def _is_wrong_tls(error: BaseException) -> bool:
    """Return True if a connection failed because of the certificate or the protocol, not because it was cut."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return not isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError)
        cause = cause.__cause__ or cause.__context__
    return False


def _is_timeout(error: Exception) -> bool:
    source, code = getattr(error, "source", None), _get_code(error)
    return isinstance(source, httpx.TimeoutException) or code == grpc.StatusCode.DEADLINE_EXCEEDED


def _get_code(error: Exception) -> Any:
    """Return the status code of a gRPC error; None for any other error."""
    code = getattr(error, "code", None)
    return code() if isinstance(error, grpc.RpcError) and callable(code) else None


def _read_status(error: Exception) -> str:
    """Return the message in a server's answer; "" if the answer isn't Qdrant's."""
    try:
        return str(json.loads(getattr(error, "content", b""))["status"]["error"])
    except (ValueError, TypeError, KeyError):
        return ""


def _get_reason(error: Exception) -> str:
    """Return an error's own message, in one line, without what its client adds."""
    source = getattr(error, "source", None)
    if isinstance(error, grpc.RpcError):
        details: Any = getattr(error, "details", None)
        code = _get_code(error)
        text = f"{getattr(code, 'name', code)}: {details() if callable(details) else error}"
    elif isinstance(error, UnexpectedResponse):
        content = _read_status(error) or bytes(error.content).decode("utf-8", "replace")
        text = f"{error.status_code} {error.reason_phrase}: {content}"
    elif isinstance(source, Exception):
        text = str(source) or type(source).__name__
    else:
        text = str(error) or type(error).__name__
    return repair_surrogates(" ".join(text.split())[:_MAX_REASON])
