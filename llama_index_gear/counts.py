"""Numbers of things in words: "1 passage", "2 passages"."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """Return a number of things in words.

    Args:
        number: how many there are.
        noun: what one of them is called; several have an "s".

    """
    return f"{number} {noun}{'' if number == 1 else 's'}"
