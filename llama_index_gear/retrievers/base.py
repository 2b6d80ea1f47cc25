"""`AgentRetriever`: a policy of the loop behind LlamaIndex's retriever interface, whatever the method."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.schema import NodeWithScore, QueryBundle, QueryType
from llama_index_instrumentation import get_dispatcher

from llama_index_gear.agents.loop import Budget, Policy, agent_flow
from llama_index_gear.errors import ArgumentError, check_question
from llama_index_gear.expansion.backends import Backends
from llama_index_gear.flow import Flow, arun, run
from llama_index_gear.trace.trace import Trace, TraceEvent, stream_trace, take_trace, traced, tracing

dispatcher = get_dispatcher(__name__)
logger = logging.getLogger(__name__)


class GeAREvent(BaseEvent):
    """A `TraceEvent`, as LlamaIndex's instrumentation reports it while an agent works.

    Attributes:
        step: the step it belongs to, from 1; 0 for what belongs to all.
        kind: the field of the trace that was filled in, or "call".
        value: what was filled in, as plain JSON.

    """

    step: int
    kind: str
    value: Any

    @classmethod
    def class_name(cls) -> str:
        """Name of the event."""
        return "GeAREvent"


class AgentRetriever(BaseRetriever):
    """What `GeARRetriever` and `T2RAGRetriever` have in common: the loop, its trace, its prompts.

    Args:
        sources: who answers the policy's requests.
        policy: the method.
        budget: what a question may cost.
        prompts: the policy's prompts by name, which `update_prompts` replaces in place.
        callback_manager: LlamaIndex's.
        verbose: LlamaIndex's.

    Attributes:
        prompt_variables: what each prompt must hold.

    """

    prompt_variables: ClassVar[Mapping[str, set[str]]] = {}

    def __init__(
        self,
        sources: Backends,
        policy: Policy[Any, list[NodeWithScore]],
        budget: Budget,
        prompts: dict[str, BasePromptTemplate],
        *,
        callback_manager: CallbackManager | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(callback_manager=callback_manager, verbose=verbose)
        self._sources = sources
        self._policy = policy
        self._budget = budget
        self._prompts = prompts

    @property
    def llm(self) -> LLM | None:
        """The language model."""
        return self._sources.llm

    def retrieve_with_trace(self, query: QueryType) -> tuple[list[NodeWithScore], Trace]:
        """`retrieve`, and the record of how it came to its result."""
        trace = new_trace(query)
        return traced(trace, lambda: self.retrieve(query)), trace

    async def aretrieve_with_trace(self, query: QueryType) -> tuple[list[NodeWithScore], Trace]:
        """`retrieve_with_trace`, without blocking the event loop."""
        trace = new_trace(query)
        with tracing(trace):
            return await self.aretrieve(query), trace

    def astream_events(self, query: QueryType) -> AsyncIterator[TraceEvent | list[NodeWithScore]]:
        """The trace, piece by piece, while the agent works; the last item is the result.

        Closing the iterator (`aclose`) stops the work.
        """
        return stream_trace(new_trace(query), lambda: self.aretrieve(query))

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return run(self._flow(query_bundle), self._sources.answer)

    @dispatcher.span
    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await arun(self._flow(query_bundle), self._sources.aanswer)

    def _flow(self, query_bundle: QueryBundle) -> Flow[list[NodeWithScore]]:
        check_question(query_bundle.query_str)
        trace = take_trace(query_bundle.query_str.strip())
        with trace.subscribe(_report):
            nodes = yield from agent_flow(self._policy, trace, self._budget, query=query_bundle)
        if trace.stopped.startswith("failed"):
            kind = ": ".join(trace.stopped.split(": ")[:2])  # its words may quote what was asked and read
            logger.warning("a search ended early, with what it had found: %s; its trace says more", kind)
            logger.debug("the search for %r ended early: %s", trace.question, trace.stopped)
        return nodes

    def _get_prompts(self) -> PromptDictType:
        return dict(self._prompts)

    def _update_prompts(self, prompts_dict: PromptDictType) -> None:
        for name, prompt in prompts_dict.items():
            if name not in self.prompt_variables:
                raise ArgumentError(f"there is no prompt {name!r}; there are {', '.join(self.prompt_variables)}")
            if missing := self.prompt_variables[name] - set(prompt.template_vars):
                raise ArgumentError(f"the {name} prompt lacks the variable {' and '.join(sorted(missing))}")
        self._prompts.update(prompts_dict)


def new_trace(query: QueryType) -> Trace:
    """A trace of this question, nothing in it."""
    return Trace(question=(query if isinstance(query, str) else query.query_str).strip())


def _report(event: TraceEvent) -> None:
    dispatcher.event(GeAREvent(step=event.step, kind=event.kind, value=event.value))
