"""Stores that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from llama_index.core.schema import BaseNode

from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding


@contextmanager
def fill_store(
    folders: pytest.TempPathFactory, nodes: Iterable[BaseNode], **arguments: Any
) -> Iterator[GeARVectorStore]:
    """Open a new embedded store that holds these passages, and close it at the end."""
    given: dict[str, Any] = {"embed_model": WordEmbedding(), "embed_triples": True, **arguments}
    with GeARVectorStore.from_path(folders.mktemp("shared") / "store", **given) as store:
        store.add(list(nodes))
        yield store
