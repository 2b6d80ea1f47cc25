"""The table of weights: what it refuses, and that what is saved is what is loaded."""

from __future__ import annotations

import copy
import json
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_index_gear import RankingWeights
from llama_index_gear.errors import ArgumentError
from llama_index_gear.ranking.weights import COMPANY_SIGNALS, FIRST, SIGNALS

LIST_SIGNALS = sorted(set(SIGNALS) - set(COMPANY_SIGNALS))
WEIGHTS = st.builds(
    RankingWeights,
    st.dictionaries(st.sampled_from(LIST_SIGNALS), st.floats(-1e9, 1e9) | st.integers(-9, 9)),
    st.dictionaries(st.sampled_from([FIRST, *COMPANY_SIGNALS]), st.floats(-1e9, 1e9)),
)


@given(WEIGHTS)
def test_what_is_written_is_what_is_read(weights: RankingWeights) -> None:
    for read in (
        RankingWeights.from_json(weights.to_json()),
        RankingWeights.from_dict(weights.to_dict()),
        pickle.loads(pickle.dumps(weights)),
        copy.deepcopy(weights),
    ):
        assert read == weights and read.to_dict() == weights.to_dict()
    assert set(json.loads(weights.to_json())) == {"first", "second"}


def test_the_score_of_a_retriever_s_list_is_no_signal() -> None:
    with pytest.raises(ArgumentError, match="first knows no signal 'base.score'; it knows base.log_rank"):
        RankingWeights({"base.score": 1.0}, {})


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    weights = RankingWeights({"dense.log_rank": 0.1}, {FIRST: 1, "linked": -2.5})
    weights.save(tmp_path / "weights.json")
    for path in (tmp_path / "weights.json", str(tmp_path / "weights.json")):
        assert RankingWeights.load(path) == weights
    assert len((tmp_path / "weights.json").read_text().splitlines()) > 4  # one weight a line, to be read by people
    other = RankingWeights({}, {FIRST: 2})
    other.save(tmp_path / "weights.json")
    assert RankingWeights.load(tmp_path / "weights.json") == other != weights


def test_the_weights_of_the_package_are_read() -> None:
    weights = RankingWeights.default()
    assert weights.first and weights.second[FIRST] > 0
    assert weights.first.keys() <= set(LIST_SIGNALS) and weights.second.keys() <= {FIRST, *COMPANY_SIGNALS}


def test_weights_cannot_be_changed() -> None:
    given_first = {"dense.log_rank": 1.0}
    weights = RankingWeights(given_first, {})
    given_first["dense.log_rank"] = 5.0
    assert weights.first == {"dense.log_rank": 1.0}
    with pytest.raises(TypeError):
        weights.first["dense.log_rank"] = 5.0  # type: ignore[index]
    with pytest.raises(AttributeError):
        weights.first = {}  # type: ignore[misc]
    weights.to_dict()["first"]["dense.log_rank"] = 5.0
    assert weights.first == {"dense.log_rank": 1.0}


def test_equal_weights_are_one_in_a_set() -> None:
    tables = RankingWeights.default().to_dict()
    turned = {field: dict(reversed(table.items())) for field, table in tables.items()}
    assert {RankingWeights.from_dict(tables), RankingWeights.from_dict(turned)} == {RankingWeights.default()}
    assert len({RankingWeights.default(), RankingWeights({"dense.log_rank": 1.0}, {})}) == 2


@pytest.mark.parametrize(
    "wrong", [math.nan, math.inf, -math.inf, True, False, None, "1", [1.0], 1j, 10**400, 1e39, b"1"], ids=repr
)
def test_a_weight_that_is_no_finite_number_is_refused_by_name(wrong: Any) -> None:
    for name, first, second in (("dense.score", {"dense.score": wrong}, {}), ("linked", {}, {"linked": wrong})):
        with pytest.raises(ArgumentError, match=f"weight of '{name}' must be a finite number of 32 bits"):
            RankingWeights(first, second)


@pytest.mark.parametrize("name", ["dense", "dense.rank", "linked", FIRST, "", "Dense.score", "colbert.log_rank"])
def test_an_unknown_signal_of_a_list_is_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match=r"first knows no signal .*; it knows .*dense\.log_rank"):
        RankingWeights({name: 1.0}, {})


@pytest.mark.parametrize("name", ["dense.score", "link", "", 5, None])
def test_an_unknown_signal_beside_the_best_is_refused(name: Any) -> None:
    with pytest.raises(ArgumentError, match=r"second knows no signal .*; it knows first, .*linked"):
        RankingWeights({}, {name: 1.0})


@pytest.mark.parametrize("wrong", [None, 5, "first", [("dense.score", 1.0)], dict], ids=repr)
def test_a_table_is_a_dict(wrong: Any) -> None:
    for tables in (wrong, {"first": wrong, "second": {}}, {"first": {}, "second": wrong}):
        with pytest.raises(ArgumentError, match='"first" and "second"'):
            RankingWeights.from_dict(tables)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "5",
        "null",
        "{}",
        '{"first": {}}',
        '{"first": {}, "second": {}, "third": {}}',
        '{"first": [], "second": {}}',
        '{"first": {"dense.score": NaN}, "second": {}}',
        '{"first": {"dense.score": 1e999}, "second": {}}',
        '{"first": {"dense.score": "1"}, "second": {}}',
        '{"first": {"dense.score": true}, "second": {}}',
        '{"first": {"dense.score": 1' + 400 * "0" + '}, "second": {}}',
        '{"first": {"unknown": 1}, "second": {}}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:50],
)
def test_text_that_holds_no_weights_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError):
        RankingWeights.from_json(text)
    (tmp_path / "weights.json").write_text(text)
    with pytest.raises(ArgumentError):
        RankingWeights.load(tmp_path / "weights.json")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe{}")
    for path in (tmp_path / "missing.json", tmp_path, tmp_path / "bytes.json"):
        with pytest.raises(ArgumentError, match="no weights can be read from"):
            RankingWeights.load(path)
    wrong: Any
    for wrong in (5, None, b"weights.json", {}):
        with pytest.raises(ArgumentError, match="path must be a str or Path"):
            RankingWeights.load(wrong)
        with pytest.raises(ArgumentError, match="path must be a str or Path"):
            RankingWeights({}, {}).save(wrong)
    with pytest.raises(OSError, match="missing"):
        RankingWeights({}, {}).save(tmp_path / "missing" / "weights.json")
