import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.prompts import PromptTemplate

from llama_index_gear.agents.loop import Budget, agent_flow
from llama_index_gear.errors import OutOfTime
from llama_index_gear.flow import CallLLM, EmbedQuery, EmbedTexts, Flow, Reply, arun, remaining_seconds, run
from llama_index_gear.trace.evidence import Call, Step
from llama_index_gear.trace.trace import Trace, TraceEvent

QUESTION = "Which team did the father of Stephen Curry join in 1988?"
LAST = EmbedTexts(["what finish asks for"])


def _make_call(purpose: str = "read") -> CallLLM:
    return CallLLM(PromptTemplate("{x}"), {"x": purpose}, purpose)


def _make_search(query: str = "Curry") -> EmbedQuery:
    return EmbedQuery(query)


ASK, SEARCH = _make_call(), _make_search()


@dataclass
class Plan:
    """A policy whose step n asks the batches `steps[n - 1]` and returns `verdicts[n]`; its result is all answers."""

    steps: Sequence[Sequence[Sequence[Any]]]
    verdicts: Mapping[int, str] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    @property
    def max_steps(self) -> int:
        return len(self.steps)

    def begin(self, question: str, trace: Trace) -> list[Any]:
        return []

    def step_flow(self, state: list[Any], record: Step) -> Flow[str]:
        try:
            for batch in self.steps[record.number - 1]:
                state.extend((yield batch))
            return self.verdicts.get(record.number, "")
        finally:
            self.log.append(f"step {record.number} ended")

    def finish_flow(self, state: list[Any]) -> Flow[list[Any]]:
        try:
            (last,) = yield [LAST]
            return [*state, last]
        finally:
            self.log.append("finish ended")


@dataclass
class Clock:
    """A clock that stands still until it is moved."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def _make_trace() -> Trace:
    return Trace(question=QUESTION)


def _get_result(flow: Flow[Any], answers: Sequence[Any]) -> Any:
    with pytest.raises(StopIteration) as stop:
        flow.send(answers)
    return stop.value.value


# -- Steps ------------------------------------------------------------------------------------------------------------


def test_a_verdict_ends_the_loop_and_finish_has_the_last_word() -> None:
    one, two, three, four = map(_make_search, "1234")
    trace, plan = _make_trace(), Plan([[[one, two], [three]], [[four]], [[SEARCH]]], {2: "answered"})
    flow = agent_flow(plan, trace, Budget())
    assert next(flow) == [one, two]
    assert flow.send(["a", "b"]) == [three]
    assert (flow.send(["c"]), plan.log) == ([four], ["step 1 ended"])
    assert (flow.send(["d"]), plan.log) == ([LAST], ["step 1 ended", "step 2 ended"])
    assert _get_result(flow, ["z"]) == ["a", "b", "c", "d", "z"]
    assert (trace.stopped, [step.number for step in trace.steps]) == ("answered", [1, 2])
    assert plan.log == ["step 1 ended", "step 2 ended", "finish ended"]


def test_why_it_ended_is_told_before_finish_and_how_long_it_took_behind() -> None:
    trace, clock, events = _make_trace(), Clock(), list[TraceEvent]()
    trace._listeners.append(events.append)
    flow = agent_flow(Plan([[[SEARCH]]]), trace, Budget(), clock)
    next(flow)
    clock.now += 2
    flow.send(["a"])
    assert events == [TraceEvent(step=0, kind="stopped", value="max_steps")]
    clock.now += 0.5
    _get_result(flow, ["z"])
    assert events[1:] == [TraceEvent(step=0, kind="ms", value=1000 * (2 + 0.5))]
    assert trace.ms == 2500


# -- Requests and calls -----------------------------------------------------------------------------------------------


def test_requests_and_answers_go_through_unchanged() -> None:
    flow = agent_flow(Plan([[[SEARCH, ASK, LAST]]]), _make_trace(), Budget(max_llm_calls=9, max_tokens=9))
    search, ask, last = next(flow)
    assert search is SEARCH and last is LAST
    assert ask == replace(ASK, max_calls=9)
    answers: list[Any] = [object(), Reply("yes"), object()]
    flow.send(answers)
    for got, sent in zip(_get_result(flow, ["z"]), [*answers, "z"], strict=True):
        assert got is sent


def test_the_time_left_is_never_negative() -> None:
    """The time left is at least 0, even if the clock passes the deadline between the check and the call."""
    readings = count(0, 3)  # start, then for each batch whether and how much time is left: 3 and 6, 9 and 12
    flow = agent_flow(Plan([[[ASK], [ASK]]]), _make_trace(), Budget(timeout=10), lambda: float(next(readings)))
    assert next(flow) == [replace(ASK, timeout=10.0 - 6)]
    assert flow.send([Reply()]) == [replace(ASK, timeout=0.0)]


def test_every_call_of_the_model_is_written_down_and_nothing_else() -> None:
    trace = _make_trace()
    plan = Plan([[[_make_call("read"), SEARCH, _make_call("gist")], [SEARCH]], [[_make_call("rewrite")]]])
    flow = agent_flow(plan, trace, Budget())
    next(flow)
    flow.send([Reply(prompt_tokens=10, completion_tokens=1, ms=3.14159), "found", Reply(prompt_tokens=20)])
    assert len(trace.calls) == 2
    flow.send(["found"])
    flow.send([Reply(error=KeyError("x"), completion_tokens=4, ms=7.77)])
    assert trace.calls == [
        Call(step=1, purpose="read", prompt_tokens=10, completion_tokens=1, ms=3.1, error=""),
        Call(step=1, purpose="gist", prompt_tokens=20),
        Call(step=2, purpose="rewrite", completion_tokens=4, ms=7.8, error="KeyError: 'x'"),
    ]


# -- Budget -----------------------------------------------------------------------------------------------------------


def test_retries_count_and_each_call_is_told_how_many_it_may_take() -> None:
    trace = _make_trace()
    flow = agent_flow(Plan([[[ASK, SEARCH, ASK], [ASK]], [[ASK]]]), trace, Budget(max_llm_calls=7))
    asked = replace(ASK, max_calls=3)
    assert next(flow) == [asked, SEARCH, asked]
    assert flow.send([Reply(calls=3), "found", Reply(calls=2)]) == [replace(ASK, max_calls=2)]
    assert flow.send([Reply(calls=2)]) == [LAST]
    assert (trace.stopped, trace.llm_calls, len(trace.calls)) == ("max_llm_calls", 7, 3)


def test_no_call_is_begun_once_max_tokens_are_spent() -> None:
    """40 + 9 of 100, 49 + 30 + 20 of 100, 99 + 1: the third call may begin, the fourth may not, a search always may."""
    costs = [(40, 9), (30, 20), (0, 1)]
    replies = [Reply(prompt_tokens=sent, completion_tokens=received) for sent, received in costs]
    trace, plan = _make_trace(), Plan([[[ASK]], [[ASK]], [[ASK], [SEARCH], [ASK]], [[ASK]]])
    flow = agent_flow(plan, trace, Budget(max_tokens=100))
    assert next(flow) == [ASK]
    assert flow.send([replies[0]]) == [ASK]
    assert flow.send([replies[1]]) == [ASK]
    assert flow.send([replies[2]]) == [SEARCH]
    assert flow.send(["found"]) == [LAST]
    assert (trace.stopped, trace.llm_calls, len(trace.steps)) == ("max_tokens", 3, 3)
    assert _get_result(flow, ["z"]) == [*replies, "found", "z"]


@pytest.mark.parametrize("budget", [Budget(max_llm_calls=1), Budget(max_tokens=10), Budget(timeout=10)])
def test_a_budget_that_is_just_used_up_when_the_policy_ends_did_not_end_it(budget: Budget) -> None:
    trace, clock = _make_trace(), Clock()
    flow = agent_flow(Plan([[[ASK]]], {1: "answered"}), trace, budget, clock)
    next(flow)
    clock.now += 10
    assert flow.send([Reply(prompt_tokens=10)]) == [LAST]
    assert trace.stopped == "answered"


# -- Calls that fail --------------------------------------------------------------------------------------------------


def test_the_first_call_that_fails_raises_its_own_error() -> None:
    error, trace, plan = ConnectionError("refused"), _make_trace(), Plan([[[SEARCH], [ASK]]])
    flow = agent_flow(plan, trace, Budget())
    next(flow)
    flow.send(["found"])
    with pytest.raises(ConnectionError) as raised:
        flow.send([Reply(error=error)])
    assert raised.value is error
    assert error.__cause__ is None and error.__suppress_context__
    assert plan.log == ["step 1 ended"]
    assert [call.error for call in trace.calls] == ["ConnectionError: refused"]
    assert trace.stopped == "failed: ConnectionError: refused"


def test_a_later_call_that_fails_ends_the_loop_with_what_was_found() -> None:
    trace, plan = _make_trace(), Plan([[[ASK], [SEARCH], [ASK], [SEARCH]], [[SEARCH]]])
    flow = agent_flow(plan, trace, Budget())
    next(flow)
    flow.send([Reply("1")])
    flow.send(["found"])
    assert flow.send([Reply(error=ConnectionError("refused"))]) == [LAST]
    assert (trace.stopped, trace.llm_calls, len(trace.steps)) == ("failed: ConnectionError: refused", 2, 1)
    assert _get_result(flow, ["z"]) == [Reply("1"), "found", "z"]


@pytest.mark.parametrize("order", [1, -1], ids=["the first", "the second"])
def test_one_of_two_calls_at_once_fails(order: int) -> None:
    trace = _make_trace()
    flow = agent_flow(Plan([[[ASK, SEARCH, ASK]]]), trace, Budget())
    next(flow)
    first, second = [Reply(error=ConnectionError("refused")), Reply("fine")][::order]
    assert flow.send([first, "found", second]) == [LAST]
    assert (trace.stopped, trace.llm_calls) == ("failed: ConnectionError: refused", 2)
    assert _get_result(flow, ["z"]) == ["z"]


def test_a_policy_may_live_with_a_call_that_fails() -> None:
    class Patient(Plan):
        def step_flow(self, state: list[Any], record: Step) -> Flow[str]:
            try:
                yield [ASK]
            except Exception:  # noqa: BLE001 - whatever it is
                state.extend((yield [SEARCH]))
            return "made do"

    trace = _make_trace()
    flow = agent_flow(Patient([[], []]), trace, Budget())
    next(flow)
    assert flow.send([Reply(error=ConnectionError("refused"))]) == [SEARCH]
    assert flow.send(["found"]) == [LAST]
    assert (_get_result(flow, ["z"]), trace.stopped) == (["found", "z"], "made do")


@pytest.mark.parametrize("passed", [59.99, 60, 61], ids=["a little early", "on the dot", "late"])
@pytest.mark.parametrize("earlier", [0, 1], ids=["first call", "second call"])
def test_a_call_that_is_given_up_at_the_deadline_is_a_timeout(passed: float, earlier: int) -> None:
    trace, clock = _make_trace(), Clock()
    flow = agent_flow(Plan([[[ASK]] * (earlier + 1)]), trace, Budget(timeout=60), clock)
    next(flow)
    for _ in range(earlier):
        flow.send([Reply("1")])
    clock.now += passed
    assert flow.send([Reply(error=OutOfTime("no reply"))]) == [LAST]
    assert (trace.stopped, trace.calls[-1].error) == ("timeout", "OutOfTime: no reply")
    assert _get_result(flow, ["z"]) == [Reply("1")] * earlier + ["z"]


@pytest.mark.parametrize("budget", [Budget(), Budget(timeout=60)], ids=["no deadline", "before the deadline"])
def test_a_timeout_of_the_models_client_is_a_failure(budget: Budget) -> None:
    trace, clock, error = _make_trace(), Clock(), TimeoutError("read timed out")
    flow = agent_flow(Plan([[[ASK], [ASK]]]), trace, budget, clock)
    next(flow)
    flow.send([Reply("1")])
    clock.now += 59
    assert flow.send([Reply(error=error)]) == [LAST]
    assert trace.stopped == "failed: TimeoutError: read timed out"
    flow = agent_flow(Plan([[[ASK]]]), _make_trace(), budget, clock)
    next(flow)
    with pytest.raises(TimeoutError) as raised:
        flow.send([Reply(error=error)])
    assert raised.value is error


def test_another_error_after_the_deadline_is_a_failure() -> None:
    trace, clock = _make_trace(), Clock()
    flow = agent_flow(Plan([[[ASK], [ASK]]]), trace, Budget(timeout=60), clock)
    next(flow)
    flow.send([Reply("1")])
    clock.now += 61
    flow.send([Reply(error=ConnectionError("refused"))])
    assert trace.stopped == "failed: ConnectionError: refused"


# -- What drives it ---------------------------------------------------------------------------------------------------


class Broken(Exception):
    pass


def _break_search(request: Any) -> Any:
    if request == LAST:
        return "z"
    if isinstance(request, EmbedQuery):
        raise Broken("the index is gone")
    return Reply("1")


async def _abreak_search(request: Any) -> Any:
    await asyncio.sleep(0)
    return _break_search(request)


@pytest.mark.parametrize("batch", [[SEARCH], [ASK, SEARCH]], ids=["alone", "beside a call"])
async def test_a_search_that_fails_passes_through_the_policy_to_the_caller(batch: list[Any]) -> None:
    for drive in ("run", "arun"):
        trace, plan = _make_trace(), Plan([[[ASK], batch]])
        flow = agent_flow(plan, trace, Budget())
        with pytest.raises(Broken, match="the index is gone"):
            run(flow, _break_search) if drive == "run" else await arun(flow, _abreak_search)
        assert (plan.log, trace.stopped, trace.llm_calls) == (["step 1 ended"], "failed: Broken: the index is gone", 1)


def test_a_search_that_fails_in_a_later_step_ends_the_loop_with_what_was_found() -> None:
    trace, plan = _make_trace(), Plan([[[ASK]], [[ASK], [SEARCH], [ASK]], [[ASK]]])
    assert run(agent_flow(plan, trace, Budget()), _break_search) == [Reply("1"), Reply("1"), "z"]
    assert (trace.stopped, len(trace.steps)) == ("failed: Broken: the index is gone", 2)
    assert plan.log == ["step 1 ended", "step 2 ended", "finish ended"]


def test_a_policy_may_live_with_a_search_that_fails() -> None:
    class Resilient(Plan):
        def step_flow(self, state: list[Any], record: Step) -> Flow[str]:
            try:
                yield [SEARCH]
            except Broken as error:
                state.append(str(error))
            state.extend((yield [ASK]))
            return "made do"

    trace = _make_trace()
    flow = agent_flow(Resilient([[]]), trace, Budget())
    assert run(flow, _break_search) == ["the index is gone", Reply("1"), "z"]
    assert (trace.stopped, trace.llm_calls) == ("made do", 1)


def test_an_error_in_finish_reaches_the_caller() -> None:
    plan = Plan([])
    flow = agent_flow(plan, _make_trace(), Budget())
    next(flow)
    with pytest.raises(Broken, match="the index is gone"):
        flow.throw(Broken("the index is gone"))
    assert plan.log == ["finish ended"]


@pytest.mark.parametrize(
    ("plan", "log"),
    [
        (Plan([[], [[SEARCH]], [[SEARCH]]]), ["step 1 ended", "step 2 ended"]),
        (Plan([[[ASK, SEARCH]]]), ["step 1 ended"]),
        (Plan([]), ["finish ended"]),
    ],
    ids=["a search", "a call and a search", "finish"],
)
async def test_cancelling_closes_the_policys_generators(plan: Plan, log: list[str]) -> None:
    started, trace = asyncio.Event(), _make_trace()

    async def answer(request: Any) -> Any:
        started.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(arun(agent_flow(plan, trace, Budget()), answer))
    await asyncio.wait_for(started.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (plan.log, trace.llm_calls) == (log, 0)


# -- For any plan -----------------------------------------------------------------------------------------------------

# Per step its batches, per batch its requests: a number is a call that costs as many tokens, None a search.
shapes = st.lists(st.lists(st.lists(st.none() | st.integers(0, 9), max_size=3), max_size=3), max_size=4)


def _make_plan(shape: list[list[list[int | None]]]) -> Plan:
    def make_request(cost: int | None) -> Any:
        return SEARCH if cost is None else _make_call(str(cost))

    return Plan([[[make_request(cost) for cost in batch] for batch in step] for step in shape])


def _pay(request: Any) -> Any:
    """Return a reply whose tokens are the request's cost, half prompt and half completion."""
    if not isinstance(request, CallLLM):
        return request
    cost = int(request.purpose)
    return Reply(request.purpose, prompt_tokens=cost // 2, completion_tokens=cost - cost // 2)


def _list_batches(shape: list[list[list[int | None]]]) -> list[list[int | None]]:
    return [batch for step in shape for batch in step]


def _list_costs(batches: list[list[int | None]]) -> list[int]:
    return [cost for batch in batches for cost in batch if cost is not None]


@given(shapes, st.integers(1, 12))
def test_max_llm_calls_is_never_exceeded_and_as_much_is_done_as_it_allows(
    shape: list[list[list[int | None]]], limit: int
) -> None:
    batches = _list_batches(shape)
    # Batches are begun up to the first that would make one call too many.
    within = [len(_list_costs(batches[: n + 1])) <= limit for n in range(len(batches))]
    done = batches[: within.index(False)] if False in within else batches
    trace = _make_trace()
    result = run(agent_flow(_make_plan(shape), trace, Budget(max_llm_calls=limit)), _pay)
    assert [reply.text for reply in result if isinstance(reply, Reply)] == [str(cost) for cost in _list_costs(done)]
    assert len(result) == sum(map(len, done)) + 1
    assert trace.llm_calls == len(_list_costs(done)) <= limit
    assert trace.stopped == ("max_steps" if all(within) else "max_llm_calls")


@given(shapes, st.integers(1, 40))
def test_max_tokens_is_exceeded_by_the_last_batch_at_most(shape: list[list[list[int | None]]], limit: int) -> None:
    batches = _list_batches(shape)
    # A batch with calls is begun while those before it cost less than the limit.
    within = [sum(_list_costs(batches[:n])) < limit or not _list_costs([batch]) for n, batch in enumerate(batches)]
    done = batches[: within.index(False)] if False in within else batches
    trace = _make_trace()
    result = run(agent_flow(_make_plan(shape), trace, Budget(max_tokens=limit)), _pay)
    assert len(result) == sum(map(len, done)) + 1
    assert trace.prompt_tokens + trace.completion_tokens == sum(_list_costs(done))
    assert trace.stopped == ("max_steps" if all(within) else "max_tokens")


@given(shapes, st.integers(1, 40))
def test_no_request_is_made_at_or_after_the_deadline(shape: list[list[list[int | None]]], timeout: int) -> None:
    """A search takes a second, a call as many seconds as it costs tokens; `run` answers one after the other."""
    trace, clock = _make_trace(), Clock()
    begun: list[tuple[float, Any]] = []

    def answer(request: Any) -> Any:
        begun.append((clock.now - 1000, request))
        clock.now += int(request.purpose) if isinstance(request, CallLLM) else 1
        return _pay(request)

    batches = _list_batches(shape)
    seconds = [sum(1 if cost is None else cost for cost in batch) for batch in batches]
    within = [sum(seconds[:n]) < timeout for n in range(len(batches))]
    done = batches[: within.index(False)] if False in within else batches
    run(agent_flow(_make_plan(shape), trace, Budget(timeout=timeout), clock), answer)
    assert len(begun) == sum(map(len, done)) + 1
    assert trace.stopped == ("max_steps" if all(within) else "timeout")
    starts = [sum(seconds[:n]) for n, batch in enumerate(done) for cost in batch if cost is not None]
    assert [request.timeout for _, request in begun if isinstance(request, CallLLM)] == [timeout - s for s in starts]


@given(shapes, st.integers(1, 12))
def test_a_policy_that_will_not_hear_is_held_to_its_budget_all_the_same(
    shape: list[list[list[int | None]]], limit: int
) -> None:
    class Stubborn(Plan):
        def step_flow(self, state: list[Any], record: Step) -> Flow[str]:
            for batch in self.steps[record.number - 1]:
                try:
                    yield batch
                except Exception:  # noqa: BLE001 - whatever it is
                    state.append("turned down")
            return ""

    asked: list[Any] = []

    def answer(request: Any) -> Any:
        asked.append(request)
        return _pay(request)

    expected, refused = 0, 0
    for batch in _list_batches(shape):
        fits = expected + len(_list_costs([batch])) <= limit or not _list_costs([batch])
        expected += len(_list_costs([batch])) * fits
        refused += not fits
    result = run(agent_flow(Stubborn(_make_plan(shape).steps), _make_trace(), Budget(max_llm_calls=limit)), answer)
    assert sum(isinstance(request, CallLLM) for request in asked) == expected <= limit
    assert result == ["turned down"] * refused + [LAST]


def test_the_first_failure_of_a_batch_is_the_one_that_counts() -> None:
    """A time-out in the same batch does not hide a refusal."""
    for errors in (
        [PermissionError("key"), OutOfTime("late")],
        [OutOfTime("late"), PermissionError("key")],
        [PermissionError("key"), KeyError("x")],
    ):
        flow = agent_flow(Plan([[[ASK, ASK]]]), _make_trace(), Budget(timeout=60), Clock())
        next(flow)
        with pytest.raises(PermissionError, match="key"):
            flow.send([Reply(error=error) for error in errors])


def test_a_trace_says_how_a_search_ended_that_raised() -> None:
    """In the first step, by an error of our own in a later one, and at the end; with the time that it took."""

    class Buggy(Plan):
        def step_flow(self, state: list[Any], record: Step) -> Flow[str]:
            yield from super().step_flow(state, record)
            if record.number == 2:
                raise ZeroDivisionError("a bug")
            return ""

    plans: list[tuple[Plan, list[list[Any]], Exception]] = [
        (Plan([[[SEARCH]]]), [], ConnectionError("refused")),
        (Buggy([[[SEARCH]], [[SEARCH]]]), [["1"], ["2"]], ZeroDivisionError("a bug")),
        (Plan([[[SEARCH]]]), [["1"]], ConnectionError("refused")),
    ]
    for plan, answers, error in plans:
        trace, clock, events = _make_trace(), Clock(), list[TraceEvent]()
        flow = agent_flow(plan, trace, Budget(), clock)
        with trace.subscribe(events.append), pytest.raises(type(error), match=str(error)):
            next(flow)
            clock.now += 2
            for answer in answers:
                flow.send(answer)
            flow.throw(error)
        assert (trace.stopped, trace.ms) == (f"failed: {type(error).__name__}: {error}", 2000)
        assert [(event.kind, event.value) for event in events[-2:]] == [("stopped", trace.stopped), ("ms", 2000)]


def test_a_request_s_own_timeout_stays_if_it_is_shorter() -> None:
    own = replace(ASK, timeout=5.0)
    for budget, expected in ((Budget(), 5.0), (Budget(timeout=60), 5.0), (Budget(timeout=3), 3.0)):
        ((request,)) = next(agent_flow(Plan([[[own]]]), _make_trace(), budget, Clock()))
        assert isinstance(request, CallLLM) and request.timeout == expected


def test_a_step_whose_first_request_is_refused_leaves_no_trace() -> None:
    trace = _make_trace()
    flow = agent_flow(Plan([[[ASK]], [[ASK]]]), trace, Budget(max_llm_calls=1))
    next(flow)
    assert flow.send([Reply("1")]) == [LAST]
    assert (trace.stopped, len(trace.steps)) == ("max_llm_calls", 1)


# -- A store that is away ---------------------------------------------------------------------------------------------


def _note_waits(clock: Clock, waits: list[float], request: Any) -> str:
    waits.append(remaining_seconds())
    clock.now += 2
    return "found"


def test_nothing_waits_for_a_store_beyond_the_timeout() -> None:
    """The limit shrinks from batch to batch; a request after the timeout doesn't wait at all."""
    clock, waits = Clock(), list[float]()
    flow = agent_flow(Plan([[[SEARCH], [SEARCH]], [[SEARCH]]]), _make_trace(), Budget(timeout=5), clock)
    run(flow, lambda request: _note_waits(clock, waits, request))
    assert waits == pytest.approx([5, 3, 1, 0], abs=0.5) and waits[-1] <= 0
    assert remaining_seconds() == math.inf


async def test_nothing_waits_for_a_store_beyond_the_timeout_awaited() -> None:
    clock, waits = Clock(), list[float]()

    async def answer(request: Any) -> str:
        await asyncio.sleep(0)
        return _note_waits(clock, waits, request)

    await arun(agent_flow(Plan([[[SEARCH, SEARCH]]]), _make_trace(), Budget(timeout=9), clock), answer)
    assert waits == pytest.approx([9, 9, 5], abs=0.5)
    assert remaining_seconds() == math.inf


def test_without_a_timeout_the_wait_is_the_store_s_alone() -> None:
    waits: list[float] = []
    run(agent_flow(Plan([[[SEARCH]]]), _make_trace(), Budget()), lambda request: _note_waits(Clock(), waits, request))
    assert waits == [math.inf, math.inf]


def test_a_question_that_is_given_up_leaves_no_limit_behind() -> None:
    flow = agent_flow(Plan([[[SEARCH]]]), _make_trace(), Budget(timeout=5))
    next(flow)
    assert remaining_seconds() < 6
    flow.close()
    assert remaining_seconds() == math.inf
