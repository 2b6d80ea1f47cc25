"""The spans that OpenTelemetry was given, as a tree of names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan

INNER = ("Embedding.", "LLM.", "OpenAI.", "CompactAndRefine.")
"""Spans of LlamaIndex whose own parts, which change with its versions, are not drawn."""


def draw_tree(spans: Sequence[ReadableSpan]) -> str:
    """Return the names of spans, each below its parent and two spaces to the right, as they began."""
    children: dict[int | None, list[ReadableSpan]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.start_time or 0):
        children[span.parent.span_id if span.parent else None].append(span)

    def draw(parent: int | None, depth: int) -> list[str]:
        lines = []
        for span in children[parent]:
            lines.append("  " * depth + span.name)
            if span.context and not any(inner in span.name for inner in INNER):
                lines += draw(span.context.span_id, depth + 1)
        return lines

    return "\n".join(draw(None, 0))
