"""The extractors of the command line, and `extract`: a graph for the passages of a Qdrant collection."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

from click import ClickException, echo
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode

from llama_index_gear import ExistingCollection, GeARTripleExtractor, MentionTripleExtractor
from llama_index_gear.characters import count
from llama_index_gear.cli import models
from llama_index_gear.cli.extraction_options import ExtractionOptions
from llama_index_gear.cli.failures import find_server, is_of_server
from llama_index_gear.cli.store_folder import NotedStore, check_collection, check_llm, fill_store, open_store
from llama_index_gear.cli.store_note import StoreNote, describe_collection
from llama_index_gear.extraction.accounting import ExtractionEstimate, ExtractionLedger, Price, format_cost
from llama_index_gear.extraction.schema import ExtractionSchema
from llama_index_gear.ingestion.console import show_line
from llama_index_gear.ingestion.existing_collection import CollectionReport
from llama_index_gear.nodes import Outcome

_SHOWN_FAILURES = 3
_RETRIES = 5  # over half a minute or more, by the extractor alone: a model's client retries a used-up quota too

_served: ContextVar[NotedStore | None] = ContextVar("served", default=None)
"""The store that passages are extracted for; an extractor's own state is copied, and compared with that of others."""


class WatchedExtractor(GeARTripleExtractor):
    """An extractor that ends a run whose model's server is away, refuses the key, or has no such model.

    It also ends the run of a model that thinks beyond the room that it is given. The first passage is extracted alone,
    and first without retries: its failure says so, before hundreds are tried.
    """

    _has_answered: bool = PrivateAttr(default=False)

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[BaseNode]:
        """Return copies of the nodes with their triples; while a model is called, the store's folder is left."""
        store = _served.get()
        if store is None or not self.estimate(nodes).calls:
            return super().__call__(nodes, **kwargs)
        with store.leave_folder():
            return super().__call__(nodes, **kwargs)

    async def acall(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[BaseNode]:
        """Return copies of the nodes with their triples, in order.

        Raises:
            ClickException: the server fails, or the model thinks beyond its room.

        """
        done: list[BaseNode] = []
        rest = list(nodes)
        while rest and not self._has_answered:
            first = rest.pop(0)
            for extractor in (self._make_hasty(), self):
                extracted = await GeARTripleExtractor.acall(extractor, [first], **kwargs)
                ledger = extractor.ledger
                for _, _, problem in ledger.failures:
                    if is_of_server(problem):
                        raise ClickException(find_server(type(self.llm).__module__).explain(problem))
                if ledger.answered or not ledger.failures:
                    break
            done += extracted
            self._has_answered = ledger.calls > 0 or bool(ledger.failures)
        return [*done, *(await super().acall(rest, **kwargs) if rest else [])]

    @property
    def paid(self) -> str:
        """Calls, tokens and cost that were paid for in this process, in words; empty if no call was answered."""
        return str(self._cost_budget) if self._cost_budget.prompt_tokens else ""

    def _make_hasty(self) -> WatchedExtractor:
        """Return this extractor without retries."""
        return self.model_copy(update={"max_retries": 0})


@contextmanager
def leave_folder(store: NotedStore) -> Iterator[None]:
    """Leave a store's folder to others whenever a model extracts in the block, which may take hours."""
    token = _served.set(store)
    try:
        yield
    finally:
        _served.reset(token)


@contextmanager
def tell_paid(extractor: MentionTripleExtractor | WatchedExtractor) -> Iterator[None]:
    """Say what the model was paid for, if the run ends early: by Ctrl-C, or by an error."""
    try:
        yield
    except BaseException:
        if isinstance(extractor, WatchedExtractor) and extractor.paid:
            show_line(f"paid: {extractor.paid}")
        raise


def make_extractor(options: ExtractionOptions) -> MentionTripleExtractor | WatchedExtractor:
    """Make the extractor that the options name. For an estimate it needs no key.

    Raises:
        ClickException: the environment doesn't say where the model is, or a package is missing.
        ArgumentError: a price, a ceiling, or a name of the schema is none.

    """
    llm = models.open_llm(options.llm or "none", is_called=not options.estimate)
    if llm is None:
        return MentionTripleExtractor()
    return WatchedExtractor(  # type: ignore[call-arg]  # GeARTripleExtractor's constructor; pydantic's plugin isn't at work
        llm=llm,
        price=options.price,
        max_cost=options.max_cost,
        kg_schema=ExtractionSchema(
            entity_types=options.entity_types, relation_types=options.relation_types, domain=options.domain or ""
        ),
        max_retries=_RETRIES,
    )


def open_collection(name: str, url: str | None, path: Path | None, **keys: Any) -> ExistingCollection:
    """Open a collection on a server, or in a folder of Qdrant's client; `keys` are `ExistingCollection`'s."""
    if path is None:
        return ExistingCollection(name, url=url, api_key=os.environ.get("QDRANT_API_KEY"), **keys)
    return ExistingCollection.from_path(path, name, **keys)


def extract_collection(
    theirs: ExistingCollection,
    name: str,
    folder: Path,
    embed_name: str | None,
    options: ExtractionOptions,
) -> CollectionReport | ExtractionEstimate:
    """Bring the store in a folder to what a collection holds; for an estimate, say what it would cost, and do nothing.

    Args:
        theirs: the collection.
        name: its name.
        folder: of the store.
        embed_name: the embedding model's name, if the command line gives one.
        options: how triples are extracted.

    Raises:
        ClickException: the store holds something else; or its embedding model is another one, or can't be loaded; or
            the model that extracts is not to be had.

    """
    extractor = make_extractor(options)
    check_store = partial(check_collection, folder, theirs, name)
    if options.estimate:
        with open_store(folder, embed_name, check=check_store, embeds=False) as store:
            return theirs.estimate(store, extractor)  # type: ignore[arg-type]  # a model is named
    make_note = partial(StoreNote, collection=describe_collection(name, theirs.place), llm=options.model)
    with fill_store(folder, embed_name, check_store, make_note) as store:
        check_llm(store, folder, options.llm)
        if isinstance(extractor, WatchedExtractor):
            echo(f"to extract: {theirs.estimate(store, extractor)}", err=True)
        store.pass_turns()
        with leave_folder(store), tell_paid(extractor):
            return theirs.extract_to(store, extractor, show_progress=True)


def report_extraction(ledger: ExtractionLedger, options: ExtractionOptions) -> int:
    """Print the account of a model's extraction, and return the exit code that it asks for."""
    if ledger.passages:
        paid = Price(*options.price).of(ledger.prompt_tokens, ledger.completion_tokens) if options.price else None
        echo(f"extraction: {ledger}" + ("" if paid is None else f", {format_cost(paid)}"), err=True)
    if ledger.refused > ledger.triples:
        echo("the schema refused most triples: wider --entity-types and --relation-types keep more", err=True)
    left = [problem for _, outcome, problem in ledger.failures if Outcome(outcome).is_left_out]
    failures = [failure for failure in ledger.failures if not Outcome(failure[1]).is_left_out]
    for name, outcome, problem in failures[:_SHOWN_FAILURES]:
        echo(" ".join(f"failed: {name}: {outcome}: {problem}".split()), err=True)
    if more := len(failures[_SHOWN_FAILURES:]):
        echo(f"failed: {more} more. The next run tries them again", err=True)
    if left:
        are = "is" if len(left) == 1 else "are"
        echo(f"stopped: {left[-1]}; {count(len(left), 'passage')} {are} left, and the next run goes on", err=True)
    return 1 if ledger.failures else 0
