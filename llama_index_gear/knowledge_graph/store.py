"""A knowledge graph that exists already, as a searchable collection of triples (Millions of GeAR-s §4.1)."""

from __future__ import annotations

from collections.abc import Iterable

from llama_index.core.base.embeddings.base import BaseEmbedding
from qdrant_client import AsyncQdrantClient, QdrantClient

from llama_index_gear.errors import check_counts, check_kind
from llama_index_gear.flow import Flow, blocking, unblocked
from llama_index_gear.knowledge_graph.sparse import LoadResult, SparseGraph
from llama_index_gear.store.bm25 import TRIPLE_AVG_LEN, make_encoder
from llama_index_gear.store.connection import NAME_FIRST, RETRY_SECONDS, Connected, Connection
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.store.triples import TripleGraph
from llama_index_gear.triple import GraphTriple, Triple


class ExternalTripleStore(Connected):
    """Triples of a knowledge graph in one Qdrant collection. They are loaded once; then any number of stores read them.

    The graph is sparse (BM25, as in Millions of GeAR-s Eq. 3): loading embeds no triple, and facts are linked by their
    words. The few hundred triples that a beam search reads are embedded at that time, and cached.

    Args:
        collection_name: name of the collection. Default "graph".
        client: a `QdrantClient`; for an embedded graph use `from_path`.
        aclient: the async client of the same server; without it async calls run `client` in worker threads.
        url: a server's address, "http://localhost:6333", in place of clients: the graph makes both and closes them.
        api_key: the server's API key, for use with `url`. Default: none.
        embed_model: the model that compares triples with questions. It must be the model that embeds the passages.
            Default: LlamaIndex's `Settings.embed_model`, looked up when first needed.
        on_disk_payload: keep the triples' words on disk, if the load creates the collection. Default False: they are
            in memory, some 200 bytes a triple, since a hop reads hundreds of triples that were not read before.
        batch_size: triples a write. Default 1000.
        language: of the BM25 stemmer and stop words, as Qdrant names it. Default "english".
        retry_seconds: how long a server that is away is waited for, in every call, in seconds. Default 30; 0: not at
            all. An agent's `Budget` can end the wait earlier.

    Raises:
        ArgumentError: neither a client nor a url is given, or both are, or an argument has the wrong type.
        StoreUnavailable: (from any call) the server is away, and was waited for. The call can be repeated.
        StoreLockedError: (from any call) another process has the embedded graph open, and was waited for.
        StoreError: (from any call) there is no graph yet, or the collection holds something else.
        EmbeddingError: (from a query) the embedding model has another dimension than the passages' model.

    """

    def __init__(
        self,
        collection_name: str = "graph",
        client: QdrantClient | EdgeClient | None = None,
        aclient: AsyncQdrantClient | None = None,
        *,
        url: str | None = None,
        api_key: str | None = None,
        embed_model: BaseEmbedding | None = None,
        on_disk_payload: bool = False,
        batch_size: int = 1000,
        language: str = "english",
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        check_kind(str, hint=NAME_FIRST, collection_name=collection_name)
        check_counts(batch_size=batch_size)
        self.collection_name = collection_name
        self.batch_size = batch_size
        self._connection = Connection("ExternalTripleStore", client, aclient, url, api_key, embed_model, retry_seconds)
        bm25 = make_encoder(language, TRIPLE_AVG_LEN)
        self._graph = SparseGraph(self._connection, collection_name, bm25, on_disk_payload)

    @blocking
    def load(self, triples: Iterable[GraphTriple | Triple], *, show_progress: bool = False) -> Flow[LoadResult]:
        """Store triples. Stored triples are not written again, so repeating a load that was killed continues it.

        Args:
            triples: triples of a reader such as `WikidataDump` or `TriplesFile`, or your own.
            show_progress: show a progress bar. Default False.

        Raises:
            ArgumentError: an item is neither a `GraphTriple` nor a `Triple`.

        """
        return self._graph.load_flow(triples, self.batch_size, show_progress)

    aload = unblocked(load)

    @blocking
    def count(self) -> Flow[int]:
        """Return the number of triples."""
        return self._graph.count_flow()

    acount = unblocked(count)

    @blocking
    def clear(self) -> Flow[None]:
        """Delete the collection."""
        return self._graph.clear_flow()

    aclear = unblocked(clear)

    @property
    def reads(self) -> TripleGraph:
        """The flows that read the graph."""
        return self._graph
