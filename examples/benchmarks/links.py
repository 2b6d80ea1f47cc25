"""Compare searches and `GraphRetriever` without and with links: recall, and questions with all gold, by type.

    python examples/benchmarks/links.py --data FOLDER … [--cache FILE] [--peer PYTHON] [--out FILE]

A folder has `corpus.jsonl`, a file a line (`id` is its path), and `questions.jsonl`, whose gold are files. They are
read as `index` reads files, and cut into passages as it cuts them. `--cache` keeps embeddings. Places are counted in
passages, or in documents, each at the place of its first passage.

Rows: "dense", "bm25" and "hybrid", the first forty of each; "graph", `GraphRetriever` over a store without links;
"graph + links", over one with them, with the weight of `page_links` that the other folders' questions choose, the one
of the least loss; "graph + links, shipped", with the weight that comes with the package; "graph + links as facts", with
none. `--peer` is the Python of an environment with datastax's graph-rag (`peers/graph_rag.py`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from harness.cached_embedding import CachedEmbedding
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from llama_index_gear import (
    FolderReader,
    GeARVectorStore,
    GraphRetriever,
    LightEmbedding,
    LinkTripleExtractor,
    MentionTripleExtractor,
    RankingWeights,
)
from llama_index_gear.cli.indexing import make_splitter
from llama_index_gear.nodes import LINKS, read_title, read_triples, split_link
from llama_index_gear.ranking.learning import Example
from llama_index_gear.ranking.signals import order
from llama_index_gear.triple import entity_key

CUTS = (2, 5, 10)
WIDTH = 40  # passages of a list
SEARCHES = {
    "dense": VectorStoreQueryMode.DEFAULT,
    "bm25": VectorStoreQueryMode.SPARSE,
    "hybrid": VectorStoreQueryMode.HYBRID,
}
WEIGHTS = [number / 2 for number in range(25)]
"""Weights of `page_links` to choose from."""
PEER = Path(__file__).parent / "peers" / "graph_rag.py"
Row = dict[str, Any]


def read_lines(path: Path) -> list[Row]:
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


@dataclass
class Source:
    """A folder, and what was found for its questions.

    Attributes:
        questions: its questions.
        nodes: its passages with the triples of links.
        found: method → for each question the documents of the passages, best first.
        examples: for each question its pool, from the store with links.
        milliseconds: mean processor time of a question, without its embedding, by store.

    """

    questions: list[Row]
    nodes: Sequence[BaseNode] = ()
    found: dict[str, list[list[str]]] = field(default_factory=dict)
    examples: list[Example] = field(default_factory=list)
    milliseconds: dict[str, float] = field(default_factory=dict)


def gather(data: Path, model: BaseEmbedding) -> Source:
    """Fill stores without and with links, and ask them."""
    source = Source(read_lines(data / "questions.jsonl"))
    plain = list(model(MentionTripleExtractor()(read_passages(data))))
    source.nodes = LinkTripleExtractor()(plain)
    texts = [row["question"] for row in source.questions]
    model.get_text_embedding_batch(texts)
    for kind, nodes in (("graph", plain), ("graph + links", source.nodes)):
        with (
            tempfile.TemporaryDirectory() as folder,
            GeARVectorStore.from_path(Path(folder) / "store", embed_model=model) as store,
        ):
            store.add(nodes)
            retriever = GraphRetriever(store, similarity_top_k=WIDTH)
            retriever.retrieve(texts[0])
            begun = time.process_time()
            found = [[str(one.node.ref_doc_id) for one in retriever.retrieve(text)] for text in texts]
            source.milliseconds[kind] = round(1e3 * (time.process_time() - begun) / len(texts), 1)
            if kind == "graph":
                source.found = {name: search(store, model, texts, mode) for name, mode in SEARCHES.items()}
                source.found["graph"] = found
            else:
                for row, text in zip(source.questions, texts, strict=True):
                    gold = frozenset(row["gold_document_ids"])
                    source.examples.append(Example(retriever.gather_pool(text), gold))
    return source


def search(
    store: GeARVectorStore, model: BaseEmbedding, texts: Sequence[str], mode: VectorStoreQueryMode
) -> list[list[str]]:
    """Return the documents of the passages that the store's own search finds."""
    found = []
    for text in texts:
        query = VectorStoreQuery(query_str=text, query_embedding=model.get_query_embedding(text), mode=mode)
        query.similarity_top_k = WIDTH
        found.append([str(node.ref_doc_id) for node in store.query(query).nodes or []])
    return found


def reweigh(weight: float) -> Mapping[str, float]:
    """Return the shipped weights with another one of `page_links`."""
    return {**RankingWeights.default().signals, "page_links": weight}


def measure_loss(example: Example, weights: Mapping[str, float]) -> float:
    """Return the cross entropy of the ranking's softmax and the gold documents of a pool."""
    scores = example.score(weights)
    powers = np.exp(scores - scores.max())
    return -mean(float(np.log(powers[places].sum() / powers.sum())) for places in example.gold_places)


def choose_weight(others: Sequence[Source]) -> float:
    """Return the weight of `page_links` with the least mean loss on these sources' questions, of all types."""
    examples = [example for source in others for example in source.examples if example.gold_places]
    return min(WEIGHTS, key=lambda weight: mean(measure_loss(example, reweigh(weight)) for example in examples))


def rank_pools(source: Source, weight: float) -> list[list[str]]:
    """Return the documents of the first passages by a weight of `page_links`."""
    return [
        [example.pool.passages[place].document for place in order(example.score(reweigh(weight)))[:WIDTH]]
        for example in source.examples
    ]


def ask_peer(source: Source, model: BaseEmbedding, python: str) -> dict[str, Any]:
    """Return the rankings of graph-rag over the same passages, links and embeddings, and its versions."""
    passages = [
        {
            "id": node.node_id,
            "text": node.get_content(metadata_mode=MetadataMode.EMBED),
            "vector": node.embedding,
            "page": entity_key(read_title(node)),
            "links": list_linked(node),
        }
        for node in source.nodes
    ]
    texts = [row["question"] for row in source.questions]
    asked = [{"text": text, "vector": model.get_query_embedding(text)} for text in texts]
    documents = {node.node_id: str(node.ref_doc_id) for node in source.nodes}
    with tempfile.TemporaryDirectory() as folder:
        given, ranked = Path(folder, "given.json"), Path(folder, "ranked.json")
        given.write_text(json.dumps({"passages": passages, "questions": asked, "width": WIDTH}), "utf-8")
        subprocess.run([python, str(PEER), str(given), str(ranked)], check=True)
        made: dict[str, Any] = json.loads(ranked.read_text("utf-8"))
    for strategy, lists in made["rankings"].items():
        source.found[f"graph-rag, {strategy}"] = [[documents[id_] for id_ in ids] for ids in lists]
    versions: dict[str, Any] = made["versions"]
    return versions


def list_linked(node: BaseNode) -> list[str]:
    """Return the pages that a passage links to, by the keys of what they are about."""
    made = (triple for triple in read_triples(node) if split_link(triple.predicate)[1] == LINKS)
    return list(dict.fromkeys(entity_key(triple.object) for triple in made))


def measure(found: Sequence[Sequence[str]], questions: Sequence[Row]) -> dict[str, Any]:
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


def measure_all(sources: Mapping[str, Source]) -> dict[str, Any]:
    """Return the rows of each source, and of all together."""
    result: dict[str, Any] = {}
    for name, source in sources.items():
        weight = choose_weight([other for key, other in sources.items() if key != name]) if len(sources) > 1 else 0
        shipped = RankingWeights.default().signals["page_links"]
        source.found["graph + links as facts"] = rank_pools(source, 0.0)
        source.found["graph + links"] = rank_pools(source, weight)
        source.found["graph + links, shipped"] = rank_pools(source, shipped)
        result[name] = {
            "passages": len(source.nodes),
            "documents": len({node.ref_doc_id for node in source.nodes}),
            "questions": Counter(row["type"] for row in source.questions),
            "weight": weight,
            "milliseconds": source.milliseconds,
            "rows": {method: measure(found, source.questions) for method, found in source.found.items()},
        }
    every = [row for source in sources.values() for row in source.questions]
    methods = next(iter(sources.values())).found
    result["all"] = {
        "questions": Counter(row["type"] for row in every),
        "rows": {
            method: measure([ids for source in sources.values() for ids in source.found[method]], every)
            for method in methods
        },
    }
    return result


def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="folders of corpus and questions")
    parser.add_argument("--cache", type=Path, help="file in which embeddings are kept")
    parser.add_argument("--peer", metavar="PYTHON", help="Python of an environment with graph-rag")
    parser.add_argument("--out", type=Path, help="write the result here too")
    options = parser.parse_args()
    model: BaseEmbedding = LightEmbedding()
    if options.cache is not None:
        model = CachedEmbedding(model, options.cache)
    sources, versions = {}, {}
    for data in options.data:
        sources[data.name] = gather(data, model)
        if options.peer:
            versions = ask_peer(sources[data.name], model, options.peer)
    text = json.dumps({"versions": versions, "sources": measure_all(sources)}, indent=1)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
