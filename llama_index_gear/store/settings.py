"""`CollectionSettings`: how a store's collections are made, searched and written, mostly on a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qdrant_client.http.models import ReadConsistencyType, SearchParams, WriteOrdering

from llama_index_gear.errors import check_kinds
from llama_index_gear.store.connection import RETRY_SECONDS


@dataclass(frozen=True, kw_only=True)
class CollectionSettings:
    """The settings of a store's two collections, most of them for a Qdrant server.

    Args:
        payload_indexes: metadata fields to index, as LlamaIndex's Qdrant store takes them:
            `[{"field_name": "year", "field_schema": PayloadSchemaType.INTEGER}]`. Filters on others work, slower; on a
            server TEXT_MATCH needs an index, `{"field_name": "title", "field_schema": "text"}`. An index changes no
            result: integers are indexed as floats, UUIDs as keywords; one of datetime would, and is refused.
        collection_options: settings with which a server creates both collections: `shard_number`, `replication_factor`,
            `write_consistency_factor`, `on_disk_payload`, `hnsw_config`, `optimizers_config`, `quantization_config`, …;
            keywords of `QdrantClient.create_collection`. The embedded engine refuses those that it does not support.
        vector_options: settings of the dense vectors: `on_disk`, `datatype`, …; fields of Qdrant's `VectorParams`.
        search_params: settings of dense searches: `hnsw_ef`, `exact`, and with quantization
            `SearchParams(quantization=QuantizationSearchParams(rescore=True, oversampling=2.0))`.
        bm25_avg_len: length of an average passage, for BM25's length normalization, in words without stop words.
            Default: the store learns it from the first passages that are added, at most 1,000 of them; it is 60 or
            more. From then on it keeps it. `check` says when it no longer fits, and `repair` learns it anew.
        retry_seconds: how long a server that is away is waited for, in every call, in seconds. Default 30; 0: not at
            all. An agent's `Budget` can end the wait earlier.
        write_ordering: how a cluster's replicas take writes: "weak" (Qdrant's default), each in its own order;
            "medium", through one of them; "strong", through the same one always, or not at all while that is away.
            Where several processes write the same passages, replicas need "medium" or "strong": otherwise one may
            keep one writer's passage, and another the other's. The embedded engine refuses it.
        read_consistency: Qdrant's read consistency. A read returns the points on which replicas agree: "quorum", all of
            more than half that are asked; "majority", more than half of all; "all", all of them; a number, all of so
            many. A read that reaches too few replicas is refused. Where all replicas are asked, as by "quorum" of two,
            a search or `get_nodes` lacks what is being written at that moment. So calls that write or copy take lists
            of points from one replica, whatever is chosen here. Default: one replica, which may lack the latest write.
            The embedded engine refuses it.

    Raises:
        ArgumentError: `payload_indexes` is no list of dicts.

    """

    payload_indexes: Sequence[dict[str, Any]] = ()
    collection_options: Mapping[str, Any] = field(default_factory=dict)
    vector_options: Mapping[str, Any] = field(default_factory=dict)
    search_params: SearchParams | None = None
    bm25_avg_len: float | None = None
    retry_seconds: float = RETRY_SECONDS
    write_ordering: WriteOrdering | str | None = None
    read_consistency: ReadConsistencyType | str | int | None = None

    def __post_init__(self) -> None:
        example = "write [{'field_name': 'year', 'field_schema': 'integer'}]"
        check_kinds(dict, hint=example, payload_indexes=self.payload_indexes)
