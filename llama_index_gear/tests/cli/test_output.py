"""A terminal, and a pipe, get no character that can't be seen: from any command, in any place that it prints."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import unicodedata
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from qdrant_client import QdrantClient, models

from llama_index_gear import GeARVectorStore
from llama_index_gear.cli import models as cli_models
from llama_index_gear.cli.main import main
from llama_index_gear.testing import ScriptedLLM, WordEmbedding

REASON = "there are no such terminals on Windows"
pty = pytest.importorskip("pty", reason=REASON, exc_type=ImportError)
termios = pytest.importorskip("termios", reason=REASON, exc_type=ImportError)

UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\x08\x85\u2028\u202e\u2066\u200b\u200f\ufeff\xad\U000e0041\rFORGED"
QUESTION = f"Whom did Max{EVIL} Born advise?"


class Run(NamedTuple):
    """The exit code of a command, and what two terminals got."""

    code: int | None
    out: str
    err: str


class Ends:
    """A terminal, or a pipe: a stream to be written, and what came out of it."""

    def __init__(self, is_terminal: bool) -> None:
        reader, writer = pty.openpty() if is_terminal else os.pipe()
        if is_terminal:
            termios.tcsetwinsize(writer, (24, 120))  # without a size there are no progress bars
        self.stream = open(writer, "w", encoding="utf-8", newline="\n")
        self._parts: list[bytes] = []
        self._thread = threading.Thread(target=self._collect, args=(reader,), daemon=True)
        self._thread.start()

    def _collect(self, reader: int) -> None:
        with suppress(OSError):  # the end of a terminal
            while part := os.read(reader, 65536):
                self._parts.append(part)
        os.close(reader)

    def read(self) -> str:
        self.stream.close()
        self._thread.join(30)
        return b"".join(self._parts).decode("utf-8")


Runner = Callable[..., Run]


@pytest.fixture(params=[True, False], ids=["terminal", "pipe"])
def show(request: pytest.FixtureRequest, embedding: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Run a command whose stdout and stderr are terminals, or pipes, and refuse what must not be in them."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Run:
        out, err = Ends(request.param), Ends(request.param)
        try:
            with redirect_stdout(out.stream), redirect_stderr(err.stream):
                try:
                    code = main(arguments)
                except RuntimeError:
                    code = None
                    sys.excepthook(*sys.exc_info())
        finally:
            said = Run(code, out.read(), err.read())
        for text in said[1:]:
            check(text)
        return said

    return call


def check(text: str) -> None:
    """Refuse what can't be seen. A terminal ends a line by CR LF, and a progress bar begins with CR."""
    assert "\rFORGED" not in text
    found = {ascii(one) for one in text if unicodedata.category(one) in UNSEEN and one not in "\r\n\t"}
    assert not found, (found, ascii(text))


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A folder of files with hostile names, titles and texts; two can't be read."""
    folder = tmp_path / "docs"
    folder.mkdir()
    name = EVIL.replace("/", "")
    (folder / f"Max{name}Born.txt").write_text(f"Max Born advised Robert{EVIL} Oppenheimer in Basel. Ann Lee met Bob.")
    (folder / f"p{name}.md").write_text(f"# Robert{EVIL} Oppenheimer\n\nRobert Oppenheimer{EVIL} met Ann Lee in Basel.")
    (folder / f"t{name}.csv").write_text(f'name,office\n"Ada{EVIL},Berlin\nAnn,Basel\n')
    (folder / f"b{name}.txt").write_bytes(b"\xff\x00")
    return folder


@pytest.fixture
def filled(evil: Path, show: Runner) -> Path:
    """The store of the files that can be read."""
    said = show("index", "docs", "--store", "s")
    assert said.code == 1 and r"skipped: b\u001b" in said.err and r"failed: t\u001b" in said.err
    assert "2 files, 2 passages: 2 new or changed" in said.out and "\rReading files" in said.err
    return evil.parent / "s"


def read_texts(folder: Path) -> dict[str, str]:
    with GeARVectorStore.from_path(folder, embed_model=WordEmbedding()) as store:
        return {node.node_id: node.get_content() for node in store.get_nodes()}


def test_ask_and_its_json_means_what_the_store_says(filled: Path, show: Runner) -> None:
    said = show("ask", QUESTION, "--llm", "none", "--store", "s")
    assert said.code == 0 and r"\u009b31m" in said.out and r"\u202e" in said.out and "↳" in said.out
    data = json.loads(show("ask", QUESTION, "--llm", "none", "--json", "--store", "s").out)
    assert data["question"] == QUESTION
    assert {passage["id"]: passage["text"] for passage in data["passages"]} == read_texts(filled)


def test_an_agent_s_steps_answer_and_faults(filled: Path, show: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    step = {
        "needed": [1],
        "facts": [["Max Born", f"advised{EVIL}", "Robert"]],
        "answerable": False,
        "query": f"Who{EVIL}?",
    }
    end = {"needed": [1], "facts": [], "answerable": True, "answer": f"Robert{EVIL}"}

    def script(*replies: Any) -> None:
        monkeypatch.setattr(cli_models, "open_llm", lambda *_, **__: ScriptedLLM(list(replies)))

    for options in ([], ["--json"]):
        script(json.dumps(step), json.dumps(end))
        said = show("ask", QUESTION, "--store", "s", "--html", "page.html", *options)
        assert said.code == 0 and r"\u009b31m" in said.out
        assert options or "noted: " in said.out
        script(PermissionError(f"no{EVIL}"))
        assert r"\u009b31m" in show("ask", QUESTION, "--store", "s", *options).err


def test_compare_graph_check_and_repair(filled: Path, show: Runner, tmp_path: Path) -> None:
    ids = sorted(read_texts(filled))
    rows: list[dict[str, Any]] = [
        {"question": QUESTION},
        {"question": f"Who led{EVIL} Los Alamos?", "gold_ids": ids[:1]},
    ]
    (tmp_path / "q.json").write_text(json.dumps(rows))
    said = show("compare", "q.json", "--store", "s")
    assert said.code == 0 and "GraphRetriever" in said.out
    (tmp_path / "w.json").write_text(json.dumps([{"question": "Who?", "gold_ids": [f"no{EVIL}"]}]))
    assert show("compare", "w.json", "--store", "s").code == 1
    assert show("graph", "Max Born", "--store", "s", "--html", f"g{EVIL}.html").out.count(r"\u009b") == 1
    show("graph", f"Nobody{EVIL}", "--store", "s")
    with GeARVectorStore.from_path(filled, embed_model=WordEmbedding()) as store:
        (point, *_), _ = store.client.scroll(store.triple_collection_name)
        store.client.delete(store.triple_collection_name, [point.id])
    assert (show("check", "--store", "s").code, show("repair", "--store", "s").code) == (1, 0)


def test_extract(show: Runner, tmp_path: Path) -> None:
    text = f"Max Born advised Robert{EVIL} Oppenheimer."
    vector = WordEmbedding().get_text_embedding(text)
    client = QdrantClient(path=str(tmp_path / "theirs"))
    form = models.VectorParams(size=len(vector), distance=models.Distance.COSINE)
    client.create_collection("plain", vectors_config=form)
    payload = {"text": text, "title": f"Max{EVIL} Born"}
    client.upsert("plain", [models.PointStruct(id=1, vector=vector, payload=payload)])
    client.close()
    assert show("extract", "--collection", "plain", "--path", "theirs", "--store", "x").code == 0
    assert r"\u009b31m" in show("ask", QUESTION, "--llm", "none", "--store", "x").out
    assert show("extract", "--collection", f"no{EVIL}", "--path", "theirs", "--store", "y").code == 1
    said = show("extract", "--collection", "plain", "--text-key", f"no{EVIL}", "--path", "theirs", "--store", "y")
    assert said.code == 1 and "(no text under 'no" in said.err


@pytest.mark.parametrize(
    "arguments",
    [
        [f"no{EVIL}"],
        ["ask", "Who?", f"--no{EVIL}"],
        ["ask", EVIL, EVIL],
        ["ask", "Who?", "--store", f"no{EVIL}"],
        ["ask", "Who?", "--store", "no\udcff"],
        ["ask", "Who?", "--top-k", EVIL],
        ["index", f"no{EVIL}"],
        ["index", "no\udcff"],
        ["check", "--store", f"no{EVIL}"],
        ["mcp", "--store", "s", "--tenant", EVIL],
        ["mcp", "--store", f"no{EVIL}"],
        ["graph", f"a{EVIL}", "b"],
    ],
)
def test_a_wrong_command_line(show: Runner, arguments: list[str]) -> None:
    if arguments[0] == "mcp":
        pytest.importorskip("mcp.server.mcpserver", reason="needs the extra mcp")
    said = show(*arguments)
    assert said.code in (1, 2) and said.err.count("\n") == 1 and "\\u" in said.err + "\\u" * ("\udcff" in arguments[-1])


def test_what_libraries_say_and_a_fault_of_this_program(
    evil: Path, show: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def embed(self: WordEmbedding, nodes: Any, **_: Any) -> Any:
        logging.getLogger("library").warning("of a log %s", EVIL)
        warnings.warn(f"of Python {EVIL}", stacklevel=1)
        sys.stdout.write(f"printed {EVIL}\n")
        sys.stderr.writelines([f"printed {EVIL}\n"])
        raise RuntimeError(f"a fault {EVIL}")

    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(WordEmbedding, "__call__", embed)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        said = show("index", "docs", "--store", "s")
    assert said.code is None and r"printed \u001b" in said.out
    for words in ("warning: of a log", "warning: of Python", "printed", "RuntimeError: a fault"):
        assert rf"{words} \u001b" in said.err, words
    assert "Traceback" in said.err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_of_another_encoding_ends_no_command(filled: Path, encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("w", encoding=encoding) as stream, redirect_stdout(stream):
        assert main(["ask", "Whom did Max Born advise? 東京 é", "--llm", "none", "--json", "--store", "s"]) == 0
    assert json.loads(path.read_text(encoding))["question"].endswith("東京 é")
