from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.path.insert(0, str(Path(__file__).parent))

from fixtures import calls_are_retried_at_once, kept_vectors, server
from repository import BENCHMARKS, EXAMPLES

sys.path[:0] = [str(BENCHMARKS), str(EXAMPLES)]

__all__ = ["calls_are_retried_at_once", "kept_vectors", "script", "server"]

LONG = {
    "browser": "selenium",
    "models": "sentence_transformers",
    "notebook": "nbclient",
    "workers": "ray",
}
"""Folders of long tests, and of the extra `long` what they import."""
collect_ignore = [folder for folder, module in LONG.items() if find_spec(module) is None]


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr == "long" and collect_ignore:
        raise pytest.UsageError(f"no packages for {', '.join(collect_ignore)}: pip install -e '.[long]'")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.parent == Path(__file__).parent and item.path.parent.name in LONG:
            item.add_marker("long")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a script of the examples with the given arguments and return what it printed.

    The script runs as under `python`, but in this process, which has already loaded the slow imports.
    It sees no OPENAI_ and OLLAMA_ variables except those given.
    """

    def run(name: str, *arguments: str, **environment: str) -> str:
        for key in [key for key in os.environ if key.startswith(("OPENAI_", "OLLAMA_"))]:
            monkeypatch.delenv(key)
        for key, value in {"COLUMNS": "120", **environment}.items():
            monkeypatch.setenv(key, value)
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        monkeypatch.syspath_prepend(str(EXAMPLES))
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run
