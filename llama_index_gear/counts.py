"""Numbers of things in words: "1 passage", "2 passages"."""

from __future__ import annotations


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number of things in words.

    Args:
        number: how many there are.
        noun: what one of them is called.
        plural: what several are called. Default: the noun with an "s".

    """
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"
