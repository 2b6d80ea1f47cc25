"""Methods of `GeARVectorStore` besides LlamaIndex's interface: aliases, a page of the graph, upkeep and copies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Self

from llama_index.core.vector_stores.types import MetadataFilters

from llama_index_gear.errors import ArgumentError
from llama_index_gear.flow import Flow, RunFunction, arun, ask, blocking, run, unblocked
from llama_index_gear.store.aliases import AliasPair, StoreAliases
from llama_index_gear.store.check_and_repair import SAMPLE, StoreChecks, StoreReport
from llama_index_gear.store.collections import Collections
from llama_index_gear.store.connection import Connected
from llama_index_gear.store.copy import check_apart_flow, copy_flow, copy_links_flow
from llama_index_gear.store.deletes import UnfinishedWrites
from llama_index_gear.store.embedded.client import EdgeClient, compact
from llama_index_gear.store.neighborhood import MAX_TRIPLES, GraphPages
from llama_index_gear.store.passages import StoreReads
from llama_index_gear.store.tenancy import Tenancy
from llama_index_gear.store.text_indexes import TextIndexes
from llama_index_gear.store.triple_vectors import TripleVectors
from llama_index_gear.store.writes import StoreWrites


class StoreUpkeep(Connected):
    """The part of `GeARVectorStore` that LlamaIndex asks nothing of."""

    collection_name: str
    language: str
    show_progress: bool
    _collections: Collections
    _writes: StoreWrites
    _aliases: StoreAliases
    _unfinished: UnfinishedWrites
    _vectors: TripleVectors
    _checks: StoreChecks
    _tenancy: Tenancy
    _text_indexes: TextIndexes

    @property
    def triple_collection_name(self) -> str:
        """The name of the triples' collection."""
        return self._collections.triples

    def _reads(self, filters: MetadataFilters | None = None, *, all_tenants: bool = False) -> StoreReads:
        scope = self._tenancy.own_filters if all_tenants else self._tenancy.scope_filters(filters)
        # What was found under the filters matches them; a tenant's triples are compared once more.
        return StoreReads(self._collections, scope, self._text_indexes, are_known=not self._tenancy.field)

    # -- names that mean the same --------------------------------------------------------------------------------

    @blocking
    def find_aliases(self) -> Flow[list[AliasPair]]:
        """Find names that facts give to one thing: "X is also known as Y". Nothing is changed.

        An alias that facts give to two things is left out. The call reads every triple. A store with a `tenant_field`
        is asked through `for_tenant(…)`.

        Returns:
            The pairs that are not linked yet.

        """
        return self._aliases.find_flow()

    afind_aliases = unblocked(find_aliases)

    @blocking
    def link_aliases(self, pairs: Sequence[AliasPair | tuple[str, str]] | None = None) -> Flow[list[AliasPair]]:
        """Link names that mean the same, so that walks go from the triples of one to those of the other.

        Triples stay as they were extracted: links stand beside them. Triples that are added later get the links of
        their names. Links are not transitive. Filters and tenants bind them as they bind triples. A link ends when all
        triples of one of its names are deleted; `repair` removes what is left of it.

        After a kill, repeat it: until then a link may stand in some of its triples only, as `check` says.

        Args:
            pairs: pairs of names, of your own or from `find_aliases`. Default: those that it finds.

        Returns:
            The pairs that were linked. Those that were before, those one of whose names is in no triple, and those
            whose names stand together in each of their triples, are left out.

        Raises:
            ArgumentError: before anything is written, if a pair is none, if its names are one entity already, or if one
                holds half a character.

        """
        return self._connection.write_flow(self._aliases.link_flow(pairs))

    alink_aliases = unblocked(link_aliases)

    @blocking
    def list_aliases(self) -> Flow[list[AliasPair]]:
        """List the pairs of names that are linked."""
        return self._aliases.list_flow()

    alist_aliases = unblocked(list_aliases)

    @blocking
    def unlink_aliases(self, pairs: Sequence[AliasPair | tuple[str, str]] | None = None) -> Flow[list[AliasPair]]:
        """Undo links. Payloads that have no link left are as they were before. After a kill, repeat it.

        Args:
            pairs: the pairs to unlink. Default: all that are linked.

        Returns:
            The pairs that were unlinked.

        Raises:
            ArgumentError: before anything is written, if a pair is none; see `link_aliases`.

        """
        return self._connection.write_flow(self._aliases.unlink_flow(pairs))

    aunlink_aliases = unblocked(unlink_aliases)

    @blocking
    def to_html(
        self, path: str | Path, entity: str, *, filters: MetadataFilters | None = None, max_triples: int = MAX_TRIPLES
    ) -> Flow[Path]:
        """Write a page of the graph around an entity, which needs no network: walk it by clicks, search it by name.

        Args:
            path: the file; an existing one is replaced.
            entity: its name. Case and punctuation don't matter.
            filters: conditions on the passages whose triples are shown. Default: none.
            max_triples: highest number of triples on the page; with them come their passages. They are read ring by
                ring around the entity. Where a ring's triples have no room, each of its names gets the same share, and
                what a name leaves of it goes to farther rings. Default 300.

        Returns:
            The file.

        Raises:
            ArgumentError: no triple names the entity. The message suggests names like it.

        """
        return GraphPages(self._reads(filters)).write_flow(path, entity, max_triples)

    ato_html = unblocked(to_html)

    # -- looking after it ----------------------------------------------------------------------------------------

    @blocking
    def check(self, sample_size: int = SAMPLE) -> Flow[StoreReport]:
        """Look for what killed calls, other programs or another embedding model left behind. Nothing is changed.

        The call reads every passage and every triple once, and looks at all that searches rely on: fields, links,
        indexes, and that no vector is missing: of a triple its BM25 weights, and where triples are embedded, its
        embedding too. What is in the vectors is compared for a sample. Nothing else should write meanwhile.

        Args:
            sample_size: number of passages, and of triples, that are embedded again, to compare their stored vectors
                with those of `embed_model`; where texts are short, up to 16 times as many. BM25 weights are compared
                too. Default 16; with 0 nothing is compared.

        Returns:
            The counts and the faults. `report.ok` is True if there are none; `print(report)` lists them.

        """
        self._tenancy.require_unscoped("check")
        return self._checks.check_flow(sample_size)

    acheck = unblocked(check)

    @blocking
    def finish_writes(self) -> Flow[None]:
        """Finish or undo what calls that ended early left in the store.

        Afterwards each triple is one that its passage states. On a store that is in order it costs one query.
        """
        return self._connection.write_flow(self._unfinished.finish_flow())

    afinish_writes = unblocked(finish_writes)

    @blocking
    def repair(self, *, reembed: bool = False) -> Flow[StoreReport]:
        """Repair what `check` finds: add missing triples; delete outdated ones, and those of deleted passages.

        Fields follow the passage's own text and metadata. Embeddings and BM25 weights that are missing are made, and
        those of another text or average length are made anew. What the report still names can't be mended.

        An embedded store is written anew if more than half of its folder is of what was replaced or deleted: only so
        does the folder shrink. That takes about as long as loading it did, and room for a second copy on the disk.

        Repeating it after a kill is safe. Nothing else should write meanwhile.

        Args:
            reembed: make all embeddings again, with the store's `embed_model`. Default False: only missing triples
                are embedded, where the store's triples are.

        Returns:
            The report of a `check` afterwards.

        Raises:
            EmbeddingError: before anything is written, if another model made the stored vectors and `reembed` is False;
                or if `embed_model` has another dimension than the collections.

        """
        self._tenancy.require_unscoped("repair")
        report = yield from self._connection.write_flow(self._checks.repair_flow(reembed))
        if isinstance(self.client, EdgeClient):
            for name in (self.collection_name, self.triple_collection_name):
                yield from ask(RunFunction(partial(compact, self.client, name)))
        return report

    arepair = unblocked(repair)

    @blocking
    def embed_stored_triples(self) -> Flow[int]:
        """Embed the triples that were stored without vectors; from then on new ones get vectors too.

        Other calls may read and write meanwhile. After a kill, repeat it: it goes on with those that lack a vector.
        `show_progress` of the store shows a bar.

        Returns:
            The number of triples that were embedded.

        """
        self._tenancy.require_unscoped("embed_stored_triples")
        return self._connection.write_flow(self._vectors.embed_flow())

    aembed_stored_triples = unblocked(embed_stored_triples)

    @contextmanager
    def bulk_load(self) -> Iterator[None]:
        """Let a server build no vector index within the block; it is built once, afterwards, in the background.

        For the first load of very many passages: `with store.bulk_load(): pipeline.run(…)`. Queries within the block
        are exact and slow. The embedded engine builds no vector index in any case. If the process dies within the
        block, enter and leave it once more.
        """
        try:
            run(self._set_loading_flow(True), self._answer)
            yield
        finally:
            run(self._set_loading_flow(False), self._answer)

    @asynccontextmanager
    async def abulk_load(self) -> AsyncIterator[None]:
        """`bulk_load`, for `async with`."""
        try:
            await arun(self._set_loading_flow(True), self._aanswer)
            yield
        finally:
            await arun(self._set_loading_flow(False), self._aanswer)

    def _set_loading_flow(self, is_loading: bool) -> Flow[None]:
        if not isinstance(self.client, EdgeClient):
            yield from self._collections.set_loading_flow(is_loading)

    def _needs_loading_flow(self) -> Flow[bool]:
        if isinstance(self.client, EdgeClient):
            return False
        return (yield from self._collections.needs_loading_flow())

    def copy_to(self, target: Self, *, filters: MetadataFilters | None = None) -> int:
        """Copy passages and triples into another store as they are, with vectors: nothing is embedded or extracted.

        Use it, for example, to move from an embedded store to a server: `store.copy_to(GeARVectorStore(url=…))`. A
        passage that both stores have is replaced in the target, with its triples. The target keeps everything else.
        Links of aliases are copied too; of two names that this store has and does not link, a link ends in the target.
        Repeating it after a kill is safe. `show_progress` of this store shows a bar. A server's collections that the
        copy makes get their vector index at its end, as after `bulk_load`. Where this store's triples have no vectors,
        those of the copies are for the target's `embed_stored_triples` to make.

        Args:
            target: a store with the same `language`. Its missing collections are created. Words of the copied passages
                are weighed with its average length (`bm25_avg_len`), if it has one; otherwise it takes this store's.
            filters: copy only the passages that match, with their triples. Default: all passages; of a tenant's store,
                that tenant's.

        Returns:
            The number of passages that were copied.

        Raises:
            ArgumentError: the target has another `language` or `tenant_field`, or is this store, by whatever name.
            TenantError: another tenant of the target has a passage with the same id, or the target is bound to a
                tenant.
            EmbeddingError: the target has vectors of another dimension.

        """
        self._check_copy(target)
        run(self._check_apart_flow(target), self._answer)
        with target.bulk_load() if run(target._needs_loading_flow(), target._answer) else nullcontext():
            return run(self._connection.write_flow(self._copy_flow(target, filters)), self._answer)

    async def acopy_to(self, target: Self, *, filters: MetadataFilters | None = None) -> int:
        """`copy_to`, without blocking the event loop."""
        self._check_copy(target)
        await arun(self._check_apart_flow(target), self._aanswer)
        needs_loading = await arun(target._needs_loading_flow(), target._aanswer)
        async with target.abulk_load() if needs_loading else nullcontext():
            return await arun(self._connection.write_flow(self._copy_flow(target, filters)), self._aanswer)

    def _check_copy(self, target: Self) -> None:
        if self.language != target.language:
            raise ArgumentError(
                f"the stores' language differ ({self.language!r} and {target.language!r}): BM25 weights would mean two "
                "things"
            )
        target._tenancy.require_unscoped("copy_to")

    def _check_apart_flow(self, target: Self) -> Flow[None]:
        own, other = self._connection, target._connection
        if own.engine == other.engine or own.place == other.place != "memory":
            yield from check_apart_flow(self._collections, target._collections, other)

    def _copy_flow(self, target: Self, filters: MetadataFilters | None) -> Flow[int]:
        if self._tenancy.tenant is not None:  # the whole store copies all tenants
            filters = self._tenancy.scope_filters(filters)
        at_target = target._connection.for_writes
        yield from self._text_indexes.check_flow(filters)
        yield from at_target.route_flow(target._unfinished.finish_flow())
        copied = yield from copy_flow(self._writes, target._writes, at_target, filters, self.show_progress)
        yield from copy_links_flow(self._aliases, target._aliases, at_target)
        return copied
