"""The table of the ranking: recall at seven cuts on every set, and what each part is worth."""

from __future__ import annotations

from typing import Any

from reporting.results import Results
from reporting.tables import section, table

CUTS = (2, 3, 5, 8, 10, 15, 40)
FILES = {"ranking": "", "ranking-mpnet": ", mpnet"}
"""File → what a table's head says of the embedding model."""
SETS = {"musique": "MuSiQue", "2wiki": "2WikiMultiHopQA", "hotpotqa": "HotpotQA", "musique_train": "MuSiQue, a sample"}
KINDS = {"file": "GPT-3.5's triples", "offline": "triples by rule"}
LABELS = {
    "pool": "the whole pool, a bound",
    "pagerank": "PageRank's list",
    "naive": "NaiveGE, the papers' expansion",
    "hipporag": "HippoRAG 2",
    "hipporag-synonyms": "HippoRAG 2 with synonyms",
    "property graph": "LlamaIndex's `PropertyGraphIndex`",
    "default": "`GraphRetriever`",
    "first rule": "… by its lists alone",
    "ranker": "`PassageRanker` over hybrid's first 40",
    "left out": "`GraphRetriever`, weights of the other two sets",
}
ORDER = (
    *("dense", "bm25", "hybrid", "pagerank", "pool"),
    *("naive", "hipporag", "hipporag-synonyms", "property graph"),
    *("default", "left out", "ranker"),
)
"""Rows that stand first: the bases, the methods to compare with, ours. Below them stands what each part is worth."""


def ranking(results: Results) -> str:
    """Return the section on the ranking without a language model."""
    parts = []
    tables = [
        (name, of_set, model) for file, model in FILES.items() for name, of_set in results.files.get(file, {}).items()
    ]
    for name, of_set, model in tables:
        data, kind = name.rsplit("-", 1)
        size = f"{of_set['questions']} questions, {of_set['passages']:,} passages, {of_set['triples']:,} triples"
        places = {method: place for place, method in enumerate(ORDER)}
        ordered = sorted(of_set["rows"], key=lambda row: places.get(row["method"], len(places)))
        rows = [
            [format_label(row["method"]), *(format_cell(row, cut) + format_dagger(row, cut) for cut in CUTS)]
            for row in ordered
        ]
        head = [f"{SETS.get(data, data)}, {KINDS[kind]}{model}: {size}", *(f"R@{cut}" for cut in CUTS)]
        parts.append(table(head, rows))
    if not parts:
        return ""
    note = (
        "minilm, unless a table says mpnet. A star: a gain over hybrid with p < 0.05 by the paired permutation test, "
        "uncorrected. A dagger: the same over HippoRAG 2, with or without synonyms, whichever is better at that cut. "
        "Hybrid and NaiveGE are asked for as many passages as the cut. On MuSiQue, 2WikiMultiHopQA and HotpotQA each "
        "question is ranked by weights that were learned without its fifth of the questions; on the other sets by the "
        "shipped ones, which saw none of these. With mpnet the shipped weights rank all: they were learned with "
        "minilm alone, from some of HotpotQA's questions too; HippoRAG 2 stands there without synonyms. “− NAME”: "
        "without a signal, the other weights unchanged; “− pagerank”: over both searches alone. “+ beams”: with the "
        "first forty passages of the papers' beam search as a further list, and weights that were learned with it, "
        "from the pools as they are alone. “+ aliases”: over a copy of the store in which aliases are linked."
    )
    beams = (
        "Beside PageRank the diverse beam search is worth little: at 5 it adds up to 1.1 points on MuSiQue and "
        "2WikiMultiHopQA, and takes up to 0.6 from HotpotQA. So the default does without it. Aliases change "
        "recall on the three whole corpora by −0.7 to +1.0."
    )
    return section("Passages ranked together, without a language model", "\n\n".join(parts), note, beams)


def format_label(method: str) -> str:
    """Return a row's name in words."""
    return LABELS.get(method, method.replace("default ", "`GraphRetriever` "))


def format_cell(row: dict[str, Any], cut: int) -> str:
    """Return a recall, with a star where it gains on hybrid beyond chance."""
    return f"{row[f'recall@{cut}']:.1f}" + "\\*" * gains_beyond_chance(row, f"gain@{cut}")


def format_dagger(row: dict[str, Any], cut: int) -> str:
    """Return a dagger where a row gains on the better HippoRAG beyond chance."""
    return "†" * gains_beyond_chance(row, f"gain_over_hipporag@{cut}")


def gains_beyond_chance(row: dict[str, Any], key: str) -> bool:
    """Say if a row has this gain, and more than by chance."""
    gain = row.get(key)
    return gain is not None and gain["points"] > 0 and gain["p"] < 0.05
