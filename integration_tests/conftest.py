from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from llama_index.embeddings.huggingface import HuggingFaceEmbedding

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.path.insert(0, str(Path(__file__).parent))

from openai_server import OpenAIServer
from repository import BENCHMARKS, EXAMPLES

from llama_index_gear import LightEmbedding

sys.path[:0] = [str(BENCHMARKS), str(EXAMPLES)]

# No test depends on how fast the machine is.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


@pytest.fixture(scope="session", autouse=True)
def each_text_is_embedded_once() -> Iterator[None]:
    """Keep the vectors of embedding models for the tests that follow: nearly all of them embed the sample data."""
    kept = dict[tuple[Any, ...], list[float]]()

    def keep(kind: type[HuggingFaceEmbedding] | type[LightEmbedding]) -> Callable[..., list[list[float]]]:
        embed: Callable[..., list[list[float]]] = kind._embed

        def embed_new(model: Any, inputs: list[str], prompt_name: str | None = None) -> list[list[float]]:
            keys = [(kind, model.model_name, prompt_name, text) for text in inputs]
            new = [key for key in dict.fromkeys(keys) if key not in kept]
            kept.update(zip(new, embed(model, [key[-1] for key in new], prompt_name) if new else [], strict=True))
            return [list(kept[key]) for key in keys]

        return embed_new

    with pytest.MonkeyPatch.context() as patch:
        for kind in (HuggingFaceEmbedding, LightEmbedding):
            patch.setattr(kind, "_embed", keep(kind))
        yield


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
