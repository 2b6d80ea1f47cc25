"""The parts of the report's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reporting.results import IRCOT_FILE, LLM_FILE, LLM_METHODS, LLM_OURS, NONE, Results, named, recalls, scores


def published(figures: Sequence[float] | None) -> str:
    """Figures of a paper."""
    return NONE if figures is None else " / ".join(f"{figure:.1f}" for figure in figures)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, without the rows that say nothing."""
    lines = [head, ["---"] * len(head), *(row for row in rows if set(row[1:]) != {NONE})]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def section(title: str, body: str, *notes: str) -> str:
    """A table with its heading, and what is to be said of this table alone."""
    return f"## {title}\n\n{body}\n\n" + "\n".join(f"- {note}" for note in notes if note) + "\n"


def sources(results: Results, *files: str) -> str:
    """The files that a table's figures come from; the legend has their set-ups."""
    return f"Files: {', '.join(f'`{file}`' for file in files if file in results.files) or 'none, not run'}."


def answers_table(results: Results, title: str, figures: Mapping[str, Sequence[float]]) -> str:
    """Answers from what was found (GeAR Table 3, T²RAG Table 1)."""
    rows = [
        [
            named(label, LLM_OURS),
            published(figure),
            scores(row := results.answered(label)),
            recalls(row),
        ]
        for label, figure in {**dict.fromkeys(LLM_METHODS), **figures}.items()
        if label in figures or label in ("hybrid", "hybrid + NaiveGE")
    ]
    return section(
        title,
        table(["exact match / F1, MuSiQue", "paper", "ours", "ours, R@5 / 10 / 15"], rows),
        sources(results, LLM_FILE, IRCOT_FILE),
    )
