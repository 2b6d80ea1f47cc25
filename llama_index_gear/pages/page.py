"""The frame of a page: a template, the style that all pages share, and data that cannot leave its script element."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from string import Template
from typing import Any

_BIDI_CONTROL = re.compile("[\u202a-\u202e\u2066-\u2069]")  # it reverses the direction of the text behind it
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)


def fill_page(template: Traversable, data: Any, **parts: str) -> str:
    """Return the page that a template and its parts make. It loads nothing, and sends nothing.

    Args:
        template: the file. `$data`, `$policy` and `$style` in it are filled in, beside the parts.
        data: what the page's script reads, as plain JSON.
        **parts: HTML by name. Text in it must have been escaped.

    """
    page = Template(template.read_text("utf-8")).substitute(
        parts,
        policy=_POLICY,
        style=(files("llama_index_gear.pages") / "style.css").read_text("utf-8"),
        # "<" could end the script element that the data stands in.
        data=json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"),
    )
    return _BIDI_CONTROL.sub("\N{REPLACEMENT CHARACTER}", page)
