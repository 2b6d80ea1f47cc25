"""The committed results as tables beside the papers' and as plots: `REPORT.md`, `plots/*.svg`.

    python examples/benchmarks/report.py

Every figure of ours comes from a file in `results/`; what was not run is "–". Under each table stands in what the
set-ups differ.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import papers
from committed import (
    DATA,
    EMBED,
    LLM_FILE,
    LLM_METHODS,
    LLM_OURS,
    METHODS,
    NONE,
    OURS,
    SHARED_FILES,
    Results,
    named,
    recalls,
    scores,
    shared_cells,
)
from plots import plotted

HERE = Path(__file__).parent
AIM = 20
SYNC = "hybrid + SyncGE"


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
        *(f"Paper, {data}: {papers.G_SETUP[data]}; {papers.G_MODELS}." for data in DATA),
        *(f"Ours: {said}." for d in DATA.values() for e in EMBED if (said := results.setup(f"{d}-{e}"))),
        "HotpotQA's documents are the same (HippoRAG's), 9,221, which the paper cuts into 10,293; of its 1,000 "
        "questions 944 differ, and ours count once. Our MuSiQue is a far smaller corpus: its recalls can be set beside "
        "the paper's in their differences only.",
        "The paper's HippoRAG is the first one, whose model names the question's entities.",
        lists(results),
        *(synonyms(results, data, embed) for data in DATA for embed in EMBED),
        *(facts(results, data, embed) for data in DATA for embed in EMBED),
    )


def synonyms(results: Results, data: str, embed: str) -> str:
    """What synonym edges give HippoRAG, and what is left between it and ours."""
    theirs, ours = (
        results.row(f"{DATA[data]}-{embed}-synonyms", method)
        for method in ("hipporag-synonyms", "hybrid+naive+pagerank")
    )
    if theirs is None or ours is None:
        return ""
    points = " / ".join(f"{ours[f'gain@{cut}']['points']:+.1f}" for cut in (5, 10, 15))
    p_values = " / ".join(f"{ours[f'gain@{cut}']['p_corrected']:.2f}" for cut in (5, 10, 15))
    return (
        f"With synonym edges HippoRAG has {recalls(theirs)} on {data} with {embed}; hybrid + NaiveGE + PageRank "
        f"differs by {points} (p = {p_values})."
    )


def facts(results: Results, data: str, embed: str) -> str:
    """What it makes if facts weigh what HippoRAG's program has them weigh."""
    said = []
    for method, what in (("hipporag", "it has"), ("hipporag-synonyms", "and with synonym edges")):
        row = results.row(f"{DATA[data]}-{embed}-facts", f"{method}[fact_weight=2]")
        if row is not None:
            lowest = min(row[f"gain@{cut}"]["p_corrected"] for cut in (5, 10, 15))
            said.append(f"{what} {recalls(row)} (against weighing once p ≥ {lowest:.2f})")
    if not said:
        return ""
    return f"HippoRAG's facts weigh once, as in its paper; twice, as in its program, {' '.join(said)}, {data}, {embed}."


def lists(results: Results) -> str:
    """How long the lists are of which R@5 is taken, and what that makes."""
    cut, asked = results.of_steps(LLM_FILE, "hybrid+ircot", 1), results.row(LLM_FILE, "hybrid")
    worth = f", as in `{LLM_FILE}.json`: hybrid's list of ten, cut, has {recalls(cut)}, hybrid itself {recalls(asked)}"
    return (
        "Ours: GeAR, IRCoT, T²RAG and HippoRAG make one list for all cuts. Other methods ask their base for as many "
        f"passages as the cut, and a short list fuses otherwise than a long one's beginning{worth if cut else ''}."
    )


def answers_table(results: Results, title: str, figures: dict[str, Any], setup: str) -> str:
    """Answers from what was found (GeAR Table 3, T²RAG Table 1)."""
    rows = [
        [
            named(label, LLM_OURS),
            published(figure),
            scores(row := results.row(LLM_FILE, LLM_METHODS.get(label, ""))),
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
        "Ours: from the first five passages with the same prompt for all; T²RAG from what it resolved. A small model's "
        "answers say more about itself than about the methods.",
        lists(results),
    )


def diversity(results: Results) -> str:
    """Diverse against plain beam search (GeAR Tables 4 and 10)."""
    names = {"with diversity": "hybrid+sync", "without": "hybrid+sync[diversity=off]"}
    head = ["R@5 / 10 / 15", "MuSiQue: paper, GPT-4o mini", "Llama-3.1-8B", *(f"ours, {embed}" for embed in EMBED)]
    rows = []
    for label, method in names.items():
        ours = [recalls(results.row(f"musique_train-{embed}-sweeps", method)) for embed in EMBED]
        both = [published(each[label]["MuSiQue"]) for each in (papers.G_TABLE_4, papers.G_TABLE_10)]
        rows.append([f"hybrid + SyncGE {label}", *both, *ours])
    for label, method in (("with diversity", "hybrid+naive"), ("without", "hybrid+naive[diversity=off]")):
        ours = [recalls(results.row(f"musique_train-{embed}-sweeps", method)) for embed in EMBED]
        rows.append([f"hybrid + NaiveGE {label}", NONE, NONE, *ours])
    return section(
        "Diversity (GeAR Tables 4 and 10)",
        table(head, rows),
        f"Paper: {papers.G_SETUP['MuSiQue']}; {papers.G_MODELS}.",
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
        f"Paper: {papers.G_SETUP['MuSiQue']}; GPT-3.5 turbo reads and reasons too, at most 4 steps.",
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
        f"Paper: {papers.G_SETUP['MuSiQue']}; {papers.G_MODELS}.",
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
        f"Paper: {papers.G_SETUP['MuSiQue']}; {papers.G_MODELS}.",
        f"Ours: {results.setup('musique_train-mpnet')}; questions in the groups: {counted}." if counted else "",
        lists(results),
    )


def by_hops(results: Results) -> str:
    """Answers by hops (T²RAG Table 4) and recall by hops (GeAR Figure 3)."""
    rows = []
    for label, figures in papers.T_TABLE_4.items():
        row = results.row(LLM_FILE, LLM_METHODS[label])
        ours = [NONE] * 3
        if row is not None and "em" in row:
            groups = [row["by_hops"].get(hops, {}) for hops in figures]
            ours = [f"{g['em']:.1f} / {g['f1']:.1f}" if g.get("questions") else NONE for g in groups]
        rows.append([named(label, LLM_OURS), *(published(figure) for figure in figures.values()), *ours])
    recall = []
    for label, method in METHODS.items():
        row = results.row("musique_train-mpnet", method)
        if row is not None and label.startswith(("hybrid", "GeAR", "HippoRAG")):
            recall.append(
                [named(label, OURS, ""), *(f"{row['by_hops'][hops]['recall@15']:.1f}" for hops in ("2", "3", "4"))]
            )
    hops = [f"{number} hops" for number in (2, 3, 4)]
    return section(
        "By hops (T²RAG Table 4, GeAR Figure 3)",
        table(["exact match / F1, MuSiQue", *(f"paper, {h}" for h in hops), *(f"ours, {h}" for h in hops)], rows)
        + "\n\n"
        + table(["R@15, ours, mpnet", *hops], recall),
        f"Paper: {papers.T_SETUP}.",
        *(
            f"Ours, {what}: {said}; {results.groups(file)}."
            for what, file in (("answers", LLM_FILE), ("recall", "musique_train-mpnet"))
            if (said := results.setup(file))
        ),
        lists(results),
    )


def table_5(results: Results) -> str:
    """T²RAG by triples or by passages (its Table 5)."""
    rows = []
    for label, method in (("triples", "t2rag"), ("passages", "t2rag[search_by=passages]")):
        exact, f1, calls = papers.T_TABLE_5[label]
        row = results.row(LLM_FILE, method)
        ours = NONE if row is None or "em" not in row else f"{scores(row)}; {row['calls'] + row['answer_calls']:.1f}"
        rows.append([label, f"{exact:.1f} / {f1:.1f}; {calls / 1000:.1f}", ours, recalls(row)])
    return section(
        "T²RAG searching by triples or by passages (its Table 5)",
        table(["exact match / F1; calls a question, MuSiQue", "paper", "ours", "ours, R@5 / 10 / 15"], rows),
        f'Paper: {papers.T_SETUP}; its "calls" count retrievals too.',
        f"Ours: {results.setup(LLM_FILE)}." if LLM_FILE in results.files else "Ours: not run.",
    )


def shares(results: Results) -> str:
    """What more triples give (in view of the paper's, which are more)."""
    whole = "hotpotqa-mpnet"
    files = {"none": whole, **{f"{percent} %": f"{whole}-share{percent}" for percent in (40, 60, 80)}, "all": whole}
    if not all(file in results.files for file in files.values()):
        return ""
    bases = ("BM25", "dense", "hybrid")
    rows = []
    for share, file in files.items():
        number = 0 if share == "none" else results.files[file]["conditions"]["triples"]
        names = [base.lower() if share == "none" else f"{base.lower()}+naive" for base in bases]
        rows.append([share, f"{number:,}", *(recalls(results.row(file, name)) for name in names)])
    theirs = [published(papers.G_TABLE_2[f"{base} + NaiveGE"]["HotpotQA"]) for base in bases]
    counted = papers.G_SETUP["HotpotQA"].rpartition(" triples")[0].rpartition(" ")[2]
    both = [published(each) for each in (papers.G_TABLE_2[SYNC]["MuSiQue"], papers.G_TABLE_7[SYNC])]
    return section(
        "A share of the triples",
        table(
            ["R@5 / 10 / 15, HotpotQA, mpnet", "triples", *(f"{base} + NaiveGE" for base in bases)],
            [*rows, ["the paper's, of GPT-4o mini", counted, *theirs]],
        ),
        "Drawn at random from GPT-3.5's, each share part of the next. The paper's are of the same documents. Its "
        f"{SYNC} has {both[0]} on MuSiQue (Table 2), and {both[1]} if GPT-3.5 extracts and reads (Table 7).",
        *(f"{results.setup(file)}." for file in dict.fromkeys(files.values())),
    )


def sweeps(results: Results) -> str:
    """What each setting does, one at a time."""
    methods = ("hybrid+naive", "hybrid+sync", "hybrid+gear")
    body = []
    for embed in EMBED:
        file = results.files.get(f"musique_train-{embed}-sweeps", {"methods": []})
        names = dict.fromkeys(row["method"].partition("[")[2].rstrip("]") for row in file["methods"] if "swept" in row)
        rows = []
        for setting in ("", *names):
            row = [setting or "as it is"]
            for method in methods:
                found = results.row(f"musique_train-{embed}-sweeps", f"{method}[{setting}]" if setting else method)
                row.append(recalls(found) + better_or_worse(found or {}))
            rows.append(row)
        if names:
            body.append(table([f"R@5 / 10 / 15, MuSiQue, {embed}", *methods], rows))
    return section(
        "Settings, one at a time",
        "\n\n".join(body),
        "\\* differs from the default at one cut or more, p < 0.05. hybrid+gear is one step with one call.",
        lists(results),
        *(f"{said}." for embed in EMBED if (said := results.setup(f"musique_train-{embed}-sweeps"))),
    )


def exactness(results: Results) -> str:
    """What the exactness of PageRank gives and costs, and the number of base passages."""
    body = []
    for embed in EMBED:
        file = f"musique_train-{embed}-pagerank"
        rows = [
            [row["method"], recalls(row) + better_or_worse(row), f"{row['ms_per_query']:.1f}"]
            for row in results.files.get(file, {"methods": []})["methods"]
        ]
        if rows:
            body.append(table([f"MuSiQue, {embed}", "R@5 / 10 / 15", "ms"], rows))
    if not body:
        return ""
    return section(
        "PageRank's exactness, and the number of base passages",
        "\n\n".join(body),
        "\\* differs from the default at one cut or more, p < 0.05. The defaults are epsilon 0.001 and as many base "
        "passages as the cut; ms as below, of one run.",
        *(f"{said}." for embed in EMBED if (said := results.setup(f"musique_train-{embed}-pagerank"))),
    )


def better_or_worse(row: dict[str, Any]) -> str:
    """A star if a swept row differs from the default beyond chance."""
    gains = [row[f"gain@{cut}"]["p_corrected"] for cut in (5, 10, 15)] if row.get("swept") else []
    return "*" if gains and min(gains) < 0.05 else ""


def costs(results: Results) -> str:
    """What a question costs with a model."""
    rows = [
        [
            row["method"],
            f"{row['calls']:.1f}",
            f"{row['prompt_tokens']:,.0f} + {row['completion_tokens']:,.0f}",
            f"{row['weighted_tokens']:,.0f}",
            recalls(row),
        ]
        for row in results.files.get(LLM_FILE, {}).get("methods", [])
        if "calls" in row
    ]
    if not rows:
        return ""
    return section(
        "Calls and tokens a question, retrieval alone",
        table(["method", "calls", "tokens, prompt + completion", "prompt + 4 × completion", "R@5 / 10 / 15"], rows),
        f"{results.setup(LLM_FILE)}.",
        lists(results),
    )


def times(results: Results) -> str:
    """Milliseconds a question, and how long HippoRAG's retrieval takes beside each method."""
    files = {f"{data}, {embed}": f"{folder}-{embed}" for data, folder in DATA.items() for embed in EMBED}
    rows = []
    for label, method in METHODS.items():
        row = [named(label, OURS, "")]
        for file in files.values():
            found, its = results.row(file, method), results.row(file, "hipporag")
            beside = f"; {its['ms_per_query'] / found['ms_per_query']:.1f}" if found and its else ""
            row.append(NONE if found is None else f"{found['ms_per_query']:.1f}{beside}")
        rows.append(row)
    return section(
        "Milliseconds a question",
        table(["ms; HippoRAG's as a multiple", *files], rows),
        "Medians at R@10 (of one list: of 15 passages), base retrieval included, without embedding the question and "
        "without waiting for a model: the reader's facts are given. HippoRAG's graph and vectors are in memory, ours "
        "on the disk behind an index. A column is one run's: between runs the same row differs by up to three times.",
        *(f"{said}." for file in files.values() if (said := results.setup(file))),
    )


def speed(results: Results) -> str:
    """Time and memory against the size of the graph."""
    rows = [
        [
            f"{row['triples']:,}",
            f"{row['whole_to_expansion']:.2f}",
            f"{row['whole_to_local']:.2f}",
            f"{row['whole_mib'] / row['ours_mib']:.2f}",
            f"{(row['whole_mib'] + row['whole_vectors_mib']) / row['ours_mib']:.2f}",
            f"{(row['whole_mib'] + row['whole_vectors_mib']) / (row['ours_mib'] + row['ours_files_mib']):.2f}",
        ]
        for row in sizes(results)
    ]
    if not rows:
        return ""
    file = results.files["speed"]
    head = [
        "triples",
        "time: igraph's to our beam search's",
        "igraph's to our local PageRank's",
        "memory: igraph's graph to our store",
        "with HippoRAG's vectors to our store",
        "with HippoRAG's vectors to our store and its files",
    ]
    return section(
        "igraph's PageRank over the whole graph, as multiples of ours",
        table(head, rows),
        aim(sizes(results)),
        "Time grows with the size to the power of "
        + ", ".join(
            f"{exponent:.2f} ({name}; from the last size but one to the last {file['last_exponents'][name]:.2f})"
            for name, exponent in file["growth_exponents"].items()
        )
        + ".",
        *(
            f"{row['triples']:,} triples: of a run of its own, with {other['queries']} questions; our files no longer "
            "fit in memory."
            for other in [results.files.get("speed-10m", {})]
            for row in other.get("sizes", [])
        ),
        "Synthetic triples, medians of one run; `speed.py` says what is compared. Our memory is the store's own; with "
        "files, so are the pages of its files that happen to be in memory, and are given up when it is short.",
    )


def sizes(results: Results) -> list[dict[str, Any]]:
    """The rows of `speed.json`, and of the larger store that was measured by itself."""
    return [row for file in ("speed", "speed-10m") for row in results.files.get(file, {}).get("sizes", [])]


def aim(sizes: Sequence[dict[str, Any]]) -> str:
    """Where our PageRank takes at most a twentieth of igraph's time, and where not."""
    said: dict[bool, list[str]] = {True: [], False: []}
    for row in sizes:
        said[row["whole_to_local"] >= AIM].append(f"{row['triples']:,} ({row['whole_to_local']:.1f} times)")
    met, missed = (", ".join(said[each]) or "none of these sizes" for each in (True, False))
    return (
        f"The aim, that local PageRank takes at most 1/{AIM} of the time of igraph's, is met with these numbers of "
        f"triples: {met}. It is not met with: {missed}."
    )


def triples_table(results: Results) -> str:
    """Whose triples: a language model's, a rule's, or those of a graph that knows nothing of the passages."""
    given, offline = "musique_train-minilm", "musique_train-minilm-offline"
    outside, unchecked = "musique_train-minilm-external", "musique_train-minilm-external-unchecked"
    said = {
        ("none", "none"): (given, "hybrid"),
        ("GPT-3.5's", "none (NaiveGE)"): (given, "hybrid+naive"),
        ("by rule", "none (NaiveGE)"): (offline, "hybrid+naive"),
        ("by rule, + PageRank", "none (NaiveGE)"): (offline, "hybrid+naive+pagerank"),
        ("of a sparse graph", "none"): (outside, "hybrid+naive+external"),
        ("of a dense graph", "none"): (outside, "hybrid+naive+external[graph=dense]"),
        ("GPT-3.5's", "recorded (SyncGE)"): (given, "hybrid+sync"),
        ("of a sparse graph, checked", "recorded"): (outside, "hybrid+sync+external"),
        ("of a sparse graph, unchecked", "recorded"): (unchecked, "hybrid+sync+external"),
        ("of a dense graph, checked", "recorded"): (outside, "hybrid+sync+external[graph=dense]"),
        ("of a dense graph, unchecked", "recorded"): (unchecked, "hybrid+sync+external[graph=dense]"),
        ("of half a graph, checked", "recorded"): (outside, "hybrid+sync+external[graph_share=0.5]"),
        ("of half a graph, unchecked", "recorded"): (unchecked, "hybrid+sync+external[graph_share=0.5]"),
    }
    rows = [[*labels, recalls(results.row(*place))] for labels, place in said.items()]
    hotpotqa = {
        ("GPT-3.5's", "none (NaiveGE)"): "hybrid+naive",
        ("of a sparse graph", "none"): "hybrid+naive+external",
        ("of a dense graph", "none"): "hybrid+naive+external[graph=dense]",
        ("GPT-3.5's", "stand-in (SyncGE)"): "hybrid+sync",
        ("of a sparse graph, checked", "stand-in"): "hybrid+sync+external",
        ("of a dense graph, checked", "stand-in"): "hybrid+sync+external[graph=dense]",
    }
    more = [[*labels, recalls(results.row("hotpotqa-minilm-external", name))] for labels, name in hotpotqa.items()]
    return section(
        "Whose triples (Millions of GeAR-s)",
        table(["triples", "reader", "R@5 / 10 / 15, MuSiQue, minilm"], [row for row in rows if row[2] != NONE])
        + "\n\n"
        + table(["triples", "reader", "R@5 / 10 / 15, HotpotQA, minilm"], [row for row in more if row[2] != NONE]),
        "A graph has the same triples of GPT-3.5, their passages forgotten; half a graph has half of them, drawn at "
        "random. The check drops links to triples about something else.",
        *(
            f"{line}."
            for file in (given, offline, outside, "hotpotqa-minilm-external")
            if (line := results.setup(file))
        ),
    )


def shared_calls(results: Results) -> str:
    """What passages that share a call cost, and what their triples are worth."""
    rows = [cells for number in SHARED_FILES if (cells := shared_cells(results, number))]
    if not rows:
        return ""
    file, *_ = (file for file in SHARED_FILES.values() if file in results.files)
    head = ["passages a call", "calls", "asked again", "tokens a passage, prompt + completion", "triples"]
    return section(
        "Passages that share a call of the extractor",
        table([*head, "NaiveGE, R@5 / 10 / 15", "NaiveGE + PageRank"], rows),
        f"hybrid alone has {recalls(results.row(file, 'hybrid'))}; a passage is asked for again, alone, if a reply for "
        "several says nothing of it.",
        *(f"{said}." for each in SHARED_FILES.values() if (said := results.setup(each))),
    )


TABLES: tuple[Callable[[Results], str], ...] = (
    table_2,
    lambda results: answers_table(
        results,
        "Answers (GeAR Table 3)",
        papers.G_TABLE_3,
        f"Paper: {papers.G_SETUP['MuSiQue']}; {papers.G_MODELS}.",
    ),
    diversity,
    table_7,
    table_8,
    table_11,
    lambda results: answers_table(
        results,
        "Answers (T²RAG Table 1)",
        {label: figures["MuSiQue"] for label, figures in papers.T_TABLE_1.items()},
        f"Paper: {papers.T_SETUP}.",
    ),
    by_hops,
    table_5,
    costs,
    triples_table,
    shared_calls,
    shares,
    sweeps,
    exactness,
    times,
    speed,
)


def report(results: Results, plots: Sequence[str]) -> str:
    """The whole, in Markdown."""
    head = (
        "# Results beside the papers'\n\n"
        "Made by `report.py` from the files in `results/`; don't edit. Recall@5 / @10 / @15 in percent. The 95 % "
        "intervals under a table are of single recalls, not of the differences between methods, which are paired: for "
        "those, p is of an exact paired permutation test, after Holm's correction over all comparisons of the file.\n"
    )
    pictures = "\n".join(f"![{name}](plots/{name}.svg)" for name in plots)
    return "\n".join([head, *(part for each in TABLES if (part := each(results))), pictures]).rstrip() + "\n"


def main() -> None:
    """Write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--out", type=Path, default=HERE, help="folder for REPORT.md and plots/")
    arguments = parser.parse_args()
    results = Results(arguments.results)
    plots = list(plotted(results, arguments.out / "plots"))
    (arguments.out / "REPORT.md").write_text(report(results, plots), "utf-8")


if __name__ == "__main__":
    main()
