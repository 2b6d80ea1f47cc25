"""Tables of sweeps over settings."""

from __future__ import annotations

from typing import Any

from reporting.results import EMBED, Results, format_recalls
from reporting.tables import section, sources, table


def sweeps(results: Results) -> str:
    """Return the section on recall with every setting changed, one at a time."""
    return settings_section(results, "sweeps", "Settings, one at a time")


def bases(results: Results) -> str:
    """Return the section on recall with settings changed over other bases than hybrid."""
    return settings_section(results, "bases", "Settings over other bases")


def settings_section(results: Results, kind: str, title: str) -> str:
    """Return a section on the settings that a kind of file sweeps over, with a table for each embedding model."""
    body = []
    files = find_files(results, kind)
    for embed, file in files.items():
        names = [row["method"] for row in results.files[file]["methods"] if "swept" in row]
        methods = dict.fromkeys(name.partition("[")[0] for name in names)
        rows = []
        for setting in ("", *dict.fromkeys(name.partition("[")[2].rstrip("]") for name in names)):
            row = [setting or "as it is"]
            for method in methods:
                swept = results.row(file, f"{method}[{setting}]" if setting else method)
                row.append(format_recalls(swept) + format_star(swept or {}))
            rows.append(row)
        body.append(table([f"R@5 / 10 / 15, MuSiQue, {embed}", *methods], rows))
    if not body:
        return ""
    return section(
        title,
        "\n\n".join(body),
        sources(results, *files.values()),
    )


def exactness(results: Results) -> str:
    """Return the section on recall and time by the exactness of PageRank and by the number of base passages."""
    body = []
    files = find_files(results, "pagerank")
    for embed, file in files.items():
        rows = [
            [row["method"], format_recalls(row) + format_star(row), f"{row['ms_per_query']:.1f}"]
            for row in results.files[file]["methods"]
        ]
        body.append(table([f"MuSiQue, {embed}", "R@5 / 10 / 15", "ms"], rows))
    if not body:
        return ""
    return section(
        "PageRank's exactness, and the number of base passages",
        "\n\n".join(body),
        "The defaults are epsilon 0.001 and as many base passages as the cut. Milliseconds are of one run, measured as "
        "in the next table.",
        sources(results, *files.values()),
    )


def okapi(results: Results) -> str:
    """Return the section on recall with another BM25."""
    body = []
    files = find_files(results, "okapi")
    for embed, file in files.items():
        names = {"Qdrant's BM25": "bm25", "rank_bm25's": "rank-bm25"}
        names |= {"hybrid of Qdrant's": "hybrid", "hybrid of rank_bm25's": "rank-hybrid"}
        rows = [
            [label, *(format_recalls(results.row(file, f"{method}{expansion}")) for expansion in ("", "+naive"))]
            for label, method in names.items()
        ]
        body.append(table([f"R@5 / 10 / 15, MuSiQue, {embed}", "alone", "+ NaiveGE"], rows))
    if not body:
        return ""
    return section(
        "Which BM25",
        "\n\n".join(body),
        "Qdrant's BM25 stems words and leaves stop words out. rank_bm25's is Okapi's formula over words as they are.",
        sources(results, *files.values()),
    )


def find_files(results: Results, kind: str) -> dict[str, str]:
    """Return the existing files of a kind, by embedding model."""
    return {embed: file for embed in EMBED if (file := f"musique_train-{embed}-{kind}") in results.files}


def format_star(row: dict[str, Any]) -> str:
    """Return a star if a swept row differs from the default beyond chance, else an empty text."""
    gains = [row[f"gain@{cut}"]["p_corrected"] for cut in (5, 10, 15)] if row.get("swept") else []
    return "*" if gains and min(gains) < 0.05 else ""
