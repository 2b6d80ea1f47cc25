"""A flow that embeds the triples which are stored without vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qdrant_client.http import models
from tqdm.auto import tqdm

from llama_index_gear.errors import StoreUnavailable
from llama_index_gear.flow import EmbedTexts, Flow, QdrantCall, ask
from llama_index_gear.store.collections import ALL, PARTIAL, Collections
from llama_index_gear.store.locks import AcquirePassages, PassageLocks
from llama_index_gear.store.schema import DENSE, TRIPLE_FIELDS, is_triple, match_lacking, to_stored_triple

_PAGE = 256  # triples that are embedded at once, and those that a kill can cost


@dataclass(frozen=True)
class TripleVectors:
    """Embeds stored triples, beside other writers: it changes nothing of a triple but its vector.

    Once it has begun, whoever writes a triple embeds it: writers of this process look at the collection anew, those of
    others do so after each write. A copy brings triples without vectors, and says so at its end. So what is left is
    found by a scan that begins when all are said to have vectors, or the copy's end comes later.
    """

    collections: Collections
    locks: PassageLocks
    show_progress: bool

    def embed_flow(self) -> Flow[int]:
        """The flow of `embed_stored_triples`."""
        if not (yield from self.collections.triples_exist_flow()):
            self.collections.wants_vectors = True
            return 0
        if not self.collections.embeds_triples:
            yield from keep_embedded_flow(self.collections, self.locks, PARTIAL)
        arguments = {"count_filter": match_lacking(DENSE), "exact": True}
        counted = yield from ask(QdrantCall("count", {"collection_name": self.collections.triples, **arguments}))
        embedded = 0
        with tqdm(total=counted.count, desc="Embedding triples", disable=not self.show_progress) as bar:
            number = yield from self._embed_lacking_flow(bar)
            while True:
                embedded += number
                yield from keep_embedded_flow(self.collections, self.locks, ALL)
                if not (number := (yield from self._embed_lacking_flow(bar))):
                    return embedded

    def _embed_lacking_flow(self, bar: Any) -> Flow[int]:
        """Embed all triples that lack a vector, a page at a time; return their number."""
        embedded, name = 0, self.collections.triples
        for page in self.collections.page_flows(name, match_lacking(DENSE), payload=TRIPLE_FIELDS, limit=_PAGE):
            number = yield from self._embed_page_flow((yield from page))
            embedded += number
            bar.update(number)
        return embedded

    def _embed_page_flow(self, points: Sequence[Any]) -> Flow[int]:
        """Embed triples, a text once; return the number of those that were still there."""
        texts = {str(point.id): to_stored_triple(point, 0.0).triple.text for point in points if is_triple(point)}
        if not texts:
            return 0
        distinct = sorted(set(texts.values()), key=len)
        embeddings = dict(zip(distinct, (yield from ask(EmbedTexts(distinct))), strict=True))
        for text, vector in embeddings.items():
            self.collections.check_dimension(vector, f"the embedding of the triple {text!r} (embed_model of the store)")
        return (yield from self._store_flow({point_id: embeddings[text] for point_id, text in texts.items()}))

    def _store_flow(self, vectors: Mapping[str, Sequence[float]]) -> Flow[int]:
        """Store vectors of triples, by id; engines refuse them all if one of the triples was deleted meanwhile."""
        while vectors:
            points = [models.PointVectors(id=id_, vector={DENSE: list(vector)}) for id_, vector in vectors.items()]
            update = models.UpdateVectorsOperation(update_vectors=models.UpdateVectors(points=points))
            try:
                yield from self.collections.update_flow(self.collections.triples, [update])
                break
            except StoreUnavailable:
                raise
            except Exception:
                options = {"ids": list(vectors), "with_payload": False, "with_vectors": False}
                found = yield from ask(QdrantCall("retrieve", {"collection_name": self.collections.triples, **options}))
                if len(found) == len(vectors):
                    raise
                vectors = {str(point.id): vectors[str(point.id)] for point in found}
        return len(vectors)


def keep_embedded_flow(collections: Collections, locks: PassageLocks, embedded: str) -> Flow[None]:
    """Note how many triples have vectors, while nobody of this process writes; its other stores look anew."""
    claim = locks.claim(None)
    try:
        yield from ask(AcquirePassages(claim))
        yield from collections.keep_flow(embedded=embedded)
        locks.epoch += 1
    finally:
        claim.release()
