"""Evidence while it comes about: filled in step by step, told to listeners, streamed, and looked at."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Any, TypeVar

from llama_index.core.bridge.pydantic import BaseModel, PrivateAttr

from llama_index_gear.trace import rendering as picture
from llama_index_gear.trace.evidence import Call, Evidence, Step

Result = TypeVar("Result")


class TraceEvent(BaseModel):
    """Something that became known while a question was worked on.

    Attributes:
        step: the step that it belongs to, from 1; 0 for what belongs to all.
        kind: the field of `Step` (or, for step 0, of `Trace`) that was filled in; "call" for a call of the model.
        value: what was filled in, as plain JSON.

    """

    step: int
    kind: str
    value: Any


Listener = Callable[[TraceEvent], None]


class Trace(Evidence):
    """All that happened on the way from a question to its passages; see `Evidence` for what it holds.

    `model_dump_json()` and `Trace.model_validate_json(…)` keep it and bring it back; `show()`, `to_html(path)` and
    notebooks draw it.
    """

    _listeners: list[Listener] = PrivateAttr(default_factory=list)

    def show(self) -> None:
        """Print it in the terminal, as a tree."""
        picture.show(self)

    def to_html(self, path: str | Path) -> Path:
        """Write it as one page that needs no network: steps, facts as a graph, passages with their chains.

        Returns:
            The file.

        """
        file = Path(path)
        file.write_text(picture.to_html(self), "utf-8")
        return file

    def _repr_html_(self) -> str:
        return picture.to_frame(self)

    @contextlib.contextmanager
    def subscribe(self, listener: Listener) -> Iterator[None]:
        """Have `listener` called with every `TraceEvent`, for as long as the context lasts."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    def open_step(self) -> Step:
        """Begin the next step."""
        self.steps.append(Step(number=len(self.steps) + 1))
        return self.steps[-1]

    def note(self, step: Step | None = None, **fields: Any) -> None:
        """Fill in fields of a step, or (None) of the trace itself, and tell the listeners."""
        target = self if step is None else step
        for name, value in fields.items():
            if getattr(target, name) == value:
                continue
            setattr(target, name, value)
            if self._listeners:
                event = TraceEvent(step=0 if step is None else step.number, kind=name, value=_plain(value))
                for listener in self._listeners:
                    listener(event)

    def note_problem(self, step: Step, problem: str, consequence: str) -> None:
        """Write down a reply that could not be read, if there is such a problem, and what came of it."""
        if problem:
            self.note(step, problems=[*step.problems, f"{problem}; {consequence}"])

    def add_call(self, call: Call) -> None:
        """Add a call of the language model, and tell the listeners."""
        self.calls.append(call)
        for listener in self._listeners:
            listener(TraceEvent(step=call.step, kind="call", value=call.model_dump()))


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump()
    return [_plain(each) for each in value] if isinstance(value, list) else value


_CURRENT: ContextVar[list[Trace]] = ContextVar("gear_trace")


def traced(trace: Trace, work: Callable[[], Result]) -> Result:
    """What `work` returns; the next retriever or engine that it calls fills in `trace`.

    It has a context of its own: an interrupt has nothing to take back, and cannot leave the trace to the next question.
    """
    context = copy_context()
    context.run(_CURRENT.set, [trace])
    return context.run(work)


@contextlib.contextmanager
def tracing(trace: Trace) -> Iterator[None]:
    """`traced`, for async work, whose task has a context of its own."""
    token = _CURRENT.set([trace])
    try:
        yield
    finally:
        _CURRENT.reset(token)


def take_trace(question: str) -> Trace:
    """The trace that the caller wants filled in, or a new one. Claimed once: what is called inside has its own."""
    waiting = _CURRENT.get([])
    return waiting.pop() if waiting else Trace(question=question)


async def stream_trace(
    trace: Trace, work: Callable[[], Coroutine[Any, Any, Result]]
) -> AsyncIterator[TraceEvent | Result]:
    """What `trace` is told while `work` runs, and then its result.

    An exception of `work` is raised; closing the iterator cancels it.
    """
    queue: asyncio.Queue[TraceEvent | None] = asyncio.Queue()
    with trace.subscribe(queue.put_nowait):
        with tracing(trace):  # the task starts with a copy of this context
            task = asyncio.ensure_future(work())
        task.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (event := await queue.get()) is not None:
                yield event
            yield await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
