#!/bin/sh
# LlamaIndex's OpenAI client reads no reply whose content is a list of parts, as Mistral's models that think send it
# ([{"type": "thinking", "thinking": […]}, {"type": "text", "text": "…"}]): pydantic refuses the list as a text, after
# the reply was paid for; a stream of parts ends in a TypeError.
# Seen (llama-index-llms-openai 0.8.3, openai 2.54.0): "ValidationError: Input should be a valid string", and "TypeError:
# can only concatenate str (not "list") to str". Expected: the texts as content, the thoughts as a ThinkingBlock.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "llama-index-llms-openai==0.8.3" "openai==2.54.0"
"$work/venv/bin/python" - <<'PROGRAM'
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from llama_index.llms.openai import OpenAI

PARTS = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "Is it Rome?"}]},
    {"type": "text", "text": "Paris"},
]
HEAD = {"id": "1", "created": 1, "model": "gpt-4o-mini"}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        is_stream = json.loads(self.rfile.read(int(self.headers["Content-Length"]))).get("stream")
        said = {"role": "assistant", "content": PARTS}
        choice = {"index": 0, "finish_reason": "stop", "delta" if is_stream else "message": said}
        kind = "chat.completion.chunk" if is_stream else "chat.completion"
        body = json.dumps({**HEAD, "object": kind, "choices": [choice]})
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if is_stream else "application/json")
        self.end_headers()
        self.wfile.write((f"data: {body}\n\ndata: [DONE]\n\n" if is_stream else body).encode())

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
llm = OpenAI("gpt-4o-mini", api_key="any", api_base=f"http://127.0.0.1:{server.server_port}/v1", max_retries=0)
failures = []
for name, call in (("whole", lambda: llm.complete("Capital?")), ("stream", lambda: list(llm.stream_complete("Capital?")))):
    try:
        print(name, call())
    except Exception as error:
        failures.append(type(error).__name__)
        print(name, type(error).__name__, str(error)[:200])
sys.exit(failures != ["ValidationError", "TypeError"])
PROGRAM
