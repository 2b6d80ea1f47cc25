"""Ctrl-C at every moment at which Python may answer it.

CPython runs a signal's handler when a function of Python begins, when a call has returned, and when a loop goes round.
`interrupted` raises `KeyboardInterrupt` at the nth such moment of some modules' code. (A handler's exception counts as
that of the call that has returned, a tracer's as that of the next instruction: where another handler of exceptions is
in charge of this one, the tracer is silent.)
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Iterator, Set
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import llama_index_gear

PACKAGE = Path(llama_index_gear.__file__).parent
# Where claims are made, taken and given back, and all that lies between these and the caller.
WRITING = frozenset(
    ("turns", "steps", "connection", "store", "store_collections", "store_copy", "store_deletes", "store_writes")
)
# After these instructions, and nowhere else, the interpreter looks for signals.
LOOKS = {"RESUME", "CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD", "CALL_INTRINSIC_1"}


@cache
def _handlers(code: CodeType) -> dict[int, int | None]:
    """Where an exception of each instruction is handled."""
    bytecode = dis.Bytecode(code)
    entries: list[Any] = bytecode.exception_entries  # type: ignore[attr-defined]
    return {
        step.offset: next((entry.target for entry in entries if entry.start <= step.offset < entry.end), None)
        for step in bytecode
    }


def _has_looked(code: CodeType, last: int | None, now: int) -> bool:
    """Whether the interpreter has looked for signals between two instructions, on behalf of both."""
    if last is None or dis.opname[code.co_code[last]] not in LOOKS:
        return False
    return _handlers(code)[last] == _handlers(code)[now]


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
        """Trace function of `sys.settrace`: the first interrupt."""
        if not self._watches(frame):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if dis.opname[frame.f_code.co_code[frame.f_lasti]] == "RESUME":  # which was executed before this is called
            self._before[frame] = frame.f_lasti
        return self._step

    def _watches(self, frame: FrameType) -> bool:
        path = Path(frame.f_code.co_filename)
        return path.parent == PACKAGE and path.stem in self.modules

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
        """Trace function of `sys.setprofile`, which lives on when the other one has raised: the second interrupt."""
        if self.raised != 1 or not self._watches(frame):
            return
        if event == "c_return" or (event == "call" and not frame.f_code.co_flags & inspect.CO_GENERATOR):
            self.later += 1
            if self.later == self.second:
                self.raised += 1
                raise KeyboardInterrupt("second")


@contextmanager
def interrupted(first: int, second: int | None = None, *, modules: Set[str] = WRITING) -> Iterator[Interrupts]:
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
