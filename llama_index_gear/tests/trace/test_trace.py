import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

import pytest

from llama_index_gear.trace.evidence import Call, Check, Linked, PassageLink, Source, Step, Walked
from llama_index_gear.trace.trace import Trace, TraceEvent, run_traced, stream_trace, take_trace, use_trace

FATHER = ["Stephen Curry", "father", "Dell Curry"]
JOINED = ["Dell Curry", "joined", "Charlotte Hornets"]


def _make_full() -> Trace:
    """Return a trace with something in every field."""
    first = Step(
        number=1,
        query="Which team did the father of Stephen Curry join?",
        base=["p1", "p2"],
        proximal=[FATHER],
        linked=[Linked(triple=FATHER, passage_id="p1", score=0.75)],
        fallback="the reader noted nothing",
        beams=[Walked(score=1.5, chain=[FATHER, JOINED], passage_ids=["p1", "p3"])],
        passages=["p1", "p3", "p2"],
        gist=[FATHER],
        left_out=2,
        answerable=False,
        reason="The team is missing.",
        next_query="Which team did Dell Curry join?",
        problems=["no facts; the reading was left out"],
    )
    second = Step(number=2, query="Which team did Dell Curry join?", gist=[JOINED], answerable=True, answer="Hornets")
    third = Step(number=3, problems=["no verdict", "no query"])
    return Trace(
        question="Which team did the father of Stephen Curry join?",
        steps=[first, second, third],
        links=[PassageLink(triple=JOINED, passages=["p3", "p1"])],
        passages=[
            Source(
                passage_id="p3",
                title="Dell Curry",
                text="Dell Curry joined the Hornets.",
                score=0.03,
                ranks={"step 1": 2, "fact 1": 1},
                chain=[FATHER, JOINED],
            )
        ],
        titles={"p1": "Stephen Curry", "p3": "Dell Curry"},
        calls=[
            Call(step=1, purpose="read", prompt_tokens=100, completion_tokens=7, ms=12.5),
            Call(step=1, purpose="gist", prompt_tokens=30, completion_tokens=5),
            Call(step=2, purpose="reason", prompt_tokens=4, error="KeyError: 'x'"),
        ],
        stopped="answered",
        answer="Hornets",
        response="Hornets [1]",
        unanswered=True,
        citations={"1": "p1"},
        checks=[Check(passages=["p1"], without="p3", follows=False, missing="the year", problem="none")],
        supporting=["p1", "p3"],
        verification="supported",
        ms=1234.5678,
    )


# -- The record -------------------------------------------------------------------------------------------------------


def test_json_brings_it_back() -> None:
    trace = _make_full()
    assert all(value for value in trace.model_dump().values())
    assert Trace.model_validate_json(trace.model_dump_json()) == trace
    assert Trace.model_validate(json.loads(json.dumps(trace.model_dump()))) == trace


def test_compact_is_flat_json_with_the_right_sums() -> None:
    compact = _make_full().compact()
    assert compact == {
        "gear_warning": "the language model gave no answer: the passages stand in its place",
        "gear_stopped": "answered",
        "gear_answer": "Hornets",
        "gear_cited": ["p1"],
        "gear_supporting": ["p1", "p3"],
        "gear_verification": "supported",
        "gear_queries": [
            "Which team did the father of Stephen Curry join?",
            "Which team did Dell Curry join?",
            "",
        ],
        "gear_gist": [FATHER, JOINED],
        "gear_open": [],
        "gear_llm_calls": 3,
        "gear_prompt_tokens": 134,
        "gear_completion_tokens": 12,
        "gear_problems": ["no facts; the reading was left out", "no verdict", "no query"],
        "gear_ms": 1234.6,
    }
    assert json.loads(json.dumps(compact)) == compact
    assert not any(isinstance(value, dict) for value in compact.values())


# -- Notes and listeners ----------------------------------------------------------------------------------------------


def _listen(trace: Trace) -> list[tuple[int, str, Any]]:
    heard: list[tuple[int, str, Any]] = []
    trace._listeners.append(lambda event: heard.append((event.step, event.kind, event.value)))
    return heard


def test_listeners_hear_of_changes_alone() -> None:
    trace = Trace(question="Who?")
    heard, step = _listen(trace), trace.open_step()
    trace.note(step, query="", base=[], answerable=None, left_out=0)
    trace.note(stopped="", links=[])
    assert heard == []
    trace.note(step, query="Which?", left_out=0, answerable=False)
    trace.note(step, query="Which?", answerable=False)
    trace.note(step, query="Where?")
    assert heard == [(1, "query", "Which?"), (1, "answerable", False), (1, "query", "Where?")]


def test_listeners_are_told_plain_json() -> None:
    trace = Trace(question="Who?")
    heard, step, full = _listen(trace), trace.open_step(), _make_full()
    trace.note(step, linked=full.steps[0].linked, beams=full.steps[0].beams, proximal=[FATHER])
    trace.note(passages=full.passages)
    assert heard == [
        (1, "linked", [{"triple": FATHER, "passage_id": "p1", "score": 0.75}]),
        (1, "beams", [{"score": 1.5, "chain": [FATHER, JOINED], "passage_ids": ["p1", "p3"]}]),
        (1, "proximal", [FATHER]),
        (0, "passages", [full.passages[0].model_dump()]),
    ]
    assert json.loads(json.dumps(heard)) == [list(event) for event in heard]


def test_a_call_is_added_and_told() -> None:
    trace = Trace(question="Who?")
    first, second = _listen(trace), _listen(trace)
    call = Call(step=2, purpose="reason", prompt_tokens=4, completion_tokens=1, ms=2.5)
    trace.add_call(call)
    assert trace.calls == [call]
    fields = {"step": 2, "purpose": "reason", "prompt_tokens": 4, "completion_tokens": 1, "ms": 2.5, "error": ""}
    fields |= {"tries": 1, "unreadable": False}
    assert first == second == [(2, "call", fields)]


# -- Whose trace it is ------------------------------------------------------------------------------------------------


def test_a_trace_is_claimed_once_and_keeps_its_question() -> None:
    trace = Trace(question="As asked?")
    with use_trace(trace):
        assert take_trace("Who?") is trace
        inner = take_trace("Who?")
        assert inner is not trace and inner == Trace(question="Who?")
    assert trace.question == "As asked?"


def test_what_is_not_claimed_inside_is_not_claimed_outside() -> None:
    trace = Trace(question="Who?")
    with use_trace(trace):
        pass
    assert take_trace("Who?") is not trace
    with contextlib.suppress(KeyError), use_trace(trace):
        raise KeyError
    assert take_trace("Who?") is not trace


def test_the_inner_wish_counts_inside_and_the_outer_one_behind_it() -> None:
    outer, inner = Trace(question="outer"), Trace(question="inner")
    with use_trace(outer):
        with use_trace(inner):
            assert take_trace("Who?") is inner
            assert take_trace("Who?") not in (inner, outer)
        assert take_trace("Who?") is outer
        assert take_trace("Who?") not in (inner, outer)


# -- Streams ----------------------------------------------------------------------------------------------------------


async def _collect(stream: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in stream]


def _make_event(value: str) -> TraceEvent:
    return TraceEvent(step=0, kind="answer", value=value)


async def test_events_come_while_the_work_goes_on() -> None:
    trace, seen = Trace(question="Who?"), asyncio.Event()

    async def work() -> str:
        trace.note(answer="first")
        await seen.wait()
        trace.note(answer="second")
        return "result"

    stream = stream_trace(trace, work)
    assert await asyncio.wait_for(anext(stream), 60) == _make_event("first")
    seen.set()
    assert await asyncio.wait_for(_collect(stream), 60) == [_make_event("second"), "result"]


async def test_the_work_is_given_the_trace_and_the_caller_keeps_none() -> None:
    trace = Trace(question="Who?")

    async def work() -> list[bool]:
        return [take_trace("Who?") is trace, take_trace("Who?") is trace]

    stream = stream_trace(trace, work)
    assert await asyncio.wait_for(anext(stream), 60) == [True, False]
    assert take_trace("Who?") is not trace
    await stream.aclose()  # type: ignore[attr-defined]


async def _wait_after_note(trace: Trace, log: list[str]) -> str:
    try:
        trace.note(answer="Dell")
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        log.append("cancelled")
        await asyncio.sleep(0)  # cleaning up takes a moment
        log.append("cleaned up")
        raise
    return "result"


async def test_closing_the_stream_cancels_the_work_and_waits_for_it() -> None:
    trace, log, before = Trace(question="Who?"), list[str](), asyncio.all_tasks()
    stream: Any = stream_trace(trace, lambda: _wait_after_note(trace, log))
    assert await asyncio.wait_for(anext(stream), 60) == _make_event("Dell")
    await stream.aclose()
    assert log == ["cancelled", "cleaned up"]
    assert asyncio.all_tasks() == before


async def test_cancelling_who_listens_cancels_the_work_and_waits_for_it() -> None:
    trace, log = Trace(question="Who?"), list[str]()
    heard = asyncio.Event()

    async def listen() -> None:
        async for _ in stream_trace(trace, lambda: _wait_after_note(trace, log)):
            heard.set()

    task = asyncio.create_task(listen())
    await asyncio.wait_for(heard.wait(), 60)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["cancelled", "cleaned up"]


async def test_an_error_while_cleaning_up_is_not_the_callers() -> None:
    trace = Trace(question="Who?")

    async def work() -> str:
        trace.note(answer="Dell")
        try:
            await asyncio.sleep(60)
        finally:
            raise KeyError("lost")

    stream: Any = stream_trace(trace, work)
    assert await asyncio.wait_for(anext(stream), 60) == _make_event("Dell")
    await stream.aclose()


def test_sync_work_that_is_traced_sees_what_its_caller_set() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="nothing")
    variable.set("the caller's")
    trace = Trace(question="q")
    assert run_traced(trace, lambda: (variable.get(), take_trace("q") is trace)) == ("the caller's", True)
