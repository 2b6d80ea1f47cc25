"""What the report's tables are put together from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reporting.results import IRCOT_FILE, LLM_FILE, LLM_METHODS, LLM_OURS, NONE, Results, named, recalls, scores

F1 = "Ours: F1 follows HotpotQA's script on MuSiQue too: yes, no and noanswer score only if both sides say the same."


def published(figures: Sequence[float] | None) -> str:
    """Figures of a paper."""
    return NONE if figures is None else " / ".join(f"{figure:.1f}" for figure in figures)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, without the rows that say nothing."""
    lines = [head, ["---"] * len(head), *(row for row in rows if set(row[1:]) != {NONE})]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def section(title: str, body: str, *notes: str) -> str:
    """A table with its heading, and how the set-ups differ."""
    return f"## {title}\n\n{body}\n\n" + "\n".join(f"- {note}" for note in notes if note) + "\n"


def lists(results: Results) -> str:
    """How long the lists are of which R@5 is taken, and what that makes."""
    cut, asked = results.of_steps(LLM_FILE, "hybrid+ircot", 1), results.row(LLM_FILE, "hybrid")
    worth = f", as in `{LLM_FILE}.json`: hybrid's list of ten, cut, has {recalls(cut)}, hybrid itself {recalls(asked)}"
    return (
        "Ours: GeAR, IRCoT, T²RAG and HippoRAG make one list for all cuts. Other methods ask their base for as many "
        f"passages as the cut, and a short list fuses otherwise than a long one's beginning{worth if cut else ''}."
    )


def answers_table(results: Results, title: str, figures: Mapping[str, Sequence[float]], setup: str) -> str:
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
        setup,
        f"Ours: {results.setup(LLM_FILE)}." if LLM_FILE in results.files else "Ours: not run.",
        f"Ours, IRCoT over BM25 and HippoRAG: {results.setup(IRCOT_FILE)}." if IRCOT_FILE in results.files else "",
        "Ours: from the first five passages with the same prompt for all; T²RAG from what it resolved. A small model's "
        "answers say more about itself than about the methods.",
        F1,
        lists(results),
    )
