"""What the agents cost a question, in calls and tokens, on the sample passages: GeAR's three ways of asking, T²RAG's.

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

from llama_index_gear import GeARRetriever, GeARVectorStore, T2RAGRetriever
from llama_index_gear.agent_retriever import AgentRetriever

sys.path.insert(0, str(Path(__file__).parent.parent))
from quickstart import DATA, language_model, opened
from recorded import RecordedLLM

WAYS = ("separate", "merged", "single", "t2rag", "t2rag-expand")


def agent(way: str, store: GeARVectorStore, llm: LLM, max_steps: int | None) -> AgentRetriever:
    """GeAR with this value of `calls`, or T²RAG, with the papers' numbers of steps unless another is given."""
    match way:
        case "separate" | "merged" | "single":
            return GeARRetriever(store, llm=llm, calls=way, max_steps=max_steps or 4)
        case "t2rag" | "t2rag-expand":
            return T2RAGRetriever(store, llm=llm, expand=way == "t2rag-expand", max_rounds=max_steps or 3)
    raise ValueError(f"there is no way {way!r}; there are {', '.join(WAYS)}")


def measure(way: str, retriever: AgentRetriever, questions: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the questions, and what each question gave."""
    rows: list[dict[str, Any]] = []
    start = time.perf_counter()
    for row in questions:
        nodes, trace = retriever.retrieve_with_trace(row["question"])
        gold = set(row["gold_passage_ids"])
        recall = len(gold & {each.node.node_id for each in nodes}) / len(gold)
        rows.append(
            {
                "llm_calls": trace.llm_calls,
                "prompt_tokens": trace.prompt_tokens,
                "completion_tokens": trace.completion_tokens,
                "steps": len(trace.steps),
                "unread_replies": sum("reply" in problem for step in trace.steps for problem in step.problems),
                "open_unknowns": len(trace.open),
                "recall@10": 100 * recall,
                "complete@10": 100.0 * (recall == 1),
                "stopped": trace.stopped,
            }
        )
        print(f"{way}: {list(rows[-1].values())}", file=sys.stderr, flush=True)
    means = {name: round(statistics.fmean(row[name] for row in rows), 1) for name in rows[0] if name != "stopped"}
    return {"way": way, **means, "seconds": round(time.perf_counter() - start, 1), "rows": rows}


def main() -> None:
    """Ingest, ask, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--max-steps", type=int, default=None, help="steps at most; default: the papers' 4 and 3")
    parser.add_argument("--limit", type=int, default=None, help="only the first N questions")
    parser.add_argument("--replies", type=Path, default=None, help="JSON Lines file that keeps the model's replies")
    parser.add_argument("--out", type=Path, default=None, help="JSON file for the results")
    arguments = parser.parse_args()
    llm = language_model()
    if llm is None:
        parser.error("set OPENAI_API_KEY (and OPENAI_BASE_URL, OPENAI_MODEL for a compatible server)")
    if arguments.replies is not None:
        llm = RecordedLLM(llm, arguments.replies)
    questions = [json.loads(line) for line in (DATA / "questions.jsonl").read_text("utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as scratch:
        store = opened(Path(scratch), None)
        results = []
        for way in arguments.ways:
            retriever = agent(way, store, llm, arguments.max_steps)
            results.append(measure(way, retriever, questions[: arguments.limit]))
            print(json.dumps({**results[-1], "rows": len(results[-1]["rows"])}), flush=True)
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
