"""Two `index` runs, an MCP server under calls and cancels, and a program of its own work on one folder: it ends whole.

    GEAR_SECONDS=600 GEAR_SEED=1 pytest -m long integration_tests/processes/test_shared_folder.py -s

Files are edited, made and deleted meanwhile. In the end the store is equal to one that was filled by one process, with
payloads and vectors.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import mcp
import pytest
from llama_index.core.schema import BaseNode
from repository import ROOT

from llama_index_gear import GeARVectorStore
from llama_index_gear.cli import serving as serving
from llama_index_gear.cli import store_folder
from llama_index_gear.cli.main import main
from llama_index_gear.errors import StoreLockedError
from llama_index_gear.store.schema import REPLACED, WRITE
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import passage

SECONDS = float(os.environ.get("GEAR_SECONDS", "6"))
SEED = int(os.environ.get("GEAR_SEED", "0"))
EMBED = WordEmbedding(32)
FILES, DOCUMENTS, PASSAGES = 12, 6, 6
NAMES = ("Ada Lee", "Max Born", "Olivia Kern", "Bob Smith", "Eva Roth", "Ann Wolf")
PROCESSES = multiprocessing.get_context("fork")
SERVE = """
import sys
from llama_index_gear.cli import main, serving as serving
from llama_index_gear.testing import WordEmbedding
serving.load_embedding = lambda name: WordEmbedding(32)
sys.exit(main.main())
"""
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),  # forks; the SDK's own
]


def make_text(rng: random.Random) -> str:
    return " ".join(f"{rng.choice(NAMES)} met {rng.choice(NAMES)} in Rome {rng.randrange(50)}." for _ in range(8))


def make_node(number: int, version: int) -> BaseNode:
    facts = [(NAMES[number % len(NAMES)], "has version", f"V{version % 7}"), ("Rome", "is in", "Italy")]
    return passage(f"own-{number}", f"Entity {number} in version {version}", facts, embed_model=EMBED)


def wait(begin: Any) -> float:
    """Wait until all begin; return when they are to end."""
    begin.wait()
    return time.monotonic() + SECONDS


def index(docs: Path, store: Path) -> int:
    """Run the command, in a process of its own; return its exit code."""
    if (child := os.fork()) == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = main(["index", str(docs), "--store", str(store)])
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run_indexes(docs: Path, store: Path, begin: Any, sent: Connection) -> None:
    """Run the command again and again."""
    done, end = 0, wait(begin)
    while time.monotonic() < end:
        if (code := index(docs, store)) != 0:
            sent.send(f"index ended with {code}")
            return
        done += 1
    sent.send({"index": done})


def run_program(store: Path, begin: Any, sent: Connection) -> None:
    """Add, delete and read passages, each with the store opened for it; a call on a locked store is repeated."""
    rng, state, counts = random.Random(SEED + 2), dict[int, int](), Counter[str]()
    end = wait(begin)
    while time.monotonic() < end:
        number, version = rng.randrange(PASSAGES), rng.randrange(1000)
        kind = rng.choice(("add", "add", "delete", "read"))
        try:
            with GeARVectorStore.from_path(store, embed_model=EMBED) as opened:
                if kind == "add":
                    opened.add([make_node(number, version)])
                    state[number] = version
                elif kind == "delete":
                    opened.delete_nodes([f"own-{number}"])
                    state.pop(number, None)
                else:
                    found = {node.node_id for node in opened.get_nodes() if node.node_id.startswith("own-")}
                    assert found == {f"own-{number}" for number in state}
        except StoreLockedError:  # nothing was done
            counts["locked"] += 1
        except BaseException as error:  # noqa: BLE001 - the test tells
            sent.send(repr(error))
            return
        counts[kind] += 1
    sent.send({**counts, "state": state})


def edit_files(docs: Path, rng: random.Random) -> None:
    """Edit, make or delete a file, whole at each moment."""
    place = docs / f"file {rng.randrange(FILES)}.txt"
    if rng.random() < 0.2:
        place.unlink(missing_ok=True)
    else:
        draft = docs / ".draft"
        draft.write_text(make_text(rng))
        draft.replace(place)


async def call_server(docs: Path, store: Path, errors: Path, begin: Any) -> tuple[Counter[str], dict[str, str]]:
    """Call the tools, and cancel some calls; return how often, and the texts of the documents.

    What is cancelled may be done in part. So the last call on each document is not cancelled.
    """
    rng, counts, documents = random.Random(SEED + 1), Counter[str](), dict[str, str]()
    started = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-c", SERVE, "mcp", "--store", str(store), "--write", "--llm", "none"],
        env={"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
    )
    with errors.open("w") as log:
        async with mcp.Client(mcp.stdio_client(started, errlog=log)) as client:

            async def call(tool: str, *, cancel: float = 0, **arguments: Any) -> None:
                task = asyncio.create_task(client.call_tool(tool, arguments))
                if cancel:
                    await asyncio.wait([task], timeout=cancel)
                    task.cancel()
                    await asyncio.wait([task])
                    counts["cancelled"] += task.cancelled()
                    return
                result = await task
                first = result.content[0]
                said = first.text if isinstance(first, mcp.types.TextContent) else ""
                is_known = tool == "delete" and "there is no document" in said
                assert not result.is_error or is_known, f"{tool}: {said}"
                counts[tool] += 1

            await call("search", question="Who is Ada Lee?")
            begin.set()
            end = wait(begin)
            while time.monotonic() < end:
                edit_files(docs, rng)
                name, text = f"note {rng.randrange(DOCUMENTS)}", make_text(rng)
                cancel = rng.choice((0, rng.uniform(0.001, 0.2)))
                kind = rng.choice(("search", "several", "add", "delete"))
                if kind == "search":
                    await call("search", question="Whom did Max Born meet?", cancel=cancel)
                elif kind == "several":
                    questions = (f"Whom did {who} meet?" for who in NAMES[:4])
                    await asyncio.gather(*(call("search", question=question) for question in questions))
                elif kind == "add":
                    await call("add", id=name, title=name, text=text, cancel=cancel)
                else:
                    await call("delete", id=name, cancel=cancel)
            for number in range(DOCUMENTS):
                name, text = f"note {number}", make_text(rng)
                await call("add", id=name, title=name, text=text)
                if number % 2:
                    await call("delete", id=name)
                else:
                    documents[name] = text
    return counts, documents


def dump(folder: Path) -> dict[str, dict[str, tuple[dict[str, Any], dict[str, list[float]]]]]:
    """Return payloads and vectors of all points, by collection; and assert that the store is in order."""
    with GeARVectorStore.from_path(folder, embed_model=EMBED) as store:
        report = store.check(sample_size=0)
        assert report.ok, report
        found = {}
        for name in (store.collection_name, store.triple_collection_name):
            points, rest = store.client.scroll(name, limit=10_000, with_vectors=True)
            assert rest is None
            found[name] = {str(point.id): (read_payload(point.payload), flatten(point.vector)) for point in points}
    return found


def read_payload(payload: dict[str, Any]) -> dict[str, Any]:
    """Return a payload without the names of the writes that stored it."""
    return {key: value for key, value in payload.items() if key not in (WRITE, REPLACED)}


def flatten(vectors: Any) -> dict[str, list[float]]:
    """Return each vector as a list; a sparse one by its indices."""
    flat = {}
    for name, vector in vectors.items():
        pairs = sorted(zip(vector.indices, vector.values, strict=True)) if hasattr(vector, "indices") else []
        flat[name] = [float(x) for pair in pairs for x in pair] or [float(x) for x in vector]
    return flat


@contextmanager
def run_beside(*works: Callable[[Connection], None]) -> Iterator[list[Connection]]:
    """Run functions in processes of their own, which send what they did."""
    ends, processes = [], []
    for work in works:
        received, sent = PROCESSES.Pipe(duplex=False)
        processes.append(PROCESSES.Process(target=work, args=(sent,)))
        processes[-1].start()
        sent.close()
        ends.append(received)
    try:
        yield ends
    finally:
        for process in processes:
            process.join(timeout=120)
            process.kill()


async def test_processes_on_one_folder_end_as_one_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (store_folder, serving):
        monkeypatch.setattr(module, "load_embedding", lambda name: EMBED)
    docs, store, rng = tmp_path / "docs", tmp_path / "store", random.Random(SEED)
    docs.mkdir()
    for _ in range(3 * FILES):
        edit_files(docs, rng)
    (docs / "stays.txt").write_text(make_text(rng))
    twin = tmp_path / "twin"
    assert index(docs, store) == index(docs, twin) == 0
    begin = PROCESSES.Event()
    with run_beside(
        lambda sent: run_indexes(docs, store, begin, sent),
        lambda sent: run_indexes(docs, store, begin, sent),
        lambda sent: run_program(store, begin, sent),
    ) as works:
        counts, documents = await call_server(docs, store, tmp_path / "errors", begin)
        told = [await asyncio.to_thread(work.recv) for work in works]
    print(f"seed {SEED}, {SECONDS:g} s: server {dict(counts)}; others {json.dumps(told)}")  # noqa: T201 - a report
    assert all(isinstance(one, dict) for one in told), told
    assert min(told[0]["index"], told[1]["index"], told[2].get("add", 0), counts.total()) >= 2  # none is starved
    assert (tmp_path / "errors").read_text() == ""
    assert index(docs, store) == index(docs, twin) == 0
    tools = serving.StoreTools(twin)
    for name, text in documents.items():
        await tools.add(text, name, name)
    await tools.finish()
    with GeARVectorStore.from_path(twin, embed_model=EMBED) as opened:
        opened.add([make_node(number, version) for number, version in told[2]["state"].items()])
    ours, theirs = dump(store), dump(twin)
    for name, points in theirs.items():
        assert ours[name].keys() == points.keys()
        for point, (payload, vectors) in points.items():
            assert ours[name][point][0] == payload
            assert ours[name][point][1].keys() == vectors.keys()
            for kind, vector in vectors.items():
                assert ours[name][point][1][kind] == pytest.approx(vector, abs=1e-3), (point, kind)
