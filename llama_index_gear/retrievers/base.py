"""Base classes of the retrievers: over a store, and for the agents."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.bridge.pydantic import field_serializer
from llama_index.core.callbacks import CallbackManager
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.llms import LLM
from llama_index.core.schema import NodeWithScore, QueryBundle, QueryType
from llama_index.core.vector_stores.types import MetadataFilters
from llama_index_instrumentation import get_dispatcher

from llama_index_gear.agents.loop import Budget, Policy, agent_flow
from llama_index_gear.errors import check_question
from llama_index_gear.expansion.backends import Backends
from llama_index_gear.flow import Flow, arun, run
from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.llm.prompting import HasPrompts, Prompts
from llama_index_gear.llm.spans import flatten
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.trace.trace import Trace, TraceEvent, run_traced, stream_trace, take_trace, use_trace

dispatcher = get_dispatcher(__name__)
logger = logging.getLogger(__name__)


class GeAREvent(BaseEvent):
    """A `TraceEvent`, as LlamaIndex's instrumentation reports it while an agent works.

    Attributes:
        step: number of the step, from 1; 0 for an event of the whole search.
        kind: the field of the trace that was filled in, or "call".
        value: the field's value, as plain JSON. `model_dump` writes it as tracers can store it: JSON text, if it is
            neither a text nor a number nor a list of texts.

    """

    step: int
    kind: str
    value: Any

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the event."""
        return "GeAREvent"

    @field_serializer("value")
    def _flatten_value(self, value: Any) -> Any:
        return flatten(value)


class StoreRetriever(HasPrompts, BaseRetriever):
    """A retriever over a store, with its backends and prompts.

    Args:
        backends: answer the requests of its flow.
        prompts: its prompts; `update_prompts` replaces them.
        similarity_top_k: passages to return.
        callback_manager: LlamaIndex's callback manager.

    """

    def __init__(
        self,
        backends: Backends,
        prompts: Prompts,
        similarity_top_k: int,
        callback_manager: CallbackManager | None,
    ) -> None:
        super().__init__(callback_manager=callback_manager)
        self._backends = backends
        self._prompts = prompts
        self._similarity_top_k = similarity_top_k

    @property
    def vector_store(self) -> GeARVectorStore:
        """The store that holds the passages."""
        return self._backends.vector_store

    @property
    def base_retriever(self) -> BaseRetriever | None:
        """The retriever whose passages are expanded; None: the store's own search."""
        return self._backends.base_retriever

    @property
    def graph(self) -> ExternalTripleStore | None:
        """The knowledge graph that is walked; None: the passages' own triples."""
        return self._backends.graph

    @property
    def filters(self) -> MetadataFilters | None:
        """Metadata filters that bind every search, the store's tenant included."""
        return self._backends.filters

    @property
    def llm(self) -> LLM | None:
        """The language model; None: there is none."""
        return self._backends.llm

    @property
    def similarity_top_k(self) -> int:
        """Passages to return."""
        return self._similarity_top_k

    def _flow(self, query_bundle: QueryBundle) -> Flow[list[NodeWithScore]]:
        """Find the passages of a question, best first."""
        raise NotImplementedError  # LlamaIndex gives what implements an abstract method a span of its own

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return run(self._flow(query_bundle), self._backends.answer)

    @dispatcher.span
    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await arun(self._flow(query_bundle), self._backends.aanswer)


class AgentRetriever(StoreRetriever):
    """Base class of the agents' retrievers: runs a policy in the agent loop and records the trace.

    Args:
        backends: see `StoreRetriever`.
        policy: the agent's method.
        prompts: the policy's prompts.
        similarity_top_k: see `StoreRetriever`.
        budget: limits of a question's cost; None: no limit.
        callback_manager: LlamaIndex's callback manager.

    """

    def __init__(
        self,
        backends: Backends,
        policy: Policy[Any, list[NodeWithScore]],
        prompts: Prompts,
        similarity_top_k: int,
        *,
        budget: Budget | None,
        callback_manager: CallbackManager | None,
    ) -> None:
        super().__init__(backends, prompts, similarity_top_k, callback_manager)
        self._policy = policy
        self._budget = budget or Budget()

    @property
    def budget(self) -> Budget:
        """Limits of a question's cost."""
        return self._budget

    def retrieve_with_trace(self, query: QueryType) -> tuple[list[NodeWithScore], Trace]:
        """Retrieve passages, and return them with the trace of the search."""
        trace = new_trace(query)
        return run_traced(trace, lambda: self.retrieve(query)), trace

    async def aretrieve_with_trace(self, query: QueryType) -> tuple[list[NodeWithScore], Trace]:
        """`retrieve_with_trace`, without blocking the event loop."""
        trace = new_trace(query)
        with use_trace(trace):
            return await self.aretrieve(query), trace

    def astream_events(self, query: QueryType) -> AsyncIterator[TraceEvent | list[NodeWithScore]]:
        """Stream the trace, event by event, while the agent works. The last item is the result.

        Closing the iterator (`aclose`) stops the work.
        """
        return stream_trace(new_trace(query), lambda: self.aretrieve(query))

    def _flow(self, query_bundle: QueryBundle) -> Flow[list[NodeWithScore]]:
        check_question(query_bundle.query_str)
        trace = take_trace(query_bundle.query_str.strip())
        with trace.subscribe(_report):
            nodes = yield from agent_flow(self._policy, trace, self._budget, query=query_bundle)
        if trace.warning:
            logger.warning("%s", trace.warning)
        if trace.stopped.startswith("failed"):
            kind = ": ".join(trace.stopped.split(": ")[:2])  # the rest may quote the question or passages
            logger.warning("a search ended early, with what it had found: %s; its trace says more", kind)
            logger.debug("the search for %r ended early: %s", trace.question, trace.stopped)
        return nodes


def new_trace(query: QueryType) -> Trace:
    """Make an empty trace of this question."""
    question = query.query_str if isinstance(query, QueryBundle) else query
    check_question(question)
    return Trace(question=question.strip())


def _report(event: TraceEvent) -> None:
    dispatcher.event(GeAREvent(step=event.step, kind=event.kind, value=event.value))
