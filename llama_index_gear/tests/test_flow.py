import asyncio
import inspect
import math
from collections.abc import Callable, Generator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, assert_type

import pytest

from llama_index_gear.flow import (
    Flow,
    Request,
    arun,
    ask,
    ask_all,
    blocking,
    interleave,
    limit_waiting,
    relay,
    remaining_seconds,
    run,
    run_coroutine,
    unblocked,
)

Result = TypeVar("Result")
Numbers: TypeAlias = Generator[Any, Any, Result]
"""A flow whose requests are numbers: the drivers hand on what they are given."""
Drive = Callable[[Flow[Any], Callable[[Any], Any]], Any]


def _run_sync(flow: Flow[Result], answer: Callable[[Any], Any]) -> Result:
    return run(flow, answer)


def _run_async(flow: Flow[Result], answer: Callable[[Any], Any]) -> Result:
    async def answer_later(request: Any) -> Any:
        await asyncio.sleep(0)
        return answer(request)

    return asyncio.run(arun(flow, answer_later))


@pytest.fixture(params=[_run_sync, _run_async], ids=["run", "arun"])
def drive(request: pytest.FixtureRequest) -> Any:
    return request.param


class Broken(Exception):
    pass


def _double(number: int) -> int:
    if number < 0:
        raise Broken(number)
    return 2 * number


def _flow(batches: Sequence[Sequence[int]], log: list[Any]) -> Numbers[int]:
    """Ask batch after batch, note all that happens, and return the sum of the answers."""
    total = 0
    try:
        for batch in batches:
            try:
                answers = yield batch
                log.append(answers)
                total += sum(answers)
            except Broken as error:
                log.append(error.args)
        return total
    finally:
        log.append("closed")


def test_answers_come_in_the_order_of_the_requests(drive: Drive) -> None:
    log: list[Any] = []
    assert drive(_flow([[1, 2, 3], [], [4]], log), _double) == 2 + 4 + 6 + 8
    assert log == [[2, 4, 6], [], [8], "closed"]


def test_a_flow_may_catch_what_an_answer_raises_and_go_on(drive: Drive) -> None:
    log: list[Any] = []
    assert drive(_flow([[1, -2, 3], [-5], [4]], log), _double) == 8
    assert log == [(-2,), (-5,), [8], "closed"]


def test_an_exception_that_the_flow_does_not_catch_ends_it(drive: Drive) -> None:
    log: list[Any] = []

    def answer(number: int) -> int:
        raise KeyError(number)

    with pytest.raises(KeyError, match="7"):
        drive(_flow([[7], [1]], log), answer)
    assert log == ["closed"]


@pytest.mark.parametrize("batch", [[1], [1, 2]])
def test_an_exception_of_the_flow_itself_passes_through(drive: Drive, batch: list[int]) -> None:
    def flow() -> Numbers[None]:
        yield batch
        raise Broken("inside")

    with pytest.raises(Broken, match="inside"):
        drive(flow(), _double)


def test_stop_iteration_of_an_answer_does_not_pass_for_the_flows_result() -> None:
    def answer(number: int) -> int:
        raise StopIteration("not a result")

    with pytest.raises(RuntimeError, match="StopIteration"):
        run(_flow([[1]], []), answer)


def test_an_interrupt_is_not_offered_to_the_flow() -> None:
    seen: list[type[BaseException]] = []

    def flow() -> Numbers[None]:
        try:
            yield [1]
        except BaseException as error:
            seen.append(type(error))
            raise

    def answer(number: int) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(flow(), answer)
    assert seen == [GeneratorExit]


def test_flows_side_by_side_ask_in_one_batch_and_keep_their_order(drive: Drive) -> None:
    """Each is sent the answers to its own requests, however many it makes, and one may end before another."""
    logs: list[list[Any]] = [[], [], [], []]
    rounds: list[list[int]] = []

    def note(number: int) -> int:
        rounds[-1].append(number)
        return 2 * number

    def outer() -> Numbers[list[int]]:
        flows = [_flow(batches, log) for batches, log in zip([[[1, 2], [3]], [], [[4]], [[], [5]]], logs, strict=True)]
        inner = interleave(flows)
        batch, answers = next(inner), None
        while True:
            rounds.append([])
            answers = yield batch
            try:
                batch = inner.send(answers)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]

    assert drive(outer(), note) == [12, 0, 8, 10]
    assert sorted(map(sorted, rounds)) == [[1, 2, 4], [3, 5]]
    assert logs == [[[2, 4], [6], "closed"], ["closed"], [[8], "closed"], [[], [10], "closed"]]
    assert drive(interleave([]), note) == []


def test_a_request_that_fails_ends_all_flows_side_by_side(drive: Drive) -> None:
    logs: list[list[Any]] = [[], []]

    def outer() -> Numbers[str]:
        try:
            yield from interleave([_flow([[1], [-2]], logs[0]), _flow([[3], [4], [5]], logs[1])])
        except Broken as error:
            return str(error)
        return ""

    assert drive(outer(), _double) == "-2"
    assert logs == [[[2], "closed"], [[6], "closed"]]


@dataclass(frozen=True)
class Double(Request[int]):
    number: int


@dataclass(frozen=True)
class Name(Request[str]):
    number: int


def _answer(request: Any) -> Any:
    return _double(request.number) if isinstance(request, Double) else str(request.number)


def test_an_answer_has_the_type_that_its_request_names(drive: Drive) -> None:
    """The type checker proves the types; the flow proves the values."""

    def flow() -> Flow[tuple[int, list[str]]]:
        number = yield from ask(Double(3))
        assert_type(number, int)
        names = yield from ask_all([Name(number), Name(2)])
        assert_type(names, list[str])
        return number, names

    assert drive(flow(), _answer) == (6, ["6", "2"])


@pytest.mark.parametrize("is_running", [False, True], ids=["no loop", "inside a loop"])
def test_an_error_comes_out_of_a_coroutine_as_it_is(is_running: bool) -> None:
    """A RuntimeError comes out unchanged and the coroutine runs once; LlamaIndex's runner would run it again."""
    calls: list[int] = []

    async def fail() -> None:
        calls.append(1)
        raise RuntimeError("of the model's client")

    async def run_outside() -> None:
        run_coroutine(fail())

    with pytest.raises(RuntimeError, match="of the model's client"):
        asyncio.run(run_outside()) if is_running else run_coroutine(fail())
    assert calls == [1]


@pytest.mark.parametrize("ends", ["close", "interrupt"])
def test_a_flow_that_a_traceback_holds_is_closed_with_its_relay(ends: str) -> None:
    log: list[Any] = []
    held = _flow([[1]], log)
    relayed = relay(held, ask_all)
    assert next(relayed) == [1]
    if ends == "close":
        relayed.close()
    else:
        with pytest.raises(KeyboardInterrupt):
            relayed.throw(KeyboardInterrupt)
    assert log == ["closed"]


async def test_a_batch_is_answered_concurrently() -> None:
    """Each answer waits for the start of the others, so that one by one they would wait for ever."""
    started = {1: asyncio.Event(), 2: asyncio.Event()}

    async def answer(number: int) -> int:
        started[number].set()
        await started[3 - number].wait()
        return number

    log: list[Any] = []
    assert await asyncio.wait_for(arun(_flow([[1, 2]], log), answer), 60) == 3
    assert log == [[1, 2], "closed"]


async def test_order_is_that_of_the_requests_not_of_the_answers() -> None:
    done: list[int] = []
    turn = [asyncio.Event() for _ in range(4)]
    turn[3].set()

    async def answer(number: int) -> int:
        await turn[number].wait()
        done.append(number)
        turn[number - 1].set()
        return number

    log: list[Any] = []
    await asyncio.wait_for(arun(_flow([[1, 2, 3]], log), answer), 60)
    assert (done, log[0]) == ([3, 2, 1], [1, 2, 3])


async def test_siblings_of_a_failure_are_cancelled_and_awaited_before_the_flow_sees_it() -> None:
    log: list[Any] = []
    waiting = asyncio.Event()

    async def answer(number: int) -> int:
        if number == 1:
            await waiting.wait()
            raise Broken(number)
        try:
            waiting.set()
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # cleaning up takes a moment
            log.append("sibling cleaned up")
            raise
        return number

    await asyncio.wait_for(arun(_flow([[1, 2]], log), answer), 60)
    assert log == ["sibling cleaned up", (1,), "closed"]


async def test_of_two_failures_the_first_in_time_counts_and_none_is_left_unheard() -> None:
    async def answer(number: int) -> int:
        for _ in range(number):
            await asyncio.sleep(0)
        raise Broken(number)

    log: list[Any] = []
    await arun(_flow([[3, 1, 2]], log), answer)
    assert log == [(1,), "closed"]


@pytest.mark.parametrize("batch", [[1], [1, 2]], ids=["one request", "two requests"])
async def test_cancelling_the_caller_cancels_the_requests_and_closes_the_flow(batch: list[int]) -> None:
    log: list[Any] = []
    started = asyncio.Event()

    async def answer(number: int) -> int:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            log.append(f"request {number} ended")
        return number

    task = asyncio.create_task(arun(_flow([batch, [3]], log), answer))
    await asyncio.wait_for(started.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == [*(f"request {number} ended" for number in batch), "closed"]


async def test_a_lone_request_runs_in_the_callers_own_task() -> None:
    current: ContextVar[str] = ContextVar("current", default="unset")
    tasks: list[Any] = []

    async def answer(name: str) -> int:
        tasks.append(asyncio.current_task())
        current.set(name)
        return 0

    def flow() -> Numbers[None]:
        yield ["inside"]

    await arun(flow(), answer)
    assert (tasks, current.get()) == ([asyncio.current_task()], "inside")


def test_the_narrowest_limit_of_waiting_holds() -> None:
    assert remaining_seconds() == math.inf
    with limit_waiting(10), limit_waiting(50), limit_waiting(None):
        assert 8 < remaining_seconds() <= 10
        with limit_waiting(0):
            assert remaining_seconds() <= 0
        assert remaining_seconds() > 8
    assert remaining_seconds() == math.inf


async def test_calls_of_a_flow_are_called_and_return_what_they_are_written_as() -> None:
    class Store:
        @blocking
        def check(self, number: "int") -> "Flow[bool]":
            """Check it."""
            return (yield from self._check_flow(number))

        acheck = unblocked(check)

        def _check_flow(self, number: int) -> Flow[bool]:
            (answer,) = yield [number]  # type: ignore[list-item]
            return bool(answer)

        def _answer(self, request: Any) -> Any:
            return request > 1

        async def _aanswer(self, request: Any) -> Any:
            return request > 1

    assert Store().check(2) is True and await Store().acheck(1) is False
    for call, name in ((Store.check, "check"), (Store.acheck, "acheck")):
        assert call.__name__ == name and call.__qualname__.endswith(f"Store.{name}")
        assert str(inspect.signature(call)) == "(self, number: 'int') -> 'bool'"
    assert Store.check.__doc__ == "Check it." and "event loop" in str(Store.acheck.__doc__)
