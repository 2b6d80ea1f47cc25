"""The tables of a strong reader: what no call, one call, and one call a step find and answer."""

from __future__ import annotations

from typing import Any

from reporting.results import NONE, Results, format_scores
from reporting.tables import section, sources, table

SETS = {"MuSiQue": "musique", "2WikiMultiHopQA": "2wiki"}
ROWS = {
    "hybrid": ("once", "hybrid"),
    "`GraphRetriever`": ("now", "graph"),
    "… by the former ranking": ("once", "graph"),
    "SyncGE": ("once", "hybrid+sync"),
    "`PassageSelector` over hybrid's first 40": ("once", "hybrid+select"),
    "`PassageSelector` over `GraphRetriever`'s first 40": ("now", "graph+select"),
    "… as the former ranking placed them": ("once", "graph+select"),
    "`GeARRetriever`": ("selection", "graph+selection"),
    "… over the former ranking": ("agents", "graph+selection"),
    "`GeARRetriever`, no triples": ("plain", "graph+selection"),
    '`PaperGeARRetriever`, `calls="merged"`': ("agents", "hybrid+gear"),
    "T²RAG": ("agents", "t2rag"),
    "IRCoT, for comparison": ("agents", "hybrid+ircot"),
}
"""Row → kind of file, and the method."""
CUTS = (2, 5, 10, 15)
WIDTHS = (10, 20, 40, 60, 90)
ORDERS = {
    "`PassageSelector`, best first": "graph+select",
    "`PassageSelector`, best last": "graph+select[show_order=reversed]",
    "`PassageSelector`, shuffled": "graph+select[show_order=shuffled]",
    "LlamaIndex's `RankGPTRerank`": "graph+rankgpt",
    "LlamaIndex's `LLMRerank`": "graph+llmrerank",
}
"""Row → method, over the same forty passages."""


def name_file(data: str, kind: str) -> str:
    """Return the name of a set's file."""
    return f"{data}-minilm-reader-{kind}"


def find_row(results: Results, data: str, label: str) -> dict[str, Any] | None:
    """Return a set's row of a label in `ROWS`, or None."""
    kind, method = ROWS[label]
    return results.row(name_file(data, kind), method)


def reader(results: Results) -> str:
    """Return the section on what a strong reader finds and answers."""
    parts, files = [], []
    for label, data in SETS.items():
        have = results.files.get(name_file(data, "once"))
        if have is None:
            continue
        conditions = have["conditions"]
        files += [name_file(data, kind) for kind in ("now", "selection", "once", "agents", "plain", "widths", "orders")]
        head = [f"{label}: {conditions['questions']} questions, {conditions['passages']:,} passages"]
        head += ["calls", "tokens", "R@2 / 5 / 10 / 15", "complete at 5", "exact match / F1"]
        rows = [[name, *format_cells(find_row(results, data, name))] for name in ROWS]
        parts += [table(head, rows), format_pairs(results, data), format_hops(results, data)]
        parts += [format_widths(results, data), format_orders(results, data)]
    if not parts:
        return ""
    return section(
        "A strong reader: no call, one call, one call a step",
        "\n\n".join(filter(None, parts)),
        "minilm, triples by rule. The reader is a strong language model, its replies recorded. Each was to rest on its "
        "prompt alone; of some 2,800 its readers reported about 180 that may rest on more. No reader was given one "
        "question in two methods (but for seven prompts of `PassageSelector`), though agents' own queries repeat parts "
        "of it. Exact match is that of the agents' own answers where they give some, else of one more call over five "
        "passages. Calls and tokens are those of retrieval.",
        "Of `GraphRetriever`, of `PassageSelector` over it and of `GeARRetriever` the first row is today's ranking, by "
        "`LightEmbedding`, read anew: all else was measured with former rankings, and other embeddings of the same "
        "model.",
        "Best first is the default: the other orders find no more, though 20 questions can't tell them apart.",
        "The questions are drawn at random from the set's 700.",
        sources(results, *files),
    )


def format_cells(row: dict[str, Any] | None) -> list[str]:
    """Return calls, tokens, recall, complete questions and answers of a row."""
    if row is None:
        return [NONE] * 5
    calls = f"{row['calls']:.1f}" if row.get("calls") else "0"
    tokens = f"{row['prompt_tokens']:,.0f} + {row['completion_tokens']:,.0f}" if row.get("calls") else "0"
    return [calls, tokens, format_cuts(row), str(row["complete@5"]), format_scores(row)]


def format_cuts(row: dict[str, Any] | None) -> str:
    """Return R@2 / 5 / 10 / 15."""
    return NONE if row is None else " / ".join(f"{row[f'recall@{cut}']:.1f}" for cut in CUTS)


def format_pairs(results: Results, data: str) -> str:
    """Return a table of the paired tests of the agents against `GeARRetriever`, all over the former ranking."""
    rows = []
    for label in ROWS:
        row = find_row(results, data, label)
        if row is not None and row.get("against") == "graph+selection":
            rows.append([label, *(format_gain(row.get(f"gain{name}")) for name in ("@5", "@10", "@15", "_em"))])
    head = [
        "points against `GeARRetriever` over the former ranking, wins : losses, p",
        "R@5",
        "R@10",
        "R@15",
        "exact match",
    ]
    return table(head, rows) if rows else ""


def format_gain(gain: dict[str, Any] | None) -> str:
    """Return a paired test: points, wins and losses, and the uncorrected p-value."""
    if gain is None:
        return NONE
    return f"{gain['points']:+.1f}, {gain['wins']} : {gain['losses']}, {gain['p']:.2g}"


def format_hops(results: Results, data: str) -> str:
    """Return a table of R@5 by hops; none if all questions have as many."""
    found = {label: row for label in ROWS if (row := find_row(results, data, label)) is not None}
    groups = {hops: group["questions"] for row in found.values() for hops, group in row["by_hops"].items()}
    if len(groups) < 2:
        return ""
    rows = [[label, *(f"{row['by_hops'][hops]['recall@5']:.1f}" for hops in groups)] for label, row in found.items()]
    return table(["R@5", *(f"{hops} hops, {count} questions" for hops, count in groups.items())], rows)


def format_widths(results: Results, data: str) -> str:
    """Return a table of recall and tokens by the number of passages that are shown in one call."""
    rows = []
    file = name_file(data, "widths")
    places = {10: (file, "graph+select"), 40: (name_file(data, "once"), "graph+select")}
    for width in WIDTHS:
        row = results.row(*places.get(width, (file, f"graph+select[show_top_k={width}]")))
        rows.append([str(width), NONE if row is None else f"{row['prompt_tokens']:,.0f}", format_cuts(row)])
    if file not in results.files:
        return ""
    return table(["passages shown in one call", "prompt tokens", "R@2 / 5 / 10 / 15"], rows)


def format_orders(results: Results, data: str) -> str:
    """Return a table of the orders in which the same passages are shown, and of other rerankers over them."""
    file = name_file(data, "orders")
    if file not in results.files:
        return ""
    rows = []
    for label, method in ORDERS.items():
        row = results.row(file, method)
        gain = NONE if row is None else format_gain(row.get("gain@5"))
        rows.append([label, *format_cells(row)[:3], gain])
    count = results.files[file]["conditions"]["questions"]
    head = [f"forty passages, {count} of the questions", "calls", "tokens", "R@2 / 5 / 10 / 15"]
    return table([*head, "R@5 against the first row, wins : losses, p"], rows)
