"""The methods that a ranking is compared with, over the same store and questions: recall, question by question.

- "naive": `NaiveGERetriever` over hybrid. For each cut it is asked anew: its base returns as many passages as the cut.
- "hipporag", "hipporag-synonyms": HippoRAG 2's retrieval, without its filter.
- "property graph": LlamaIndex's `PropertyGraphIndex`.

All but "naive" make one list for all cuts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from baselines.hipporag import HippoRAGRetriever
from baselines.property_graph import PropertyGraphRetriever
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import BaseNode

from harness.data import Question, write_whole
from llama_index_gear import GeARVectorStore, NaiveGERetriever
from llama_index_gear.ranking.measures import recall

HIPPORAG = ("hipporag", "hipporag-synonyms")
METHODS = ("naive", *HIPPORAG, "property graph")


def measure_compared(
    store: GeARVectorStore,
    passage_ids: Sequence[str],
    questions: Sequence[Question],
    cuts: Sequence[int],
    kept: Path | None,
    made_of: Any,
    methods: Sequence[str] = METHODS,
) -> dict[str, dict[int, list[float]]]:
    """Return the recall of each method at each cut, a value a question.

    Args:
        store: the store that holds the passages and their triples.
        passage_ids: ids of the corpus's passages.
        questions: the questions.
        cuts: the numbers of passages at which recall is measured.
        kept: file in which the recalls are kept, so that they are measured once. Default None: they are not kept.
        made_of: what the store is made of. Recalls that were kept of another store are measured anew.
        methods: the methods to measure; others are returned if their recalls are kept. Default: all.

    """
    key = {"made_of": made_of, "cuts": list(cuts)}
    recalls: dict[str, dict[str, list[float]]] = {method: {} for method in METHODS}
    if kept is not None and kept.exists():
        before = json.loads(kept.read_text("utf-8"))
        if before["key"] == key:
            recalls |= before["recalls"]
    nodes: list[BaseNode] = []
    for method, of_method in recalls.items():
        missing = [question for question in questions if question.id not in of_method]
        if not missing or method not in methods:
            continue
        nodes = nodes or store.get_nodes(list(passage_ids))
        retrievers = make_retrievers(method, store, nodes, cuts)
        for question in missing:
            of_method[question.id] = recall_at(cuts, retrievers, question)
        if kept is not None:
            write_whole(kept, json.dumps({"key": key, "recalls": recalls}))
    return {
        method: {cut: [of_method[question.id][place] for question in questions] for place, cut in enumerate(cuts)}
        for method, of_method in recalls.items()
        if all(question.id in of_method for question in questions)
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
