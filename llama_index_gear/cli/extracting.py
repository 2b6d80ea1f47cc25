"""`extract`: a graph for the passages of a Qdrant collection."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from llama_index.core.llms import LLM

from llama_index_gear import CollectionReport, ExistingCollection, GeARTripleExtractor, MentionTripleExtractor
from llama_index_gear.cli.store_folder import check_collection, fill_store
from llama_index_gear.cli.store_note import StoreNote, choose_embedding, describe_collection


def open_collection(
    name: str, url: str | None, path: Path | None, *, text_key: str, title_key: str, vector_name: str | None
) -> ExistingCollection:
    """Open a collection on a server, or in a folder of Qdrant's client."""
    keys: dict[str, Any] = {"text_key": text_key, "title_key": title_key, "vector_name": vector_name}
    if path is None:
        return ExistingCollection(name, url=url, api_key=os.environ.get("QDRANT_API_KEY"), **keys)
    return ExistingCollection.from_path(path, name, **keys)


def extract_collection(
    theirs: ExistingCollection,
    name: str,
    place: str,
    folder: Path,
    embed_name: str | None,
    llm: LLM | None,
    price: tuple[float, float] | None,
    max_cost: float | None,
) -> CollectionReport:
    """Bring the store in a folder to what a collection holds.

    Args:
        theirs: the collection.
        name: its name.
        place: where it is, for the store's note.
        folder: of the store.
        embed_name: the embedding model's name, if the command line gives one.
        llm: the model that extracts; None: rules.
        price: of a million prompt and completion tokens.
        max_cost: highest amount to spend.

    Raises:
        ClickException: the store holds something else; or its embedding model is another one, or can't be loaded.

    """
    check_collection(folder, theirs, name, place)
    note = StoreNote(choose_embedding(folder, embed_name), collection=describe_collection(name, place))
    extractor = MentionTripleExtractor() if llm is None else GeARTripleExtractor(llm, price=price, max_cost=max_cost)
    with fill_store(folder, note) as store:
        return theirs.extract_to(store, extractor, show_progress=True)
