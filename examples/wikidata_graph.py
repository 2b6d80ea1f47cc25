"""Expand over Wikidata's triples instead of extracted ones; the passages stay as they are (Millions of GeAR-s).

    python examples/wikidata_graph.py
    python examples/wikidata_graph.py --dump latest-all.json.bz2 --store somewhere

`data/wikidata.json` is a small extract in the format of Wikidata's own dump. The first part compares retrieval with and
without the graph; neither it nor ingestion needs a language model. The second part asks the agent. With OPENAI_API_KEY
(and OPENAI_BASE_URL, OPENAI_MODEL for a compatible server) it has a real model, without a key a scripted one with the
replies below: retrieval from the store and the graph is real, the model's replies are not.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from llama_index.core import VectorStoreIndex
from openai_model import language_model
from quickstart import DATA, ingest, report, show

from llama_index_gear import (
    ExternalTripleStore,
    GeARQueryEngine,
    GeARVectorStore,
    LightEmbedding,
    NaiveGERetriever,
    WikidataDump,
)
from llama_index_gear.expansion.beam_search import BeamSearch
from llama_index_gear.testing import Reply, ScriptedLLM

QUESTION = "With which mainland state did the birthplace of the writer of the song Bohemian Rhapsody unite?"
TOP_K = 8
BEAM_LENGTH = 3  # Wikidata often needs two statements for one fact of a passage


def rank_passages(prompt: str) -> str:
    """Reply with the numbers of the prompt's passages that help."""
    matches = [
        re.search(rf"\[(\d+)\] title: {title}", prompt)
        for title in ("Zanzibar", "Freddie Mercury", "Bohemian Rhapsody")
    ]
    return " > ".join(f"[{match[1]}]" for match in matches if match) or "none"


REHEARSED: list[Reply] = [
    # Step 1: triples of the base passages, and a verdict.
    '{"triples": [["Bohemian Rhapsody", "written by", "Freddie Mercury"]]}',
    '{"sufficient": false, "query": "Where was Freddie Mercury born?"}',
    # Step 2, with graph expansion: triples, and the numbers of the passages that help.
    '{"triples": [["Freddie Mercury", "born in", "Zanzibar"]]}',
    rank_passages,
    # The answer.
    "Tanganyika [1]",
]


def main() -> None:
    """Ingest, load the graph, compare, and ask."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--dump", type=Path, default=DATA / "wikidata.json", help="a dump of Wikidata, JSON or N-Triples"
    )
    parser.add_argument("--store", type=Path, default=Path("stores/sample"), help="folder to keep store and graph in")
    arguments = parser.parse_args()

    embed_model = LightEmbedding()
    folder = arguments.store / "wikidata"
    store = GeARVectorStore.from_path(folder / "passages", embed_model=embed_model)
    ingest(store, None, folder / "pipeline")
    graph = ExternalTripleStore.from_path(folder / "graph", embed_model=embed_model)
    dump = WikidataDump(arguments.dump, folder / "index", show_progress=True)
    print(f"{graph.load(dump, show_progress=True)}\n{dump.report}")

    index = VectorStoreIndex.from_vector_store(store, embed_model=embed_model)
    base = index.as_retriever(vector_store_query_mode="hybrid", similarity_top_k=TOP_K)
    expanded = NaiveGERetriever(
        store, graph=graph, similarity_top_k=TOP_K, beam_search=BeamSearch(beam_length=BEAM_LENGTH)
    )
    questions = [json.loads(line) for line in (DATA / "questions.jsonl").read_text("utf-8").strip().split("\n")]
    gold = {row["question"]: set(row["gold_passage_ids"]) for row in questions}
    found = {
        question: {"hybrid search": base.retrieve(question), "with Wikidata": expanded.retrieve(question)}
        for question in gold
    }
    report(found, gold, TOP_K)
    show(QUESTION, gold[QUESTION], found[QUESTION])

    llm = language_model() or ScriptedLLM(REHEARSED)
    few = index.as_retriever(vector_store_query_mode="hybrid", similarity_top_k=5)
    engine = GeARQueryEngine.from_vector_store(store, llm=llm, graph=graph, base_retriever=few)
    response, trace = engine.query_with_trace(QUESTION)
    print()
    trace.show()
    print(f"\nA: {response}")
    for number, passage in enumerate(response.source_nodes, start=1):
        print(f"[{number}] {passage.node.metadata['title']}")
    graph.close()
    store.close()


if __name__ == "__main__":
    main()
