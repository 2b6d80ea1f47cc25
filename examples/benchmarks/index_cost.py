"""Compare what it takes to index passages plainly, with the graph, and by a peer's own code; then, to ask them.

    python examples/benchmarks/index_cost.py --data DIR [--sets musique_train,2wiki,company_wiki] [--passages 2000]
        [--turns 3] [--runtimes light,sentence-transformers --model FOLDER] [--embedded] [--peer PYTHON]
        [--questions 100] [--out index_cost.json]

Each turn indexes passages of each set, by each runtime: plainly (embedded, and stored for dense search and
BM25), with the graph (`MentionTripleExtractor` before that), and, with `--embedded`, with the graph and every triple
embedded. Each goes into an embedded store of its own. The least processor seconds of all threads count, of the whole
pipeline: extraction, embedding, writing. `time` is their ratio to the plain index of the same runtime, `characters`
that of the embedded characters.

Then questions are asked, whose gold is among these passages: processor time without the question's embedding, and
recall. `GraphRetriever` has the weights that were learned without this kind of text. `--peer` is the Python of an
environment with hubmesh (`peers/hubmesh.py`), which indexes the same passages with `LightEmbedding`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.data import Dataset, load, write_whole
from harness.methods import to_nodes
from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import BaseNode, QueryBundle, TransformComponent
from llama_index.core.vector_stores.types import VectorStoreQueryMode
from llama_index.embeddings.huggingface import HuggingFaceEmbedding
from peers.exchange import CUTS, ask_for_documents, read_passages
from peers_beside import LEFT_OUT, find_shares, prepare
from ranking import EXAMPLES, name_kind, read_left_out

from llama_index_gear import GeARVectorStore, GraphRetriever, LightEmbedding, MentionTripleExtractor

FORMS = {"plain": (False, False), "graph": (True, False), "graph, triples embedded": (True, True)}
"""Form → does it have triples, and are they embedded."""
HERE = Path(__file__).parent


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


def take_part(dataset: Dataset, passages: int, questions: int) -> Dataset:
    """Return the first questions, what is gold of them, and the first of the other passages."""
    asked = dataset.questions[:questions]
    gold = {id_ for question in asked for id_ in question.gold}
    others = [passage.id for passage in dataset.passages if passage.id not in gold]
    kept = {*gold, *others[: max(0, passages - len(gold))]}
    return replace(dataset, passages=[passage for passage in dataset.passages if passage.id in kept], questions=asked)


@contextmanager
def index(dataset: Dataset, model: BaseEmbedding, form: str) -> Iterator[tuple[GeARVectorStore, dict[str, float]]]:
    """Index passages; yield the store, and the processor seconds and the embedded characters."""
    has_triples, embedded = FORMS[form]
    counting = Counting(model)
    steps: list[TransformComponent] = [MentionTripleExtractor(), counting] if has_triples else [counting]
    nodes: list[BaseNode] = to_nodes(dataset, with_triples=False)
    with (
        tempfile.TemporaryDirectory() as folder,
        GeARVectorStore.from_path(Path(folder) / "store", embed_model=counting, embed_triples=embedded) as store,
    ):
        start = time.process_time()
        IngestionPipeline(transformations=steps, vector_store=store, disable_cache=True).run(nodes=nodes)
        yield store, {"seconds": time.process_time() - start, "characters": counting.characters}


def ask(dataset: Dataset, documents: Mapping[str, str], retriever: Callable[[int], BaseRetriever]) -> dict[str, Any]:
    """Ask each question for as many passages as each cut, or as make so many documents."""
    model, lists, seconds = LightEmbedding(), {}, []
    for question in dataset.questions:
        bundle = QueryBundle(question.question, embedding=model.get_query_embedding(question.question))

        def search(top_k: int, bundle: QueryBundle = bundle) -> list[str]:
            asked = retriever(top_k)
            start = time.process_time()
            found = asked.retrieve(bundle)
            seconds.append(time.process_time() - start)
            return [result.node.node_id for result in found]

        lists[question.id] = ask_for_documents(search, documents)
    return {"question_ms": round(1000 * statistics.mean(seconds), 1), **_to_recall(dataset, lists, documents)}


def _to_recall(dataset: Dataset, lists: Any, documents: Mapping[str, str]) -> dict[str, float]:
    shares = find_shares(dataset, lists, documents)
    return {f"recall@{cut}": round(100 * statistics.mean(shares[cut]), 1) for cut in CUTS}


def ask_ours(dataset: Dataset, store: GeARVectorStore, documents: Mapping[str, str]) -> dict[str, Any]:
    """Return what questions take and find by hybrid search and by `GraphRetriever`."""
    weights = read_left_out(LEFT_OUT).get(name_kind(dataset.name))
    plain = VectorStoreIndex.from_vector_store(store, embed_model=store.embed_model)

    def search(top_k: int) -> BaseRetriever:
        return plain.as_retriever(vector_store_query_mode=VectorStoreQueryMode.HYBRID, similarity_top_k=top_k)

    def walk(top_k: int) -> BaseRetriever:
        return GraphRetriever(store, similarity_top_k=top_k, weights=weights)

    return {"hybrid": ask(dataset, documents, search), "GraphRetriever": ask(dataset, documents, walk)}


def run_peer(dataset: Dataset, python: str, folder: Path, documents: Mapping[str, str]) -> dict[str, Any]:
    """Index and ask by hubmesh's own code."""
    subprocess.run([python, "-m", "peers.hubmesh", str(folder)], cwd=HERE, check=True, stdout=subprocess.DEVNULL)
    made = json.loads((folder / "rankings-hubmesh.json").read_text("utf-8"))
    rankings = made.pop("rankings")
    return {**made, **_to_recall(dataset, rankings, documents)}


def compare(
    dataset: Dataset, models: Mapping[str, BaseEmbedding], forms: list[str], turns: int, peer: str | None
) -> dict[str, Any]:
    """Index passages in each form by each runtime by turns; return the least of each, its ratios, and the questions."""
    taken: dict[tuple[str, str], list[dict[str, float]]] = {(name, form): [] for name in models for form in forms}
    of_peer: list[dict[str, Any]] = []
    asked: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / dataset.name
        prepare(dataset, folder)
        documents = {passage.id: passage.document for passage in read_passages(folder)}
        for name, form in taken:  # what is loaded once is loaded
            with index(replace(dataset, passages=dataset.passages[:64]), models[name], form):
                pass
        for _ in range(turns):
            for name, form in taken:
                with index(dataset, models[name], form) as (store, figures):
                    taken[name, form].append(figures)
                    if form == "graph" and not asked:
                        asked = ask_ours(dataset, store, documents)
            if peer:
                of_peer.append(run_peer(dataset, peer, folder, documents))
    least = {key: min(of, key=lambda one: one["seconds"]) for key, of in taken.items()}
    for one in of_peer:
        asked["hubmesh"] = min(one, asked.get("hubmesh", one), key=lambda figures: float(figures["index_seconds"]))
    indexed: dict[str, Any] = {}
    for (name, form), of in least.items():
        ratios = {what: round(of[what] / least[name, "plain"][what], 2) for what in ("seconds", "characters")}
        indexed.setdefault(name, {})[form] = {
            "seconds": round(of["seconds"], 1),
            "time": ratios["seconds"],
            "characters": ratios["characters"],
        }
    return {
        "passages": len(dataset.passages),
        "questions": len(dataset.questions),
        "indexed": indexed,
        "asked": asked,
    }


def main() -> None:
    """Measure each set, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the data folders")
    parser.add_argument("--sets", default="musique_train,2wiki,company_wiki")
    parser.add_argument(
        "--passages", type=int, default=2000, help="passages of a set: gold of its questions, then the first others"
    )
    parser.add_argument("--questions", type=int, default=100, help="questions of a set, at most")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--runtimes", default="light", help="light, sentence-transformers, or both, with a comma")
    parser.add_argument("--model", help="folder (or hub name) of sentence-transformers' model")
    parser.add_argument("--embedded", action="store_true", help="also with every triple embedded")
    parser.add_argument("--peer", metavar="PYTHON", help="Python of an environment with hubmesh")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    models: dict[str, BaseEmbedding] = {}
    for name in options.runtimes.split(","):
        models[name] = (
            LightEmbedding()
            if name == "light"
            else HuggingFaceEmbedding(model_name=options.model, device="cpu", embed_batch_size=32)
        )
    forms = [form for form, (_, embedded) in FORMS.items() if options.embedded or not embedded]
    results: dict[str, Any] = {}
    for name in options.sets.split(","):
        folder = EXAMPLES / "data" / name
        dataset = load(folder if folder.exists() else options.data / name)
        part = take_part(dataset, options.passages, options.questions)
        results[name] = compare(part, models, forms, options.turns, options.peer)
        print(name, json.dumps(results[name], indent=1), flush=True)
    if options.out is not None:
        write_whole(options.out, json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
