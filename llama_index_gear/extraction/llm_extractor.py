"""`GeARTripleExtractor`: the transformation that extracts triples from passages with an LLM."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Self

from llama_index.core.bridge.pydantic import ConfigDict, Field, PrivateAttr, field_serializer
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.schema import BaseNode, TransformComponent
from llama_index.core.settings import Settings
from llama_index.core.storage.kvstore.types import BaseKVStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from tqdm.auto import tqdm

from llama_index_gear.errors import ArgumentError, check_counts
from llama_index_gear.extraction.accounting import (
    FAILED_EXTRACTIONS,
    CostBudget,
    ExtractionEstimate,
    ExtractionLedger,
    log_ledger,
)
from llama_index_gear.extraction.calls import EXTRACT_PROMPT, PassageCalls, Room, fit_to_schema
from llama_index_gear.extraction.runs import ExtractionCache, ExtractionRun
from llama_index_gear.extraction.schema import ALL_ALLOWED, ExtractionSchema
from llama_index_gear.extraction.serialization import (
    check_nothing_lost,
    drop_handling,
)
from llama_index_gear.flow import arun, run_coroutine
from llama_index_gear.llm.prompting import check_prompt
from llama_index_gear.nodes import attach_triples, is_link, must_stay, read_triples, without_links
from llama_index_gear.store.tenancy import Tenancy

_PAGE = 1024
"""Passages that `retry_failed` holds in memory at a time."""


class GeARTripleExtractor(TransformComponent):
    """Extracts named entities and triples from each passage with one call of a language model (GeAR App. D, J.1).

    A transformation for LlamaIndex's ingestion pipelines: behind the splitter, before the embedding model. The triples
    stand in the metadata of copies of the nodes, as `gear_triples`, hidden from the embedding model and from LLMs. A
    `GeARVectorStore` stores them with the passage. For `PropertyGraphIndex` put `ToPropertyGraph` behind it.

    A passage that fails stops nothing. It goes on without triples (or with those that were read, if its reply was cut
    off), its record stands in the node's metadata as `gear_extraction`, and `ledger` lists it. Triples that a store has
    of its text stay there. `retry_failed(store)` extracts failed passages of any run again; so does the next run over
    the same nodes. Successful extractions are not repeated.
    (A pipeline that is loaded from disk serves whole batches from its cache, failures included, and a document store
    skips documents that it knows. Use `retry_failed` there.)

    Args:
        llm: the LLM, which is asked for JSON. Default: LlamaIndex's `Settings.llm`.
        extract_prompt: your own prompt, with the variable `passage`, and optionally `title` and `problem`.
        kg_schema: types and relations that are allowed, and the domain. A prompt of yours needs the variables
            `entity_types`, `relation_types` and `domain` for those of the three that are given. `ledger.refused` counts
            refused triples; a warning says so if they are more than half. Default: all are allowed.
        tenant_field: metadata key that names a passage's tenant, as in `GeARVectorStore`. Passages of two tenants never
            share a cache entry. Set it from the start: a passage's fingerprint includes its tenant. Default
            None: there are no tenants.
        num_workers: concurrent calls. Default 4.
        max_retries: retries after a rate limit, a time-out or a server's error, beyond those of the LLM's own client.
            Default 3. LlamaIndex's OpenAI repeats calls without quota too, unless made with `max_retries=0`. A reply
            that can't be read is asked for once more, with the error shown. The first retry waits a second, each
            further one twice as long, with jitter; a longer `Retry-After` header wins.
        price: prices of a million prompt and a million completion tokens, in any currency, for `estimate`, `spent` and
            `max_cost`. Default: not known.
        max_cost: highest amount that this extractor may spend; a call that would exceed it is not made. The passages
            left count as failed ("over budget"): `retry_failed`, or another run, goes on with them. The amount can be
            exceeded only by last replies longer than expected (see `ExtractionEstimate`), and by what a provider bills
            for failed calls. Each process of a pipeline with `num_workers` has a ceiling of its own. Default: no
            ceiling. Eight calls in a row that the server refuses because the account has no quota left end this
            extractor's calls in the same way ("out of quota"), until `retry_failed`.
        cache: a LlamaIndex key-value store (`SimpleKVStore`, Redis, …) that keeps extracted passages by model, prompt,
            title, text and tenant. Without it, only nodes that carry their triples are not extracted again. If it can't
            be reached, a warning says so and the run goes on.
        show_progress: show a progress bar. Default False.

    Raises:
        ArgumentError: a number outside its range, a prompt without `passage`, or a tenant_field that a
            `GeARVectorStore` would refuse.
        TenantError: (from a call) there is a tenant_field, and a passage has no tenant. No call was made.

    """

    model_config = ConfigDict(frozen=True)  # checks and fingerprints rely on the settings

    llm: LLM
    extract_prompt: BasePromptTemplate
    kg_schema: ExtractionSchema
    tenant_field: str | None
    num_workers: int = Field(exclude=True)
    max_retries: int = Field(exclude=True)
    price: tuple[float, float] | None = Field(exclude=True)
    max_cost: float | None = Field(exclude=True)
    cache: BaseKVStore | None = Field(exclude=True)
    show_progress: bool = Field(exclude=True)

    _ledger: ExtractionLedger = PrivateAttr(default_factory=ExtractionLedger)
    _cost_budget: CostBudget = PrivateAttr()
    _room: Room = PrivateAttr(default_factory=Room)
    _tenancy: Tenancy = PrivateAttr()
    _extraction_cache: ExtractionCache = PrivateAttr()

    def __init__(
        self,
        llm: LLM | None = None,
        *,
        extract_prompt: BasePromptTemplate = EXTRACT_PROMPT,
        kg_schema: ExtractionSchema = ALL_ALLOWED,
        tenant_field: str | None = None,
        num_workers: int = 4,
        max_retries: int = 3,
        price: tuple[float, float] | None = None,
        max_cost: float | None = None,
        cache: BaseKVStore | None = None,
        show_progress: bool = False,
    ) -> None:
        cost_budget, tenancy = CostBudget(price, max_cost), Tenancy(tenant_field, None)
        check_counts(num_workers=num_workers)
        check_counts(least=0, max_retries=max_retries)
        check_prompt(extract_prompt, "the extract prompt", {"passage"})
        fit_to_schema(extract_prompt, kg_schema)
        model = Settings.llm if llm is None else llm
        super().__init__(  # type: ignore[call-arg]  # the fields above; pydantic's plugin is not at work
            llm=model,
            extract_prompt=extract_prompt,
            kg_schema=kg_schema,
            tenant_field=tenant_field,
            num_workers=num_workers,
            max_retries=max_retries,
            price=price,
            max_cost=max_cost,
            cache=cache,
            show_progress=show_progress,
        )
        self._cost_budget, self._tenancy, self._extraction_cache = cost_budget, tenancy, ExtractionCache(cache)

    @field_serializer("kg_schema")
    def _serialize_schema(self, allowed: ExtractionSchema) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(allowed).items()}

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which the component is serialized."""
        return "GeARTripleExtractor"

    @property
    def ledger(self) -> ExtractionLedger:
        """Account of the last run in this process; `ExtractionLedger.of(nodes)` is that of nodes from any process."""
        return self._ledger

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Return the form by which the pipeline's cache recognizes the transformation.

        Unlike LlamaIndex's own form, it holds the model, without API keys and address, the fingerprint of model and
        prompt, and the number of runs with failures: the pipeline caches a whole batch, and a batch with failures must
        not be served again. Settings that don't change the triples are left out (`num_workers`, `price`, `cache`, …).
        """
        fingerprint = self.fingerprint
        from llama_index.core.llms.loading import RECOGNIZED_LLMS  # brings OpenAI's client

        is_known = RECOGNIZED_LLMS.get(self.llm.class_name()) is type(self.llm)
        form = drop_handling(self.llm.to_dict(), is_llm=True) if is_known else {}  # of others any field may be a secret
        model = {**form, "class_name": type(self.llm).__qualname__}
        state = {"fingerprint": fingerprint, "failed_runs": self._extraction_cache.failed_runs(fingerprint)}
        return {**super().to_dict(**kwargs), "llm": model, **state}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle; refuse if a setting can't be pickled."""
        settings = dict(self.__dict__)
        state: dict[str, Any] = super().__getstate__()
        advice = "let the pipeline run in one process, where the extractor makes num_workers calls at once"
        check_nothing_lost(self, settings, advice)
        return state

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Return an extractor with the same settings that has spent nothing; it shares the model and the cache."""
        return type(self)(**{name: getattr(self, name) for name in type(self).model_fields})

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[BaseNode]:
        """Return copies of the nodes with their triples, in order. This works inside a running event loop, too."""
        return run_coroutine(self.acall(nodes, **kwargs))

    async def acall(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[BaseNode]:
        """Return copies of the nodes with their triples, in order.

        Args:
            nodes: passages.
            **kwargs: `show_progress` overrides the field. Others are ignored: the pipeline passes its own arguments.

        """
        with self._bar(len(nodes), kwargs.get("show_progress", self.show_progress)) as bar:
            extracted = await self._run.extract(nodes, bar)
        self._ledger = ExtractionLedger.of(extracted)
        await self._report()
        return extracted

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the model, its prompts and the schema, wherever the model is: what its triples depend on."""
        return self._passage_calls.fingerprint()

    @property
    def spent(self) -> float:
        """Cost of this extractor's calls so far in this process, by `price`."""
        return self._cost_budget.spent

    def estimate(self, nodes: Sequence[BaseNode]) -> ExtractionEstimate:
        """Estimate the calls, tokens and cost (by `price`) of extracting these passages, without an LLM call.

        Args:
            nodes: passages as the splitter makes them.

        """
        return run_coroutine(self.aestimate(nodes))

    async def aestimate(self, nodes: Sequence[BaseNode]) -> ExtractionEstimate:
        """`estimate`, without blocking the event loop."""
        nodes = self._tenancy.assign_tenant(nodes)
        asked = [nodes[position] for position, _ in await self._run.plan_calls(nodes)]
        expected = await asyncio.to_thread(lambda: list(map(self._passage_calls.expected_tokens, asked)))
        prompt, completion = sum(tokens for tokens, _ in expected), sum(tokens for _, tokens in expected)
        cost = None if self._cost_budget.price is None else self._cost_budget.price.of(prompt, completion)
        return ExtractionEstimate(len(nodes), len(nodes) - len(asked), len(asked), prompt, completion, cost)

    def retry_failed(self, vector_store: BasePydanticVectorStore) -> ExtractionLedger:
        """Extract the failed passages of a store again, and store the results call by call.

        A passage that is edited or deleted meanwhile is left as it then is. One that fails again keeps the triples that
        it has; all keep those of their links. Repeating a killed run costs only the calls that were under way.

        Args:
            vector_store: a `GeARVectorStore`. A store with tenants is passed tenant by tenant: `store.for_tenant(…)`.

        Returns:
            The account of these passages; `passages` is 0 if none had failed.

        Raises:
            ArgumentError: `vector_store` is another store.

        """
        return run_coroutine(self.aretry_failed(vector_store))

    async def aretry_failed(self, vector_store: BasePydanticVectorStore) -> ExtractionLedger:
        """`retry_failed`, without blocking the event loop."""

        async def store(before: Sequence[BaseNode], after: Sequence[BaseNode]) -> None:
            changed = [
                attach_triples(node, [*without_links(read_triples(node)), *filter(is_link, read_triples(stored))])
                for node, stored in zip(after, before, strict=True)
                if not must_stay(stored, node)
            ]
            if changed:
                await vector_store.async_add(changed, if_unchanged_since=before)

        from llama_index_gear.store.access import connection_of, reads_of  # Qdrant takes a second to import
        from llama_index_gear.store.vector_store import GeARVectorStore

        if not isinstance(vector_store, GeARVectorStore):
            raise ArgumentError(f"retry_failed needs a GeARVectorStore, not {type(vector_store).__name__}")
        await vector_store.afinish_writes()
        failed = await arun(reads_of(vector_store, FAILED_EXTRACTIONS).ids_flow(), connection_of(vector_store).aanswer)
        self._ledger = ExtractionLedger()
        self._cost_budget.forget_refusals()  # whoever asks for a retry may have raised the quota
        with self._bar(len(failed), self.show_progress) as bar:
            for start in range(0, len(failed), _PAGE):
                ids = failed[start : start + _PAGE]
                page = await vector_store.aget_nodes(ids, FAILED_EXTRACTIONS)
                bar.update(len(ids) - len(page))  # another run extracted these meanwhile
                self._ledger += ExtractionLedger.of(await self._run.extract(page, bar, store))
        await self._report()
        return self._ledger

    @property
    def _passage_calls(self) -> PassageCalls:
        return PassageCalls(
            self.llm, self.extract_prompt, self.max_retries, self._cost_budget, self._room, self.kg_schema
        )

    @property
    def _run(self) -> ExtractionRun:
        return ExtractionRun(self._passage_calls, self._extraction_cache, self._tenancy, self.num_workers)

    @staticmethod
    def _bar(passages: int, show_progress: bool) -> Any:
        return tqdm(total=passages, desc="Extracting triples", disable=not show_progress)

    async def _report(self) -> None:
        log_ledger(self._ledger)
        if self._ledger.failures:
            await self._extraction_cache.note_failed_run(self.fingerprint)
