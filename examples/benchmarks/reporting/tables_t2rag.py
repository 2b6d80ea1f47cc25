"""T²RAG's tables with our rows beside its own, and recall by hops, which is a figure in GeAR's paper."""

from __future__ import annotations

from reporting import papers
from reporting.results import (
    LLM_FILE,
    LLM_OURS,
    METHODS,
    NONE,
    OURS,
    Results,
    format_label,
    format_recalls,
    format_scores,
)
from reporting.tables import answers_table, format_published, section, sources, table


def table_1(results: Results) -> str:
    """Return the section on answers (T²RAG Table 1)."""
    return answers_table(results, "Answers (T²RAG Table 1)", papers.T_TABLE_1)


def by_hops(results: Results) -> str:
    """Return the section on answers by hops (T²RAG Table 4) and recall by hops (GeAR Figure 3)."""
    rows = []
    for label, figures in papers.T_TABLE_4.items():
        row = results.answers_row(label)
        ours = [NONE] * 3
        if row is not None and "em" in row:
            groups = [row["by_hops"].get(count, {}) for count in figures]
            ours = [f"{group['em']:.1f} / {group['f1']:.1f}" if group.get("questions") else NONE for group in groups]
        rows.append([format_label(label, LLM_OURS), *(format_published(figure) for figure in figures.values()), *ours])
    recall = []
    for label, method in METHODS.items():
        row = results.row("musique_train-mpnet", method)
        if row is not None and label.startswith(("hybrid", "GeAR", "HippoRAG")):
            recall.append(
                [
                    format_label(label, OURS, ""),
                    *(f"{row['by_hops'][count]['recall@15']:.1f}" for count in ("2", "3", "4")),
                ]
            )
    hops = [f"{number} hops" for number in (2, 3, 4)]
    return section(
        "By hops (T²RAG Table 4, GeAR Figure 3)",
        table(
            ["exact match / F1, MuSiQue", *(f"paper, {name}" for name in hops), *(f"ours, {name}" for name in hops)],
            rows,
        )
        + "\n\n"
        + table(["R@15, ours, mpnet", *hops], recall),
        *(
            f"Our questions, {measure}: {results.groups(file)}."
            for measure, file in (("answers", LLM_FILE), ("recall", "musique_train-mpnet"))
            if file in results.files
        ),
        sources(results, LLM_FILE, "musique_train-mpnet"),
    )


def table_5(results: Results) -> str:
    """Return the section on T²RAG searching by triples or by passages (its Table 5)."""
    rows = []
    for label, method in (("triples", "t2rag"), ("passages", "t2rag[search_by=passages]")):
        exact, f1, calls = papers.T_TABLE_5[label]
        row = results.row(LLM_FILE, method)
        ours = NONE
        if row is not None and "em" in row:
            ours = f"{format_scores(row)}; {row['calls'] + row['answer_calls']:.1f}"
        rows.append([label, f"{exact:.1f} / {f1:.1f}; {calls / 1000:.1f}", ours, format_recalls(row)])
    return section(
        "T²RAG searching by triples or by passages (its Table 5)",
        table(["exact match / F1; calls a question, MuSiQue", "paper", "ours", "ours, R@5 / 10 / 15"], rows),
        sources(results, LLM_FILE),
    )
