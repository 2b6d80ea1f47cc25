"""The tables of links between documents: questions with all that is gold among the first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reporting.results import Results
from reporting.tables import section, table

SOURCES = {"foam": "Foam", "jj": "Jujutsu", "linked_docs": "click"}
"""Names of sources that are not their folders'."""
METHODS = {
    "dense": "dense",
    "bm25": "BM25",
    "hybrid": "hybrid, the first of 40",
    "graph-rag, eager": "graph-rag over the same links, `Eager`",
    "graph-rag, mmr": "graph-rag over the same links, `Mmr`",
    "graph": "`GraphRetriever` without links",
    "graph + links as facts": "links as facts alone",
    "graph + links": "with links, weight chosen without the source",
    "graph + links, shipped": "with links, shipped weight",
}
TYPES = {
    "link": ("behind a link", (5, 10)),
    "name": ("behind a name", (5, 10)),
    "one": ("of one page", (2, 5)),
}
"""Type → what its questions are, and the cuts that are shown."""


def links(results: Results) -> str:
    """Return the section on links between documents."""
    of_sources: Mapping[str, Any] = results.files.get("links", {}).get("sources", {})
    parts = []
    for type_, (said, cuts) in TYPES.items():
        having = {name: source for name, source in of_sources.items() if source["questions"].get(type_)}
        for unit in ("passages", "documents") if having else ():
            numbers = [f"{SOURCES.get(name, name)} ({source['questions'][type_]})" for name, source in having.items()]
            rows = [
                [label, *(format_cell(source["rows"][method][f"{type_}, {unit}"], cuts) for source in having.values())]
                for method, label in METHODS.items()
                if method in of_sources["all"]["rows"]
            ]
            first = " and ".join(map(str, cuts))
            parts.append(table([f"questions {said}, all gold in {first} {unit}", *numbers], rows))
    if not parts:
        return ""
    weights = ", ".join(
        f"{SOURCES.get(name, name)} {source['weight']}" for name, source in of_sources.items() if "weight" in source
    )
    note = (
        "Measured by `links.py`: documentation of packages, questions written from the files before any search; “all "
        "gold”: the share of questions, in percent, with all that is gold among the first; a document counts at the "
        "place of its first passage. Embeddings by `LightEmbedding`, triples by rule. The signal `page_links` was "
        "first formed over httpx, structlog, Jinja and click. Its form of today was chosen by the loss of all nine, "
        "each ranked with a weight that the other eight choose: of forms within a standard error of the least, one "
        "without a further constant. So a left-out source chose no weight, but the form was seen on it. The shipped "
        "weight has the least loss over all nine. That names of pages in a text are no links was decided without "
        "Foam, Jujutsu and pip in sight. "
        f"Weights of `page_links` that the other sources choose: {weights}. graph-rag is datastax's, "
        "by its own code (`peers/graph_rag.py` says what is adapted); it ranks by cosine."
    )
    return section("Links between documents", "\n\n".join(parts), note)


def format_cell(row: Mapping[str, float], cuts: tuple[int, ...]) -> str:
    """Return the shares at the cuts, in whole percent."""
    return " / ".join(f"{row[f'all gold@{cut}']:.0f}" for cut in cuts)
