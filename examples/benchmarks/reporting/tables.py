"""The parts of the report's sections and tables, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reporting.results import (
    IRCOT_FILE,
    LLM_FILE,
    LLM_METHODS,
    LLM_OURS,
    NONE,
    Results,
    format_label,
    format_recalls,
    format_scores,
)


def format_published(figures: Sequence[float] | None) -> str:
    """Return figures of a paper, separated by slashes."""
    return NONE if figures is None else " / ".join(f"{figure:.1f}" for figure in figures)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, without the rows in which nothing was measured."""
    lines = [head, ["---"] * len(head), *(row for row in rows if set(row[1:]) != {NONE})]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def section(title: str, body: str, *notes: str) -> str:
    """Return a table with its heading and the notes that hold for this table alone."""
    return f"## {title}\n\n{body}\n\n" + "\n".join(f"- {note}" for note in notes if note) + "\n"


def sources(results: Results, *files: str) -> str:
    """Return a note that names the files of a table's figures; the legend has their set-ups."""
    return f"Files: {', '.join(f'`{file}`' for file in files if file in results.files) or 'none, not run'}."


def answers_table(results: Results, title: str, figures: Mapping[str, Sequence[float]]) -> str:
    """Return a section on the answers from the retrieved passages (GeAR Table 3, T²RAG Table 1)."""
    rows = [
        [
            format_label(label, LLM_OURS),
            format_published(figure),
            format_scores(row := results.answers_row(label)),
            format_recalls(row),
        ]
        for label, figure in {**dict.fromkeys(LLM_METHODS), **figures}.items()
        if label in figures or label in ("hybrid", "hybrid + NaiveGE")
    ]
    return section(
        title,
        table(["exact match / F1, MuSiQue", "paper", "ours", "ours, R@5 / 10 / 15"], rows),
        sources(results, LLM_FILE, IRCOT_FILE),
    )
