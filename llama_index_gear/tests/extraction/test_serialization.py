"""Extractors as data, in other processes, and copied."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.ingestion.pipeline import get_transformation_hash
from llama_index.core.llms import LLM, MockLLM
from llama_index.core.schema import TextNode, TransformComponent
from llama_index.core.storage.kvstore import SimpleKVStore
from llama_index.llms.openai import OpenAI

from llama_index_gear.errors import ArgumentError
from llama_index_gear.extraction.accounting import ExtractionLedger
from llama_index_gear.extraction.llm_extractor import GeARTripleExtractor
from llama_index_gear.extraction.mention_extractor import MentionTripleExtractor
from llama_index_gear.ingestion.property_graph import ToPropertyGraph
from llama_index_gear.nodes import read_triples

# MockLLM repeats the prompt, and so its example's facts: these passages state one of them.
NODES = [
    TextNode(id_=name, text=f"{name} saw Le Corbusier's Villa Savoye in Paris.", metadata={"title": name})
    for name in ("Ada", "Eve")
]


def make_openai_llm(**settings: Any) -> LLM:
    return OpenAI(model="gpt-4o-mini", api_key="sk-secret", temperature=0.3, **settings)


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
    extractor = GeARTripleExtractor(llm, price=(1, 2), max_cost=3, cache=cache, num_workers=7)
    extractor._cost_budget.spent = 1.0
    again = copy.deepcopy(extractor)
    assert again.to_dict() == extractor.to_dict() and (again.llm, again.cache) == (llm, cache)
    assert (again.max_cost, again.num_workers, again.spent) == (3, 7, 0.0)
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
