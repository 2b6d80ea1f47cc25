"""The command line's errors are one line that says what to do; exit codes are 0, 1 and 2."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llama_index_gear import GeARVectorStore
from llama_index_gear.testing import WordEmbedding

Runner = Callable[..., Any]

NOWHERE = [["ask", "Who?"], ["compare", "q.json"], ["check"], ["repair"]]


@pytest.mark.parametrize("command", NOWHERE, ids=lambda command: command[0])
def test_a_mistyped_store_is_refused_and_not_made(run: Runner, tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "q.json").write_text('["Who?"]')
    refused = run(*command, "--store", "storr")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == "error: no store in storr: fill one with `llama-index-gear index DIR --store storr`\n"
    assert not (tmp_path / "storr").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["index", "nowhere"], "'nowhere' does not exist"),
        (["ask", ""], "Missing argument 'QUESTION'"),
        (["ask", " \n"], "Missing argument 'QUESTION'"),
        (["ask", "Who", "was", "Max", "Born?"], 'put it in quotes: llama-index-gear ask "Who was Max Born?"'),
        (["graph", "Max", "Born"], 'put it in quotes: llama-index-gear graph "Max Born"'),
        (["ask", "Who?", "--top-k", "0"], "Invalid value for '--top-k'"),
        (["ask", "Who?", "--stroe", "s"], "No such option"),
        (["aks", "Who?"], "No such command 'aks'"),
        (["compare", "q.json"], "'q.json' does not exist"),
    ],
)
def test_a_wrong_command_line_is_one_line_with_code_2(run: Runner, arguments: list[str], words: str) -> None:
    refused = run(*arguments)
    assert refused.code == 2 and words in refused.err and refused.err.count("\n") == 1 and refused.out == ""


def test_help_stands_without_arguments(run: Runner) -> None:
    bare, asked = run(), run("--help")
    assert bare == asked and bare.code == 0
    for name in ("ask", "check", "compare", "index", "mcp", "repair"):
        assert f"\n  {name} " in bare.out


def test_check_finds_and_repair_mends(run: Runner, docs: Path, tmp_path: Path) -> None:
    run("index", "docs", "--store", "s")
    in_order = run("check", "--store", "s")
    assert in_order.code == 0 and in_order.out.startswith("4 passages, ") and in_order.out.endswith(": in order\n")
    with GeARVectorStore.from_path(tmp_path / "s", embed_model=WordEmbedding()) as store:
        (point, *_), _ = store.client.scroll(store.triple_collection_name)
        store.client.delete(store.triple_collection_name, [point.id])
    damaged = run("check", "--store", "s")
    assert damaged.code == 1 and "1 passage with missing triples" in damaged.out
    mended = run("repair", "--store", "s")
    assert (mended.code, mended.out) == (0, in_order.out) and run("check", "--store", "s").code == 0


def test_errors_of_the_store_and_the_disk_are_one_line(run: Runner, docs: Path, tmp_path: Path) -> None:
    run("index", "docs", "--store", "s")
    with GeARVectorStore.from_path(tmp_path / "s", embed_model=WordEmbedding()) as store:
        store.get_nodes()
        locked = run("ask", "Who?", "--store", "s")
    assert locked.code == 1 and locked.err.startswith("error: ") and locked.err.count("\n") == 1
    failed = run("compare", "q.json", "--store", "s", "--fit", "nowhere/w.json")
    assert failed.code == 2
    (tmp_path / "s" / "index.json").write_text("{")
    damaged = run("ask", "Who?", "--store", "s")
    assert damaged.code == 1 and "index.json is damaged" in damaged.err


def test_ctrl_c_ends_a_server_quietly(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped:
        def run(self) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr("llama_index_gear.cli.main._prepare_server", lambda *_, **__: Stopped())
    assert run("mcp", "--store", "s") == (0, "", "")


def test_a_server_needs_the_sdk(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    monkeypatch.delitem(sys.modules, "llama_index_gear.cli.mcp_server", raising=False)
    missing = run("mcp", "--store", "s")
    assert (missing.code, missing.out) == (1, "")
    assert missing.err == "error: the server needs the MCP SDK 2: pip install 'llama-index-gear[mcp]'\n"


HEAVY = """
import os, sys

class Stop:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("llama_index", "qdrant_client", "numpy", "torch"):
            os.write(2, b"heavy imports")
            os._exit(0)

sys.meta_path.insert(0, Stop())
from llama_index_gear.cli.main import main
sys.exit(main())
"""


def open_terminal() -> tuple[int, int]:
    """Open a terminal; return its two ends."""
    pty = pytest.importorskip("pty", reason="there are no such terminals on Windows", exc_type=ImportError)
    reader, writer = pty.openpty()
    return reader, writer


def read_all(reader: int) -> bytes:
    """Read to the end of a pipe or of a terminal, which gives each write by itself and whose end is an error."""
    parts = []
    with contextlib.suppress(OSError):
        while part := os.read(reader, 1000):
            parts.append(part)
    os.close(reader)
    return b"".join(parts)


@pytest.mark.parametrize("arguments", [["index", "docs"], ["ask", "Who?", "--json"], ["check"], ["repair"]])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_is_told_what_is_loaded_before_anything_takes_seconds(
    docs: Path, tmp_path: Path, arguments: list[str], is_terminal: bool
) -> None:
    (tmp_path / "gear_store").mkdir()
    program = [sys.executable, "-c", HEAVY, *arguments]
    reader, writer = open_terminal() if is_terminal else os.pipe()
    done = subprocess.run(program, cwd=tmp_path, stdout=subprocess.PIPE, stderr=writer, timeout=60, check=True)
    os.close(writer)
    said = read_all(reader).decode()
    assert done.stdout == b""
    assert said == ("loading all-MiniLM-L6-v2 …\r\n" if is_terminal else "") + "heavy imports"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [(["index", "--help"], 0, "--embed"), (["ask", ""], 2, ""), (["ask", "a", "b"], 2, "")],
)
def test_help_and_a_wrong_question_need_no_heavy_imports(arguments: list[str], code: int, said: str) -> None:
    program = [sys.executable, "-c", HEAVY, *arguments]
    done = subprocess.run(program, capture_output=True, timeout=60, check=False)
    assert done.returncode == code and said in done.stdout.decode() and b"heavy imports" not in done.stderr


def test_logs_and_warnings_leave_progress_bars_whole(run: Runner, docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a library sets up logging of its own, as one of LlamaIndex's readers does when it is imported."""

    def embed(self: WordEmbedding, nodes: Any, **_: Any) -> Any:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s")
        logging.getLogger("openai").info("not shown")
        logging.getLogger("openai").warning("two\nlines")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("of Python", stacklevel=1)
        return original(self, nodes)

    original = WordEmbedding.__call__
    monkeypatch.setattr(WordEmbedding, "__call__", embed)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    done = run("index", "docs", "--store", "s")
    lines = done.err.replace("\r", "\n").splitlines()
    assert done.code == 0 and "not shown" not in done.err
    assert lines.count("warning: two lines") == lines.count("warning: of Python") == 1
    assert all(line.endswith("]") for line in lines if line.startswith(("Reading", "Storing"))), "a bar stands alone"
    assert not logging.getLogger().handlers


class Unspeakable:
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


def test_a_faulty_log_message_of_a_library_ends_nothing(
    run: Runner, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def embed(self: WordEmbedding, nodes: Any, **_: Any) -> Any:
        logging.getLogger("library").warning("%d files", "four")
        logging.getLogger("library").warning("%s %s", "one")
        logging.getLogger("library").warning(Unspeakable())
        return original(self, nodes)

    original = WordEmbedding.__call__
    monkeypatch.setattr(WordEmbedding, "__call__", embed)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    done = run("index", "docs", "--store", "s")
    lines = done.err.replace("\r", "\n").splitlines()
    assert done.code == 0 and "4 new or changed" in done.out
    assert "warning: %d files ('four',)" in lines and "warning: %s %s ('one',)" in lines
    assert "warning: a message of library that can't be written" in lines


@pytest.mark.parametrize("name", ["", " ", "ollama/", "ollama/ "])
@pytest.mark.parametrize("command", [("ask", "Who?"), ("mcp",), ("index", "."), ("extract", "--collection", "c")])
def test_a_name_without_a_model_is_a_wrong_command_line(run: Runner, command: tuple[str, ...], name: str) -> None:
    refused = run(*command, "--llm", name)
    assert refused.code == 2 and refused.err.count("\n") == 1
    assert refused.err.startswith("error: Invalid value for '--llm': it names no model; write gpt-4o-mini")
