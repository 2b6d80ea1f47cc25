"""A trace in a terminal, in a few lines."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from llama_index_gear.characters import count, escape_unseen
from llama_index_gear.trace.evidence import Evidence, Slots
from llama_index_gear.trace.path import find_answer_path, list_facts
from llama_index_gear.trace.wording import (
    format_fact,
    format_verification,
    list_open,
    list_supporting,
)

_PATH = "path: "
MAX_LINES = 25
"""Lines of a trace."""


def show(trace: Evidence, console: Console | None = None) -> None:
    """Print a trace in at most 25 lines."""
    console = console or Console()
    console.print(Text("\n").join(_build_summary(trace, console)), no_wrap=True, overflow="ellipsis")


def _build_summary(trace: Evidence, console: Console) -> list[Text]:
    """Return the lines of the summary. Each part has its share of them; the shares add up to 25."""
    marks = {passage_id: f"[{number}] " for number, passage_id in trace.citations.items()}

    def name(passage_id: str) -> str:
        return marks.get(passage_id, "") + trace.titles.get(passage_id, passage_id)

    facts = [
        _fit_fact(fact.slots, console.width - len(_PATH))
        + (f"  ({'; '.join(map(name, fact.passages))})" if fact.passages else "")
        for fact in list_facts(find_answer_path(trace).trees)
    ]
    cost = (
        f"{trace.stopped or 'not ended'}; {count(trace.llm_calls, 'call')}, {trace.prompt_tokens} + "
        f"{trace.completion_tokens} tokens, {trace.ms:.0f} ms"
    )
    verified = []
    if trace.verification:
        titles = "; ".join(list_supporting(trace))
        verified = [format_verification(trace) + (f": {titles}" if titles else "")]
    return [
        *_wrap(trace.question, "bold", 2, console),
        *_wrap(trace.warning, "yellow", 1, console),
        *_wrap(trace.response or trace.answer or "No answer.", "bold green", 4, console),
        *_list_lines([f"open: {line}" for line in list_open(trace)], "yellow", 2),
        *_list_lines([name(passage_id) for passage_id in marks], "", 3),
        *_list_lines(verified, "", 1),
        *_list_lines(facts, "", 6, _PATH),
        *_list_lines([f"step {step.number}: {step.query}" for step in trace.steps], "", 4),
        _to_text(cost, "dim"),
        _to_text("trace.to_html(path) draws a page, with every step", "dim"),
    ]


def _fit_fact(slots: Slots, width: int) -> str:
    """Return a fact that takes a line of this width; the signs of some scripts are two places wide."""
    fact = format_fact(slots)
    return format_fact(slots, width - cell_len(fact) + len(fact))


def _to_text(line: str, style: str) -> Text:
    """Return a line of text: white space collapsed, no markup, and escaped what can't be seen."""
    return Text(escape_unseen(" ".join(line.split())), style)


def _wrap(text: str, style: str, most: int, console: Console) -> list[Text]:
    """Wrap a text into lines; what is beyond `most` lines stands behind the last, which the console cuts."""
    whole = _to_text(text, style)
    lines = list(whole.wrap(console, console.width))
    if len(lines) <= most:
        return lines if text else []
    return [*lines[: most - 1], Text(" ").join(lines[most - 1 :])]


def _list_lines(lines: list[str], style: str, most: int, prefix: str = "") -> list[Text]:
    """Return a line for each, at most so many; the last one counts those that are left out."""
    if len(lines) > most:
        lines = [*lines[: most - 1], f"… {len(lines) - most + 1} more"]
    return [_to_text(f"{prefix}{line}", style) for line in lines]
