"""The average length of a store's passages, for BM25's length normalization: given, read back, or learned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from llama_index.core.schema import BaseNode, MetadataMode
from qdrant_client.http import models

from llama_index_gear.flow import Flow, ask
from llama_index_gear.requests import RunFunction
from llama_index_gear.store.bm25 import WordEncoder, learn_average
from llama_index_gear.store.collections import Collections
from llama_index_gear.store.locks import PassageLocks
from llama_index_gear.store.schema import NODE_FIELDS, SPARSE, read_passages

_LEARNED_FROM = 1_000  # passages
_PAGE = 100  # passages a page, when their lengths are measured
_READ = 8  # passages that an average is read back from: the longest tells it
_FAR = 1.5  # an average that is wrong by this factor is learned anew


@dataclass(frozen=True)
class AverageLength:
    """The average length that a store weighs its passages' words with.

    A given length stands. Otherwise the store keeps the length that the weights of its passages were made with: they
    and the passages' texts determine it. The first passages of an empty store teach it. Stores of one collection in one
    process share it, so that two that fill it at once use the same.

    Attributes:
        collections: the store's collections.
        locks: the locks of the passages' collection, which keep the shared length.
        given: the length that the user gave; None: it is learned.

    """

    collections: Collections
    locks: PassageLocks
    given: float | None

    @property
    def _encoder(self) -> WordEncoder:
        return self.collections.bm25

    def learn(self, nodes: Sequence[BaseNode]) -> float:
        """Return the average length of the first 1,000 passages."""
        return learn_average(self._measure(nodes[:_LEARNED_FROM]))

    def _measure(self, nodes: Sequence[BaseNode]) -> list[int]:
        return [self._encoder.measure(get_embedded_text(node)) for node in nodes]

    def settle_flow(self, learn: Callable[[], float]) -> Flow[float]:
        """Read the length from stored passages, if there are any; otherwise agree on a learned one. Return it."""
        if self.given is not None:
            return self.given
        stored = yield from self.read_flow()
        if stored is not None:
            self.locks.average_words = stored
            return stored
        if self.locks.average_words is not None:
            return self.locks.average_words
        return self.locks.agree_on_average((yield from ask(RunFunction(learn))))

    def encoder_flow(self, learn: Callable[[], float]) -> Flow[WordEncoder]:
        """Return the encoder of passages, for a write that has their lock."""
        average = self.locks.average_words if self.given is None else self.given
        if average is None:  # the store was cleared since the length was settled
            average = yield from self.settle_flow(learn)
        return self._encoder.with_average(average)

    def read_flow(self) -> Flow[float | None]:
        """Return the length that stored passages were weighed with; None if none tells it."""
        if not (yield from self.collections.exists_flow()):
            return None
        weighed = models.Filter(must=[models.HasVectorCondition(has_vector=SPARSE)])
        points, _ = yield from self.collections.page_flow(
            self.collections.passages, weighed, payload=NODE_FIELDS, vectors=True, limit=_READ
        )
        texts = [(get_embedded_text(node), get_word_weights(point)) for node, point in read_passages(points)[0]]
        for text, weights in sorted(texts, key=lambda pair: -len(pair[0])):
            average = self._encoder.read_average(text, weights)
            if average is not None:
                return average
        return None

    def expect_flow(self) -> Flow[float | None]:
        """Return the length that all passages should be weighed with; None if none of them tells it.

        It is the stored one, unless passages that are stored now are longer or shorter by half: then it is theirs.
        """
        if self.given is not None:
            return self.given
        stored = yield from self.read_flow()
        if stored is None:
            return None
        learned = learn_average((yield from self._measure_stored_flow()))
        return learned if max(learned, stored) >= _FAR * min(learned, stored) else stored

    def _measure_stored_flow(self) -> Flow[list[int]]:
        """Return the lengths of the first 1,000 stored passages, with one page of them at a time in memory."""
        lengths: list[int] = []
        offset, has_more = None, True
        while has_more and len(lengths) < _LEARNED_FROM:
            points, offset = yield from self.collections.page_flow(
                self.collections.passages, None, payload=NODE_FIELDS, vectors=False, limit=_PAGE, offset=offset
            )
            nodes = [node for node, _ in read_passages(points)[0]]
            lengths += yield from ask(RunFunction(partial(self._measure, nodes)))
            has_more = offset is not None
        return lengths[:_LEARNED_FROM]

    def find_drift_flow(self, points: Sequence[Any], average: float | None) -> Flow[list[BaseNode]]:
        """Return the passages whose weights were made with another length; none if the length is None."""
        if average is None:
            return []
        encoder = self._encoder.with_average(average)
        return (yield from ask(RunFunction(lambda: _find_drift(points, encoder))))


def get_embedded_text(node: BaseNode) -> str:
    """Return the text of a passage that is embedded, and that BM25 reads."""
    return node.get_content(metadata_mode=MetadataMode.EMBED)


def get_word_weights(point: Any) -> models.SparseVector | None:
    """Return the BM25 weights of a passage's point; None if it has none."""
    return point.vector.get(SPARSE) if isinstance(point.vector, dict) else None


def _find_drift(points: Sequence[Any], encoder: WordEncoder) -> list[BaseNode]:
    return [
        node
        for node, point in read_passages(points)[0]
        if not encoder.fits(get_embedded_text(node), get_word_weights(point))
    ]
