"""All facts of a trace as a graph: where each entity stands, and the lines between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from llama_index_gear.trace.evidence import Evidence, Slots
from llama_index_gear.trace.path import fact_key, locate_walked_facts
from llama_index_gear.triple import entity_key

_ROW_HEIGHT = 30  # pixels between two entities of a column
_COLUMN_WIDTH = 220  # pixels between two columns
_LABEL_LENGTH = 24  # characters of an entity's label


@dataclass
class _Entity:
    name: str
    column: int
    row: int = 0

    @property
    def place(self) -> tuple[int, int]:
        """Its dot's, in pixels."""
        return 20 + _COLUMN_WIDTH * self.column, 20 + _ROW_HEIGHT * self.row


@dataclass
class Fact:
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


class Graph(NamedTuple):
    """A drawing, in pixels.

    Attributes:
        width: of the whole.
        height: of the whole.
        lines: facts, each with the path of its line.
        labels: of each entity the key, the name, the name in short, and the place of its dot.

    """

    width: int
    height: int
    lines: list[tuple[Fact, str]]
    labels: list[tuple[str, str, str, int, int]]


def collect_facts(trace: Evidence) -> list[Fact]:
    """Return the facts of all steps, in order, without repetition; one that was walked and noted counts as noted."""
    facts: dict[tuple[str, ...], Fact] = {}
    for step in trace.steps:
        for slots, passage_id in locate_walked_facts(step):
            fact = facts.setdefault(fact_key(slots), Fact(slots, step.number, "walked"))
            if passage_id and passage_id not in fact.passages:
                fact.passages.append(passage_id)
        for slots in step.gist:
            facts.setdefault(fact_key(slots), Fact(slots, step.number, "gist")).kind = "gist"
    return list(facts.values())


def _place_entities(facts: list[Fact]) -> dict[str, _Entity]:
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


def draw_graph(facts: list[Fact]) -> Graph:
    """Return the graph of at least one fact."""
    entities = _place_entities(facts)
    width = _COLUMN_WIDTH * (1 + max(entity.column for entity in entities.values()))
    height = _ROW_HEIGHT * (2 + max(entity.row for entity in entities.values()))
    lines = []
    for fact in facts:
        (x1, y1), (x2, y2) = (entities[entity_key(name)].place for name in (fact.slots[0], fact.slots[2]))
        # A line starts or ends behind the label that stands on its side of the dot, so that it does not cross it.
        x1 += _label_width(fact.slots[0]) if x1 < x2 else 0
        x2 += _label_width(fact.slots[2]) if x1 > x2 else 0
        if x1 == x2:  # within a column: a curve to the left
            bend = f"C {x1 - 20} {y1}, {x1 - 20} {y2}"
        else:
            bend = f"C {(x1 + x2) // 2} {y1}, {(x1 + x2) // 2} {y2}"
        lines.append((fact, f"M {x1} {y1} {bend}, {x2} {y2}"))
    labels = [(key, entity.name, _shorten(entity.name), *entity.place) for key, entity in entities.items()]
    return Graph(width, height, lines, labels)
