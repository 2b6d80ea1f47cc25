"""A small HTTP server that speaks the OpenAI chat-completions protocol, for the integration tests.

The plugin under test meets real things here: a real socket, the real `openai` client and the real LlamaIndex `OpenAI`
class. Only the model is missing; what it says is scripted. So a test can ask what happens when the provider answers
429, hangs, cuts the connection, refuses, or stops in the middle of its JSON, without a key and without a network.

    with OpenAIServer() as server:
        server.script(Reply(status=429, headers={"Retry-After": "0"}), Reply("Paris"))
        assert server.llm(max_retries=2).complete("Capital of France?").text == "Paris"
        assert len(server.requests) == 2

It answers `POST /v1/chat/completions` (plain and `stream: true`) and `GET /v1/models`, for any model name; and the
Batch API's `/v1/files` and `/v1/batches`, where a test says with `end_batches` when batches end, and how,
or with `ends_batches` that they end at once.
"""

from __future__ import annotations

import email
import json
import re
import select
import socket
import socketserver
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

if TYPE_CHECKING:
    from llama_index.llms.openai import OpenAI

__all__ = ["OpenAIServer", "Reply", "Usage"]

_DEFAULT_MODEL = "gpt-4o-mini"

# How the real API labels its errors: HTTP status -> (type, code). Anything else is labelled by its hundreds.
_ERROR_LABELS: dict[int, tuple[str, str | None]] = {
    401: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}


@dataclass(frozen=True)
class Usage:
    """Tokens counted by the server. A token is a run of characters between white space; no tokenizer is involved."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True)
class Reply:
    """What the server sends for one HTTP request.

    A retry is a request of its own, so it uses up a reply of its own.
    """

    text: str = ""
    """The message content, sent as is (also for JSON-schema requests). For an error status: the error message."""

    status: int = 200
    """The HTTP status. From 400 on, the body is an error in the shape the real API uses."""

    headers: Mapping[str, str] = field(default_factory=dict)
    """Further response headers, such as `Retry-After`."""

    tool_arguments: str | None = None
    """Answer with a call of the request's first tool, with these arguments in JSON."""

    delay: float = 0.0
    """Seconds to wait before the first byte of the response."""

    finish_reason: str | None = None
    """Why the model stopped. By default what the real API would say: "stop", or "tool_calls" for a tool call."""

    refusal: str | None = None
    """The model declines: `message.refusal` is set to this and the content is null."""

    cut: bool = False
    """Close the connection in the middle of the body: half of it is sent, the rest was promised."""

    reasoning: str | None = None
    """Thoughts that the server sends beside the text, as `message.reasoning_content`."""

    parts: Sequence[Any] = ()
    """The message content as a list of parts, in place of the text. A stream has them behind the text's pieces."""

    body: Mapping[str, Any] | str | None = None
    """The whole answer, sent as is with the status: an error that a server writes into an answer of status 200.
    A text is sent as a page."""


class OpenAIServer:
    """An OpenAI-compatible server on a free port of 127.0.0.1; it listens inside a `with` block.

    Each request takes the next reply of the script; when the script is used up, `answer` decides; when that is not
    set either, the request gets HTTP 500 saying so. Everything here may be used from any thread.
    """

    def __init__(self) -> None:
        """Take a port. Requests are served from the `with` block on."""
        self.answer: Callable[[dict[str, Any]], Reply] | None = None
        """Decides by the request body. Asked only when the script is used up; may run in several threads at once."""

        self.ends_batches = False
        """Whether batches end as soon as they are made, for a caller that only waits."""

        self.pages_batches = True
        """Whether the list of batches goes on at `after`; if not, each page is the first."""

        self._lock = threading.Lock()
        self._nothing_sending = threading.Condition(self._lock)
        self._script: deque[Reply] = deque()
        self._requests: list[dict[str, Any]] = []
        self._problems: list[str] = []
        self._usage = Usage()
        self._files: dict[str, bytes] = {}
        self._batches: dict[str, dict[str, Any]] = {}
        self._sending = 0
        self._connections: dict[threading.Thread, socket.socket] = {}
        self._closing = threading.Event()
        self._listener = _Listener(self)
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.02,), name="openai-server")

    def __enter__(self) -> OpenAIServer:
        """Start to serve."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop at once: pending delays are given up and open connections are closed."""
        self._closing.set()
        self._listener.shutdown()
        with self._lock:
            connections = dict(self._connections)
        for connection in connections.values():
            with suppress(OSError):  # the client may have closed it already
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for thread in connections:
            thread.join(timeout=1.0)  # only an `answer` that hangs can take longer; it is a daemon thread
        self._listener.server_close()

    # What a test uses.

    @property
    def base_url(self) -> str:
        """The base URL to give any OpenAI-compatible client."""
        return f"http://127.0.0.1:{self._listener.server_port}/v1"

    def llm(self, **kwargs: Any) -> OpenAI:
        """The LlamaIndex `OpenAI` class, pointed at this server.

        Retries are off unless asked for, so that one call is one request and one scripted reply.
        """
        from llama_index.llms.openai import OpenAI

        defaults = {"model": _DEFAULT_MODEL, "api_key": "test", "api_base": self.base_url, "max_retries": 0}
        return OpenAI(**{**defaults, **kwargs})

    def script(self, *replies: Reply) -> None:
        """Queue replies, one for each HTTP request, in the order in which requests arrive."""
        with self._lock:
            self._script.extend(replies)

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The JSON bodies of the chat requests so far, in order of arrival, retries included."""
        with self._lock:
            return list(self._requests)

    @property
    def problems(self) -> list[str]:
        """Mistakes of the test itself, such as a script that ran out.

        They also go out as errors, but the code under test may swallow those; a test can assert that this is empty.
        """
        with self._lock:
            return list(self._problems)

    @property
    def usage(self) -> Usage:
        """The tokens of all replies that were sent to their end.

        A client can hold the last byte before the server has added it up, so this first waits for replies that are
        on their way out (not for delayed ones).
        """
        with self._lock:
            self._nothing_sending.wait_for(lambda: self._sending == 0, timeout=60.0)
            return self._usage

    @property
    def batches(self) -> list[dict[str, Any]]:
        """The batches so far, as the API shows them, newest first."""
        with self._lock:
            return list(reversed(self._batches.values()))

    def batch_requests(self, batch_id: str) -> list[dict[str, Any]]:
        """The lines of a batch's input file."""
        with self._lock:
            content = self._files[self._batches[batch_id]["input_file_id"]]
        return [json.loads(line) for line in content.strip().split(b"\n")]

    def end_batches(self, status: str = "completed", answered: int | None = None, error: str | None = None) -> None:
        """End all batches that are under way: by script and `answer`, in reverse order.

        Args:
            status: "completed", "failed", "expired" or "cancelled".
            answered: only the first so many requests are answered. Default: all.
            error: what is wrong with the whole batch.

        """
        for batch in self.batches:
            if batch["status"] != "in_progress":
                continue
            lines: dict[str, list[str]] = {"output": [], "error": []}
            for line in list(reversed(self.batch_requests(batch["id"])))[: 0 if error else answered]:
                reply = self._take(line["body"])
                good = reply.status < 400
                body = _build_completion(line["body"], reply) if good else _build_error(reply.status, reply.text, None)
                response = {"status_code": reply.status, "request_id": "req-1", "body": body}
                said = {"id": "batch_req_1", "custom_id": line["custom_id"], "response": response, "error": None}
                lines["output" if good else "error"].append(json.dumps(said, ensure_ascii=False))
            for kind, output_lines in lines.items():
                if output_lines:
                    batch[f"{kind}_file_id"] = self._store_file("\n".join(output_lines).encode())
            if error:
                batch["errors"] = {"object": "list", "data": [{"code": "invalid_json_line", "message": error}]}
            with self._lock:
                batch["status"] = status

    # What the request handler uses.

    def _store_file(self, content: bytes) -> str:
        with self._lock:
            file_id = f"file-{len(self._files)}"
            self._files[file_id] = content
        return file_id

    def _create_batch(self, body: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            batch = {
                "id": f"batch_{len(self._batches)}",
                "object": "batch",
                "created_at": int(time.time()),
                "status": "in_progress",
                **body,
            }
            self._batches[batch["id"]] = batch
        if self.ends_batches:
            self.end_batches()
        return batch

    def _take(self, body: dict[str, Any]) -> Reply:
        """Record a request and find its reply, both under one lock so that records and script keep step."""
        with self._lock:
            self._requests.append(body)
            number = len(self._requests)
            if self._script:
                return self._script.popleft()
            answer = self.answer
        if answer is None:
            return self._note_problem(f"the script ran out: request {number} has no reply")
        try:
            return answer(body)
        except Exception:  # whatever it is, the test must get to see it  # noqa: BLE001 - reported in `problems`
            return self._note_problem(f"answer() failed on request {number}:\n{traceback.format_exc()}")

    def _note_problem(self, message: str) -> Reply:
        """Note a mistake of the test, and make it an HTTP 500 so that the client does not wait for nothing."""
        with self._lock:
            self._problems.append(message)
        return Reply(message, status=500)

    @contextmanager
    def _send(self, usage: Usage) -> Iterator[None]:
        """Send a reply within this context: its tokens are added up if, and only if, it went through to the end."""
        with self._lock:
            self._sending += 1
        sent = Usage()
        try:
            yield
            sent = usage
        finally:
            with self._lock:
                self._sending -= 1
                self._usage = Usage(
                    self._usage.prompt_tokens + sent.prompt_tokens,
                    self._usage.completion_tokens + sent.completion_tokens,
                )
                self._nothing_sending.notify_all()

    def _add_connection(self, connection: socket.socket) -> None:
        """Remember the connection that the current thread serves, to close it at the end."""
        with self._lock:
            self._connections[threading.current_thread()] = connection

    def _remove_connection(self) -> None:
        """Forget the connection that the current thread served."""
        with self._lock:
            self._connections.pop(threading.current_thread(), None)


class _Listener(ThreadingHTTPServer):
    """Accepts connections, a thread for each."""

    daemon_threads = True
    request_queue_size = 128  # the default, 5, is too few for a client that opens many connections at once

    def __init__(self, owner: OpenAIServer) -> None:
        self.owner = owner
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        """Bind without HTTPServer's look-up of the host's name, which can take seconds and is not used."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet about clients that hang up; note anything else, which is a fault of this server."""
        if not isinstance(sys.exc_info()[1], OSError):
            self.owner._note_problem(f"the server failed:\n{traceback.format_exc()}")


class _Handler(BaseHTTPRequestHandler):
    """Serves one connection: reads requests and sends the replies that `OpenAIServer._take` returns."""

    protocol_version = "HTTP/1.1"  # keep-alive, as the real API
    disable_nagle_algorithm = True
    server: _Listener

    def setup(self) -> None:
        """Register the connection, so that the end of the `with` block can close it."""
        super().setup()
        self.server.owner._add_connection(self.connection)

    def handle(self) -> None:
        """Serve, unless the server closed between the accept and here."""
        if not self.server.owner._closing.is_set():
            super().handle()

    def finish(self) -> None:
        """Unregister the connection."""
        self.server.owner._remove_connection()
        super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the tests' output clean."""

    def do_GET(self) -> None:
        """List the one model that `OpenAIServer.llm` uses. Other names are accepted all the same."""
        if self.path.partition("?")[0] == "/v1/models":
            model = {"id": _DEFAULT_MODEL, "object": "model", "created": 0, "owned_by": "openai"}
            self._send_json(200, {"object": "list", "data": [model]})
        elif self.path.startswith("/v1/batches"):
            self._send_batches()
        elif (file := re.fullmatch(r"/v1/files/([\w-]+)/content", self.path)) and file[1] in self.server.owner._files:
            content = self.server.owner._files[file[1]]
            framing = ("Content-Length", str(len(content)))
            self._send_body(200, "application/octet-stream", framing, [content], None, None)
        else:
            self._send_json(404, _build_error(404, f"no such page here: GET {self.path}", "unknown_url"))

    def do_POST(self) -> None:
        """Answer a chat request."""
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/v1/files":
            form = email.message_from_bytes(f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode() + raw)
            parts: dict[Any, Any] = {
                part.get_param("name", header="content-disposition"): part.get_payload(decode=True)
                for part in form.walk()
                if not part.is_multipart()
            }
            content = parts["file"]
            head = {"id": self.server.owner._store_file(content), "object": "file", "bytes": len(content)}
            purpose = parts["purpose"].decode()
            self._send_json(200, {**head, "created_at": 0, "filename": "x", "purpose": purpose, "status": "processed"})
            return
        if self.path == "/v1/batches":
            self._send_json(200, self.server.owner._create_batch(json.loads(raw)))
            return
        if self.path.partition("?")[0] != "/v1/chat/completions":
            self._send_json(404, _build_error(404, f"no such page here: POST {self.path}", "unknown_url"))
            return
        owner, body = self.server.owner, json.loads(raw)
        reply = owner._take(body)
        if owner._closing.wait(reply.delay) or self._has_client_left():
            self.close_connection = True
            return
        if reply.body is not None or reply.status >= 400:
            error = _build_error(reply.status, reply.text, None)
            self._send_json(reply.status, error if reply.body is None else reply.body, reply)
        elif body.get("stream"):
            self._send_stream(_build_chunks(body, reply), reply, _count_tokens(body, reply))
        else:
            self._send_json(reply.status, _build_completion(body, reply), reply, _count_tokens(body, reply))

    def _send_batches(self) -> None:
        """Send one batch, or a page of all."""
        owner, (path, _, query) = self.server.owner, self.path.partition("?")
        if path == "/v1/batches":
            asked, listed = dict(parse_qsl(query)), owner.batches
            is_next = "after" in asked and owner.pages_batches
            start = [batch["id"] for batch in listed].index(asked["after"]) + 1 if is_next else 0
            page = listed[start : start + int(asked["limit"])]
            self._send_json(200, {"object": "list", "data": page, "has_more": start + len(page) < len(listed)})
        elif (batch := owner._batches.get(path.rpartition("/")[2])) is not None:
            self._send_json(200, batch)
        else:
            self._send_json(404, _build_error(404, "no such batch", "not_found"))

    def _has_client_left(self) -> bool:
        """Return True if the client hung up, as it does on a time-out.

        A write does not show it: the first one after that still succeeds, and the reply would count as sent.
        """
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and self.connection.recv(1, socket.MSG_PEEK) == b""

    def _send_json(
        self, status: int, content: Mapping[str, Any] | str, reply: Reply | None = None, usage: Usage | None = None
    ) -> None:
        """Send a JSON body of known length, or a page, or the first half of it."""
        is_page = isinstance(content, str)
        payload = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self._send_body(
            status,
            "text/html" if is_page else "application/json",
            ("Content-Length", str(len(payload))),
            [payload],
            reply,
            usage,
        )

    def _send_stream(self, chunks: list[dict[str, Any]], reply: Reply, usage: Usage) -> None:
        """Send server-sent events in HTTP chunks, or the first half of them."""
        events = [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks] + [b"data: [DONE]\n\n"]
        pieces = [b"%x\r\n%s\r\n" % (len(event), event) for event in events] + [b"0\r\n\r\n"]
        self._send_body(
            reply.status, "text/event-stream; charset=utf-8", ("Transfer-Encoding", "chunked"), pieces, reply, usage
        )

    def _send_body(
        self,
        status: int,
        media_type: str,
        framing: tuple[str, str],
        pieces: list[bytes],
        reply: Reply | None,
        usage: Usage | None,
    ) -> None:
        """Send head and body. A body that is to be cut is not counted, and ends with the connection."""
        cut = reply is not None and reply.cut
        if cut:
            payload = b"".join(pieces)
            pieces = [payload[: len(payload) // 2]]
            self.close_connection = True
        with self.server.owner._send(Usage() if cut or usage is None else usage):
            self.send_response(status)
            self.send_header("Content-Type", media_type)
            self.send_header(*framing)
            for name, value in (reply.headers if reply else {}).items():
                self.send_header(name, value)
            self.end_headers()
            for piece in pieces:
                self.wfile.write(piece)


def _build_error(status: int, message: str, code: str | None) -> dict[str, Any]:
    """Return an error as the real API words it."""
    kind, usual_code = _ERROR_LABELS.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
    error = {"message": message or f"scripted error {status}", "type": kind, "param": None, "code": code or usual_code}
    return {"error": error}


def _count_tokens(body: Mapping[str, Any], reply: Reply) -> Usage:
    """Return the tokens of one exchange: all message contents in, all the model's output."""
    asked = [message["content"] for message in body["messages"]]
    said = [reply.text, reply.tool_arguments, reply.refusal]
    return Usage(*(sum(len((text or "").split()) for text in texts) for texts in (asked, said)))


def _build_usage(body: Mapping[str, Any], reply: Reply) -> dict[str, int]:
    """Return the `usage` object of a response."""
    counts = asdict(_count_tokens(body, reply))
    return {**counts, "total_tokens": sum(counts.values())}


def _get_finish_reason(body: Mapping[str, Any], reply: Reply) -> str:
    """Return the reason why the model stopped. The real API says "stop" for a tool that the request named itself."""
    if reply.finish_reason is not None:
        return reply.finish_reason
    if reply.tool_arguments is None or isinstance(body.get("tool_choice"), dict):
        return "stop"
    return "tool_calls"


def _build_tool_call(body: Mapping[str, Any], arguments: str) -> dict[str, Any]:
    """Return a call of the request's first tool."""
    name = body["tools"][0]["function"]["name"]
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}


def _build_head(body: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the fields that responses and stream chunks share. The model is the one asked for, whatever it is."""
    return {
        "id": "chatcmpl-1",
        "object": kind,
        "created": int(time.time()),
        "model": body.get("model", _DEFAULT_MODEL),
        "system_fingerprint": None,
    }


def _build_completion(body: Mapping[str, Any], reply: Reply) -> dict[str, Any]:
    """Return the whole response to a request without streaming."""
    silent = reply.refusal is not None or (reply.tool_arguments is not None and not reply.text)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": list(reply.parts) or (None if silent else reply.text),
        "refusal": reply.refusal,
    }
    if reply.reasoning is not None:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_arguments is not None:
        message["tool_calls"] = [_build_tool_call(body, reply.tool_arguments)]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _get_finish_reason(body, reply)}
    return {**_build_head(body, "chat.completion"), "choices": [choice], "usage": _build_usage(body, reply)}


def _build_chunks(body: Mapping[str, Any], reply: Reply) -> list[dict[str, Any]]:
    """Yield a streamed response: the role, a word at a time, the reason to stop, and the usage if asked for.

    The pieces, joined, are the reply to the letter, white space included.
    """

    def build_deltas(text: str) -> list[str]:
        return re.findall(r"\s*\S+|\s+$", text)

    deltas: list[dict[str, Any]] = []
    if reply.text or reply.tool_arguments is None:
        deltas.append({"role": "assistant", "content": "", "refusal": None})
        deltas.extend({"content": piece} for piece in build_deltas(reply.text))
        deltas.extend({"content": [part]} for part in reply.parts)
    if reply.tool_arguments is not None:
        start: dict[str, Any] = {} if deltas else {"role": "assistant", "content": None}
        deltas.append({**start, "tool_calls": [{"index": 0, **_build_tool_call(body, "")}]})
        deltas.extend(
            {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
            for piece in build_deltas(reply.tool_arguments)
        )

    choices: list[dict[str, Any]] = [
        {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None} for delta in deltas
    ]
    choices.append({"index": 0, "delta": {}, "logprobs": None, "finish_reason": _get_finish_reason(body, reply)})
    head = _build_head(body, "chat.completion.chunk")
    if not (body.get("stream_options") or {}).get("include_usage"):
        return [{**head, "choices": [choice]} for choice in choices]
    chunks = [{**head, "choices": [choice], "usage": None} for choice in choices]
    return [*chunks, {**head, "choices": [], "usage": _build_usage(body, reply)}]
