"""What GeAR's agent costs a question, in calls and tokens, for each value of `calls`, on the sample passages.

    OPENAI_API_KEY=… [OPENAI_BASE_URL=… OPENAI_MODEL=…] python examples/benchmarks/agent_cost.py --out cost.json

The triples are made by rule, so that the model is asked by the agent alone; the final answer is not counted. Beside the
costs stands recall@10 over the sample questions, to show what a saving loses.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from llama_index.core.llms import LLM

from llama_index_gear import GeARRetriever, GeARVectorStore
from llama_index_gear.gear import Calls

sys.path.insert(0, str(Path(__file__).parent.parent))
from quickstart import DATA, language_model, opened

WAYS: tuple[Calls, ...] = ("separate", "merged", "single")


def measure(
    store: GeARVectorStore, llm: LLM, calls: Calls, questions: list[dict[str, Any]], max_steps: int
) -> dict[str, Any]:
    """Means over the questions."""
    retriever = GeARRetriever(store, llm=llm, calls=calls, max_steps=max_steps, similarity_top_k=10)
    rows = []
    start = time.perf_counter()
    for row in questions:
        nodes, trace = retriever.retrieve_with_trace(row["question"])
        gold = set(row["gold_passage_ids"])
        recall = len(gold & {each.node.node_id for each in nodes}) / len(gold)
        rows.append((trace.llm_calls, trace.prompt_tokens, trace.completion_tokens, len(trace.steps), 100 * recall))
        print(f"{calls}: {rows[-1]} {trace.stopped}", file=sys.stderr, flush=True)
    names = ("llm_calls", "prompt_tokens", "completion_tokens", "steps", "recall@10")
    means = {
        name: round(statistics.fmean(column), 1) for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }
    return {"calls": calls, **means, "seconds": round(time.perf_counter() - start, 1)}


def main() -> None:
    """Ingest, ask, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--max-steps", type=int, default=4)
    parser.add_argument("--limit", type=int, default=None, help="only the first N questions")
    parser.add_argument("--out", type=Path, default=None, help="JSON file for the results")
    arguments = parser.parse_args()
    llm = language_model()
    if llm is None:
        parser.error("set OPENAI_API_KEY (and OPENAI_BASE_URL, OPENAI_MODEL for a compatible server)")
    questions = [json.loads(line) for line in (DATA / "questions.jsonl").read_text("utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as scratch:
        store = opened(Path(scratch), None)
        results = []
        for calls in WAYS:
            results.append(measure(store, llm, calls, questions[: arguments.limit], arguments.max_steps))
            print(json.dumps(results[-1]), flush=True)
        store.close()
    if arguments.out is not None:
        report = {
            "model": llm.metadata.model_name,
            "max_steps": arguments.max_steps,
            "questions": len(questions[: arguments.limit]),
        }
        arguments.out.write_text(json.dumps({**report, "ways": results}, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
