"""A cluster in memory: two nodes, each of which has a replica of every point."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from qdrant_client import QdrantClient

_CHANGES = {"upsert", "delete", "batch_update_points"}
_SETTINGS = {"create_collection", "delete_collection", "update_collection", "create_payload_index"}
_READS = {"scroll", "retrieve"}


class ReplicaNode(QdrantClient):
    """A node, as its one client sees the cluster. It reads its own replica, or those points that both have alike.

    As with the write orderings "medium" and "strong", both replicas take one change after the other, the first node's
    before the second's. The second lacks the latest change until its client makes another call, having its answer, or
    until any client changes something.

    Attributes:
        nodes: both nodes.
        latest: the change that the second replica lacks, kept by the first node; None if the replicas are alike.

    """

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.nodes: list[ReplicaNode] = []
        self.latest: Callable[[], Any] | None = None
        self._own: Callable[[], Any] | None = None

    def settle(self) -> None:
        """Let the second replica take the latest change."""
        first = self.nodes[0]
        if first.latest is not None:
            first.latest()
            first.latest = None

    def change(self, name: str, options: dict[str, Any]) -> Any:
        """Change points."""
        self.settle()
        first, second = (partial(getattr(QdrantClient, name), node, **options) for node in self.nodes)
        answer = first()
        self.nodes[0].latest = self._own = second
        return answer

    def change_settings(self, name: str, options: dict[str, Any]) -> Any:
        """Change collections, on both nodes at once."""
        self.settle()
        return [getattr(QdrantClient, name)(node, **options) for node in self.nodes][0]

    def read(self, name: str, options: dict[str, Any]) -> Any:
        """Read points."""
        if self.nodes[0].latest is self._own:
            self.settle()
        answers = [getattr(QdrantClient, name)(node, **options) for node in [self, *self.nodes]]
        if options.get("consistency") is None:
            return answers[0]
        lists = answers if name == "retrieve" else [points for points, _ in answers]
        agreed = [point for point in lists[0] if all(point in points for points in lists)]
        return agreed if name == "retrieve" else (agreed, answers[0][1])


def _override(names: set[str], method: Callable[[ReplicaNode, str, dict[str, Any]], Any]) -> None:
    for name in names:
        setattr(ReplicaNode, name, lambda self, _name=name, **options: method(self, _name, options))


_override(_CHANGES, ReplicaNode.change)
_override(_SETTINGS, ReplicaNode.change_settings)
_override(_READS, ReplicaNode.read)


def make_nodes() -> list[ReplicaNode]:
    """Make both nodes."""
    nodes = [ReplicaNode(), ReplicaNode()]
    for node in nodes:
        node.nodes = nodes
    return nodes
