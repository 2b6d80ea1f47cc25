"""The path to an answer, drawn as boxes and arrows in HTML that wraps in a narrow window. `style.css` places them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from llama_index_gear.trace.path import AnswerPath, PathBranch, PathFact, PathNode

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
