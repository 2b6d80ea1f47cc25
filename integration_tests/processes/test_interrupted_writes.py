"""Ctrl-C, by real signals at random moments of an embedded store's writes: the next write returns, all whole.

    GEAR_INTERRUPTS=500 GEAR_SEED=1 pytest -m long integration_tests/processes/test_interrupted_writes.py -s

Each round begins a call, interrupts or cancels it once or twice, and then examines the stores: another thread's write
returns, nothing is claimed, and `check` finds the stores whole, at once or after the call is repeated.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from llama_index.core.schema import BaseNode
from pydantic_core import PydanticSerializationError
from repository import ROOT

from llama_index_gear import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import passage

INTERRUPTS = int(os.environ.get("GEAR_INTERRUPTS", "20"))
SEED = int(os.environ.get("GEAR_SEED", "0"))
EMBED = WordEmbedding(16)
DOCUMENTS, PASSAGES = 6, 4
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that sends signals"),
]


class Stores(NamedTuple):
    source: GeARVectorStore
    target: GeARVectorStore


class Write(NamedTuple):
    """One call, sync and async."""

    sync: Callable[[Stores], object]
    native: Callable[[Stores], Coroutine[Any, Any, object]]


def make_nodes(version: int) -> list[BaseNode]:
    return [
        passage(
            f"d{document}-{n}",
            f"Entity {document} in version {version}, part {n}",
            [(f"Entity {document}", "has version", f"V{version}"), (f"Entity {document}", "is in", f"Hub {n}")],
            document=f"d{document}",
            embed_model=EMBED,
        )
        for document in range(DOCUMENTS)
        for n in range(PASSAGES)
    ]


def list_writes(version: int) -> dict[str, Write]:
    new, document, some = make_nodes(version), f"d{version % DOCUMENTS}", [f"d{n}-0" for n in range(DOCUMENTS)]
    return {
        "add": Write(lambda of: of.source.add(new), lambda of: of.source.async_add(new)),
        "delete": Write(lambda of: of.source.delete(document), lambda of: of.source.adelete(document)),
        "delete_nodes": Write(lambda of: of.source.delete_nodes(some), lambda of: of.source.adelete_nodes(some)),
        "clear": Write(lambda of: of.source.clear(), lambda of: of.source.aclear()),
        "copy_to": Write(lambda of: of.source.copy_to(of.target), lambda of: of.source.acopy_to(of.target)),
    }


def is_of_interrupt(error: BaseException | None) -> bool:
    """Tell whether an error is an interrupt or was made of one.

    asyncio makes a RuntimeError of it while it closes a loop and a CancelledError before it counts interrupts, and
    pydantic an error of serialization where it calls Python, which may have it in its words alone.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt | asyncio.CancelledError):
        if isinstance(error, PydanticSerializationError) and KeyboardInterrupt.__name__ in str(error):
            return True
        error = error.__cause__ or error.__context__
    return error is not None


def run_interrupted(work: Callable[[], object], delay: float, again: float) -> bool:
    """Run the work and interrupt it after `delay` seconds and, unless `again` is 0, once more `again` seconds later.

    Return True if the interrupt came out of the work. An event loop cancels what it runs at
    the first Ctrl-C and raises at the second, wherever that is: in the start of a thread, say, which Python then never
    ends. So an event loop is interrupted only once.
    """
    armed = [True] * (1 + bool(again))

    def interrupt(*_: object) -> None:
        if armed:
            armed.pop()
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, delay, again)
            work()
        finally:
            armed.clear()
            signal.setitimer(signal.ITIMER_REAL, 0)
    except BaseException as error:
        if not is_of_interrupt(error):
            raise
        return True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)  # again: the second interrupt may have come before the first one did it
        signal.signal(signal.SIGALRM, before)
    return False


async def run_cancelled(work: Coroutine[Any, Any, object], delay: float, again: float) -> bool:
    """Cancel the work after `delay` seconds and again `again` seconds later; return True if it was cancelled."""
    task, loop = asyncio.create_task(work), asyncio.get_running_loop()
    for seconds in (delay, delay + again):
        loop.call_later(seconds, task.cancel)
    await asyncio.wait([task], timeout=120)
    assert task.done()
    if not task.cancelled():
        task.result()
    return task.cancelled()


def run_in_thread(work: Callable[[], object]) -> None:
    """Do the work in another thread and wait for its end: if something stays claimed or locked, that times out."""
    future: Future[None] = Future()

    def do() -> None:
        try:
            work()
            future.set_result(None)
        except BaseException as error:  # noqa: BLE001 - raised by who waits for it
            future.set_exception(error)

    threading.Thread(target=do, daemon=True).start()
    future.result(timeout=120)


def test_writes_that_are_interrupted_keep_nobody_waiting_and_are_mended_by_repeating_them(tmp_path: Path) -> None:
    """In a process of its own, which no other test's libraries and signals disturb."""
    paths = os.pathsep.join([str(ROOT), str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-X", "faulthandler", __file__, str(tmp_path)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr


def interrupt_writes(tmp_path: Path) -> None:
    sys.unraisablehook = lambda _: None  # what is interrupted while it is cleaned up
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores it
    rng, counts, seconds = random.Random(SEED), Counter[str](), dict[str, float]()
    stores = Stores(
        *(GeARVectorStore.from_path(tmp_path / name, embed_model=EMBED, batch_size=5) for name in ("one", "two"))
    )
    outside = [passage("outside", "Somebody else", [("Somebody", "is", "else")], embed_model=EMBED)]
    for store in stores:
        store.add([*make_nodes(0), *outside])
    number = 0
    while counts["interrupted"] < INTERRUPTS:
        number += 1
        name, write = rng.choice(sorted(list_writes(number).items()))
        way = rng.choice(("sync", "async", "cancelled"))
        if number % 2 or f"{way} {name}" not in seconds:  # there is something to delete, clear and copy
            stores.source.add([*make_nodes(0), *outside])
        start = time.perf_counter()
        delay = rng.uniform(1e-5, 1.1 * seconds.get(f"{way} {name}", 0.01))
        again = rng.choice((0, rng.uniform(1e-5, 2e-3)))
        if way == "sync":
            is_met = run_interrupted(lambda: write.sync(stores), delay, again)  # noqa: B023
        elif way == "async":
            is_met = run_interrupted(lambda: asyncio.run(write.native(stores)), delay, 0)  # noqa: B023
        else:
            is_met = asyncio.run(run_cancelled(write.native(stores), delay, again))
        if not is_met:
            seconds[f"{way} {name}"] = min(time.perf_counter() - start, seconds.get(f"{way} {name}", 60.0))
        seconds.setdefault(f"{way} {name}", 2 * delay)
        counts["interrupted"] += is_met
        about = f"round {number} of seed {SEED}: {way} {name} after {delay:.6f} s, and {again:.6f} s later"
        for store in stores:
            run_in_thread(lambda: store.add(outside))  # noqa: B023
        assert not any(store._locks._claims for store in stores), about
        is_whole = all(store.check(sample_size=0).ok for store in stores)
        counts[f"{way} {name}"] += is_met
        counts["half done"] += not is_whole
        if not is_whole:
            write.sync(stores)
            assert all(store.check(sample_size=0).ok for store in stores), about
    for store in stores:
        store.close()
    print(f"seed {SEED}, {number} calls: {dict(counts)}")  # noqa: T201 - what is to be reported


if __name__ == "__main__":
    interrupt_writes(Path(sys.argv[1]))
