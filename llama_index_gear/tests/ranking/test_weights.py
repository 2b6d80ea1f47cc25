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
from llama_index_gear.ranking.weights import SIGNALS

TABLES = st.dictionaries(st.sampled_from(SIGNALS), st.floats(-1e9, 1e9) | st.integers(-9, 9))
WEIGHTS = st.builds(RankingWeights, TABLES)


@given(WEIGHTS)
def test_what_is_written_is_what_is_read(weights: RankingWeights) -> None:
    for read in (
        RankingWeights.from_json(weights.to_json()),
        RankingWeights.from_dict(weights.to_dict()),
        pickle.loads(pickle.dumps(weights)),
        copy.deepcopy(weights),
    ):
        assert read == weights and read.to_dict() == weights.to_dict()
    assert json.loads(weights.to_json()) == weights.signals


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    weights = RankingWeights({"tied": 0.1, "linked": 1, "walk": -2.5})
    weights.save(tmp_path / "weights.json")
    for path in (tmp_path / "weights.json", str(tmp_path / "weights.json")):
        assert RankingWeights.load(path) == weights
    assert len((tmp_path / "weights.json").read_text().splitlines()) == 5  # one weight a line, to be read by people
    other = RankingWeights({"linked": 2})
    other.save(tmp_path / "weights.json")
    assert RankingWeights.load(tmp_path / "weights.json") == other != weights


def test_the_weights_of_the_package_are_read() -> None:
    weights = RankingWeights.default()
    assert weights.signals.keys() == {*SIGNALS} and all(weight > 0 for weight in weights.signals.values())


def test_weights_cannot_be_changed() -> None:
    given_table = {"tied": 1.0}
    weights = RankingWeights(given_table)
    given_table["tied"] = 5.0
    assert weights.signals == {"tied": 1.0}
    with pytest.raises(TypeError):
        weights.signals["tied"] = 5.0  # type: ignore[index]
    with pytest.raises(AttributeError):
        weights.signals = {}  # type: ignore[misc]
    weights.to_dict()["tied"] = 5.0
    assert weights.signals == {"tied": 1.0}


def test_equal_weights_are_one_in_a_set() -> None:
    table = RankingWeights.default().to_dict()
    turned = dict(reversed(table.items()))
    assert {RankingWeights.from_dict(table), RankingWeights.from_dict(turned)} == {RankingWeights.default()}
    assert len({RankingWeights.default(), RankingWeights({"tied": 1.0})}) == 2


@pytest.mark.parametrize(
    "wrong", [math.nan, math.inf, -math.inf, True, False, None, "1", [1.0], 1j, 10**400, 1e39, b"1"], ids=repr
)
def test_a_weight_that_is_no_finite_number_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match="weight of 'linked' must be a finite number of 32 bits"):
        RankingWeights({"linked": wrong})


@pytest.mark.parametrize("name", ["dense", "pagerank", "link", "", "Tied", 5, None])
def test_an_unknown_signal_is_refused(name: Any) -> None:
    with pytest.raises(ArgumentError, match=r"the ranking has no signal .*; it has in_question, linked"):
        RankingWeights({name: 1.0})


@pytest.mark.parametrize("wrong", [None, 5, "linked", [("linked", 1.0)], dict], ids=repr)
def test_weights_are_read_from_a_dict(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match="weights must be signal → weight, as to_dict and to_json write them"):
        RankingWeights.from_dict(wrong)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "5",
        "null",
        '{"linked": {}}',
        '{"linked": NaN}',
        '{"linked": 1e999}',
        '{"linked": "1"}',
        '{"linked": true}',
        '{"linked": 1' + 400 * "0" + "}",
        '{"unknown": 1}',
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
            RankingWeights({}).save(wrong)
    with pytest.raises(OSError, match="missing"):
        RankingWeights({}).save(tmp_path / "missing" / "weights.json")
