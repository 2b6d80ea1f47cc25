"""Commands and the MCP server's tools take turns on a store with other processes, and check it when theirs has come."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

from llama_index_gear import GeARVectorStore
from llama_index_gear.cli import asking, indexing, mcp_store, models, store_folder
from llama_index_gear.cli import serving as serving
from llama_index_gear.cli.main import main
from llama_index_gear.cli.store_note import read_note
from llama_index_gear.errors import StoreLockedError
from llama_index_gear.store.embedded.folder_lock import alock_folder
from llama_index_gear.testing import ScriptedLLM, WordEmbedding

fcntl = pytest.importorskip("fcntl", reason="Windows locks no folders")

Runner = Callable[..., Any]
QUESTION = "Where was Max Born born?"


@contextmanager
def lock_outside(*places: Path) -> Iterator[Callable[[], None]]:
    """Lock folders or files as another process does, until the block ends or what it gets is called."""
    descriptors = [os.open(place, os.O_RDONLY) for place in places]
    for descriptor in descriptors:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def unlock() -> None:
        while descriptors:
            os.close(descriptors.pop())

    try:
        yield unlock
    finally:
        unlock()


def wait_outside(folder: Path) -> int:
    """Wait for a folder in another process, which a store does too; return its exit code."""
    program = (
        "import sys, pathlib; from llama_index_gear.store.embedded.folder_lock import lock_folder\n"
        "lock_folder(pathlib.Path(sys.argv[1]), 120)"
    )
    return subprocess.run([sys.executable, "-c", program, str(folder)], check=False).returncode


def read_ids(folder: Path) -> set[str]:
    with GeARVectorStore.from_path(folder, embed_model=WordEmbedding()) as store:
        return {node.node_id for node in store.get_nodes()}


class Meanwhile:
    """Loads embedding models by name. Another command runs, once, while the first is loaded."""

    def __init__(self, *arguments: str) -> None:
        self.names: list[str] = []
        self.code: int | None = None
        self._arguments = arguments

    def load(self, name: str) -> WordEmbedding:
        self.names.append(name)
        if len(self.names) == 1:
            self.code = main(self._arguments)
        return WordEmbedding()


def test_a_store_that_was_filled_from_another_folder_while_the_model_was_loaded_is_refused(
    run: Runner, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "Ann.txt").write_text("Ann Lee met Bob Smith.")
    meanwhile = Meanwhile("index", "other", "--store", "s")
    monkeypatch.setattr(store_folder, "load_embedding", meanwhile.load)
    refused = run("index", "docs", "--store", "s")
    assert meanwhile.code == 0 and refused.code == 1 and f"holds the files of {other}" in refused.err
    assert read_ids(tmp_path / "s") == {"Ann.txt-0"}


@pytest.mark.parametrize("embed", [[], ["--embed", "mine"]])
def test_a_store_that_was_filled_with_another_model_meanwhile_keeps_it(
    run: Runner, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, embed: list[str]
) -> None:
    meanwhile = Meanwhile("index", "docs", "--store", "s", "--embed", "another")
    monkeypatch.setattr(store_folder, "load_embedding", meanwhile.load)
    done = run("index", "docs", "--store", "s", *embed)
    assert meanwhile.code == 0 and done.code == bool(embed) and meanwhile.names[-1] == "another"
    assert not embed or "was filled with the embedding model 'another'" in done.err
    note = read_note(tmp_path / "s")
    assert note is not None and note.embed_model == "another"


def test_a_command_waits_for_its_turn_and_says_so(run: Runner, docs: Path, tmp_path: Path) -> None:
    run("index", "docs", "--store", "s")
    with lock_outside(tmp_path / "s") as unlock:
        timer = threading.Timer(2, unlock)
        timer.start()
        done = run("index", "docs", "--store", "s")
        timer.join()
    assert done.code == 0 and "0 new or changed" in done.out
    assert "waiting for another process that has the store open (process " in done.err


def test_a_command_does_not_wait_for_ever(
    run: Runner, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("index", "docs", "--store", "s")
    monkeypatch.setattr(store_folder, "_WAIT", 0.2)
    with lock_outside(tmp_path / "s"):
        refused = run("ask", QUESTION, "--store", "s", "--llm", "none")
    assert refused.code == 1 and "repeat it when that has ended (process " in refused.err
    assert "waited for 0.2 s)" in refused.err


def reply_after(work: Callable[[], object]) -> Callable[[str], str]:
    """A model's reply, before which something is done once, as by another process meanwhile."""
    works = [work]

    def reply(prompt: str) -> str:
        if works:
            works.pop()()
        words = prompt.rsplit("\n#####\n", 2)[1].split()
        return json.dumps({"entities": [], "triples": [[words[0], "is told of in", words[-1]]]})

    return reply


def add_document(folder: Path, document: str) -> None:
    """Store a document as a client's `add` does."""
    node = TextNode(id_=f"{document}-0", text="A client's note on toys.")
    node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=document)
    with GeARVectorStore.from_path(folder, embed_model=WordEmbedding()) as store:
        store.add(store.embed_model([node]))


def test_while_a_model_extracts_others_have_the_folder_and_what_they_store_stays(
    run: Runner, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document that meets a file's fails the file, also if it is stored between the plan and the batch."""
    run("index", "docs", "--store", "s")
    (tmp_path / "docs" / "toys.txt").write_text("Lego makes toys.")
    held: list[bool] = []

    def work() -> None:
        with lock_outside(tmp_path / "s"):  # it would raise if the command had the folder
            held.append(False)
        add_document(tmp_path / "s", "toys.txt")

    monkeypatch.setattr(models, "open_llm", lambda name, **_: ScriptedLLM(otherwise=reply_after(work)))
    done = run("index", "docs", "--store", "s", "--llm", "any")
    assert held == [False] and done.code == 1 and "4 files, 4 passages: 4 new" in done.out
    assert "failed: toys.txt: the store has a document 'toys.txt' that is of no file" in done.err
    with GeARVectorStore.from_path(tmp_path / "s", embed_model=WordEmbedding()) as store:
        assert store.get_nodes(["toys.txt-0"])[0].get_content() == "A client's note on toys." and store.check().ok


def test_between_two_batches_who_waits_has_a_turn(
    run: Runner, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "_BATCH", 1)
    run("index", "docs", "--store", "s")
    for path in docs.rglob("*.*"):
        path.write_text(f"{path.read_text()} It is known.")
    turns: list[int] = []
    monkeypatch.setattr(store_folder, "is_awaited", lambda folder: True)
    give = store_folder.FolderTurn.give

    def note(self: store_folder.FolderTurn) -> None:
        give(self)
        with lock_outside(tmp_path / "s"):
            turns.append(1)

    monkeypatch.setattr(store_folder.FolderTurn, "give", note)
    done = run("index", "docs", "--store", "s")
    assert done.code == 0 and "4 new or changed" in done.out and len(turns) >= 3


def test_of_two_runs_that_fill_a_store_the_later_waits_though_the_first_has_left_the_folder(
    run: Runner, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("index", "docs", "--store", "s")
    monkeypatch.setattr(store_folder, "_TOLD_AFTER", 0.1)
    monkeypatch.setattr(store_folder, "_WAIT", 0.1)
    with lock_outside(tmp_path / "s" / ".filler"):
        refused = run("index", "docs", "--store", "s")
        asked = run("ask", QUESTION, "--store", "s", "--llm", "none")
    assert refused.code == 1 and "waiting for another process that has the store open (process " in refused.err
    assert asked.code == 0 and run("index", "docs", "--store", "s").code == 0


def test_questions_at_a_prompt_leave_the_folder_between_them(
    run: Runner, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("index", "docs", "--store", "s")
    free: list[bool] = []

    def type_questions() -> Iterator[str]:
        for _ in range(2):
            with lock_outside(tmp_path / "s"):
                free.append(True)
            yield QUESTION

    monkeypatch.setattr(asking, "read_questions", type_questions)
    assert run("ask", "--store", "s", "--llm", "none").code == 0 and free == [True, True]


@pytest.fixture
def tools(run: Runner, docs: Path, tmp_path: Path, embedding: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(serving, "load_embedding", lambda name: embedding)
    run("index", "docs", "--store", "s")
    return serving.StoreTools(tmp_path / "s")


async def test_a_tool_waits_for_its_turn(tools: serving.StoreTools) -> None:
    with lock_outside(tools.folder) as unlock:
        search = asyncio.create_task(tools.search(QUESTION))
        await asyncio.sleep(0.5)
        assert not search.done()
        unlock()
        assert (await search).passages


async def test_a_tool_that_is_cancelled_waits_no_longer_and_holds_nothing(tools: serving.StoreTools) -> None:
    with lock_outside(tools.folder):
        search = asyncio.create_task(tools.search(QUESTION))
        await asyncio.sleep(0.1)
        search.cancel()
        start = time.monotonic()
        await asyncio.wait([search])
        assert search.cancelled() and time.monotonic() - start < 10
    with lock_outside(tools.folder):  # it has no lock, and nobody is in the queue
        assert not tools._shared._opening.locked()


async def test_a_tool_waits_half_a_minute_at_most(tools: serving.StoreTools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_WAIT", 0.1)
    with lock_outside(tools.folder), pytest.raises(StoreLockedError, match="waited for 0.1 s"):
        await tools.search(QUESTION)


@pytest.mark.parametrize("tool", ["search", "add"])
async def test_tools_that_are_called_together_wait_as_long_as_one(
    tools: serving.StoreTools, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    """Each waits for its own time, not one after the other for the time of each."""
    waited: list[float] = []
    wait = alock_folder

    async def note(folder: Path, seconds: float) -> Any:
        waited.append(seconds)
        return await wait(folder, seconds)

    monkeypatch.setattr(mcp_store, "alock_folder", note)
    monkeypatch.setattr(serving, "_WAIT", 0.5)
    arguments = [(QUESTION,)] * 4 if tool == "search" else [("Toys.", "Toys", f"toys {n}") for n in range(4)]
    with lock_outside(tools.folder):
        ended = await asyncio.gather(*(getattr(tools, tool)(*given) for given in arguments), return_exceptions=True)
    assert all(isinstance(error, StoreLockedError) for error in ended)
    assert sum(waited) <= 0.5 + 3 * 0.1, "the later ones have no time left, but for what was rounded up"


async def test_a_search_does_not_wait_for_a_long_call_that_keeps_a_process_waiting(
    tools: serving.StoreTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shares the store at the end of its time, since the process waits for the long call anyway; others fail."""
    monkeypatch.setattr(serving, "_WAIT", 0.1)
    queue = tools.folder / ".queue"
    queue.touch()
    async with tools._open(is_short=False):  # an agent's, say
        with lock_outside(queue):
            assert (await tools.search(QUESTION)).passages
            with pytest.raises(StoreLockedError, match="earlier calls of this server"):
                await tools.add("Toys.", "Toys", "toys")

            async def report(step: int, message: str) -> None: ...

            with pytest.raises(StoreLockedError, match="earlier calls of this server"):
                await tools.ask(QUESTION, report)
        assert (await tools.search(QUESTION)).passages


async def test_an_open_store_is_closed_for_who_waits(
    tools: serving.StoreTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_store, "_IDLE", 1_000)
    await tools.search(QUESTION)
    assert tools._shared.is_open
    assert await asyncio.to_thread(wait_outside, tools.folder) == 0
    assert (await tools.search(QUESTION)).passages


async def test_tools_that_follow_each_other_without_end_leave_a_turn_to_who_waits(tools: serving.StoreTools) -> None:
    """While another process waits, no tool joins those that have the store open."""
    queue = tools.folder / ".queue"
    queue.touch()
    async with tools._open():
        with lock_outside(queue) as unlock:
            late = asyncio.create_task(tools.search(QUESTION))
            await asyncio.sleep(0.3)
            assert tools._shared._users == 1 and not late.done()
            unlock()
            assert (await late).passages
