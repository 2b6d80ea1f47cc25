"""What a reply says once: yes or no, a name, a query; in JSON objects that may stand in prose."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from llama_index_gear.errors import ReplyError
from llama_index_gear.llm.json_scan import UNSEARCHED, forms, scan

_YES_OR_NO = {"true": True, "yes": True, "1": True, "1.0": True, "false": False, "no": False, "0": False, "0.0": False}


def statements(text: str, key: str) -> tuple[list[dict[str, list[Any]]], str]:
    """Find the JSON objects of a reply that state this key, and the prose around all JSON.

    An object maps names, in lower case, to the values that it gives.

    Raises:
        ReplyError: beside such objects there is one that breaks off, or more looks like JSON than is searched.

    """
    spans = list(scan(text))
    found = forms((span.value for span in spans), key)
    prose, behind = [], 0
    for span in spans:
        if span.is_read:
            prose.append(text[behind : span.start])
            behind = span.end
    around = "\n".join([*prose, text[behind:]])
    if spans and spans[-1].value is UNSEARCHED:
        raise ReplyError(f"no {key} can be read, too much looks like JSON and is not, in the reply {text[:200]!r}")
    if found and re.search(rf"[{{,]\s*[\"']{key}[\"']\s*:", around, re.IGNORECASE):
        raise ReplyError(f"one of several JSON objects with {key!r} cannot be read in the reply {text[:200]!r}")
    return found, around


def yes_or_no(text: str, key: str, what: str) -> tuple[bool, list[dict[str, list[Any]]]]:
    """Read a key that is true or false, and find the objects that state it; see `statements`.

    Raises:
        ReplyError: the reply states neither, or both. The error calls what is missing `what`.

    """
    found, prose = statements(text, key)
    flags = re.findall(rf"(?<!\w){key}[\"']?\s*[:=]\s*[\"']?(true|false|yes|no)\b", prose, re.IGNORECASE)
    given = [*(value for form in found for value in form[key]), *flags]
    said = {
        _YES_OR_NO.get(str(value).strip(" .").lower()) if isinstance(value, str | bool) else None for value in given
    }
    if None in said or not said:
        raise ReplyError(f"no {what} can be read in the reply {text[:200]!r}")
    if len(said) > 1:
        raise ReplyError(f"no {what} can be read, {key!r} is both true and false, in the reply {text[:200]!r}")
    return said == {True}, found


def only(values: Iterable[str], text: str) -> str:
    """Return what all of these values say, up to case and white space; empty ones say nothing.

    Raises:
        ReplyError: two differ; the error quotes the reply, `text`.

    """
    said = {" ".join(value.split()).casefold(): value for value in values if value.strip()}
    if len(said) > 1:
        raise ReplyError(f"the reply gives {len(said)} answers, where one is asked for: {text[:200]!r}")
    return next(iter(said.values()), "")
