"""A LlamaIndex property graph is taken over: its passages, each with the triplets that came from it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llama_index.core.graph_stores import SimplePropertyGraphStore
from llama_index.core.graph_stores.types import EntityNode, PropertyGraphStore, Relation
from llama_index.core.indices.property_graph import ImplicitPathExtractor, PropertyGraphIndex, SimpleLLMPathExtractor
from llama_index.core.schema import MetadataMode, NodeRelationship, RelatedNodeInfo, TextNode
from qdrant_client import QdrantClient

from llama_index_gear import GeARVectorStore, GraphRetriever, Triple
from llama_index_gear.ingestion.property_graph import from_property_graph
from llama_index_gear.nodes import read_triples
from llama_index_gear.testing import ScriptedLLM, WordEmbedding

EMBED = WordEmbedding(64)
TEXTS = {"born": "Max Born taught Oppenheimer.", "olivia": "Irene was a daughter of Max Born.", "lego": "Toys."}
REPLIES = ["(Max Born, taught, Oppenheimer)", "(Irene, daughter of, Max Born)\n(Max Born, taught, Oppenheimer)", ""]


def make_index(**options: Any) -> PropertyGraphIndex:
    nodes = [
        TextNode(
            id_=name,
            text=text,
            metadata={"title": name, "page": 5},
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="file")},
        )
        for name, text in TEXTS.items()
    ]
    extractors = [SimpleLLMPathExtractor(llm=ScriptedLLM(REPLIES), num_workers=1), ImplicitPathExtractor()]
    return PropertyGraphIndex(nodes=nodes, kg_extractors=extractors, embed_model=EMBED, use_async=False, **options)


class OtherStore(PropertyGraphStore):
    """A property graph store of another kind: what it holds is known through LlamaIndex's interface alone."""

    def __init__(self, inner: SimplePropertyGraphStore) -> None:
        self._inner = inner

    def get(self, properties: Any = None, ids: Any = None) -> Any:
        return self._inner.get(properties, ids)

    def get_triplets(
        self, entity_names: Any = None, relation_names: Any = None, properties: Any = None, ids: Any = None
    ) -> Any:
        return self._inner.get_triplets(entity_names, relation_names, properties, ids)

    def _refuse(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError

    get_rel_map = upsert_nodes = upsert_relations = delete = structured_query = vector_query = _refuse


@pytest.mark.parametrize("kind", ["index", "store", "persisted", "another store"])
def test_triplets_come_with_their_passages(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llama_index_gear.ingestion.property_graph._AT_ONCE", 2)
    index = make_index()
    graph: Any = index.property_graph_store
    given = {
        "index": index,
        "store": graph,
        "persisted": SimplePropertyGraphStore.from_dict(json.loads(graph.graph.model_dump_json())),
        "another store": OtherStore(graph),
    }[kind]
    nodes = {node.node_id: node for node in from_property_graph(given)}
    facts = {name: [(fact.subject, fact.object) for fact in read_triples(node)] for name, node in nodes.items()}
    # LlamaIndex's extractor writes "Max born".
    assert facts == {"born": [("Max born", "Oppenheimer")], "olivia": [("Irene", "Max born")], "lego": []}
    for name, node in nodes.items():
        assert (node.get_content(MetadataMode.NONE), node.metadata["page"]) == (TEXTS[name], 5)
        assert node.ref_doc_id == "file"
        assert node.embedding == pytest.approx(EMBED.get_text_embedding(node.get_content(MetadataMode.EMBED)))
    store = GeARVectorStore("graph", QdrantClient(":memory:"), embed_model=EMBED)
    store.add(list(nodes.values()))
    assert store.check().ok and store.check().triples == 2
    found = GraphRetriever(store, similarity_top_k=2).retrieve("Whose daughter did the teacher of Oppenheimer have?")
    assert {result.node.node_id for result in found} == {"born", "olivia"}


def test_what_names_no_passage_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    index = make_index()
    ends = [EntityNode(name="Ada"), EntityNode(name="Bob")]
    index.property_graph_store.upsert_nodes(ends)
    index.property_graph_store.upsert_relations([Relation(label="knows", source_id=ends[0].id, target_id=ends[1].id)])
    facts = [fact for node in from_property_graph(index) for fact in read_triples(node)]
    assert Triple("Ada", "knows", "Bob") not in facts and len(facts) == 2
    assert caplog.messages == ["1 triplets of the property graph are left out: they name no passage that it has"]


def test_an_index_without_embeddings_gives_passages_without_them() -> None:
    assert [node.embedding for node in from_property_graph(make_index(embed_kg_nodes=False))] == [None] * 3
