"""A trace as one self-contained page that needs no network, in a file or in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files

from llama_index_gear.characters import count
from llama_index_gear.llm.escaping import split_citations
from llama_index_gear.pages.page import fill_page
from llama_index_gear.trace.evidence import Evidence, Slots, Source, Step
from llama_index_gear.trace.fact_graph import Fact, collect_facts, render_graph
from llama_index_gear.trace.path import AnswerPath, PathBranch, PathFact, PathNode, find_answer_path
from llama_index_gear.trace.wording import (
    choose_linked_heading,
    format_check,
    format_fallback,
    format_place,
    format_shown,
    format_unknown,
    format_verification,
    list_open,
    list_supporting,
    name_needed,
)

_SLOT_LENGTH = 160  # characters of a fact's slot in a list
_MAX_OPEN = 3  # cited passages that are shown without a click, if there are no more


def to_html(trace: Evidence) -> str:
    """Return the page: the answer, the path to it with its passages, and folded below that all steps and facts."""
    facts, path = collect_facts(trace), find_answer_path(trace)
    data = {
        "facts": [
            {"slots": fact.slots, "step": fact.step, "kind": fact.kind, "passages": fact.passages} for fact in facts
        ],
        "titles": trace.titles,
    }
    cost = (
        f"{count(trace.llm_calls, 'call')} · {trace.prompt_tokens} + {trace.completion_tokens} tokens · "
        f"{trace.ms:.0f} ms · {trace.stopped}"
    )
    marks = {passage_id: f"[{number}] " for number, passage_id in trace.citations.items()}
    anchors = _list_anchors(trace)
    cited = {*trace.citations.values(), *trace.supporting}
    opened = cited if len(cited) <= _MAX_OPEN else set()
    main: list[str] = []
    others: list[str] = []
    for rank, source in enumerate(trace.passages, start=1):
        rendered = _render_passage(rank, source, facts, is_open=source.passage_id in opened)
        (main if source.passage_id in path.passages else others).append(rendered)

    def render_chip(passage_id: str) -> str:
        text = escape(marks.get(passage_id, "") + trace.titles.get(passage_id, passage_id))
        anchor = anchors.get(passage_id)
        return f"<a class='chip' href='#{anchor}'>{text}</a>" if anchor else f"<span class='chip'>{text}</span>"

    return fill_page(
        files("llama_index_gear.trace") / "page.html",
        data,
        title=escape(trace.question),
        warning=f"<p class='problem'>{escape(trace.warning)}</p>" if trace.warning else "",
        cost=escape(cost),
        answer=_render_answer(trace, anchors),
        legend=render_legend(path),
        path=render_path(path, render_chip),
        passages="".join(main) or "<p class='none'>None.</p>",
        others_count=str(len(others)),
        others="".join(others),
        steps_count=str(len(trace.steps)),
        steps="".join(_render_step(step, trace.titles) for step in trace.steps),
        facts_count=str(len(facts)),
        graph=render_graph(facts),
    )


def _list_anchors(trace: Evidence) -> dict[str, str]:
    """Return the id of the element of each passage that is on the page."""
    return {source.passage_id: f"passage-{rank}" for rank, source in enumerate(trace.passages, start=1)}


def _render_answer(trace: Evidence, anchors: Mapping[str, str]) -> str:
    """Return the answer; its citations lead to their passages on the page, and stand below it with their titles.

    Below them stands what T²RAG found out and what stayed open, and what the answer's verification came to.
    """
    links = {
        number: f"<a href='#{anchors[passage_id]}'>"
        for number, passage_id in trace.citations.items()
        if passage_id in anchors
    }
    answer = "".join(
        f"{links[str(number)]}{escape(part)}</a>" if str(number) in links else escape(part)
        for part, number in split_citations(trace.response or trace.answer)
    )
    titles = {source.passage_id: source.title for source in trace.passages}
    items = []
    for number, link in links.items():
        passage_id = trace.citations[number]
        named = [step for step in trace.steps if passage_id in (step.needed or ())]
        places = "".join(f", named in step {step.number}: {format_place(passage_id, step)}" for step in named)
        items.append(f"<li>{link}[{escape(number)}] {escape(titles[passage_id])}</a>{escape(places)}</li>")
    listed = f"<ul class='cited'>{''.join(items)}</ul>" if items else ""
    verified = _render_verification(trace, anchors) if trace.verification else ""
    said = f"<p class='answer'>{answer}</p>" if answer else "<p class='answer none'>No answer.</p>"
    return f"{said}{listed}{_render_clues(trace)}{verified}"


def _render_clues(trace: Evidence) -> str:
    """Return what T²RAG found out, and the clues that are open in the end; empty for another method."""
    values = "; ".join(f"{name} = {value}" for step in trace.steps for name, value in step.values.items())
    found = f"<p class='open'>Found out: {escape(values)}</p>" if values else ""
    return found + "".join(f"<p class='open problem'>Open: {escape(line)}</p>" for line in list_open(trace))


def _render_verification(trace: Evidence, anchors: Mapping[str, str]) -> str:
    """Return the supporting passages, with links to those that are on the page, and every check."""
    css = "verdict" if trace.supporting else "problem"
    items = "".join(
        f"<li><a href='#{anchors[passage_id]}'>{escape(title)}</a></li>"
        if passage_id in anchors
        else f"<li>{escape(title)}</li>"
        for passage_id, title in zip(trace.supporting, list_supporting(trace), strict=True)
    )
    listed = f"<ul class='supporting'>{items}</ul>" if items else ""
    checks = "".join(f"<li>{escape(format_check(check, trace.titles))}</li>" for check in trace.checks)
    summary = f"<summary>{len(trace.checks)} checks</summary>"
    folded = f"<details>{summary}<ol>{checks}</ol></details>" if checks else ""
    return f"<p class='{css}'>{escape(format_verification(trace))}</p>{listed}{folded}"


def to_frame(trace: Evidence) -> str:
    """Return the page in a frame of its own, for a notebook."""
    return (
        "<iframe sandbox='allow-scripts' style='width:100%;height:720px;border:1px solid #ccc' "
        f'srcdoc="{escape(to_html(trace))}"></iframe>'
    )


def _shorten(text: str) -> str:
    return text if len(text) <= _SLOT_LENGTH else text[: _SLOT_LENGTH - 1].rstrip() + "…"


def _render_list(name: str, facts: Iterable[Slots], css: str = "") -> str:
    items = "".join(f"<li>{_render_triple(slots)}</li>" for slots in facts)
    return f"<h3>{name}</h3><ul class='{css}'>{items}</ul>" if items else ""


def _render_folded_list(name: str, facts: Iterable[Slots]) -> str:
    items = "".join(f"<li>{_render_triple(slots)}</li>" for slots in facts)
    return f"<details><summary>{name}</summary><ol>{items}</ol></details>" if items else ""


def _render_triple(slots: Slots) -> str:
    subject, predicate, object_ = (escape(_shorten(slot)) for slot in slots)
    return f"<b>{subject}</b> <i>{predicate}</i> <b>{object_}</b>"


def _render_linked(step: Step) -> str:
    triples = [link.triple for link in step.linked]
    if step.clues:
        return _render_folded_list(f"{count(len(triples), 'triple')} found", triples)
    return _render_list(choose_linked_heading(step), triples)


def _render_misaligned(step: Step) -> str:
    items = "".join(f"<li>{_render_triple(link.fact)} ≠ {_render_triple(link.triple)}</li>" for link in step.misaligned)
    summary = f"{count(len(step.misaligned), 'link')} dropped"
    return f"<details><summary>{summary}</summary><ul>{items}</ul></details>" if items else ""


def _render_step(step: Step, titles: dict[str, str]) -> str:
    parts = [f"<section class='step s{(step.number - 1) % 4}'><h2>Step {step.number}</h2>"]
    parts.append(f"<p class='query'>{escape(step.query)}</p>")
    parts.append(_render_list("Noted in the base passages", step.proximal))
    parts.append(_render_linked(step))
    parts.append(_render_misaligned(step))
    if step.fallback:
        parts.append(f"<p class='problem'>{escape(format_fallback(step))}</p>")
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
        named = "".join(f"<li>{escape(name)}</li>" for name in name_needed(step, titles))
        parts.append(
            f"<h3>{format_shown(step)}</h3><ol>{named}</ol>" if named else "<p class='verdict no'>None named</p>"
        )
    parts.append(_render_list("Resolved" if step.clues else "New in the gist", step.gist, "gist"))
    parts.append(_render_list("Clues", [clue.triple for clue in step.clues if clue.state != "resolved"]))
    parts.extend(f"<p class='verdict no'>Open: {escape(format_unknown(unknown))}</p>" for unknown in step.open)
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


def _render_passage(rank: int, source: Source, facts: list[Fact], *, is_open: bool) -> str:
    numbers = [str(number) for number, fact in enumerate(facts) if source.passage_id in fact.passages]
    ranks = ", ".join(f"{name}: {place}" for name, place in source.ranks.items())
    chain = " → ".join(map(_render_triple, source.chain))
    return (
        f"<details class='passage'{' open' if is_open else ''} id='passage-{rank}' "
        f"data-passage='{escape(source.passage_id, quote=True)}' data-facts='{' '.join(numbers)}'>"
        f"<summary>{rank}. {escape(source.title)}</summary><p class='text'>{escape(source.text)}</p>"
        + (f"<p class='chain'><span class='found'>Triples that lead here:</span> {chain}</p>" if chain else "")
        + (f"<p class='ranks'>Its place in each list: {escape(ranks)}</p>" if ranks else "")
        + "</details>"
    )


RenderPassage = Callable[[str], str]
"""Returns a passage, given by its id, as a small box that leads to it."""


def render_path(path: AnswerPath, render_passage: RenderPassage) -> str:
    """Return the trees of a path, one below the other."""
    if not path.trees:
        return "<p class='none'>No facts were noted, and no stored triple leads to these passages.</p>"
    return "".join(f"<div class='tree'>{_render_node(node, '', render_passage)}</div>" for node in path.trees)


def render_legend(path: AnswerPath) -> str:
    """Return what the forms of a path mean, of those that occur in it."""
    nodes = list(_list_nodes(path.trees))
    kinds = {fact.is_noted for fact in path.facts}
    entries = {
        "<span class='box asked'>name</span> in the question": any(node.is_asked for node in nodes),
        "<span class='box answer'>name</span> in the answer": any(node.is_answer for node in nodes),
        "<span class='box repeat'>name</span> drawn elsewhere too": any(node.is_repeat for node in nodes),
        "<span class='key'></span> fact that the model noted, from subject to object": True in kinds,
        "<span class='key dashed'></span> stored triple that leads to a passage": False in kinds,
        "<span class='chip'>passage</span> where it was read": any(fact.passages for fact in path.facts),
    }
    shown = "".join(f"<span><span>{entry}</span></span>" for entry, occurs in entries.items() if occurs)
    return f"<div class='legend'>{shown}</div>" if shown else ""


def _list_nodes(nodes: Sequence[PathNode]) -> list[PathNode]:
    below = (_list_nodes([branch.node for branch in node.branches]) for node in nodes)
    return [*nodes, *(node for found in below for node in found)]


def _render_node(node: PathNode, arrow: str, render_passage: RenderPassage) -> str:
    """Return an entity's box, the end of the arrow that leads to it from the left, and all that is below it."""
    kinds = {"asked": node.is_asked, "answer": node.is_answer, "repeat": node.is_repeat}
    css = " ".join(["box", *(name for name, holds in kinds.items() if holds)])
    box = f"<div class='row'>{arrow}<span class='{css}'>{escape(node.name)}</span></div>"
    last = len(node.branches) - 1
    below = "".join(_render_branch(branch, at == last, render_passage) for at, branch in enumerate(node.branches))
    listed = f"<ul class='branches'>{below}</ul>" if below else ""
    return f"<div class='node'>{box}{listed}</div>"


def _render_branch(branch: PathBranch, is_trunk: bool, render_passage: RenderPassage) -> str:
    """Return a branch: straight down, if it is the last below its entity, else to the right."""
    directions = {leads_down for _, leads_down in branch.facts}
    css = "" if any(fact.is_noted for fact, _ in branch.facts) else " stored"
    lines = "".join(
        _render_fact(fact, ("↓ " if leads_down else "↑ ") if len(directions) > 1 else "", render_passage)
        for fact, leads_down in branch.facts
    )
    facts = f"<div class='facts'>{lines}</div>"
    forward, backward = ("down", "up") if is_trunk else ("out", "back")
    heads = "".join(
        f"<span class='head {name}'></span>"
        for name, is_there in ((forward, True), (backward, False))
        if is_there in directions
    )
    if is_trunk:
        link = f"<div class='link{css}'><span class='line'></span>{heads}{facts}</div>"
        return f"<li class='branch trunk'>{link}{_render_node(branch.node, '', render_passage)}</li>"
    node = _render_node(branch.node, f"<span class='elbow'></span>{heads}", render_passage)
    return f"<li class='branch side{css}'><span class='line'></span>{facts}{node}</li>"


def _render_fact(fact: PathFact, direction: str, render_passage: RenderPassage) -> str:
    passages = " ".join(map(render_passage, fact.passages))
    return f"<div class='fact-line'><i>{direction}{escape(fact.slots[1])}</i> {passages}</div>"
