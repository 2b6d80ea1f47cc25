"""The loop of all multi-step methods: it runs a policy's steps, meters them against a budget, and traces them.

It knows no method and no framework. A policy's step is a flow of requests, which the drivers of `flow` answer. Whatever
ends a step, the policy finishes with the passages that it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from llama_index_gear.errors import ArgumentError, GeARError, OutOfTime, check_numbers, describe_error, format_value
from llama_index_gear.flow import CallLLM, Flow, Request, limit_waiting, relay
from llama_index_gear.llm.spans import show_ids, span_flow
from llama_index_gear.trace.evidence import Call, Step
from llama_index_gear.trace.trace import Trace

State = TypeVar("State")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)
Clock = Callable[[], float]

_MAX_TIMEOUT = 1_000_000  # seconds, eleven days: every platform can wait for as long


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The limits of a question's cost. When one is reached, the best ranking so far is the result.

    A call in which a query engine only writes the answer is not counted.

    Args:
        max_llm_calls: maximum number of calls of the language model, retries included. Default None: no limit.
        max_tokens: prompt and completion tokens of all calls. No call begins once so many are spent; the last call may
            exceed the limit. Default None: no limit.
        timeout: seconds, at most 1,000,000. A call that is under way then is given up: in async mode it is cancelled,
            in sync mode its reply is not waited for. A server that is away is waited for until then. Default None: no
            limit.

    Raises:
        ArgumentError: a limit is no number, or not above 0.

    """

    max_llm_calls: int | None = None
    max_tokens: int | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_llm_calls", "max_tokens"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ArgumentError(
                    f"{name} must be above 0: a whole number, or None for no limit; got {format_value(value)}"
                )
        if self.timeout is not None:
            allowed = f"above 0 and at most {_MAX_TIMEOUT:,} seconds, or None for no limit"
            check_numbers(allowed, lambda seconds: 0 < seconds <= _MAX_TIMEOUT, timeout=self.timeout)


class Policy(Protocol[State, Result_co]):
    """A multi-step method, as the loop sees it."""

    @property
    def max_steps(self) -> int:
        """The maximum number of steps."""

    def begin(self, query: Any, trace: Trace) -> State:
        """Return the state before the first step. Makes no request."""

    def step_flow(self, state: State, record: Step) -> Flow[str]:
        """Run one step; add what it learns to `state` and `record` at once, since it may be cut short.

        Returns:
            Why the loop ends after this step, or "" to go on.

        """

    def finish_flow(self, state: State) -> Flow[Result_co]:
        """Return the result, from whatever the steps left in `state`. Makes no call of the language model."""


class StepEnded(Exception):
    """Thrown into a step to end it.

    Attributes:
        reason: as `Trace.stopped` has it.
        cause: the error of the call that failed; None if the budget is spent.

    """

    def __init__(self, reason: str, cause: Exception | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.cause = cause


def agent_flow(
    policy: Policy[State, Result], trace: Trace, budget: Budget, clock: Clock = time.monotonic, query: Any = None
) -> Flow[Result]:
    """Run `policy` on a question, and return its result.

    A request that fails ends the loop, and so does any `GeARError`, such as what the store refuses. The result is what
    the steps so far gave, and `trace.stopped` names the failure. The error is raised only if nothing is lost by it:
    that of a call of the language model, if no call has succeeded; any other, in the first step. `trace.stopped` then
    names it too.

    Args:
        policy: the method.
        trace: of the question; filled in on the way.
        budget: the limits of the question's cost.
        clock: seconds, monotonic. Default: `time.monotonic`.
        query: what the policy begins with. Default None: the trace's question.

    Raises:
        Exception: the error of a failed request, if nothing is lost by it.

    """
    start = clock()
    state = policy.begin(trace.question if query is None else query, trace)
    try:
        meter = _Meter(trace, budget, clock, start)
        stopped = yield from _steps_flow(policy, state, meter)
        trace.note(stopped=stopped)
        finish = meter.limited_flow(policy.finish_flow(state))
        result = yield from span_flow("final_ranking", finish, lambda _: show_ids(trace.passage_ids))
    except Exception as error:
        trace.note(stopped=describe_failure(error), ms=1000 * (clock() - start))
        raise
    trace.note(ms=1000 * (clock() - start))
    return result


def within_budget_flow(
    flow: Flow[None], trace: Trace, budget: Budget, start: float, clock: Clock = time.monotonic
) -> Flow[str]:
    """Run a flow that follows the steps, with its calls of the language model in the trace, as calls of step 0.

    Args:
        flow: it is ended when the budget is spent, or when one of these calls fails.
        trace: of the question; the calls that it holds count for the budget.
        budget: the limits of the question's cost.
        start: the clock when the question began.
        clock: seconds, monotonic. Default: `time.monotonic`.

    Returns:
        Why the flow was ended, in the words of `Trace.stopped`, or "".

    """
    try:
        yield from _Meter(trace, budget, clock, start).metered_flow(flow, 0)
    except StepEnded as ended:
        return ended.reason
    return ""


def _steps_flow(policy: Policy[State, Any], state: State, meter: _Meter) -> Flow[str]:
    """Run the steps, and return why they ended. An error is raised only if nothing is lost by it."""
    for _ in range(policy.max_steps):
        record = meter.trace.open_step()
        try:
            step = meter.metered_flow(policy.step_flow(state, record), record.number)
            reason = yield from span_flow("step", step, record.compact, step=record.number)
        except StepEnded as ended:
            reason = ended.reason
            if not meter.has_begun:
                meter.trace.steps.pop()
            if ended.cause is not None and not meter.has_succeeded:
                raise ended.cause from None
        except Exception as error:
            if record.number == 1 or not (error is meter.failure or isinstance(error, GeARError)):
                raise
            reason = describe_failure(error)
        if reason:
            return reason
    return "max_steps"


@dataclass
class _Meter:
    """Adds up the cost of a flow's requests, and ends the flow when the budget is spent.

    Attributes:
        trace: receives the calls.
        budget: the limits.
        clock: seconds, monotonic.
        start: the clock when the question began.
        has_succeeded: True once a call of the language model was answered.
        has_begun: True once the current flow's first requests were passed on.
        failure: the error of the last request that failed, other than a call of the language model.

    """

    trace: Trace
    budget: Budget
    clock: Clock
    start: float
    has_succeeded: bool = False
    has_begun: bool = False
    failure: Exception | None = None

    def metered_flow(self, flow: Flow[Result], step: int) -> Flow[Result]:
        """Run a flow with every batch of its requests metered."""
        self.has_begun = False
        return relay(flow, lambda batch: self._answer_flow(batch, step))

    def _answer_flow(self, batch: Sequence[Request[Any]], step: int) -> Flow[Sequence[Any]]:
        """Pass a batch of requests on, and return the answers.

        Raises:
            StepEnded: the budget is spent, or a call of the language model failed.

        """
        if any(isinstance(request, CallLLM) and request.variables.get("problem") for request in batch):
            self.trace.mark_unreadable()  # a second try: the reply before could not be read
        if limit := self._exceeded_limit(batch):
            raise StepEnded(limit)
        self.has_begun = True
        most = self._calls_of_each(batch)
        try:
            remaining = self._remaining_seconds()
            with limit_waiting(remaining):
                answers = yield [_with_limits(request, remaining, most) for request in batch]
        except Exception as error:
            self.failure = error
            raise
        if ended := self._add_calls(batch, answers, step):
            raise ended
        return answers

    def limited_flow(self, flow: Flow[Result]) -> Flow[Result]:
        """Run a flow that is not metered, and does not wait for a server beyond the timeout."""
        return relay(flow, self._answer_in_time_flow)

    def _answer_in_time_flow(self, batch: Sequence[Request[Any]]) -> Flow[Sequence[Any]]:
        with limit_waiting(self._remaining_seconds()):
            return (yield batch)

    def _exceeded_limit(self, batch: Sequence[Request[Any]]) -> str:
        """Return the name of the limit that forbids this batch, or ""."""
        if self._remaining_seconds() == 0:
            return "timeout"
        calls = sum(isinstance(request, CallLLM) for request in batch)
        limit = self.budget.max_llm_calls
        if calls and limit is not None and self.trace.llm_calls + calls > limit:
            return "max_llm_calls"
        limit = self.budget.max_tokens
        if calls and limit is not None and self.trace.prompt_tokens + self.trace.completion_tokens >= limit:
            return "max_tokens"
        return ""

    def _calls_of_each(self, batch: Sequence[Request[Any]]) -> int | None:
        """Return how many calls each request of a batch may take, retries included; None: no limit."""
        if self.budget.max_llm_calls is None:
            return None
        requests = sum(isinstance(request, CallLLM) for request in batch)
        return (self.budget.max_llm_calls - self.trace.llm_calls) // max(1, requests)

    def _remaining_seconds(self) -> float | None:
        """Return the seconds until the timeout; None without one."""
        if self.budget.timeout is None:
            return None
        return max(0.0, self.start + self.budget.timeout - self.clock())

    def _add_calls(self, batch: Sequence[Request[Any]], answers: Sequence[Any], step: int) -> StepEnded | None:
        """Add the batch's calls of the language model to the trace; return an `StepEnded` if one of them failed."""
        ended = None
        for request, reply in zip(batch, answers, strict=True):
            if not isinstance(request, CallLLM):
                continue
            error = reply.error
            self.trace.add_call(
                Call(
                    step=step,
                    purpose=request.purpose,
                    tries=reply.calls,
                    prompt_tokens=reply.prompt_tokens,
                    completion_tokens=reply.completion_tokens,
                    ms=round(reply.ms, 1),
                    error="" if error is None else describe_error(error),
                )
            )
            if error is None:
                self.has_succeeded = True
            elif isinstance(error, OutOfTime) and self.budget.timeout is not None:
                ended = ended or StepEnded("timeout")
            elif ended is None or ended.cause is None:
                ended = StepEnded(describe_failure(error), error)
        return ended


def _with_limits(request: Request[Any], remaining: float | None, most: int | None) -> Request[Any]:
    """Return the request; a call of the language model with the remaining seconds and calls as its limits."""
    if not isinstance(request, CallLLM) or (remaining is None and most is None):
        return request
    timeouts = [seconds for seconds in (remaining, request.timeout) if seconds is not None]
    return replace(request, timeout=min(timeouts, default=None), max_calls=most)


def describe_failure(error: Exception) -> str:
    """Return what a trace says of a search that an error ended."""
    return f"failed: {describe_error(error)}"
