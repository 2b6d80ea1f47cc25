"""Spans of LlamaIndex's instrumentation around the parts of a flow: whatever listens to it shows them as a tree."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from inspect import BoundArguments, Parameter, Signature
from itertools import islice
from typing import Any
from uuid import uuid4

from llama_index.core.instrumentation.events.llm import LLMPredictEndEvent, LLMPredictStartEvent
from llama_index.core.schema import NodeWithScore
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.dispatcher import active_instrument_tags
from llama_index_instrumentation.events.span import SpanDropEvent
from llama_index_instrumentation.span import active_span_id

from llama_index_gear.flow import CallLLM, Flow, Reply, Result, ask
from llama_index_gear.triple import StoredTriple

dispatcher = get_dispatcher(__name__)

SHOWN = 10
"""Ids, triples or chains that a tracer is shown of a list."""


def span_flow(
    name: str, flow: Flow[Result], describe: Callable[[Result], Any] | None = None, **arguments: Any
) -> Flow[Result]:
    """Run a flow in a span, and return its result. The spans of whatever answers its requests lie in that span.

    Tracers store what they are shown: keep it small, and plain JSON.

    Args:
        name: of the part; the span's name is "gear.", and this.
        flow: the part.
        describe: returns what is shown of the result. Default None: the result.
        **arguments: what is shown as the input.

    """
    span_id = f"gear.{name}-{uuid4()}"  # tracers show what stands before the first "-"
    signature = Signature([Parameter(key, Parameter.KEYWORD_ONLY) for key in arguments])
    bound = BoundArguments(signature, arguments)
    before = active_span_id.get()
    dispatcher.span_enter(span_id, bound, parent_id=before, tags=active_instrument_tags.get())
    active_span_id.set(span_id)
    try:
        result = yield from flow
        dispatcher.span_exit(span_id, bound, result=result if describe is None else describe(result))
    except BaseException as error:
        shown = getattr(error, "cause", None) or error  # the failure of a call, not the message that ends the step
        dispatcher.event(SpanDropEvent(span_id=span_id, err_str=str(shown)))
        dispatcher.span_drop(span_id, bound, err=shown)
        raise
    finally:
        if active_span_id.get() == span_id:  # a flow may be closed in another context, which has its own span
            active_span_id.set(before)
    return result


def show_ids(ids: Collection[str]) -> dict[str, Any]:
    """Return what a tracer is shown of passages: their number, and the first ids."""
    return {"passages": len(ids), "first": list(islice(ids, SHOWN))}


def show_nodes(results: Sequence[NodeWithScore]) -> dict[str, Any]:
    """Return what a tracer is shown of nodes: their number, and the first ids."""
    return show_ids([result.node.node_id for result in results])


def show_triples(triples: Iterable[StoredTriple]) -> list[str]:
    """Return what a tracer is shown of triples: the first ones, as text."""
    return [stored.triple.text for stored in islice(triples, SHOWN)]


def flatten(value: Any) -> Any:
    """Return a value as tracers can store it: texts, numbers and lists of texts as they are, anything else as JSON."""
    is_flat = isinstance(value, str | int | float)
    is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return value if is_flat or is_list else json.dumps(value, ensure_ascii=False)


def call_llm_flow(request: CallLLM) -> Flow[Reply]:
    """Call the language model in a span of its own, named by the call's purpose, with prompt template and variables.

    Raises:
        Exception: what the model's client raised instead of a reply.

    """
    question = request.variables.get("question", "")
    return span_flow(f"llm.{request.purpose}", _call_flow(request), lambda reply: reply.text, question=question)


def _call_flow(request: CallLLM) -> Flow[Reply]:
    dispatcher.event(LLMPredictStartEvent(template=request.prompt, template_args=dict(request.variables)))
    reply = yield from ask(request)
    if reply.error is not None:
        raise reply.error
    dispatcher.event(LLMPredictEndEvent(output=reply.text))
    return reply
