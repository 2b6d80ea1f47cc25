"""BM25 in memory: a further word of the question never lowers a passage, whatever the corpus."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.schema import TextNode
from rank_bm25 import BM25Okapi

from llama_index_gear.retrievers.rank_bm25 import RankBM25Retriever, words


def search(texts: list[str], question: str) -> list[tuple[str, float]]:
    """Return text and score of each passage that is found."""
    nodes = [
        TextNode(id_=str(n), text=text, metadata={"place": n}, excluded_embed_metadata_keys=["place"])  # no two alike
        for n, text in enumerate(texts)
    ]
    retriever = RankBM25Retriever(nodes)
    return [(found.node.get_content(), found.score or 0.0) for found in retriever.retrieve(question)]


@pytest.mark.parametrize(
    "texts",
    [
        ["red engine", "red engine", "red"],
        ["pump manual", "pump manual", "pump", "pump manual"],
        ["ada met bob", "ada met bob", "ada bob", "met", "ada met bob"],
        ["one word", "one word"],
    ],
)
async def test_more_of_the_question_s_words_come_first_also_where_all_passages_share_them(texts: list[str]) -> None:
    found = search(texts, texts[0])
    most = {text for text, _ in found[: texts.count(texts[0])]}
    assert most == {texts[0]} and len(found) == len(texts) and all(score > 0 for _, score in found)


@given(st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6).map(" ".join), min_size=1, max_size=6))
def test_no_word_lowers_a_score(texts: list[str]) -> None:
    for word in "abcdef":
        assert all(score >= 0 for _, score in search(texts, word))


def test_other_corpora_are_ranked_by_okapi_as_before() -> None:
    texts = ["ada wrote notes", "bob met ada", "the engine", "a pump", "kiwi jam recipe", "plum jam"]
    okapi = BM25Okapi([words(text) for text in texts]).get_scores(words("ada jam"))
    assert dict(search(texts, "ada jam")) == {text: pytest.approx(s) for text, s in zip(texts, okapi, strict=True) if s}
