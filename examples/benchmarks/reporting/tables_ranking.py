"""The tables of the ranking: recall at seven cuts and complete questions on every set, and what each part is worth."""

from __future__ import annotations

from typing import Any

from reporting.results import Results
from reporting.tables import section, table

CUTS = (2, 3, 5, 8, 10, 15, 40)
COMPLETE = (5, 10)
SETS = {
    "musique": "MuSiQue",
    "2wiki": "2WikiMultiHopQA",
    "hotpotqa": "HotpotQA",
    "musique_train": "MuSiQue, a sample",
    "entailmentbank": "EntailmentBank (school science)",
    "lihua": "LiHua-World (chats)",
    "qmsum": "QMSum (meetings)",
    "webpages": "WildGraphBench (web pages)",
    "linked_docs": "click's documentation",
    "company_wiki": "a company's wiki",
    "sample": "the sample of the examples",
}
KINDS = {"file": "GPT-3.5's triples", "offline": "triples by rule"}
LABELS = {
    "hybrid of 40": "hybrid, the first of 40",
    "pool": "the whole pool, a bound",
    "pagerank": "PageRank's list",
    "naive": "NaiveGE, the papers' expansion",
    "hipporag": "HippoRAG 2",
    "hipporag-synonyms": "HippoRAG 2 with synonyms",
    "property graph": "LlamaIndex's `PropertyGraphIndex`",
    "default": "`GraphRetriever`",
    "left out": "`GraphRetriever`, weights of other kinds of text",
    "ranker": "`PassageRanker` over hybrid's first 40",
    "ranker, left out": "`PassageRanker`, weights of other kinds of text",
}
ORDER = (
    *("dense", "bm25", "hybrid", "hybrid of 40", "pagerank", "pool"),
    *("naive", "hipporag", "hipporag-synonyms", "property graph"),
    *("default", "left out", "ranker", "ranker, left out"),
)
"""Rows that stand first: the bases, the methods to compare with, ours. Below them stands what each part is worth."""


def ranking(results: Results) -> str:
    """Return the section on the ranking without a language model."""
    parts = []
    for name, of_set in results.files.get("ranking", {}).items():
        data, kind = name.rsplit("-", 1)
        size = f"{of_set['questions']} questions, {of_set['passages']:,} passages, {of_set['triples']:,} triples"
        places = {method: place for place, method in enumerate(ORDER)}
        every = [*of_set["rows"], *results.files.get("compared", {}).get(name, [])]
        rows = [
            [
                LABELS.get(row["method"], row["method"].replace("default ", "`GraphRetriever` ")),
                *(format_cell(row, cut) for cut in CUTS),
                *(format_complete(row, cut, of_set["questions"]) for cut in COMPLETE),
            ]
            for row in sorted(every, key=lambda row: places.get(row["method"], len(places)))
        ]
        columns = [*(f"R@{cut}" for cut in CUTS), *(f"all in {cut}" for cut in COMPLETE)]
        parts.append(table([f"{SETS[data]}, {KINDS[kind]}: {size}", *columns], rows))
    if not parts:
        return ""
    note = (
        "Embeddings by `LightEmbedding` (all-MiniLM-L6-v2); no triple is embedded. “All in 5”: the share of questions "
        "with all that is gold among the first five. On click's documentation, chats and web pages gold are documents, "
        "each at the place of its first passage. A star: a gain over hybrid with p < 0.05 by the paired permutation "
        "test, uncorrected. “Hybrid” fuses as many passages of dense search and BM25 as the cut. On encyclopaedias, "
        "science, chats, meetings and web pages each question is ranked by weights that were learned without its fifth "
        "of the questions; on the other sets by the shipped ones, which saw none of these. “− NAME”: without a signal, "
        "the other weights unchanged; “− pagerank”: over both searches alone. NaiveGE, HippoRAG 2 and the property "
        "graph were measured by `compared.py` with sentence-transformers' all-MiniLM-L6-v2 over stores whose triples "
        "are embedded; NaiveGE is asked for as many passages as the cut. HippoRAG 2 starts there from all facts that "
        "it finds; its own program from the phrases of the five best."
    )
    return section("Passages ranked together, without a language model", "\n\n".join(parts), note)


def format_cell(row: dict[str, Any], cut: int) -> str:
    """Return a recall, with a star where it gains on hybrid beyond chance."""
    return f"{row[f'recall@{cut}']:.1f}" + "\\*" * gains_beyond_chance(row, f"gain@{cut}")


def format_complete(row: dict[str, Any], cut: int, questions: int) -> str:
    """Return the share of questions with all that is gold, in percent."""
    return f"{100 * row[f'complete@{cut}'] / questions:.0f}"


def gains_beyond_chance(row: dict[str, Any], key: str) -> bool:
    """Say if a row has this gain, and more than by chance."""
    gain = row.get(key)
    return gain is not None and gain["points"] > 0 and gain["p"] < 0.05
