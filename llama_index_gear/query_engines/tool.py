"""`AgentQueryTool`: a query engine as a tool of a LlamaIndex agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from llama_index.core.base.response.schema import (
    RESPONSE_TYPE,
    AsyncStreamingResponse,
    Response,
    StreamingResponse,
)
from llama_index.core.schema import QueryType
from llama_index.core.tools import QueryEngineTool, ToolOutput

from llama_index_gear.llm.escaping import escape_lines, escape_name
from llama_index_gear.nodes import name_passage, shorten
from llama_index_gear.trace.trace import Trace

TOOL_NAME = "answer_from_documents"
"""The default name of the tool."""
TOOL_DESCRIPTION = (
    "Answers a question from the documents. Take it for every question about what they say, and above all for one that "
    "takes several facts from different documents, such as: In which town was the director of the film that won the "
    "prize born? Ask the whole question in one sentence, and don't split it: the tool searches step by step, and "
    "follows names from document to document by itself. It returns the answer with the numbers and titles of the "
    "passages that it rests on, or says what was not found."
)
"""The default description of the tool, which makes an agent choose it for questions that take several facts."""
_TITLE = 100  # characters shown of a title


@dataclass
class TracedResponse(Response):
    """An engine's response with the trace of its search.

    Attributes:
        trace: of the search. `trace.show()` prints it; `trace.to_html("trace.html")` writes it as a page.

    """

    trace: Trace = field(kw_only=True)


class _TracedEngine(Protocol):
    """The part of an engine that the tool uses."""

    def query_with_trace(self, query: QueryType) -> tuple[RESPONSE_TYPE, Trace]: ...
    async def aquery_with_trace(self, query: QueryType) -> tuple[RESPONSE_TYPE, Trace]: ...


class AgentQueryTool(QueryEngineTool):
    """A LlamaIndex tool over one of this package's query engines; `engine.as_tool()` makes it.

    The agent that calls it reads the answer, and below it the number and title of each passage that it cites: numbers
    alone would mean nothing to it. Neither answer nor title can look like the line of another passage. A stream is read
    to its end. The output's `raw_output` is the `Response` with its sources, metadata and `trace`.
    """

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Answer the question given as the first argument, or as `input`."""
        question = self._get_query_str(*args, **kwargs)
        response, trace = self._engine.query_with_trace(question)
        if isinstance(response, StreamingResponse):
            response = response.get_response()
        return self._build_output(question, response, trace)

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """`call`, without blocking the event loop."""
        question = self._get_query_str(*args, **kwargs)
        response, trace = await self._engine.aquery_with_trace(question)
        if isinstance(response, AsyncStreamingResponse):
            response = await response.get_response()
        return self._build_output(question, response, trace)

    @property
    def _engine(self) -> _TracedEngine:
        return self._query_engine  # type: ignore[return-value]  # `as_tool` gives no other

    def _build_output(self, question: str, response: RESPONSE_TYPE, trace: Trace) -> ToolOutput:
        return ToolOutput(
            content="\n".join([escape_lines(trace.response), *_list_citations(response, trace)]),
            tool_name=self.metadata.get_name(),
            raw_input={"input": question},
            raw_output=TracedResponse(trace.response, response.source_nodes, response.metadata, trace=trace),
        )


def _list_citations(response: RESPONSE_TYPE, trace: Trace) -> list[str]:
    """Return a line for each passage that the answer cites: its number, and what it is called."""
    names = {result.node.node_id: name_passage(result.node) for result in response.source_nodes}
    lines = []
    for number, node_id in trace.citations.items():
        lines.append(f"[{number}] {escape_name(shorten(names.get(node_id) or node_id, _TITLE))}")
    return lines
