"""Extract and embed on many machines with Ray Data, and write the store from one process.

    pip install "ray[data]"
    python examples/ray_extraction.py [--workers 2] [--store FOLDER | --url http://localhost:6333]

Each worker has an extractor and an embedding model of its own, and takes a batch of passages at a time. The driver
alone opens the store and writes the results, since the embedded engine admits one process. Without a key triples are
made by rule; with OPENAI_API_KEY a language model extracts them. A worker that dies is replaced, and its batch is done
again; writing a passage twice changes nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ray
from llama_index.core.ingestion import run_transformations
from llama_index.core.schema import BaseNode, TextNode
from openai_model import language_model
from qdrant_client import QdrantClient
from quickstart import DATA

from llama_index_gear import GeARTripleExtractor, GeARVectorStore, LightEmbedding, MentionTripleExtractor

BATCH = 16  # passages


def read_sample() -> list[TextNode]:
    """Read the sample corpus."""
    rows = [json.loads(line) for line in (DATA / "corpus.jsonl").read_text("utf-8").strip().split("\n")]
    return [TextNode(id_=row["id"], text=row["text"], metadata={"title": row["title"]}) for row in rows]


class Extract:
    """Worker that extracts and embeds a batch of passages, which come and go as JSON."""

    def __init__(self) -> None:
        llm = language_model()
        self.extract = MentionTripleExtractor() if llm is None else GeARTripleExtractor(llm)
        self.embed_model = LightEmbedding()

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        """Add triples and an embedding to each passage."""
        nodes = [TextNode.from_json(node) for node in batch["node"]]
        done = run_transformations(nodes, [self.extract, self.embed_model])
        return {"node": [node.to_json() for node in done]}


def extract_batches(nodes: Iterable[BaseNode], workers: int) -> Iterable[list[BaseNode]]:
    """Yield the passages with triples and embeddings, a batch at a time, in the order in which they are done."""
    passages = ray.data.from_items([{"node": node.to_json()} for node in nodes], override_num_blocks=4 * workers)
    batches = passages.map_batches(Extract, concurrency=workers, batch_size=BATCH)
    for batch in batches.iter_batches(batch_size=BATCH):
        yield [TextNode.from_json(node) for node in batch["node"]]


def main() -> None:
    """Read, extract in parallel, write, and check the store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--store", type=Path, default=Path("stores/ray"), help="folder of an embedded store")
    parser.add_argument("--url", default=None, help="a Qdrant server, instead")
    arguments = parser.parse_args()
    # One CPU more than there are workers, for reading. On a cluster: ray.init(address="auto").
    ray.init(num_cpus=arguments.workers + 1, log_to_driver=False, include_dashboard=False)
    embed_model = LightEmbedding()
    if arguments.url:
        store = GeARVectorStore(client=QdrantClient(url=arguments.url, prefer_grpc=True), embed_model=embed_model)
    else:
        store = GeARVectorStore.from_path(arguments.store, embed_model=embed_model)
    with store.bulk_load():
        for nodes in extract_batches(read_sample(), arguments.workers):
            store.add(nodes)
    print(store.check())
    store.close()
    ray.shutdown()


if __name__ == "__main__":
    main()
