from __future__ import annotations

from collections.abc import Iterator

import pytest
from kept_vectors import keep_vectors
from llama_index.embeddings.huggingface import HuggingFaceEmbedding


@pytest.fixture(scope="session", autouse=True)
def each_text_is_embedded_once_by_pytorch() -> Iterator[None]:
    with keep_vectors(HuggingFaceEmbedding):
        yield
