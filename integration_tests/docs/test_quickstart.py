"""The quickstart runs as a new user runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from openai_server import OpenAIServer, Reply
from repository import EXAMPLES

Script = Callable[..., str]

# What the model's libraries warn of at their own discretion.
pytestmark = pytest.mark.filterwarnings("default")


def run_quickstart(store: Path) -> str:
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / "quickstart.py"), "--store", str(store)],
        env={name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.long
def test_without_a_key_and_a_second_time_nothing_is_ingested(script: Script, tmp_path: Path) -> None:
    first = run_quickstart(tmp_path)
    assert "101 of them new or changed" in first
    rows = re.findall(r"^   (?:dense|hybrid|with).* (\d+) % +(\d+) of 20 questions complete$", first, re.MULTILINE)
    _, (hybrid, _), (graph, _) = [tuple(map(int, row)) for row in rows]
    assert graph > hybrid  # of twenty questions: too few for more
    assert max(map(len, first.splitlines())) <= 80
    beside = re.findall(
        r"^   with the graph, beside \w+ search: more on (\d+) questions, less on (\d+)$", first, re.MULTILINE
    )
    assert len(beside) == 2 and all(int(more) > 0 and int(less) > 0 for more, less in beside)
    assert len(re.findall("^Q: ", first, re.MULTILINE)) == 2
    gains, loses = first.split("\nWhere the graph gains most:\n")[1].split("\nWhere it loses most:\n")
    for shown, is_ahead in ((gains, True), (loses, False)):
        rows = [line[3:] for line in shown.splitlines() if re.match(r"[1-5]\. ", line)]
        found = [sum(row[start : start + 25].startswith("*") for row in rows) for start in (0, 25, 50)]
        assert (found[2] > max(found[:2])) == is_ahead and (found[2] < max(found[:2])) != is_ahead
    assert "How the graph led to" in gains
    second = script("quickstart.py", "--store", str(tmp_path))
    assert "0 of them new or changed" in second
    assert second.split("Needed passages")[1] == first.split("Needed passages")[1]


def test_with_a_key_it_extracts_and_reads_with_the_model(script: Script, tmp_path: Path, server: OpenAIServer) -> None:
    server.answer = lambda body: Reply('{"entities": [], "triples": [["A", "b", "C"]]}')
    given = {"OPENAI_API_KEY": "test", "OPENAI_BASE_URL": server.base_url}
    out = script("quickstart.py", "--store", str(tmp_path), **given)
    assert "101 passages (101 extracted; 0 reused), 101 triples, 101 calls" in out
    assert len(server.requests) == 101 + 20  # an extraction a passage; SyncGE: one call a question
