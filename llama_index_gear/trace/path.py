"""The path to an answer: the few facts and passages that matter, as trees that can be drawn without a crossing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from llama_index_gear.llm.escaping import split_citations
from llama_index_gear.trace.evidence import Evidence, Slots, Step
from llama_index_gear.triple import contains_entity, entity_key, fact_key

MAX_PASSAGES = 8
"""Passages of a path."""
MAX_FACTS = 12
"""Facts of a path."""
_FALLBACK = 3  # passages of a path where nothing says which ones matter
_SENTENCE = 30  # characters of a predicate that no two passages share by chance

Pair = frozenset[str]
"""The entity keys of a fact's two ends; one key, if the fact is about itself."""


@dataclass(frozen=True, eq=False)
class PathFact:
    """A fact of the path.

    Attributes:
        slots: subject, predicate, object.
        passages: ids of the passages that it was read in; empty if that is not known.
        is_noted: True if the model noted it; False for a stored triple that leads to a passage.

    """

    slots: Slots
    passages: tuple[str, ...]
    is_noted: bool

    @property
    def ends(self) -> tuple[str, str]:
        """The entity keys of subject and object."""
        return entity_key(self.slots[0]), entity_key(self.slots[2])

    @property
    def pair(self) -> Pair:
        """The two ends, in either order."""
        return frozenset(self.ends)


@dataclass(frozen=True)
class PathBranch:
    """The facts that join an entity to one below it: they have both as ends.

    Attributes:
        facts: each, and True if it leads down, from the upper entity as its subject to the lower one.
        node: the lower entity.

    """

    facts: list[tuple[PathFact, bool]]
    node: PathNode


@dataclass
class PathNode:
    """An entity of the path.

    Attributes:
        name: as the first fact writes it.
        is_asked: True if the question names it.
        is_answer: True if the answer names it, and the question doesn't.
        is_repeat: True if the entity already stands elsewhere; nothing is below it here.
        branches: what is below it. The last one leads on to the answer, or to most of the other entities.

    """

    name: str
    is_asked: bool = False
    is_answer: bool = False
    is_repeat: bool = False
    branches: list[PathBranch] = field(default_factory=list)


@dataclass(frozen=True)
class AnswerPath:
    """The few facts and passages that matter for an answer.

    Attributes:
        passages: ids of the cited, supporting or named passages; if there are none, of those that the facts were read
            in; if there are none, of the first of the final list. At most 8.
        facts: those that lead from the question to the answer, then the others that were noted in these passages, then
            the stored triples that lead to passages without one, or join what shares no entity. At most 12.
        trees: the entities of the facts. Each fact stands once, below an entity that it names.

    """

    passages: list[str]
    facts: list[PathFact]
    trees: list[PathNode]


def find_answer_path(trace: Evidence) -> AnswerPath:
    """Find the facts and passages of a trace that matter for its answer."""
    noted = _list_noted_facts(trace)
    passages, is_explicit = _list_passages(trace, noted)
    chains = _list_chains(trace, passages, {fact.pair for fact in noted})
    words = _Words(trace)
    is_resolved = any(step.clues for step in trace.steps)  # T²RAG notes nothing but the facts that it asked for
    facts = _choose_facts(noted, chains, passages if is_explicit and not is_resolved else None, words)
    read_in = [passage_id for fact in facts for passage_id in fact.passages]
    return AnswerPath(list(dict.fromkeys([*passages, *read_in]))[:MAX_PASSAGES], facts, _grow_trees(facts, words))


def locate_walked_facts(step: Step) -> Iterator[tuple[Slots, str]]:
    """Yield the stored triples that a step met, each with the id of its passage."""
    yield from ((link.triple, link.passage_id) for link in step.linked)
    for beam in step.beams:
        yield from zip(beam.chain, beam.passage_ids, strict=True)


def _list_passages(trace: Evidence, noted: Sequence[PathFact]) -> tuple[list[str], bool]:
    """Return the ids of the passages that matter; also True if the answer or a reader named them."""
    needed = [passage_id for step in trace.steps for passage_id in step.needed or ()]
    explicit = [*trace.citations.values(), *trace.supporting, *needed]
    read_in = [passage_id for fact in noted for passage_id in fact.passages]
    first = [source.passage_id for source in trace.passages[:_FALLBACK]]
    return list(dict.fromkeys(explicit or [*read_in, *first]))[:MAX_PASSAGES], bool(explicit)


def _list_noted_facts(trace: Evidence) -> list[PathFact]:
    """Return the facts of the gist memory, each with the passages that it was read in."""
    links = {fact_key(link.triple): link.passages for link in trace.links}
    facts: dict[tuple[str, ...], PathFact] = {}
    for step in trace.steps:
        for slots in step.gist:
            key = fact_key(slots)
            facts.setdefault(key, PathFact(slots, _read_in(step, links.get(key, [])), is_noted=True))
    return list(facts.values())


def _read_in(step: Step, linked: Sequence[str]) -> tuple[str, ...]:
    """Return the passages that a fact of this step was read in: of those that it is linked to, best first."""
    if step.needed:  # the reader noted it in one of these
        named = [passage_id for passage_id in linked if passage_id in step.needed] or step.needed
        return tuple(named[:1]) if len(step.needed) == 1 or named is not step.needed else ()
    return tuple(linked[: 2 if step.clues else 1])


def _list_chains(trace: Evidence, passages: Sequence[str], joined: set[Pair]) -> dict[str, list[PathFact]]:
    """Return the triples that lead to each of these passages, without those whose ends a noted fact joins."""
    origins: dict[tuple[str, ...], str] = {}
    for step in trace.steps:
        for slots, passage_id in locate_walked_facts(step):
            origins.setdefault(fact_key(slots), passage_id)
    chains = {source.passage_id: source.chain for source in trace.passages if source.chain}
    for passage_id, chain in chains.items():  # a chain ends with a triple of its passage; one alone may be another's
        stated = "" if len(chain) > 1 else _find_sentence(trace, chain[-1][1])
        origins.setdefault(fact_key(chain[-1]), stated or passage_id)
    facts: dict[tuple[str, ...], PathFact] = {}
    found: dict[str, list[PathFact]] = {}
    for passage_id in passages:
        for slots in chains.get(passage_id, []):
            key = fact_key(slots)
            origin = origins.get(key) or _find_sentence(trace, slots[1])
            fact = facts.setdefault(key, PathFact(slots, (origin,) if origin else (), is_noted=False))
            if fact.pair not in joined:
                found.setdefault(passage_id, []).append(fact)
    return found


def _find_sentence(trace: Evidence, predicate: str) -> str:
    """Return the id of the passage that a predicate, which may be a whole sentence, was taken from; "" if unknown."""
    if len(predicate) < _SENTENCE:
        return ""
    return next((source.passage_id for source in trace.passages if predicate in source.text), "")


class _Words:
    """The entities that a question and its answer name."""

    def __init__(self, trace: Evidence) -> None:
        answer = "".join(part for part, number in split_citations(trace.answer or trace.response) if not number)
        self._question, self._answer = entity_key(trace.question), entity_key(answer)

    def find_asked(self, key: str) -> int:
        """Return where the question names an entity; -1 if it doesn't."""
        return f" {self._question} ".find(f" {key} " if key.isascii() else key)

    def is_answer(self, key: str) -> bool:
        """Return True if the answer names the entity, and the question doesn't."""
        if not self._answer or self.find_asked(key) >= 0:
            return False
        return contains_entity(self._answer, key) or contains_entity(key, self._answer)


def _choose_facts(
    noted: Sequence[PathFact],
    chains: Mapping[str, Sequence[PathFact]],
    passages: Sequence[str] | None,
    words: _Words,
) -> list[PathFact]:
    """Choose the facts that matter, in their order; `passages` are those that were named, None if none were."""
    stored = list(dict.fromkeys(fact for chain in chains.values() for fact in chain))
    chosen = dict.fromkeys(_find_shortest_paths([*noted, *stored], words))
    for fact in noted:
        if passages is None or not fact.passages or set(fact.passages) & set(passages):
            chosen.setdefault(fact)
    for passage_id, chain in chains.items():
        if all(passage_id not in fact.passages for fact in chosen):
            chosen.update(dict.fromkeys(chain))
    for fact in stored:
        start, end = fact.ends
        if end not in (reached := _find_connected(start, chosen)) and len(reached) > 1 and _touches(end, chosen):
            chosen.setdefault(fact)
    kept = list(chosen)[:MAX_FACTS]
    return [fact for fact in (*noted, *stored) if fact in kept]


def _touches(key: str, facts: Iterable[PathFact]) -> bool:
    return any(key in fact.pair for fact in facts)


def _find_connected(key: str, facts: Iterable[PathFact]) -> set[str]:
    """Return the entities that facts connect with this one, itself included."""
    connected, size = {key}, 0
    while len(connected) > size:
        size = len(connected)
        connected.update(*(fact.pair for fact in facts if connected & fact.pair))
    return connected


def _find_shortest_paths(facts: Sequence[PathFact], words: _Words) -> list[PathFact]:
    """Return the facts on a shortest path from an entity of the question to one of the answer."""
    neighbors: dict[str, list[tuple[str, PathFact]]] = {}
    for fact in facts:
        start, end = fact.ends
        neighbors.setdefault(start, []).append((end, fact))
        neighbors.setdefault(end, []).append((start, fact))
    steps: dict[str, tuple[str, PathFact] | None] = {key: None for key in neighbors if words.is_answer(key)}
    waiting = deque(steps)
    while waiting:
        key = waiting.popleft()
        for other, fact in neighbors[key]:
            if other not in steps:
                steps[other] = key, fact
                waiting.append(other)
    path = []
    for key in (key for key in steps if words.find_asked(key) >= 0):
        while (step := steps[key]) is not None:
            key, fact = step
            path.append(fact)
    return path


def _grow_trees(facts: Sequence[PathFact], words: _Words) -> list[PathNode]:
    """Return the entities of the facts as trees, the question's entities at the roots."""
    names: dict[str, str] = {}
    joins: dict[Pair, list[PathFact]] = {}
    for fact in facts:
        for key, name in zip(fact.ends, (fact.slots[0], fact.slots[2]), strict=True):
            names.setdefault(key, name)
        joins.setdefault(fact.pair, []).append(fact)
    asked = sorted((place, key) for key in names if (place := words.find_asked(key)) >= 0)
    seen: dict[str, PathNode] = {}
    trees = []
    for root in (*(key for _, key in asked), *names):
        if root not in seen:
            trees.append(_grow_tree(root, joins, names, words, seen))
    return trees


def _grow_tree(
    root: str,
    joins: Mapping[Pair, list[PathFact]],
    names: Mapping[str, str],
    words: _Words,
    seen: dict[str, PathNode],
) -> PathNode:
    """Grow a tree from its root, the nearest entities first; add its nodes to `seen`."""

    def add(key: str) -> PathNode:
        seen[key] = PathNode(names[key], words.find_asked(key) >= 0, words.is_answer(key))
        return seen[key]

    used: set[Pair] = set()
    add(root)
    waiting = deque([root])
    while waiting:
        key = waiting.popleft()
        for pair, joining in joins.items():
            if key not in pair or pair in used:
                continue
            used.add(pair)
            (other,) = pair - {key} or {key}
            if is_new := other not in seen:
                waiting.append(other)
            node = add(other) if is_new else PathNode(names[other], is_repeat=True)
            seen[key].branches.append(PathBranch([(fact, fact.ends[0] == key) for fact in joining], node))
    _sort_branches(seen[root])
    return seen[root]


def _sort_branches(node: PathNode) -> tuple[bool, int]:
    """Put the branch last that leads to the answer, else the largest; return both of the node itself."""
    measured = [(_sort_branches(branch.node), branch) for branch in node.branches]
    node.branches = [branch for _, branch in sorted(measured, key=lambda item: item[0])]
    has_answer = node.is_answer or any(leads for (leads, _), _ in measured)
    return has_answer, 1 + sum(size for (_, size), _ in measured)


def list_facts(trees: Iterable[PathNode]) -> Iterator[PathFact]:
    """Yield the facts of the trees as they are drawn, from top to bottom."""
    for node in trees:
        for branch in node.branches:
            yield from (fact for fact, _ in branch.facts)
            yield from list_facts([branch.node])
