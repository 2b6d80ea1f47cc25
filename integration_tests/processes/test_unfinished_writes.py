"""Kills and cancels of every command and tool that writes, each followed by the same call: it ends as if undisturbed.

    GEAR_KILLS=300 GEAR_CANCELS=100 GEAR_SEED=1 pytest -m long integration_tests/processes/test_unfinished_writes.py -s

Each round is compared with a twin that nothing disturbed: payloads and vectors. `check` finds the store in order, and
no payload, trace or page has a sentence of a text that was deleted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest
from llama_index.core.schema import BaseNode
from qdrant_client import QdrantClient, models
from repository import ROOT

from llama_index_gear import ExistingCollection, GeARQueryEngine, GeARVectorStore, GraphRetriever
from llama_index_gear.cli import indexing, store_folder
from llama_index_gear.cli import serving as serving
from llama_index_gear.cli.main import main
from llama_index_gear.errors import ArgumentError
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.testing import ScriptedLLM, WordEmbedding
from llama_index_gear.tests.processes import PROCESSES
from llama_index_gear.tests.store_contract import Contents, contents, passage

KILLS = int(os.environ.get("GEAR_KILLS", "10"))
CANCELS = int(os.environ.get("GEAR_CANCELS", "6"))
SEED = int(os.environ.get("GEAR_SEED", "0"))
EMBED = WordEmbedding(32)
SECRET = "secretly"
QUESTION = "Whom did Dora Diamant secretly marry, and who lived with Franz Kafka in Prague?"
STEP = '{"needed": [1], "facts": [["Ada Orr", "knew", "Dora Diamant"]], "answerable": true, "answer": "Prague"}'
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a signal that nobody can catch"),
]

# -- what is written ---------------------------------------------------------------------------------------------------

BEFORE = {
    "Dora Diamant": "Dora Diamant secretly married Franz Kafka in Basel.",
    "Franz Kafka": "Franz Kafka wrote The Trial in Prague. Franz Kafka secretly met Felix Weltsch in Vienna.",
    "Max Brod": "Max Brod was a friend of Franz Kafka.",
    "Ada Orr": "Ada Orr knew Dora Diamant from the theatre in Berlin.",
    "Felix Weltsch": "Felix Weltsch secretly left Prague for Palestine with Max Brod.",
}
AFTER = {
    "Dora Diamant": "Dora Diamant liked tea.",
    "Franz Kafka": "Franz Kafka wrote The Trial in Prague. Franz Kafka lived with Max Brod in Prague.",
    "Max Brod": "Max Brod was a friend of Franz Kafka.",
    "Ada Orr": "Ada Orr knew Dora Diamant from the theatre in Berlin.",
    "Robert Klopstock": "Robert Klopstock was a doctor in Kierling. Robert Klopstock knew Ada Orr.",
}
PAIRS = [("Ada Orr", "Franz Kafka"), ("Max Brod", "Dora Diamant")]


def write_files(texts: Mapping[str, str], folder: Path) -> None:
    shutil.rmtree(folder / "docs", ignore_errors=True)
    (folder / "docs").mkdir(parents=True)
    for name, text in texts.items():
        (folder / "docs" / f"{name}.txt").write_text(text, "utf-8")


def write_collection(texts: Mapping[str, str], folder: Path) -> None:
    """Make the collection of another program hold these texts."""
    client = QdrantClient(path=str(folder / "theirs"))
    if not client.collection_exists("docs"):
        client.create_collection("docs", vectors_config=models.VectorParams(size=32, distance=models.Distance.COSINE))
    names = sorted({*BEFORE, *AFTER})
    client.delete("docs", points_selector=list(range(len(names))))
    points = [
        models.PointStruct(
            id=names.index(name), payload={"text": text, "title": name}, vector=EMBED.get_text_embedding(text)
        )
        for name, text in texts.items()
    ]
    client.upsert("docs", points)
    client.close()


def run_command(command: str, folder: Path) -> None:
    os.chdir(folder)
    assert main(command.split()) == 0


def open_store(folder: Path, name: str = "s") -> GeARVectorStore:
    return GeARVectorStore.from_path(folder / name, embed_model=EMBED)


def extract_to(folder: Path) -> None:
    theirs = ExistingCollection.from_path(folder / "theirs", "docs")
    with theirs, open_store(folder) as store:
        theirs.extract_to(store)


def call_tool(folder: Path, work: Callable[[serving.StoreTools], Any]) -> None:
    asyncio.run(work(serving.StoreTools(folder / "s")))


def add_document(texts: Mapping[str, str], folder: Path) -> None:
    text = "\n\n".join(texts.values())
    call_tool(folder, lambda tools: tools.add(text, "Notes", "notes"))


def delete_document(folder: Path) -> None:
    with suppress(ArgumentError):  # there is none any more
        call_tool(folder, lambda tools: tools.delete("notes"))


def make_nodes(texts: Mapping[str, str]) -> list[BaseNode]:
    return [
        passage(name, text, [(name, "says", text), (name, "is in", "Hub")], document=name, embed_model=EMBED)
        for name, text in texts.items()
    ]


def fill(texts: Mapping[str, str], name: str, folder: Path) -> None:
    with open_store(folder, name) as store:
        store.add(make_nodes(texts))


def copy_to(folder: Path) -> None:
    with open_store(folder, "source") as source, open_store(folder) as store:
        source.copy_to(store)


def change_links(method: str, folder: Path) -> None:
    with open_store(folder) as store:
        getattr(store, method)(PAIRS)


index = partial(run_command, "index docs --store s")
extract = partial(run_command, "extract --collection docs --path theirs --store s")
indexed = (partial(write_files, AFTER), index)


class Round(NamedTuple):
    """What is done before the call that is killed; the call; and what is done before it is made again."""

    before: tuple[Callable[[Path], None], ...]
    call: Callable[[Path], None]
    between: tuple[Callable[[Path], None], ...] = ()


ROUNDS = {
    "index": Round(
        (partial(write_files, BEFORE), index, partial(write_files, AFTER)),
        index,
    ),
    "index of an edit that is taken back": Round(
        (*indexed, partial(write_files, BEFORE)), index, (partial(write_files, AFTER),)
    ),
    "extract": Round(
        (partial(write_collection, BEFORE), extract, partial(write_collection, AFTER)),
        extract,
    ),
    "ExistingCollection": Round(
        (partial(write_collection, BEFORE), extract_to, partial(write_collection, AFTER)), extract_to
    ),
    "ExistingCollection of an edit that is taken back": Round(
        (partial(write_collection, AFTER), extract_to, partial(write_collection, BEFORE)),
        extract_to,
        (partial(write_collection, AFTER),),
    ),
    "mcp add": Round((*indexed, partial(add_document, BEFORE)), partial(add_document, AFTER)),
    "mcp delete": Round((*indexed, partial(add_document, BEFORE)), delete_document),
    "copy_to": Round(
        (partial(fill, {**AFTER, "Felix Weltsch": "Felix."}, "source"), partial(fill, BEFORE, "s")), copy_to
    ),
    "link_aliases": Round(indexed, partial(change_links, "link_aliases")),
    "unlink_aliases": Round((*indexed, partial(change_links, "link_aliases")), partial(change_links, "unlink_aliases")),
}

# -- processes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kill:
    """The moment of a kill: before or after the nth write of the engine, or after some seconds.

    Attributes:
        write: number of the write; 0: none.
        is_done: after that write.
        seconds: after the call began.

    """

    write: int = 0
    is_done: bool = False
    seconds: float = 0


class End(NamedTuple):
    """What a store holds after a call, and what is wrong with it; the call's writes of the engine, and its seconds."""

    held: Contents
    faults: list[str]
    writes: int
    seconds: float


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def count_writes(kill: Kill | None) -> list[int]:
    """Have this process count its engine's writes, in the list's only member, and die at the one that is drawn."""
    count = [0]

    def watch(name: str) -> None:
        write = getattr(EdgeClient, name)

        def watched(self: EdgeClient, *arguments: Any, **options: Any) -> Any:
            count[0] += 1
            if kill and kill.write == count[0] and not kill.is_done:
                die()
            result = write(self, *arguments, **options)
            if kill and kill.write == count[0]:
                die()
            return result

        setattr(EdgeClient, name, watched)

    for name in ("_update", "create_collection", "delete_collection"):
        watch(name)
    return count


def work(folder: Path, steps: tuple[Callable[[Path], None], ...], kill: Kill | None, far_end: Connection) -> None:
    """Do the steps in this process, and report how the store is then. A kill comes in the last step."""
    logging.disable(logging.ERROR)
    sys.stdout = sys.stderr = open(os.devnull, "w")
    for module in (store_folder, serving):
        module.load_embedding = lambda name: EMBED  # type: ignore[attr-defined]
    indexing._BATCH = 2
    for step in steps[:-1]:
        step(folder)
    count, start = count_writes(kill), time.perf_counter()
    if kill and kill.seconds:
        threading.Timer(kill.seconds, die).start()
    steps[-1](folder)
    writes, seconds = count[0], time.perf_counter() - start
    with open_store(folder) as store:
        far_end.send(End(contents(store), find_faults(store, folder), writes, seconds))


def find_faults(store: GeARVectorStore, folder: Path) -> list[str]:
    """Name what is wrong with a store: what `check` finds, and places where a text tells what was deleted."""
    report = store.check()
    found = GraphRetriever(store, similarity_top_k=20).retrieve(QUESTION)
    engine = GeARQueryEngine.from_vector_store(store, llm=ScriptedLLM([STEP] * 9))
    response, trace = engine.query_with_trace(QUESTION)
    store.to_html(folder / "page.html", "Dora Diamant")
    places = {
        "payloads": json.dumps(
            [
                point.payload
                for name in (store.collection_name, store.triple_collection_name)
                for point in store.client.scroll(name, limit=1000)[0]
            ]
        ),
        "results": str([(result.get_content(), result.metadata) for result in found]),
        "trace": f"{trace.model_dump_json()} {response.metadata}".replace(QUESTION, ""),
        "page": (folder / "page.html").read_text("utf-8"),
    }
    told = [place for place, text in places.items() if SECRET in text]
    return [*([] if report.ok else [str(report)]), *(f"{place}: a deleted sentence" for place in told)]


def run_process(folder: Path, *steps: Callable[[Path], None], kill: Kill | None = None) -> End | None:
    """Do the steps in a process of their own; return None if it was killed."""
    connection, far_end = PROCESSES.Pipe()
    process = PROCESSES.Process(target=work, args=(folder, steps, kill, far_end))
    process.start()
    far_end.close()
    try:
        end: End = connection.recv()
    except EOFError:
        process.join()
        assert process.exitcode == -signal.SIGKILL, process.exitcode
        return None
    finally:
        connection.close()
    process.join()
    return end


def draw_kill(rng: random.Random, twin: End) -> Kill:
    if rng.random() < 0.25:
        return Kill(seconds=rng.uniform(0.001, twin.seconds))
    return Kill(rng.randint(1, twin.writes), rng.random() < 0.5)


def test_a_call_that_is_killed_and_made_again_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    counts, folder = Counter[str](), tmp_path / "work"
    # Always in the same folder: stores know the places of files and collections that they were filled from.
    for number, (name, round_) in enumerate(ROUNDS.items()):
        if not (kills := len(range(number, KILLS, len(ROUNDS)))):
            continue
        counts[name] = kills
        folder.mkdir()
        run_process(folder, *round_.before)
        template = folder.rename(tmp_path / f"template {number}")
        shutil.copytree(template, folder)
        whole = run_process(folder, round_.call)
        shutil.rmtree(folder)
        shutil.copytree(template, folder)
        twin = run_process(folder, *round_.between, round_.call) if round_.between else whole
        assert whole and twin and not twin.faults, (name, twin)
        for n in range(kills):
            kill = draw_kill(random.Random(f"{SEED} {name} {n}"), whole)
            shutil.rmtree(folder)
            shutil.copytree(template, folder)
            counts["killed"] += run_process(folder, round_.call, kill=kill) is None
            again = run_process(folder, *round_.between, round_.call)
            about = f"{name}, {kill} of {whole.writes} writes"
            assert again and not again.faults, (about, again and again.faults)
            assert again.held == twin.held, about
        shutil.rmtree(folder)
    print(f"seed {SEED}: {dict(counts)}")  # noqa: T201 - what is to be reported
    assert counts["killed"] > KILLS // 2


# -- cancels over stdio ------------------------------------------------------------------------------------------------

SERVE = """
import sys, time
from llama_index_gear.cli import main, serving as serving
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.testing import WordEmbedding

update = EdgeClient._update

def update_slowly(self, *arguments):  # so that cancels meet a call half done
    update(self, *arguments)
    time.sleep(0.01)

EdgeClient._update = update_slowly
serving.load_embedding = lambda name: WordEmbedding(32)
sys.exit(main.main())
"""


class Server:
    """A server of the tools, as a program of its own, and the lines of its protocol."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE, "mcp", "--store", str(folder), "--write"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._number = 0
        client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        self.receive(self.send("initialize", client))
        self.notify("notifications/initialized", {})

    @property
    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin and self._process.stdout
        return self._process.stdin, self._process.stdout

    def _write(self, message: dict[str, Any]) -> None:
        self._pipes[0].write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._pipes[0].flush()

    def send(self, method: str, parameters: Any) -> int:
        self._number += 1
        self._write({"id": self._number, "method": method, "params": parameters})
        return self._number

    def notify(self, method: str, parameters: Any) -> None:
        self._write({"method": method, "params": parameters})

    def call(self, tool: str, arguments: Mapping[str, str]) -> int:
        return self.send("tools/call", {"name": tool, "arguments": arguments})

    def receive(self, number: int) -> list[int]:
        """Wait for the answer to a request; return the requests that were answered meanwhile, without errors."""
        answered: list[int] = []
        while True:
            line = self._pipes[1].readline()
            assert line, "the server ended"
            message = json.loads(line)
            if message.get("id") == number:
                return answered
            if "result" in message:
                answered.append(message["id"])

    def end(self) -> None:
        """Close its input, as a client does that goes away; it ends by itself."""
        self._pipes[0].close()
        assert self._process.wait(timeout=120) == 0
        self._pipes[1].close()


def test_a_write_that_is_cancelled_over_stdio_and_made_again_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    assert run_process(tmp_path, *indexed)
    old, new = ({"text": " ".join(texts.values()), "title": "Notes", "id": "notes"} for texts in (BEFORE, AFTER))
    tools = {"add": new, "delete": {"id": "notes"}}
    server, counts = Server(tmp_path / "s"), Counter[str]()
    twins, seconds = dict[str, Contents](), dict[str, float]()

    def judge(about: str) -> Contents:
        with open_store(tmp_path) as store:
            assert find_faults(store, tmp_path) == [], about
            return contents(store)

    for tool, arguments in tools.items():
        server.receive(server.call("add", old))
        start = time.perf_counter()
        server.receive(server.call(tool, arguments))
        seconds[tool] = time.perf_counter() - start
        twins[tool] = judge(tool)
    for number in range(CANCELS):
        rng = random.Random(f"{SEED} {number}")
        tool = sorted(tools)[number % 2]
        server.receive(server.call("add", old))
        request = server.call(tool, tools[tool])
        delay = rng.uniform(0, seconds[tool])
        time.sleep(delay)
        server.notify("notifications/cancelled", {"requestId": request, "reason": "the user is in a hurry"})
        if number % 10 == 9:
            server.end()
            server = Server(tmp_path / "s")
        answered = server.receive(server.call(tool, tools[tool]))
        counts[tool] += 1
        counts["cancelled"] += request not in answered
        about = f"round {number}: {tool} cancelled after {delay:.4f} s"
        assert judge(about) == twins[tool], about
    server.end()
    print(f"seed {SEED}: {dict(counts)}")  # noqa: T201 - what is to be reported
    assert counts["cancelled"] > CANCELS // 5  # a server that is slow to hear of it answers first
