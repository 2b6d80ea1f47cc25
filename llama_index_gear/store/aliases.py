"""Flows that link names of the same entity, find them in facts, list the links and undo them.

A link joins two entity keys. It stands in the payload of every triple that has one of the two at an end: `aliases` says
which key has which alias, and the aliases' keys are appended to `entities`, by which neighbors are found. So reading
costs nothing more, a filter hides a link with its triples, and whoever deletes triples deletes their links. Links are
not transitive. Unlinked payloads are unchanged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from llama_index.core.vector_stores.types import MetadataFilters
from qdrant_client.http import models

from llama_index_gear.errors import ArgumentError, check_characters, format_value
from llama_index_gear.flow import Flow, ask
from llama_index_gear.store.collections import Collections
from llama_index_gear.store.filters import METADATA, build_conditions
from llama_index_gear.store.locks import AcquirePassages, PassageLocks
from llama_index_gear.store.schema import (
    ALIASES,
    TRIPLE_FIELDS,
    build_alias_payload,
    is_triple,
    match_any,
    own_entities,
    read_aliases,
    read_sound_aliases,
    to_stored_triple,
)
from llama_index_gear.store.tenancy import Tenancy, is_name
from llama_index_gear.triple import Triple, entity_key

_KEYS = 200
"""Entity keys a query."""
_KNOWN_AS = (
    r"(?:(?:also|better|best|commonly|otherwise|formerly|previously|usually|often|originally)\s+)+(?:known|called|named)"
    r"(?:\s+(?:as|simply))?|known\s+as|(?:also\s+)?nicknamed|abbreviated(?:\s+(?:as|to))?|shortened\s+to|short\s+for"
    r"|stands\s+for|a\.?k\.?a\.?|alias|(?:an?\s+|the\s+)?(?:acronym|abbreviation|nickname|pen\s+name|stage\s+name|alias"
    r"|short\s+form|synonym)\s+(?:of|for)"
)
_STATED = re.compile(rf"(?:(?:is|was|are|were|has\s+been|who\s+is)\s+)?(?:{_KNOWN_AS})", re.IGNORECASE)
_HINT = re.compile(rf"\(|{_KNOWN_AS}")
"""Matches in every sentence that says so, and costs little where none does."""
_LONGEST_PREDICATE = 60  # characters; a longer one is a sentence


class AliasPair(NamedTuple):
    """Two names that mean the same, as they are written in triples.

    Attributes:
        name: the longer one.
        alias: the shorter one.

    """

    name: str
    alias: str

    @property
    def keys(self) -> tuple[str, str]:
        """The entity keys of both names, in alphabetical order."""
        one, other = sorted((entity_key(self.name), entity_key(self.alias)))
        return one, other


class Link(NamedTuple):
    """A link between two entity keys, `one` before `other` in the alphabet, of a tenant (None: there are none)."""

    tenant: str | None
    one: str
    other: str


Partners: TypeAlias = Mapping[tuple[str | None, str], Collection[str]]
"""(tenant, entity key) → keys that it is linked with."""


def index_partners(links: Iterable[Link]) -> dict[tuple[str | None, str], set[str]]:
    """Index links by both their keys."""
    partners: dict[tuple[str | None, str], set[str]] = {}
    for tenant, one, other in links:
        partners.setdefault((tenant, one), set()).add(other)
        partners.setdefault((tenant, other), set()).add(one)
    return partners


def match_linked(keys: Collection[str]) -> models.FieldCondition:
    """Build the condition that a triple has one of its entities linked with one of these keys."""
    return match_any(f"{ALIASES}[].alias", keys)


def index_linked(points: Iterable[Any], tenancy: Tenancy) -> Partners:
    """Index the links of triples by their aliases' keys."""
    partners: dict[tuple[str | None, str], set[str]] = {}
    for point in points:
        for entity, alias in read_sound_aliases(point.payload):
            partners.setdefault((read_tenant(tenancy, point.payload), alias), set()).add(entity)
    return partners


class LinkChanges:
    """Changes of the links of stored triples."""

    def __init__(self) -> None:
        self._changes: dict[str, tuple[dict[str, Any], list[Any]]] = {}

    def add(self, point: Any, wanted: dict[str, Any]) -> bool:
        """Give a triple the fields of `build_alias_payload`; return False if it has them."""
        if all(point.payload.get(name) == wanted.get(name) for name in ("entities", ALIASES)):
            return False
        self._changes.setdefault(repr(wanted), (wanted, []))[1].append(point.id)
        return True

    def build_operations(self, *conditions: Any) -> list[Any]:
        """Build the operations that change the triples, if they match these conditions."""
        return [
            operation
            for payload, ids in self._changes.values()
            for operation in _build_operations(payload, [models.HasIdCondition(has_id=ids), *conditions])
        ]

    def write_flow(self, collections: Collections) -> Flow[None]:
        """Write the changes, if there are any. Triples that were deleted meanwhile are no error."""
        if operations := self.build_operations():
            yield from collections.update_flow(collections.triples, operations)


def list_tenant_fields(tenancy: Tenancy) -> list[str]:
    """List the field of a triple's payload that names its tenant, if there are tenants."""
    return [] if tenancy.field is None else [f"{METADATA}{tenancy.field}"]


def read_tenant(tenancy: Tenancy, payload: Mapping[str, Any]) -> str | None:
    """Return the tenant of a triple; None if it has none."""
    metadata = payload.get("metadata")
    tenant = metadata.get(tenancy.field) if tenancy.field is not None and isinstance(metadata, dict) else None
    return tenant if is_name(tenant) else None


def states_alias(triple: Triple) -> bool:
    """Return True if a fact says that its two ends are names of the same.

    The predicate says so ("is also known as"). Or it is a sentence, which writes one name in brackets behind the other
    or says "known as" between them.
    """
    if len(triple.predicate) <= _LONGEST_PREDICATE and _STATED.fullmatch(triple.predicate.strip(" ,.;:")):
        return True
    if not _HINT.search(triple.predicate):
        return False
    subject, object_ = re.escape(triple.subject), re.escape(triple.object)
    between = rf"(?:\s*\(\s*|,?\s+(?:\(|who\s+|which\s+)?(?:is\s+|was\s+)?(?:{_KNOWN_AS})\s+(?:the\s+)?[\"“]?)"
    return any(
        re.search(rf"(?<!\w){one}{between}{other}(?!\w)", triple.predicate)
        for one, other in ((subject, object_), (object_, subject))
    )


@dataclass(frozen=True)
class StoreAliases:
    """The flows that find, link, list and unlink aliases."""

    collections: Collections
    tenancy: Tenancy
    locks: PassageLocks

    def find_flow(self) -> Flow[list[AliasPair]]:
        """The flow of `find_aliases`."""
        filters = self.tenancy.scope_filters(None)
        stated: dict[tuple[str, str], AliasPair] = {}
        linked: set[tuple[str, str]] = set()
        if not (yield from self.collections.triples_exist_flow()):
            return []
        for page in self._page_flows(_match(filters)):
            for point in (yield from page):
                triple = to_stored_triple(point, 0.0).triple
                linked.update((min(pair), max(pair)) for pair in read_aliases(point.payload))
                if states_alias(triple) and len(set(triple.entities)) == 2:
                    pair = _order(triple.subject, triple.object)
                    stated.setdefault(pair.keys, pair)
        meanings = Counter(entity_key(pair.alias) for pair in stated.values())
        new = [keys for keys, pair in stated.items() if keys not in linked and meanings[entity_key(pair.alias)] == 1]
        return [stated[keys] for keys in sorted(new)]

    def list_flow(self) -> Flow[list[AliasPair]]:
        """The flow of `list_aliases`."""
        filters = self.tenancy.scope_filters(None)
        links = yield from self.read_links_flow(filters)
        names = yield from self.read_names_flow(links, filters)
        return _to_pairs(links, names)

    def link_flow(self, pairs: Sequence[Any] | None) -> Flow[list[AliasPair]]:
        """The flow of `link_aliases`."""
        if pairs is None:
            pairs = yield from self.find_flow()
        new = {self._to_link(pair) for pair in _read_pairs(pairs)}
        before, after, names = yield from self.relink_flow(lambda links: links | new)
        return _to_pairs((after - before) & new, names)

    def unlink_flow(self, pairs: Sequence[Any] | None) -> Flow[list[AliasPair]]:
        """The flow of `unlink_aliases`."""
        gone = None if pairs is None else {self._to_link(pair) for pair in _read_pairs(pairs)}
        before, after, names = yield from self.relink_flow(lambda links: set() if gone is None else links - gone)
        return _to_pairs(before - after if gone is None else (before - after) & gone, names)

    def find_outdated_flow(self) -> Flow[list[str]]:
        """Find the passages, of all tenants, with a triple whose links are not those of its entities."""
        links = yield from self.read_links_flow(None)
        names = yield from self.read_names_flow(links, None)
        return (yield from self._rewrite_flow(links, keep_present(links, names), None, is_dry=True))

    def repair_flow(self) -> Flow[None]:
        """Give all triples, of all tenants, the links of their entities; links of names that are gone go too."""
        yield from self.relink_flow(lambda links: links, is_scoped=False)

    def _to_link(self, pair: AliasPair) -> Link:
        return Link(self.tenancy.tenant, *pair.keys)

    def relink_flow(
        self, change: Callable[[set[Link]], set[Link]], *, is_scoped: bool = True
    ) -> Flow[tuple[set[Link], set[Link], dict[tuple[str | None, str], str]]]:
        """Change the links, while nobody else writes. Return them before and after, and the names by tenant and key.

        Links of names that no triple has are left out. Links are returned as they are stored: no triple holds one of
        two names that stand together in each of their triples.
        """
        filters = self.tenancy.scope_filters(None) if is_scoped else None
        claim = self.locks.claim(None)
        try:
            yield from ask(AcquirePassages(claim))
            before = after = yield from self.read_links_flow(filters)
            names: dict[tuple[str | None, str], str] = {}
            # Repeated until nothing is left, each time from what is stored: another process may have stored triples
            # meanwhile, without these links, or have linked names itself.
            while True:
                wanted = change(after)
                names |= yield from self.read_names_flow(after | wanted, filters)
                wanted = keep_present(wanted, names)
                changed = yield from self._rewrite_flow(after, wanted, filters, is_dry=False)
                after = yield from self.read_links_flow(filters)
                if not changed:
                    break
        finally:
            claim.release()
        return before, after, names

    def read_links_flow(self, filters: MetadataFilters | None) -> Flow[set[Link]]:
        """Read the links of all triples that match."""
        links: set[Link] = set()
        if not (yield from self.collections.triples_exist_flow()):
            return links
        is_empty = models.IsEmptyCondition(is_empty=models.PayloadField(key=ALIASES))
        match_ = models.Filter(must=build_conditions(filters, under=METADATA), must_not=[is_empty])
        for page in self._page_flows(match_):
            for point in (yield from page):
                tenant = read_tenant(self.tenancy, point.payload)
                links.update(Link(tenant, min(pair), max(pair)) for pair in read_aliases(point.payload))
        return links

    def read_names_flow(
        self, links: Iterable[Link], filters: MetadataFilters | None
    ) -> Flow[dict[tuple[str | None, str], str]]:
        """Read a name, as written, of each key that some triple has at an end."""
        wanted = {(link.tenant, key) for link in links for key in link[1:]}
        names: dict[tuple[str | None, str], str] = {}
        if not wanted or not (yield from self.collections.triples_exist_flow()):
            return names
        for page in self._pages_of_keys(_list_keys(links), filters):
            for point in (yield from page):
                triple, tenant = to_stored_triple(point, 0.0).triple, read_tenant(self.tenancy, point.payload)
                for text in (triple.subject, triple.object):
                    if (place := (tenant, entity_key(text))) in wanted:
                        names.setdefault(place, text)
        return names

    def _rewrite_flow(
        self, stored: Set[Link], wanted: Set[Link], filters: MetadataFilters | None, *, is_dry: bool
    ) -> Flow[list[str]]:
        """Write the wanted links into the triples of their names, in place of those that were stored.

        Links that were stored since then, by another process, stay. Return the ids of passages that lacked some.
        """
        partners, outdated = index_partners(wanted), dict[str, None]()
        for page in self._pages_of_keys(_list_keys(stored | wanted), filters):
            changes = LinkChanges()
            for point in (yield from page):
                own, tenant = own_entities(point.payload), read_tenant(self.tenancy, point.payload)
                links = {key: set(partners.get((tenant, key), ())) for key in own}
                for key, alias in read_aliases(point.payload):
                    if key in links and Link(tenant, min(key, alias), max(key, alias)) not in stored:
                        links[key].add(alias)
                if changes.add(point, build_alias_payload(own, links)):
                    outdated[point.payload["passage_id"]] = None
            if not is_dry:
                yield from changes.write_flow(self.collections)
        return list(outdated)

    def _pages_of_keys(self, keys: Sequence[str], filters: MetadataFilters | None) -> Iterator[Flow[list[Any]]]:
        """Yield flows that each read a page of the triples with one of the keys."""
        for start in range(0, len(keys), _KEYS):
            yield from self._page_flows(_match(filters, match_any("entities", keys[start : start + _KEYS])))

    def _page_flows(self, match_: models.Filter | None) -> Iterator[Flow[list[Any]]]:
        """Yield flows that each read a page of the triples that match, without what is no triple."""
        fields = [*TRIPLE_FIELDS, *list_tenant_fields(self.tenancy)]
        for page in self.collections.page_flows(self.collections.triples, match_, payload=fields):
            yield _keep_triples_flow(page)


def _keep_triples_flow(page: Flow[list[Any]]) -> Flow[list[Any]]:
    return list(filter(is_triple, (yield from page)))


def _match(filters: MetadataFilters | None, *conditions: Any) -> models.Filter | None:
    must = [*conditions, *build_conditions(filters, under=METADATA)]
    return models.Filter(must=must) if must else None


def _list_keys(links: Iterable[Link]) -> list[str]:
    return sorted({key for link in links for key in link[1:]})


def keep_present(links: Iterable[Link], names: Mapping[tuple[str | None, str], str]) -> set[Link]:
    """Return the links both of whose names some triple has."""
    return {link for link in links if all((link.tenant, key) in names for key in link[1:])}


def _to_pairs(links: Iterable[Link], names: Mapping[tuple[str | None, str], str]) -> list[AliasPair]:
    """Return links as pairs of names, ordered by key; those of names that are gone are left out."""
    pairs = []
    for link in sorted(keep_present(links, names), key=lambda link: link[1:]):
        pairs.append(_order(*(names[link.tenant, key] for key in link[1:])))
    return pairs


def _order(one: str, other: str) -> AliasPair:
    alias, name = sorted((one, other), key=lambda text: (len(entity_key(text)), text))
    return AliasPair(name, alias)


def _read_pairs(pairs: Sequence[Any]) -> list[AliasPair]:
    """Read pairs of names.

    Raises:
        ArgumentError: one is none, has one name twice, or holds half a character.

    """
    read = []
    for given in pairs:
        is_pair = isinstance(given, tuple | list) and len(given) == 2
        if not is_pair or not all(isinstance(name, str) and name.strip() for name in given):
            raise ArgumentError(f"an alias is a pair of names, ('IBM', 'I.B.M.'), got {format_value(given)}")
        pair = AliasPair(*given)
        check_characters(**{f"a name of {format_value(given)}": pair.name + pair.alias})
        if len(set(pair.keys)) == 1:
            raise ArgumentError(f"both names of {format_value(given)} are one entity already: leave the pair out")
        read.append(pair)
    return read


def _build_operations(payload: dict[str, Any], conditions: list[Any]) -> list[Any]:
    """Build the operations that set the links of triples, or remove them."""
    match_ = models.Filter(must=conditions)
    operations: list[Any] = [
        models.SetPayloadOperation(set_payload=models.SetPayload(payload=payload, filter=match_)),
    ]
    if ALIASES not in payload:
        operations.append(
            models.DeletePayloadOperation(delete_payload=models.DeletePayload(keys=[ALIASES], filter=match_))
        )
    return operations
