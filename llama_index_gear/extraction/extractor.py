"""Triples from passages by a language model: the transformation."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Self

from llama_index.core.bridge.pydantic import ConfigDict, Field, PrivateAttr
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.schema import BaseNode, TransformComponent
from llama_index.core.settings import Settings
from llama_index.core.storage.kvstore.types import BaseKVStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from tqdm.auto import tqdm

from llama_index_gear.errors import ArgumentError, ExtractionError, check_counts, check_kind, check_kinds, check_numbers
from llama_index_gear.extraction.accounting import (
    FAILED_EXTRACTIONS,
    CostBudget,
    ExtractionEstimate,
    ExtractionLedger,
    ExtractionRecord,
    Outcome,
    is_over_budget,
    record_of,
    with_record,
)
from llama_index_gear.extraction.cache import ExtractionCache
from llama_index_gear.extraction.calls import (
    EXTRACT_PROMPT,
    EXTRACT_SEVERAL_PROMPT,
    PassageCalls,
    group_into_calls,
    group_into_pages,
)
from llama_index_gear.extraction.serialization import (
    llm_from_dict,
    llm_to_dict,
    prompt_from_dict,
    prompt_to_dict,
)
from llama_index_gear.flow import gather, run_coroutine
from llama_index_gear.llm.client import offers_functions
from llama_index_gear.nodes import ONE_NODE, read_triples
from llama_index_gear.requests import ExtractionCallIds
from llama_index_gear.tenancy import Tenancy

logger = logging.getLogger(__name__)

_PAGE = 1024
"""Passages of a retry that are in memory at a time."""

_PROMPTS = ("extract_prompt", "extract_several_prompt")

_Store = Callable[[Sequence[BaseNode], Sequence[BaseNode]], Awaitable[None]]


class GeARTripleExtractor(TransformComponent):
    """Extracts named entities and triples from each passage with one call of a language model (GeAR App. D, J.1).

    A transformation for LlamaIndex's ingestion pipelines: behind the splitter, before the embedding model. The triples
    ride on copies of the nodes, as `gear_triples`, where neither the embedding model nor an LLM sees them; a
    `GeARVectorStore` stores them with the passage. For `PropertyGraphIndex` put `ToPropertyGraph` behind it.

    A passage that fails stops nothing: it goes on without triples (or, cut off, with those that were read), its record
    rides along as `gear_extraction`, and `ledger` lists it. `retry_failed(store)` extracts what failed again, whoever
    ran it; so does the next run over the same nodes. What succeeded is not asked for again. (A pipeline that is loaded
    from disk serves whole batches from its cache, failures included, and a document store passes over documents that
    it knows: `retry_failed` is the way there.)

    Args:
        llm: the model. Default: LlamaIndex's `Settings.llm`. One that offers function calling is asked for structured
            output, any other for JSON text; the result is the same.
        extract_prompt: with the variables `passage`, and if you like `title` and `problem`.
        extract_several_prompt: with the variables `passages`, and if you like `count`.
        structured: force structured output on or off. Default None: by what the model offers.
        title_key: metadata key of the passage's title. Default "title".
        passages_per_call: how many passages share a call, and so its instructions. What the reply doesn't tell of a
            passage is asked for alone. A call that times out, or fails otherwise in a way that may pass, fails for all
            of them, and `retry_failed` repeats it. Left out are triples of which no end stands in the passage, or one
            stands in another of the call instead; the passage's record counts them. Default 1: no passage can have the
            model misreport another, nor does a long reply tire it. (A cache doesn't tell the two apart.) A warning
            says so if more than a quarter of the passages had to be asked for again, alone.
        tenant_field: metadata key that names a passage's tenant, as in `GeARVectorStore`: passages of two tenants never
            share a call, nor what a cache keeps. Passages are remembered by it too: set it from the start. Default
            None: there are no tenants.
        tenant: whose all passages are, as of a store's `for_tenant(…)`; they get it in their metadata, hidden from
            models. Default None: their metadata says so.
        num_workers: calls under way at once. Default 4.
        max_retries: more tries after a rate limit, a time-out or a server's error, beyond those of the model's own
            client. Default 3. A reply that can't be read is asked for once more, with the error shown.
        retry_backoff: seconds before the first of these, doubled each time, with jitter; a `Retry-After` header
            counts if it asks for more. Default 1.
        raise_on_error: raise `ExtractionError` when all passages are done and some failed. Default False: in an
            ingestion pipeline an exception would lose documents.
        price: what a million prompt and a million completion tokens cost, in whatever currency: for `estimate`, `spent`
            and `max_cost`. Default: not known.
        max_cost: no call is begun that would bring what this extractor spends above this. Passages that it doesn't
            reach count as failed ("over budget"): `retry_failed`, or another run, goes on with them. Only what the
            last replies are longer than expected (see `ExtractionEstimate`), and what a provider bills of calls that
            failed, can be spent beyond. Each process of a pipeline with `num_workers` has a ceiling of its own.
            Default: no ceiling.
        cache: a LlamaIndex key-value store (`SimpleKVStore`, Redis, …) in which extracted passages are kept, by
            model, prompt, title, text and tenant. Without one only nodes that carry their triples are not asked for
            again. If it can't be reached, a warning says so and the run goes on.
        show_progress: a progress bar. Default False.

    Raises:
        ArgumentError: a number outside its range, a prompt without `passage` or `passages`, only one of the two
            prompts is yours where passages share calls, or a tenant_field that a `GeARVectorStore` would refuse.
        TenantError: (from a call) there is a tenant_field, and a passage has no tenant, or another; nothing was asked.
        ExtractionError: (from a call) see `raise_on_error`.

    """

    model_config = ConfigDict(frozen=True)  # what is checked, and what is remembered by it, stays

    llm: LLM
    extract_prompt: BasePromptTemplate
    extract_several_prompt: BasePromptTemplate
    structured: bool | None
    title_key: str
    passages_per_call: int = Field(exclude=True)
    tenant_field: str | None
    tenant: str | None
    num_workers: int = Field(exclude=True)
    max_retries: int = Field(exclude=True)
    retry_backoff: float = Field(exclude=True)
    raise_on_error: bool = Field(exclude=True)
    price: tuple[float, float] | None = Field(exclude=True)
    max_cost: float | None = Field(exclude=True)
    cache: BaseKVStore | None = Field(exclude=True)
    show_progress: bool = Field(exclude=True)

    _ledger: ExtractionLedger = PrivateAttr(default_factory=ExtractionLedger)
    _purse: CostBudget = PrivateAttr()
    _tenancy: Tenancy = PrivateAttr()
    _memory: ExtractionCache = PrivateAttr()

    def __init__(
        self,
        llm: LLM | None = None,
        *,
        extract_prompt: BasePromptTemplate = EXTRACT_PROMPT,
        extract_several_prompt: BasePromptTemplate = EXTRACT_SEVERAL_PROMPT,
        structured: bool | None = None,
        title_key: str = "title",
        passages_per_call: int = 1,
        tenant_field: str | None = None,
        tenant: str | None = None,
        num_workers: int = 4,
        max_retries: int = 3,
        retry_backoff: float = 1.0,
        raise_on_error: bool = False,
        price: tuple[float, float] | None = None,
        max_cost: float | None = None,
        cache: BaseKVStore | None = None,
        show_progress: bool = False,
    ) -> None:
        check_kind(LLM, hint="make the model, OpenAI(model='gpt-4o') say", optional=True, llm=llm)
        check_kind(BaseKVStore, hint="write SimpleKVStore(), say", optional=True, cache=cache)
        purse, tenancy = CostBudget(price, max_cost), Tenancy(tenant_field, tenant)
        check_counts(num_workers=num_workers, passages_per_call=passages_per_call)
        check_counts(least=0, max_retries=max_retries)
        check_numbers("0 or more seconds", lambda seconds: seconds >= 0, retry_backoff=retry_backoff)
        prompts: dict[str, Any] = {"extract_prompt": extract_prompt, "extract_several_prompt": extract_several_prompt}
        check_kind(BasePromptTemplate, hint="write PromptTemplate(text)", **prompts)
        for prompt, variable in ((extract_prompt, "passage"), (extract_several_prompt, "passages")):
            if variable not in prompt.template_vars:
                raise ArgumentError(f"the extract prompt lacks the variable {variable}")
        is_own = extract_prompt is not EXTRACT_PROMPT and extract_several_prompt is EXTRACT_SEVERAL_PROMPT
        if passages_per_call > 1 and is_own:
            raise ArgumentError("passages that share a call need a prompt of yours too: extract_several_prompt")
        model = Settings.llm if llm is None else llm
        if structured and not offers_functions(model):
            raise ArgumentError(f"{model.class_name()} offers no function calling: leave `structured` out")
        super().__init__(  # type: ignore[call-arg]  # the fields above; pydantic's plugin is not at work
            llm=model,
            extract_prompt=extract_prompt,
            extract_several_prompt=extract_several_prompt,
            structured=structured,
            title_key=title_key,
            passages_per_call=passages_per_call,
            tenant_field=tenant_field,
            tenant=tenant,
            num_workers=num_workers,
            max_retries=max_retries,
            retry_backoff=retry_backoff,
            raise_on_error=raise_on_error,
            price=price,
            max_cost=max_cost,
            cache=cache,
            show_progress=show_progress,
        )
        self._purse, self._tenancy, self._memory = purse, tenancy, ExtractionCache(cache)

    @classmethod
    def class_name(cls) -> str:
        """Name under which the component is serialised."""
        return "GeARTripleExtractor"

    @property
    def ledger(self) -> ExtractionLedger:
        """The account of the last run in this process; of nodes from other processes: `ExtractionLedger.of(nodes)`."""
        return self._ledger

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Serialised form; what the pipeline's cache recognises the transformation by.

        It holds the model and the prompts, which LlamaIndex's own form doesn't, but for keys and for how the model is
        reached; and how many runs had failures: the pipeline caches a whole batch, and a batch with failures must not
        be served again. What doesn't change what is extracted is left out: `num_workers`, `price`, `cache`, ….
        """
        plain = super().to_dict(**kwargs)
        fingerprint = self._asking.fingerprint()
        prompts = {name: prompt_to_dict(getattr(self, name)) or plain.get(name) for name in _PROMPTS}
        failed_runs = self._memory.failed_runs(fingerprint)
        return {
            **plain,
            "llm": llm_to_dict(self.llm),
            **prompts,
            "fingerprint": fingerprint,
            "failed_runs": failed_runs,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> Self:
        """The extractor that `to_dict` was called on, with the same fingerprint.

        Args:
            data: the serialised form.
            **kwargs: arguments of the constructor, in place of the form's or besides: `llm`, where LlamaIndex can't
                load it; `num_workers`, `price`, `max_cost`, `cache` and the others that the form leaves out.

        Raises:
            ArgumentError: the form is of something else; or its model or a prompt can't be made from it, and is not
                passed.

        """
        check_kind(dict, hint="pass what to_dict gave", data=data)
        settings = {**data, **kwargs}
        fingerprint = settings.pop("fingerprint", None)
        for name in ("class_name", "failed_runs"):
            settings.pop(name, None)
        if unknown := sorted(map(str, settings.keys() - cls.model_fields.keys())):
            raise ArgumentError(f"a {cls.__name__} has no {', '.join(unknown)}: pass what its to_dict gave")
        if settings.get("llm") is not None:
            settings["llm"] = llm_from_dict(settings["llm"])
        settings.update({name: prompt_from_dict(name, settings[name]) for name in _PROMPTS if name in settings})
        made = cls(**settings)
        asks_otherwise = fingerprint not in (None, made._asking.fingerprint())
        if asks_otherwise and not kwargs.keys() & {"llm", "structured", *_PROMPTS}:
            raise ArgumentError("the model can't be made from data as it was: pass it, from_dict(data, llm=…)")
        return made

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: all settings, or it is refused. LlamaIndex leaves out what can't be, and deletes it here."""
        settings = dict(self.__dict__)
        state = super().__getstate__()
        if lost := sorted(settings.keys() - self.__dict__.keys()):
            self.__dict__.update(settings)
            raise ArgumentError(
                f"the extractor's {' and '.join(lost)} can't be pickled: let the pipeline run in one process, where "
                "the extractor makes num_workers calls at once"
            )
        return state

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Another extractor with the same settings, which has spent nothing; it shares the model and the cache."""
        return type(self)(**{name: getattr(self, name) for name in type(self).model_fields})

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[BaseNode]:
        """Copies of the nodes with their triples, in order; also inside a running event loop."""
        return run_coroutine(self.acall(nodes, **kwargs))

    async def acall(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[BaseNode]:
        """Copies of the nodes with their triples, in order.

        Args:
            nodes: passages.
            **kwargs: `show_progress` overrides the field; others are ignored, as the pipeline passes on its own.

        """
        check_kinds(BaseNode, hint=ONE_NODE, nodes=nodes)
        with self._bar(len(nodes), kwargs.get("show_progress", self.show_progress)) as bar:
            extracted = await self._extracted(nodes, bar)
        self._ledger = ExtractionLedger.of(extracted)
        await self._report()
        return extracted

    @property
    def spent(self) -> float:
        """What the calls of this extractor have cost so far, by `price`; of this process."""
        return self._purse.spent

    def estimate(self, nodes: Sequence[BaseNode]) -> ExtractionEstimate:
        """What extracting these passages will take, and cost by `price`, without a call of the model.

        Args:
            nodes: passages, as they come out of the splitter.

        """
        return run_coroutine(self.aestimate(nodes))

    async def aestimate(self, nodes: Sequence[BaseNode]) -> ExtractionEstimate:
        """`estimate`, without blocking the event loop."""
        check_kinds(BaseNode, hint=ONE_NODE, nodes=nodes)
        nodes = self._tenancy.assign_tenant(nodes)
        calls = await self._calls(nodes)
        together = [[nodes[place] for place, _ in call] for call in calls]
        expected = await asyncio.to_thread(lambda: list(map(self._asking.expected_tokens, together)))
        asked = sum(map(len, calls))
        prompt, completion = sum(each[0] for each in expected), sum(each[1] for each in expected)
        cost = None if self._purse.price is None else self._purse.price.of(prompt, completion)
        return ExtractionEstimate(len(nodes), len(nodes) - asked, len(calls), prompt, completion, cost)

    def retry_failed(self, vector_store: BasePydanticVectorStore) -> ExtractionLedger:
        """Extract again the passages of a store whose extraction failed, and store what comes of it, call by call.

        A passage that is edited or deleted meanwhile is left as it then is. A killed run is repeated at the cost of the
        calls that were under way.

        Args:
            vector_store: a `GeARVectorStore`; one with tenants for one of them at a time, `store.for_tenant(…)`.

        Returns:
            The account of these passages; `passages` is 0 if none had failed.

        Raises:
            ArgumentError: another store.
            ExtractionError: see `raise_on_error`; what succeeded is stored.

        """
        return run_coroutine(self.aretry_failed(vector_store))

    async def aretry_failed(self, vector_store: BasePydanticVectorStore) -> ExtractionLedger:
        """`retry_failed`, without blocking the event loop."""

        async def store(before: Sequence[BaseNode], after: Sequence[BaseNode]) -> None:
            known = [node for node in after if not is_over_budget(node)]  # the others stay what they were
            if known:
                await vector_store.async_add(known, if_unchanged_since=before)

        answer = getattr(vector_store, "aanswer", None)
        if answer is None:
            raise ArgumentError(f"retry_failed needs a GeARVectorStore, not {type(vector_store).__name__}")
        failed = await answer(ExtractionCallIds(), FAILED_EXTRACTIONS)
        self._ledger = ExtractionLedger()
        with self._bar(len(failed), self.show_progress) as bar:
            for ids in group_into_pages(failed, self.passages_per_call * max(1, _PAGE // self.passages_per_call)):
                page = await vector_store.aget_nodes(ids, FAILED_EXTRACTIONS)
                bar.update(len(ids) - len(page))  # somebody else was faster
                self._ledger += ExtractionLedger.of(await self._extracted(page, bar, store))
        await self._report()
        return self._ledger

    @property
    def _asking(self) -> PassageCalls:
        return PassageCalls(
            self.llm,
            self.extract_prompt,
            self.extract_several_prompt,
            self.structured,
            self.title_key,
            self.max_retries,
            self.retry_backoff,
            self._purse,
        )

    @staticmethod
    def _bar(passages: int, show_progress: bool) -> Any:
        return tqdm(total=passages, desc="Extracting triples", disable=not show_progress)

    async def _extracted(self, nodes: Sequence[BaseNode], bar: Any, store: _Store | None = None) -> list[BaseNode]:
        """The nodes with their triples; each call's, as passed in and as they are now, are given to `store` at once."""
        extracted = self._tenancy.assign_tenant(nodes)
        calls = await self._calls(extracted)
        bar.update(len(nodes) - sum(map(len, calls)))

        async def stored(places: Sequence[int]) -> None:
            if store is not None and places:
                await store([nodes[place] for place in places], [extracted[place] for place in places])

        async def work() -> None:
            for call in waiting:
                await self._make(call, extracted)
                await stored([place for place, _ in call])
                bar.update(len(call))

        asked = {place for call in calls for place, _ in call}
        await stored([place for place in range(len(nodes)) if place not in asked])
        waiting = iter(calls)
        await gather([work() for _ in range(min(self.num_workers, len(calls)))])
        return extracted

    async def _report(self) -> None:
        again, answered = self._ledger.retried_alone, self._ledger.answered
        if 4 * again > answered:
            logger.warning(
                "%s of %s passages had to be asked for again, alone: a smaller passages_per_call, or 1, will cost less",
                again,
                answered,
            )
        if not self._ledger.failures:
            return
        await self._memory.note_failed_run(self._asking.fingerprint())
        failures = self._ledger.failures
        message = f"{len(failures)} of {self._ledger.passages} passages could not be extracted"
        if self.raise_on_error:
            raise ExtractionError(f"{message}: " + "; ".join(": ".join(failure) for failure in failures[:3]))
        # Problems may quote replies, and those passages: the ledger has them, logs don't.
        kinds = Counter(_kind(outcome, problem) for _, outcome, problem in failures).most_common()
        named = ", ".join(f"{count} {kind}" for kind, count in kinds)
        logger.warning("%s (%s); `ledger.failures` of the extractor says more", message, named)
        for failure in failures:
            logger.debug("%s", ": ".join(failure))

    async def _calls(self, extracted: list[BaseNode]) -> list[list[tuple[int, str]]]:
        """Places and fingerprints of the passages of each call that is to be made; what is known is filled in."""
        asked: list[tuple[int, str]] = []
        looking = iter(list(enumerate(extracted)))

        async def look() -> None:
            for place, node in looking:
                key, known = await self._known(node)
                if known is None:
                    asked.append((place, key))
                else:
                    extracted[place] = known

        await gather([look() for _ in range(min(self.num_workers, len(extracted)))])
        asked.sort()
        before = [(key, record_of(extracted[place]), self._tenant_of(extracted[place])) for place, key in asked]
        return [[asked[number] for number in call] for call in group_into_calls(before, self.passages_per_call)]

    async def _make(self, call: list[tuple[int, str]], extracted: list[BaseNode]) -> None:
        """Make a call for the passages at these places, and fill in what comes of it."""
        told = await self._asking.ask([extracted[place] for place, _ in call], [key for _, key in call])
        for (place, key), (found, record) in zip(call, told, strict=True):
            before = record_of(extracted[place])
            if record.outcome is Outcome.OVER_BUDGET and before is not None and before.key == key:
                record = replace(
                    record, shared_call_id=before.shared_call_id
                )  # who shared a call that a batch may have answered
            record = replace(record, key=key)
            await self._memory.keep(found, record)
            extracted[place] = with_record(extracted[place], found, record)

    async def _known(self, node: BaseNode) -> tuple[str, BaseNode | None]:
        """The passage's fingerprint, and the node as it will be if the model need not be asked."""
        calls = self._asking
        text, title = calls.shown(node)
        about = [calls.fingerprint(), title, text, *([self._tenant_of(node)] if self.tenant_field else [])]
        key = hashlib.sha256("\0".join(about).encode("utf-8", "surrogatepass")).hexdigest()
        earlier = record_of(node)
        if earlier is not None and earlier.key == key and not earlier.outcome.failure:
            again = ExtractionRecord(earlier.outcome, earlier.problem, reused=True, key=key)
            return key, with_record(node, read_triples(node), again)
        if (kept := await self._memory.recall(key)) is not None:
            return key, with_record(node, *kept)
        return key, None if text.strip() else with_record(node, [], ExtractionRecord(Outcome.BLANK, key=key))

    def _tenant_of(self, node: BaseNode) -> str:
        return str(node.metadata[self.tenant_field]) if self.tenant_field else ""


def _kind(outcome: str, problem: str) -> str:
    """What may be said of a failure aloud: its outcome, and the error's class if there was one."""
    error = problem.partition(":")[0] if outcome in (Outcome.FAILED.value, Outcome.TIMED_OUT.value) else ""
    return f"{outcome}: {error}" if error else outcome
