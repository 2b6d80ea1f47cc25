"""Triples without a language model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from llama_index.core.schema import BaseNode, TransformComponent

from llama_index_gear.nodes import attach_triples
from llama_index_gear.triple import Triple


class MentionTripleExtractor(TransformComponent):
    """x."""

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[BaseNode]:
        out = []
        for n in nodes:
            title = n.metadata.get("title", "")
            ts = []
            for s in re.split(r"(?<=[.!?])\s+(?=[A-Z\"'(])", n.get_content()):
                for m in re.findall(
                    r"[A-Z][\w'’.&-]*(?:\s+(?:of|the|de|and|in|for|la|von|van|du)\s+[A-Z][\w'’.&-]*|\s+[A-Z0-9][\w'’.&-]*)*|\b[12]\d{3}\b",
                    s,
                ):
                    m = m.strip(".,'")
                    if m:
                        ts.append(Triple(title or m, s, m))
            out.append(attach_triples(n, ts))
        return out
