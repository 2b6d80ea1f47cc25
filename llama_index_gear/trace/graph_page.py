"""Pages that need no network: the frame that all share, and the page of a graph.

The frame is a template and the style. The page of a graph shows an entity, its neighbors and their passages, as a
picture and as a list, to be walked from name to name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from llama_index.core.schema import BaseNode, MetadataMode

from llama_index_gear.characters import count
from llama_index_gear.nodes import name_passage, split_link
from llama_index_gear.triple import StoredTriple, entity_key

_BIDI_CONTROL = re.compile("[\u202a-\u202e\u2066-\u2069]")  # it reverses the direction of the text behind it
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
_TEMPLATES = Environment(
    loader=PackageLoader("llama_index_gear", ""), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
)
_TEMPLATES.policies["json.dumps_kwargs"] = {"ensure_ascii": False}


def fill_page(template: str, **parts: Any) -> str:
    """Return the page that a template and its parts make. It loads nothing, and sends nothing.

    Args:
        template: the file in this package. `policy` and `style` in it are filled in, beside the parts.
        **parts: values by name. Text in them is escaped.

    """
    style = (files("llama_index_gear.trace") / "style.css").read_text("utf-8")
    page = _TEMPLATES.get_template(template).render(parts, policy=_POLICY, style=style)
    return _BIDI_CONTROL.sub("\N{REPLACEMENT CHARACTER}", page)


@dataclass(frozen=True)
class Neighborhood:
    """A part of a graph: the triples that surround an entity.

    Attributes:
        start: the entity's key.
        triples: those that were read, the nearest first.
        whole: keys of the entities all of whose triples were read.
        passages: those that state the triples.

    """

    start: str
    triples: Sequence[StoredTriple]
    whole: frozenset[str]
    passages: Sequence[BaseNode]


def render_graph(part: Neighborhood) -> str:
    """Return the page of a part of a graph. It needs no network."""
    data = _build_data(part)
    triples, names = count(len(part.triples), "triple"), count(len(data["entities"]), "name")
    passages = count(len(data["passages"]), "passage")
    is_whole = all(entity["whole"] for entity in data["entities"])
    part_of = "" if is_whole else "a part of "
    title = data["entities"][data["start"]]["name"]
    return fill_page(
        "trace/graph.html",
        data=data,
        title=title,
        extent=f"{triples}, {names} and {passages}: {part_of}all that surrounds {title} in the store.",
    )


def _build_data(part: Neighborhood) -> dict[str, Any]:
    """Return what the page's script reads: names, facts and passages, which refer to one another by number.

    The last part of a fact is the verb of a link or of a known name, behind its sentence; "" if it is neither.
    """
    names: dict[str, str] = {}
    same: dict[str, dict[str, None]] = {}
    for stored in part.triples:
        for name in (stored.triple.subject, stored.triple.object):
            names.setdefault(entity_key(name), name)
    for stored in part.triples:
        for key, alias in stored.aliases:
            if key in names and alias in names:
                same.setdefault(key, {})[alias] = None
    numbers = {key: number for number, key in enumerate(names)}
    places = {node.node_id: place for place, node in enumerate(part.passages)}
    facts: dict[tuple[int, str, int], list[int]] = {}
    for stored in part.triples:
        subject, object_ = (numbers[entity_key(name)] for name in (stored.triple.subject, stored.triple.object))
        stated = facts.setdefault((subject, stored.triple.predicate, object_), [])
        if (place := places.get(stored.passage_id)) is not None and place not in stated:
            stated.append(place)
    return {
        "start": numbers[part.start],
        "entities": [
            {"name": name, "whole": key in part.whole, "same": [numbers[alias] for alias in same.get(key, ())]}
            for key, name in names.items()
        ],
        "facts": [[*fact, stated, split_link(fact[1])[1]] for fact, stated in facts.items()],
        "passages": [
            {"title": name_passage(node), "text": node.get_content(MetadataMode.NONE)} for node in part.passages
        ],
    }
