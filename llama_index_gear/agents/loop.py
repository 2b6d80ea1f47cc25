"""The one multi-step loop: a policy's steps, one after the other, metered against a budget and written down.

It knows no method and no framework: a policy says what a step does, as a flow of requests; the drivers of `flow`
answer them. What was found stays found: whatever ends a step, the policy finishes with what it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from llama_index_gear.errors import ArgumentError, OutOfTime, check_numbers, describe_error, shown
from llama_index_gear.flow import Flow, Request, relay
from llama_index_gear.requests import CallLLM
from llama_index_gear.trace.evidence import Call, Step
from llama_index_gear.trace.trace import Trace

State = TypeVar("State")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)
Clock = Callable[[], float]

_MAX_TIMEOUT = 1_000_000  # seconds, eleven days: what every platform can wait for


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a question may cost. When a limit is reached, the best ranking so far is the result.

    Args:
        max_llm_calls: calls of the language model. Default None: as many as the policy makes.
        max_tokens: prompt and completion tokens of all calls; no call is begun once so many are spent (the last one
            may overshoot). Default None.
        timeout: seconds, at most 1,000,000. A call that is under way is given up when they are over: in async mode it
            is cancelled, in sync mode its reply is not waited for. Default None.

    Raises:
        ArgumentError: a limit that is not above 0, or no number.

    """

    max_llm_calls: int | None = None
    max_tokens: int | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_llm_calls", "max_tokens"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ArgumentError(f"{name} must be above 0: a whole number, or None for no limit; got {shown(value)}")
        if self.timeout is not None:
            allowed = f"above 0 and at most {_MAX_TIMEOUT:,} seconds, or None for no limit"
            check_numbers(allowed, lambda seconds: 0 < seconds <= _MAX_TIMEOUT, timeout=self.timeout)


class Policy(Protocol[State, Result_co]):
    """What a multi-step method does; the loop does the rest."""

    @property
    def max_steps(self) -> int:
        """Steps at most."""

    def begin(self, query: Any, trace: Trace) -> State:
        """What is known before the first step. Asks nothing."""

    def step_flow(self, state: State, record: Step) -> Flow[str]:
        """One round: adds to `state` as soon as something is known, and writes it down in `record`.

        Returns why the loop ends here, or "" to go on.
        """

    def finish_flow(self, state: State) -> Flow[Result_co]:
        """The result, from whatever the steps left in `state`. Asks no language model."""


class _Ended(Exception):
    """Thrown into a step: it may go no further."""

    def __init__(self, reason: str, cause: Exception | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.cause = cause


def agent_flow(
    policy: Policy[State, Result], trace: Trace, budget: Budget, clock: Clock = time.monotonic, query: Any = None
) -> Flow[Result]:
    """Run `policy` on a question.

    A request that fails ends the loop; the result is what the steps before it gave, and `trace.stopped` names the
    failure. Only if nothing would be lost is its error raised: if no call of the language model had succeeded before
    a call that fails, and in the first step if anything else does.

    Args:
        policy: the method.
        trace: of the question; filled in on the way.
        budget: what it may cost.
        clock: seconds, monotonic.
        query: what the policy begins with, if that is more than the question's text.

    """
    start = clock()
    state = policy.begin(trace.question if query is None else query, trace)
    meter = _Meter(trace, budget, clock, start)
    stopped = "max_steps"
    for _ in range(policy.max_steps):
        record = trace.open_step()
        try:
            verdict = yield from meter.metered_flow(policy.step_flow(state, record), record.number)
        except _Ended as ended:
            verdict = ended.reason
            if not meter.has_begun:
                trace.steps.pop()
            if ended.cause is not None and not meter.has_succeeded:
                trace.note(stopped=verdict, ms=1000 * (clock() - start))
                raise ended.cause from None
        except Exception as error:
            if error is not meter.failure or record.number == 1:
                raise
            verdict = _failed(error)
        if verdict:
            stopped = verdict
            break
    trace.note(stopped=stopped)
    result = yield from policy.finish_flow(state)
    trace.note(ms=1000 * (clock() - start))
    return result


@dataclass
class _Meter:
    """Counts what the requests of a flow cost, and ends it when the budget is spent.

    Attributes:
        trace: where calls are written down.
        budget: what they may cost.
        clock: seconds.
        start: when the budget's time began.
        has_succeeded: whether any call of the language model was answered.
        has_begun: whether the flow's first requests were let through.
        failure: what the last request that failed, other than a call of the language model, raised.

    """

    trace: Trace
    budget: Budget
    clock: Clock
    start: float
    has_succeeded: bool = False
    has_begun: bool = False
    failure: Exception | None = None

    def metered_flow(self, flow: Flow[Result], step: int) -> Flow[Result]:
        """The same flow, metered."""
        self.has_begun = False
        return relay(flow, lambda batch: self._answer_flow(batch, step))

    def _answer_flow(self, batch: Sequence[Request[Any]], step: int) -> Flow[Sequence[Any]]:
        """The answers of a batch, unless the budget is spent or a call of the language model fails.

        Raises:
            _Ended: it is, or one does.

        """
        if spent := self._spent(batch):
            raise _Ended(spent)
        self.has_begun = True
        try:
            answers = yield [self._with_timeout(request) for request in batch]
        except Exception as error:
            self.failure = error
            raise
        if ended := self._count(batch, answers, step):
            raise ended
        return answers

    def _spent(self, batch: Sequence[Request[Any]]) -> str:
        if self._remaining() == 0:
            return "timeout"
        calls = sum(isinstance(request, CallLLM) for request in batch)
        limit = self.budget.max_llm_calls
        if calls and limit is not None and self.trace.llm_calls + calls > limit:
            return "max_llm_calls"
        limit = self.budget.max_tokens
        if calls and limit is not None and self.trace.prompt_tokens + self.trace.completion_tokens >= limit:
            return "max_tokens"
        return ""

    def _remaining(self) -> float | None:
        if self.budget.timeout is None:
            return None
        return max(0.0, self.start + self.budget.timeout - self.clock())

    def _with_timeout(self, request: Request[Any]) -> Request[Any]:
        remaining = self._remaining()
        if not isinstance(request, CallLLM) or remaining is None:
            return request
        return replace(request, timeout=remaining if request.timeout is None else min(remaining, request.timeout))

    def _count(self, batch: Sequence[Request[Any]], answers: Sequence[Any], step: int) -> _Ended | None:
        """Write down the calls of the model; what ended the flow, if one of them did."""
        ended = None
        for request, reply in zip(batch, answers, strict=True):
            if not isinstance(request, CallLLM):
                continue
            error = reply.error
            self.trace.add_call(
                Call(
                    step=step,
                    purpose=request.purpose,
                    prompt_tokens=reply.prompt_tokens,
                    completion_tokens=reply.completion_tokens,
                    ms=round(reply.ms, 1),
                    error="" if error is None else describe_error(error),
                )
            )
            if error is None:
                self.has_succeeded = True
            elif isinstance(error, OutOfTime) and self.budget.timeout is not None:
                ended = ended or _Ended("timeout")
            elif ended is None or ended.cause is None:
                ended = _Ended(_failed(error), error)
        return ended


def _failed(error: Exception) -> str:
    return f"failed: {describe_error(error)}"
