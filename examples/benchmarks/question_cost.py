"""Compare what a question takes in two builds of this package, by turns: processor time, calls, and the same results.

    python examples/benchmarks/question_cost.py --data DIR --before CHECKOUT [--set musique] [--passages 2000]
        [--questions 60] [--out question_cost.json]

Each build indexes the same passages, with triples by rule and vectors of `LightEmbedding`, in a process of its own, and
then answers the same questions with `GraphRetriever`; their embeddings are given. The builds take turns, question by
question, so that what else the machine does falls on both. Processor time is that of all threads.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WARM = 10
"""First questions, which are not counted."""
HERE = Path(__file__).resolve().parents[2]


def work(file: Path) -> None:
    """Index the passages of a file; then answer each question of stdin, with what it took and a fingerprint of it."""
    from llama_index.core.embeddings import MockEmbedding
    from llama_index.core.schema import QueryBundle

    from llama_index_gear import GeARVectorStore, GraphRetriever

    nodes = pickle.loads(file.read_bytes())
    with (
        tempfile.TemporaryDirectory() as folder,
        GeARVectorStore.from_path(folder, embed_model=MockEmbedding(len(nodes[0].embedding))) as store,
    ):
        store.add(nodes)
        del nodes
        retriever = GraphRetriever(store)
        for line in sys.stdin:
            question, embedding, is_counted = json.loads(line)
            calls = [0]

            def count(_frame: Any, event: str, _argument: Any, calls: list[int] = calls) -> None:
                calls[0] += event == "call"

            sys.setprofile(count if is_counted else None)
            start = time.process_time()
            found = retriever.retrieve(QueryBundle(question, embedding=embedding))
            taken = time.process_time() - start
            sys.setprofile(None)
            results = [(result.node.to_json(), result.score) for result in found]
            print(json.dumps([1000 * taken, calls[0], results]), flush=True)


def prepare(data: Path, passages: int, questions: int) -> tuple[list[Any], list[tuple[str, list[float]]]]:
    """Return passages with triples and vectors, and questions with theirs."""
    from harness.data import load
    from harness.methods import to_nodes
    from llama_index.core.schema import MetadataMode

    from llama_index_gear import LightEmbedding, MentionTripleExtractor

    loaded, model = load(data), LightEmbedding()
    nodes = MentionTripleExtractor()(to_nodes(loaded, with_triples=False)[:passages])
    texts = [node.get_content(MetadataMode.EMBED) for node in nodes]
    for node, vector in zip(nodes, model.get_text_embedding_batch(texts), strict=True):
        node.embedding = vector
    asked = [question.question for question in loaded.questions[: questions + WARM]]
    return list(nodes), [(question, model.get_query_embedding(question)) for question in asked]


def compare(before: Path, file: Path, questions: list[tuple[str, list[float]]]) -> dict[str, Any]:
    """Ask both builds each question by turns; return the figures of each, and their ratio."""
    processes = {}
    for name, folder in {"before": before, "now": HERE}.items():
        command = [sys.executable, __file__, "--work", str(file)]
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        processes[name] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(name: str, question: str, embedding: list[float], *, is_counted: bool = False) -> Any:
        process = processes[name]
        assert process.stdin is not None and process.stdout is not None
        print(json.dumps([question, embedding, is_counted]), file=process.stdin, flush=True)
        return json.loads(process.stdout.readline())

    answers: dict[str, list[Any]] = {name: [] for name in processes}
    for number, question in enumerate(questions):
        for name in list(processes)[:: -1 if number % 2 else 1]:
            answers[name].append(ask(name, *question))
    calls = {name: [ask(name, *question, is_counted=True)[1] for question in questions[:WARM]] for name in processes}
    for process in processes.values():
        process.communicate()
    times = {name: [answer[0] for answer in of[WARM:]] for name, of in answers.items()}
    same = sum(one[2] == other[2] for one, other in zip(*answers.values(), strict=True))
    return {
        **{
            name: {"ms": round(statistics.median(times[name]), 1), "calls": round(statistics.mean(calls[name]))}
            for name in processes
        },
        "time": round(sum(times["now"]) / sum(times["before"]), 2),
        "same_results": f"{same} of {len(questions)}",
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help="folder with the data folders")
    parser.add_argument("--set", default="musique")
    parser.add_argument("--before", type=Path, help="a checkout of the other build")
    parser.add_argument("--passages", type=int, default=2000)
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.work is not None:
        return work(options.work)
    nodes, questions = prepare(options.data / options.set, options.passages, options.questions)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "nodes.pickle"
        file.write_bytes(pickle.dumps(nodes))
        figures = {"set": options.set, "passages": len(nodes), **compare(options.before.resolve(), file, questions)}
    print(json.dumps(figures))
    if options.out is not None:
        options.out.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
