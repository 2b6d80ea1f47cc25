"""Compare hybrid search and `GraphRetriever` without and with links: recall, and questions with all gold, by type.

    python examples/benchmarks/links.py --data examples/data/linked_docs/httpx [--cache FILE]

The folder has `corpus.jsonl`, a file a line (`id` is its path), and `questions.jsonl`, whose gold are files. They are
read as `index` reads files, and cut into passages as it cuts them. `--cache` keeps embeddings. Places are counted in
passages, or in documents, each at the place of its first passage.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.cached_embedding import CachedEmbedding
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from llama_index_gear import (
    FolderReader,
    GeARVectorStore,
    GraphRetriever,
    LightEmbedding,
    LinkTripleExtractor,
    MentionTripleExtractor,
)
from llama_index_gear.cli.indexing import make_splitter

CUTS = (2, 5, 10)
WIDTH = 40  # passages of a list


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines."""
    return [json.loads(line) for line in path.read_text("utf-8").strip().split("\n") if line.strip()]


def read_passages(data: Path) -> list[BaseNode]:
    """Write the corpus as files, and read their passages."""
    with tempfile.TemporaryDirectory() as folder:
        for row in read_lines(data / "corpus.jsonl"):
            path = Path(folder, row["id"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(row["text"], "utf-8")
        return list(make_splitter().get_nodes_from_documents(FolderReader(Path(folder)).load_data()))


def search(nodes: Sequence[BaseNode], model: BaseEmbedding, questions: Sequence[str], method: str) -> list[list[str]]:
    """Return the documents of the passages that a method finds, question by question."""
    with (
        tempfile.TemporaryDirectory() as folder,
        GeARVectorStore.from_path(Path(folder) / "store", embed_model=model) as store,
    ):
        store.add(LinkTripleExtractor()(nodes) if method == "links" else nodes)
        found = []
        for text in questions:
            if method == "hybrid":
                query = VectorStoreQuery(query_str=text, query_embedding=model.get_query_embedding(text))
                query.mode, query.similarity_top_k = VectorStoreQueryMode.HYBRID, WIDTH
                results = list(store.query(query).nodes or [])
            else:
                results = [one.node for one in GraphRetriever(store, similarity_top_k=WIDTH).retrieve(text)]
            found.append([str(node.ref_doc_id) for node in results])
        return found


def measure(found: Sequence[Sequence[str]], questions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return recall and the share of questions with all gold at each cut, in percent, by unit and type."""
    shares: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for ids, question in zip(found, questions, strict=True):
        gold = set(question["gold_document_ids"])
        for unit, places in (("passages", list(ids)), ("documents", list(dict.fromkeys(ids)))):
            for cut in CUTS:
                share = len(gold & set(places[:cut])) / len(gold)
                for kind in (question["type"], "all questions"):
                    shares[f"{kind}, {unit}"][f"recall@{cut}"].append(share)
                    shares[f"{kind}, {unit}"][f"all gold@{cut}"].append(float(share == 1))
    return {
        kind: {name: round(100 * sum(values) / len(values), 1) for name, values in measures.items()}
        for kind, measures in shares.items()
    }


def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder of corpus.jsonl and questions.jsonl")
    parser.add_argument("--cache", type=Path, help="file in which embeddings are kept")
    options = parser.parse_args()
    model: BaseEmbedding = LightEmbedding()
    if options.cache is not None:
        model = CachedEmbedding(model, options.cache)
    questions = read_lines(options.data / "questions.jsonl")
    nodes = list(model(MentionTripleExtractor()(read_passages(options.data))))
    result = {
        method: measure(search(nodes, model, [row["question"] for row in questions], method), questions)
        for method in ("hybrid", "graph", "links")
    }
    print(json.dumps({"data": options.data.name, "passages": len(nodes), **result}, indent=2))


if __name__ == "__main__":
    main()
