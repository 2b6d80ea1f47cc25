"""What can be stored: JSON that every engine reads back as it was given."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from pydantic_core import to_jsonable_python

from llama_index_gear.errors import ArgumentError, is_whole, shown

MAX_LEVELS = 100
"""How deep a payload may nest. Qdrant reads 122 levels: a 123rd is written, and the collection then never opens again.
"""
_INTEGERS = range(-(2**63), 2**64)  # what an engine keeps as an integer; others come back as floats
_SHOWN = 60  # characters of a path in a message

Path: TypeAlias = tuple[str | int, ...]


class Unstorable(ArgumentError):
    """A value cannot be stored; the message says where it stands, and why."""


def check_storable(owner: str, fields: Mapping[str, Any], checked: set[tuple[int, int]] | None = None) -> None:
    """Refuse what an engine could not read back, before it is written.

    Args:
        owner: what the fields belong to, for the message.
        fields: a payload, or parts of one. Values that are no JSON count as what Pydantic writes for them: a date as
            its text.
        checked: containers that were found good, by identity and level; kept up to date. Payloads that share one, and
            are alive together, share its check. Default: none.

    Raises:
        ArgumentError: a payload nests more than 100 levels deep, a key is no text, an integer is beyond 64 bits, a
            float is not finite, a text holds half a character, or a value has no JSON.

    """
    _check(owner, fields, (), set() if checked is None else checked)


def _check(owner: str, value: Any, path: Path, checked: set[tuple[int, int]]) -> None:
    kind = type(value)
    if kind is str:
        if not value.isascii():
            _check_text(owner, value, path)
    elif value is None or kind is bool:
        return
    elif kind is int:
        if value not in _INTEGERS:
            raise _refused(owner, path, "is an integer beyond 64 bits: store it as text")
    elif kind is float:
        if not math.isfinite(value):
            raise _refused(owner, path, f"is {value}, which JSON has no number for: leave it out, or store it as text")
    elif isinstance(value, dict | list | tuple):
        mark = (id(value), len(path))
        if mark not in checked:
            _check_members(owner, value, path, checked)
            checked.add(mark)
    else:
        converted = _converted(owner, value, path)
        _check(owner, converted, path, set())  # what stands in it is gone afterwards, and so would be its marks


def _check_members(
    owner: str, value: dict[Any, Any] | list[Any] | tuple[Any, ...], path: Path, checked: set[tuple[int, int]]
) -> None:
    if len(path) == MAX_LEVELS:
        raise _refused(owner, path, f"nests more than {MAX_LEVELS} levels deep: flatten it, or store it as text")
    if not isinstance(value, dict):
        for number, member in enumerate(value):
            _check(owner, member, (*path, number), checked)
        return
    for key, member in value.items():
        if not isinstance(key, str):
            raise _refused(owner, path, f"has the key {shown(key)}, which is no text: JSON would change it")
        if not key.isascii():
            _check_text(owner, key, (*path, key))
        _check(owner, member, (*path, key), checked)


def _check_text(owner: str, text: str, path: Path) -> None:
    if not is_whole(text):
        raise Unstorable(
            f"{owner} holds a lone surrogate in {_named(path)}, which is no character and cannot be stored: "
            'repair the text first, e.g. text.encode("utf-8", "replace").decode()'
        )


def _converted(owner: str, value: Any, path: Path) -> Any:
    """What is written for a value that is no JSON."""
    if isinstance(value, Iterator):
        raise _refused(owner, path, "can be read only once: make it a list")
    try:
        return to_jsonable_python(value)
    except (TypeError, ValueError) as error:
        raise_interrupt(error)
        raise _refused(owner, path, f"has no JSON: {error}") from error


def raise_interrupt(error: Exception) -> None:
    """Raise the interrupt that pydantic took for a failure to serialize: it keeps the name alone.

    Raises:
        KeyboardInterrupt: that is what the error's words name.

    """
    if "`: KeyboardInterrupt" in str(error):
        raise KeyboardInterrupt from error


def _refused(owner: str, path: Path, problem: str) -> Unstorable:
    return Unstorable(f"{owner} cannot be written as JSON and read back: {_named(path)} {problem}")


def _named(path: Path) -> str:
    """The path as one writes it, a long one cut short."""
    name = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
    safe = name.encode("utf-8", "backslashreplace").decode()
    return safe if len(safe) <= _SHOWN else f"{safe[:_SHOWN]}…"
