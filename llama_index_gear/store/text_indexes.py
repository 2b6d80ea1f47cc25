"""The text indexes that a server needs to compare words, as the embedded engine does without."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from llama_index.core.vector_stores.types import MetadataFilters
from qdrant_client.http import models

from llama_index_gear.errors import UnsupportedFilter
from llama_index_gear.flow import Flow, QdrantCall, ask
from llama_index_gear.store.collections import Collections
from llama_index_gear.store.filters import METADATA, list_word_fields

_PLAIN: dict[str, Any] = {"tokenizer": models.TokenizerType.WORD, "lowercase": True}
"""The rules of an index that compares words as the embedded engine does."""
_NO_RULES = {"type", "on_disk", "memory", "phrase_matching", "enable_hnsw", "scoring"}


@dataclass
class TextIndexes:
    """Refuses filters on words where a server would not compare words.

    Without a text index some servers look for the text as a part of another: "a" is found in "bar", and "sea red" is
    not found in "red sea".

    Attributes:
        collections: the store's.
        is_server: False: the engine compares words without an index.

    """

    collections: Collections
    is_server: bool
    _found: set[tuple[str, str]] = field(default_factory=set, init=False)
    _seen_epoch: int = field(default=0, init=False)

    def check_flow(self, filters: MetadataFilters | None) -> Flow[None]:
        """Refuse the filters if they compare the words of a field that has no plain text index.

        Raises:
            UnsupportedFilter: there is no such index.

        """
        fields = list_word_fields(filters) if self.is_server else []
        if not fields:
            return
        if self._seen_epoch != self.collections.get_epoch():
            self._found, self._seen_epoch = set(), self.collections.get_epoch()
        for name, prefix in ((self.collections.passages, ""), (self.collections.triples, METADATA)):
            if all((name, path) in self._found for path in fields):
                continue
            exists = yield from ask(QdrantCall("collection_exists", {"collection_name": name}))
            if not exists:
                continue
            info = yield from ask(QdrantCall("get_collection", {"collection_name": name}))
            for path in fields:
                _check_index(name, f"{prefix}{path}", (info.payload_schema or {}).get(f"{prefix}{path}"), path)
            self._found.update((name, path) for path in fields)


def _check_index(collection: str, path: str, index: models.PayloadIndexInfo | None, field_: str) -> None:
    """Raise UnsupportedFilter if an index is no text index, or one with rules of its own."""
    what = f"TEXT_MATCH compares words, for which a server needs a text index of {path!r} in {collection!r}"
    make = (
        "make the store with collection_settings=CollectionSettings("
        f"payload_indexes=[{{'field_name': {field_!r}, 'field_schema': 'text'}}]), and call "
        "repair(): it makes the index, as the next add does"
    )
    remove = f"delete it with store.client.delete_payload_index({collection!r}, {path!r})"
    if index is None:
        raise UnsupportedFilter(f"{what}: {make}")
    if index.data_type != models.PayloadSchemaType.TEXT:
        raise UnsupportedFilter(
            f"{what}, and a field has one index at most, here of type {index.data_type.value!r}: {remove}; then {make}"
        )
    options = index.params.model_dump(exclude_none=True, exclude=_NO_RULES) if index.params else {}
    rules = {name: value for name, value in options.items() if value != _PLAIN.get(name, False)}
    if rules:
        raise UnsupportedFilter(
            f"{what} without rules of its own, and this one has {rules}: pass a filter by these rules as "
            f"qdrant_filters; or {remove}, and then {make}"
        )
