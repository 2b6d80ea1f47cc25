"""Qdrant's write ordering and read consistency: the arguments of each call that writes or reads points."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from qdrant_client.http import models

from llama_index_gear.errors import ArgumentError, format_value
from llama_index_gear.requests import QdrantCall

_WRITES = frozenset({"upsert", "delete", "batch_update_points"})
_READS = frozenset({"retrieve", "scroll", "query_batch_points"})


@dataclass(frozen=True)
class Consistency:
    """The wishes of a store; None: the server's defaults.

    Attributes:
        ordering: of writes.
        consistency: of reads: a number of replicas, or a kind.

    """

    ordering: models.WriteOrdering | None = None
    consistency: int | models.ReadConsistencyType | None = None

    @classmethod
    def read(cls, write_ordering: Any, read_consistency: Any, *, has_replicas: bool) -> Consistency:
        """Read a store's arguments: Qdrant's values, or their names.

        Raises:
            ArgumentError: one is none of Qdrant's, or the engine has no replicas.

        """
        is_count = isinstance(read_consistency, int) and not isinstance(read_consistency, bool)
        if is_count and read_consistency < 1:
            raise ArgumentError(f"read_consistency must be 1 or more replicas, got {read_consistency}")
        made = cls(
            _read(models.WriteOrdering, write_ordering=write_ordering),
            read_consistency
            if is_count
            else _read(models.ReadConsistencyType, "a number of replicas", read_consistency=read_consistency),
        )
        if not has_replicas and made != cls():
            raise ArgumentError(
                "the embedded engine has one copy of each point: leave write_ordering and read_consistency out"
            )
        return made

    def apply(self, call: QdrantCall) -> QdrantCall:
        """Return the call with what it takes of this."""
        if self.ordering is not None and call.method in _WRITES:
            return replace(call, arguments={**call.arguments, "ordering": self.ordering})
        if self.consistency is not None and call.method in _READS:
            return replace(call, arguments={**call.arguments, "consistency": self.consistency})
        return call


def _read(kind: Any, other: str = "", **given: Any) -> Any:
    ((name, value),) = given.items()
    if value is None:
        return None
    try:
        return kind(value)
    except ValueError as error:
        names = [repr(member.value) for member in kind] + ([other] if other else [])
        raise ArgumentError(f"{name} must be {' or '.join(names)}, got {format_value(value)}") from error
