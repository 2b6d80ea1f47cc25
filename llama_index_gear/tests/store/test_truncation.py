"""The warning of passages that are longer than what the embedding model reads."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import pytest
from llama_index.core import Settings
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import TextNode
from qdrant_client import QdrantClient

from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import passage


class Words:
    """A tokenizer as Transformers have it: a token a word, and two marks."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __deepcopy__(self, memo: Any) -> Words:
        return self

    def __call__(self, texts: Sequence[str], **options: Any) -> dict[str, list[list[int]]]:
        assert options == {"truncation": False, "padding": False, "verbose": False}
        self.texts += texts
        return {"input_ids": [[1, *(2 for _ in text.split()), 3] for text in texts]}


class Runtime:
    def __init__(self) -> None:
        self.tokenizer = Words()


class LocalEmbedding(WordEmbedding):
    """A model with the parts of LlamaIndex's HuggingFaceEmbedding; it reads twenty tokens."""

    max_length: int = 20
    text_instruction: str | None = None
    _model: Runtime = PrivateAttr(default_factory=Runtime)


def make_store(model: LocalEmbedding | WordEmbedding | None, **arguments: Any) -> GeARVectorStore:
    return GeARVectorStore(client=QdrantClient(":memory:"), embed_model=model, **arguments)


LONG, FITTING, SHORT = (passage(str(words), "word " * words) for words in (19, 18, 2))


async def test_a_store_warns_once_of_passages_that_are_cut_off() -> None:
    model = LocalEmbedding()
    with make_store(model, tenant_field="who") as whole:
        store = whole.for_tenant("me")
        store.add([FITTING, SHORT])  # a warning would be an error
        with pytest.warns(
            UserWarning,
            match=r"1 of 3 passages is longer than the 20 tokens.* reads.*\(chunk_size=15, chunk_overlap=1\)",
        ):
            await store.async_add([LONG, FITTING, SHORT])
        read = len(model._model.tokenizer.texts)
        whole.for_tenant("you").add([passage("more", "word " * 30)])
        assert len(model._model.tokenizer.texts) == read
        assert len(store.get_nodes()) == 3
    assert not [text for text in model._model.tokenizer.texts if len(text) < 12]  # "word word " is never too long


def test_what_is_counted_is_what_is_embedded() -> None:
    """Metadata and the model's instruction are part of it."""
    titled = TextNode(text="word " * 17, metadata={"title": "x"}, embedding=WordEmbedding().get_text_embedding("x"))
    hidden = titled.model_copy(update={"excluded_embed_metadata_keys": ["title"]})
    for node, instruction, is_long in ((titled, None, True), (hidden, None, False), (hidden, "Store this: ", True)):
        with (
            make_store(LocalEmbedding(text_instruction=instruction)) as store,
            warnings.catch_warnings(record=True) as said,
        ):
            warnings.simplefilter("always")
            store.add([node])
        assert [str(warning.message)[:20] for warning in said if "reads" in str(warning.message)] == [
            "1 of 1 passage is lo"
        ] * is_long


def test_a_model_that_does_not_show_its_limit_is_not_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unlimited(LocalEmbedding):
        max_length: Any = None

    class Closed(LocalEmbedding):
        _model: Any = PrivateAttr(default=None)

    monkeypatch.setattr(Settings, "_embed_model", None)
    for model in (WordEmbedding(), Unlimited(), Closed(), None):
        with make_store(model) as store:
            store.add([LONG])
    monkeypatch.setattr(Settings, "_embed_model", LocalEmbedding())
    with make_store(None) as store, pytest.warns(UserWarning, match="1 of 1 passage is"):
        store.add([LONG])
