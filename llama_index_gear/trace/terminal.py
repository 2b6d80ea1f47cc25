"""A trace in a terminal: in a few lines, or as a tree of everything."""

from __future__ import annotations

from collections.abc import Iterable

from rich import markup
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from llama_index_gear.characters import count, escape_unseen
from llama_index_gear.trace.evidence import Evidence, Slots, Step
from llama_index_gear.trace.path import find_answer_path, list_facts
from llama_index_gear.trace.wording import (
    choose_linked_heading,
    format_check,
    format_fact,
    format_fallback,
    format_shown,
    format_unknown,
    format_verification,
    list_open,
    list_supporting,
    name_needed,
)

_PATH = "path: "
_MAX_SHOWN = 10  # passages, and facts of a kind, of a step
MAX_LINES = 25
"""Lines of a trace that is not shown in full."""


def show(trace: Evidence, console: Console | None = None, *, full: bool = False) -> None:
    """Print a trace in at most 25 lines, or (full) as a tree of everything."""
    console = console or Console()
    if full:
        console.print(_build_tree(trace))
    else:
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
        _to_text("trace.show(full=True) prints every step, trace.to_html(path) draws a page", "dim"),
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


def _build_tree(trace: Evidence) -> Tree:
    tree = Tree(f"[bold]{_escape_markup(trace.question)}[/bold]")
    if trace.warning:
        tree.add(f"[yellow]{_escape_markup(trace.warning)}[/yellow]")
    for step in trace.steps:
        _add_step(tree.add(f"[bold]step {step.number}[/bold]  {_escape_markup(step.query)}"), step, trace.titles)
    passages = tree.add(f"[bold]passages[/bold] ({_escape_markup(trace.stopped)})")
    for rank, source in enumerate(trace.passages[:_MAX_SHOWN], start=1):
        ranks = ", ".join(f"{name}: {place}" for name, place in source.ranks.items())
        branch = passages.add(f"{rank}. {_escape_markup(source.title)}  [dim]{_escape_markup(ranks)}[/dim]")
        if source.chain:
            branch.add(_format_facts(source.chain))
    if answer := trace.response or trace.answer:
        _add_verification(tree.add(f"[bold green]{_escape_markup(answer)}[/bold green]"), trace)
    tree.add(
        f"[dim]{count(trace.llm_calls, 'call')}, {trace.prompt_tokens} + {trace.completion_tokens} tokens, "
        f"{trace.ms:.0f} ms[/dim]"
    )
    return tree


def _add_verification(branch: Tree, trace: Evidence) -> None:
    if trace.verification:
        titles = "; ".join(list_supporting(trace))
        branch.add(_escape_markup(format_verification(trace) + (f": {titles}" if titles else "")))
    for check in trace.checks:
        branch.add(f"[dim]{_escape_markup(format_check(check, trace.titles))}[/dim]")


def _escape_markup(text: str) -> str:
    """Escape text of passages and models for the terminal: markup, and what can't be seen."""
    return markup.escape(escape_unseen(text))


def _add_walk(branch: Tree, step: Step, titles: dict[str, str]) -> None:
    for beam in step.beams[:3]:
        passages = " → ".join(_escape_markup(titles.get(passage_id, passage_id)) for passage_id in beam.passage_ids)
        branch.add(f"beam {beam.score:.2f}: {_format_facts(beam.chain)}  [dim]{passages}[/dim]")
    if step.pagerank:
        passages = ", ".join(_escape_markup(titles.get(passage_id, passage_id)) for passage_id in step.pagerank[:3])
        branch.add(f"PageRank: [dim]{passages}[/dim]")


def _add_step(branch: Tree, step: Step, titles: dict[str, str]) -> None:
    for heading, facts in (
        ("noted", step.proximal),
        (choose_linked_heading(step), [link.triple for link in step.linked]),
    ):
        if facts:
            branch.add(f"{heading.lower()}: {_format_facts(facts)}")
    for link in step.misaligned[:_MAX_SHOWN]:
        branch.add(f"[dim]dropped link: {_format_facts([link.fact])} ≠ {_format_facts([link.triple])}[/dim]")
    if step.fallback:
        branch.add(f"[yellow]{_escape_markup(format_fallback(step))}[/yellow]")
    _add_walk(branch, step, titles)
    if step.needed is not None:
        named = _escape_markup("; ".join(name_needed(step, titles)))
        branch.add(f"[bold]{format_shown(step)}[/bold]: {named or 'none'}")
    if step.gist:
        branch.add(f"[bold]{'resolved' if step.clues else 'gist'}[/bold]: {_format_facts(step.gist)}")
    _add_clues(branch, step)
    for problem in step.problems:
        branch.add(f"[yellow]{_escape_markup(problem)}[/yellow]")
    if step.answerable is not None:
        answer = f"answered: {_escape_markup(step.answer)}" if step.answer else "the facts suffice"
        branch.add(answer if step.answerable else _escape_markup(step.reason or "open"))
    if step.ranked is not None:
        kept = "; ".join(_escape_markup(titles.get(passage_id, passage_id)) for passage_id in step.ranked[:_MAX_SHOWN])
        branch.add(f"[bold]filter[/bold] keeps: {kept or 'none'}")


def _add_clues(branch: Tree, step: Step) -> None:
    for clue in step.clues:
        if clue.state != "resolved":
            branch.add(f"{clue.state}: {_format_facts([clue.triple])}")
    for unknown in step.open:
        branch.add(f"[yellow]open: {_escape_markup(format_unknown(unknown))}[/yellow]")


def _format_facts(facts: Iterable[Slots]) -> str:
    texts = [" — ".join(slots) for slots in facts]
    more = f"; … {len(texts) - _MAX_SHOWN} more" if len(texts) > _MAX_SHOWN else ""
    return _escape_markup("; ".join(texts[:_MAX_SHOWN]) + more)
