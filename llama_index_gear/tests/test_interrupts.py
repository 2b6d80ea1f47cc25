"""Ctrl-C at every moment at which Python may answer it, and forks: nothing stays claimed, and no lock taken.

CPython runs a signal's handler when a function of Python begins, when a call has returned, and when a loop goes round.
`interrupted` raises `KeyboardInterrupt` at the nth such moment of the package's code. (A handler's exception counts as
that of the call that has returned, a tracer's as that of the next instruction: where another handler of exceptions is
in charge of this one, the tracer is silent.)
"""

from __future__ import annotations

import asyncio
import dis
import gc
import inspect
import itertools
import random
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeVar

import pytest
from llama_index.core.schema import BaseNode
from qdrant_client import QdrantClient

import llama_index_gear
from llama_index_gear import GeARVectorStore
from llama_index_gear.store_contract import passage
from llama_index_gear.testing import WordEmbedding

Result = TypeVar("Result")

PACKAGE = Path(llama_index_gear.__file__).parent
# Where claims are made, taken and given back, and all that lies between these and the caller.
WATCHED = {"turns", "steps", "connection", "store", "store_collections", "store_copy", "store_deletes", "store_writes"}
SMALL = WordEmbedding(16)
# An interrupt in a finalizer is ignored by Python, and one before an `await` leaves a coroutine that is never awaited.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]
# After these instructions, and nowhere else, the interpreter looks for signals.
LOOKS = {"RESUME", "CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD", "CALL_INTRINSIC_1"}


@cache
def _handlers(code: CodeType) -> dict[int, int | None]:
    """Where an exception of each instruction is handled."""
    bytecode = dis.Bytecode(code)
    entries: list[Any] = bytecode.exception_entries  # type: ignore[attr-defined]
    return {
        step.offset: next((entry.target for entry in entries if entry.start <= step.offset < entry.end), None)
        for step in bytecode
    }


def _has_looked(code: CodeType, last: int | None, now: int) -> bool:
    """Whether the interpreter has looked for signals between two instructions, on behalf of both."""
    if last is None or dis.opname[code.co_code[last]] not in LOOKS:
        return False
    return _handlers(code)[last] == _handlers(code)[now]


def _is_ours(frame: FrameType) -> bool:
    path = Path(frame.f_code.co_filename)
    return path.parent == PACKAGE and path.stem in WATCHED


class Interrupts:
    """Raises `KeyboardInterrupt` at the nth moment, and, if asked to, again at the nth moment after that.

    Attributes:
        moments: how many there were before the first interrupt, or in all.
        raised: how often it has interrupted.

    """

    def __init__(self, first: int | None, second: int | None = None) -> None:
        self.first, self.second = first, second
        self.moments = self.later = self.raised = 0
        self._before: dict[FrameType, int] = {}  # where a frame was last

    def trace(self, frame: FrameType, event: str, argument: object) -> Any:
        """Trace function of `sys.settrace`: the first interrupt."""
        if not _is_ours(frame):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode":
            if _has_looked(frame.f_code, self._before.get(frame), frame.f_lasti):
                self.moments += 1
                if self.moments == self.first:
                    self.raised += 1
                    self._before.clear()
                    raise KeyboardInterrupt("first")
            self._before[frame] = frame.f_lasti
        else:  # an exception or a return: whatever was called last has not returned to this frame
            self._before.pop(frame, None)
        return self._step

    def profile(self, frame: FrameType, event: str, argument: object) -> None:
        """Trace function of `sys.setprofile`, which lives on when the other one has raised: the second interrupt."""
        if self.raised != 1 or not _is_ours(frame):
            return
        if event == "c_return" or (event == "call" and not frame.f_code.co_flags & inspect.CO_GENERATOR):
            self.later += 1
            if self.later == self.second:
                self.raised += 1
                raise KeyboardInterrupt("second")


@contextmanager
def interrupted(first: int | None = None, second: int | None = None) -> Iterator[Interrupts]:
    """Interrupt the block; the interrupt ends in it."""
    interrupts = Interrupts(first, second)
    before = sys.gettrace(), sys.getprofile()
    try:
        if second is not None:
            sys.setprofile(interrupts.profile)
        sys.settrace(interrupts.trace)
        yield interrupts
    except KeyboardInterrupt:
        assert interrupts.raised
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])


def _ends(work: Callable[[], Result]) -> Result:
    """The result of work in another thread that ends: for what stays claimed or locked it would wait for ever."""
    future: Future[Result] = Future()

    def do() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised by who waits for it
            future.set_exception(error)

    threading.Thread(target=do, daemon=True).start()
    return future.result(timeout=60)


class Stores(NamedTuple):
    """Two stores of one client, which write the same passage of two collections."""

    one: GeARVectorStore
    other: GeARVectorStore

    def written(self) -> Stores:
        """Both, written by another thread, which nothing that is claimed keeps waiting, and whole."""
        _ends(lambda: [store.add(_nodes(1)) for store in self])
        assert all(store.check().ok and store.get_nodes()[0].get_content() == "Ann 1" for store in self)
        return self

    @property
    def claims(self) -> int:
        return sum(len(store._turns._claims) for store in self)


@pytest.fixture
def stores() -> Stores:
    client = QdrantClient(":memory:")
    return Stores(
        *(GeARVectorStore(client, collection_name=name, embed_model=SMALL) for name in ("one", "other"))
    ).written()


def _nodes(version: int) -> list[BaseNode]:
    facts = [("Ann", "has", f"version {version}"), ("Ann", "knows", "Bob")]
    return [passage("ann", f"Ann {version}", facts, document="doc", embed_model=SMALL, metadata={"kind": "x"})]


WRITES: dict[str, tuple[Callable[[Stores], object], Callable[[Stores], Coroutine[Any, Any, object]]]] = {
    "add": (lambda of: of.one.add(_nodes(2)), lambda of: of.one.async_add(_nodes(2))),
    "delete": (lambda of: of.one.delete("doc"), lambda of: of.one.adelete("doc")),
    "delete_nodes": (lambda of: of.one.delete_nodes(["ann"]), lambda of: of.one.adelete_nodes(["ann"])),
    "clear": (lambda of: of.one.clear(), lambda of: of.one.aclear()),
    "copy_to": (lambda of: of.one.copy_to(of.other), lambda of: of.one.acopy_to(of.other)),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_is_interrupted_claims_nothing(stores: Stores, name: str) -> None:
    write, _ = WRITES[name]
    for moment in itertools.count(1):
        with interrupted(moment) as interrupts:
            write(stores)
        assert stores.claims == 0, f"moment {moment}"
        if not interrupts.raised:
            break
        for store in stores:
            store.add(_nodes(1))
        if moment % 50 == 0:
            stores.written()
    assert moment > 50
    stores.written()


@pytest.mark.parametrize("name", WRITES)
def test_a_second_interrupt_while_the_first_is_dealt_with_leaves_no_claim_either(stores: Stores, name: str) -> None:
    write, _ = WRITES[name]
    with interrupted() as undisturbed:
        write(stores)
    met = 0
    rng = random.Random(name)
    for moment in rng.sample(range(1, undisturbed.moments + 1), 40):
        for second in itertools.count(1):
            stores.written()
            with interrupted(moment, second) as interrupts:
                write(stores)
            assert stores.claims == 0, f"moment {moment}, then {second}"
            if interrupts.raised < 2:
                break
            met += 1
    assert met > 10


@pytest.mark.parametrize("name", WRITES)
def test_an_async_write_that_is_interrupted_claims_nothing(stores: Stores, name: str) -> None:
    """By what Python raises at the second Ctrl-C of an event loop, wherever that is."""
    _, write = WRITES[name]
    for moment in itertools.count(1, 5):
        with interrupted(moment) as interrupts:
            asyncio.run(write(stores))
        assert stores.claims == 0, f"moment {moment}"
        if not interrupts.raised:
            break
        for store in stores:
            store.add(_nodes(1))
    assert moment > 50
    stores.written()
    gc.collect()  # here, where warnings of coroutines that were never awaited are ignored


def test_who_is_interrupted_while_it_waits_is_in_nobodys_way(stores: Stores) -> None:
    held = _ends(lambda: stores.one._turns.claim({"ann"}))
    _ends(held.take)
    for moment in range(1, 80):
        with interrupted(moment) as interrupts:
            stores.one.clear()
        assert interrupts.raised == 1 and list(stores.one._turns._claims.values()) == [held], f"moment {moment}"
    held.give_back()
    stores.written()


class Held(QdrantClient):
    """An engine whose first write of passages ends when it is let."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.began, self.may_end, self.landed = threading.Event(), threading.Event(), list[str]()

    def upsert(self, collection_name: str, points: Any, *arguments: Any, **options: Any) -> Any:
        if collection_name == "one" and not self.began.is_set():
            self.began.set()
            self.may_end.wait(60)
        result = super().upsert(collection_name, points, *arguments, **options)
        self.landed.append(collection_name)
        return result


@pytest.mark.parametrize("how", ["one after the other", "at once", "with all that runs on its event loop"])
async def test_a_write_that_is_cancelled_twice_is_waited_for(how: str) -> None:
    """As two Ctrl-C cancel it, and the end of an event loop."""
    client = Held()
    store = GeARVectorStore(client, collection_name="one", embed_model=SMALL)
    writing = asyncio.create_task(store.async_add(_nodes(1)))
    await asyncio.to_thread(client.began.wait, 60)
    for _ in range(3):
        tasks = asyncio.all_tasks() - {asyncio.current_task()} if how.startswith("with") else {writing}
        for task in tasks:
            task.cancel()
        if how != "at once":
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not writing.done() and len(store._turns._claims) == 1
    client.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert client.landed == ["one_triples", "one"] and not store._turns._claims
    await store.async_add(_nodes(2))
    assert [node.get_content() for node in store.get_nodes()] == ["Ann 2"]
