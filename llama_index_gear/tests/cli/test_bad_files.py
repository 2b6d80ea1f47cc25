"""`index` names each file that can't be read within its bounds as failed, and indexes all others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.node_parser import SentenceSplitter

from llama_index_gear import GeARVectorStore
from llama_index_gear.ingestion import file_texts
from llama_index_gear.ingestion import files as folder_files
from llama_index_gear.ingestion.files import FolderReader
from llama_index_gear.ingestion.reading_process import ReadingProcess
from llama_index_gear.ingestion.regular_files import UnreadableFile, read_file
from llama_index_gear.testing import WordEmbedding

Runner = Callable[..., Any]

# A parser for the process: what it does stands in the file.
PARSER = """
import os, signal, sys, time
from llama_index_gear.ingestion.regular_files import NoText

def parse(path, only_title=False):
    text = path.read_text()
    if "interrupt" in text:
        os.kill(os.getppid(), signal.SIGINT)
    if "sleep" in text:
        time.sleep(600)
    if "leave" in text:
        os._exit(3)
    if "grow" in text:
        bytearray(2 ** 45)
    if "nest" in text:
        return parse(path)
    if "fail" in text:
        raise ValueError("no page" if len(text) < 9 else text * 10_000)
    if "empty" in text:
        raise NoText("nothing in it")
    print("a line of a library")
    return "", [text]
"""


@pytest.fixture
def parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a parser whose files say what it does."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "gear_test_parser.py").write_text(PARSER)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    monkeypatch.setattr(folder_files, "PARSER", "gear_test_parser:parse")
    return "gear_test_parser:parse"


def list_stored(folder: Path) -> set[str]:
    with GeARVectorStore.from_path(folder, embed_model=WordEmbedding()) as store:
        assert store.check().ok
        return {node.metadata["file"] for node in store.get_nodes(with_embeddings=False)}


def test_what_a_parser_does_to_itself_ends_no_run(run: Runner, docs: Path, tmp_path: Path, parser: str) -> None:
    """Files before and after one that hangs, grows, nests or ends the process are indexed."""
    says = ("sleep", "leave", "grow", "nest", "fail", "empty", "Ada met Bob in Basel.")
    for number, text in enumerate(says):
        (docs / f"page {number}.html").write_text(text)
    done = run("index", "docs", "--store", "s", "--file-timeout", "2")
    failures = [
        "failed: page 0.html: takes longer than 2 seconds: save it as text, or raise --file-timeout",
        "failed: page 1.html: ended the program that reads it: save it as text",
        "failed: page 2.html: takes more than 4 GB of memory: save it as text",
        "failed: page 3.html: nests too deep: save it as text",
        "failed: page 4.html: ValueError: no page",
    ]
    assert [line for line in done.err.splitlines() if line.startswith("failed:")] == failures
    assert done.code == 1 and "skipped: page 5.html: nothing in it" in done.err
    assert "5 files, 5 passages: 5 new" in done.out and "a line of a library" not in done.out
    assert "page 6.html" in list_stored(tmp_path / "s")


def test_no_process_is_started_for_text_and_one_for_all_else(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    popen = subprocess.Popen

    def count(*arguments: Any, **options: Any) -> Any:
        started.append(arguments)
        return popen(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", count)
    reader = FolderReader(docs, tmp_path / "s")
    assert all(reader.read(path) for path in reader.list_files()) and not started
    for number in range(3):
        (docs / f"{number}.html").write_text("<h1>Ada</h1>")
        (docs / f"{number}.csv").write_text("Ada,Basel")
    assert all(reader.read(path) for path in reader.list_files()) and len(started) == 1
    process = reader._process._process if reader._process else None
    reader.close()
    assert process is not None and process.returncode is not None


INTERRUPTED = """
import signal, sys
from pathlib import Path
from llama_index_gear.ingestion.reading_process import ReadingProcess

signal.signal(signal.SIGINT, signal.default_int_handler)
with ReadingProcess("gear_test_parser:parse") as process:
    for name in ("fast", "slow", "fast"):
        try:
            print(process.read(Path(name), name), flush=True)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
"""


@pytest.mark.usefixtures("parser")
def test_an_interrupted_call_leaves_no_answer_behind(tmp_path: Path) -> None:
    """The answer to an interrupted call is not taken for the answer to the next."""
    (tmp_path / "slow").write_text("interrupt, then sleep")
    (tmp_path / "fast").write_text("Ada.")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-X", "faulthandler", "-c", INTERRUPTED]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "['', ['Ada.']]\ninterrupted\n['', ['Ada.']]\n"), done.stderr


def test_a_time_that_ends_just_after_the_answer_fails_no_other_file(
    tmp_path: Path, parser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is killed then; the next file has one of its own."""

    class Late(threading.Timer):
        def cancel(self) -> None:
            self.function()
            super().cancel()

    (tmp_path / "page").write_text("Ada.")
    with ReadingProcess(parser) as process:
        assert process.read(tmp_path / "page", "page") == ["", ["Ada."]]
        with monkeypatch.context() as patched:
            patched.setattr(threading, "Timer", Late)
            assert process.read(tmp_path / "page", "page") == ["", ["Ada."]]
        assert process.read(tmp_path / "page", "page") == ["", ["Ada."]]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
@pytest.mark.parametrize("ending", ["txt", "html"])
def test_a_file_that_goes_while_others_are_read_fails_no_run_and_is_deleted_by_the_next(
    run: Runner, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    (docs / f"z.{ending}").write_text("Ada met Bob in Basel.")
    assert run("index", "docs", "--store", "s").code == 0
    list_files = FolderReader.list_files

    def list_and_delete(self: FolderReader) -> list[Path]:
        paths = list_files(self)
        (docs / f"z.{ending}").unlink(missing_ok=True)
        return paths

    monkeypatch.setattr(FolderReader, "list_files", list_and_delete)
    done = run("index", "docs", "--store", "s")
    assert (done.code, "failed" in done.err) == (0, False) and f"z.{ending}" in list_stored(tmp_path / "s")
    assert run("index", "docs", "--store", "s").code == 0 and f"z.{ending}" not in list_stored(tmp_path / "s")


def test_what_is_no_regular_file_is_not_waited_for(run: Runner, docs: Path) -> None:
    for name in ("player.fifo", "player.html", "player.pdf"):
        os.mkfifo(docs / name)
    (docs / "zero.txt").symlink_to("/dev/zero")
    done = run("index", "docs", "--store", "s")
    assert done.code == 1 and "4 files, 4 passages: 4 new" in done.out
    for name in ("player.fifo", "player.html", "player.pdf", "zero.txt"):
        assert f"failed: {name}: no regular file but a pipe, a device or a socket: move it" in done.err


def test_a_file_is_read_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit holds for what is there, and for what is appended while it is read."""
    path = tmp_path / "a.log"
    path.write_bytes(b"x" * 100)
    assert len(read_file(path, 100)) == 100
    with pytest.raises(UnreadableFile, match=r"larger than 0 MB: split it"):
        read_file(path, 99)
    fstat = os.fstat

    def append(descriptor: int) -> os.stat_result:
        found = fstat(descriptor)
        with path.open("ab") as file:
            file.write(b"x" * 100)
        return found

    monkeypatch.setattr(os, "fstat", append)
    with pytest.raises(UnreadableFile, match="larger than"):
        read_file(path, 150)


def test_large_files_are_named(run: Runner, docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("large.txt", "large.html"):
        (docs / name).write_text("Ada met Bob. " * 1_000)
    monkeypatch.setattr(file_texts, "MOST", 10_000)
    monkeypatch.setattr(folder_files, "MOST", 10_000)
    done = run("index", "docs", "--store", "s")
    assert done.code == 1 and "4 files, 4 passages" in done.out
    assert done.err.count("failed: large.") == 2 and "MB: split it" in done.err


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="the system's names are Unicode")
def test_a_name_that_is_no_utf_8_is_named(run: Runner, docs: Path, tmp_path: Path) -> None:
    before = list_stored(tmp_path / "s") if run("index", "docs", "--store", "s").code == 0 else set()
    for name in (b"caf\xe9.txt", b"caf\xe9.html", b"stra\xdfe/Ada.txt"):
        place = os.path.join(os.fsencode(docs), name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(b"Ada met Bob in Basel.")
    done = run("index", "docs", "--store", "s")
    assert done.code == 1 and "4 files, 4 passages: 0 new or changed, 0 deleted" in done.out
    for shown in ("caf\\xe9.txt", "caf\\xe9.html", "stra\\xdfe/Ada.txt"):
        assert f"failed: {shown}: its name is no UTF-8: rename it" in done.err
    assert list_stored(tmp_path / "s") == before


def test_a_folder_whose_own_name_is_no_utf_8_is_indexed(run: Runner, docs: Path, tmp_path: Path) -> None:
    if sys.platform in ("darwin", "win32"):
        pytest.skip("the system's names are Unicode")
    folder = os.fsdecode(os.path.join(os.fsencode(tmp_path), b"caf\xe9"))
    docs.rename(folder)
    assert "4 files, 4 passages: 4 new" in run("index", folder, "--store", "s").out


def test_what_nests_without_end_is_a_text_or_is_named(run: Runner, docs: Path, tmp_path: Path) -> None:
    """JSON, notebooks and HTML are named; HTML of a hundred levels is read; the note of a store is damaged."""
    nested = "[" * 20_000
    (docs / "nested.ipynb").write_text("[ " * 20_000)
    (docs / "index.json").write_text(nested)
    (docs / "nested.html").write_text("<div>" * 20_000 + "Ada met Bob.")
    (docs / "deep.html").write_text("<div>" * 100 + "Ada met Bob.")
    said = run("index", "docs", "--store", "s").err
    assert "failed: index.json: nests too deep: save it as text" in said
    assert "failed: nested.html: ended the program that reads it: save it as text" in said
    assert "failed: nested.ipynb: " in said and "deep.html" in list_stored(tmp_path / "s")
    (tmp_path / "s" / "index.json").write_text(json.dumps({"embed_model": "x", "files": ""})[:-1] + ', "x": ' + nested)
    damaged = run("index", "docs", "--store", "s")
    assert damaged.code == 1 and "s/index.json is damaged: delete s" in damaged.err and damaged.err.count("\n") == 1


def test_what_a_parser_says_is_bounded(tmp_path: Path, parser: str) -> None:
    (tmp_path / "page").write_text("fail at length")
    with ReadingProcess(parser) as process, pytest.raises(UnreadableFile) as raised:
        process.read(tmp_path / "page", "page")
    assert len(str(raised.value)) <= 300


def test_a_small_file_that_grows_when_it_is_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table repeats the names of its columns in each row, but no name that is a text."""
    (tmp_path / "a.csv").write_text("name,city\n" + "Ada,Basel\n" * 200)
    assert "name: Ada; city: Basel." in file_texts.parse_file(tmp_path / "a.csv")[1][0]
    monkeypatch.setattr(file_texts, "MOST", 3_000)
    with pytest.raises(UnreadableFile, match="characters of text: split it"):
        file_texts.parse_file(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text(f"{'a ' * 500},b\n" + "1,x\n" * 100)
    assert len(file_texts.parse_file(tmp_path / "b.csv")[1][0]) < 3_000


def test_marks_without_end_are_stored_as_they_are(run: Runner, docs: Path, tmp_path: Path) -> None:
    """LlamaIndex's own splitter calls itself for each of several exclamation marks."""
    (docs / "loud.txt").write_text("Ada met Bob in Basel. " * 1_200 + "!?" * 3_000)
    assert run("index", "docs", "--store", "s").code == 0
    with GeARVectorStore.from_path(tmp_path / "s", embed_model=WordEmbedding()) as store:
        texts = [node.get_content() for node in store.get_nodes() if node.metadata["file"] == "loud.txt"]
    assert sum(text.count("!") for text in texts) >= 3_000


@pytest.mark.parametrize("error", [TimeoutError("a pattern " * 1_000), ValueError("a token"), MemoryError()])
def test_whatever_a_splitter_raises_fails_one_file(
    run: Runner, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Of a text of 400,000 dots nltk raises that it takes too long."""
    cut = SentenceSplitter.get_nodes_from_documents

    def fail(self: SentenceSplitter, documents: Any, **options: Any) -> Any:
        if documents[0].metadata["file"] == "contents.txt":
            raise error
        return cut(self, documents, **options)

    (docs / "contents.txt").write_text("Contents . . . . . 7")
    monkeypatch.setattr(SentenceSplitter, "get_nodes_from_documents", fail)
    done = run("index", "docs", "--store", "s")
    (line,) = [line for line in done.err.splitlines() if line.startswith("failed:")]
    assert done.code == 1 and "4 files, 4 passages: 4 new" in done.out and len(line) < 500
    assert line.startswith("failed: contents.txt: ") and type(error).__name__ in line
    assert len(list_stored(tmp_path / "s")) == 4


def test_an_interrupt_while_files_are_read_keeps_what_was_read(
    run: Runner, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that were read are stored; nothing of the others is deleted; the next run does what is left."""
    assert run("index", "docs", "--store", "s").code == 0
    before = list_stored(tmp_path / "s")
    for name in ("AAA.txt", "ZZZ.txt"):
        (docs / name).write_text("Ada met Bob in Basel.")
    read = FolderReader.read

    def interrupt(self: FolderReader, path: Path) -> Any:
        if path.name == "Lego.txt":
            raise KeyboardInterrupt
        return read(self, path)

    with monkeypatch.context() as patched:
        patched.setattr(FolderReader, "read", interrupt)
        stopped = run("index", "docs", "--store", "s")
    assert stopped.code == 1 and "stopped: 4 files not read; what was read is stored now" in stopped.err
    assert stopped.err.endswith("error: stopped; repeat the command, and it does what is left\n")
    assert "2 files, 2 passages: 1 new or changed, 0 deleted" in stopped.out
    assert list_stored(tmp_path / "s") == before | {"AAA.txt"}
    again = run("index", "docs", "--store", "s")
    assert again.code == 0 and "1 new or changed, 0 deleted" in again.out


def test_an_interrupt_before_anything_is_read_changes_nothing(
    run: Runner, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: FolderReader, path: Path) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(FolderReader, "read", interrupt)
    stopped = run("index", "docs", "--store", "s")
    assert stopped.code == 1 and stopped.out == "" and not (tmp_path / "s").exists()
