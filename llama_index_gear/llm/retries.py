"""The policy of retries: the errors of a model's server that may pass, and the number and times of the repetitions."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

from tenacity import AsyncRetrying, Retrying, retry_if_exception

from llama_index_gear.errors import is_of_quota
from llama_index_gear.flow import sleep

MAX_RETRIES = 3
"""Retries of a call, if nothing else is asked for."""
RETRY_BACKOFF = 1.0
"""Seconds before the first retry, if nothing else is asked for."""

_TRANSIENT_ERRORS = frozenset(
    {408, 409, 429, 500, 502, 503, 504, *range(520, 525), 529}
)  # HTTP status: worth another try
_LONGEST_WAIT = 60.0  # seconds


@dataclass
class Retries:
    """The retries of one call: only after an error that may pass, and only in time.

    Attributes:
        most: how many there may be.
        backoff: seconds before the first; doubled each time, with jitter. A `Retry-After` header (seconds, milliseconds
            or a date) that asks for more gets it, up to a minute.
        within: seconds that call, retries and waits may take together; None: no limit.
        failures: how many calls have failed so far.

    """

    most: int = field(default_factory=lambda: MAX_RETRIES)
    backoff: float = field(default_factory=lambda: RETRY_BACKOFF)
    within: float | None = None
    failures: int = 0

    def __post_init__(self) -> None:
        self._start, self._wait = time.monotonic(), 0.0

    @classmethod
    def of(cls, within: float | None, max_calls: int | None) -> Retries:
        """Return the usual retries of a call, as far as these limits allow them."""
        most = MAX_RETRIES if max_calls is None else min(MAX_RETRIES, max_calls - 1)
        return cls(most, within=within)

    def rest(self, max_calls: int | None) -> Retries | None:
        """Return the retries of another call within the same limits, behind this one; None if they are reached."""
        left = None if max_calls is None else max_calls - self.failures - 1
        return None if left == 0 or self.remaining == 0 else Retries.of(self.remaining, left)

    @property
    def remaining(self) -> float | None:
        """Seconds that are left; None: no limit."""
        return None if self.within is None else max(0.0, self.within - (time.monotonic() - self._start))

    def call(self, function: Callable[[], Any]) -> Any:
        """Call a function until it returns, or raise its last error."""
        return Retrying(**self._policy, sleep=sleep)(function)

    async def acall(self, function: Callable[[], Any]) -> Any:
        """`call` for a coroutine function."""
        return await AsyncRetrying(**self._policy)(function)

    @property
    def _policy(self) -> dict[str, Any]:
        return {
            "retry": retry_if_exception(self._note_failure),
            "stop": self._is_over,
            "wait": lambda _: self._wait,
            "reraise": True,
        }

    def _is_over(self, _: Any) -> bool:
        remaining = self.remaining
        return self.failures > self.most or (remaining is not None and remaining <= self._wait)

    def _note_failure(self, error: BaseException) -> bool:
        """Count a failure, and choose the wait behind it; return True if the error may pass."""
        self.failures += 1
        backoff = self.backoff * 2 ** (self.failures - 1) * (1 + random.random())
        self._wait = max(backoff, _retry_after(error))
        return is_transient(error)


def is_transient(error: BaseException) -> bool:
    """Return True for rate limits, time-outs, lost connections and servers' errors, in any client's classes.

    A quota that is used up is no rate limit, though it has its status.
    """
    if is_of_quota(error):
        return False
    status = getattr(error, "status_code", None)
    if status is not None:
        return status in _TRANSIENT_ERRORS
    name = type(error).__name__.lower()
    return isinstance(error, TimeoutError | ConnectionError) or any(
        word in name for word in ("timeout", "ratelimit", "connection", "remoteprotocol", "overloaded")
    )


def _retry_after(error: BaseException) -> float:
    """Return the seconds that a server asks to wait: at most 60, and 0 if it doesn't."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    readings: tuple[tuple[str, Callable[[str], float]], ...] = (
        ("retry-after-ms", lambda text: float(text) / 1000),
        ("retry-after", float),
        ("retry-after", lambda text: parsedate_to_datetime(text).timestamp() - time.time()),
    )
    for name, read in readings:
        with suppress(KeyError, ValueError):  # another form follows; without any the back-off is enough
            return min(max(0.0, read(headers[name])), _LONGEST_WAIT)
    return 0.0
