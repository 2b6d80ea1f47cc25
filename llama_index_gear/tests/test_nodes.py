import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core import MockEmbedding, PropertyGraphIndex
from llama_index.core.graph_stores import SimplePropertyGraphStore
from llama_index.core.graph_stores.types import KG_NODES_KEY, KG_RELATIONS_KEY, ChunkNode, EntityNode, Relation
from llama_index.core.indices.property_graph import ImplicitPathExtractor
from llama_index.core.llms import MockLLM
from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageNode,
    MetadataMode,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)

from llama_index_gear.errors import TripleError
from llama_index_gear.ingestion.property_graph import ToPropertyGraph
from llama_index_gear.nodes import (
    EXTRACTION_KEY,
    TRIPLES_KEY,
    _find_name,
    attach_triples,
    name_passage,
    read_section,
    read_triples,
    shorten,
    shorten_predicate,
    split_link,
    with_metadata,
)
from llama_index_gear.triple import Triple

FATHER = Triple("Stephen Curry", "father", "Dell Curry")
TEAM = Triple("Dell Curry", "played for", "Charlotte Hornets")


def _make_node() -> TextNode:
    return TextNode(
        id_="p1",
        text="Dell Curry played for the Hornets.",
        embedding=[0.1, 0.2],
        metadata={"title": "Dell Curry", "tags": ["nba", {"deep": [1]}]},
        excluded_embed_metadata_keys=["tags"],
        excluded_llm_metadata_keys=["tags"],
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc1")},
    )


def _make_property_graph(*triples: Triple) -> TextNode:
    names = dict.fromkeys(name for triple in triples for name in (triple.subject, triple.object))
    entities = {name: EntityNode(name=name, label="PERSON", properties={"seen": 1}) for name in names}
    relations = [
        Relation(label=triple.predicate, source_id=entities[triple.subject].id, target_id=entities[triple.object].id)
        for triple in triples
    ]
    return TextNode(text="x", metadata={KG_NODES_KEY: list(entities.values()), KG_RELATIONS_KEY: relations})


def test_what_is_attached_is_read_back_in_order_without_repetition() -> None:
    assert read_triples(attach_triples(_make_node(), [TEAM, FATHER, TEAM])) == [TEAM, FATHER]
    assert read_triples(attach_triples(_make_node(), iter([]))) == []
    assert read_triples(_make_node()) == []


@pytest.mark.parametrize(
    "node", [_make_node(), Document(text="x"), ImageNode(text="x")], ids=lambda node: type(node).__name__
)
def test_every_kind_of_node_keeps_its_kind(node: BaseNode) -> None:
    carrier = attach_triples(node, [FATHER])
    assert type(carrier) is type(node) and carrier.node_id == node.node_id
    assert read_triples(carrier) == [FATHER]


def test_attaching_replaces_what_was_attached_before() -> None:
    carrier = attach_triples(attach_triples(_make_node(), [FATHER]), [TEAM])
    assert read_triples(carrier) == [TEAM]
    assert carrier.excluded_embed_metadata_keys == ["tags", TRIPLES_KEY]
    assert read_triples(attach_triples(_make_property_graph(FATHER), [TEAM])) == [TEAM]


def test_the_node_itself_stays_as_it_is() -> None:
    node, same = _make_node(), _make_node()
    carrier = attach_triples(node, [FATHER])
    converted = ToPropertyGraph()([carrier])[0]
    for copy in (carrier, converted):
        copy.metadata["title"] = "changed"
        copy.excluded_embed_metadata_keys.append("changed")
        copy.excluded_llm_metadata_keys.append("changed")
    assert node == same and node.to_dict() == same.to_dict()
    assert (carrier.id_, carrier.get_content(), carrier.embedding) == (node.id_, node.text, node.embedding)
    assert carrier.relationships == node.relationships


def test_triples_are_neither_embedded_nor_shown_nor_hide_anything_else() -> None:
    node, carrier = _make_node(), attach_triples(_make_node(), [FATHER])
    for mode in (MetadataMode.EMBED, MetadataMode.LLM):
        assert carrier.get_content(mode) == node.get_content(mode)
        assert "title: Dell Curry" in carrier.get_content(mode)
    assert "father" in carrier.get_content(MetadataMode.ALL)


SLOT = st.text(min_size=1).filter(str.strip)


@given(st.lists(st.builds(Triple, SLOT, SLOT, SLOT), unique=True, max_size=5))
def test_attached_triples_survive_json(triples: list[Triple]) -> None:
    carrier = attach_triples(_make_node(), triples)
    copy = TextNode.from_dict(json.loads(json.dumps(carrier.to_dict())))
    assert read_triples(copy) == triples


def test_property_graph_metadata_is_read_as_objects_and_as_dicts() -> None:
    node = _make_property_graph(FATHER, TEAM, FATHER)
    assert read_triples(node) == [FATHER, TEAM]
    cached = TextNode.from_dict(json.loads(json.dumps(node.to_dict())))
    assert isinstance(cached.metadata[KG_NODES_KEY][0], dict) and isinstance(cached.metadata[KG_RELATIONS_KEY][0], dict)
    assert read_triples(cached) == [FATHER, TEAM]


def test_a_quoted_name_is_the_name_and_not_its_id() -> None:
    rock = Triple('Dwayne "The Rock" Johnson', "starred in", "Moana")
    node = _make_property_graph(rock)
    assert node.metadata[KG_RELATIONS_KEY][0].source_id != rock.subject
    assert read_triples(node) == [rock]


def test_relations_without_entities_are_read_by_their_ids() -> None:
    node = TextNode(text="x", metadata={KG_RELATIONS_KEY: [Relation(label="r", source_id="a", target_id="b")]})
    assert read_triples(node) == [Triple("a", "r", "b")]


def test_both_carriers_are_read_own_first() -> None:
    node = attach_triples(_make_node(), [TEAM])
    node.metadata |= _make_property_graph(FATHER, TEAM).metadata
    assert read_triples(node) == [TEAM, FATHER]


def test_relations_between_chunks_are_no_facts() -> None:
    node, other = _make_node(), TextNode(id_="p2", text="next")
    for kind in (NodeRelationship.PREVIOUS, NodeRelationship.NEXT, NodeRelationship.PARENT):
        node.relationships[kind] = other.as_related_node_info()
    node.relationships[NodeRelationship.CHILD] = [other.as_related_node_info()]
    node.metadata |= _make_property_graph(FATHER).metadata
    (linked,) = ImplicitPathExtractor()([node])
    assert len(linked.metadata[KG_RELATIONS_KEY]) == 1 + 5
    assert read_triples(linked) == [FATHER]


def test_blank_names_and_labels_are_no_facts() -> None:
    node = _make_property_graph(FATHER)
    node.metadata[KG_RELATIONS_KEY] += [
        Relation(label=" ", source_id="a", target_id="b"),
        Relation(label="r", source_id="", target_id="b"),
    ]
    assert read_triples(node) == [FATHER]


@pytest.mark.parametrize(
    "metadata",
    [
        {"nodes": 42, "relations": "mother, father"},
        {"nodes": ["a", 1, None], "relations": ["is kin of", 3, None]},
        {"nodes": {"name": "x"}, "relations": {"label": "x"}},
        {"nodes": [{"name": 5}, {"host": "db1"}], "relations": [{"label": "x"}, {}]},
        {"nodes": [ChunkNode(text="x")], "relations": None},
    ],
)
def test_metadata_of_the_users_own_under_the_property_graphs_keys(metadata: dict[str, Any]) -> None:
    node = TextNode(text="x", metadata=metadata)
    assert read_triples(node) == []
    carrier = attach_triples(node, [FATHER])
    assert read_triples(carrier) == [FATHER]
    assert metadata.items() <= carrier.metadata.items()


@pytest.mark.parametrize(
    "value",
    [
        "a | b | c",
        7,
        {"subject": "a", "predicate": "b"},
        [["a", "b", "c"]],
        ["a"],
        [None],
        [{"subject": "a", "predicate": "b"}],
        [{"subject": "a", "predicate": "b", "object": None}],
        [{"subject": "a", "predicate": "b", "object": 7}],
        [{"subject": "a", "predicate": "b", "object": ["c"]}],
        [{"subject": "a", "predicate": " ", "object": "c"}],
    ],
    ids=str,
)
def test_malformed_triples_are_an_error(value: Any) -> None:
    with pytest.raises(TripleError):
        read_triples(TextNode(id_="p1", text="x", metadata={TRIPLES_KEY: value}))


def test_the_error_names_the_node_and_the_entry() -> None:
    node = TextNode(id_="p1", text="x", metadata={TRIPLES_KEY: [{"subject": "a", "predicate": "b"}]})
    with pytest.raises(TripleError, match=r"'p1'.*found \{'subject': 'a', 'predicate': 'b'\}"):
        read_triples(node)


def test_to_property_graph_swaps_the_carrier() -> None:
    carrier = with_metadata(attach_triples(_make_node(), [FATHER, TEAM]), {EXTRACTION_KEY: {"status": "ok"}})
    (converted,) = ToPropertyGraph()([carrier])
    assert [entity.name for entity in converted.metadata[KG_NODES_KEY]] == [
        "Stephen Curry",
        "Dell Curry",
        "Charlotte Hornets",
    ]
    assert [
        (relation.source_id, relation.label, relation.target_id) for relation in converted.metadata[KG_RELATIONS_KEY]
    ] == [
        ("Stephen Curry", "father", "Dell Curry"),
        ("Dell Curry", "played for", "Charlotte Hornets"),
    ]
    assert not {TRIPLES_KEY, EXTRACTION_KEY} & set(converted.metadata)
    assert read_triples(converted) == [FATHER, TEAM] == read_triples(carrier)
    assert converted.get_content(MetadataMode.EMBED) == _make_node().get_content(MetadataMode.EMBED)


def test_to_property_graph_of_a_node_without_triples() -> None:
    (converted,) = ToPropertyGraph()([_make_node()])
    assert (converted.metadata[KG_NODES_KEY], converted.metadata[KG_RELATIONS_KEY]) == ([], [])


def test_to_property_graph_is_serialised_under_its_name() -> None:
    assert ToPropertyGraph.from_dict(ToPropertyGraph().to_dict()) == ToPropertyGraph()
    assert ToPropertyGraph().to_dict()["class_name"] == "GeARToPropertyGraph"


def test_llamaindex_builds_a_property_graph_of_it() -> None:
    quoted = Triple('Wardell "Dell" Curry', "known as", "Dell Curry")
    first = attach_triples(_make_node(), [FATHER, TEAM])
    second = attach_triples(TextNode(id_="p2", text="No. 30", metadata={"title": "x"}), [quoted, TEAM])
    bare = TextNode(id_="p3", text="nothing")
    store = SimplePropertyGraphStore()
    PropertyGraphIndex(
        nodes=[first, second, bare],
        kg_extractors=[ToPropertyGraph()],
        property_graph_store=store,
        embed_kg_nodes=False,
        embed_model=MockEmbedding(embed_dim=4),
        llm=MockLLM(),
        use_async=False,
    )
    found = {
        (str(one.id), relation.label, str(two.id))
        for one, relation, two in store.get_triplets(entity_names=["Dell Curry"])
    }
    assert found == {
        (triple.subject.replace('"', " "), triple.predicate, triple.object) for triple in (FATHER, TEAM, quoted)
    }
    sources = {
        (one.id, relation.properties["triplet_source_id"])
        for one, relation, _ in store.get_triplets(ids=[FATHER.subject])
    }
    assert sources == {("Stephen Curry", "p1")}
    assert {node.node_id for node in store.get_llama_nodes(["p1", "p2", "p3"])} == {"p1", "p2", "p3"}
    assert read_triples(first) == [FATHER, TEAM]  # indexing took nothing from the nodes it was given


def test_a_user_s_own_nodes_and_parents_stay() -> None:
    """`nodes` and `PARENT` are common words: only LlamaIndex's own values are converted."""
    user_nodes = [{"name": "server-1", "ip": "1"}]
    kept = attach_triples(TextNode(text="x", metadata={"nodes": user_nodes}), [Triple("a", "b", "c")])
    assert kept.metadata["nodes"] == user_nodes
    ann, bob = EntityNode(name="Ann"), EntityNode(name="Bob")
    family = Relation(label="PARENT", source_id=ann.id, target_id=bob.id)
    chunks = Relation(label="PARENT", source_id="chunk-1", target_id="chunk-2")
    node = TextNode(text="x", metadata={"nodes": [ann, bob], "relations": [family, chunks]})
    assert read_triples(node) == [Triple("Ann", "PARENT", "Bob")]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("One\n two", "One two"),
        ("Seven letters", "Seven …"),
        ("Ten letter", "Ten letter"),  # as long as it may be
        ("12345678 0123", "12345678 …"),
        ("A " + "b" * 20, "A bbbbbb …"),  # a word alone would say too little
        ("b" * 20, "bbbbbbbb …"),
        ("愛麗絲夢遊仙境是一本書的名字", "愛麗絲夢遊仙境是 …"),
        ("", ""),
    ],
)
def test_a_text_is_shortened_behind_a_word_or_within_a_long_one(text: str, shown: str) -> None:
    assert shorten(text, 10) == shown


def test_a_passage_of_one_long_word_is_called_by_its_beginning() -> None:
    called = name_passage(TextNode(text="愛" * 900, metadata={"file_name": "a.md"}))
    assert called.startswith("a.md: 愛愛") and called.endswith("愛 …") and len(called) < 70


FEYNMAN = (
    "Richard Feynman, an American theoretical physicist born in New York in the borough of Queens, wrote to his "
    "adviser John Archibald Wheeler every week"
)


@pytest.mark.parametrize(
    ("subject", "predicate", "object_", "length", "shown"),
    [
        ("A", "is  a\nfriend of", "B", 20, "is a friend of"),
        ("Ada", "In 1843, in London, Ada wrote to Babbage about it", "Babbage", 30, "… Ada wrote to Babbage about …"),
        ("Ada", "In 1843, in London, Ada wrote to Babbage about it", "Babbage", 15, "… wrote to …"),
        ("Bo", "In 1843, in London, Ada wrote to Babbage about it", "ada", 24, "In 1843, in London …"),
        ("Babbage", "It was Babbage whom Ada wrote to", "Ada", 15, "… whom Ada …"),
        ("Ada", "It was in 1843 that Ada wrote to him about all of this", "Zed", 24, "wrote to him … of this"),
        ("Zed", "one two three four five six seven eight nine", "B", 30, "one two three … eight nine"),
        ("Ada", "Adam, Ada, and others like Bob", "Bob", 27, "… and others like Bob"),
        ("他", "斯蒂芬" * 10, "她", 13, "斯蒂芬斯蒂 … 芬斯蒂芬"),
    ],
)
def test_what_stands_between_two_names_is_not_cut(
    subject: str, predicate: str, object_: str, length: int, shown: str
) -> None:
    assert shorten_predicate((subject, predicate, object_), length) == shown


def test_a_text_is_not_cut_within_a_name() -> None:
    """Nor backwards; a name that begins in the first half is."""
    owners = "the owners will receive Team Fortress 2 and more"
    assert [shorten(owners, length) for length in (31, 35, 41)] == [
        "the owners will receive …", "the owners will receive …", "the owners will receive Team Fortress 2 …",
    ]  # fmt: skip
    assert shorten("they all will go to Paris, London or Rome", 30) == "they all will go to Paris, …"
    assert shorten("He saw Team Fortress Two Of Nine", 24) == "He saw Team Fortress …"
    line = "It was shown by Team Fortress 2 players that Ada wrote to Bob"
    assert shorten_predicate(("Ada", line, "Bob"), 38) == "… players that Ada wrote to Bob"
    told = "Ada, who has long played the game Half Life Two of late, and who then sold it, met the man Bob"
    assert "Life Two" not in shorten_predicate(("Ada", told, "Bob"), 60).replace("Half Life Two", "")


@pytest.mark.parametrize("length", [40, 60, 110, 150])
def test_the_words_beside_the_names_are_not_cut(length: int) -> None:
    shown = shorten_predicate(("Richard Feynman", FEYNMAN, "John Archibald Wheeler"), length)
    assert "an American" in shown and "his adviser" in shown and len(shown) <= length


def test_the_verb_of_a_link_is_not_cut() -> None:
    slots = ("Yard", f"“{'grease ' * 9}is kept in the crane {'all year ' * 9}” links to", "the crane")
    assert shorten_predicate(slots, 60) == "“grease grease grease grease … grease is kept in” links to"
    assert shorten_predicate(slots, 20) == "links to"
    assert split_link(slots[1])[1] == "links to" and split_link("“is” a") == ("“is” a", "")


def test_a_link_into_a_section_names_it() -> None:
    assert split_link("“See it.” links to “Oil” in") == ("See it.", "links to")
    assert read_section("“See it.” links to “Oil” in") == "Oil"
    for predicate in ("“See it.” links to", "“See “it”.” mentions “Oil” in", "“See it.” links to “Oil”", "is in"):
        assert read_section(predicate) == ""


@given(
    st.lists(st.sampled_from(["a", "the", "Ada", "Bob", "x" * 30, "父亲", "it's,"]), min_size=1),
    st.integers(10, 90),
    st.sampled_from(["", "links to", "says its head, of"]),
)
def test_a_predicate_has_no_more_than_its_length(words: list[str], length: int, verb: str) -> None:
    line = f"“{' '.join(words)}” {verb}" if verb else " ".join(words)
    shown = shorten_predicate(("Ada", line, "Bob"), length)
    assert 0 < len(shown) <= length and shown == " ".join(shown.split()) and (shown == line or len(line) > length)


@given(st.text("aB_ .ſKé", max_size=12), st.text("ab _.ké", max_size=3))
def test_a_name_is_found_as_a_pattern_finds_it(line: str, name: str) -> None:
    pattern = re.escape(" ".join(name.split()))
    matches = re.finditer(rf"(?<!\w){pattern}(?!\w)" if name.isascii() else pattern, line, re.IGNORECASE)
    assert list(_find_name(line, name)) == [match.span() for match in matches]
