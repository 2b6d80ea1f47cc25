"""The average length of a store's passages, for BM25's length normalization: given, stored, or learned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from llama_index.core.schema import BaseNode, MetadataMode
from qdrant_client.http import models

from llama_index_gear.flow import Flow, RunFunction, ask
from llama_index_gear.store.bm25 import WordEncoder, learn_average
from llama_index_gear.store.collections import Collections
from llama_index_gear.store.schema import NODE_FIELDS, SPARSE, read_passages

_LEARNED_FROM = 1_000  # passages
_PAGE = 100  # passages a page, when their lengths are measured
_FAR = 1.5  # an average that is wrong by this factor is learned anew


@dataclass(frozen=True)
class AverageLength:
    """The average length that a store weighs its passages' words with.

    A given length stands. Otherwise it is the one in the metadata of the passages' collection. Whoever makes the
    collection learns it from the first passages: so all writers of an empty store use the same.

    Attributes:
        collections: the store's collections.
        given: the length that the user gave; None: it is learned.

    """

    collections: Collections
    given: float | None

    @property
    def words(self) -> float | None:
        """The length in words; None before it is known."""
        return self.collections.average_words if self.given is None else self.given

    @property
    def encoder(self) -> WordEncoder:
        """The encoder of passages."""
        return self.collections.bm25.with_average(self.words or self.collections.bm25.average_words)

    def learn_flow(self, learn: Callable[[], float | None]) -> Flow[float | None]:
        """Return the given length, or that of the stored passages; if none is stored, call `learn`."""
        if self.given is not None:
            return self.given
        lengths = yield from self._measure_stored_flow()
        return learn_average(lengths) if lengths else (yield from ask(RunFunction(learn)))

    def learn(self, nodes: Sequence[BaseNode]) -> float:
        """Return the average length of the first 1,000 of these passages."""
        return learn_average(self._measure(nodes[:_LEARNED_FROM]))

    def _measure_stored_flow(self) -> Flow[list[int]]:
        """Return the lengths of the first 1,000 stored passages, with a page of them in memory."""
        lengths: list[int] = []
        if not (yield from self.collections.exists_flow()):
            return lengths
        for page in self.collections.page_flows(self.collections.passages, None, payload=NODE_FIELDS, limit=_PAGE):
            nodes = [node for node, _ in read_passages((yield from page))[0]]
            lengths += yield from ask(RunFunction(partial(self._measure, nodes)))
            if len(lengths) >= _LEARNED_FROM:
                break
        return lengths[:_LEARNED_FROM]

    def _measure(self, nodes: Sequence[BaseNode]) -> list[int]:
        return [self.collections.bm25.measure(get_embedded_text(node)) for node in nodes]

    def expect_flow(self) -> Flow[float | None]:
        """Return the length that all passages should be weighed with; None if there are none, and it isn't known.

        It is the stored one, unless passages that are stored now are longer or shorter by half: then it is theirs.
        """
        words = self.words
        learned = yield from self.learn_flow(lambda: words)
        if learned is None or words is None:
            return learned
        return learned if max(learned, words) >= _FAR * min(learned, words) else words

    def find_drift_flow(self, points: Sequence[Any]) -> Flow[list[BaseNode]]:
        """Return the passages whose weights were made with another length."""
        encoder = self.encoder
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
