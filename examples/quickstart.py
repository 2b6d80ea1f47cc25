"""Ingest the sample passages, ask questions that need several of them, and compare plain searches with the graph.

    python examples/quickstart.py
    python examples/quickstart.py "Which river flows through the city where the author of … was born?"
    python examples/quickstart.py --data examples/data/company_wiki

Without a key: MiniLM from a package, Qdrant Edge in this process, triples without a language model, `GraphRetriever`.
With OPENAI_API_KEY (and OPENAI_BASE_URL, OPENAI_MODEL for a compatible server): LLM extraction and SyncGE. All settings
are the defaults. It prints averages over all questions, then the question on which the graph gains most, and the one on
which it does worst.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import textwrap
from collections.abc import Mapping
from pathlib import Path

from llama_index.core import Document, VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.llms import LLM
from llama_index.core.schema import NodeWithScore, TransformComponent
from llama_index.core.storage.docstore import SimpleDocumentStore
from openai_model import language_model

from llama_index_gear import (
    GeARTripleExtractor,
    GeARVectorStore,
    GraphRetriever,
    LightEmbedding,
    MentionTripleExtractor,
    SyncGERetriever,
)

DATA = Path(__file__).parent / "data"
TOP_K = 5
Found = dict[str, list[NodeWithScore]]
"""Method → the passages that it finds, best first."""


def open_store(folder: Path, llm: LLM | None, data: Path = DATA) -> GeARVectorStore:
    """Open the store of this model's triples, and ingest the passages of a data folder."""
    folder /= re.sub(r"[^\w.-]+", "-", "offline" if llm is None else llm.metadata.model_name)
    if data != DATA:
        folder /= data.resolve().name
    store = GeARVectorStore.from_path(folder / "qdrant", embed_model=LightEmbedding())
    ingest(
        store,
        MentionTripleExtractor() if llm is None else GeARTripleExtractor(llm=llm, show_progress=True),
        folder / "pipeline",
        data,
    )
    return store


def ingest(store: GeARVectorStore, extractor: TransformComponent | None, state: Path, data: Path = DATA) -> None:
    """Bring new and changed passages into the store; a document store remembers the ingested ones."""
    rows = [json.loads(line) for line in (data / "corpus.jsonl").read_text("utf-8").strip().split("\n")]
    documents = [Document(id_=row["id"], text=row["text"], metadata={"title": row["title"]}) for row in rows]
    pipeline = IngestionPipeline(
        transformations=[*filter(None, [extractor]), store.embed_model],
        vector_store=store,
        docstore=SimpleDocumentStore(),
        disable_cache=True,  # it knows passages by their texts alone: a renamed one would keep its old id
    )
    if state.exists():
        pipeline.load(str(state))
    stored = pipeline.run(documents=documents, show_progress=True)
    pipeline.persist(str(state))
    print(f"{len(documents)} passages, {len(stored)} of them new or changed: ingested.")
    if isinstance(extractor, GeARTripleExtractor):
        print(f"Extraction: {extractor.ledger if stored else 'nothing to do'}")
        retried = extractor.retry_failed(store)
        if retried.passages:
            print(f"What had failed, once more: {retried}")


def show(question: str, gold: set[str], found: Found) -> None:
    """Print the rankings side by side, and the chain of triples behind each passage that only the graph found."""
    print()
    print(textwrap.fill(f"Q: {question}", 80, subsequent_indent="   "))
    print()
    print("     " + "".join(f"{name:<25}" for name in found).rstrip())
    for rank in range(TOP_K):
        cells = [format_cell(results, rank, gold) for results in found.values()]
        print(f"{rank + 1}. {''.join(f'{cell:<25}' for cell in cells)}".rstrip())
    if gold:
        print("   (* needed for the answer)")
    *plain, graph = found.values()
    known = {result.node.node_id for results in plain for result in results}
    for result in graph:
        chain = result.node.metadata["gear_chain"]
        if chain and result.node.node_id not in known and (not gold or result.node.node_id in gold):
            print(f"\n   How the graph led to “{result.node.metadata['title']}”:")
            for slots in chain:
                subject, predicate, object_ = (re.sub(r"\s+", " ", slot) for slot in slots)
                print(textwrap.fill(
                    f"{subject} — {textwrap.shorten(predicate, 110)} — {object_}",
                    80, initial_indent="     ", subsequent_indent="       ",
                ))  # fmt: skip


def format_cell(results: list[NodeWithScore], rank: int, gold: set[str]) -> str:
    """Return the title at a rank, with a star if the passage is needed."""
    if rank >= len(results):
        return ""
    node = results[rank].node
    return f"{'*' if node.node_id in gold else ' '} {textwrap.shorten(node.metadata['title'], 21, placeholder='…')}"


def share(results: list[NodeWithScore], gold: set[str]) -> float:
    """Return the share of the needed passages that a method finds."""
    return len(gold & {result.node.node_id for result in results}) / len(gold)


def report(found: Mapping[str, Found], gold: Mapping[str, set[str]], top_k: int = TOP_K) -> dict[str, float]:
    """Print what each method finds of all questions, and return the graph's gain over the better search by question.

    Args:
        found: question → what each method finds; the last method is the graph.
        gold: question → the passages that its answer needs.
        top_k: number of passages that each method finds.

    """
    names = list(next(iter(found.values())))
    shares = {
        question: [share(results, gold[question]) for results in methods.values()]
        for question, methods in found.items()
    }
    print(f"\nNeeded passages among the first {top_k}, of {len(shares)} questions:")
    for place, name in enumerate(names):
        values = [row[place] for row in shares.values()]
        complete = f"{values.count(1.0):2} of {len(values)} questions complete"
        print(f"   {name:<22} {100 * statistics.fmean(values):4.0f} %   {complete}")
    for place, name in enumerate(names[:-1]):
        more, less = (sum(sign * (row[-1] - row[place]) > 0 for row in shares.values()) for sign in (1, -1))
        print(f"   {names[-1]}, beside {name}: more on {more} questions, less on {less}")
    return {question: row[-1] - max(row[:-1]) for question, row in shares.items()}


def show_best_and_worst(gains: Mapping[str, float], found: Mapping[str, Found], gold: Mapping[str, set[str]]) -> None:
    """Show the question on which the graph gains most, and the one on which it does worst."""
    best, worst = max(gains, key=lambda question: gains[question]), min(gains, key=lambda question: gains[question])
    if gains[best] > 0:
        print("\nWhere the graph gains most:")
        show(best, gold[best], found[best])
    print("\nWhere it loses most:" if gains[worst] < 0 else "\nWhere it does not help:")
    show(worst, gold[worst], found[worst])


def main() -> None:
    """Ingest, ask, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", nargs="*", help="default: all of the data's questions")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with corpus.jsonl and questions.jsonl")
    parser.add_argument("--store", type=Path, default=Path("stores/sample"), help="folder to keep the store in")
    arguments = parser.parse_args()

    llm = language_model()
    store = open_store(arguments.store, llm, arguments.data)
    index = VectorStoreIndex.from_vector_store(store, embed_model=store.embed_model)
    dense = index.as_retriever(similarity_top_k=TOP_K)
    hybrid = index.as_retriever(vector_store_query_mode="hybrid", similarity_top_k=TOP_K)
    graph: BaseRetriever = GraphRetriever(store, similarity_top_k=TOP_K)
    if llm is not None:
        store.embed_stored_triples()  # SyncGE compares vectors of triples
        graph = SyncGERetriever(store, llm=llm, similarity_top_k=TOP_K)
    methods = {"dense search": dense, "hybrid search": hybrid, "with the graph": graph}

    def ask(question: str) -> Found:
        return {name: retriever.retrieve(question) for name, retriever in methods.items()}

    if arguments.question:
        for question in arguments.question:
            show(question, set(), ask(question))
    else:
        rows = [
            json.loads(line) for line in (arguments.data / "questions.jsonl").read_text("utf-8").strip().split("\n")
        ]
        gold = {row["question"]: set(row["gold_passage_ids"]) for row in rows}
        found = {question: ask(question) for question in gold}
        show_best_and_worst(report(found, gold), found, gold)
    store.close()


if __name__ == "__main__":
    main()
