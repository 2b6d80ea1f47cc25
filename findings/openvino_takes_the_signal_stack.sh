#!/bin/sh
# openvino 2026.4.1 (with numpy 2.4.6): compiling a model for the CPU replaces the calling thread's stack for signals.
#
# faulthandler gives the main thread such a stack, so that it can report an overflow of the usual one. The first compiled
# model puts OpenVINO's own in its place. It belongs to the core and not to the thread: processes whose core had ended
# were seen to die at a signal that came later.
#
# Seen (Python 3.11, Linux, x86-64):
#   faulthandler's stack is the thread's: True
#   after a model was compiled: False
#   while the core lives, the same one for a second model: True
#
# What helps: one core a process, which never ends.
# The script exits with 1 if this changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "openvino==2026.4.1" "numpy==2.4.6"
"$work/venv/bin/python" - <<'PROGRAM'
import ctypes
import faulthandler
import sys

import numpy as np
import openvino
from openvino import opset15 as ops


class Stack(ctypes.Structure):
    _fields_ = [("place", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]


def find_stack():
    found = Stack()
    ctypes.CDLL(None).sigaltstack(None, ctypes.byref(found))
    return found.place


def compile_model():
    x = ops.parameter([2], np.float32)
    return core.compile_model(openvino.Model([ops.relu(x)], [x], "small"), "CPU")


before = find_stack()
faulthandler.enable()
mine = find_stack()
core = openvino.Core()
first = compile_model()
theirs = find_stack()
second = compile_model()
seen = [mine is not None and mine != before, theirs == mine, find_stack() == theirs]
print(f"faulthandler's stack is the thread's: {seen[0]}")
print(f"after a model was compiled: {seen[1]}")
print(f"while the core lives, the same one for a second model: {seen[2]}")
sys.exit(0 if seen == [True, False, True] else "the behaviour has changed")
PROGRAM
