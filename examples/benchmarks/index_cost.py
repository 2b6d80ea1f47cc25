"""Compare what it takes to index passages plainly, and with the graph: processor time and embedded characters.

    python examples/benchmarks/index_cost.py --data DIR [--sets musique_train,2wiki,company_wiki] [--passages 2000]
        [--turns 3] [--runtime light|sentence-transformers] [--out index_cost.json]

Each turn indexes the first passages of each set plainly (embedded, and stored for dense search and BM25), with the
graph (`MentionTripleExtractor` before that), and with the graph and every triple embedded. Each goes into an embedded
store of its own. The least processor seconds of all threads count, of the whole pipeline: extraction, embedding,
writing. Ratios are to the plain index.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from harness.data import load
from harness.methods import to_nodes
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import BaseNode, TransformComponent
from llama_index.embeddings.huggingface import HuggingFaceEmbedding
from ranking import EXAMPLES

from llama_index_gear import GeARVectorStore, LightEmbedding, MentionTripleExtractor

FORMS = {"plain": (False, False), "graph": (True, False), "graph, triples embedded": (True, True)}
"""Form → does it have triples, and are they embedded."""


class Counting(BaseEmbedding):
    """An embedding model that counts the characters that it is given."""

    characters: int = 0
    _model: BaseEmbedding = PrivateAttr()

    def __init__(self, model: BaseEmbedding) -> None:
        super().__init__(model_name=model.model_name, embed_batch_size=model.embed_batch_size)
        self._model = model

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self.characters += sum(map(len, texts))
        return self._model._get_text_embeddings(texts)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._model._get_query_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


def index(nodes: list[BaseNode], model: BaseEmbedding, *, triples: bool, embedded: bool) -> dict[str, float]:
    """Index passages; return the processor seconds and the embedded characters."""
    counting = Counting(model)
    steps: list[TransformComponent] = [MentionTripleExtractor(), counting] if triples else [counting]
    with (
        tempfile.TemporaryDirectory() as folder,
        GeARVectorStore.from_path(Path(folder) / "store", embed_model=counting, embed_triples=embedded) as store,
    ):
        start = time.process_time()
        pipeline = IngestionPipeline(transformations=steps, vector_store=store, disable_cache=True)
        pipeline.run(nodes=[node.model_copy(deep=True) for node in nodes])
        seconds = time.process_time() - start
    return {"seconds": seconds, "characters": counting.characters}


def compare(nodes: list[BaseNode], model: BaseEmbedding, turns: int) -> dict[str, Any]:
    """Index passages in each form by turns; return the least of each, and its ratio to the plain index."""
    index(nodes[:64], model, triples=True, embedded=True)  # what is loaded once is loaded
    taken: dict[str, list[dict[str, float]]] = {form: [] for form in FORMS}
    for _ in range(turns):
        for form, (triples, embedded) in FORMS.items():
            taken[form].append(index(nodes, model, triples=triples, embedded=embedded))
    least = {form: min(of_form, key=lambda one: one["seconds"]) for form, of_form in taken.items()}
    return {
        form: {
            "seconds": round(of["seconds"], 1),
            "time": round(of["seconds"] / least["plain"]["seconds"], 2),
            "characters": round(of["characters"] / least["plain"]["characters"], 2),
        }
        for form, of in least.items()
    }


def main() -> None:
    """Measure each set, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the data folders")
    parser.add_argument("--sets", default="musique_train,2wiki,company_wiki")
    parser.add_argument("--passages", type=int, default=2000, help="passages of a set, at most")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--runtime", choices=["light", "sentence-transformers"], default="light")
    parser.add_argument("--model", help="folder (or hub name) of sentence-transformers' model")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model: BaseEmbedding = LightEmbedding()
    if options.runtime != "light":
        model = HuggingFaceEmbedding(model_name=options.model, device="cpu", embed_batch_size=32)
    results: dict[str, Any] = {"runtime": options.runtime}
    for name in options.sets.split(","):
        folder = EXAMPLES / "data" / name if (EXAMPLES / "data" / name).exists() else options.data / name
        nodes = to_nodes(load(folder), with_triples=False)[: options.passages]
        results[name] = {"passages": len(nodes), **compare(nodes, model, options.turns)}
        print(name, json.dumps(results[name]), flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
