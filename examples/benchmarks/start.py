"""Measure what a user waits for: size of an environment, a cold `ask`, an unchanged `index`, `mcp`, a second question.

    python examples/benchmarks/start.py BEFORE_ENV AFTER_ENV …

Each argument is a virtual environment in which the package is installed, an earlier version, say. Commands run in them
by turns, three times each; the least processor seconds count, those of all threads. In one without `ask` at a prompt,
or without the extra `mcp`, these are left out. It prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent.parent / "docs"
QUESTION = "On what date did the language first run whose designer worked for Richard Feynman?"
CODES = {
    "LlamaIndex's core and Qdrant's client alone": "import llama_index.core, qdrant_client",
    "import llama_index_gear": "import llama_index_gear",
    "import GraphRetriever": "from llama_index_gear import GraphRetriever",
}
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "start", "version": "1"}},
}


def run(command: list[str], folder: Path, stdin: str = "") -> float | None:
    """Run a command; return the processor seconds that it took, or None if it failed."""
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "OLLAMA_", "PYTHON"))
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command,
        cwd=folder,
        env={**variables, "HF_HUB_OFFLINE": "1"},
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        return None
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_once(environment: Path, folder: Path) -> dict[str, float | None]:
    """Run each command once."""
    program = str(environment / "bin" / "llama-index-gear")
    seconds = {name: run([str(environment / "bin" / "python"), "-c", code], folder) for name, code in CODES.items()}
    seconds["index, unchanged"] = run([program, "index", str(DOCS)], folder)
    seconds["ask, cold"] = run([program, "ask", QUESTION], folder)
    one, many = (run([program, "ask"], folder, f"{QUESTION}\n" * number) for number in (1, 11))
    seconds["a further question at the prompt"] = None if one is None or many is None else (many - one) / 10
    seconds["mcp, to its answer to initialize"] = run([program, "mcp"], folder, json.dumps(INITIALIZE) + "\n")
    return seconds


def measure_size(environment: Path) -> float:
    """Return the megabytes of an environment's files."""
    return sum(path.stat().st_size for path in environment.rglob("*") if path.is_file() and not path.is_symlink()) / 1e6


def main() -> None:
    """Measure the environments by turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environments", type=Path, nargs="+")
    environments = [path.resolve() for path in parser.parse_args().environments]
    results: dict[str, dict[str, Any]] = {
        path.name: {"megabytes": round(measure_size(path)), "seconds": defaultdict(list)} for path in environments
    }
    with tempfile.TemporaryDirectory() as folder:
        for path in environments:
            (Path(folder) / path.name).mkdir()
            start = time.perf_counter()
            run([str(path / "bin" / "llama-index-gear"), "index", str(DOCS)], Path(folder) / path.name)
            results[path.name]["first index, seconds on the clock"] = round(time.perf_counter() - start, 1)
        for _ in range(3):
            for path in environments:
                for name, taken in measure_once(path, Path(folder) / path.name).items():
                    results[path.name]["seconds"][name] += [] if taken is None else [taken]
    for result in results.values():
        result["seconds"] = {name: round(min(taken), 2) for name, taken in result["seconds"].items() if taken}
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
