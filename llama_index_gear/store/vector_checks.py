"""Checks of vectors: which points lack some, which of a sample have those of another text or model.

A check before a write warns of texts that are longer than what the model reads.
"""

from __future__ import annotations

import copy
import math
import statistics
import uuid
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, MetadataMode
from qdrant_client.http import models

from llama_index_gear.characters import count
from llama_index_gear.flow import EmbedTexts, Flow, RunFunction, ask
from llama_index_gear.store.average_length import AverageLength, get_embedded_text, get_word_weights
from llama_index_gear.store.bm25 import WordEncoder
from llama_index_gear.store.collections import Collections
from llama_index_gear.store.schema import (
    DENSE,
    NODE_FIELDS,
    SPARSE,
    TRIPLE_FIELDS,
    is_triple,
    match_lacking,
    read_passages,
    to_stored_triple,
)

# If a stored vector's cosine with the model's is below these, another model made it. A triple's text is known; a
# passage may have been embedded with another text than LlamaIndex's (with other metadata, say).
MIN_PASSAGE_COSINE, MIN_TRIPLE_COSINE = 0.5, 0.9
_SAME_TEXT = 0.99  # from this median on, passages were embedded with the text that is known
_PAGE = 256
_TOGETHER = 16  # points of a sample that are read at once
_EMBEDDED = 1_000  # characters that are embedded for each point of a sample, at least: of short texts there are more


class _Read(NamedTuple):
    """A point: the id of its passage, its text, its dense vector and its BM25 weights (None: it has none)."""

    passage_id: str
    text: str
    bare_text: str
    dense: list[float] | None
    words: models.SparseVector | None


@dataclass
class Agreement:
    """The agreement of a sample's vectors with its texts.

    Attributes:
        passages: median cosine of the passages' embeddings and the model's; None if none was compared.
        triples: lowest such cosine of the triples; None if none was compared.
        other: ids of the passages that have the vectors of another text, or a triple of which has.
        bm25_drift: number of passages whose BM25 weights are of another average length.
        is_single: True if no more than one triple has another embedding than the model's; False if none was compared.

    """

    passages: float | None = None
    triples: float | None = None
    other: dict[str, None] = field(default_factory=dict)
    bm25_drift: int = 0
    is_single: bool = False


@dataclass(frozen=True)
class VectorChecks:
    """The flows that check the vectors of a store."""

    collections: Collections
    average: AverageLength

    # -- vectors that are missing --------------------------------------------------------------------------------

    def find_missing_flow(self, name: str, vector: str) -> Flow[list[str]]:
        """Find the passages whose points, or the points of whose triples, lack a vector.

        A text without words has no BM25 weights.
        """
        found: dict[str, None] = {}
        for page in self.collections.page_flows(name, match_lacking(vector), payload=self._fields(name), limit=_PAGE):
            lacking = self._read(name, (yield from page))
            if vector == SPARSE:
                lacking = yield from ask(RunFunction(partial(_keep_worded, lacking, self._encoder(name))))
            ids = list(dict.fromkeys(point.passage_id for point in lacking))
            present = set(ids)
            if name == self.collections.triples:
                present = yield from self.collections.find_present_flow(ids)
            found.update(dict.fromkeys(id_ for id_ in ids if id_ in present))
        return list(found)

    def _fields(self, name: str) -> list[str]:
        return NODE_FIELDS if name == self.collections.passages else TRIPLE_FIELDS

    def _encoder(self, name: str) -> WordEncoder:
        return self.collections.bm25 if name == self.collections.passages else self.collections.triple_bm25

    def _read(self, name: str, points: Sequence[Any]) -> list[_Read]:
        """Read the points that hold a passage, or a triple."""
        if name == self.collections.passages:
            return [_read_passage(node, point) for node, point in read_passages(points)[0]]
        return [_read_triple(point) for point in points if is_triple(point)]

    # -- vectors of another text or model ------------------------------------------------------------------------

    def compare_flow(self, names: Iterable[str], sample_size: int) -> Flow[Agreement]:
        """Compare the vectors of a sample of each of these collections with those that their texts have now."""
        agreement = Agreement()
        for name in names:
            if name == self.collections.passages:
                average = yield from self.average.expect_flow()
                encoder = None if average is None else self.collections.bm25.with_average(average)
                chosen = yield from self._sample_flow(name, sample_size, encoder, agreement)
                yield from self._compare_passages_flow(chosen, agreement)
            else:
                chosen = yield from self._sample_flow(name, sample_size, self.collections.triple_bm25, agreement)
                yield from self._compare_triples_flow(chosen, agreement)
        return agreement

    def _sample_flow(
        self, name: str, sample_size: int, encoder: WordEncoder | None, agreement: Agreement
    ) -> Flow[list[_Read]]:
        """Compare the words of a sample; return those of it whose embeddings are to be compared.

        The sample is spread evenly over all ids, a few neighbors at each place. Ids are hashes, so it also has points
        that a killed repair did not reach; and it is all of a small collection.
        """
        chosen: list[_Read] = []
        characters, compared, other = 0, 0, dict[str, None]()
        offset: Any = str(uuid.UUID(int=0))
        for number in range(sample_size):
            place = max(offset, str(uuid.UUID(int=number * 2**128 // sample_size)))
            points, offset = yield from self.collections.page_flow(
                name, None, payload=self._fields(name), vectors=True, limit=_TOGETHER, offset=place
            )
            read = self._read(name, points)
            share = 1.0 if offset is None else uuid.UUID(offset).int / 2**128
            allowed = _EMBEDDED * max(number + 1, math.ceil(share * sample_size))
            for point in read:
                if point.dense is not None and characters < allowed:
                    chosen.append(point)
                    characters += len(point.text)
            if encoder is not None:
                drifted, differing = yield from ask(RunFunction(partial(_compare_words, read, encoder)))
                agreement.bm25_drift += len(drifted) if name == self.collections.passages else 0
                compared += len(read)
                other.update(dict.fromkeys(differing))
                other.update(dict.fromkeys(drifted if name == self.collections.triples else ()))
            if offset is None:
                break
        if 2 * len(other) <= compared:  # else another encoder made them, LlamaIndex's own say
            agreement.other.update(other)
        return chosen

    def _compare_passages_flow(self, chosen: Sequence[_Read], agreement: Agreement) -> Flow[None]:
        cosines = yield from _compute_cosines_flow(chosen, [point.text for point in chosen])
        if cosines:
            median = statistics.median(cosines)
            agreement.passages = round(median, 4)
            agreement.other.update(dict.fromkeys((yield from _find_other_flow(chosen, cosines, median))))

    def find_unembedded_flow(self, points: Sequence[Any], agreement: float | None) -> Flow[list[str]]:
        """Find those of these passages that have no embedding, or none of their own text.

        Args:
            points: of the passages, with their dense vectors.
            agreement: of the store's passages.

        """
        read = self._read(self.collections.passages, points)
        dense = [point for point in read if point.dense is not None]
        cosines = yield from _compute_cosines_flow(dense, [point.text for point in dense])
        other = yield from _find_other_flow(dense, cosines, agreement or 0.0)
        return [*other, *(point.passage_id for point in read if point.dense is None)]

    def _compare_triples_flow(self, chosen: Sequence[_Read], agreement: Agreement) -> Flow[None]:
        cosines = yield from _compute_cosines_flow(chosen, [point.text for point in chosen])
        far = [point.passage_id for point, cosine in zip(chosen, cosines, strict=True) if cosine < MIN_TRIPLE_COSINE]
        agreement.triples = round(min(cosines), 4) if cosines else None
        agreement.is_single = bool(chosen) and len(far) < 2
        agreement.other.update(dict.fromkeys(far if agreement.is_single else ()))


def _read_passage(node: BaseNode, point: Any) -> _Read:
    bare = node.get_content(metadata_mode=MetadataMode.NONE)
    return _Read(node.node_id, get_embedded_text(node), bare, node.embedding, get_word_weights(point))


def _read_triple(point: Any) -> _Read:
    stored = to_stored_triple(point, 0.0)
    dense = point.vector.get(DENSE) if isinstance(point.vector, dict) else None
    return _Read(stored.passage_id, stored.triple.text, stored.triple.text, dense, get_word_weights(point))


def _keep_worded(points: Sequence[_Read], encoder: WordEncoder) -> list[_Read]:
    """Return the points whose text has words."""
    return [point for point in points if encoder.embed_document(point.text).indices]


def _compare_words(points: Sequence[_Read], encoder: WordEncoder) -> tuple[list[str], list[str]]:
    """Return the passages of points with other weights than the encoder's, and of those with weights of other words."""
    drifted = [point.passage_id for point in points if not encoder.fits(point.text, point.words)]
    differing = [point.passage_id for point in points if point.words and not encoder.has_words(point.text, point.words)]
    return drifted, differing


def _find_other_flow(points: Sequence[_Read], cosines: Sequence[float], median: float) -> Flow[list[str]]:
    """Find the passages whose embedding is not of their own text: no one's, if it is zeros.

    The text with which a passage was embedded is known if the median of the store is that of its own texts; some may
    have been embedded without their metadata.
    """
    far = [point for point, cosine in zip(points, cosines, strict=True) if cosine < MIN_TRIPLE_COSINE]
    bare = [0.0] * len(far)
    if median >= _SAME_TEXT:
        bare = yield from _compute_cosines_flow(far, [point.bare_text for point in far])
    return [
        point.passage_id
        for point, cosine in zip(far, bare, strict=True)
        if not any(point.dense or ()) or (median >= _SAME_TEXT and cosine < MIN_TRIPLE_COSINE)
    ]


def _compute_cosines_flow(points: Sequence[_Read], texts: Sequence[str]) -> Flow[list[float]]:
    if not points:
        return []
    vectors = yield from ask(EmbedTexts(texts))
    return [_compute_cosine(point.dense or (), vector) for point, vector in zip(points, vectors, strict=True)]


def _compute_cosine(one: Sequence[float], other: Sequence[float]) -> float:
    if len(one) != len(other):
        return 0.0
    a, b = np.asarray(one), np.asarray(other)
    return float(a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-12))


_MARKS = 8  # tokens, at most, that a model adds to a text


@dataclass
class TruncationCheck:
    """Warns once where passages are longer than what the embedding model reads.

    It knows the limit of models that run in this process: of `LightEmbedding`, and of those that have the parts of
    LlamaIndex's `HuggingFaceEmbedding`, `max_length` and a tokenizer at `_model.tokenizer`. Of other models it says
    nothing.

    Attributes:
        get_model: returns the embedding model; None if none is set.
        has_warned: True once it has warned.

    """

    get_model: Callable[[], BaseEmbedding | None]
    has_warned: bool = False
    _tokenizers: list[tuple[Any, Any]] = field(default_factory=list)  # the model's own, and our copy

    def check_flow(self, nodes: Sequence[BaseNode]) -> Flow[None]:
        """Warn if some of these passages are too long, unless it has warned before."""
        model = None if self.has_warned else self.get_model()
        limit = getattr(model, "max_length", None)
        tokenizer = getattr(getattr(model, "_model", None), "tokenizer", None)
        count_tokens = getattr(model, "count_tokens", None)
        if not callable(count_tokens) and callable(tokenizer):
            count_tokens = partial(self._count_tokens, tokenizer)
        if not isinstance(limit, int) or limit < 1 or not callable(count_tokens):
            return
        prefix = getattr(model, "text_instruction", None) or ""
        texts = [prefix + get_embedded_text(node) for node in nodes]
        texts = [text for text in texts if len(text.encode()) + _MARKS > limit]  # a token has a byte or more
        numbers: Sequence[int] = (yield from ask(RunFunction(partial(count_tokens, texts)))) if texts else []
        too_long = sum(number > limit for number in numbers)
        if too_long and not self.has_warned:
            self.has_warned = True
            size = 3 * limit // 4
            warnings.warn(
                f"{too_long} of {count(len(nodes), 'passage')} {'is' if too_long == 1 else 'are'} longer than the "
                f"{limit} tokens that the embedding model {getattr(model, 'model_name', '')} reads: dense search does "
                f"not see what lies behind. Make passages shorter, SentenceSplitter(chunk_size={size}, "
                f"chunk_overlap={size // 10}), say; it counts with another tokenizer than the model, and metadata "
                "count too",
                stacklevel=2,
            )

    def _count_tokens(self, tokenizer: Any, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        if not self._tokenizers or self._tokenizers[0][0] is not tokenizer:
            # A copy: a tokenizer that is at work in another thread may not be told not to truncate.
            self._tokenizers[:] = [(tokenizer, copy.deepcopy(tokenizer))]
        tokens = self._tokenizers[0][1](list(texts), truncation=False, padding=False, verbose=False)["input_ids"]
        return [len(ids) for ids in tokens]
