"""`llama-index-gear mcp` as a program of its own, and the SDK's client over stdin and stdout."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import mcp
import pytest
from openai_server import OpenAIServer, Reply
from repository import EXAMPLES, ROOT

from llama_index_gear import GeARVectorStore
from llama_index_gear.cli import store_folder
from llama_index_gear.cli.main import main
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.processes import PROCESSES

QUESTION = "On what date did the language first run whose designer worked for Richard Feynman?"
SERVE = """
import sys
from llama_index_gear.cli import main, serving as serving
from llama_index_gear.testing import WordEmbedding

def load_embedding(name):  # in place of a model, which takes seconds; and some libraries print as they load
    print("loading", name)
    return WordEmbedding()

serving.load_embedding = load_embedding
serving._WAIT = 3
sys.exit(main.main())
"""
STEP = '{"needed": [1], "facts": [], "answerable": true, "answer": "Cambridge"}'


def serve(store: Path, stdin: Connection, stdout: Connection, stderr: Connection) -> None:
    """Be the program, in a process of its own."""
    for number, end in enumerate((stdin, stdout, stderr)):
        os.dup2(end.fileno(), number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores it
    sys.exit(main(["mcp", "--store", str(store)]))


def read_text(result: mcp.types.CallToolResult) -> str:
    first = result.content[0]
    assert isinstance(first, mcp.types.TextContent)
    return first.text


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # the SDK's own
async def test_a_session_of_a_client(
    tmp_path: Path, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One process serves several calls. Whatever stands on its stdout is the protocol's, also if a library prints."""
    monkeypatch.setattr(store_folder, "load_embedding", lambda name: WordEmbedding())
    guide = (EXAMPLES / "guides" / "agents_and_models.md").read_text("utf-8")
    (written,) = re.findall(r"<<'END'\n(.*?)END", guide, re.DOTALL)
    *arguments, _ = json.loads(written)["mcpServers"]["documents"]["args"]
    store = str(tmp_path / "store")
    assert main(["index", str(EXAMPLES / "docs"), "--store", store]) == 0
    server.answer = lambda body: Reply(STEP)
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    started = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-c", SERVE, *arguments, store, "--write"],
        env={"PYTHONPATH": paths, "OPENAI_BASE_URL": server.base_url},
    )
    with (tmp_path / "stderr").open("w") as errors:
        async with mcp.Client(mcp.stdio_client(started, errlog=errors)) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert names == {"search", "explain", "ask", "add", "delete"}
            found = await client.call_tool("search", {"question": QUESTION, "top_k": 20})
            assert "] John Kemeny (id: John Kemeny.md-0)\n   ↳ BASIC — John Kemeny" in read_text(found)
            assert {passage["title"] for passage in found.structured_content["passages"]} >= {"BASIC"}
            told = await client.call_tool("explain", {"question": QUESTION, "id": "BASIC.md-0"})
            assert told.structured_content["rank"] and told.structured_content["reasons"]
            asked = await client.call_tool("ask", {"question": QUESTION})
            assert asked.structured_content["answer"] == "Cambridge [1]" and len(server.requests) == 1
            document = {"text": "Zorblax lies on the river Wye.", "title": "Zorblax", "id": "z"}
            assert not (await client.call_tool("add", document)).is_error
            found = await client.call_tool("search", {"question": "On which river does Zorblax lie?", "top_k": 1})
            assert found.structured_content["passages"][0]["id"] == "z-0"
            assert not (await client.call_tool("delete", {"id": "z"})).is_error
            wrong = await client.call_tool("delete", {"id": "z"})
            assert wrong.is_error and read_text(wrong).startswith("there is no document and no passage 'z'")
            with GeARVectorStore.from_path(store, embed_model=WordEmbedding()) as opened:  # between two calls
                assert len(opened.get_nodes()) == 43
                locked = await client.call_tool("search", {"question": QUESTION})
                assert locked.is_error and "another process has the store open" in read_text(locked)
            assert not (await client.call_tool("search", {"question": QUESTION})).is_error
    said = (tmp_path / "stderr").read_text()
    assert said == "loading sentence-transformers/all-MiniLM-L6-v2\n"
    assert [record.getMessage() for record in caplog.records if record.name.startswith("mcp")] == []


@pytest.mark.parametrize(
    "end", ["SIGINT", *(pytest.param(end, marks=pytest.mark.long) for end in ("SIGTERM", "end of stdin"))]
)
def test_a_server_that_waits_for_its_client_can_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(store_folder, "load_embedding", lambda name: WordEmbedding())
    store = tmp_path / "store"
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "Max Born.txt").write_text("Max Born was born in Breslau.", "utf-8")
    assert main(["index", str(tmp_path / "docs"), "--store", str(store)]) == 0
    ends = [PROCESSES.Pipe(duplex=False) for _ in range(3)]  # each as it is read and as it is written
    (stdin, write), (read, stdout), (read_errors, stderr) = ends
    process = PROCESSES.Process(target=serve, args=(store, stdin, stdout, stderr))
    process.start()
    for inherited in (stdin, stdout, stderr):
        inherited.close()
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    os.write(write.fileno(), json.dumps(request).encode() + b"\n")
    with open(os.dup(read.fileno())) as answers, open(os.dup(read_errors.fileno())) as errors:
        assert json.loads(answers.readline())["id"] == 1
        if end.startswith("SIG"):
            assert process.pid
            os.kill(process.pid, getattr(signal, end))
        else:
            write.close()
        process.join(timeout=60)
        assert process.exitcode == 0
        assert (answers.read(), errors.read()) == ("", "")
