"""A node postprocessor's work as a reranking, as LlamaIndex's instrumentation and callbacks report it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llama_index.core.callbacks import CallbackManager, CBEventType, EventPayload
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index_instrumentation import get_dispatcher

dispatcher = get_dispatcher(__name__)

Report = Callable[[list[NodeWithScore]], list[NodeWithScore]]
"""Reports the ranked nodes, and returns them."""


@contextmanager
def report_reranking(
    query: QueryBundle, nodes: list[NodeWithScore], top_n: int, model_name: str, callback_manager: CallbackManager
) -> Iterator[Report]:
    """Report the beginning of a reranking, and hand over the function that reports its end."""
    dispatcher.event(ReRankStartEvent(query=query, nodes=nodes, top_n=top_n, model_name=model_name))
    payload: dict[str, Any] = {
        EventPayload.NODES: nodes,
        EventPayload.MODEL_NAME: model_name,
        EventPayload.QUERY_STR: query.query_str,
        EventPayload.TOP_K: top_n,
    }
    with callback_manager.event(CBEventType.RERANKING, payload=payload) as event:

        def report(ranked: list[NodeWithScore]) -> list[NodeWithScore]:
            dispatcher.event(ReRankEndEvent(nodes=ranked))
            event.on_end(payload={EventPayload.NODES: ranked})
            return ranked

        yield report


def list_each_once(nodes: Sequence[NodeWithScore]) -> list[NodeWithScore]:
    """Return the nodes in their order; of several with one id the first."""
    known: dict[str, NodeWithScore] = {}
    for result in nodes:
        known.setdefault(result.node.node_id, result)
    return list(known.values())
