"""A process that reads files: what hangs, grows or breaks in a parser of another program ends it, and nothing else.

One process reads one file after the other. It is started with the first file, and again after it was ended.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from llama_index_gear.ingestion.console import name_file, shorten_line, show_line, show_messages
from llama_index_gear.ingestion.regular_files import NoText, UnreadableFile

SECONDS = 60.0
"""The default time limit of a file, in seconds."""
_MEMORY = 4 * 2**30  # bytes
_GRACE = 5  # seconds after which the process ends itself, if nobody has ended it
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS", "TOKIO_WORKER_THREADS", "MALLOC_ARENA_MAX"), "1"
)
"""Threads have memory each, used or not."""


class ReadingProcess:
    """Calls a function for files, in a process of its own. It ends when it is closed, or forgotten.

    Args:
        function: `module:name` of the function. It takes a file's path and name and, as keywords, what JSON can hold.
            It returns that too. An `UnreadableFile` that it raises is raised here.
        seconds: how long a call may take.

    """

    def __init__(self, function: str, seconds: float = SECONDS) -> None:
        self._function = function
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] = lambda: None

    def __enter__(self) -> ReadingProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process, whatever it does."""
        self._process = None
        self._end()

    def read(self, path: Path, name: str, **options: Any) -> Any:
        """Call the function for a file; show what libraries said meanwhile.

        Args:
            path: of the file.
            name: of the file, for messages.
            options: further arguments.

        Raises:
            UnreadableFile: the function raised it or failed, ended the process, or took too long or too much memory.

        """
        if self._process is None:
            self._process = self._start()
            self._end = weakref.finalize(self, _end, self._process)
            self._ask(None, SECONDS)  # it says that it is ready
        answer = self._ask({"path": str(path.absolute()), "name": name, "options": options}, self._seconds)
        for line in answer["said"]:
            show_line(line)
        if "error" in answer:
            raise (NoText if answer["has_no_text"] else UnreadableFile)(answer["error"])
        return answer["result"]

    def _ask(self, request: dict[str, Any] | None, seconds: float) -> dict[str, Any]:
        """Send a request, if there is one, and return the next answer.

        Raises:
            UnreadableFile: there is none in time, or the process has ended.

        """
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            process.kill()

        timer = threading.Timer(seconds, end)
        timer.start()
        try:
            if request is not None:
                process.stdin.write(json.dumps(request).encode() + b"\n")
                process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = b""
        except BaseException:  # an interrupt: what it still answers is nobody's
            self.close()
            raise
        finally:
            timer.cancel()
            timer.join()  # it may be at it
        if is_late.is_set() or not line.endswith(b"\n"):  # it is killed, perhaps just after it answered
            self.close()
        if line.endswith(b"\n"):
            return json.loads(line)  # type: ignore[no-any-return]
        if is_late.is_set():
            raise UnreadableFile(f"takes longer than {seconds:g} seconds: save it as text, or raise --file-timeout")
        raise UnreadableFile("ended the program that reads it: save it as text")

    def _start(self) -> subprocess.Popen[bytes]:
        arguments = ["-P", "-m", __name__, self._function, str(self._seconds)]
        paths = os.pathsep.join(path for path in sys.path if path)
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_ONE_THREAD, "PYTHONPATH": paths},
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def serve(function: str, seconds: float) -> None:
    """Answer requests on stdin until it ends: the work of the process."""
    answers = os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "wb") as nothing:  # what a library prints is no answer
        os.dup2(nothing.fileno(), 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    _limit_memory()
    module, _, name = function.partition(":")
    read = getattr(importlib.import_module(module), name)
    answers.write(b"{}\n")
    answers.flush()
    with show_messages():
        for line in sys.stdin.buffer:
            request = json.loads(line)
            with _limit_seconds(seconds + _GRACE):
                answer = _answer(read, Path(request["path"]), request["name"], request["options"])
            answers.write(json.dumps(answer).encode() + b"\n")
            answers.flush()


def _answer(read: Callable[..., Any], path: Path, name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the function's result or error, and the line with what libraries said."""
    answer: dict[str, Any] = {"has_no_text": False}
    with contextlib.redirect_stderr(io.StringIO()) as said:
        with name_file(name):
            try:
                answer["result"] = read(path, **options)
            except UnreadableFile as error:
                answer.update(error=str(error), has_no_text=isinstance(error, NoText))
            except OSError as error:
                answer["error"] = str(error.strerror or error)
            except MemoryError:
                answer["error"] = f"takes more than {_MEMORY // 2**30} GB of memory: save it as text"
            except RecursionError:
                answer["error"] = "nests too deep: save it as text"
            except Exception as error:  # noqa: BLE001 - the parser's own, of any kind, is its first cause
                cause: BaseException = error
                while cause.__cause__ is not None:
                    cause = cause.__cause__
                answer["error"] = shorten_line(f"{type(cause).__name__}: {cause}")
    return {**answer, "said": [line for line in said.getvalue().splitlines() if f": {name}: " in line]}


def _limit_memory() -> None:
    """Let the process have no more memory, where the system can limit it."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        resource = importlib.import_module("resource")
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, hard))


@contextlib.contextmanager
def _limit_seconds(seconds: float) -> Iterator[None]:
    """End the process after this time, where the system can: its parent may have died."""
    if not hasattr(signal, "setitimer"):
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    serve(sys.argv[1], float(sys.argv[2]))
