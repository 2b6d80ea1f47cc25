"""Fixtures and settings that the integration tests and those of the benchmarks share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from kept_vectors import keep_vectors
from openai_server import OpenAIServer

from llama_index_gear import LightEmbedding

# No test depends on how fast the machine is, nor on chance; `pytest --hypothesis-profile=drawn` draws other examples.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", UNHURRIED, derandomize=True, max_examples=40)
settings.register_profile("drawn", UNHURRIED)
settings.load_profile("steady")


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
        patch.setattr("llama_index_gear.llm.client.RETRY_BACKOFF", 0.001)
        yield


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running
    assert running.problems == []
