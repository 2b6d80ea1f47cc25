"""The tables of chunk sizes: what graph and ranking are worth on documents split as people split them."""

from __future__ import annotations

from typing import Any

from reporting.results import Results
from reporting.tables import section, table

CORPORA = {"company_wiki": "a company's wiki", "2wiki": "2WikiMultiHopQA, ten passages a document"}
LABELS = {
    "bm25": "BM25",
    "bm25, average 60": "BM25, `bm25_avg_len=60`",
    "graph": "`GraphRetriever`, against hybrid",
    "ranker": "`PassageRanker` over dense's first 40, against dense",
}


def chunk_sizes(results: Results) -> str:
    """Return the section on chunks of several sizes."""
    parts = []
    for name, corpus in results.files.get("chunks", {}).items():
        label = f"{CORPORA.get(name, name)}: {corpus['questions']} questions, {corpus['passages']:,} passages"
        parts += [describe_sizes(label, corpus), recall_by_size(corpus)]
    if not parts:
        return ""
    note = (
        "minilm, which reads 256 tokens; triples by rule. A chunk's size is in tokens of `SentenceSplitter`; "
        "“headings”: `MarkdownNodeParser`'s sections, split by it where a size stands behind. Recall in percent "
        "of the gold passages of which at least half of the evidence stands in the first results: in so many chunks, "
        "or in so many characters of their text, which is the same amount at every size. Stars mark what is ahead of "
        "its base with p < 0.05 by the paired permutation test, uncorrected, daggers what is behind. "
        "BM25 is compared with the constant average length."
    )
    return section("Chunks of several sizes", "\n\n".join(parts), note)


def describe_sizes(label: str, corpus: dict[str, Any]) -> str:
    """Return what each size makes of a corpus: chunks, triples, and what the embedding model leaves unread."""
    rows = [
        [
            size,
            f"{have['chunks']:,}",
            f"{have['characters']:,}",
            f"{have['triples']:,}",
            str(have["cut_off"]),
            str(have["longer"]),
            f"{have['unread']:.1f} %",
            f"{have['average_words']:.0f}",
        ]
        for size, have in corpus["sizes"].items()
    ]
    head = ["chunks", "characters", "triples", "chunks with the most triples", "chunks longer than the model reads"]
    return table([label, *head, "tokens that it does not read", "average words, learned"], rows)


def recall_by_size(corpus: dict[str, Any]) -> str:
    """Return the recall of each method by size and amount of text."""
    rows = []
    for size, have in corpus["sizes"].items():
        for row in have["rows"]:
            label = f"{size}: {LABELS.get(row['method'], row['method'])}"
            rows.append([label, *(format_recall(row, name) for name in row["recall"])])
    measures = next(iter(corpus["sizes"].values()))["rows"][0]["recall"]
    return table(["recall in", *measures], rows)


def format_recall(row: dict[str, Any], measure: str) -> str:
    """Return a recall, with a star where it is ahead beyond chance, and a dagger where it is behind."""
    gain = row.get("gain", {}).get(measure, {"points": 0, "p": 1})
    mark = ("\\*" if gain["points"] > 0 else "†") if gain["p"] < 0.05 else ""
    return f"{row['recall'][measure]:.1f}{mark}"
