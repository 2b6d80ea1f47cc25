"""The committed results, and the names of their rows in tables and plots."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DATA = {"MuSiQue": "musique_train", "HotpotQA": "hotpotqa"}
EMBED = ("mpnet", "minilm")
NONE = "–"

METHODS = {
    "BM25": "bm25",
    "BM25 + NaiveGE": "bm25+naive",
    "BM25 + SyncGE": "bm25+sync",
    "dense": "dense",
    "dense + NaiveGE": "dense+naive",
    "dense + SyncGE": "dense+sync",
    "hybrid": "hybrid",
    "hybrid + NaiveGE": "hybrid+naive",
    "hybrid + NaiveGE + PageRank": "hybrid+naive+pagerank",
    "hybrid + SyncGE": "hybrid+sync",
    "hybrid + SyncGE + PageRank": "hybrid+sync+pagerank",
    "GeAR": "hybrid+gear",
    "GeAR + PageRank": "hybrid+gear+pagerank",
    "HippoRAG": "hipporag",
}
ALONE = "HippoRAG 2's PageRank, no model, no synonyms"
OURS = {  # rows of ours that are set up otherwise than the paper's
    "GeAR": "one step with one call",
    "GeAR + PageRank": "one step with one call",
    "HippoRAG": ALONE,
}
LLM_FILE = "musique_train-minilm-qwen"
IRCOT_FILE = f"{LLM_FILE}-ircot"
"""IRCoT over other bases than hybrid, with the questions and the model of `LLM_FILE`."""
SELECTION_FILE = f"{LLM_FILE}-selection"
"""`GraphRetriever`, `PassageSelector` and `GeARRetriever`, with the questions and the model of `LLM_FILE`."""
SAMPLE_FILE = "sample-minilm-qwen-1"
"""Passages a call → the file of the run."""
LLM_METHODS = {
    "no passages": "closed-book",
    "gold passages": "gold",
    "BM25": "bm25",
    "dense": "dense",
    "hybrid": "hybrid",
    "hybrid + NaiveGE": "hybrid+naive",
    "hybrid + SyncGE": "hybrid+sync",
    "HippoRAG": "hipporag",
    "HippoRAG 2": "hipporag-synonyms-filter",
    "IRCoT": "hybrid+ircot",
    "IRCoT (BM25)": "bm25+ircot",
    "HippoRAG + IRCoT": "hipporag+ircot",
    "GeAR": "hybrid+gear",
    "T²RAG": "t2rag",
}
LLM_OURS = {
    "HippoRAG": ALONE,
    "IRCoT": "over hybrid",
    "HippoRAG + IRCoT": f"over {ALONE}",
}


class Results:
    """The result files of a folder.

    Args:
        folder: the folder of the files that the benchmarks wrote.

    """

    def __init__(self, folder: Path) -> None:
        self.files: dict[str, dict[str, Any]] = {
            path.stem: json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))
        }

    def row(self, file: str, method: str) -> dict[str, Any] | None:
        """Return a method's row in a file, or None."""
        rows = self.files.get(file, {}).get("methods", [])
        return next((row for row in rows if row["method"] == method), None)

    def answers_row(self, label: str) -> dict[str, Any] | None:
        """Return the row with a model's answers for a label of a paper's table, or None."""
        method = LLM_METHODS.get(label, "")
        return self.row(LLM_FILE, method) or self.row(IRCOT_FILE, method)

    def of_steps(self, file: str, method: str, max_steps: int) -> dict[str, Any] | None:
        """Return an agent's row with so many steps at most: the plain row if that is the whole file's setting."""
        is_setting = self.files.get(file, {}).get("conditions", {}).get("max_steps") == max_steps
        return self.row(file, method if is_setting else f"{method}[max_steps={max_steps}]")

    def walks(self, file: str) -> bool:
        """Say if a method of a file walks the graph, so that chains are scored."""
        parts = {part for row in self.files[file]["methods"] for part in row["method"].partition("[")[0].split("+")}
        return not parts.isdisjoint({"naive", "sync", "gear"})

    def half_width(self, file: str) -> float:
        """Return half of a 95 % interval of R@10, in points: the mean over a file's methods, bounds apart."""
        rows = [row for row in self.files[file]["methods"] if row["method"] not in ("gold", "closed-book")]
        return statistics.fmean((row["interval@10"][1] - row["interval@10"][0]) / 2 for row in rows)

    def groups(self, file: str) -> str:
        """Return the numbers of questions of a file by hops, as text."""
        row = self.files[file]["methods"][0]
        return ", ".join(f"{group['questions']} of {hops} hops" for hops, group in row["by_hops"].items())


def format_label(label: str, ours: Mapping[str, str], says: str = "ours: ") -> str:
    """Return a row's label, with a note if our row is set up otherwise than the paper's."""
    return f"{label} ({says}{ours[label]})" if label in ours else label


def format_recalls(row: dict[str, Any] | None) -> str:
    """Return R@5 / 10 / 15 of a row."""
    return NONE if row is None else " / ".join(f"{row[f'recall@{cut}']:.1f}" for cut in (5, 10, 15))


def format_scores(row: dict[str, Any] | None) -> str:
    """Return exact match / F1 of a row."""
    return NONE if row is None or "em" not in row else f"{row['em']:.1f} / {row['f1']:.1f}"
