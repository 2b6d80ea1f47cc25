from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.path.insert(0, str(Path(__file__).parents[3] / "integration_tests"))

from fixtures import calls_are_retried_at_once, kept_vectors, server
from kept_vectors import keep_vectors
from repository import BENCHMARKS, EXAMPLES

sys.path[:0] = [str(BENCHMARKS), str(EXAMPLES)]
__all__ = ["calls_are_retried_at_once", "each_text_is_embedded_once_by_pytorch", "kept_vectors", "server"]

collect_ignore_glob = [] if find_spec("sentence_transformers") else ["test_*.py"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker("long")


@pytest.fixture(scope="session", autouse=True)
def each_text_is_embedded_once_by_pytorch(kept_vectors: Path) -> Iterator[None]:
    from llama_index.embeddings.huggingface import HuggingFaceEmbedding

    with keep_vectors(HuggingFaceEmbedding, kept_vectors):
        yield
