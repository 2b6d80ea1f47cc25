"""Assert that the time of some work grows no faster than what it is given, on whatever machine."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any, TypeVar

Given = TypeVar("Given")

FACTOR = 8
_TRIES = 10


def assert_linear(work: Callable[[Given], Any], make: Callable[[int], Given], size: int) -> None:
    """Assert that work on `make(size)` takes no 64 times as long as on an eighth of it, as quadratic work would.

    What is compared is the shortest processor time of this thread in up to ten tries, without passes of the garbage
    collector, which takes the longer the more tests ran before. 20 ms are granted, since clocks are coarse.
    """

    def measure(given: Given) -> float:
        start = time.thread_time()
        work(given)
        return time.thread_time() - start

    small, large = make(size // FACTOR), make(size)
    eighth = whole = float("inf")
    gc.collect()
    gc.disable()
    try:
        for _ in range(_TRIES):
            eighth, whole = min(eighth, measure(small)), min(whole, measure(large))
            if whole < FACTOR * FACTOR / 2 * eighth + 0.02:
                return
    finally:
        gc.enable()
    raise AssertionError(f"{FACTOR} times as much took {whole:.3f} s, for {eighth:.3f} s")
