"""The measure of growth tells linear work from quadratic work."""

from __future__ import annotations

import pytest

from llama_index_gear.tests.growth import assert_linear


def test_quadratic_work_is_told_from_linear_work() -> None:
    assert_linear(lambda text: text.count("b"), lambda size: "a" * size, 1_000_000)
    with pytest.raises(AssertionError, match="8 times as much took"):
        assert_linear(lambda size: sum(1 for _ in range(size * size)), int, 1_600)
