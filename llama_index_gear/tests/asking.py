"""Common ground of tests of retrievers, agents and engines: both modes, a store of a few passages, the ids found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import BaseNode, NodeWithScore

from llama_index_gear import ExternalTripleStore, GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import passage
from llama_index_gear.triple import GraphTriple

MODES = pytest.mark.parametrize("mode", ["sync", "async"])


def fill_store(folder: Path, passages: Iterable[BaseNode], *, embed_triples: bool = True) -> Iterator[GeARVectorStore]:
    """Yield a store of these passages, for a fixture, and close it."""
    with GeARVectorStore.from_path(folder, embed_model=WordEmbedding(), embed_triples=embed_triples) as store:
        store.add(list(passages))
        yield store


@dataclass
class House:
    """A store and a graph, for what searches either."""

    store: GeARVectorStore
    graph: ExternalTripleStore


def fill_house(folder: Path, passages: Iterable[BaseNode], triples: Iterable[GraphTriple]) -> Iterator[House]:
    """`fill_store`, and a graph of these triples."""
    with ExternalTripleStore.from_path(folder / "graph", embed_model=WordEmbedding()) as graph:
        graph.load(triples)
        for store in fill_store(folder / "store", passages):
            yield House(store, graph)


def unlabelled(node_id: str, text: str, triples: Iterable[Iterable[str]] = (), **metadata: Any) -> BaseNode:
    """Make a passage whose metadata no model is shown."""
    made = passage(node_id, text, triples, metadata=metadata)
    made.excluded_llm_metadata_keys += metadata
    made.excluded_embed_metadata_keys += metadata
    return made


def list_ids(found: Iterable[NodeWithScore]) -> list[str]:
    return [result.node.node_id for result in found]
