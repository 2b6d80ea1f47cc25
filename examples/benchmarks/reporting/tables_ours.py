"""Tables of ours that no paper has: calls and tokens, and recall by the source of the triples."""

from __future__ import annotations

from typing import Any

from reporting import papers
from reporting.results import (
    EMBED,
    IRCOT_FILE,
    LLM_FILE,
    NONE,
    SAMPLE_FILE,
    SELECTION_FILE,
    Results,
    format_recalls,
    format_scores,
)
from reporting.tables import format_published, section, sources, table

SYNC = "hybrid + SyncGE"


def costs(results: Results) -> str:
    """Return the section on calls, tokens and answers of a question with a model."""
    rows = [
        [row["method"], *format_spent(row), format_recalls(row), format_scores(row)]
        for file in (LLM_FILE, IRCOT_FILE, SELECTION_FILE)
        for row in results.files.get(file, {}).get("methods", [])
        if "calls" in row or row["method"] == "graph"
    ]
    if not rows:
        return ""
    head = ["method", "calls", "tokens, prompt + completion"]
    return section(
        "Calls and tokens a question, retrieval alone",
        table([*head, "prompt + 4 × completion", "R@5 / 10 / 15", "exact match / F1"], rows),
        sources(results, LLM_FILE, IRCOT_FILE, SELECTION_FILE),
    )


def format_spent(row: dict[str, Any]) -> list[str]:
    """Return the calls and tokens of a method, or that it has none."""
    if "calls" not in row:
        return [NONE] * 3
    tokens = f"{row['prompt_tokens']:,.0f} + {row['completion_tokens']:,.0f}"
    return [f"{row['calls']:.1f}", tokens, f"{row['weighted_tokens']:,.0f}"]


def triples_table(results: Results) -> str:
    """Return the section on recall by the triples' source: a language model, a rule, or a graph without passages."""
    given, offline = "musique_train-minilm", "musique_train-minilm-offline"
    outside, unchecked = "musique_train-minilm-external", "musique_train-minilm-external-unchecked"
    musique = {
        ("none", "none"): (given, "hybrid"),
        ("GPT-3.5's", "none (NaiveGE)"): (given, "hybrid+naive"),
        ("by rule", "none (NaiveGE)"): (offline, "hybrid+naive"),
        ("by rule, + PageRank", "none (NaiveGE)"): (offline, "hybrid+naive+pagerank"),
        ("of a graph", "none"): (outside, "hybrid+naive+external"),
        ("GPT-3.5's", "recorded (SyncGE)"): (given, "hybrid+sync"),
        ("of a graph, checked", "recorded"): (outside, "hybrid+sync+external"),
        ("of a graph, unchecked", "recorded"): (unchecked, "hybrid+sync+external"),
        ("of half a graph, checked", "recorded"): (outside, "hybrid+sync+external[graph_share=0.5]"),
        ("of half a graph, unchecked", "recorded"): (unchecked, "hybrid+sync+external[graph_share=0.5]"),
    }
    rows = [[*labels, format_recalls(results.row(*place))] for labels, place in musique.items()]
    hotpotqa = {
        ("GPT-3.5's", "none (NaiveGE)"): "hybrid+naive",
        ("of a graph", "none"): "hybrid+naive+external",
        ("GPT-3.5's", "stand-in (SyncGE)"): "hybrid+sync",
        ("of a graph, checked", "stand-in"): "hybrid+sync+external",
    }
    more = [
        [*labels, format_recalls(results.row("hotpotqa-minilm-external", name))] for labels, name in hotpotqa.items()
    ]
    return section(
        "Whose triples (Millions of GeAR-s)",
        table(["triples", "reader", "R@5 / 10 / 15, MuSiQue, minilm"], [row for row in rows if row[2] != NONE])
        + "\n\n"
        + table(["triples", "reader", "R@5 / 10 / 15, HotpotQA, minilm"], [row for row in more if row[2] != NONE]),
        "A graph has GPT-3.5's triples without their passages. Half a graph has half of them, drawn at random. The "
        "check drops links to triples about something else.",
        sources(results, given, offline, outside, unchecked, "hotpotqa-minilm-external"),
    )


def extraction(results: Results) -> str:
    """Return the section on the cost of an extraction by a small model, and the recall with its triples."""
    if SAMPLE_FILE not in results.files:
        return ""
    have = results.files[SAMPLE_FILE]["conditions"]
    prompt, completion = (have[f"{kind}_tokens_per_passage"] for kind in ("prompt", "completion"))
    recalls = [
        format_recalls(results.row(SAMPLE_FILE, name)) for name in ("hybrid", "hybrid+naive", "hybrid+naive+pagerank")
    ]
    row = [str(have["ingest_calls"]), f"{prompt:.0f} + {completion:.0f}", f"{have['triples']:,}", *recalls]
    head = ["calls", "tokens a passage, prompt + completion", "triples", "hybrid, R@5 / 10 / 15", "NaiveGE"]
    return section(
        "Triples of a small model",
        table([*head, "NaiveGE + PageRank"], [row]),
        sources(results, SAMPLE_FILE),
    )


def shares(results: Results) -> str:
    """Return the section on recall with a share of the triples, since the paper has more of them than we have."""
    embed = next((embed for embed in EMBED if f"hotpotqa-{embed}-share80" in results.files), None)
    if embed is None:
        return ""
    whole = f"hotpotqa-{embed}"
    parts = {f"{percent} %": f"{whole}-share{percent}" for percent in (40, 60, 80)}
    files = {"none": whole, **{share: file for share, file in parts.items() if file in results.files}, "all": whole}
    bases = ("BM25", "dense", "hybrid")
    rows = []
    for share, file in files.items():
        number = 0 if share == "none" else results.files[file]["conditions"]["triples"]
        names = [base.lower() if share == "none" else f"{base.lower()}+naive" for base in bases]
        rows.append([share, f"{number:,}", *(format_recalls(results.row(file, name)) for name in names)])
    paper = [format_published(papers.G_TABLE_2[f"{base} + NaiveGE"]["HotpotQA"]) for base in bases]
    rows.append(["the paper's, with mpnet", f"{papers.G_TRIPLES['HotpotQA']:,}", *paper])
    by_model = [format_published(figures) for figures in (papers.G_TABLE_2[SYNC]["MuSiQue"], papers.G_TABLE_7[SYNC])]
    return section(
        "A share of the triples",
        table([f"R@5 / 10 / 15, HotpotQA, {embed}", "triples", *(f"{base} + NaiveGE" for base in bases)], rows)
        + last_fifth(results, whole),
        f"The paper's {SYNC} has {by_model[0]} on MuSiQue (Table 2), and {by_model[1]} if GPT-3.5 extracts and reads "
        "(Table 7).",
        "Shares are drawn at random from GPT-3.5's triples; each share is part of the next.",
        sources(results, *dict.fromkeys(files.values())),
    )


def last_fifth(results: Results, whole: str) -> str:
    """Return a table of the gain from the last fifth of the triples, beside the paper's rows and ours."""
    rows = []
    for base, cut in (("BM25", 5), ("dense", 15)):
        name, place = f"{base.lower()}+naive", (5, 10, 15).index(cut)
        places = ((whole, name), (f"{whole}-share80", name), ("hotpotqa-mpnet", name), ("hotpotqa-mpnet", base.lower()))
        recalls = [row[f"recall@{cut}"] for file, method in places if (row := results.row(file, method))]
        if len(recalls) < len(places):
            return ""
        whole_recall, share_recall, ours, our_base = recalls
        paper, paper_base = (papers.G_TABLE_2[base + part]["HotpotQA"][place] for part in (" + NaiveGE", ""))
        figures = (paper, ours, paper_base, our_base)
        gain = f"{whole_recall - share_recall:+.1f}"
        rows.append([f"{base} + NaiveGE, R@{cut}", gain, *(f"{figure:.1f}" for figure in figures)])
    head = ["HotpotQA", "the last fifth gives", "paper", "ours, mpnet", "paper's base alone", "our base alone, mpnet"]
    return "\n\n" + table(head, rows)
