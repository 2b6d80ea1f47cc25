"""Parsers for replies that give one value, such as yes or no, or a query, in JSON objects that may stand in prose."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from llama_index_gear.errors import ReplyError
from llama_index_gear.llm.json_scan import UNSEARCHED, ScannedReply, find_forms

_YES_OR_NO = {"true": True, "yes": True, "1": True, "1.0": True, "false": False, "no": False, "0": False, "0.0": False}


def find_forms_and_prose(reply: ScannedReply, key: str) -> tuple[list[dict[str, list[Any]]], str]:
    """Find the JSON objects of a reply that have this key, and the prose around all JSON.

    Returns:
        The objects, as dicts: name in lower case → all its values. And the prose.

    Raises:
        ReplyError: beside such objects there is one that is cut off, or the text has too much that looks like JSON and
            is not.

    """
    text, spans = reply.text, reply.spans
    forms = find_forms((span.value for span in spans), key)
    parts, end = [], 0
    for span in spans:
        if span.is_read:
            parts.append(text[end : span.start])
            end = span.end
    prose = "\n".join([*parts, text[end:]])
    if spans and spans[-1].value is UNSEARCHED:
        raise ReplyError(f"no {key} can be read, too much looks like JSON and is not, in the reply {text[:200]!r}")
    if forms and re.search(rf"[{{,]\s*[\"']{key}[\"']\s*:", prose, re.IGNORECASE):
        raise ReplyError(f"one of several JSON objects with {key!r} cannot be read in the reply {text[:200]!r}")
    return forms, prose


def parse_yes_or_no(reply: ScannedReply, key: str, what: str) -> tuple[bool, list[dict[str, list[Any]]]]:
    """Read the value of a key that is true or false, in JSON or as a label in prose, with or without Markdown.

    Args:
        reply: the model's.
        key: in lower case.
        what: the name of the value in errors.

    Returns:
        The value, and the objects that have the key; see `find_forms_and_prose`.

    Raises:
        ReplyError: the reply gives neither true nor false, or both.

    """
    text = reply.text
    forms, prose = find_forms_and_prose(reply, key)
    label = rf"(?<!\w)(?<!not )_{{0,3}}{key}[\"'`*_]*\s*[:=]"
    flags = re.findall(rf"{label}[\s\"'`*_]*(true|false|yes|no)_{{0,3}}(?!\w)", prose, re.IGNORECASE)
    values = [*(value for form in forms for value in form[key]), *flags]
    answers = {
        _YES_OR_NO.get(str(value).strip(" .").lower()) if isinstance(value, str | bool) else None for value in values
    }
    if None in answers or not answers:
        raise ReplyError(f"no {what} can be read in the reply {text[:200]!r}")
    if len(answers) > 1:
        raise ReplyError(f"no {what} can be read, {key!r} is both true and false, in the reply {text[:200]!r}")
    return answers == {True}, forms


def require_one(values: Iterable[str], text: str) -> str:
    """Return the one value that these are, up to case and white space. Empty values are left out; "" if all are empty.

    Raises:
        ReplyError: two values differ; the error quotes the reply, `text`.

    """
    distinct = {" ".join(value.split()).casefold(): value for value in values if value.strip()}
    if len(distinct) > 1:
        raise ReplyError(f"the reply gives {len(distinct)} answers, where one is asked for: {text[:200]!r}")
    return next(iter(distinct.values()), "")
