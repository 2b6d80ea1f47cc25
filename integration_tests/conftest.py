from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.path.insert(0, str(Path(__file__).parent))

from kept_vectors import keep_vectors
from openai_server import OpenAIServer
from repository import BENCHMARKS, EXAMPLES

from llama_index_gear import LightEmbedding

sys.path[:0] = [str(BENCHMARKS), str(EXAMPLES)]

LONG = {
    "benchmarks": "sentence_transformers",
    "browser": "selenium",
    "models": "sentence_transformers",
    "notebook": "nbclient",
    "workers": "ray",
}
"""Folders of long tests, and of the extra `long` what they import."""
collect_ignore = [folder for folder, module in LONG.items() if find_spec(module) is None]

# No test depends on how fast the machine is, nor on chance; `pytest --hypothesis-profile=drawn` draws other examples.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", UNHURRIED, derandomize=True, max_examples=40)
settings.register_profile("drawn", UNHURRIED)
settings.load_profile("steady")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr == "long" and collect_ignore:
        raise pytest.UsageError(f"no packages for {', '.join(collect_ignore)}: pip install -e '.[long]'")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.parent == Path(__file__).parent and item.path.parent.name in LONG:
            item.add_marker("long")


@pytest.fixture(scope="session", autouse=True)
def kept_vectors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of vectors that all processes of this run share: nearly all tests embed the sample data."""
    run = tmp_path_factory.getbasetemp()
    folder = (run.parent if "PYTEST_XDIST_WORKER" in os.environ else run) / "vectors"
    with keep_vectors(LightEmbedding, folder):
        yield folder


@pytest.fixture(scope="session", autouse=True)
def calls_are_retried_at_once() -> Iterator[None]:
    """Spare the tests the seconds before a call of a model is made again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("llama_index_gear.llm.retries.RETRY_BACKOFF", 0.001)
        yield


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


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running
    assert running.problems == []
