"""Facts that give one thing two names."""

from __future__ import annotations

import pytest

from llama_index_gear.store.aliases import states_alias
from llama_index_gear.triple import Triple


@pytest.mark.parametrize(
    ("triple", "states"),
    [
        (("Istanbul", "was formerly known as", "Constantinople"), True),
        (("IBM", "stands for", "International Business Machines"), True),
        (("GPU", "is an abbreviation of", "graphics card"), True),
        (("dog", "is called", "animal"), False),
        (("Anna", "is also", "Weiss"), False),
        (("Acme Widgets", "In 1990 Acme Widgets (AW) was sold.", "AW"), True),
        (("AW", "In 1990 Acme Widgets (AW) was sold.", "Acme Widgets"), True),
        (("Mark Twain", "Samuel Clemens, who was better known as Mark Twain, wrote it.", "Samuel Clemens"), True),
        (("Acme Widgets", "Acme Widgets and the (AW) division were sold.", "AW"), False),
        (("Twain", "Samuel Clemens, better known as Twains, wrote it.", "Samuel Clemens"), False),
    ],
)
def test_facts_that_name_an_alias(triple: tuple[str, str, str], states: bool) -> None:
    assert states_alias(Triple(*triple)) is states
