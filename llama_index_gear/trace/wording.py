"""The words of a trace, the same in a terminal and on a page."""

from __future__ import annotations

from collections.abc import Sequence

from llama_index_gear.nodes import shorten, shorten_predicate
from llama_index_gear.trace.evidence import Check, Evidence, Step, Unknown

_PREDICATE = 60  # characters of a predicate
_LEAST = 10  # characters that a subject and a predicate keep in a line
_DASH = " — "


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
