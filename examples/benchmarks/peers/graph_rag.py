"""Rank with datastax's graph-rag, by its own code, over the links that `links.py` hands it.

    pip install graph-retriever==0.8.0 langchain-graph-retriever==0.8.0
    python examples/benchmarks/peers/graph_rag.py GIVEN.json RANKED.json

`GraphRetriever` over LangChain's `InMemoryVectorStore`, with each of its strategies `Eager` and `Mmr`. All settings but
the number of passages are as they come: four passages by cosine, then ten by each link of a passage that is taken.

What is adapted: it reads links of HTML alone, and follows links from metadata to metadata, so every passage gets the
pages that its links lead to (`links`) and its own page (`page`), as `LinkTripleExtractor` resolved them; the embeddings
are those that all methods have. It knows no gold.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from graph_retriever.strategies import Eager, Mmr, Strategy
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_graph_retriever import GraphRetriever

STRATEGIES: dict[str, type[Strategy]] = {"eager": Eager, "mmr": Mmr}
PACKAGES = ("graph-retriever", "langchain-graph-retriever")


class Known(Embeddings):  # type: ignore[misc]
    """The embeddings that were handed over with the texts."""

    def __init__(self, vectors: Mapping[str, list[float]]) -> None:
        self._vectors = vectors

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of texts."""
        return [self._vectors[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a question."""
        return self._vectors[text]


def rank(given: Mapping[str, Any]) -> dict[str, list[list[str]]]:
    """Return strategy → for each question the ids of passages, best first."""
    rows = [*given["passages"], *given["questions"]]
    store = InMemoryVectorStore(Known({row["text"]: row["vector"] for row in rows}))
    store.add_documents(
        [
            Document(id=row["id"], page_content=row["text"], metadata={"page": row["page"], "links": row["links"]})
            for row in given["passages"]
        ]
    )
    found = {}
    for name, strategy in STRATEGIES.items():
        retriever = GraphRetriever(store=store, edges=[("links", "page")], strategy=strategy(select_k=given["width"]))
        found[name] = [[str(one.id) for one in retriever.invoke(row["text"])] for row in given["questions"]]
    return found


def main() -> None:
    """Rank what is given, and write the rankings."""
    given, ranked = map(Path, sys.argv[1:3])
    made = {
        "versions": {package: version(package) for package in PACKAGES},
        "rankings": rank(json.loads(given.read_text("utf-8"))),
    }
    ranked.write_text(json.dumps(made), "utf-8")


if __name__ == "__main__":
    main()
