"""A span around a flow opens and closes as LlamaIndex's own do, whatever ends the flow."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import pytest
from llama_index.core.instrumentation.span_handlers import SimpleSpanHandler
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.span import active_span_id

from llama_index_gear.flow import EmbedQuery, Flow, arun, ask, run
from llama_index_gear.llm.spans import flatten, span_flow


class Spans(SimpleSpanHandler):
    """Keeps what each span was shown."""

    inputs: list[dict[str, Any]] = []
    results: list[Any] = []
    errors: list[BaseException] = []

    def span_enter(self, id_: str, bound_args: Any, *arguments: Any, **keywords: Any) -> None:
        self.inputs.append(dict(bound_args.arguments))
        assert dict(bound_args.kwargs) == dict(bound_args.arguments)
        super().span_enter(id_, bound_args, *arguments, **keywords)

    def span_exit(self, id_: str, bound_args: Any, instance: Any = None, result: Any = None, **keywords: Any) -> None:
        self.results.append(result)
        super().span_exit(id_, bound_args, instance, result, **keywords)

    def span_drop(self, id_: str, bound_args: Any, instance: Any = None, err: Any = None, **keywords: Any) -> None:
        self.errors.append(err)
        super().span_drop(id_, bound_args, instance, err, **keywords)


@pytest.fixture
def spans() -> Iterator[Spans]:
    handler = Spans()
    get_dispatcher().add_span_handler(handler)
    yield handler
    get_dispatcher().span_handlers.remove(handler)
    assert active_span_id.get() is None and handler.open_spans == {}


def embed_flow() -> Flow[list[float]]:
    return (yield from span_flow("inner", ask(EmbedQuery("Ann")), lambda vector: len(vector), text="Ann"))


async def aanswer(request: EmbedQuery) -> list[float]:
    return answer(request)


def answer(request: EmbedQuery) -> list[float]:
    current = active_span_id.get()
    assert current is not None and current.startswith("gear.inner-")
    return [1.0, 0.0]


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_a_span_shows_what_it_is_given_and_lies_in_the_one_around_it(spans: Spans, mode: str) -> None:
    outer = span_flow("outer", embed_flow(), question="Who")
    assert (run(outer, answer) if mode == "sync" else await arun(outer, aanswer)) == [1.0, 0.0]
    inner, outside = spans.completed_spans
    assert inner.parent_id == outside.id_ and outside.parent_id is None
    assert outside.id_.startswith("gear.outer-")
    assert (spans.inputs, spans.results, spans.errors) == ([{"question": "Who"}, {"text": "Ann"}], [2, [1.0, 0.0]], [])


def test_an_error_ends_the_spans_around_it(spans: Spans) -> None:
    def fail(request: EmbedQuery) -> list[float]:
        raise ValueError("no model")

    with pytest.raises(ValueError, match="no model"):
        run(span_flow("outer", embed_flow()), fail)
    assert [str(error) for error in spans.errors] == ["no model", "no model"] and spans.results == []


def test_a_flow_that_is_closed_in_another_context_leaves_that_one_its_span(spans: Spans) -> None:
    def begin() -> Flow[list[float]]:
        flow = span_flow("outer", embed_flow())
        next(flow)
        return flow

    flow = copy_context().run(begin)

    def close() -> str | None:
        active_span_id.set("another")
        flow.close()
        return active_span_id.get()

    assert copy_context().run(close) == "another"
    assert [type(error) for error in spans.errors] == [GeneratorExit, GeneratorExit]


def test_a_flow_that_never_began_has_no_span(spans: Spans) -> None:
    span_flow("outer", embed_flow()).close()
    assert spans.inputs == []


@pytest.mark.parametrize("value", ["a text", "", 3, 0.5, True, ["a", "b"], []])
def test_what_is_flat_stays_as_it_is(value: Any) -> None:
    assert flatten(value) == value and type(flatten(value)) is type(value)


@pytest.mark.parametrize(
    ("value", "text"), [(None, "null"), ([["Ann", "père", "Bob"]], '[["Ann", "père", "Bob"]]'), ({"a": 1}, '{"a": 1}')]
)
def test_anything_else_is_written_as_json(value: Any, text: str) -> None:
    assert flatten(value) == text
