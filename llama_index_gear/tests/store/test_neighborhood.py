"""The page of a store's graph: what it holds, what it leaves out, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from qdrant_client import QdrantClient

from llama_index_gear.errors import ArgumentError, TenantError
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import passage

EMBED = WordEmbedding(16)
Facts = Sequence[tuple[str, str, str]]


def make_store(passages: dict[str, Facts], **arguments: Any) -> GeARVectorStore:
    store = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=EMBED, **arguments)
    store.add([passage(name, f"Text of {name}", facts, embed_model=EMBED) for name, facts in passages.items()])
    return store


def read_data(file: Path) -> Any:
    (data,) = re.findall(r'<script id="data" type="application/json">(.*)</script>', file.read_text("utf-8"))
    return json.loads(data)


def read_facts(file: Path) -> dict[tuple[str, str, str], list[str]]:
    """Return the facts of a page, each with the titles of its passages."""
    data = read_data(file)
    names = [entity["name"] for entity in data["entities"]]
    return {
        (names[subject], predicate, names[object_].replace("max born", "Max Born")): [
            data["passages"][place]["title"] for place in sorted(stated, key=lambda at: data["passages"][at]["title"])
        ]
        for subject, predicate, object_, stated, _ in data["facts"]
    }


FAMILY: dict[str, Facts] = {
    "a": [("Oppenheimer", "studied under", "Max Born")],
    "b": [("Newton-John", "granddaughter of", "Max Born"), ("Newton-John", "born in", "Cambridge")],
    "c": [("Oppenheimer", "studied under", "max born"), ("Trinity College", "lies in", "Cambridge")],
    "d": [("Lego", "makes", "bricks")],
}


@pytest.mark.parametrize("is_async", [False, True])
def test_it_holds_an_entity_its_neighbors_and_their_passages(tmp_path: Path, is_async: bool) -> None:
    store = make_store(FAMILY)
    path = tmp_path / "graph.html"
    written = asyncio.run(store.ato_html(path, "MAX BORN!")) if is_async else store.to_html(path, "MAX BORN!")
    assert written == path
    assert read_facts(path) == {
        ("Oppenheimer", "studied under", "Max Born"): ["Text of a", "Text of c"],  # one fact, stated twice
        ("Newton-John", "granddaughter of", "Max Born"): ["Text of b"],
        ("Newton-John", "born in", "Cambridge"): ["Text of b"],
        ("Trinity College", "lies in", "Cambridge"): ["Text of c"],
    }
    data = read_data(path)
    assert data["entities"][data["start"]]["name"].lower() == "max born"
    assert all(entity["whole"] for entity in data["entities"])
    assert "5 triples, 5 names and 3 passages: all that surrounds " in path.read_text("utf-8")
    assert {(entry["title"], entry["text"]) for entry in data["passages"]} == {
        (f"Text of {name}", f"Text of {name}") for name in "abc"
    }


def test_it_ends_where_its_caller_says_the_nearest_first(tmp_path: Path) -> None:
    hub = [("Hub", "knows", f"Name {number}") for number in range(6)]
    chain = [(f"Name {number}", "knows", f"Far {number}-{at}") for number in range(6) for at in range(3)]
    store = make_store({"hub": hub, "chain": chain, "on": [("Far 0-0", "knows", "Farther")]})
    path = tmp_path / "graph.html"
    for max_triples, near, far in ((4, 4, 0), (12, 6, 6), (24, 6, 18), (1000, 6, 18)):
        facts = read_facts(store.to_html(path, "Hub", max_triples=max_triples))
        around = [fact[0] for fact in facts if fact[0].startswith("Name")]
        assert (sum(fact[0] == "Hub" for fact in facts), len(around)) == (near, far)
        assert len(set(around)) == min(far, 6)  # each name of a ring has its share
        whole = {entity["name"] for entity in read_data(path)["entities"] if entity["whole"]}
        assert ("Hub" in whole) == (near == 6) and ("Name 0" in whole) == (far == 18)
        assert ("a part of all that surrounds " in path.read_text("utf-8")) == (max_triples < 1000)
        assert any(fact[2] == "Farther" for fact in facts) == (max_triples == 1000)


def test_filters_and_tenants_bind_it(tmp_path: Path) -> None:
    store = make_store({}, tenant_field="who")
    for who in ("ann", "bob"):
        node = passage(who, f"Secret of {who}", [("Ada", "knows", f"friend of {who}")])
        node.metadata["year"] = len(who) if who == "ann" else 4
        store.for_tenant(who).add(EMBED([node]))
    path = tmp_path / "graph.html"
    store.for_tenant("ann").to_html(path, "Ada")
    assert "of ann" in path.read_text("utf-8") and "bob" not in path.read_text("utf-8")
    with pytest.raises(ArgumentError) as refused:
        store.for_tenant("ann").to_html(path, "friend of bo")
    assert "bob" not in str(refused.value) and "'friend of ann'" in str(refused.value)
    with pytest.raises(TenantError):
        store.to_html(path, "Ada")
    wrong = MetadataFilters(filters=[MetadataFilter(key="year", value=4)])
    with pytest.raises(ArgumentError, match="there are none"):
        store.for_tenant("ann").to_html(path, "Ada", filters=wrong)


def test_linked_names_are_walked(tmp_path: Path) -> None:
    store = make_store({"a": [("U.S.", "has", "states")], "b": [("United States", "borders", "Canada")]})
    store.link_aliases([("U.S.", "United States")])
    path = store.to_html(tmp_path / "graph.html", "u s")
    assert {fact[0] for fact in read_facts(path)} == {"U.S.", "United States"}
    data = read_data(path)
    same = {entity["name"]: [data["entities"][n]["name"] for n in entity["same"]] for entity in data["entities"]}
    assert (same["U.S."], same["United States"], same["Canada"]) == (["United States"], ["U.S."], [])


def test_an_unknown_name_is_refused_with_names_like_it(tmp_path: Path) -> None:
    store = make_store(FAMILY)
    path = tmp_path / "graph.html"
    for name, near in {
        "Max Bron": "near it are 'Max Born'",
        "Trinity": "near it are 'Trinity College'",
        "Newton John, Olivia": "near it are 'Newton-John'",
        "xyz": "none is near it",
    }.items():
        with pytest.raises(ArgumentError, match=f"(?i)no triple names the entity '{name}': {near}"):
            store.to_html(path, name)
    with pytest.raises(ArgumentError, match="entity is empty"):
        store.to_html(path, " ")
    with pytest.raises(ArgumentError, match="no triple names the entity 'Ada': there are none"):
        GeARVectorStore(client=QdrantClient(":memory:"), embed_model=EMBED).to_html(path, "Ada")
    assert not path.exists()


def test_links_are_told_from_facts(tmp_path: Path) -> None:
    said = "“See the crane.” links to"
    store = make_store({"a": [("Yard", said, "Crane"), ("Yard", "has", "Crane"), ("Yard", "“x” mentions", "Oil")]})
    data = read_data(store.to_html(tmp_path / "graph.html", "Yard"))
    assert {(fact[1], fact[4]) for fact in data["facts"]} == {
        (said, "links to"),
        ("has", ""),
        ("“x” mentions", "mentions"),
    }


def test_text_stays_data(tmp_path: Path) -> None:
    """The words of passages and triples cannot leave the script element that holds them, nor the title."""
    hostile = "</script><script>alert(1)</script><!-- $title {x} \u202e"
    path = make_store({"p": [(hostile, hostile, "Bob")]}).to_html(tmp_path / "graph.html", hostile)
    html = path.read_text("utf-8")
    assert (html.count("<script"), html.count("</script"), html.count("<!--")) == (2, 2, 0)
    assert "\u202e" not in html and "&lt;/script&gt;" in html
    assert not re.search(r"src\s*=|url\(|@import|https?:|innerHTML", html) and "default-src 'none'" in html
    assert hostile.replace("\u202e", "\N{REPLACEMENT CHARACTER}") in {
        entity["name"] for entity in read_data(path)["entities"]
    }


def test_a_graph_of_one_triple_is_counted_so(tmp_path: Path) -> None:
    path = make_store({"a": [("Ada", "knows", "Bob")]}).to_html(tmp_path / "graph.html", "Ada")
    assert "1 triple, 2 names and 1 passage: all that surrounds Ada in the store." in path.read_text("utf-8")
