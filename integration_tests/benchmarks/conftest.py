from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kept_vectors import keep_vectors
from llama_index.embeddings.huggingface import HuggingFaceEmbedding


@pytest.fixture(scope="session", autouse=True)
def each_text_is_embedded_once_by_pytorch(kept_vectors: Path) -> Iterator[None]:
    with keep_vectors(HuggingFaceEmbedding, kept_vectors):
        yield
