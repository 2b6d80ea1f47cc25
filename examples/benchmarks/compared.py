"""Methods that the ranking is compared with, over the same passages, triples and questions: recall at its cuts.

    python examples/benchmarks/compared.py --data DIR --stores DIR --embed MODEL_DIR --cache DIR --out compared.json

`--stores` holds filled stores, `SET-file` and `SET-offline`, as `retrieval.py --store` leaves them.

- "naive": `NaiveGERetriever` over hybrid. For each cut it is asked anew: its base returns as many passages as the cut.
- "hipporag", "hipporag-synonyms": HippoRAG 2's retrieval, without its filter. It starts from all facts that are found;
  HippoRAG's own program from the phrases of the five best.
- "property graph": LlamaIndex's `PropertyGraphIndex`.

All but "naive" make one list for all cuts. `--cache` keeps vectors, and the recalls in `SET-KIND.compared.json`; delete
that file to measure them anew.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import mean
from typing import Any

from baselines.hipporag import HippoRAGRetriever
from baselines.property_graph import PropertyGraphRetriever
from harness.cached_embedding import CachedEmbedding
from harness.data import Question, load, write_whole
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import BaseNode
from llama_index.embeddings.huggingface import HuggingFaceEmbedding
from ranking import CUTS, KINDS, LEARNED, OTHERS

from llama_index_gear import GeARVectorStore, NaiveGERetriever
from llama_index_gear.ranking.measures import recall

METHODS = ("naive", "hipporag", "hipporag-synonyms", "property graph")


def measure_compared(
    store: GeARVectorStore,
    passage_ids: Sequence[str],
    questions: Sequence[Question],
    cuts: Sequence[int],
    kept: Path,
    made_of: Any,
) -> dict[str, dict[int, list[float]]]:
    """Return the recall of each method at each cut, a value a question.

    Args:
        store: the store that holds the passages and their triples.
        passage_ids: ids of the corpus's passages.
        questions: the questions.
        cuts: the numbers of passages at which recall is measured.
        kept: file in which the recalls are kept, so that they are measured once.
        made_of: what the store is made of. Recalls that were kept of another store are measured anew.

    """
    key = {"made_of": made_of, "cuts": list(cuts)}
    recalls: dict[str, dict[str, list[float]]] = {method: {} for method in METHODS}
    if kept.exists():
        before = json.loads(kept.read_text("utf-8"))
        if before["key"] == key:
            recalls |= before["recalls"]
    nodes: list[BaseNode] = []
    for method, of_method in recalls.items():
        missing = [question for question in questions if question.id not in of_method]
        if not missing:
            continue
        nodes = nodes or store.get_nodes(list(passage_ids))
        retrievers = make_retrievers(method, store, nodes, cuts)
        for question in missing:
            of_method[question.id] = recall_at(cuts, retrievers, question)
        write_whole(kept, json.dumps({"key": key, "recalls": recalls}))
    return {
        method: {cut: [of_method[question.id][place] for question in questions] for place, cut in enumerate(cuts)}
        for method, of_method in recalls.items()
    }


def make_retrievers(
    method: str, store: GeARVectorStore, nodes: Sequence[BaseNode], cuts: Sequence[int]
) -> list[BaseRetriever]:
    """Return a method's retriever for each cut; a single one if it makes one list for all."""
    if method == "naive":
        return [NaiveGERetriever(store, similarity_top_k=cut) for cut in cuts]
    if method == "property graph":
        return [PropertyGraphRetriever(nodes, store.embed_model, similarity_top_k=max(cuts))]
    synonyms = method == "hipporag-synonyms"
    return [HippoRAGRetriever(nodes, store.embed_model, similarity_top_k=max(cuts), synonyms=synonyms)]


def recall_at(cuts: Sequence[int], retrievers: Sequence[BaseRetriever], question: Question) -> list[float]:
    """Return the recall of a question at each cut."""
    lists = [[result.node_id for result in retriever.retrieve(question.question)] for retriever in retrievers]
    if len(lists) == 1:
        lists *= len(cuts)
    return [recall(found, question.gold, cut) for cut, found in zip(cuts, lists, strict=True)]


def read_note(store: Path) -> Any:
    """Read what a store is made of, as `retrieval.py` notes it beside the store.

    Raises:
        SystemExit: there is no note.

    """
    try:
        return json.loads(store.with_name(f"{store.name}.made_of.json").read_text("utf-8"))
    except FileNotFoundError:
        sys.exit(f"--stores: {store} was not filled to the end: make it anew with retrieval.py --store")


def main() -> None:
    """Measure each store that there is, and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "stores", "cache", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--embed", required=True, help="folder (or hub name) of a sentence-transformers model")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for name, kind in ((name, kind) for name in (*LEARNED, *OTHERS) for kind in KINDS):
        key, path = f"{name}-{kind}", options.stores / f"{name}-{kind}"
        if not path.exists():
            continue
        dataset = load(OTHERS.get(name) or options.data / name)
        model = HuggingFaceEmbedding(model_name=options.embed, device="cpu")
        embed = CachedEmbedding(model, options.cache / f"{name}.sqlite")
        kept, ids = options.cache / f"{key}.compared.json", [passage.id for passage in dataset.passages]
        with closing(GeARVectorStore.from_path(path, embed_model=embed)) as store:
            compared = measure_compared(store, ids, dataset.questions, CUTS, kept, read_note(path))
        results[key] = [{"method": method, **summarize(shares)} for method, shares in compared.items()]
        write_whole(options.out, json.dumps(results, indent=1) + "\n")


def summarize(shares: dict[int, list[float]]) -> dict[str, Any]:
    """Return recall in percent and the complete questions at each cut."""
    recalls = {f"recall@{cut}": round(100 * mean(values), 1) for cut, values in shares.items()}
    return recalls | {f"complete@{cut}": sum(value == 1 for value in values) for cut, values in shares.items()}


if __name__ == "__main__":
    main()
