"""Extractors as data and back, in other processes, and copied."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.ingestion.pipeline import get_transformation_hash
from llama_index.core.llms import LLM, MockLLM
from llama_index.core.prompts import BasePromptTemplate, ChatPromptTemplate, PromptTemplate, RichPromptTemplate
from llama_index.core.schema import TextNode, TransformComponent
from llama_index.core.storage.kvstore import SimpleKVStore
from llama_index.llms.openai import OpenAI

from llama_index_gear.errors import ArgumentError
from llama_index_gear.extraction.accounting import ExtractionLedger
from llama_index_gear.extraction.extractor import GeARTripleExtractor
from llama_index_gear.extraction.mentions import MentionTripleExtractor
from llama_index_gear.extraction.prompts import EXTRACT_PROMPT
from llama_index_gear.ingestion.property_graph import ToPropertyGraph
from llama_index_gear.nodes import read_triples
from llama_index_gear.testing import ScriptedLLM

# MockLLM repeats the prompt, and so its example's facts: these passages state one of them.
NODES = [
    TextNode(id_=name, text=f"{name} saw Le Corbusier's Villa Savoye in Paris.", metadata={"title": name})
    for name in ("Ada", "Eve")
]
PROMPTS: dict[str, BasePromptTemplate] = {
    "the package's": EXTRACT_PROMPT,
    "text": PromptTemplate("Facts of {passage} ({title}), {style}", style="brief"),
    "chat": ChatPromptTemplate(
        [ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content="Facts of {passage}")]
    ),
    "rich": RichPromptTemplate("Facts of {{ passage }}"),
}


def make_openai_llm(**settings: Any) -> LLM:
    return OpenAI(model="gpt-4o-mini", api_key="sk-secret", temperature=0.3, **settings)


def remake(extractor: GeARTripleExtractor, **settings: Any) -> GeARTripleExtractor:
    return GeARTripleExtractor.from_dict(json.loads(json.dumps(extractor.to_dict())), **settings)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_form_gives_the_extractor_back(prompt: str) -> None:
    extractor = GeARTripleExtractor(
        make_openai_llm(max_tokens=77, additional_kwargs={"seed": 5}, api_base="http://localhost:9/v1"),
        extract_prompt=PROMPTS[prompt],
        structured=False,
        tenant_field="who",
    )
    again = remake(extractor)
    assert again.to_dict() == extractor.to_dict()
    assert (
        again._passage_calls.fingerprint() == extractor._passage_calls.fingerprint()
        and again._tenancy == extractor._tenancy
    )
    llm: Any = again.llm
    assert type(llm) is OpenAI and (llm.model, llm.max_tokens, llm.temperature) == ("gpt-4o-mini", 77, 0.3)
    assert llm.additional_kwargs == {"seed": 5}
    asked = [
        extractor.extract_prompt.format_messages(passage="A.", title="T", problem="")
        for extractor in (extractor, again)
    ]
    assert asked[0] == asked[1]
    assert GeARTripleExtractor.from_json(extractor.to_json()).to_dict() == extractor.to_dict()


def test_an_extractor_that_was_made_again_extracts_the_same() -> None:
    extractor = GeARTripleExtractor(MockLLM())
    again = remake(extractor)
    assert [read_triples(node) for node in again(NODES)] == [read_triples(node) for node in extractor(NODES)]
    assert again(extractor(NODES)) and again.ledger.reused == 2, "the fingerprint of its records is another"


def test_no_key_stands_in_the_form_and_how_the_model_is_reached_changes_no_cache_s_key() -> None:
    plain = GeARTripleExtractor(make_openai_llm())
    other = GeARTripleExtractor(
        make_openai_llm(timeout=7.5, max_retries=9, default_headers={"Authorization": "sk-hidden"}),
        num_workers=9,
        cache=SimpleKVStore(),
        price=(1.0, 2.0),
    )
    assert not {"sk-secret", "sk-hidden"} & set(json.dumps(other.to_dict()).split('"'))
    assert get_transformation_hash(NODES, plain) == get_transformation_hash(NODES, other)
    hotter = GeARTripleExtractor(make_openai_llm(max_tokens=5))
    assert get_transformation_hash(NODES, plain) != get_transformation_hash(NODES, hotter)


def test_what_the_form_leaves_out_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-environment")
    again = remake(GeARTripleExtractor(make_openai_llm()), num_workers=9, price=(1, 2), max_cost=3)
    assert (again.num_workers, again.price, again.max_cost) == (9, (1, 2), 3)
    assert again.llm.api_key == "sk-environment"  # type: ignore[attr-defined]
    other = MockLLM(max_tokens=3)
    assert remake(GeARTripleExtractor(make_openai_llm()), llm=other).llm is other


class Mine(OpenAI):
    """A user's own model that keeps the class name of its base."""


@pytest.mark.parametrize("llm", [ScriptedLLM(), Mine(model="gpt-4o-mini", api_key="x")], ids=["other", "subclass"])
def test_a_model_that_llama_index_cannot_load_is_asked_for(llm: LLM) -> None:
    extractor = GeARTripleExtractor(llm)
    with pytest.raises(ArgumentError, match=rf"'{type(llm).__name__}'.*from_dict\(data, llm=…\)"):
        remake(extractor)
    again = remake(extractor, llm=llm)
    assert again.llm is llm and again.to_dict() == extractor.to_dict()


def list_words(**variables: Any) -> str:
    return "\n".join(variables["passage"].split())


def test_a_prompt_that_is_more_than_text_is_asked_for() -> None:
    prompt = PromptTemplate("Facts of {passage}", function_mappings={"passage": list_words})
    extractor = GeARTripleExtractor(MockLLM(), extract_prompt=prompt)
    with pytest.raises(ArgumentError, match=r"extract_prompt can't be made from data.*extract_prompt=…"):
        remake(extractor)
    assert remake(extractor, extract_prompt=prompt).to_dict() == extractor.to_dict()


def test_forms_of_something_else_are_refused() -> None:
    form = GeARTripleExtractor(MockLLM()).to_dict()
    refused: list[tuple[Any, str]] = [
        ({**form, "chunk_size": 5}, "has no chunk_size"),
        ({**form, "llm": {"class_name": []}}, "can't load a model of class"),
        (
            {**form, "llm": {"class_name": "MockLLM", "max_tokens": "many"}},
            r"from this form .*from_dict\(data, llm=…\)",
        ),
        ({**form, "extract_prompt": {"class_name": "PromptTemplate"}}, "extract_prompt can't be made from data"),
        ({**form, "fingerprint": "another"}, r"the model can't be made from data as it was: pass it"),
    ]
    for data, message in refused:
        with pytest.raises(ArgumentError, match=message):
            GeARTripleExtractor.from_dict(data)


@pytest.mark.parametrize(
    "component",
    [MentionTripleExtractor(title_key="name", max_triples_per_passage=2), ToPropertyGraph()],
    ids=lambda component: type(component).__name__,
)
def test_the_other_components_come_back_by_llama_index_s_own_means(component: TransformComponent) -> None:
    forms = [type(component).from_dict(component.to_dict()), type(component).from_json(component.to_json())]
    for restored in [*forms, pickle.loads(pickle.dumps(component)), copy.deepcopy(component)]:
        assert type(restored) is type(component) and restored == component


def test_an_extractor_works_in_a_pipeline_s_processes() -> None:
    """`MentionTripleExtractor` does so in `test_recognizer.py`."""
    pipeline = IngestionPipeline(transformations=[GeARTripleExtractor(MockLLM(), num_workers=2), ToPropertyGraph()])
    alone, together = pipeline.run(nodes=NODES), pipeline.run(nodes=NODES, num_workers=2)
    assert all(read_triples(node) for node in alone)
    assert [read_triples(node) for node in together] == [read_triples(node) for node in alone]


def test_a_copy_has_the_settings_and_an_account_of_its_own() -> None:
    llm, cache = make_openai_llm(), SimpleKVStore()
    llm._get_client()  # type: ignore[attr-defined]  # as after its first call: it has locks, which no copy can have
    extractor = GeARTripleExtractor(llm, price=(1, 2), max_cost=3, cache=cache, passages_per_call=4)
    extractor._cost_budget.spent = 1.0
    again = copy.deepcopy(extractor)
    assert again.to_dict() == extractor.to_dict() and (again.llm, again.cache) == (llm, cache)
    assert (again.max_cost, again.passages_per_call, again.spent) == (3, 4, 0.0)
    pickled = pickle.loads(pickle.dumps(extractor))
    assert pickled.to_dict() == extractor.to_dict() and pickled.max_cost == 3


def test_what_cannot_be_pickled_is_said_and_not_left_out() -> None:
    """Pickling fails clearly. LlamaIndex would drop the model or the cache and restore the extractor without them."""

    class Local(MockLLM):
        """A class that no other process can find."""

    class LocalCache(SimpleKVStore):
        """A cache's class that no other process can find."""

    for extractor, lost in (
        (GeARTripleExtractor(Local(max_tokens=None)), "llm"),
        (GeARTripleExtractor(MockLLM(), cache=LocalCache()), "cache"),
    ):
        with pytest.raises(ArgumentError, match=f"the extractor's {lost} can't be pickled.*in one process"):
            pickle.dumps(extractor)
        with pytest.raises(ArgumentError, match="in one process"):
            IngestionPipeline(transformations=[extractor]).run(nodes=NODES, num_workers=2)
        assert ExtractionLedger.of(extractor(NODES)).passages == 2
