"""The passages of a collection that another program made, with their vectors. They are read, and never changed."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from llama_index.core.schema import BaseNode, MetadataMode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import MetadataFilters
from llama_index.core.vector_stores.utils import metadata_dict_to_node
from qdrant_client import AsyncQdrantClient, QdrantClient
from qdrant_client.http import models

from llama_index_gear.errors import ArgumentError, StoreError, check_kind, read_path
from llama_index_gear.flow import Flow, QdrantCall, Request, ask
from llama_index_gear.nodes import DOC_KEYS, SOURCE_KEY, with_metadata
from llama_index_gear.store.collections import NamedCollection, resolve_flow
from llama_index_gear.store.connection import NAME_FIRST, RETRY_SECONDS, Connection
from llama_index_gear.store.filters import build_conditions
from llama_index_gear.store.schema import DENSE

logger = logging.getLogger(__name__)

_READ_METHODS = frozenset({"collection_exists", "get_aliases", "get_collection", "count", "scroll"})
_NODE = "_node_content"  # payload field of LlamaIndex's nodes
_FILES = ("file_name", "file_path")  # titles without the ending of a file


@dataclass(frozen=True)
class SourcePage:
    """A page of another program's points.

    Attributes:
        passages: the passages, with their vectors as embeddings.
        skipped: id of a point → why it gives no passage.
        fields: the names of the points' payload fields.
        offset: offset of the next page; None: no more.

    """

    passages: list[BaseNode]
    skipped: dict[Any, str]
    fields: set[str]
    offset: Any


def make_local_client(path: str | Path) -> QdrantClient:
    """Open a folder of Qdrant's client (`QdrantClient(path=…)`).

    Raises:
        StoreError: the folder holds no collections, or another client has it open.

    """
    folder = read_path(hint="write the folder's path", path=path)
    if not (folder / "meta.json").is_file():  # the client would make the folder
        raise StoreError(f"{folder} is no folder of QdrantClient(path=…)")
    try:
        return QdrantClient(path=str(folder))
    except RuntimeError as error:
        raise StoreError(f"{folder} cannot be opened: {error}") from error


class SourceCollection:
    """Reads the points of a collection as passages. It makes calls that read, and refuses to make others.

    A passage names its point in its metadata, as `gear_source`, with the collection's name and place, and a
    fingerprint of all that the point holds.

    Args:
        collection_name: the collection.
        client: see `Connection`, as the next three.
        aclient: the async client.
        url: the server's address.
        api_key: the server's API key.
        vector_name: name of the dense vectors.
        text_key: payload field of the text, of points that hold no LlamaIndex node.
        title_key: metadata field of the title.
        place: the place that passages name. None: where the collection is.

    """

    def __init__(
        self,
        collection_name: str,
        client: QdrantClient | None,
        aclient: AsyncQdrantClient | None,
        url: str | None,
        api_key: str | None,
        vector_name: str | None,
        text_key: str,
        title_key: str,
        place: str | None,
    ) -> None:
        check_kind(str, hint=NAME_FIRST, collection_name=collection_name)
        check_kind(str, hint="write the place that the error names", optional=True, place=place)
        self.name = collection_name
        self._vector, self._text_key, self._title_key = vector_name, text_key, title_key
        self._no_text = f"no text under {text_key!r}"
        self.connection = Connection("ExistingCollection", client, aclient, url, api_key, None, RETRY_SECONDS)
        self.place = place or self.connection.place

    def check_call(self, request: Request[Any]) -> None:
        """Refuse what does not read.

        Raises:
            StoreError: the request is no call, or one that may write.

        """
        if not isinstance(request, QdrantCall) or request.method not in _READ_METHODS:
            raise StoreError(f"the collection of another program is only read: {request} is refused")

    def open_flow(self) -> Flow[str]:
        """Return the name of the dense vectors.

        Raises:
            StoreError: there is no such collection.
            ArgumentError: there are no such vectors, or none at all, or several and none is named.

        """
        exists = yield from ask(QdrantCall("collection_exists", {"collection_name": self.name}))
        if not exists:
            raise StoreError(f"there is no collection {self.name!r}: check its name, and the url or folder")
        info = yield from ask(QdrantCall("get_collection", {"collection_name": self.name}))
        vectors = info.config.params.vectors or {}
        if not vectors:
            raise ArgumentError(f"collection {self.name!r} has no dense vectors: a graph needs those of its passages")
        vectors = vectors if isinstance(vectors, dict) else {"": vectors}
        known = [DENSE] if self._vector is None and DENSE in vectors else list(vectors)
        name = known[0] if self._vector is None and len(known) == 1 else self._vector
        if name is None or name not in vectors:
            raise ArgumentError(
                f"collection {self.name!r} has the dense vectors {', '.join(map(repr, vectors))}: name "
                "one of them, vector_name=…"
            )
        if vectors[name].multivector_config is not None:
            raise ArgumentError(f"the vectors {name!r} of collection {self.name!r} are several a passage: name others")
        if vectors[name].distance != models.Distance.COSINE:
            logger.warning(
                "collection %r compares vectors by %s, a GeARVectorStore by cosine: dense search may rank otherwise",
                self.name,
                vectors[name].distance.value,
            )
        return str(name)

    def resolve_flow(self) -> Flow[NamedCollection | None]:
        """Return the collection that the name leads to now; None: it leads to none."""
        return (yield from resolve_flow([self.name])).get(self.name)

    def count_flow(self, filters: MetadataFilters | None) -> Flow[int]:
        """Count the points that match."""
        match_ = models.Filter(must=build_conditions(filters))
        arguments = {"collection_name": self.name, "count_filter": match_, "exact": True}
        counted = yield from ask(QdrantCall("count", arguments))
        return int(counted.count)

    def page_flow(
        self,
        vector: str,
        filters: MetadataFilters | None,
        limit: int,
        offset: Any,
        settings: str,
    ) -> Flow[SourcePage]:
        """Read the next points that match, as passages. Their fingerprints tell `settings` apart too."""
        arguments = {
            "scroll_filter": models.Filter(must=build_conditions(filters)),
            "limit": limit,
            "offset": offset,
            "with_payload": True,
            "with_vectors": [vector] if vector else True,
        }
        points, next_offset = yield from ask(QdrantCall("scroll", {"collection_name": self.name, **arguments}))
        passages: list[BaseNode] = []
        skipped: dict[Any, str] = {}
        fields: set[str] = set()
        for point in points:
            fields.update(point.payload or {})
            embedding = point.vector.get(vector) if isinstance(point.vector, dict) else point.vector
            node = self._read_node(point)
            if node is None:
                skipped[point.id] = self._no_text
            elif not embedding:
                skipped[point.id] = f"no vector {vector!r}"
            else:
                node.embedding = list(map(float, embedding))
                passages.append(self._mark(node, point, self._fingerprint(node, point, settings)))
        return SourcePage(passages, skipped, fields, next_offset)

    def find_gone_flow(self, point_ids: Sequence[Any], filters: MetadataFilters | None) -> Flow[set[Any]]:
        """Return those of these ids of points that no point has that matches."""
        has_id = models.HasIdCondition(has_id=list(point_ids))
        arguments = {
            "scroll_filter": models.Filter(must=[has_id, *build_conditions(filters)]),
            "limit": len(point_ids),
            "with_payload": False,
            "with_vectors": False,
        }
        points, _ = yield from ask(QdrantCall("scroll", {"collection_name": self.name, **arguments}))
        return set(point_ids) - {point.id for point in points}

    def explain_no_passage(self, skipped: Mapping[Any, str], fields: set[str]) -> ArgumentError:
        """Return the error of a collection none of whose points gives a passage, with the commonest reason."""
        ((why, _),) = Counter(skipped.values()).most_common(1)
        hint = (
            f"their fields: {', '.join(sorted(fields)) or 'none'}. Name the one that holds the text: text_key=…"
            if why == self._no_text
            else "name the vectors that they have: vector_name=…"
        )
        return ArgumentError(f"the {len(skipped)} points of {self.name!r} that match give no passage ({why}); {hint}")

    def _read_node(self, point: Any) -> BaseNode | None:
        """Read the passage of a point; None if it has no text."""
        payload = point.payload or {}
        text = payload.get(self._text_key)
        node: BaseNode | None = None
        if _NODE in payload:
            try:
                node = metadata_dict_to_node(payload)
            except (TypeError, ValueError, KeyError, AttributeError, RecursionError):
                node = None  # of another program, or another version: its text may stand in a field
            if node is not None and not node.get_content(metadata_mode=MetadataMode.NONE) and isinstance(text, str):
                node.set_content(text)
        if node is None:
            node = self._make_node(point, text if isinstance(text, str) else "")
        return node if node.get_content(metadata_mode=MetadataMode.NONE).strip() else None

    def _make_node(self, point: Any, text: str) -> BaseNode:
        """Make a passage of a payload: all that is not text is metadata, which the vector is taken not to be of."""
        kept = {key: value for key, value in point.payload.items() if key != self._text_key} if point.payload else {}
        nested = kept.pop("metadata", {})
        metadata = {**kept, **nested} if isinstance(nested, dict) else {**kept, "metadata": nested}
        document = next((metadata[key] for key in DOC_KEYS if isinstance(metadata.get(key), str)), None)
        metadata = {key: value for key, value in metadata.items() if key not in DOC_KEYS and not key.startswith("_")}
        return TextNode(
            id_=str(point.id),
            text=text,
            metadata=metadata,
            excluded_embed_metadata_keys=list(metadata),
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document)} if document else {},
        )

    def _fingerprint(self, node: BaseNode, point: Any, settings: str) -> str:
        """Return the fingerprint of a point's passage under these settings."""
        about = [settings, self._text_key, self._title_key, point.payload]
        digest = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode("utf-8", "surrogatepass"))
        digest.update(np.asarray(node.embedding, dtype=np.float32).tobytes())
        return digest.hexdigest()[:32]

    def _mark(self, node: BaseNode, point: Any, fingerprint: str) -> BaseNode:
        """Return the passage with its title, and with the name and the fingerprint of its point."""
        source = {"collection": self.name, "place": self.place, "point": point.id, "fingerprint": fingerprint}
        title = node.metadata.get(self._title_key)
        titles: dict[str, Any] = {}
        if title and "title" not in node.metadata:
            titles["title"] = PurePath(str(title)).stem if self._title_key in _FILES else str(title)
        return with_metadata(node, {**titles, SOURCE_KEY: source})
