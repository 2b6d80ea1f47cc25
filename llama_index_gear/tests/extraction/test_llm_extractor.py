"""The LLM extractor inside LlamaIndex's pipelines; failures of an LLM's client are in `integration_tests`."""

from __future__ import annotations

import asyncio
import json
import math
import os
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from llama_index.core import PromptTemplate
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.graph_stores import SimplePropertyGraphStore
from llama_index.core.indices.property_graph import PropertyGraphIndex, SimpleLLMPathExtractor
from llama_index.core.ingestion import IngestionCache, IngestionPipeline
from llama_index.core.llms import CompletionResponse, LLMMetadata, MockLLM
from llama_index.core.schema import MetadataMode, TextNode
from llama_index.core.storage.kvstore import SimpleKVStore
from llama_index.core.utils import get_tokenizer
from qdrant_client import QdrantClient

from llama_index_gear import GeARTripleExtractor, GeARVectorStore, Triple
from llama_index_gear.errors import ArgumentError
from llama_index_gear.extraction.accounting import FAILED_EXTRACTIONS, ExtractionEstimate, ExtractionLedger
from llama_index_gear.ingestion.property_graph import ToPropertyGraph
from llama_index_gear.nodes import read_triples
from llama_index_gear.testing import ScriptedLLM, WordEmbedding

pytestmark = pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")


def write_reply(*triples: tuple[str, str, str]) -> str:
    return json.dumps({"entities": [], "triples": [list(triple) for triple in triples]})


def state_fact(prompt: str) -> str:
    """State one fact of the passage in the prompt: its name."""
    name = prompt.rsplit("\n#####\n", 2)[1].partition("\n\n")[2].split()[0]
    return write_reply((name, "is", "here"))


def make_passages(*names: str) -> list[TextNode]:
    return [TextNode(id_=name, text=f"{name} is here", metadata={"title": f"On {name}"}) for name in names]


def list_outcomes(nodes: Any) -> list[str]:
    return [node.metadata["gear_extraction"]["outcome"] for node in nodes]


@pytest.mark.parametrize("mode", ["sync", "async", "in a loop"])
def test_triples_ride_on_copies_that_no_model_sees(mode: str) -> None:
    llm = ScriptedLLM(otherwise=state_fact)
    extractor = GeARTripleExtractor(llm)
    given = make_passages("Ada", "Bob")
    before = [node.to_json() for node in given]

    async def extract() -> Any:
        return extractor(given) if mode == "in a loop" else await extractor.acall(given)

    nodes = extractor(given) if mode == "sync" else asyncio.run(extract())
    assert [node.to_json() for node in given] == before
    assert [node.node_id for node in nodes] == ["Ada", "Bob"]
    assert [read_triples(node) for node in nodes] == [[Triple("Ada", "is", "here")], [Triple("Bob", "is", "here")]]
    for node in nodes:
        for seen_by in (MetadataMode.LLM, MetadataMode.EMBED):
            assert "gear_" not in node.get_content(metadata_mode=seen_by)
    assert "Title: On Ada" in "".join(llm.history)
    assert (extractor.ledger.passages, extractor.ledger.triples, extractor.ledger.calls) == (2, 2, 2)
    assert extractor.ledger.prompt_tokens > 100 and extractor.ledger.completion_tokens > 10


def test_a_blank_passage_costs_nothing() -> None:
    extractor = GeARTripleExtractor(ScriptedLLM([]))
    assert list_outcomes(extractor([TextNode(text=" \n ")])) == ["blank"]
    assert extractor.ledger.calls == 0 and extractor.ledger.failures == ()
    assert extractor([]) == [] and extractor.ledger == ExtractionLedger()


def test_an_edited_passage_is_extracted_again() -> None:
    llm = ScriptedLLM(otherwise=state_fact)
    extractor = GeARTripleExtractor(llm)
    (node,) = extractor(make_passages("Ada"))
    node.set_content("Eve is here")
    assert read_triples(extractor([node])[0]) == [Triple("Eve", "is", "here")]
    assert len(llm.history) == 2


def test_another_model_or_prompt_extracts_again() -> None:
    (node,) = GeARTripleExtractor(ScriptedLLM(otherwise=state_fact))(make_passages("Ada"))
    llm = ScriptedLLM([write_reply(("x", "y", "z"))])
    GeARTripleExtractor(llm, extract_prompt=PromptTemplate("{passage}"))([node])
    assert llm.remaining == 0


def test_the_cache_serves_what_succeeded_in_another_run(tmp_path: Path) -> None:
    cache = SimpleKVStore()
    first = GeARTripleExtractor(ScriptedLLM([state_fact, "?", "?"]), cache=cache, num_workers=1)
    assert list_outcomes(first(make_passages("Ada", "Bob"))) == ["extracted", "unreadable"]
    cache.persist(str(tmp_path / "cache.json"))
    llm = ScriptedLLM(otherwise=state_fact)
    second = GeARTripleExtractor(llm, cache=SimpleKVStore.from_persist_path(str(tmp_path / "cache.json")))
    nodes = second(make_passages("Ada", "Bob", "Cleo"))
    assert list_outcomes(nodes) == ["extracted"] * 3
    assert second.ledger.reused == 1 and len(llm.history) == 2


def test_the_pipeline_s_cache_serves_a_good_batch_and_never_a_bad_one() -> None:
    llm = ScriptedLLM(["?", "?", state_fact])
    extractor = GeARTripleExtractor(llm)
    pipeline = IngestionPipeline(transformations=[extractor], cache=IngestionCache())
    assert list_outcomes(pipeline.run(nodes=make_passages("Ada"))) == ["unreadable"]
    assert list_outcomes(pipeline.run(nodes=make_passages("Ada"))) == ["extracted"]
    assert llm.remaining == 0
    served = pipeline.run(nodes=make_passages("Ada"))
    assert list_outcomes(served) == ["extracted"] and read_triples(served[0]) == [Triple("Ada", "is", "here")]
    assert len(llm.history) == 3


def test_what_the_pipeline_s_cache_knows_the_extractor_by() -> None:
    def make_key(**arguments: Any) -> str:
        return str(GeARTripleExtractor(ScriptedLLM(), **arguments).to_dict())

    assert make_key() == make_key(num_workers=9, show_progress=True, max_retries=0, cache=SimpleKVStore())
    assert make_key() != make_key(extract_prompt=PromptTemplate("{passage}"))
    assert make_key() != str(GeARTripleExtractor(MockLLM()).to_dict())


def test_of_a_model_that_llama_index_does_not_know_no_field_is_told() -> None:
    """Any field may be a secret, or count calls."""

    class Mine(MockLLM):
        auth: str = "Bearer sk-x"

    assert "sk-x" not in str(GeARTripleExtractor(Mine(max_tokens=7)).to_dict())
    assert "max_tokens" in str(GeARTripleExtractor(MockLLM(max_tokens=7)).to_dict())


@pytest.mark.parametrize(
    "settings",
    [
        {"price": (1.0, 2.0)}, {"price": (1.0, 2.0), "max_cost": 3.0}, {"num_workers": 1},
        {"max_retries": 0}, {"show_progress": True},
    ],
)  # fmt: skip
def test_settings_that_change_no_triple_leave_the_pipeline_s_cache_as_good(settings: dict[str, Any]) -> None:
    llm, cache = ScriptedLLM(otherwise=state_fact), IngestionCache()
    for arguments in ({}, settings):
        pipeline = IngestionPipeline(transformations=[GeARTripleExtractor(llm, **arguments)], cache=cache)
        assert list_outcomes(pipeline.run(nodes=make_passages("Ada"))) == ["extracted"]
    assert len(llm.history) == 1


def test_the_pipeline_s_cache_gives_no_tenant_what_is_another_s() -> None:
    """The cache keeps two tenants' results for the same words apart, because the extractor names the tenant."""
    llm, cache = ScriptedLLM(otherwise=state_fact), IngestionCache()
    for number, tenant in enumerate(("acme", "bolt"), start=1):
        nodes = [make_passages("Ada")[0].model_copy(update={"metadata": {"customer": tenant}})]
        extractor = GeARTripleExtractor(llm, tenant_field="customer")
        for _ in range(2):
            (node,) = IngestionPipeline(transformations=[extractor], cache=cache).run(nodes=nodes)
            assert node.metadata["customer"] == tenant and len(llm.history) == number


@pytest.mark.parametrize(("field", "asked"), [(False, True), (True, False), (True, None)])
def test_a_pipeline_says_whether_progress_is_shown(
    field: bool, asked: bool | None, capsys: pytest.CaptureFixture[str]
) -> None:
    extractor = GeARTripleExtractor(ScriptedLLM(otherwise=state_fact), show_progress=field)
    extractor(make_passages("Ada"), **({} if asked is None else {"show_progress": asked}))
    assert ("Extracting triples" in capsys.readouterr().err) == (field if asked is None else asked)


def test_it_can_be_pickled() -> None:
    again = pickle.loads(pickle.dumps(GeARTripleExtractor(MockLLM(), num_workers=2)))
    assert again.num_workers == 2
    # MockLLM repeats the prompt, and so its example's facts: these passages state one of them.
    passages = [TextNode(text=f"{name} saw Le Corbusier's Villa Savoye.") for name in ("Ada", "Bob")]
    nodes = IngestionPipeline(transformations=[GeARTripleExtractor(MockLLM())]).run(nodes=passages)
    assert ExtractionLedger.of(nodes).outcomes == {"extracted": 2}


def test_what_failed_in_another_run_is_extracted_again(tmp_path: Path) -> None:
    """A pipeline's kept cache serves the failure; `retry_failed` asks once more, and for nothing else."""
    embed = WordEmbedding(32)
    store = GeARVectorStore.from_path(tmp_path, embed_model=embed)
    cache = IngestionCache()

    def run_pipeline(llm: ScriptedLLM) -> GeARTripleExtractor:
        extractor = GeARTripleExtractor(llm, num_workers=1)
        IngestionPipeline(transformations=[extractor, embed], vector_store=store, cache=cache).run(
            nodes=make_passages("Ada", "Bob")
        )
        return extractor

    run_pipeline(ScriptedLLM([write_reply(("Ada", "is", "here")), "garbage", "garbage"]))
    llm = ScriptedLLM(otherwise=state_fact)
    later = run_pipeline(llm)
    assert llm.history == []
    ledger = later.retry_failed(store)
    assert (ledger.passages, ledger.outcomes, len(llm.history)) == (1, {"extracted": 1}, 1)
    assert store.get_nodes(filters=FAILED_EXTRACTIONS) == []
    stored = {node.node_id: read_triples(node) for node in store.get_nodes()}
    assert stored == {name: [Triple(name, "is", "here")] for name in ("Ada", "Bob")}
    assert later.retry_failed(store).passages == 0
    store.close()


async def test_retrying_stores_what_succeeds_before_it_raises(tmp_path: Path) -> None:
    embed = WordEmbedding(32)
    store = GeARVectorStore.from_path(tmp_path, embed_model=embed)
    failed = GeARTripleExtractor(ScriptedLLM(otherwise=lambda prompt: ""))(make_passages("Ada", "Bob"))
    store.add(embed(failed))
    llm = ScriptedLLM([write_reply(("Ada", "is", "here")), "", ""])
    extractor = GeARTripleExtractor(llm, num_workers=1)
    assert len((await extractor.aretry_failed(store)).failures) == 1
    assert len(store.get_nodes(filters=FAILED_EXTRACTIONS)) == 1
    store.close()


@pytest.mark.parametrize("left", ["x", {}, {"outcome": "weird"}, {"outcome": "extracted", "new": 1}, [1]])
def test_a_record_that_is_not_ours_is_none(left: Any) -> None:
    node = TextNode(id_="Ada", text="Ada is here", metadata={"gear_extraction": left})
    (done,) = GeARTripleExtractor(ScriptedLLM(otherwise=state_fact))([node])
    assert list_outcomes([done]) == ["extracted"]


def test_the_fingerprint_tells_models_and_their_settings_apart() -> None:
    class Named(ScriptedLLM):
        name: str = "a"
        temperature: float = 0.0

        @property
        def metadata(self) -> LLMMetadata:
            return LLMMetadata(model_name=self.name)

    keys = {
        json.dumps(GeARTripleExtractor(llm).to_dict()["fingerprint"])
        for llm in (Named(), Named(), Named(name="b"), Named(temperature=1.0), Named(system_prompt="Be brief."))
    }
    assert len(keys) == 4


@pytest.mark.parametrize("workers", [1, 3])
async def test_no_more_calls_are_under_way_than_there_are_workers(workers: int) -> None:
    under_way, most = 0, 0

    class Slow(ScriptedLLM):
        """A model that replies after all others had their turn, so that calls are under way together."""

        async def acomplete(self, *arguments: Any, **kwargs: Any) -> Any:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            for _ in range(50):  # until all the others have had their turn, many times
                await asyncio.sleep(0)
            under_way -= 1
            return await super().acomplete(*arguments, **kwargs)

    llm = Slow(otherwise=lambda prompt: write_reply())  # type: ignore[call-arg]
    await GeARTripleExtractor(llm, num_workers=workers).acall(make_passages(*"abcdefgh"))
    assert most == workers


@pytest.mark.parametrize("retries", [0, 2])
def test_a_failure_that_may_pass_is_tried_again_so_often(retries: int) -> None:
    llm = ScriptedLLM(otherwise=lambda prompt: _raise(ConnectionError("gone")))
    extractor = GeARTripleExtractor(llm, max_retries=retries)
    extractor(make_passages("Ada"))
    assert (len(llm.history), extractor.ledger.calls) == (1 + retries, 1 + retries)


def test_the_wait_before_a_retry_doubles_and_minds_the_header(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("llama_index_gear.llm.client.asyncio.sleep", sleep)
    limited = ConnectionError("slow down")
    limited.response = SimpleNamespace(headers={"retry-after": "7"})  # type: ignore[attr-defined]
    llm = ScriptedLLM([ConnectionError("gone"), ConnectionError("gone"), limited, write_reply()])
    monkeypatch.setattr("llama_index_gear.llm.client.RETRY_BACKOFF", 0.5)
    GeARTripleExtractor(llm)(make_passages("Ada"))
    first, second, third = waits
    assert 0.5 <= first <= 1.0 and 1.0 <= second <= 2.0 and third == 7


def test_the_ledger_adds_up_both_tries() -> None:
    llm = ScriptedLLM(["no JSON, five words here", write_reply(("Ada", "is", "here"))])
    extractor = GeARTripleExtractor(llm)
    extractor(make_passages("Ada"))
    tokens = get_tokenizer()
    spoken = ["no JSON, five words here", write_reply(("Ada", "is", "here"))]
    assert extractor.ledger.completion_tokens == sum(len(tokens(text)) for text in spoken)
    assert extractor.ledger.calls == 2


def _raise(error: Exception) -> str:
    raise error


def test_property_graphs_take_our_triples_and_we_take_theirs(tmp_path: Path) -> None:
    graph = SimplePropertyGraphStore()
    PropertyGraphIndex(
        nodes=make_passages("Ada", "Bob"),
        kg_extractors=[GeARTripleExtractor(ScriptedLLM(otherwise=state_fact)), ToPropertyGraph()],
        property_graph_store=graph,
        embed_kg_nodes=False,
        embed_model=MockEmbedding(embed_dim=2),
        use_async=False,
    )
    assert {(a.id, r.label, b.id) for a, r, b in graph.get_triplets(entity_names=["Ada", "Bob"])} == {
        ("Ada", "is", "here"),
        ("Bob", "is", "here"),
    }
    path_extractor = SimpleLLMPathExtractor(llm=ScriptedLLM(["(Ada, knows, Bob)"]), num_workers=1)
    embed_model = WordEmbedding()
    store = GeARVectorStore.from_path(tmp_path / "gear", embed_model=embed_model)
    IngestionPipeline(transformations=[path_extractor, embed_model], vector_store=store).run(nodes=make_passages("Ada"))
    assert read_triples(store.get_nodes()[0]) == [Triple("Ada", "Knows", "Bob")]
    assert store.client.count(store.triple_collection_name).count == 1
    store.close()


# -- what it costs ------------------------------------------------------------------------------------------------


def test_the_estimate_is_what_the_run_then_takes() -> None:
    llm = ScriptedLLM(otherwise=state_fact)
    extractor = GeARTripleExtractor(llm, price=(3.0, 15.0))
    nodes = [*make_passages("Ada", "Bob"), TextNode(text=" \n")]
    estimate = extractor.estimate(nodes)
    assert llm.history == [] and extractor.spent == 0
    assert (estimate.passages, estimate.reused, estimate.calls) == (3, 1, 2)
    words = [len(get_tokenizer()(node.text)) for node in nodes[:2]]
    assert estimate.completion_tokens == sum(math.ceil(2.1 * count) for count in words)
    assert estimate.cost == (estimate.prompt_tokens * 3 + estimate.completion_tokens * 15) / 1_000_000
    extracted = extractor(nodes)
    assert extractor.ledger.prompt_tokens == estimate.prompt_tokens
    ledger = extractor.ledger
    assert extractor.spent == pytest.approx((ledger.prompt_tokens * 3 + ledger.completion_tokens * 15) / 1_000_000)
    assert extractor.estimate(extracted) == ExtractionEstimate(3, 3, cost=0.0)
    assert GeARTripleExtractor(llm).estimate(nodes).cost is None
    assert "3 passages (1 already extracted or blank): 2 calls" in str(estimate) and "cost 0.00" in str(estimate)


def test_what_changes_stands_last_so_that_prompts_share_a_cached_beginning() -> None:
    llm = ScriptedLLM(otherwise=state_fact)
    GeARTripleExtractor(llm)(make_passages("Ada", "Bob"))
    shared = os.path.commonprefix(llm.history)
    assert len(shared) > 0.75 * max(map(len, llm.history))


class LimitError(Exception):
    """An error of a client at a rate limit."""

    status_code = 429

    def __init__(self, **headers: str) -> None:
        super().__init__("slow down")
        self.response = SimpleNamespace(headers={name.replace("_", "-"): text for name, text in headers.items()})


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 0.0),
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "7.5", "retry_after_ms": "1500"}, 1.5),
        ({"retry_after": format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True)}, 60.0),
        ({"retry_after": "Thu, 26 Nov 2020 23:20:00 GMT"}, 0.0),
        ({"retry_after": "3600"}, 60.0),
        ({"retry_after": "soon"}, 0.0),
    ],
)
def test_a_rate_limit_is_waited_for_as_long_as_the_server_asks(
    monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], seconds: float
) -> None:
    waited: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        waited.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", note)
    monkeypatch.setattr("llama_index_gear.llm.client.RETRY_BACKOFF", 0.0)
    llm = ScriptedLLM([LimitError(**headers)], otherwise=state_fact)
    assert list_outcomes(GeARTripleExtractor(llm)(make_passages("Ada"))) == ["extracted"]
    assert waited == [seconds]


class NoQuotaError(Exception):
    """The error of a server with OpenAI's protocol for an account without money."""

    status_code = 429

    def __str__(self) -> str:
        return "Error code: 429 - {'error': {'code': 'insufficient_quota'}}"


class NoMoneyError(NoQuotaError):
    """An error of servers, DeepSeek's or OpenRouter's, for an account without money."""

    status_code = 402

    def __str__(self) -> str:
        return "Insufficient Balance"


@pytest.mark.parametrize(("workers", "error"), [(1, NoMoneyError), (1, NoQuotaError), (4, NoQuotaError)])
def test_a_quota_that_is_used_up_ends_the_calls_and_a_retry_begins_anew(
    tmp_path: Path, workers: int, error: type[NoQuotaError]
) -> None:
    answers, calls = 5, 0

    def reply(prompt: str) -> str:
        nonlocal calls
        calls += 1
        if calls > answers and calls != 9:  # one answer among the refusals: the count begins anew
            raise error
        return state_fact(prompt)

    nodes = make_passages(*(f"Name{n}" for n in range(90)))
    extractor = GeARTripleExtractor(ScriptedLLM(otherwise=reply), num_workers=workers)
    store = GeARVectorStore.from_path(tmp_path / "store", embed_model=WordEmbedding())
    IngestionPipeline(transformations=[extractor, WordEmbedding()], vector_store=store).run(nodes=nodes)
    if workers == 1:
        assert calls == 9 + 8, "no call is repeated, and eight in a row end the run"
    assert 9 + 8 <= calls <= 9 + 7 + 8 + 4, "seven may be refused before the answer has been read"
    assert calls < 30
    ended = [problem for _, outcome, problem in extractor.ledger.failures if outcome == "out of quota"]
    assert len(ended) >= 90 - calls and all("quota" in problem for problem in ended)
    before, answers = calls, 10**9
    assert not extractor(nodes)[0].metadata["gear_extraction"]["calls"] and calls == before, "not in another run"
    assert not extractor.retry_failed(store).failures and calls > before


@pytest.mark.parametrize("workers", [1, 4])
def test_a_ceiling_stops_and_what_is_left_is_extracted_later(
    tmp_path: Path, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = make_passages(*(f"Name{n}" for n in range(9)))
    one = GeARTripleExtractor(ScriptedLLM(), price=(1.0, 4.0)).estimate(nodes[:1])
    assert one.cost is not None
    llm = ScriptedLLM(otherwise=state_fact)
    extractor = GeARTripleExtractor(llm, num_workers=workers, price=(1.0, 4.0), max_cost=4.5 * one.cost)
    store = GeARVectorStore.from_path(tmp_path / "store", embed_model=WordEmbedding())
    IngestionPipeline(transformations=[extractor, WordEmbedding()], vector_store=store).run(nodes=nodes)
    asked = len(llm.history)
    assert 4 <= asked <= 6  # the replies were shorter than expected
    assert extractor.spent <= 4.5 * one.cost
    assert extractor.ledger.outcomes == {"extracted": asked, "over budget": 9 - asked}
    assert f"({9 - asked} over budget)" in caplog.text
    assert len(store.get_nodes()) == 9
    extractor(nodes)  # nothing is left, whatever is asked
    assert len(llm.history) == asked
    later = GeARTripleExtractor(llm, price=(1.0, 4.0), max_cost=20 * one.cost)
    ledger = later.retry_failed(store)
    assert (ledger.outcomes, len(llm.history)) == ({"extracted": 9 - asked}, 9)
    assert later.retry_failed(store).passages == 0
    assert sorted(node.node_id for node in store.get_nodes()) == sorted(node.node_id for node in nodes)
    assert all(len(read_triples(node)) == 1 for node in store.get_nodes())
    store.close()


class Slow(ScriptedLLM):
    """A model that replies when all others have had their turn, so that calls are under way together."""

    async def acomplete(self, *arguments: Any, **kwargs: Any) -> Any:
        for _ in range(50):
            await asyncio.sleep(0)
        return await super().acomplete(*arguments, **kwargs)


def test_a_ceiling_counts_calls_that_are_under_way() -> None:
    """The ceiling counts a running call at its expected cost; only prompts cost something here."""
    nodes, price = make_passages(*"abcdefgh"), (1.0, 0.0)
    costs = {GeARTripleExtractor(ScriptedLLM(), price=price).estimate([node]).cost for node in nodes}
    (one,) = [cost for cost in costs if cost is not None]
    llm = Slow(otherwise=state_fact)  # type: ignore[call-arg]
    extractor = GeARTripleExtractor(llm, num_workers=4, price=price, max_cost=2.5 * one)
    extractor(nodes)
    assert len(llm.history) == 2 and extractor.spent == pytest.approx(2 * one)
    assert extractor.ledger.outcomes == {"extracted": 2, "over budget": 6}


def test_a_ceiling_may_be_reached() -> None:
    one = GeARTripleExtractor(ScriptedLLM(), price=(1.0, 4.0)).estimate(make_passages("Ada"))
    extractor = GeARTripleExtractor(ScriptedLLM(otherwise=state_fact), price=(1.0, 4.0), max_cost=one.cost)
    assert list_outcomes(extractor(make_passages("Ada"))) == ["extracted"]


def test_a_second_try_is_paid_for_too() -> None:
    one = GeARTripleExtractor(ScriptedLLM(), price=(1.0, 1.0)).estimate(make_passages("Ada"))
    assert one.cost is not None
    llm = ScriptedLLM(["not readable", "nor this"])
    extractor = GeARTripleExtractor(llm, price=(1.0, 1.0), max_cost=1.1 * one.cost)
    assert list_outcomes(extractor(make_passages("Ada"))) == ["unreadable"]
    assert len(llm.history) == 1


def make_failed_store(*names: str) -> GeARVectorStore:
    """Return a store whose passages all failed to be extracted."""
    store = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=WordEmbedding())
    store.add(WordEmbedding()(GeARTripleExtractor(ScriptedLLM(otherwise=lambda _: ""))(make_passages(*names))))
    return store


class CutOff(ScriptedLLM):
    """A model whose replies are cut off behind the first fact."""

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text=super().complete(prompt).text, raw={"done_reason": "length"})


def make_cut_off(reply: Callable[[str], str]) -> ScriptedLLM:
    return CutOff(otherwise=reply)  # type: ignore[call-arg]  # ScriptedLLM's constructor


@pytest.mark.parametrize("verb", ["scripted", "another"])
@pytest.mark.parametrize("error", [TimeoutError("late"), NoQuotaError(), ValueError("no"), None])
def test_a_retry_that_fails_keeps_the_triples_of_a_reply_that_was_cut_off(
    error: BaseException | None, verb: str
) -> None:
    store = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=WordEmbedding())
    store.add(WordEmbedding()(GeARTripleExtractor(make_cut_off(state_fact))(make_passages("Ada", "Bob"))))
    prompts = {} if verb == "scripted" else {"extract_prompt": PromptTemplate("Facts of: {passage}")}
    llm = ScriptedLLM([error, error] if error else [], otherwise=lambda _: "")
    ledger = GeARTripleExtractor(llm, max_retries=0, **prompts).retry_failed(store)  # type: ignore[arg-type]
    assert len(ledger.failures) == 2 and llm.history
    expected = [[Triple(name, "is", "here")] for name in ("Ada", "Bob")]
    assert [read_triples(node) for node in store.get_nodes(["Ada", "Bob"])] == expected
    assert store.check().ok and len(store.get_nodes(filters=FAILED_EXTRACTIONS)) == 2, "they are asked for again"
    longer = ScriptedLLM(otherwise=lambda _: write_reply(("Ada", "knows", "Bob"), ("Bob", "knows", "Ada")))
    assert not GeARTripleExtractor(longer).retry_failed(store).failures
    assert all(len(read_triples(node)) == 2 for node in store.get_nodes()) and store.check().ok


def test_a_cut_off_reply_replaces_another_one() -> None:
    store = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=WordEmbedding())
    store.add(WordEmbedding()(GeARTripleExtractor(make_cut_off(state_fact))(make_passages("Ada"))))
    GeARTripleExtractor(make_cut_off(lambda _: write_reply(("Ada", "knows", "Bob")))).retry_failed(store)
    assert [read_triples(node) for node in store.get_nodes()] == [[Triple("Ada", "knows", "Bob")]]


def test_a_pipeline_that_fails_keeps_what_the_store_has_of_the_same_text() -> None:
    embed_model = WordEmbedding()
    store = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=embed_model)

    def ingest(llm: ScriptedLLM, *names: str) -> None:
        extractor = GeARTripleExtractor(llm, max_retries=0)
        IngestionPipeline(transformations=[extractor, embed_model], vector_store=store).run(nodes=make_passages(*names))

    ingest(ScriptedLLM(otherwise=state_fact), "Ada", "Bob")
    (node,) = make_passages("Bob")
    node.set_content("Bob has left")
    failing = GeARTripleExtractor(ScriptedLLM([ValueError("no")] * 3), max_retries=0)
    store.add(embed_model(failing([*make_passages("Ada", "Cid"), node])))
    triples = {node.node_id: read_triples(node) for node in store.get_nodes()}
    assert triples == {"Ada": [Triple("Ada", "is", "here")], "Bob": [], "Cid": []} and store.check().ok
    assert len(store.get_nodes(filters=FAILED_EXTRACTIONS)) == 3
    assert GeARTripleExtractor(ScriptedLLM(otherwise=state_fact)).retry_failed(store).outcomes == {"extracted": 3}


def test_what_is_deleted_or_edited_during_a_retry_stays_so() -> None:
    store = make_failed_store("Ada", "Bob", "Cid")

    def reply_slowly(prompt: str) -> str:
        if "Ada is here" in prompt:
            store.delete_nodes(["Ada"])
            store.add(WordEmbedding()([TextNode(id_="Bob", text="Bob is gone")]))
        return state_fact(prompt)

    ledger = GeARTripleExtractor(ScriptedLLM(otherwise=reply_slowly), num_workers=1).retry_failed(store)
    assert ledger.outcomes == {"extracted": 3}
    assert {node.node_id: node.get_content() for node in store.get_nodes()} == {
        "Bob": "Bob is gone",
        "Cid": "Cid is here",
    }
    assert [read_triples(node) for node in store.get_nodes(["Bob", "Cid"])] == [[], [Triple("Cid", "is", "here")]]
    assert store.check().ok


def test_a_retry_that_is_killed_keeps_what_was_answered() -> None:
    store = make_failed_store("Ada", "Bob", "Cid", "Dan")

    def kill(prompt: str) -> str:
        if len(llm.history) == 4:
            raise KeyboardInterrupt
        return state_fact(prompt)

    llm = ScriptedLLM(otherwise=kill)

    with pytest.raises(KeyboardInterrupt):
        GeARTripleExtractor(llm, num_workers=1).retry_failed(store)
    assert len(store.get_nodes(filters=FAILED_EXTRACTIONS)) == 1
    llm = ScriptedLLM(otherwise=state_fact)
    assert GeARTripleExtractor(llm).retry_failed(store).outcomes == {"extracted": 1} and len(llm.history) == 1


def test_a_retry_stores_what_a_cache_knows_too() -> None:
    store, cache = make_failed_store("Ada", "Bob"), SimpleKVStore()
    llm = ScriptedLLM(otherwise=state_fact)
    GeARTripleExtractor(llm, cache=cache)(make_passages("Ada"))
    GeARTripleExtractor(llm, cache=cache).retry_failed(store)
    assert [read_triples(node) for node in store.get_nodes(["Ada", "Bob"])] == [
        [Triple(name, "is", "here")] for name in ("Ada", "Bob")
    ]
    assert len(llm.history) == 2 and store.get_nodes(filters=FAILED_EXTRACTIONS) == []


class BrokenCache(SimpleKVStore):
    """A cache that can't be reached."""

    async def aput(self, *_: Any, **__: Any) -> None:
        raise ConnectionError("down")

    async def aget(self, *_: Any, **__: Any) -> Any:
        raise ConnectionError("down")

    def get(self, *_: Any, **__: Any) -> Any:
        raise ConnectionError("down")

    def put(self, *_: Any, **__: Any) -> None:
        raise ConnectionError("down")


def test_a_cache_that_cannot_be_reached_costs_no_passage(caplog: pytest.LogCaptureFixture) -> None:
    extractor = GeARTripleExtractor(ScriptedLLM(["", ""], otherwise=state_fact), cache=BrokenCache(), num_workers=1)
    nodes = extractor(make_passages("Ada", "Bob", "Cid"))
    assert list_outcomes(nodes) == ["empty", "extracted", "extracted"] and extractor.to_dict()["failed_runs"] == 1
    assert [record.message for record in caplog.records if "cache" in record.message] == [
        "the extractor's cache failed, the run goes on without what it holds: ConnectionError"
    ]


def test_what_another_version_left_in_a_cache_is_not_known() -> None:
    cache = SimpleKVStore()
    GeARTripleExtractor(ScriptedLLM(otherwise=state_fact), cache=cache)(make_passages("Ada", "Bob"))
    for kept in cache._collections_mappings["gear_extraction"].values():
        kept["outcome"] = "partly"
    llm = ScriptedLLM(otherwise=state_fact)
    assert list_outcomes(GeARTripleExtractor(llm, cache=cache)(make_passages("Ada", "Bob"))) == ["extracted"] * 2
    assert len(llm.history) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"price": 0.15}, {"price": 0}, {"price": "ab"}, {"price": (1.0,)}, {"price": (1.0, -1.0)},
        {"price": (1.0, math.nan)}, {"price": (1.0, 1.0), "max_cost": "1"}, {"max_cost": 1.0}, {"num_workers": None},
        {"max_retries": -1}, {"max_retries": 1.5},
        {"tenant_field": 3}, {"extract_prompt": PromptTemplate("{title}")},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=[*wrong][-1].replace("_", ".")):
        GeARTripleExtractor(ScriptedLLM(), **wrong)


def test_settings_are_not_changed_behind_the_extractor_s_back() -> None:
    extractor = GeARTripleExtractor(ScriptedLLM(), price=(1.0, 1.0), max_cost=1.0)
    with pytest.raises(ValueError, match="frozen"):
        extractor.max_cost = 0.0
    assert pickle.loads(pickle.dumps(GeARTripleExtractor(MockLLM()))).num_workers == 4
