"""LlamaIndex's metadata filters as Qdrant's: a pure translation in which whatever says nothing is refused."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from qdrant_client.http import models

from llama_index_gear.errors import ArgumentError, StoreError, UnsupportedFilter, is_whole
from llama_index_gear.nodes import EXTRACTION_KEY
from llama_index_gear.store.schema import OUTCOME, UNSEEN
from llama_index_gear.tenancy import check_filters

METADATA = "metadata."
"""Where a triple's payload has the metadata of its passage; a passage's own has it at the top."""
_LOST = 8  # units in the last place: an engine loses up to two when it reads its JSON, and a copy is read again
_DEEPEST = 40  # groups in groups; a server reads no JSON deeper than some 128 levels
_STEP = re.compile(r"([^.\[\]]+)((?:\[[0-9]{0,18}\])*)")
_PLAIN = re.compile(r"[\w-]+", re.ASCII)
_GROUPS = {None: "must", FilterCondition.AND: "must", FilterCondition.OR: "should", FilterCondition.NOT: "must_not"}

_Condition: TypeAlias = models.Condition
_Test: TypeAlias = Callable[[str], _Condition]
"""What a filter asks of the field at a path."""


def conditions(filters: MetadataFilters | None, *, under: str = "") -> list[Any]:
    """Translate filters into conditions all of which must hold; none if there are no filters.

    They mean what they mean in LlamaIndex's Qdrant store. Beyond that: a group without a condition is an AND; a key
    names the field of exactly that name and the nested path alike; floats are equal if they differ by a few units in
    the last place; CONTAINS, ANY and ALL ask arrays for elements.

    Args:
        filters: LlamaIndex's. An AND of nothing is no filter.
        under: the payload field that holds the metadata, with its dot. Default: the payload itself.

    Raises:
        ArgumentError: `filters` are none.
        UnsupportedFilter: a part of the filters says nothing, or cannot be expressed; it is named.

    """
    check_filters(filters)
    if filters is None or (not filters.filters and _clause(filters) == "must"):
        return []
    return [_group(filters, under, 1)]


def triple_filter(
    filters: MetadataFilters | None, must: Sequence[Any] = (), exclude: Sequence[str] = ()
) -> models.Filter | None:
    """A filter over triples: conditions of their own, the metadata of their passage, ids left out."""
    musts = [*must, *conditions(filters, under=METADATA)]
    if not musts and not exclude:
        return None
    hidden = models.HasIdCondition(has_id=list(exclude)) if exclude else None
    return models.Filter(must=musts, must_not=hidden)


def bounded(match_: models.Filter) -> models.Filter:
    """The filter, to delete by.

    Raises:
        StoreError: every point matches it.

    """
    if _says_nothing(match_):
        raise StoreError("a filter without conditions would delete everything: call clear()")
    return match_


def around(value: float) -> tuple[float, float]:
    """The least and the greatest number that an engine may give back for this one."""
    lost, greatest = _LOST * math.ulp(value), sys.float_info.max
    return max(value - lost, -greatest), min(value + lost, greatest)


def paths(key: str) -> list[str]:
    """Both readings of a metadata key, as Qdrant addresses them: the field of that very name, and the nested path.

    Raises:
        UnsupportedFilter: Qdrant cannot address it, or it is the store's own.

    """
    if not key or not _is_text(key) or '"' in key or "\\" in key:
        raise UnsupportedFilter(
            f"Qdrant cannot address the metadata field {key!r}: a key is text that is not empty, without quotes and "
            "backslashes"
        )
    first = re.split(r"[.\[]", key, maxsplit=1)[0]
    if first in UNSEEN or (first == EXTRACTION_KEY and key not in (first, f"{first}.{OUTCOME}")):
        raise UnsupportedFilter(
            f"filters don't see {key!r}, which is the store's own: of an extraction they see "
            f"'{EXTRACTION_KEY}.{OUTCOME}', of the rest your metadata"
        )
    readings, steps = [_quoted(key)], [_STEP.fullmatch(part) for part in key.split(".")]
    if all(steps):
        readings.append(".".join(_quoted(step[1]) + step[2] for step in steps if step))
    return list(dict.fromkeys(readings))


def indexed_fields(indexes: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    """The paths to index in a payload, each with its schema, for `payload_indexes`.

    Raises:
        ArgumentError: an index lacks its name or schema, or no filter could ask for its field.

    """
    fields = []
    for index in indexes:
        if set(index) != {"field_name", "field_schema"}:
            raise ArgumentError(f"payload_indexes takes {{'field_name': …, 'field_schema': …}}, got {index!r}")
        try:
            fields += [(path, index["field_schema"]) for path in paths(index["field_name"])]
        except UnsupportedFilter as error:
            raise ArgumentError(f"payload_indexes: {error}") from error
    return fields


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f'"{name}"'


def _clause(filters: MetadataFilters) -> str:
    if filters.condition not in _GROUPS:
        raise UnsupportedFilter(f"filters are joined by AND, OR or NOT, not by {filters.condition!r}")
    return _GROUPS[filters.condition]


def _group(filters: MetadataFilters, under: str, depth: int) -> models.Filter:
    """A group of filters, with all its nested groups."""
    clause = _clause(filters)
    if not filters.filters:
        raise UnsupportedFilter("an empty group of filters (MetadataFilters(filters=[])) says nothing: leave it out")
    if depth > _DEEPEST:
        raise UnsupportedFilter(f"filters are nested more than {_DEEPEST} groups deep")
    clauses: dict[str, Any] = {
        clause: [
            _group(part, under, depth + 1) if isinstance(part, MetadataFilters) else _leaf(part, under)
            for part in filters.filters
        ]
    }
    return models.Filter(**clauses)


def _leaf(filter_: MetadataFilter, under: str) -> _Condition:
    """One filter, of both readings of its key: what either excludes is excluded by NE, NIN and IS_EMPTY."""
    fields = [under + path for path in paths(filter_.key)]
    operator = filter_.operator or FilterOperator.EQ
    empty = [_is_empty(field) for field in fields]
    if operator == FilterOperator.IS_EMPTY:
        return models.Filter(must=empty)
    if operator not in _TESTS:
        raise _refused(filter_, "the operator is unknown")
    test = _TESTS[operator](filter_)
    held = [test(field) for field in fields]
    if operator not in (FilterOperator.NE, FilterOperator.NIN):
        return _any(held)
    admitted = [_any([holds, nothing]) for holds, nothing in zip(held, empty, strict=True)]
    return models.Filter(must=[_any(held), *admitted]) if len(held) > 1 else held[0]


def _equal(value: Any) -> _Test:
    if isinstance(value, float):
        low, high = around(value)
        return lambda field: models.FieldCondition(key=field, range=models.Range(gte=low, lte=high))
    return lambda field: models.FieldCondition(key=field, match=models.MatchValue(value=value))


def _among(values: Sequence[Any]) -> _Test:
    if _are_alike(values):
        return lambda field: models.FieldCondition(key=field, match=models.MatchAny(any=list(values)))
    tests = [_equal(value) for value in values]
    return lambda field: _any([test(field) for test in tests])


def _outside(values: Sequence[Any]) -> _Test:
    """Some value is none of these: of an array one element is enough, as in Qdrant; among floats it takes all."""
    if _are_alike(values):
        return lambda field: models.FieldCondition(key=field, match=models.MatchExcept(**{"except": list(values)}))
    among = _among(values)
    return lambda field: models.Filter(must_not=[_is_empty(field), among(field)])


def _beyond(bound: str, filter_: MetadataFilter) -> _Test:
    value: Any = filter_.value
    if not _is_number(value):
        raise _refused(filter_, "it compares with a finite number of at most 64 bits")
    low, high = around(value) if isinstance(value, float) else (float(value), float(value))
    limit = models.Range(**{bound: high if bound in ("gt", "lte") else low})
    return lambda field: models.FieldCondition(key=field, range=limit)


def _has_words(filter_: MetadataFilter) -> _Test:
    text: Any = filter_.value
    if not _is_text(text):
        raise _refused(filter_, "it compares with text")
    return lambda field: models.FieldCondition(key=field, match=models.MatchText(text=text))


def _in_array(test: _Test) -> _Test:
    """An element of an array passes: `field[]` is blind to what is no array, and `field` to arrays in arrays."""
    return lambda field: models.Filter(must=[test(field), test(f"{field}[]")])


def _has_all(filter_: MetadataFilter) -> _Test:
    tests = [_in_array(_equal(value)) for value in _scalars(filter_)]
    if not tests:
        raise _refused(filter_, "an empty list says nothing")
    return lambda field: models.Filter(must=[test(field) for test in tests])


def _any(held: Sequence[_Condition]) -> _Condition:
    return held[0] if len(held) == 1 else models.Filter(should=list(held))


def _is_empty(field: str) -> _Condition:
    return models.IsEmptyCondition(is_empty=models.PayloadField(key=field))


def _scalar(filter_: MetadataFilter) -> Any:
    if not (_is_text(filter_.value) or _is_number(filter_.value)):
        raise _refused(filter_, "it compares with text, or with a finite number of at most 64 bits")
    return filter_.value


def _scalars(filter_: MetadataFilter, *, splits: bool = False) -> list[Any]:
    """The filter's list, or its text split at commas."""
    values = filter_.value
    if splits and isinstance(values, str):
        values = values.split(",")
    if not isinstance(values, list) or not all(_is_text(value) or _is_number(value) for value in values):
        raise _refused(filter_, "it compares with a list of texts, or of finite numbers of at most 64 bits")
    return values


def _are_alike(values: Sequence[Any]) -> bool:
    """All are texts, or all are whole numbers: Qdrant takes these together."""
    return any(all(isinstance(value, kind) for value in values) for kind in (str, int))


def _is_text(value: Any) -> bool:
    """Text that can be stored."""
    return isinstance(value, str) and is_whole(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and -(2**63) <= value < 2**63
    return isinstance(value, float) and math.isfinite(value)


def _refused(filter_: MetadataFilter, why: str) -> UnsupportedFilter:
    return UnsupportedFilter(f"{filter_.operator} cannot be honoured of {filter_.key!r} and {filter_.value!r}: {why}")


def _says_nothing(condition: Any) -> bool:
    if not isinstance(condition, models.Filter):
        return False
    must, should, must_not = (_listed(clause) for clause in (condition.must, condition.should, condition.must_not))
    if must_not or condition.min_should is not None or not all(_says_nothing(part) for part in must):
        return False
    return not should or any(_says_nothing(part) for part in should)


def _listed(clause: Any) -> list[Any]:
    if clause is None:
        return []
    return clause if isinstance(clause, list) else [clause]


_TESTS: dict[FilterOperator, Callable[[MetadataFilter], _Test]] = {
    FilterOperator.EQ: lambda filter_: _equal(_scalar(filter_)),
    FilterOperator.NE: lambda filter_: _outside([_scalar(filter_)]),
    FilterOperator.IN: lambda filter_: _among(_scalars(filter_, splits=True)),
    FilterOperator.NIN: lambda filter_: _outside(_scalars(filter_, splits=True)),
    FilterOperator.GT: partial(_beyond, "gt"),
    FilterOperator.GTE: partial(_beyond, "gte"),
    FilterOperator.LT: partial(_beyond, "lt"),
    FilterOperator.LTE: partial(_beyond, "lte"),
    FilterOperator.TEXT_MATCH: _has_words,
    FilterOperator.TEXT_MATCH_INSENSITIVE: _has_words,
    FilterOperator.CONTAINS: lambda filter_: _in_array(_equal(_scalar(filter_))),
    FilterOperator.ANY: lambda filter_: _in_array(_among(_scalars(filter_))),
    FilterOperator.ALL: _has_all,
}
"""What an operator that takes a value asks of one field."""
