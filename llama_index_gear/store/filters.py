"""Translation of LlamaIndex's metadata filters into Qdrant's. A filter without a condition is refused."""

from __future__ import annotations

import math
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from qdrant_client.http import models

from llama_index_gear.errors import ArgumentError, StoreError, UnsupportedFilter, is_whole
from llama_index_gear.nodes import EXTRACTION_KEY
from llama_index_gear.store.schema import HIDDEN_FIELDS, OUTCOME
from llama_index_gear.store.tenancy import check_filters

METADATA = "metadata."
"""Prefix of the passage's metadata in a triple's payload; in a passage's payload it has none."""
_TOLERANCE = 8  # units in the last place: an engine loses up to two each time it reads JSON; a copy is read again
_MAX_DEPTH = 40  # groups in groups; a server reads no JSON deeper than some 128 levels
_STEP = re.compile(r"([^.\[\]]+)((?:\[[0-9]{0,18}\])*)")
_PLAIN = re.compile(r"[\w-]+", re.ASCII)
_MEANT: dict[str, Any] = {
    "integer": (models.PayloadSchemaType.FLOAT, models.FloatIndexParams),
    "uuid": (models.PayloadSchemaType.KEYWORD, models.KeywordIndexParams),
}
"""Types of indexes that change what filters find → those that are made in their place."""
_EXACT = 2**53  # to here each integer has a float of its own
_GROUPS = {None: "must", FilterCondition.AND: "must", FilterCondition.OR: "should", FilterCondition.NOT: "must_not"}

_Condition: TypeAlias = models.Condition
_Test: TypeAlias = Callable[[str], _Condition]
"""A function from the path of a field to the condition that a filter sets on it."""


def build_conditions(filters: MetadataFilters | None, *, under: str = "") -> list[Any]:
    """Translate filters into conditions that must all hold; an empty list if there are no filters.

    Filters mean the same as in LlamaIndex's Qdrant store, with these additions. A group without a condition is an AND.
    A key stands both for the field of exactly that name and for the nested path. Floats are equal if they differ by a
    few units in the last place. CONTAINS, ANY and ALL look for elements of arrays. TEXT_MATCH and
    TEXT_MATCH_INSENSITIVE compare words; the texts of an array are read as one.

    Args:
        filters: LlamaIndex's filters. An empty AND is no filter.
        under: prefix of the metadata in the payload, with its dot. Default: none.

    Raises:
        ArgumentError: `filters` are no `MetadataFilters`.
        UnsupportedFilter: a part of the filters has no condition, or Qdrant cannot express it; the message names it.

    """
    check_filters(filters)
    if filters is None or (not filters.filters and _find_clause(filters) == "must"):
        return []
    return [_translate_group(filters, under, 1)]


def build_triple_filter(
    filters: MetadataFilters | None, must: Sequence[Any] = (), exclude: Sequence[str] = ()
) -> models.Filter | None:
    """Build a filter over triples, from conditions on them, their passage's metadata and ids to leave out."""
    musts = [*must, *build_conditions(filters, under=METADATA)]
    if not musts and not exclude:
        return None
    excluded = models.HasIdCondition(has_id=list(exclude)) if exclude else None
    return models.Filter(must=musts, must_not=excluded)


def require_conditions(match_: models.Filter) -> models.Filter:
    """Return the filter, which points are to be deleted by.

    Raises:
        StoreError: every point matches the filter.

    """
    if _matches_everything(match_):
        raise StoreError("a filter without conditions would delete everything: call clear()")
    return match_


def bound_float(value: float) -> tuple[float, float]:
    """Return the least and the greatest number that an engine may return for a stored float."""
    lost, greatest = _TOLERANCE * math.ulp(value), sys.float_info.max
    return max(value - lost, -greatest), min(value + lost, greatest)


def list_paths(key: str) -> list[str]:
    """List both readings of a metadata key as Qdrant's paths: the field of exactly that name, and the nested path.

    Raises:
        UnsupportedFilter: Qdrant cannot address the key, or it is one of the store's own.

    """
    if not key or not _is_text(key) or '"' in key or "\\" in key:
        raise UnsupportedFilter(
            f"Qdrant cannot address the metadata field {key!r}: a key is text that is not empty, without quotes and "
            "backslashes"
        )
    first = re.split(r"[.\[]", key, maxsplit=1)[0]
    if first in HIDDEN_FIELDS or (first == EXTRACTION_KEY and key not in (first, f"{first}.{OUTCOME}")):
        raise UnsupportedFilter(
            f"filters don't see {key!r}, which is the store's own: of an extraction they see "
            f"'{EXTRACTION_KEY}.{OUTCOME}', of the rest your metadata"
        )
    readings, steps = [_quote(key)], [_STEP.fullmatch(part) for part in key.split(".")]
    if all(steps):
        readings.append(".".join(_quote(step[1]) + step[2] for step in steps if step))
    return list(dict.fromkeys(readings))


def list_indexed_fields(indexes: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    """List the payload paths to index, each with its schema, for `payload_indexes`.

    Raises:
        ArgumentError: an index lacks its name or schema, no filter can name its field, or filters would find something
            else with it.

    """
    fields = []
    for index in indexes:
        if set(index) != {"field_name", "field_schema"}:
            raise ArgumentError(f"payload_indexes takes {{'field_name': …, 'field_schema': …}}, got {index!r}")
        try:
            fields += [(path, _choose_schema(index)) for path in list_paths(index["field_name"])]
        except UnsupportedFilter as error:
            raise ArgumentError(f"payload_indexes: {error}") from error
    return fields


def _choose_schema(index: Mapping[str, Any]) -> Any:
    """Return the schema of an index with which filters find what they find without.

    An engine asks the index alone, if a field has one. That of integers has no 4.5, and takes 1840.0 for 1840; that of
    UUIDs takes two spellings for one.
    """
    schema = index["field_schema"]
    kind = _read_kind(schema)
    if kind == "datetime":
        raise ArgumentError(
            f"payload_indexes: with an index of datetime, filters by number find dates in {index['field_name']!r} and "
            "no numbers: index it as 'float' if it holds numbers; for qdrant_filters by dates make the index with "
            "store.client.create_payload_index"
        )
    if kind not in _MEANT:
        return schema
    type_, params = _MEANT[kind]
    if not isinstance(schema, models.IntegerIndexParams | models.UuidIndexParams):
        return type_
    kept = schema.model_dump(exclude_none=True, include=set(params.model_fields) - {"type"})
    return params(type=type_.value, **kept)


def _read_kind(schema: Any) -> str:
    """Return the type of an index, as Qdrant names it."""
    kind = getattr(schema, "type", schema)
    return str(getattr(kind, "value", kind))


def find_index_fault(indexes: Mapping[str, Any], path: str) -> str:
    """Return the fault of a path's index, "" if there is none: it is missing, or its rules change what filters find."""
    if path not in indexes:
        return f"no index of {path!r}"
    kind = _read_kind(indexes[path].data_type)
    return f"an index of {path!r} ({kind}) by which filters find something else" if kind in _MEANT else ""


def list_word_fields(filters: MetadataFilters | None) -> list[str]:
    """List the payload paths of passages whose words these filters compare.

    Raises:
        ArgumentError: `filters` are no `MetadataFilters`.
        UnsupportedFilter: Qdrant cannot address a key.

    """
    check_filters(filters)
    keys = [] if filters is None else list(dict.fromkeys(_iterate_word_keys(filters, 1)))
    return [path for key in keys for path in list_paths(key)]


def _iterate_word_keys(filters: MetadataFilters, depth: int) -> Iterator[str]:
    for part in filters.filters:
        if isinstance(part, MetadataFilters):
            if depth < _MAX_DEPTH:  # deeper ones are refused
                yield from _iterate_word_keys(part, depth + 1)
        elif part.operator in (FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE):
            yield part.key


def _quote(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f'"{name}"'


def _find_clause(filters: MetadataFilters) -> str:
    if filters.condition not in _GROUPS:
        raise UnsupportedFilter(f"filters are joined by AND, OR or NOT, not by {filters.condition!r}")
    return _GROUPS[filters.condition]


def _translate_group(filters: MetadataFilters, under: str, depth: int) -> models.Filter:
    """Translate a group of filters, with all its nested groups."""
    clause = _find_clause(filters)
    if not filters.filters:
        raise UnsupportedFilter("an empty group of filters (MetadataFilters(filters=[])) says nothing: leave it out")
    if depth > _MAX_DEPTH:
        raise UnsupportedFilter(f"filters are nested more than {_MAX_DEPTH} groups deep")
    clauses: dict[str, Any] = {
        clause: [
            _translate_group(part, under, depth + 1)
            if isinstance(part, MetadataFilters)
            else _translate_leaf(part, under)
            for part in filters.filters
        ]
    }
    return models.Filter(**clauses)


def _translate_leaf(filter_: MetadataFilter, under: str) -> _Condition:
    """Translate one filter, with both readings of its key.

    NE, NIN and IS_EMPTY exclude a passage if either reading excludes it.
    """
    fields = [under + path for path in list_paths(filter_.key)]
    operator = filter_.operator or FilterOperator.EQ
    empty = [_match_empty(field) for field in fields]
    if operator == FilterOperator.IS_EMPTY:
        return models.Filter(must=empty)
    if operator not in _TESTS:
        raise _make_error(filter_, "the operator is unknown")
    test = _TESTS[operator](filter_)
    conditions = [test(field) for field in fields]
    if operator not in (FilterOperator.NE, FilterOperator.NIN):
        return _match_any(conditions)
    or_empty = [_match_any([condition, is_empty]) for condition, is_empty in zip(conditions, empty, strict=True)]
    return models.Filter(must=[_match_any(conditions), *or_empty]) if len(conditions) > 1 else conditions[0]


def _test_equality(value: Any) -> _Test:
    if isinstance(value, float):
        low, high = bound_float(value)
        return lambda field: models.FieldCondition(key=field, range=models.Range(gte=low, lte=high))
    return _test_membership([value])


def _test_membership(values: Sequence[Any]) -> _Test:
    if _have_one_type(values):
        exact = values and all(isinstance(value, int) and abs(value) <= _EXACT for value in values)
        bounds = models.Range(gte=float(min(values)), lte=float(max(values))) if exact else None

        def test(field: str) -> _Condition:
            match_ = models.FieldCondition(key=field, match=models.MatchAny(any=list(values)))
            # An index of numbers knows ranges alone; nothing beyond this one matches.
            return match_ if bounds is None else _match_all([match_, models.FieldCondition(key=field, range=bounds)])

        return test
    tests = [_test_equality(value) for value in values]
    return lambda field: _match_any([test(field) for test in tests])


def _test_exclusion(values: Sequence[Any]) -> _Test:
    """Test that some value is none of these.

    One such element of an array is enough, as in Qdrant; among floats all elements must be others.

    An index of texts has no numbers, so that Qdrant's own exclusion (`MatchExcept`) does not find them. What has none
    of the values passes by itself, and elements of arrays are tested as `field[]`, too, which has no index.
    """
    test = _test_membership(values)
    if not _have_one_type(values):
        return lambda field: models.Filter(must_not=[_match_empty(field), test(field)])
    outside = models.MatchExcept(**{"except": list(values)})

    def test_one(field: str) -> _Condition:
        null = models.IsNullCondition(is_null=models.PayloadField(key=field))
        other = models.Filter(must_not=[_match_empty(field), null, test(field)])
        return _match_any([other, *(models.FieldCondition(key=key, match=outside) for key in (field, f"{field}[]"))])

    return test_one


def _test_bound(bound: str, filter_: MetadataFilter) -> _Test:
    value: Any = filter_.value
    if not _is_number(value):
        raise _make_error(filter_, "it compares with a finite number of at most 64 bits")
    low, high = bound_float(value) if isinstance(value, float) else (float(value), float(value))
    limit = models.Range(**{bound: high if bound in ("gt", "lte") else low})
    return lambda field: models.FieldCondition(key=field, range=limit)


def _test_words(filter_: MetadataFilter) -> _Test:
    text: Any = filter_.value
    if not _is_text(text):
        raise _make_error(filter_, "it compares with text")
    tests = [models.MatchText(text=part) for part in _split_words(text)]
    return lambda field: _match_all([models.FieldCondition(key=field, match=test) for test in tests])


def _split_words(text: str) -> list[str]:
    """Split a text where every engine does, or return it alone.

    One condition a word means the same with an index and without: engines read the texts of an indexed array as one,
    and those of another array one by one. An engine finds no word in a part without letters and digits, so that no
    passage would match it: such a text is left to the engine.
    """
    parts = "".join(" " if unicodedata.category(char)[0] in "PZC" else char for char in text).split()
    has_words = all(any(map(str.isalnum, part)) for part in parts)
    return list(dict.fromkeys(parts)) if parts and has_words else [text]


def _test_elements(test: _Test) -> _Test:
    """Test the elements of an array.

    Both conditions are needed: `field[]` does not match what is no array, and `field` does not match arrays in arrays.
    """
    return lambda field: models.Filter(must=[test(field), test(f"{field}[]")])


def _test_all_elements(filter_: MetadataFilter) -> _Test:
    tests = [_test_elements(_test_equality(value)) for value in _read_scalars(filter_)]
    if not tests:
        raise _make_error(filter_, "an empty list says nothing")
    return lambda field: models.Filter(must=[test(field) for test in tests])


def _match_all(conditions: Sequence[_Condition]) -> _Condition:
    return conditions[0] if len(conditions) == 1 else models.Filter(must=list(conditions))


def _match_any(conditions: Sequence[_Condition]) -> _Condition:
    return conditions[0] if len(conditions) == 1 else models.Filter(should=list(conditions))


def _match_empty(field: str) -> _Condition:
    return models.IsEmptyCondition(is_empty=models.PayloadField(key=field))


def _read_scalar(filter_: MetadataFilter) -> Any:
    if not (_is_text(filter_.value) or _is_number(filter_.value)):
        raise _make_error(filter_, "it compares with text, or with a finite number of at most 64 bits")
    return filter_.value


def _read_scalars(filter_: MetadataFilter, *, splits: bool = False) -> list[Any]:
    """Read the filter's list; with `splits`, also a text, split at commas."""
    values = filter_.value
    if splits and isinstance(values, str):
        values = values.split(",")
    if not isinstance(values, list) or not all(_is_text(value) or _is_number(value) for value in values):
        raise _make_error(filter_, "it compares with a list of texts, or of finite numbers of at most 64 bits")
    return values


def _have_one_type(values: Sequence[Any]) -> bool:
    """Return True if all values are texts, or all are integers: Qdrant takes such lists whole."""
    return any(all(isinstance(value, kind) for value in values) for kind in (str, int))


def _is_text(value: Any) -> bool:
    """Return True for text that can be stored: without lone surrogates."""
    return isinstance(value, str) and is_whole(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and -(2**63) <= value < 2**63
    return isinstance(value, float) and math.isfinite(value)


def _make_error(filter_: MetadataFilter, reason: str) -> UnsupportedFilter:
    return UnsupportedFilter(f"{filter_.operator} cannot filter {filter_.key!r} by {filter_.value!r}: {reason}")


def _matches_everything(condition: Any) -> bool:
    if not isinstance(condition, models.Filter):
        return False
    must, should, must_not = (_to_list(clause) for clause in (condition.must, condition.should, condition.must_not))
    if must_not or condition.min_should is not None or not all(_matches_everything(part) for part in must):
        return False
    return not should or any(_matches_everything(part) for part in should)


def _to_list(clause: Any) -> list[Any]:
    if clause is None:
        return []
    return clause if isinstance(clause, list) else [clause]


_TESTS: dict[FilterOperator, Callable[[MetadataFilter], _Test]] = {
    FilterOperator.EQ: lambda filter_: _test_equality(_read_scalar(filter_)),
    FilterOperator.NE: lambda filter_: _test_exclusion([_read_scalar(filter_)]),
    FilterOperator.IN: lambda filter_: _test_membership(_read_scalars(filter_, splits=True)),
    FilterOperator.NIN: lambda filter_: _test_exclusion(_read_scalars(filter_, splits=True)),
    FilterOperator.GT: partial(_test_bound, "gt"),
    FilterOperator.GTE: partial(_test_bound, "gte"),
    FilterOperator.LT: partial(_test_bound, "lt"),
    FilterOperator.LTE: partial(_test_bound, "lte"),
    FilterOperator.TEXT_MATCH: _test_words,
    FilterOperator.TEXT_MATCH_INSENSITIVE: _test_words,
    FilterOperator.CONTAINS: lambda filter_: _test_elements(_test_equality(_read_scalar(filter_))),
    FilterOperator.ANY: lambda filter_: _test_elements(_test_membership(_read_scalars(filter_))),
    FilterOperator.ALL: _test_all_elements,
}
"""The tests of operators that take a value."""
