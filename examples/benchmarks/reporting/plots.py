"""Plots of the committed results, as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from reporting.results import LLM_FILE, METHODS, OURS, Results, format_label

Lines = Mapping[str, tuple[Sequence[float], Sequence[float]]]


def draw_lines(path: Path, lines: Lines, x: str, y: str, log: bool = False) -> str:
    """Draw lines into an SVG file, and return its name without the suffix."""
    style: Any = {"svg.hashsalt": "gear", "svg.fonttype": "none", "font.size": 10, "axes.grid": True}
    with rc_context(style):  # the same figures make the same file
        figure = Figure(figsize=(6, 3.6), layout="constrained")
        axes = figure.subplots()
        for label, (across, up) in lines.items():
            axes.plot(across, up, marker="o", label=label)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        if log:
            axes.set_xscale("log")
            axes.set_yscale("log")
        else:
            axes.set_xticks(sorted({tick for across, _ in lines.values() for tick in across}))
        axes.legend(fontsize=8)
        figure.savefig(path, metadata={"Date": None})
    return path.stem


def draw_plots(results: Results, folder: Path) -> Iterator[str]:
    """Draw the plots that there are figures for, and yield their names."""
    folder.mkdir(exist_ok=True)
    hops = {
        format_label(label, OURS, ""): ([2, 3, 4], [row["by_hops"][count]["recall@15"] for count in ("2", "3", "4")])
        for label in ("hybrid", "hybrid + NaiveGE", "HippoRAG", "hybrid + SyncGE", "GeAR", "GeAR + PageRank")
        if (row := results.row("musique_train-mpnet", METHODS[label]))
    }
    if hops:
        yield draw_lines(folder / "recall-by-hops.svg", hops, "hops", "R@15, MuSiQue, mpnet")
    steps: dict[str, tuple[list[float], list[float]]] = {}
    tokens: dict[str, tuple[list[float], list[float]]] = {}
    for label, method in (("GeAR", "hybrid+gear"), ("IRCoT", "hybrid+ircot"), ("T²RAG", "t2rag")):
        rows = {number: row for number in range(1, 5) if (row := results.of_steps(LLM_FILE, method, number))}
        if rows:
            steps[label] = (list(rows), [row["recall@15"] for row in rows.values()])
            used = [row.get("prompt_tokens", 0) + row.get("completion_tokens", 0) for row in rows.values()]
            tokens[label] = (list(rows), used)
    if steps:
        yield draw_lines(folder / "recall-by-step.svg", steps, "steps at most", "R@15, MuSiQue, Qwen 1.5B")
        yield draw_lines(folder / "tokens-by-step.svg", tokens, "steps at most", "tokens a question")
    sizes = results.files.get("speed", {}).get("sizes", [])
    if sizes:
        across = [row["triples"] for row in sizes]
        labels = {"expansion_ms": "beam search", "local_ms": "local PageRank", "whole_ms": "igraph's PageRank"}
        lines = {label: (across, [row[name] for row in sizes]) for name, label in labels.items()}
        yield draw_lines(folder / "latency-by-size.svg", lines, "triples", "ms a question, many hubs", log=True)
