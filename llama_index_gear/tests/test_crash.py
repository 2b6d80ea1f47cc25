"""kill -9 while a store is being written: what is there is whole, and repeating the call mends the rest."""

import multiprocessing
import random
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from llama_index_gear.nodes import read_triples
from llama_index_gear.store import GeARVectorStore
from llama_index_gear.store_contract import Contents, contents, passage
from llama_index_gear.testing import WordEmbedding

SMALL = WordEmbedding(16)
PASSAGES = 80

# A server that has imported everything and opened nothing: its forks start in milliseconds, without Edge's threads.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["llama_index_gear.testing"])


def ingest(folder: Path, version: int, report: Connection | None = None) -> None:
    """The call that is killed: all passages of a version, few at a time, so that there are many moments to die."""
    store = GeARVectorStore.from_path(folder, embed_model=SMALL, batch_size=4)
    nodes = [
        passage(
            f"p{n}",
            f"passage {n} version {version}",
            [
                (f"Entity {n}", "has version", f"V{version}"),
                (f"Entity {n}", "knows", f"Entity {n + 1 + version}"),
                (f"Entity {n}", "is in", "Hub"),
            ],
            document=f"d{n // 10}",
            embed_model=SMALL,
            metadata={"version": version},
        )
        for n in range(PASSAGES)
    ]
    if report:
        report.send("start")
    store.add(nodes)
    if report:
        report.send("done")
    store.close()


def killed(folder: Path, version: int, moment: float) -> bool:
    """Run the call in a process of its own and kill it after `moment` seconds; whether it was still at work."""
    receive, send = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=ingest, args=(folder, version, send))
    process.start()
    send.close()
    assert receive.recv() == "start"
    time.sleep(moment)
    process.kill()
    process.join()
    try:
        return not receive.poll() or receive.recv() != "done"
    except EOFError:  # it never said that it was done
        return True
    finally:
        receive.close()
        process.close()


def held_by(folder: Path) -> Contents:
    """What the store holds, after a check that each passage that is there has all its triples."""
    store = GeARVectorStore.from_path(folder, embed_model=SMALL)
    held = contents(store)
    for node in store.get_nodes():
        stated = {triple.id(node.node_id) for triple in read_triples(node)}
        assert len(stated) == 3
        assert stated <= set(held[store.triple_collection_name]), node.node_id
    store.close()
    return held


@pytest.mark.parametrize("replacing", [False, True])
def test_a_killed_ingest_leaves_whole_passages_and_is_mended_by_repeating_it(tmp_path: Path, replacing: bool) -> None:
    rng = random.Random(replacing)
    undisturbed = tmp_path / "undisturbed"
    if replacing:
        ingest(undisturbed, 1)
    started = time.perf_counter()
    ingest(undisturbed, 2)
    duration = time.perf_counter() - started
    expected = held_by(undisturbed)
    assert [len(points) for points in expected.values()] == [PASSAGES, 3 * PASSAGES]
    partial = 0
    for number in range(16):  # four moments, and more if none of them met the call at work: machines are slow at times
        if number >= 4 and partial:
            break
        folder = tmp_path / f"killed-{number}"
        part = rng.uniform(0.1, 0.8) if number else 0.0
        if replacing:
            ingest(folder, 1)
        at_work = killed(folder, 2, part * duration)
        partial += at_work and held_by(folder) not in ({}, expected)
        duration *= 1.0 if at_work else 0.7
        ingest(folder, 2)
        assert held_by(folder) == expected, f"killed after {part:.2f} of the time"
    assert partial, "no kill met the call at work: let it ingest more"
