"""A small HTTP server that speaks Ollama's protocol, for the integration tests.

What meets it is real: a socket, the `ollama` client, and LlamaIndex's `Ollama` class. Only the model is missing: what
it says is scripted, or decided by a function of the request. A model without tools answers 400 to a request with tools,
in Ollama's words, and a model that was not pulled answers 404.

    with OllamaServer() as server:
        server.answer = lambda body: "Paris"
        assert server.llm().complete("Capital of France?").text == "Paris"
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llama_index.llms.ollama import Ollama

MODEL = "llama3.2"
_WINDOW = 131_072  # tokens that the model could read, as `ollama show` says


class OllamaServer:
    """An Ollama server on a free port of 127.0.0.1; it listens inside a `with` block.

    Attributes:
        answer: gives the reply to a chat request: its text, the arguments of a call of the request's first tool, or an
            HTTP status for an error. Runs in several threads at once.
        has_tools: False: the model offers no tools.
        delay: seconds before a reply.
        requests: bodies of the chat requests so far.

    """

    def __init__(self, *, has_tools: bool = True) -> None:
        self.answer: Callable[[dict[str, Any]], str | dict[str, Any] | int] = lambda _: 500
        self.has_tools = has_tools
        self.delay = 0.0
        self.requests: list[dict[str, Any]] = []
        self._listener = _Listener(("127.0.0.1", 0), _make_handler(self))
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.02,), name="ollama-server")

    def __enter__(self) -> OllamaServer:
        """Start to serve."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self._listener.shutdown()
        self._thread.join()
        self._listener.server_close()

    @property
    def host(self) -> str:
        """Host and port, as OLLAMA_HOST names them."""
        return f"127.0.0.1:{self._listener.server_port}"

    def llm(self, **arguments: Any) -> Ollama:
        """LlamaIndex's `Ollama`, pointed at this server."""
        from llama_index.llms.ollama import Ollama

        return Ollama(**{"model": MODEL, "base_url": f"http://{self.host}", **arguments})

    def reply(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return status and body of a response."""
        if body.get("model") != MODEL:
            return 404, {"error": f"model '{body.get('model')}' not found"}
        if path == "/api/show":
            capabilities = ["completion", *(["tools"] if self.has_tools else [])]
            return 200, {"model_info": {"llama.context_length": _WINDOW}, "capabilities": capabilities}
        self.requests.append(body)
        if body.get("tools") and not self.has_tools:
            return 400, {"error": f"registry.ollama.ai/library/{MODEL} does not support tools"}
        time.sleep(self.delay)
        said = self.answer(body)
        if isinstance(said, int):
            return said, {"error": "the model has no answer"}
        message: dict[str, Any] = {"role": "assistant", "content": said if isinstance(said, str) else ""}
        if isinstance(said, dict):
            name = body["tools"][0]["function"]["name"]
            message["tool_calls"] = [{"function": {"name": name, "arguments": said}}]
        counts = {"prompt_eval_count": 7, "eval_count": 5, "total_duration": 1, "load_duration": 1}
        head = {"model": MODEL, "created_at": "2026-01-01T00:00:00Z"}
        return 200, {**head, "message": message, "done": True, "done_reason": "stop", **counts}


class _Listener(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that a client leaves."""


def _make_handler(server: OllamaServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, values = server.reply(self.path, body)
            data = json.dumps(values).encode() + b"\n"  # a stream of one part, if a stream was asked for
            self.send_response(status)
            self.send_header("Content-Type", "application/x-ndjson" if body.get("stream") else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
