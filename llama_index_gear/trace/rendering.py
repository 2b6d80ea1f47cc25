"""Rendering of a trace: in a terminal, in a notebook, or as one self-contained page that needs no network."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from string import Template

from rich import markup
from rich.console import Console
from rich.tree import Tree

from llama_index_gear.llm.prompting import split_citations
from llama_index_gear.trace.evidence import Check, Evidence, Slots, Source, Step, Unknown
from llama_index_gear.triple import entity_key

_ROW_HEIGHT = 30  # pixels between two entities of a column
_COLUMN_WIDTH = 220  # pixels between two columns
_LABEL_LENGTH = 24  # characters of an entity's label
_BIDI_CONTROLS = "\u202a-\u202e\u2066-\u2069"  # reverse the direction of the text behind them
_CONTROL = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_BIDI_CONTROLS}]")
_MAX_SHOWN = 10  # passages, and facts of a kind, in the terminal


@dataclass
class _Entity:
    name: str
    column: int
    row: int = 0


@dataclass
class _Fact:
    """An edge of the graph: a stored triple with its passages, or a fact of the gist, which may have none.

    Attributes:
        slots: subject, predicate, object.
        step: the first step that has it.
        kind: "gist" for a fact that the model noted, "walked" for a triple of the beam search.
        passages: ids of the passages that state it.

    """

    slots: Slots
    step: int
    kind: str
    passages: list[str] = field(default_factory=list)


def show(trace: Evidence, console: Console | None = None) -> None:
    """Print a trace as a tree."""
    tree = Tree(f"[bold]{_escape_markup(trace.question)}[/bold]")
    if trace.warning:
        tree.add(f"[yellow]{_escape_markup(trace.warning)}[/yellow]")
    for step in trace.steps:
        _add_step(tree.add(f"[bold]step {step.number}[/bold]  {_escape_markup(step.query)}"), step, trace.titles)
    passages = tree.add(f"[bold]passages[/bold] ({_escape_markup(trace.stopped)})")
    for rank, source in enumerate(trace.passages[:_MAX_SHOWN], start=1):
        ranks = ", ".join(f"{name}: {place}" for name, place in source.ranks.items())
        branch = passages.add(f"{rank}. {_escape_markup(source.title)}  [dim]{ranks}[/dim]")
        if source.chain:
            branch.add(_format_facts(source.chain))
    if answer := trace.response or trace.answer:
        _add_verification(tree.add(f"[bold green]{_escape_markup(answer)}[/bold green]"), trace)
    tree.add(
        f"[dim]{trace.llm_calls} calls, {trace.prompt_tokens} + {trace.completion_tokens} tokens, "
        f"{trace.ms:.0f} ms[/dim]"
    )
    (console or Console()).print(tree)


def _add_verification(branch: Tree, trace: Evidence) -> None:
    if trace.verification:
        titles = "; ".join(_list_supporting(trace))
        branch.add(_escape_markup(_format_verification(trace) + (f": {titles}" if titles else "")))
    for check in trace.checks:
        branch.add(f"[dim]{_escape_markup(_format_check(check, trace.titles))}[/dim]")


def _format_verification(trace: Evidence) -> str:
    """Return what the verification came to, as a heading of the supporting passages."""
    if trace.verification == "unsupported":
        return "The answer does not follow from its passages"
    ended = "" if trace.verification == "supported" else f" (not checked to the end: {trace.verification})"
    if trace.supporting:
        return f"The answer still follows from these passages alone{ended}"
    return f"The answer was not verified: {trace.verification}"


def _list_supporting(trace: Evidence) -> list[str]:
    return [trace.titles.get(passage_id, passage_id) for passage_id in trace.supporting]


def _format_check(check: Check, titles: dict[str, str]) -> str:
    names = [titles.get(passage_id, passage_id) for passage_id in check.passages]
    what = f"Without “{titles.get(check.without, check.without)}”" if check.without else f"From {'; '.join(names)}"
    if check.follows is None:
        return f"{what}: no verdict, {check.problem}"
    verdict = "follows" if check.follows else "does not follow"
    return f"{what}: {verdict}" + (f". {check.missing}" if check.missing else "")


def _escape_markup(text: str) -> str:
    """Escape text of passages and models for the terminal: no markup, no control characters."""
    return markup.escape(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", text))


def _add_walk(branch: Tree, step: Step, titles: dict[str, str]) -> None:
    for beam in step.beams[:3]:
        passages = " → ".join(_escape_markup(titles.get(passage_id, passage_id)) for passage_id in beam.passage_ids)
        branch.add(f"beam {beam.score:.2f}: {_format_facts(beam.chain)}  [dim]{passages}[/dim]")
    if step.pagerank:
        passages = ", ".join(_escape_markup(titles.get(passage_id, passage_id)) for passage_id in step.pagerank[:3])
        branch.add(f"PageRank: [dim]{passages}[/dim]")


def _add_step(branch: Tree, step: Step, titles: dict[str, str]) -> None:
    for heading, facts in (("noted", step.proximal), (_linked_heading(step), [link.triple for link in step.linked])):
        if facts:
            branch.add(f"{heading.lower()}: {_format_facts(facts)}")
    for link in step.misaligned[:_MAX_SHOWN]:
        branch.add(f"[dim]dropped link: {_format_facts([link.fact])} ≠ {_format_facts([link.triple])}[/dim]")
    if step.fallback:
        branch.add(f"[yellow]{_escape_markup(_format_fallback(step))}[/yellow]")
    _add_walk(branch, step, titles)
    if step.needed is not None:
        named = _escape_markup("; ".join(_name_needed(step, titles)))
        branch.add(f"[bold]{_format_shown(step)}[/bold]: {named or 'none'}")
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


def _name_needed(step: Step, titles: dict[str, str]) -> list[str]:
    """Return the titles of the passages that the reader named, each with its place among those that were found."""
    return [f"{titles.get(passage_id, passage_id)} ({_place(passage_id, step)})" for passage_id in step.needed or ()]


def _place(passage_id: str, step: Step) -> str:
    return f"{step.passages.index(passage_id) + 1} of {len(step.passages)}"


def _format_shown(step: Step) -> str:
    shortened = f", {len(step.shortened)} of them shortened" if step.shortened else ""
    return f"Named as needed, of {step.shown} shown{shortened}"


def _add_clues(branch: Tree, step: Step) -> None:
    for clue in step.clues:
        if clue.state != "resolved":
            branch.add(f"{clue.state}: {_format_facts([clue.triple])}")
    for unknown in step.open:
        branch.add(f"[yellow]open: {_escape_markup(_format_unknown(unknown))}[/yellow]")


def _linked_heading(step: Step) -> str:
    return "Triples found" if step.clues else "Linked to"


def _format_fallback(step: Step) -> str:
    return step.fallback if step.clues or not step.linked else f"From the base passages' own triples: {step.fallback}"


def _format_unknown(unknown: Unknown) -> str:
    origin = f"since round {unknown.round}" if unknown.round else "from the first"
    tried = "; ".join(unknown.tried)
    return f"{unknown.name}, {origin}" + (f", tried: {tried}" if tried else "")


def _format_facts(facts: Iterable[Slots]) -> str:
    texts = [" — ".join(slots) for slots in facts]
    more = f"; … {len(texts) - _MAX_SHOWN} more" if len(texts) > _MAX_SHOWN else ""
    return _escape_markup("; ".join(texts[:_MAX_SHOWN]) + more)


def to_html(trace: Evidence) -> str:
    """Return the page: steps from left to right, facts as a graph, passages with their chains."""
    facts = _collect_facts(trace)
    entities = _place_entities(facts)
    data = {
        "facts": [
            {"slots": fact.slots, "step": fact.step, "kind": fact.kind, "passages": fact.passages} for fact in facts
        ],
        "titles": trace.titles,
    }
    cost = (
        f"{trace.llm_calls} calls · {trace.prompt_tokens} + {trace.completion_tokens} tokens · {trace.ms:.0f} ms · "
        f"{trace.stopped}"
    )
    template = Template((files("llama_index_gear.trace") / "page.html").read_text("utf-8"))
    page = template.substitute(
        title=escape(trace.question),
        warning=f"<p class='problem'>{escape(trace.warning)}</p>" if trace.warning else "",
        cost=escape(cost),
        answer=_render_answer(trace),
        steps="".join(_render_step(step, trace.titles) for step in trace.steps),
        graph=_render_graph(facts, entities),
        passages="".join(_render_passage(rank, source, facts) for rank, source in enumerate(trace.passages, start=1)),
        # "<" could end the script element that the data stands in.
        data=json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"),
    )
    return re.sub(f"[{_BIDI_CONTROLS}]", "\N{REPLACEMENT CHARACTER}", page)


def _render_answer(trace: Evidence) -> str:
    """Return the answer; its citations lead to their passages on the page, and stand below it with their titles.

    Below them stands what the answer's verification came to.
    """
    anchors = {source.passage_id: f"<a href='#passage-{rank}'>" for rank, source in enumerate(trace.passages, start=1)}
    links = {number: anchors[passage_id] for number, passage_id in trace.citations.items() if passage_id in anchors}
    answer = "".join(
        f"{links[str(number)]}{escape(part)}</a>" if str(number) in links else escape(part)
        for part, number in split_citations(trace.response or trace.answer)
    )
    titles = {source.passage_id: source.title for source in trace.passages}
    items = []
    for number, link in links.items():
        passage_id = trace.citations[number]
        named = [step for step in trace.steps if passage_id in (step.needed or ())]
        places = "".join(f", named in step {step.number}: {_place(passage_id, step)}" for step in named)
        items.append(f"<li>{link}[{escape(number)}]</a> {escape(titles[passage_id] + places)}</li>")
    listed = f"<ul class='cited'>{''.join(items)}</ul>" if items else ""
    verified = _render_verification(trace, anchors) if trace.verification else ""
    return f"<p class='answer'>{answer}</p>{listed}{verified}" if answer else ""


def _render_verification(trace: Evidence, anchors: dict[str, str]) -> str:
    """Return the supporting passages, with links to those that are on the page, and every check."""
    css = "verdict" if trace.supporting else "problem"
    items = "".join(
        f"<li>{anchors[passage_id]}{escape(title)}</a></li>" if passage_id in anchors else f"<li>{escape(title)}</li>"
        for passage_id, title in zip(trace.supporting, _list_supporting(trace), strict=True)
    )
    listed = f"<ul class='supporting'>{items}</ul>" if items else ""
    checks = "".join(f"<li>{escape(_format_check(check, trace.titles))}</li>" for check in trace.checks)
    summary = f"<summary>{len(trace.checks)} checks</summary>"
    folded = f"<details>{summary}<ol>{checks}</ol></details>" if checks else ""
    return f"<p class='{css}'>{escape(_format_verification(trace))}</p>{listed}{folded}"


def to_frame(trace: Evidence) -> str:
    """Return the page in a frame of its own, for a notebook."""
    return (
        "<iframe sandbox='allow-scripts' style='width:100%;height:720px;border:1px solid #ccc' "
        f'srcdoc="{escape(to_html(trace))}"></iframe>'
    )


def _fact_key(slots: Slots) -> tuple[str, ...]:
    return tuple(entity_key(slot) for slot in slots)


def _collect_facts(trace: Evidence) -> list[_Fact]:
    """Return the facts of all steps, in order, without repetition; one that was walked and noted counts as noted."""
    facts: dict[tuple[str, ...], _Fact] = {}
    for step in trace.steps:
        walked = [(link.triple, link.passage_id) for link in step.linked]
        walked += [
            (slots, passage_id)
            for beam in step.beams
            for slots, passage_id in zip(beam.chain, beam.passage_ids, strict=True)
        ]
        for slots, passage_id in walked:
            fact = facts.setdefault(_fact_key(slots), _Fact(slots, step.number, "walked"))
            if passage_id and passage_id not in fact.passages:
                fact.passages.append(passage_id)
        for slots in step.gist:
            facts.setdefault(_fact_key(slots), _Fact(slots, step.number, "gist")).kind = "gist"
    return list(facts.values())


def _place_entities(facts: list[_Fact]) -> dict[str, _Entity]:
    """Place entities in the graph: entity key → entity.

    The column follows from the step of an entity's first fact, and from its end of that fact; each column is filled
    row by row.
    """
    entities: dict[str, _Entity] = {}
    for fact in facts:
        for end, name in enumerate((fact.slots[0], fact.slots[2])):
            entities.setdefault(entity_key(name), _Entity(name, 2 * (fact.step - 1) + end))
    rows: dict[int, int] = {}
    used_columns = sorted({entity.column for entity in entities.values()})
    columns = {column: position for position, column in enumerate(used_columns)}
    for entity in entities.values():
        entity.column = columns[entity.column]
        entity.row = rows.get(entity.column, 0)
        rows[entity.column] = entity.row + 1
    return entities


def _shorten(text: str, length: int = _LABEL_LENGTH) -> str:
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def _label_width(name: str) -> int:
    return 14 + 7 * len(_shorten(name))


def _render_graph(facts: list[_Fact], entities: dict[str, _Entity]) -> str:
    if not facts:
        return "<p class='none'>No facts.</p>"
    width = _COLUMN_WIDTH * (1 + max(entity.column for entity in entities.values()))
    height = _ROW_HEIGHT * (2 + max(entity.row for entity in entities.values()))

    def locate(name: str) -> tuple[int, int]:
        entity = entities[entity_key(name)]
        return 20 + _COLUMN_WIDTH * entity.column, 20 + _ROW_HEIGHT * entity.row

    parts = []
    for number, fact in enumerate(facts):
        (x1, y1), (x2, y2) = locate(fact.slots[0]), locate(fact.slots[2])
        # A line starts or ends behind the label that stands on its side of the dot, so that it does not cross it.
        x1 += _label_width(fact.slots[0]) if x1 < x2 else 0
        x2 += _label_width(fact.slots[2]) if x1 > x2 else 0
        if x1 == x2:  # within a column: a curve to the left
            bend = f"C {x1 - 20} {y1}, {x1 - 20} {y2}"
        else:
            bend = f"C {(x1 + x2) // 2} {y1}, {(x1 + x2) // 2} {y2}"
        parts.append(
            f"<g class='fact {fact.kind} s{(fact.step - 1) % 4}' data-fact='{number}' tabindex='0' role='button'>"
            f"<title>{escape(' — '.join(fact.slots))}</title>"
            f"<path class='touch' d='M {x1} {y1} {bend}, {x2} {y2}'/><path d='M {x1} {y1} {bend}, {x2} {y2}'/></g>"
        )
    for entity in entities.values():
        x, y = 20 + _COLUMN_WIDTH * entity.column, 20 + _ROW_HEIGHT * entity.row
        parts.append(
            f"<g class='entity' data-entity='{escape(entity_key(entity.name), quote=True)}'>"
            f"<title>{escape(entity.name)}</title><circle cx='{x}' cy='{y}' r='5'/>"
            f"<text x='{x + 9}' y='{y + 4}'>{escape(_shorten(entity.name))}</text></g>"
        )
    return f"<svg width='{width}' height='{height}' viewBox='0 0 {width} {height}'>{''.join(parts)}</svg>"


def _render_list(name: str, facts: Iterable[Slots], css: str = "") -> str:
    items = "".join(f"<li>{_render_triple(slots)}</li>" for slots in facts)
    return f"<h3>{name}</h3><ul class='{css}'>{items}</ul>" if items else ""


def _render_folded_list(name: str, facts: Iterable[Slots]) -> str:
    items = "".join(f"<li>{_render_triple(slots)}</li>" for slots in facts)
    return f"<details><summary>{name}</summary><ol>{items}</ol></details>" if items else ""


def _render_triple(slots: Slots) -> str:
    subject, predicate, object_ = (escape(_shorten(slot, 160)) for slot in slots)
    return f"<b>{subject}</b> <i>{predicate}</i> <b>{object_}</b>"


def _render_linked(step: Step) -> str:
    triples = [link.triple for link in step.linked]
    if step.clues:
        return _render_folded_list(f"{len(triples)} triples found", triples)
    return _render_list(_linked_heading(step), triples)


def _render_misaligned(step: Step) -> str:
    items = "".join(f"<li>{_render_triple(link.fact)} ≠ {_render_triple(link.triple)}</li>" for link in step.misaligned)
    summary = f"{len(step.misaligned)} links dropped"
    return f"<details><summary>{summary}</summary><ul>{items}</ul></details>" if items else ""


def _render_step(step: Step, titles: dict[str, str]) -> str:
    parts = [f"<section class='step s{(step.number - 1) % 4}'><h2>Step {step.number}</h2>"]
    parts.append(f"<p class='query'>{escape(step.query)}</p>")
    parts.append(_render_list("Noted in the base passages", step.proximal))
    parts.append(_render_linked(step))
    parts.append(_render_misaligned(step))
    if step.fallback:
        parts.append(f"<p class='problem'>{escape(_format_fallback(step))}</p>")
    beams = "".join(
        f"<li><span class='score'>{beam.score:.2f}</span> {' → '.join(map(_render_triple, beam.chain))}</li>"
        for beam in step.beams
    )
    if beams:
        parts.append(f"<details><summary>{len(step.beams)} beams</summary><ol>{beams}</ol></details>")
    for heading, ids in (("by PageRank", step.pagerank), ("passages", step.passages)):
        titled = "".join(f"<li>{escape(titles.get(passage_id, passage_id))}</li>" for passage_id in ids)
        if titled:
            parts.append(f"<details><summary>{len(ids)} {heading}</summary><ol>{titled}</ol></details>")
    if step.needed is not None:
        named = "".join(f"<li>{escape(name)}</li>" for name in _name_needed(step, titles))
        parts.append(
            f"<h3>{_format_shown(step)}</h3><ol>{named}</ol>" if named else "<p class='verdict no'>None named</p>"
        )
    parts.append(_render_list("Resolved" if step.clues else "New in the gist", step.gist, "gist"))
    parts.append(_render_list("Clues", [clue.triple for clue in step.clues if clue.state != "resolved"]))
    parts.extend(f"<p class='verdict no'>Open: {escape(_format_unknown(unknown))}</p>" for unknown in step.open)
    parts.extend(f"<p class='problem'>{escape(problem)}</p>" for problem in step.problems)
    if step.answerable:
        parts.append(f"<p class='verdict yes'>{escape(step.answer or 'Answerable')}</p>")
    elif step.answerable is not None:
        parts.append(f"<p class='verdict no'>{escape(step.reason or 'Not answerable yet')}</p>")
    if step.ranked is not None:
        kept = "".join(f"<li>{escape(titles.get(passage_id, passage_id))}</li>" for passage_id in step.ranked)
        parts.append(f"<h3>Kept by the filter</h3><ol>{kept}</ol>" if kept else "<p class='verdict no'>None kept</p>")
    if step.next_query:
        parts.append(f"<p class='next'>→ {escape(step.next_query)}</p>")
    return "".join([*parts, "</section>"])


def _render_passage(rank: int, source: Source, facts: list[_Fact]) -> str:
    numbers = [str(number) for number, fact in enumerate(facts) if source.passage_id in fact.passages]
    ranks = ", ".join(f"{name}: {place}" for name, place in source.ranks.items())
    chain = f"<p class='chain'>{' → '.join(map(_render_triple, source.chain))}</p>" if source.chain else ""
    text = f"<p class='text'>{escape(source.text)}</p>"
    return (
        f"<details class='passage' id='passage-{rank}' data-passage='{escape(source.passage_id, quote=True)}' "
        f"data-facts='{' '.join(numbers)}'><summary>{rank}. {escape(source.title)} "
        f"<span class='ranks'>{escape(ranks)}</span></summary>{chain}{text}</details>"
    )
