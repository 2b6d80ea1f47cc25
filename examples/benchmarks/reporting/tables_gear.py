"""GeAR's tables, with our rows beside its own."""

from __future__ import annotations

from typing import Any

from reporting import papers
from reporting.results import DATA, EMBED, LLM_FILE, METHODS, NONE, OURS, Results, named, recalls
from reporting.tables import answers_table, lists, published, section, table


def table_2(results: Results) -> str:
    """Retrieval, single and multi-step (GeAR Table 2)."""
    head = ["R@5 / 10 / 15"]
    for data in DATA:
        head += [f"{data}: paper", *(f"ours, {embed}" for embed in EMBED)]
    rows = []
    for label in dict.fromkeys([*METHODS, *papers.G_TABLE_2]):
        row = [named(label, OURS)]
        for data, folder in DATA.items():
            row.append(published(papers.G_TABLE_2.get(label, {}).get(data)))
            row += [recalls(results.row(f"{folder}-{embed}", METHODS.get(label, ""))) for embed in EMBED]
        rows.append(row)
    return section(
        "Retrieval (GeAR Table 2)",
        table(head, rows),
        *(f"Paper, {data}: {papers.G_SETUP[data]}." for data in DATA),
        *(f"Ours: {said}." for d in DATA.values() for e in EMBED if (said := results.setup(f"{d}-{e}"))),
        "HotpotQA's documents are the same (HippoRAG's), 9,221, which the paper cuts into 10,293; of its 1,000 "
        "questions 944 differ, and ours count once. Our MuSiQue is a far smaller corpus: its recalls can be set beside "
        "the paper's in their differences only.",
        "The paper's HippoRAG is the first one, whose model names the question's entities.",
        "Passages of equal score come in the engine's order. A store filled anew may have another, and a list that "
        "ends between two of them another end: from one filling to the next, single rows moved by a passage of one "
        "question.",
        lists(results),
        *(against_sync(results, embed) for embed in EMBED),
        *(against_hipporag(results, data, embed) for data in DATA for embed in EMBED),
        *(synonyms(results, data, embed) for data in DATA for embed in EMBED),
        *(facts(results, data, embed) for data in DATA for embed in EMBED),
    )


def differs(row: dict[str, Any]) -> str:
    """By how many points a row differs from what it is measured against."""
    gains = [row[f"gain@{cut}"] for cut in (5, 10, 15)]
    points = " / ".join(f"{gain['points']:+.1f}" for gain in gains)
    p_values = " / ".join(f"{gain['p_corrected']:.2g}" for gain in gains)
    return f"{points} (p = {p_values})"


def against_sync(results: Results, embed: str) -> str:
    """What passage links add to SyncGE, by the same reading."""
    gear = results.row(f"musique_train-{embed}-gear", "hybrid+gear")
    return f"GeAR, one step with one call, differs from hybrid + SyncGE by {differs(gear)}, {embed}." if gear else ""


def against_hipporag(results: Results, data: str, embed: str) -> str:
    """What is left between HippoRAG without synonym edges and ours."""
    said = [
        f"{label} by {differs(row)}"
        for label in ("hybrid + NaiveGE", "hybrid + NaiveGE + PageRank")
        if (row := results.row(f"{DATA[data]}-{embed}-hipporag", METHODS[label]))
    ]
    return f"From HippoRAG, without synonym edges, on {data} with {embed} differ {', '.join(said)}." if said else ""


def synonyms(results: Results, data: str, embed: str) -> str:
    """What synonym edges give HippoRAG, and what is left between it and ours."""
    theirs, ours = (
        results.row(f"{DATA[data]}-{embed}-synonyms", method)
        for method in ("hipporag-synonyms", "hybrid+naive+pagerank")
    )
    if theirs is None or ours is None:
        return ""
    return (
        f"With synonym edges HippoRAG has {recalls(theirs)} on {data} with {embed}; hybrid + NaiveGE + PageRank "
        f"differs by {differs(ours)}."
    )


def facts(results: Results, data: str, embed: str) -> str:
    """What it makes if facts weigh what HippoRAG's program has them weigh."""
    said = []
    for method, what in (
        ("hipporag", "as in its program, it has"),
        ("hipporag-synonyms", "and with synonym edges, which its program doubles too and this doesn't,"),
    ):
        row = results.row(f"{DATA[data]}-{embed}-facts", f"{method}[fact_weight=2]")
        if row is not None:
            lowest = min(row[f"gain@{cut}"]["p_corrected"] for cut in (5, 10, 15))
            said.append(f"{what} {recalls(row)} (against weighing once p ≥ {lowest:.2g})")
    if not said:
        return ""
    return f"HippoRAG's facts weigh once, as in its paper; twice, {' '.join(said)}, {data}, {embed}."


def table_3(results: Results) -> str:
    """Answers (GeAR Table 3)."""
    setup = f"Paper: {papers.G_SETUP['MuSiQue']}."
    return answers_table(results, "Answers (GeAR Table 3)", papers.G_TABLE_3, setup)


def diversity(results: Results) -> str:
    """Diverse against plain beam search (GeAR Tables 4 and 10)."""
    names = {"with diversity": "hybrid+sync", "without": "hybrid+sync[diversity=off]"}
    head = ["R@5 / 10 / 15", "MuSiQue: paper, GPT-4o mini", "Llama-3.1-8B", *(f"ours, {embed}" for embed in EMBED)]
    rows = []
    for label, method in names.items():
        ours = [recalls(results.row(f"musique_train-{embed}-sweeps", method)) for embed in EMBED]
        both = [published(each[label]) for each in (papers.G_TABLE_4, papers.G_TABLE_10)]
        rows.append([f"hybrid + SyncGE {label}", *both, *ours])
    for label, method in (("with diversity", "hybrid+naive"), ("without", "hybrid+naive[diversity=off]")):
        ours = [recalls(results.row(f"musique_train-{embed}-sweeps", method)) for embed in EMBED]
        rows.append([f"hybrid + NaiveGE {label}", NONE, NONE, *ours])
    return section(
        "Diversity (GeAR Tables 4 and 10)",
        table(head, rows),
        f"Paper: {papers.G_SETUP['MuSiQue']}.",
        *(f"Ours: {said}." for embed in EMBED if (said := results.setup(f"musique_train-{embed}-sweeps"))),
    )


def table_7(results: Results) -> str:
    """GPT-3.5's triples (GeAR Table 7)."""
    rows = [
        [
            named(label, OURS),
            published(papers.G_TABLE_7.get(label)),
            *(recalls(results.row(f"musique_train-{embed}", METHODS.get(label, ""))) for embed in EMBED),
        ]
        for label in ("hybrid + SyncGE", "HippoRAG + IRCoT", "GeAR")
    ]
    return section(
        "With GPT-3.5's triples (GeAR Table 7)",
        table(["R@5 / 10 / 15, MuSiQue", "paper", *(f"ours, {embed}" for embed in EMBED)], rows),
        f"Paper: {papers.G_SIZES['MuSiQue']}; {papers.G_SEARCH}; GPT-3.5 turbo reads and reasons too, at most 4 steps.",
        *(f"Ours: {said}." for embed in EMBED if (said := results.setup(f"musique_train-{embed}"))),
        lists(results),
    )


def table_8(results: Results) -> str:
    """Steps and beam length (GeAR Table 8)."""
    rows = []
    for length, steps in papers.G_TABLE_8.items():
        name = "hybrid+gear" if length == 2 else f"hybrid+gear[beam_length={length}]"
        ours = recalls(results.row("musique_train-mpnet-sweeps", name))
        rows.append([f"beam length {length}", *(published(each) for each in steps), ours])
    llm = []
    for number in range(1, 5):
        row = results.of_steps(LLM_FILE, "hybrid+gear", number)
        tokens = NONE if row is None else f"{row['calls']:.1f} / {row['prompt_tokens']:,.0f}"
        llm.append([f"at most {number}", recalls(row), tokens, NONE if row is None else f"{row['steps']:.2f}"])
    body = table(["R@5 / 10 / 15, MuSiQue", "paper: 1 step", "2", "3", "4", "ours, mpnet: 1 step, 1 call"], rows)
    if any(set(row[1:]) != {NONE} for row in llm):
        body += "\n\n" + table(["steps, ours", "R@5 / 10 / 15", "calls / prompt tokens", "mean steps"], llm)
    return section(
        "Steps and beam length (GeAR Table 8)",
        body,
        f"Paper: {papers.G_SETUP['MuSiQue']}.",
        f"Ours, one step: {said}." if (said := results.setup("musique_train-mpnet-sweeps")) else "",
        f"Ours, several steps: {results.setup(LLM_FILE)}." if LLM_FILE in results.files else "",
    )


def table_11(results: Results) -> str:
    """By triples a gold passage (GeAR Table 11)."""
    groups = ("<9", "9-11", "11-13", ">=13")
    rows = []
    for label, method in METHODS.items():
        row = results.row("musique_train-mpnet", method)
        if label not in papers.G_TABLE_11 and "PageRank" not in label and label != "HippoRAG":
            continue
        paper = published(papers.G_TABLE_11.get(label))
        found = [] if row is None else [row["by_triples"][group].get("recall@15") for group in groups]
        ours = " / ".join(NONE if each is None else f"{each:.1f}" for each in found) or NONE
        rows.append([named(label, OURS), paper, ours])
    rows.append(["HippoRAG + IRCoT", published(papers.G_TABLE_11["HippoRAG + IRCoT"]), NONE])
    sizes = results.row("musique_train-mpnet", "hybrid")
    counted = "" if sizes is None else " / ".join(str(sizes["by_triples"][group]["questions"]) for group in groups)
    return section(
        "By triples a gold passage (GeAR Table 11)",
        table(["R@15 at <9 / 9-11 / 11-13 / ≥13", "paper", "ours, mpnet"], rows),
        f"Paper: {papers.G_SETUP['MuSiQue']}.",
        f"Ours: {results.setup('musique_train-mpnet')}; questions in the groups: {counted}." if counted else "",
        lists(results),
    )
