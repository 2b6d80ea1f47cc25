"""No interrupt and no fork leaves a passage claimed, a lock taken, or what was begun undone in the background.

CPython runs a signal's handler when a function of Python begins, when a call has returned, and when a loop goes round.
`interrupt_block` raises `KeyboardInterrupt` at the nth such moment of some modules' code. (A handler's exception counts
as that of the call that has returned, a tracer's as that of the next instruction: where another handler of exceptions
is in charge of this one, the tracer is silent.)

A write is interrupted at every 97th moment; `GEAR_STRIDE=1` interrupts it at each.
"""

from __future__ import annotations

import asyncio
import dis
import gc
import inspect
import itertools
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Set
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeVar

import pytest
from llama_index.core.bridge.pydantic import BaseModel, model_serializer
from llama_index.core.schema import BaseNode
from llama_index.llms.openai import OpenAI
from qdrant_client import QdrantClient

import llama_index_gear
from llama_index_gear import GeARTripleExtractor, GeARVectorStore
from llama_index_gear.extraction.openai_batch import OpenAIBatch
from llama_index_gear.flow import Flow, RunFunction, gather, run_coroutine
from llama_index_gear.store.access import connection_of
from llama_index_gear.store.connection import Routed
from llama_index_gear.testing import ScriptedLLM, WordEmbedding
from llama_index_gear.tests.store_contract import passage
from llama_index_gear.trace.trace import Trace, run_traced, take_trace

STRIDE = int(os.environ.get("GEAR_STRIDE", "97"))
Result = TypeVar("Result")

PACKAGE = Path(llama_index_gear.__file__).parent
# Where claims are made, taken and given back, and all that lies between these and the caller.
WRITING = frozenset(
    (
        "flow",
        "store.locks",
        "store.connection",
        "store.vector_store",
        "store.collections",
        "store.copy",
        "store.writes",
    )
)
# After these instructions, and nowhere else, the interpreter looks for signals.
LOOKS = {"RESUME", "CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD", "CALL_INTRINSIC_1"}


@cache
def _find_handlers(code: CodeType) -> dict[int, int | None]:
    """Return the offset of the exception handler of each instruction."""
    bytecode = dis.Bytecode(code)
    entries: list[Any] = bytecode.exception_entries  # type: ignore[attr-defined]
    return {
        step.offset: next((entry.target for entry in entries if entry.start <= step.offset < entry.end), None)
        for step in bytecode
    }


def _has_looked(code: CodeType, last: int | None, now: int) -> bool:
    """Return True if the interpreter has looked for signals between two instructions, on behalf of both."""
    if last is None or dis.opname[code.co_code[last]] not in LOOKS:
        return False
    return _find_handlers(code)[last] == _find_handlers(code)[now]


class Interrupts:
    """Raises `KeyboardInterrupt` at the nth moment, and, if asked to, again at the nth moment after that.

    Attributes:
        raised: how often it has interrupted.
        error: the interrupt that the caller met, and with it every frame that it came through.

    """

    def __init__(self, modules: Set[str], first: int, second: int | None) -> None:
        self.modules, self.first, self.second = modules, first, second
        self.error: KeyboardInterrupt | None = None
        self.moments = self.later = self.raised = 0
        self._before: dict[FrameType, int] = {}  # where a frame was last

    def trace(self, frame: FrameType, event: str, argument: object) -> Any:
        """Trace function of `sys.settrace`: raises the first interrupt."""
        if not self._watches(frame):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if dis.opname[frame.f_code.co_code[frame.f_lasti]] == "RESUME":  # which was executed before this is called
            self._before[frame] = frame.f_lasti
        return self._step

    def _watches(self, frame: FrameType) -> bool:
        path = Path(frame.f_code.co_filename)
        return (
            path.is_relative_to(PACKAGE) and ".".join(path.relative_to(PACKAGE).with_suffix("").parts) in self.modules
        )

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
        """Trace function of `sys.setprofile`, which outlives the other one's exception: raises the second interrupt."""
        if self.raised != 1 or not self._watches(frame):
            return
        if event == "c_return" or (event == "call" and not frame.f_code.co_flags & inspect.CO_GENERATOR):
            self.later += 1
            if self.later == self.second:
                self.raised += 1
                raise KeyboardInterrupt("second")


@contextmanager
def interrupt_block(first: int, second: int | None = None, *, modules: Set[str] = WRITING) -> Iterator[Interrupts]:
    """Interrupt the block; the interrupt ends with it."""
    interrupts = Interrupts(modules, first, second)
    before = sys.gettrace(), sys.getprofile()
    try:
        if second is not None:
            sys.setprofile(interrupts.profile)
        sys.settrace(interrupts.trace)
        yield interrupts
    except KeyboardInterrupt as error:
        assert interrupts.raised
        interrupts.error = error
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])


SMALL = WordEmbedding(16)
# An interrupt in a finalizer is ignored by Python, and one before an `await` leaves a coroutine that is never awaited.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


def _make_batch(folder: Path) -> Any:
    """Return a batch that is never sent."""
    return OpenAIBatch(OpenAI(api_key="none"), folder)


def _run_in_thread(work: Callable[[], Result]) -> Result:
    """Return the result of work in another thread: if something stays claimed or locked, that times out."""
    future: Future[Result] = Future()

    def do() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised by who waits for it
            future.set_exception(error)

    threading.Thread(target=do, daemon=True).start()
    return future.result(timeout=60)


class Stores(NamedTuple):
    """Two stores of one client, which write the same passage into two collections."""

    one: GeARVectorStore
    other: GeARVectorStore

    def written(self) -> Stores:
        """Return both stores, written by another thread, which no claim keeps waiting, and whole."""
        _run_in_thread(lambda: [store.add(_make_nodes(1)) for store in self])
        assert all(store.check().ok and store.get_nodes()[0].get_content() == "Ann 1" for store in self)
        return self

    @property
    def claims(self) -> int:
        return sum(len(store._locks._claims) for store in self)


@pytest.fixture
def stores() -> Stores:
    client = QdrantClient(":memory:")
    return Stores(
        *(GeARVectorStore(client=client, collection_name=name, embed_model=SMALL) for name in ("one", "other"))
    ).written()


def _make_nodes(version: int) -> list[BaseNode]:
    facts = [("Ann", "has", f"version {version}"), ("Ann", "knows", "Bob")]
    return [passage("ann", f"Ann {version}", facts, document="doc", embed_model=SMALL, metadata={"kind": "x"})]


WRITES: dict[str, tuple[Callable[[Stores], object], Callable[[Stores], Coroutine[Any, Any, object]]]] = {
    "add": (lambda of: of.one.add(_make_nodes(2)), lambda of: of.one.async_add(_make_nodes(2))),
    "delete": (lambda of: of.one.delete("doc"), lambda of: of.one.adelete("doc")),
    "delete_nodes": (lambda of: of.one.delete_nodes(["ann"]), lambda of: of.one.adelete_nodes(["ann"])),
    "clear": (lambda of: of.one.clear(), lambda of: of.one.aclear()),
    "copy_to": (lambda of: of.one.copy_to(of.other), lambda of: of.one.acopy_to(of.other)),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_is_interrupted_claims_nothing(stores: Stores, name: str) -> None:
    write, _ = WRITES[name]
    for moment in itertools.count(1, STRIDE):
        with interrupt_block(moment) as interrupts:
            write(stores)
        assert stores.claims == 0, f"moment {moment}"
        if not interrupts.raised:
            break
        for store in stores:
            store.add(_make_nodes(1))
        if moment % 50 < STRIDE:
            stores.written()
    assert moment > 50
    stores.written()


@pytest.mark.parametrize("name", WRITES)
def test_a_second_interrupt_while_the_first_is_dealt_with_leaves_no_claim_either(stores: Stores, name: str) -> None:
    write, _ = WRITES[name]
    with interrupt_block(0) as undisturbed:
        write(stores)
    met = 0
    rng = random.Random(name)
    for moment in rng.sample(range(1, undisturbed.moments + 1), max(6, 120 // STRIDE)):
        for second in itertools.count(1):
            stores.written()
            with interrupt_block(moment, second) as interrupts:
                write(stores)
            assert stores.claims == 0, f"moment {moment}, then {second}"
            if interrupts.raised < 2:
                break
            met += 1
    assert met > 3


@pytest.mark.parametrize("name", WRITES)
def test_an_async_write_that_is_interrupted_claims_nothing(stores: Stores, name: str) -> None:
    """The exception of an event loop's second Ctrl-C leaves no claim, wherever it is raised."""
    _, write = WRITES[name]
    for moment in itertools.count(1, 3 * STRIDE):
        with interrupt_block(moment) as interrupts:
            asyncio.run(write(stores))
        assert stores.claims == 0, f"moment {moment}"
        if not interrupts.raised:
            break
        for store in stores:
            store.add(_make_nodes(1))
    assert moment > 50
    stores.written()
    gc.collect()  # here, where warnings of coroutines that were never awaited are ignored


def test_who_is_interrupted_while_it_waits_is_in_nobodys_way(stores: Stores) -> None:
    held = _run_in_thread(lambda: stores.one._locks.claim({"ann"}))
    _run_in_thread(held.acquire)
    for moment in range(1, 80):
        with interrupt_block(moment) as interrupts:
            stores.one.clear()
        assert interrupts.raised == 1 and list(stores.one._locks._claims.values()) == [held], f"moment {moment}"
    held.release()
    stores.written()


class Interrupting(BaseModel):
    """Metadata whose serialization by pydantic is interrupted."""

    @model_serializer
    def write(self) -> dict[str, str]:
        raise KeyboardInterrupt


def test_an_interrupt_is_no_fault_of_the_metadata(stores: Stores) -> None:
    (node,) = _make_nodes(2)
    node.metadata["part"] = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        stores.one.add([node])
    assert stores.claims == 0
    stores.written()


def test_a_flow_among_those_of_two_stores_is_closed_with_these() -> None:
    log: list[str] = []

    request: RunFunction[str] = RunFunction(str)

    def flow() -> Flow[None]:
        try:
            yield [request]
        finally:
            log.append("closed")

    inner = flow()  # held, as a traceback holds it
    connection = connection_of(GeARVectorStore(client=QdrantClient(":memory:")))
    outer = connection.route_flow(inner)
    assert next(outer) == [Routed(request, connection)]
    outer.close()
    assert log == ["closed"]


class Held(QdrantClient):
    """An engine whose first write of passages ends when it is allowed to."""

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
    """A write cancelled twice, as by two Ctrl-C or the end of an event loop, is waited for."""
    client = Held()
    store = GeARVectorStore(client=client, collection_name="one", embed_model=SMALL)
    writing = asyncio.create_task(store.async_add(_make_nodes(1)))
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
    assert not writing.done() and len(store._locks._claims) == 1
    client.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert client.landed == ["one_triples", "one"] and not store._locks._claims
    await store.async_add(_make_nodes(2))
    assert [node.get_content() for node in store.get_nodes()] == ["Ann 2"]


def test_a_batch_that_is_interrupted_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is free even while something holds the interrupt, as Python's prompt does until the next one."""
    batch = _make_batch(tmp_path)
    monkeypatch.setattr("llama_index_gear.extraction.openai_batch._LOCK_TIMEOUT", 0.0)
    for name, call in (
        ("answer", lambda: batch.answer(b'{"messages": []}')),
        ("status", lambda: batch.status),
        ("collect", batch.collect),
        ("submit", batch.submit),
    ):
        for moment in itertools.count(1):
            if name == "submit":  # nothing waits, so that no server is needed
                with batch._lock, batch._database as database:
                    database.execute("DELETE FROM request")
            with interrupt_block(moment, modules={"extraction.openai_batch"}) as interrupts:
                call()
            assert _run_in_thread(batch.collect) == batch.status, f"{name}, moment {moment}"
            if interrupts.error is None:
                break
        assert moment > 5
    batch.close()


def test_a_question_that_is_interrupted_leaves_its_trace_to_no_other() -> None:
    def retrieve() -> Trace:
        return take_trace("Who?")

    for moment in itertools.count(1):
        trace = Trace(question="Who?")
        with interrupt_block(moment, modules={"trace.trace"}) as interrupts:
            assert run_traced(trace, retrieve) is trace
        assert take_trace("Where?").question == "Where?", f"moment {moment}"
        if interrupts.error is None:
            break
    assert moment > 4


def test_what_an_interrupted_call_would_have_cost_is_not_set_aside() -> None:
    """An interrupted call frees the cost reserved for it; otherwise less and less could be spent."""
    node = passage("p", "Ann knows Bob.", embed_model=SMALL)
    for moment in itertools.count(1):
        extractor = GeARTripleExtractor(ScriptedLLM(['[["Ann", "knows", "Bob"]]']), price=(1.0, 1.0), max_cost=1.0)
        with interrupt_block(moment, modules={"extraction.accounting", "extraction.calls"}) as interrupts:
            run_coroutine(extractor.acall([node]))
        assert not extractor._cost_budget.reserved, f"moment {moment}"
        if interrupts.error is None:
            break
    assert moment > 20 and extractor.spent > 0
    gc.collect()


@pytest.fixture
def main_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """The main thread's event loop, in a program that has not yet called `asyncio.run`."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    asyncio.set_event_loop(None)
    loop.close()


@pytest.mark.usefixtures("main_loop")
@pytest.mark.parametrize("again", [False, True], ids=["once", "and again while it ends"])
def test_what_an_interrupted_sync_call_had_begun_does_not_go_on_in_the_next(again: bool) -> None:
    """No task is left on the event loop, which stays for clients whose connections belong to it."""
    log: list[str] = []
    tasks: list[Any] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def wait(name: str) -> None:
        tasks.append(asyncio.current_task())
        if name == "two":
            asyncio.get_running_loop().call_soon(interrupt)
        try:
            await asyncio.Event().wait()
        finally:
            if again:
                asyncio.get_running_loop().call_soon(interrupt)
            try:
                await let_others_run()
            finally:
                log.append(name)

    async def let_others_run() -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def work() -> None:
        await gather([wait("one"), wait("two")])

    async def list_left() -> list[Any]:
        await let_others_run()
        return list(asyncio.all_tasks() - {asyncio.current_task()})

    with pytest.raises(KeyboardInterrupt):
        run_coroutine(work())
    assert sorted(log) == ["one", "two"] and all(task.done() for task in tasks)
    assert run_coroutine(list_left()) == []


def test_an_interrupted_sync_call_without_an_event_loop_leaves_none() -> None:
    asyncio.set_event_loop(None)
    loops: list[asyncio.AbstractEventLoop] = []

    async def work() -> None:
        loops.append(asyncio.get_running_loop())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_coroutine(work())
    assert [loop.is_closed() for loop in loops] == [True]


def _run_in_child(work: Callable[[], object]) -> int:
    """Run the work in a forked child and return its exit status: 0 if well; it is killed if it waits for ever."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


@pytest.fixture
def parent() -> Any:
    """A function that does something in another thread and holds it until the test ends."""
    over, held = threading.Event(), threading.Semaphore(0)

    def hold(*locks: Any) -> None:
        def do() -> None:
            for lock in locks:
                lock()
            held.release()
            over.wait(60)

        threading.Thread(target=do, daemon=True).start()
        held.acquire(timeout=60)

    yield hold
    over.set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_waits_for_no_thread_of_its_parent(stores: Stores, parent: Any, tmp_path: Path) -> None:
    batch, llm = _make_batch(tmp_path / "batch"), ScriptedLLM()
    locks = stores.one._locks
    parent(
        locks.claim(None).acquire,
        locks._lock.acquire,
        stores.one._connection._turn.__enter__,
        batch._lock.acquire,
        llm._turn.acquire,
    )

    def work() -> None:
        stores.one.add(_make_nodes(2))
        assert batch.status.waiting == 0 and llm.remaining == 0
        assert stores.one.check().ok

    assert _run_in_child(work) == 0
    assert locks._lock.locked() and stores.claims == 1  # the parent's are as they were
    locks._lock.release()
    batch._lock.release()
    batch.close()
