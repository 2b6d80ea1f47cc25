"""A trace of a question: evidence that is filled in step by step, sent to listeners, streamed, and shown."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Any, TypeVar

from llama_index.core.bridge.pydantic import BaseModel, PrivateAttr

from llama_index_gear.errors import read_path
from llama_index_gear.trace import trace_page
from llama_index_gear.trace.evidence import Call, Evidence, Step

Result = TypeVar("Result")


class TraceEvent(BaseModel):
    """A field of a trace that was filled in, or a call of the language model.

    Attributes:
        step: the step that it belongs to, from 1; 0 for the trace itself.
        kind: the field of `Step` (for step 0, of `Trace`) that was filled in; "call" for a call of the model.
        value: the field's value, or the call, as plain JSON.

    """

    step: int
    kind: str
    value: Any


Listener = Callable[[TraceEvent], None]


class Trace(Evidence):
    """The record of a question, from its first search to its passages; see `Evidence` for its fields.

    `model_dump_json()` saves it, and `Trace.model_validate_json(…)` loads it. `show()`, `to_html(path)` and notebooks
    draw it.
    """

    _listeners: list[Listener] = PrivateAttr(default_factory=list)

    def show(self) -> None:
        """Print the trace in the terminal: the answer, the facts and passages that matter, the steps, in 25 lines."""
        trace_page.show(self)

    def to_html(self, path: str | Path) -> Path:
        """Write the trace as one page that needs no network.

        On top stand the answer with its citations, the path to it (the few facts and passages that matter), and these
        passages. All steps and passages are folded below.

        Args:
            path: the file; an existing one is replaced.

        Returns:
            The file.

        """
        file = read_path(path=path)
        file.write_text(trace_page.to_html(self), "utf-8")
        return file

    def _repr_html_(self) -> str:
        return trace_page.to_frame(self)

    @contextlib.contextmanager
    def subscribe(self, listener: Listener) -> Iterator[None]:
        """Call `listener` with every `TraceEvent` while the context lasts."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    def open_step(self) -> Step:
        """Add the next step, and return it."""
        self.steps.append(Step(number=len(self.steps) + 1))
        return self.steps[-1]

    def note(self, step: Step | None = None, **fields: Any) -> None:
        """Fill in fields of a step, or (None) of the trace itself, and send those that changed to the listeners."""
        target = self if step is None else step
        for name, value in fields.items():
            if getattr(target, name) == value:
                continue
            setattr(target, name, value)
            if self._listeners:
                event = TraceEvent(step=0 if step is None else step.number, kind=name, value=_to_json(value))
                for listener in self._listeners:
                    listener(event)

    def note_problem(self, step: Step, problem: str, consequence: str, *, unread: bool = False) -> None:
        """Add a problem and its consequence to a step; do nothing if the problem is empty.

        Args:
            step: the step.
            problem: what went wrong.
            consequence: what the method does about it.
            unread: True if the reply of the last call could not be read. Default False: the problem is another.

        """
        if not problem:
            return
        self.note(step, problems=[*step.problems, f"{problem}; {consequence}"])
        if unread:
            self.mark_unreadable()

    def mark_unreadable(self) -> None:
        """Mark the last call: its reply could not be read."""
        self.calls[-1].unreadable = True

    def add_call(self, call: Call) -> None:
        """Add a call of the language model, and send it to the listeners."""
        self.calls.append(call)
        for listener in self._listeners:
            listener(TraceEvent(step=call.step, kind="call", value=call.model_dump()))


def _to_json(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump()
    return [_to_json(item) for item in value] if isinstance(value, list) else value


_CURRENT: ContextVar[list[Trace]] = ContextVar("gear_trace")


def run_traced(trace: Trace, work: Callable[[], Result]) -> Result:
    """Return the result of `work`; the first retriever or engine that it calls fills in `trace`.

    `work` runs in a context of its own, so that an interrupt cannot leave the trace to the next question.
    """
    context = copy_context()
    context.run(_CURRENT.set, [trace])
    return context.run(work)


@contextlib.contextmanager
def use_trace(trace: Trace) -> Iterator[None]:
    """Have the next retriever or engine that is called in this context fill in `trace`, as `run_traced` does.

    For async work, whose task has a context of its own.
    """
    token = _CURRENT.set([trace])
    try:
        yield
    finally:
        _CURRENT.reset(token)


def take_trace(question: str) -> Trace:
    """Return the trace that the caller wants filled in, once; after that, and without one, a new trace.

    A retriever inside an engine therefore has a trace of its own.
    """
    waiting = _CURRENT.get([])
    return waiting.pop() if waiting else Trace(question=question)


async def stream_trace(
    trace: Trace, work: Callable[[], Coroutine[Any, Any, Result]]
) -> AsyncIterator[TraceEvent | Result]:
    """Yield the events of `trace` while `work` runs, and then its result.

    An exception of `work` is raised; closing the iterator cancels `work`.
    """
    queue: asyncio.Queue[TraceEvent | None] = asyncio.Queue()
    with trace.subscribe(queue.put_nowait):
        with use_trace(trace):  # the task starts with a copy of this context
            task = asyncio.ensure_future(work())
        task.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (event := await queue.get()) is not None:
                yield event
            yield await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
