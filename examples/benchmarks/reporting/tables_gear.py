"""GeAR's tables, with our rows beside its own."""

from __future__ import annotations

from typing import Any

from reporting import papers
from reporting.results import DATA, EMBED, LLM_FILE, METHODS, NONE, OURS, Results, format_label, format_recalls
from reporting.tables import answers_table, format_published, section, sources, table


def table_2(results: Results) -> str:
    """Return the section on single- and multi-step retrieval (GeAR Table 2)."""
    head = ["R@5 / 10 / 15"]
    for data in DATA:
        head += [f"{data}: paper", *(f"ours, {embed}" for embed in EMBED)]
    rows = []
    for label in dict.fromkeys([*METHODS, *papers.G_TABLE_2]):
        row = [format_label(label, OURS)]
        for data, folder in DATA.items():
            row.append(format_published(papers.G_TABLE_2.get(label, {}).get(data)))
            row += [format_recalls(results.row(f"{folder}-{embed}", METHODS.get(label, ""))) for embed in EMBED]
        rows.append(row)
    files = [f"{folder}-{embed}" for folder in DATA.values() for embed in EMBED]
    return section("Retrieval (GeAR Table 2)", table(head, rows), sources(results, *files))


def hipporag(results: Results) -> str:
    """Return the section on HippoRAG's PageRank, with and without synonym edges, by the weight of facts."""
    variants = {
        "facts weigh once": ("hipporag", ""),
        "facts weigh once, with synonym edges": ("synonyms", "hipporag-synonyms"),
        "facts weigh twice": ("facts", "hipporag[fact_weight=2]"),
        "facts weigh twice, with synonym edges": ("facts", "hipporag-synonyms[fact_weight=2]"),
    }
    columns = [(data, embed) for data in DATA for embed in EMBED]
    rows = [
        [
            label,
            *(
                format_recalls(results.row(f"{DATA[data]}-{embed}-{kind}", method or "hipporag"))
                for data, embed in columns
            ),
        ]
        for label, (kind, method) in variants.items()
    ]
    head = ["R@5 / 10 / 15", *(f"{data}, {embed}" for data, embed in columns)]
    kinds = dict.fromkeys(kind for kind, _ in variants.values())
    return section(
        "HippoRAG 2's PageRank, no model: synonym edges and the weight of facts",
        table(head, rows),
        "In HippoRAG's paper a fact weighs once. Its program has facts weigh twice, and doubles synonym edges too; "
        "ours does not double them.",
        sources(results, *(f"{DATA[data]}-{embed}-{kind}" for data, embed in columns for kind in kinds)),
    )


def differences(results: Results) -> str:
    """Return the section on the differences between methods and those they are measured against, with their p."""
    kinds = ("", "-gear", "-hipporag", "-synonyms", "-facts")
    columns = {f"{data}, {embed}": f"{folder}-{embed}" for data, folder in DATA.items() for embed in EMBED}
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for column, file in columns.items():
        for kind in kinds:
            for row in results.files.get(f"{file}{kind}", {}).get("methods", []):
                if "gain@5" in row and row.get("against"):
                    cells.setdefault((row["method"], row["against"]), {})[column] = format_gains(row)
    rows = [[*names, *(gains.get(column, NONE) for column in columns)] for names, gains in cells.items()]
    if not rows:
        return ""
    return section(
        "Differences between methods",
        table(["points at R@5 / 10 / 15 (p)", "against", *columns], rows),
        sources(results, *(f"{file}{kind}" for file in columns.values() for kind in kinds)),
    )


def format_gains(row: dict[str, Any]) -> str:
    """Return the points between a row and the one it is measured against, and their p."""
    gains = [row[f"gain@{cut}"] for cut in (5, 10, 15)]
    points = " / ".join(f"{gain['points']:+.1f}" for gain in gains)
    p_values = " / ".join(f"{gain['p_corrected']:.2g}" for gain in gains)
    return f"{points} ({p_values})"


def table_3(results: Results) -> str:
    """Return the section on answers (GeAR Table 3)."""
    return answers_table(results, "Answers (GeAR Table 3)", papers.G_TABLE_3)


def diversity(results: Results) -> str:
    """Return the section on diverse against plain beam search (GeAR Tables 4 and 10)."""
    names = {"with diversity": "hybrid+sync", "without": "hybrid+sync[diversity=off]"}
    head = ["R@5 / 10 / 15", "MuSiQue: paper, GPT-4o mini", "Llama-3.1-8B", *(f"ours, {embed}" for embed in EMBED)]
    rows = []
    for label, method in names.items():
        ours = [format_recalls(results.row(f"musique_train-{embed}-sweeps", method)) for embed in EMBED]
        paper = [format_published(figures[label]) for figures in (papers.G_TABLE_4, papers.G_TABLE_10)]
        rows.append([f"hybrid + SyncGE {label}", *paper, *ours])
    for label, method in (("with diversity", "hybrid+naive"), ("without", "hybrid+naive[diversity=off]")):
        ours = [format_recalls(results.row(f"musique_train-{embed}-sweeps", method)) for embed in EMBED]
        rows.append([f"hybrid + NaiveGE {label}", NONE, NONE, *ours])
    return section(
        "Diversity (GeAR Tables 4 and 10)",
        table(head, rows),
        sources(results, *(f"musique_train-{embed}-sweeps" for embed in EMBED)),
    )


def table_7(results: Results) -> str:
    """Return the section on recall with GPT-3.5's triples (GeAR Table 7)."""
    rows = [
        [
            format_label(label, OURS),
            format_published(papers.G_TABLE_7.get(label)),
            *(format_recalls(results.row(f"musique_train-{embed}", METHODS.get(label, ""))) for embed in EMBED),
        ]
        for label in ("hybrid + SyncGE", "HippoRAG + IRCoT", "GeAR")
    ]
    return section(
        "With GPT-3.5's triples (GeAR Table 7)",
        table(["R@5 / 10 / 15, MuSiQue", "paper", *(f"ours, {embed}" for embed in EMBED)], rows),
        sources(results, *(f"musique_train-{embed}" for embed in EMBED)),
    )


def table_8(results: Results) -> str:
    """Return the section on steps and beam length (GeAR Table 8)."""
    rows = []
    for length, steps in papers.G_TABLE_8.items():
        name = "hybrid+gear" if length == 2 else f"hybrid+gear[beam_length={length}]"
        ours = format_recalls(results.row("musique_train-mpnet-sweeps", name))
        rows.append([f"beam length {length}", *(format_published(figures) for figures in steps), ours])
    llm = []
    for number in range(1, 5):
        row = results.of_steps(LLM_FILE, "hybrid+gear", number)
        tokens = NONE if row is None else f"{row['calls']:.1f} / {row['prompt_tokens']:,.0f}"
        llm.append([f"at most {number}", format_recalls(row), tokens, NONE if row is None else f"{row['steps']:.2f}"])
    body = table(["R@5 / 10 / 15, MuSiQue", "paper: 1 step", "2", "3", "4", "ours, mpnet: 1 step, 1 call"], rows)
    if any(set(row[1:]) != {NONE} for row in llm):
        body += "\n\n" + table(["steps, ours", "R@5 / 10 / 15", "calls / prompt tokens", "mean steps"], llm)
    return section(
        "Steps and beam length (GeAR Table 8)",
        body,
        sources(results, "musique_train-mpnet-sweeps", LLM_FILE),
    )


def table_11(results: Results) -> str:
    """Return the section on recall by triples a gold passage (GeAR Table 11)."""
    groups = ("<9", "9-11", "11-13", ">=13")
    rows = []
    for label, method in METHODS.items():
        row = results.row("musique_train-mpnet", method)
        if label not in papers.G_TABLE_11 and "PageRank" not in label and label != "HippoRAG":
            continue
        paper = format_published(papers.G_TABLE_11.get(label))
        recalls = [] if row is None else [row["by_triples"][group].get("recall@15") for group in groups]
        ours = " / ".join(NONE if recall is None else f"{recall:.1f}" for recall in recalls) or NONE
        rows.append([format_label(label, OURS), paper, ours])
    rows.append(["HippoRAG + IRCoT", format_published(papers.G_TABLE_11["HippoRAG + IRCoT"]), NONE])
    sizes = results.row("musique_train-mpnet", "hybrid")
    counted = "" if sizes is None else " / ".join(str(sizes["by_triples"][group]["questions"]) for group in groups)
    return section(
        "By triples a gold passage (GeAR Table 11)",
        table(["R@15 at <9 / 9-11 / 11-13 / ≥13", "paper", "ours, mpnet"], rows),
        f"Our questions in the groups: {counted}." if counted else "",
        sources(results, "musique_train-mpnet"),
    )
