"""Flows of Qdrant calls that read what surrounds an entity, and write it as a page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from llama_index_gear.errors import ArgumentError, check_characters, check_counts, format_value, read_path
from llama_index_gear.flow import Flow, RunFunction, ask
from llama_index_gear.store.filters import build_triple_filter
from llama_index_gear.store.passages import StoreReads
from llama_index_gear.store.schema import SPARSE, TRIPLE_FIELDS, build_query, to_stored_triple
from llama_index_gear.trace.graph_page import Neighborhood, render_graph
from llama_index_gear.triple import StoredTriple, entity_key

MAX_TRIPLES = 300
"""Triples of a page, if its caller says nothing else."""
_COMPARED = 2_000  # triples whose names are compared with one that is unknown
_NAMED = 5  # names that an error suggests
_LEAST_LIKENESS = 0.6  # of a name that an error suggests, from 0 to 1


@dataclass(frozen=True)
class GraphPages:
    """The flows that write pages of a store's graph.

    Attributes:
        reads: the flows that read its passages and triples, under filters.

    """

    reads: StoreReads

    def write_flow(self, path: str | Path, entity: str, max_triples: int) -> Flow[Path]:
        """The flow of `to_html`."""
        file = read_path(path=path)
        check_characters(entity=entity)
        if not entity.strip():
            raise ArgumentError("entity is empty: write the name of an entity, 'Max Born'")
        check_counts(max_triples=max_triples)
        part = yield from self.read_flow(entity, max_triples)
        yield from ask(RunFunction(lambda: file.write_text(render_graph(part), "utf-8")))
        return file

    def read_flow(self, entity: str, max_triples: int) -> Flow[Neighborhood]:
        """Read the triples that surround an entity, the nearest first, and their passages.

        They are read ring by ring. Where not all triples of a ring have room, each of its entities gets the same share.
        What an entity leaves of its share goes to the next rings.

        Raises:
            ArgumentError: no triple names the entity.

        """
        start = entity_key(entity)
        triples: dict[str, StoredTriple] = {}
        whole: set[str] = set()
        ring, seen = [start], {start}
        while ring and len(triples) < max_triples:
            room = max_triples - len(triples)
            share = -(-room // len(ring))
            ids, complete = yield from self._read_ring_flow(ring[:room], share, triples)
            found = yield from self.reads.fetch_triples_flow(ids[:room])
            whole |= {key for key in complete if complete[key] <= found.keys() | triples.keys()}
            triples.update((triple_id, found[triple_id]) for triple_id in ids[:room] if triple_id in found)
            names = (key for triple_id in ids[:room] if triple_id in found for key in _list_names(found[triple_id]))
            ring = [key for key in dict.fromkeys(names) if key not in seen]
            seen.update(ring)
        if not any(start in stored.entities for stored in triples.values()):
            yield from self._refuse_flow(entity)
        passage_ids = list(dict.fromkeys(stored.passage_id for stored in triples.values()))
        passages = yield from self.reads.get_flow(passage_ids, vectors=False)
        return Neighborhood(start, list(triples.values()), frozenset(whole), passages)

    def _read_ring_flow(
        self, ring: list[str], share: int, known: dict[str, StoredTriple]
    ) -> Flow[tuple[list[str], dict[str, set[str]]]]:
        """Read the ids of a ring's triples that are new, at most so many of each entity.

        Return also, for each entity with no further triples, the ids of all that it has.
        """
        limits = [share + sum(key in _list_names(stored) for stored in known.values()) + 1 for key in ring]
        groups = [((key,), ()) for key in ring]
        incidences = yield from self.reads.incident_flow(groups, limits)
        ids: dict[str, None] = {}
        complete = {}
        for key, limit, incident in zip(ring, limits, incidences, strict=True):
            if len(incident) < limit:
                complete[key] = {triple.id for triple in incident}
            ids.update(dict.fromkeys([triple.id for triple in incident if triple.id not in known][:share]))
        return list(ids), complete

    def _refuse_flow(self, entity: str) -> Flow[None]:
        """Raise an error that suggests names like the one that no triple has.

        Compared are the names in triples that share a word with it, and in the first of all triples.
        """
        triples: list[StoredTriple] = []
        collections = self.reads.collections
        if (yield from collections.triples_exist_flow()):
            match_ = build_triple_filter(self.reads.filters)
            words = collections.triple_bm25.embed_query(entity)
            query = build_query(words, _COMPARED, match_, payload=TRIPLE_FIELDS, using=SPARSE)
            queries = [query] if words.indices else []
            answers = yield from collections.batch_flow(collections.triples, queries)
            first = yield from collections.scroll_flow(
                collections.triples, match_, payload=TRIPLE_FIELDS, vectors=False, limit=_COMPARED
            )
            triples = [to_stored_triple(point, 0.0) for points in (*answers, first) for point in points]
        near = yield from ask(RunFunction(lambda: _find_near_names(entity, triples)))
        suggestion = f"near it are {', '.join(map(format_value, near))}" if near else "none is near it"
        raise ArgumentError(
            f"no triple names the entity {format_value(entity)}"
            + (f": {suggestion}" if triples else ": there are none")
        )


def _list_names(stored: StoredTriple) -> list[str]:
    """Return the keys of a triple's ends, and of the names that are linked with them."""
    return [*stored.entities, *(alias for _, alias in stored.aliases)]


def _find_near_names(entity: str, triples: Iterable[StoredTriple]) -> list[str]:
    """Return the names in triples that have all of an entity's words, then those that are written like it."""
    names = {entity_key(name): name for stored in triples for name in (stored.triple.subject, stored.triple.object)}
    wanted = entity_key(entity)
    having = sorted((key for key in names if set(wanted.split()) <= set(key.split())), key=len)
    near = get_close_matches(wanted, names, _NAMED, _LEAST_LIKENESS)
    return [names[key] for key in dict.fromkeys([*having, *near])][:_NAMED]
