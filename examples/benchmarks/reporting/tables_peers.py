"""The table of peers by their own code beside the ranking, over the same passages, questions and embeddings."""

from __future__ import annotations

from typing import Any

from reporting.results import Results
from reporting.tables import section, table
from reporting.tables_ranking import format_cell, format_complete

SETS = {"2wiki": "2WikiMultiHopQA", "musique": "MuSiQue", "lihua": "LiHua-World (chats)"}
CUTS = (2, 5, 10)
COMPLETE = (5, 10)
METHODS = {
    "dense": "dense",
    "bm25": "BM25",
    "hybrid": "hybrid",
    "hubmesh": "hubmesh",
    "linearrag": "LinearRAG",
    "hipporag": "HippoRAG 2",
    "left out, file": "`GraphRetriever`, GPT-3.5's triples",
    "left out, offline": "`GraphRetriever`, triples by rule",
}
"""Method → its row, in the table's order."""


def peers(results: Results) -> str:
    """Return the section on peers."""
    parts, versions = [], dict[str, str]()
    for name, of_set in results.files.get("peers", {}).items():
        found = {row["method"]: row for row in of_set["rows"]}
        rows = [
            [
                label,
                *(format_cell(found[method], cut) for cut in CUTS),
                *(format_complete(found[method], cut, of_set["questions"]) for cut in COMPLETE),
            ]
            for method, label in METHODS.items()
            if method in found
        ]
        columns = [*(f"R@{cut}" for cut in CUTS), *(f"all in {cut}" for cut in COMPLETE)]
        size = f"{of_set['questions']} questions, {of_set['passages']:,} passages"
        parts.append(table([f"{SETS[name]}: {size}", *columns], rows))
        versions |= {METHODS[method]: format_version(row) for method, row in found.items() if "versions" in row}
    if not parts:
        return ""
    note = (
        "Peers by their own code, each in an environment of its own (`peers/`, `peers_beside.py`); "
        f"{', '.join(f'{label} {version}' for label, version in versions.items())}. The same passages, questions and "
        "embeddings (`LightEmbedding`, all-MiniLM-L6-v2) for all. Of encyclopaedias the corpus is the questions' own "
        "passages. LinearRAG joins neighbours of a file, where the passages of a question stand together; here it is "
        "told of none. HippoRAG 2 has GPT-3.5's triples, in chats ours by rule; its filter by a language model lets "
        "all facts pass. LinearRAG has its own settings for this set. It "
        "and hubmesh find names by spaCy's small English model. `GraphRetriever` ranks by "
        "weights that were learned without this kind of text (`left_out_weights.json`). A star is "
        "a gain over hybrid with p < 0.05."
    )
    return section("Peers by their own code", "\n\n".join(parts), note)


def format_version(row: dict[str, Any]) -> str:
    """Return the version of a peer's package, or the commit of its checkout."""
    version: str = row["versions"].get(row["method"], row.get("commit", "")[:7])
    return version
