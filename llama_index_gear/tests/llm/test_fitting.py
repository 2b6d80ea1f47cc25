"""Passages cut to a prompt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_index_gear.llm import fitting
from llama_index_gear.llm.client_responses import count_tokens
from llama_index_gear.llm.fitting import fit_passages
from llama_index_gear.triple import entity_key

SHORT = ["Ann knows Bob.", "Bob lives in Rome.", "Rome lies in Italy."]
FILLER = " ".join(f"Thing number {number} is as it is." for number in range(300))


def test_what_fits_is_left_alone() -> None:
    fitted = fit_passages(SHORT, "Who?", 1000)
    assert (fitted.texts, fitted.shortened, fitted.left_out) == (SHORT, [], 0)


@pytest.mark.parametrize("room", [200, 400, 1500])
def test_long_passages_give_up_what_short_ones_need(room: int) -> None:
    long = f"{FILLER} Zoe met Bob in Oslo. {FILLER}"
    fitted = fit_passages([long, *SHORT, long], "Where did Zoe meet Bob?", room)
    assert fitted.texts[1:4] == SHORT and fitted.shortened == [0, 4] and fitted.left_out == 0
    for text in (fitted.texts[0], fitted.texts[4]):
        assert text.startswith("Thing number 0 is as it is. …") and text.endswith(" …")
        assert "number 299 is as it is. Zoe met Bob in Oslo. Thing number 0" in text
    assert sum(map(count_tokens, fitted.texts)) <= room + 20  # shares are of characters


def test_what_matters_is_kept_wherever_it_stands() -> None:
    text = f"{FILLER} Zoe met Bob in Oslo. {FILLER} Zoe left Bob in Rome. {FILLER}"
    (fitted,) = fit_passages([text], "Where did Zoe leave Bob?", 150).texts
    assert "Zoe met Bob in Oslo." in fitted and "Zoe left Bob in Rome." in fitted


def test_without_room_the_last_ones_are_left_out() -> None:
    fitted = fit_passages(10 * [FILLER], "Who?", 100)
    assert len(fitted.texts) == 2 and fitted.left_out == 8 and fitted.shortened == [0, 1]
    assert len(fit_passages(SHORT, "Who?", 0).texts) == 1 and fit_passages([], "Who?", 0).texts == []


@given(st.lists(st.text(max_size=400), max_size=6), st.text(max_size=40), st.integers(0, 400))
def test_any_texts(passages: list[str], matter: str, room: int) -> None:
    fitted = fit_passages(passages, matter, room)
    assert len(fitted.texts) + fitted.left_out == len(passages)
    for position, text in enumerate(fitted.texts):
        assert position in fitted.shortened or text == passages[position]


def test_words_weigh_the_same_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = {"one": 0.1, "two": 0.2, "three": 0.3}  # whose sum is another, by the last bit, the other way round
    text = "It starts. One two three. It goes on. Three two one. It ends."
    shown = set()
    for order in (list, reversed):
        monkeypatch.setattr(fitting, "_words", lambda text, order=order: list(order(entity_key(text).split())))
        shown.add(fitting._shorten(text, 35, weights))
    assert shown == {"It starts. One two three. …"}
