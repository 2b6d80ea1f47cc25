"""The frame of a page: a template, the style that all pages share, and data that cannot leave its script element."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

_BIDI_CONTROL = re.compile("[\u202a-\u202e\u2066-\u2069]")  # it reverses the direction of the text behind it
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
_TEMPLATES = Environment(
    loader=PackageLoader("llama_index_gear", ""), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
)
_TEMPLATES.policies["json.dumps_kwargs"] = {"ensure_ascii": False}


def fill_page(template: str, data: Any, **parts: Any) -> str:
    """Return the page that a template and its parts make. It loads nothing, and sends nothing.

    Args:
        template: the file in this package. `data`, `policy` and `style` in it are filled in, beside the parts.
        data: what the page's script reads, as plain JSON.
        **parts: values by name. Text in them is escaped.

    """
    style = (files("llama_index_gear.pages") / "style.css").read_text("utf-8")
    page = _TEMPLATES.get_template(template).render(parts, data=data, policy=_POLICY, style=style)
    return _BIDI_CONTROL.sub("\N{REPLACEMENT CHARACTER}", page)
