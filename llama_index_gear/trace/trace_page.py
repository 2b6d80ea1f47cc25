"""A trace in a terminal, in a few lines, and as one self-contained page, in a file or in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from llama_index_gear.characters import count, escape_unseen
from llama_index_gear.llm.escaping import split_citations
from llama_index_gear.nodes import shorten, shorten_predicate
from llama_index_gear.trace.evidence import Check, Evidence, Slots, Step, Unknown
from llama_index_gear.trace.graph_page import fill_page
from llama_index_gear.trace.path import PathNode, find_answer_path, list_facts

_PATH = "path: "
_MAX_OPEN = 3  # cited passages that are shown without a click, if there are no more
_PREDICATE = 60  # characters of a predicate
_LEAST = 10  # characters that a subject and a predicate keep in a line
_DASH = " — "


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


def to_html(trace: Evidence) -> str:
    """Return the page: the answer, the path to it with its passages, and folded below that all steps."""
    path = find_answer_path(trace)
    cited = {*trace.citations.values(), *trace.supporting}
    opened = cited if len(cited) <= _MAX_OPEN else set()
    passages = [
        {
            "rank": rank,
            "source": source,
            "is_main": source.passage_id in path.passages,
            "is_open": source.passage_id in opened,
        }
        for rank, source in enumerate(trace.passages, start=1)
    ]
    return fill_page(
        "trace/page.html",
        title=trace.question,
        trace=trace,
        cost=f"{count(trace.llm_calls, 'call')} · {trace.prompt_tokens} + {trace.completion_tokens} tokens · "
        f"{trace.ms:.0f} ms · {trace.stopped}",
        answer=[
            (part, trace.citations.get(str(number)))
            for part, number in split_citations(trace.response or trace.answer)
            if part
        ],
        titles={source.passage_id: source.title for source in trace.passages},
        values="; ".join(f"{name} = {value}" for step in trace.steps for name, value in step.values.items()),
        path=path,
        nodes=_list_nodes(path.trees),
        passages=passages,
        anchors={source.passage_id: f"passage-{rank}" for rank, source in enumerate(trace.passages, start=1)},
        marks={passage_id: f"[{number}] " for number, passage_id in trace.citations.items()},
        name_all=lambda ids: [trace.titles.get(passage_id, passage_id) for passage_id in ids],
        wording=_WORDING,
        count=count,
    )


def _list_nodes(nodes: Sequence[PathNode]) -> list[PathNode]:
    below = (_list_nodes([branch.node for branch in node.branches]) for node in nodes)
    return [*nodes, *(node for found in below for node in found)]


def to_frame(trace: Evidence) -> str:
    """Return the page in a frame of its own, for a notebook."""
    return (
        "<iframe sandbox='allow-scripts' style='width:100%;height:720px;border:1px solid #ccc' "
        f'srcdoc="{escape(to_html(trace))}"></iframe>'
    )


# -- the words of both ------------------------------------------------------------------------------------------------


def format_fact(slots: Sequence[str], width: int | None = None) -> str:
    """Return a fact; a predicate that is a whole sentence is shortened to what stands between the two names.

    Args:
        slots: subject, predicate and object.
        width: characters that the line has. The predicate gives way first, then the subject. Default: no limit.

    """
    subject, _, object_ = (" ".join(slot.split()) for slot in slots)
    if width is None:
        return _DASH.join((subject, shorten_predicate(slots, _PREDICATE), object_))
    room = max(width - 2 * len(_DASH), 3 * _LEAST)
    object_ = shorten(object_, room - 2 * _LEAST)
    subject = shorten(subject, room - len(object_) - _LEAST)
    predicate = shorten_predicate(slots, min(_PREDICATE, room - len(object_) - len(subject)))
    return _DASH.join((subject, predicate, object_))


def format_verification(trace: Evidence) -> str:
    """Return what the verification came to, as a heading of the supporting passages."""
    if trace.verification == "unsupported":
        return "The answer does not follow from its passages"
    ended = "" if trace.verification == "supported" else f" (not checked to the end: {trace.verification})"
    if trace.supporting:
        return f"The answer still follows from these passages alone{ended}"
    return f"The answer was not verified: {trace.verification}"


def list_supporting(trace: Evidence) -> list[str]:
    """Return the titles of the supporting passages."""
    return [trace.titles.get(passage_id, passage_id) for passage_id in trace.supporting]


def format_check(check: Check, titles: dict[str, str]) -> str:
    """Return a check of the answer: the passages, and the verdict."""
    names = [titles.get(passage_id, passage_id) for passage_id in check.passages]
    what = f"Without “{titles.get(check.without, check.without)}”" if check.without else f"From {'; '.join(names)}"
    if check.follows is None:
        return f"{what}: no verdict, {check.problem}"
    verdict = "follows" if check.follows else "does not follow"
    return f"{what}: {verdict}" + (f". {check.missing}" if check.missing else "")


def name_needed(step: Step, titles: dict[str, str]) -> list[str]:
    """Return the titles of the passages that the reader named, each with its place among those that were found."""
    return [
        f"{titles.get(passage_id, passage_id)} ({format_place(passage_id, step)})" for passage_id in step.needed or ()
    ]


def format_place(passage_id: str, step: Step) -> str:
    """Return a passage's place among those that a step found."""
    return f"place {step.passages.index(passage_id) + 1} of the {len(step.passages)} found"


def format_shown(step: Step) -> str:
    """Return the heading of the passages that the reader named."""
    shortened = f", {len(step.shortened)} of them shortened" if step.shortened else ""
    return f"Named as needed, of {step.shown} shown{shortened}"


def choose_linked_heading(step: Step) -> str:
    """Return the heading of the stored triples that a step found."""
    return "Triples found" if step.clues else "Linked to"


def format_fallback(step: Step) -> str:
    """Return why a step searched in another way."""
    return step.fallback if step.clues or not step.linked else f"From the base passages' own triples: {step.fallback}"


def format_unknown(unknown: Unknown) -> str:
    """Return an open unknown: since when, and the searches for it."""
    origin = f"since round {unknown.round}" if unknown.round else "from the first"
    tried = "; ".join(unknown.tried)
    return f"{unknown.name}, {origin}" + (f", tried: {tried}" if tried else "")


def list_open(trace: Evidence) -> list[str]:
    """Return what T²RAG did not find out: the clues without a value, and the unknowns in none of them."""
    rounds = [step for step in trace.steps if step.clues]
    if not rounds:
        return []
    last = rounds[-1]
    clues = [" — ".join(clue.triple) for clue in last.clues if clue.state in ("searchable", "fuzzy")]
    return clues + [format_unknown(unknown) for unknown in last.open if not any(unknown.name in clue for clue in clues)]


_WORDING = {
    function.__name__: function
    for function in (
        choose_linked_heading,
        format_check,
        format_fallback,
        format_shown,
        shorten_predicate,
        format_unknown,
        format_verification,
        list_open,
        list_supporting,
        name_needed,
    )
}
"""The functions that the template of the page calls."""
