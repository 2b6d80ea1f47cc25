"""Links between documents, and their names, as triples: what each kind of link leads to, and what it must not."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from llama_index.core.ingestion import run_transformations
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import BaseNode, Document, NodeRelationship, RelatedNodeInfo, TextNode
from qdrant_client import QdrantClient

from llama_index_gear import (
    GeARTripleExtractor,
    GeARVectorStore,
    LinkTripleExtractor,
    MentionTripleExtractor,
    Triple,
    attach_triples,
    passage_id,
    read_triples,
)
from llama_index_gear.errors import TenantError
from llama_index_gear.extraction import link_extractor as links
from llama_index_gear.extraction.link_extractor import LinkedPassages
from llama_index_gear.nodes import without_links
from llama_index_gear.store.aliases import states_alias
from llama_index_gear.testing import ScriptedLLM, WordEmbedding
from llama_index_gear.tests.growth import assert_linear

TARGETS = {
    "crane.md": ("North Crane", "---\naliases: [Old Lady, 'hoist']\n---\n# North Crane\n\n(of/tall)=\n\nIt is tall.\n"),
    "guide/start.rst": ("First Steps", "# First Steps\n\n(oil)=\n\n## Oil of Bremen\n\nOil it daily.\n"),
    "guide/page two.adoc": ("Second Page", "# Second Page {#two}\n\nMore."),
    "people/nora-blum.md": ("Nora Blum", "Nora builds.\n"),
    "web.html": ("Web Page", "Text of the web."),
}


def make(files: dict[str, tuple[str, str]], **metadata: Any) -> list[BaseNode]:
    """Make a passage of each file: path → title and text."""
    return [
        TextNode(id_=f"{path}-0", text=text, metadata={"title": title, "file": path, **metadata})
        for path, (title, text) in files.items()
    ]


def find_objects(text: str, path: str = "guide/from.md", **metadata: Any) -> list[str]:
    """Return what the links of a text lead to."""
    nodes = make({**TARGETS, path: ("From", text)})
    nodes[-1].metadata |= metadata
    nodes[-2].metadata["url"] = "https://yard.example/web/"
    linked = LinkTripleExtractor()(nodes)
    return [triple.object for triple in read_triples(linked[-1]) if "” links to" in triple.predicate]


@pytest.mark.parametrize(
    ("text", "objects"),
    [
        ("See [it](../crane.md) now.", ["North Crane"]),
        ("See [it](../crane).", ["North Crane"]),
        ("See [it](/crane.html?x=1#none).", ["North Crane"]),
        ("See [it](../../crane/) as a site has it, and [that](oil).", ["North Crane", "First Steps", "Oil of Bremen"]),
        ("See [it](page%20two.adoc) and [bad](page%two%.adoc).", ["Second Page"]),
        ("See [it][c] and [it][].\n\n[c]: ../crane.md\n[it]: start.rst", ["North Crane", "First Steps"]),
        ("See [its oil](start.rst#oil-of-bremen).", ["First Steps", "Oil of Bremen"]),
        ('See <a class="x" href="../crane.md">it</a>.', ["North Crane"]),
        ("See [[nora-blum|her]] and [[crane#Life]] and ![[people/Nora-Blum^a1]].", ["Nora Blum", "North Crane"]),
        ("See [[Old Lady]] or [[HOIST]].", ["North Crane"]),
        ("See {doc}`start` and :doc:`/crane`, {ref}`oil` and :ref:`that <two>`.", None),
        ("See xref:start.rst[it] and xref:oil[that].", ["First Steps", "Oil of Bremen"]),
        ("See [it](oil) and [that](of/tall) and [no](of/all).", ["First Steps", "Oil of Bremen", "North Crane"]),
        ("See https://yard.example/web.", ["Web Page"]),
        ("See <https://yard.example/web/#top> too.", ["Web Page"]),
        ("See [it](https://else.example/crane.md), [this](#two), [up](../../../crane.md), [[nobody]].", []),
        ("```\n[it](../crane.md)\n<a href='../crane.md'>it</a>\n```", []),
        ("See `[it](../crane.md)`.", []),
    ],
)
def test_a_link_leads_to_what_its_document_is_about(text: str, objects: list[str] | None) -> None:
    wanted = ["First Steps", "North Crane", "Oil of Bremen", "Second Page"] if objects is None else objects
    assert list(dict.fromkeys(find_objects(text))) == wanted


def test_links_of_metadata_count_where_their_words_stand() -> None:
    assert find_objects("Ask the tall one.", wikilinks=["crane", "nobody"]) == ["North Crane"]
    assert find_objects("Ask.", links=[["ask", "../crane.md"], ["", "https://yard.example/web"], 3, ["x"]]) == [
        "North Crane",
        "Web Page",
    ]


def test_the_triple_says_where_it_stands_and_what_it_leads_to() -> None:
    text = (
        "# Work\n\nRain fell. Grease is kept [in the crane](crane.md) all year.\n\n## Winch of Kiel\n\nSee [[crane]]."
    )
    nodes = LinkTripleExtractor()(MentionTripleExtractor()(make({**TARGETS, "a.md": ("Yard", text)})))
    first, second = [triple for triple in read_triples(nodes[-1]) if "” links to" in triple.predicate]
    assert first.text == "Yard “Grease is kept in the crane all year.” links to North Crane"
    assert (second.subject, second.object) == ("Winch of Kiel", "North Crane")
    aliases = [triple for triple in read_triples(nodes[0]) if states_alias(triple)]
    assert [(triple.subject, triple.object) for triple in aliases] == [
        ("North Crane", "Old Lady"),
        ("North Crane", "hoist"),
    ]


def test_the_triple_names_the_section_that_a_link_means() -> None:
    """By its heading, without markup; sites leave punctuation out. The title's is the whole document."""
    long = " ".join(["long"] * 20)
    files = {
        "a.md": (
            "A",
            "See [x](b.md#setting-up), [y](b.md#dont-say---oil), {ref}`top`, [z](b.md#none), [[b#Winch of Kiel]].",
        ),
        "b.md": (
            "B",
            "(top)=\n# B\n\n## *Setting* up {#s}\n\n## Don't say “`--oil`”!\n\n## Winch of Kiel\n\nOld.\n\n## " + long,
        ),
        "c.md": ("C", f"See [[b#{long}]]."),
    }
    a, _, c = [read_triples(node) for node in LinkTripleExtractor()(make(files))]
    said = a[0].predicate.partition("” links to")[0]
    assert {(triple.predicate.removeprefix(said), triple.object) for triple in a} == {
        ("” links to “Setting up” in", "B"),
        ('” links to “Don\'t say "--oil"!” in', "B"),
        ("” links to", "B"),
        ("” links to “Winch of Kiel” in", "B"),
        ("” links to", "Winch of Kiel"),
    }
    assert c[0].predicate.endswith(f" links to “{' '.join(['long'] * 12)}” in")


def test_a_footnote_is_no_link() -> None:
    assert find_objects("It is blue.[^1] It is [old][^2].\n\n[^1]: Start here.\n[^2]: crane.md has more.\n") == []


def test_a_document_says_in_another_passage_where_its_links_lead() -> None:
    """Also those of words alone, which are no link without that, nor in code, nor with an address of their own."""
    text = "Ask [her], the [tall\none][c], [x] or [him](none.md); [crane]: no, `[c]` no.\n\n```\n[c]\n```"
    defined = "[her]: people/nora-blum.md\n[C]: crane.md\n[him]: web.html\n[crane]: guide/start.rst"
    files = {"a.md": ("A", text), "a2": ("A", "Ask [her] too."), "a3": ("A", defined), "c.md": ("C", "Ask [her].")}
    nodes = [*make(TARGETS), *make(files)]
    for node in nodes[-4:-1]:
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="a.md")
        node.metadata["file"] = "a.md"
    a, a2, a3, c = [read_triples(node) for node in LinkTripleExtractor()(nodes)[-4:]]
    found = [triple for triple in a if "links to" in triple.predicate]
    assert {triple.predicate.partition(", [x]")[0] for triple in found} == {"“Ask [her], the tall one"}
    assert [triple.object for triple in found] == ["North Crane", "Nora Blum"]
    assert [triple.text for triple in a2] == ["A “Ask [her] too.” links to Nora Blum"]
    assert [triple for triple in (*a3, *c) if "links to" in triple.predicate] == []


def test_of_two_pages_of_one_name_the_nearest_is_meant_or_none() -> None:
    files = {
        "a/plan.md": ("Plan A", "A."),
        "b/plan.md": ("Plan B", "B."),
        "a/deep/x.md": ("X", "See [[plan]]."),
        "y.md": ("Y", "See [[plan]] or [[b/plan]]."),
    }
    x, y = [read_triples(node) for node in LinkTripleExtractor()(make(files))[2:]]
    assert [triple.object for triple in x] == ["Plan A"] and [triple.object for triple in y] == ["Plan B"]


def test_files_of_the_root_letters_of_two_spellings_exact_names_and_code() -> None:
    files = {
        "README.md": ("The Yard", "# The Yard"),
        "caf\u00e9.md": ("Quay Café", "# Quay Café"),
        "API.md": ("Loud", "# Loud"),
        "api.md": ("Quiet", "# Quiet"),
        "run.sh": ("run", "if [[ -f x ]]; then ls; fi"),
        "z.md": ("Zed", "[[README]] is first. [c](cafe%CC%81.md) is near. [one](api.md) and [two](API.md) differ."),
    }
    nodes = make(files)
    linked = LinkedPassages(nodes)
    triples = read_triples(linked.attach(nodes[-1]))
    objects = [triple.object for triple in triples if "” links to" in triple.predicate]
    assert objects == ["The Yard", "Quay Café", "Quiet", "Loud"] and linked.dead == []


def test_a_link_that_most_pages_carry_is_part_of_a_menu() -> None:
    menu = {f"{n}.md": (f"Page {n}", f"[Home](home.md) [Other]({(n + 1) % 9}.md) text") for n in range(9)}
    linked = LinkTripleExtractor()(make({**menu, "home.md": ("Home", "Welcome.")}))
    objects = [{triple.object for triple in read_triples(node)} for node in linked]
    assert objects[:9] == [{f"Page {(n + 1) % 9}"} for n in range(9)]


def test_known_names_are_found_in_any_letter_case_and_common_words_are_none() -> None:
    files = {
        "aiohttp.md": ("Async requests", "It sends things."),
        "shell completion.md": ("Shell completion", "Press tab."),
        "work.md": ("Work", "A page of its own."),
        "skipjack.md": ("Skipjack", "Skipjack uses aiohttp, not aiohttp2.\n\n```\naiohttp in code\n```"),
        "tab.md": ("Tab", "On sHell\ncompletion we write elsewhere."),
        **{f"n{n}.md": (f"Note {n}", "they work here") for n in range(7)},
    }
    nodes = {node.node_id: node for node in LinkTripleExtractor()(MentionTripleExtractor()(make(files)))}
    mentioned = {
        id_: [triple.object for triple in read_triples(node) if triple.predicate.endswith("mentions")]
        for id_, node in nodes.items()
    }
    assert {id_: names for id_, names in mentioned.items() if names} == {
        "skipjack.md-0": ["Async requests"],
        "tab.md-0": ["Shell completion"],
        "shell completion.md-0": ["Tab"],
    }


def test_links_are_put_behind_other_triples_and_in_place_of_earlier_ones() -> None:
    nodes = MentionTripleExtractor()(make({**TARGETS, "a.md": ("Yard", "Nora Kern has [it](crane.md).")}))
    extractor = LinkTripleExtractor()
    once = extractor(nodes)
    assert read_triples(nodes[-1]) == read_triples(once[-1])[:2] == without_links(read_triples(once[-1]))
    assert len(read_triples(once[-1])) == 3
    assert all(one is other for one, other in zip(extractor(once), once, strict=True))
    gone = extractor([node for node in once if node.node_id != "crane.md-0"])
    assert read_triples(gone[-1]) == read_triples(nodes[-1])
    limited = LinkTripleExtractor(max_triples_per_passage=1)(
        make({**TARGETS, "a.md": ("A", "[b](crane.md) [c](web.html)")})
    )
    assert [triple.object for triple in read_triples(limited[-1])] == ["North Crane"]
    assert LinkTripleExtractor.from_dict(extractor.to_dict()) == extractor


def test_a_passage_that_links_to_a_page_does_not_mention_it_too() -> None:
    text = "Nora Blum builds it. See [her](people/nora-blum.md), or North Crane."
    linked = LinkTripleExtractor()(make({**TARGETS, "a.md": ("Yard", text)}))
    assert [triple.text for triple in read_triples(linked[-1])] == [
        "Yard “See her, or North Crane.” links to Nora Blum",
        "Yard “See her, or North Crane.” mentions North Crane",
    ]


def test_passages_of_one_id_stay_apart() -> None:
    nodes = make({"b.md": ("Bob", "x"), "a.md": ("A", "See [[Bob]].")})
    nodes += [nodes[1].model_copy(update={"text": "Other words."})]
    assert [node.get_content() for node in LinkTripleExtractor()(nodes)] == ["x", "See [[Bob]].", "Other words."]


def test_no_link_leads_to_another_tenant() -> None:
    one = make({"a.md": ("A", "See [b](b.md)."), "b.md": ("B of one", "x")}, tenant="one")
    two = make({"a.md": ("A", "See [b](b.md) and [c](c.md)."), "b.md": ("B of two", "x")}, tenant="two")
    two = [node.model_copy(update={"id_": f"two-{node.node_id}"}) for node in two]
    linked = LinkTripleExtractor(tenant_key="tenant")([*one, *two, *make({"c.md": ("C", "x")}, tenant="one")])
    assert [[triple.object for triple in read_triples(node)] for node in linked] == [
        ["B of one"], [], ["B of two"], [], [],
    ]  # fmt: skip


def test_links_lead_to_documents_of_the_same_groups_alone() -> None:
    files = {"a.md": ("A", "See [b](b.md)."), "b.md": ("B", "x")}
    for other, number in ((["staff", "board"], 1), (["staff"], 0), ("staff", 0), (None, 0)):
        nodes = make(files, groups=["staff", "board"])
        nodes[1].metadata["groups"] = other
        assert len(read_triples(LinkTripleExtractor(tenant_key="groups")(nodes)[0])) == number


def test_links_of_a_tenants_store_stay_within_the_tenant() -> None:
    """One that another tenant's document got in the same pipeline is taken back; the whole store is not asked for."""
    store = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=WordEmbedding(), tenant_field="of")
    nodes = make({"a.md": ("A", "See [b](b.md).")}, of="one") + make({"b.md": ("Hidden", "x")}, of="two")
    linked = run_transformations(nodes, [LinkTripleExtractor(), WordEmbedding()])
    store.add(list(linked))
    one, two = store.for_tenant("one"), store.for_tenant("two")
    assert "Hidden" in {triple.object for triple in read_triples(one.get_nodes()[0])}
    with pytest.raises(TenantError, match="for_tenant"):
        LinkTripleExtractor().update(store)
    assert (LinkTripleExtractor().update(one), LinkTripleExtractor().update(two)) == (1, 0)
    assert [read_triples(node) for node in (*one.get_nodes(), *two.get_nodes())] == [[], []]


HOSTILE: dict[str, Callable[[int], str]] = {
    "long": lambda size: "[x](" + "a/" * 40 * size + "b.md)",
    "thousands": lambda size: " ".join(f"[x{n}](t{n % 7}.md)" for n in range(size)),
    "percent": lambda size: "[x](%E0%A4%A.md) [y](%%%.md) [z](%00.md) [w](" + "%" * size + ")",
    "up": lambda size: "[x](" + "../" * size + "etc/passwd)",
    "tags": lambda size: "<a " * 4 * size + "<a href='" * size,
    "brackets": lambda size: "[[" * 4 * size + "]]" * 4 * size,
    "headings": lambda size: "# " + " " * 10 * size + "x\n" + "#" * 10 * size + "\n(" + "a" * 10 * size,
    "front": lambda size: "---\naliases:\n" + "  - x\n" * 4 * size + "---\n",
    "address": lambda size: "https://" + "a" * 20 * size,
    "roles": lambda size: "{ref}`" * 4 * size + ":doc:`x` " * size,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_links_are_bounded(name: str) -> None:
    files = {f"t{n}.md": (f"Target {n}", "text") for n in range(7)}

    def write(size: int) -> list[BaseNode]:
        text = HOSTILE[name](size)
        nodes = make({**files, "x.md": ("X", text), "y.md": ("Y", f"---\nname: y\n---\n{text}")})
        nodes[0].metadata |= {"url": "https://t.example", "links": [["a" * 10 * size, text]] * 100}
        return nodes

    assert_linear(LinkTripleExtractor(), write, 5_000)
    assert max(len(read_triples(node)) for node in LinkTripleExtractor()(write(5_000))) <= 64


def test_links_depend_on_the_passages_alone_whatever_their_order_and_what_they_linked_to_before() -> None:
    kinds = [
        "[x]({}.md)",
        "[[{}]]",
        "[x](../{}.md#part)",
        "{{ref}}`{}`",
        "({})=",
        "{}",
        "# {}",
        "[x][{}]",
        "[{}]: ada.md",
    ]
    names = ["ada", "bob", "cid", "dee", "eve fox"]
    for seed in range(60):
        draw = random.Random(seed)

        def write(draw: random.Random = draw) -> str:
            return "\n\n".join(draw.choice(kinds).format(draw.choice(names)) for _ in range(draw.randrange(1, 9)))

        paths = [f"{part}{name}.md" for part in ("", "sub/", "far/off/") for name in names]
        before, after = (
            {path: (draw.choice(names).title(), write()) for path in draw.sample(paths, draw.randrange(2, 9))}
            for _ in range(2)
        )
        stale = {node.node_id: read_triples(node) for node in LinkTripleExtractor()(make(before))}
        fresh = LinkTripleExtractor()(make(after))
        mixed = [attach_triples(node, stale.get(node.node_id, [])) for node in make(after)]
        draw.shuffle(mixed)
        wanted = {node.node_id: read_triples(node) for node in fresh}
        assert {node.node_id: read_triples(node) for node in LinkTripleExtractor()(mixed)} == wanted, seed


def split(texts: dict[str, str], tenant: str) -> list[BaseNode]:
    documents = [
        Document(id_=f"{tenant}/{path}", text=text, metadata={"title": path.split(".")[0], "file": path, "of": tenant})
        for path, text in texts.items()
    ]
    splitter = SentenceSplitter(chunk_size=60, chunk_overlap=0, id_func=passage_id)
    return list(run_transformations(documents, [splitter, MentionTripleExtractor(), WordEmbedding()]))


def read(store: GeARVectorStore) -> dict[str, set[Any]]:
    return {node.node_id: set(read_triples(node)) for node in store.get_nodes()}


@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_history_of_two_tenants_the_end_equals_a_fresh_store(seed: int) -> None:
    draw = random.Random(seed)
    names = [f"{name}.md" for name in ("ada", "bob", "cid", "dee", "eve")]

    def write() -> str:
        links = (draw.choice(["[x]({}.md)", "[[{}]]", "{}"]).format(draw.choice(names)[:3]) for _ in range(4))
        return "\n\n".join(f"Some words of Nora Blum lead to {link} here, and go on." for link in links)

    with GeARVectorStore(client=QdrantClient(":memory:"), embed_model=WordEmbedding(), tenant_field="of") as store:
        files: dict[str, dict[str, str]] = {"one": {}, "two": {}}
        for _ in range(8):
            tenant = draw.choice(["one", "two"])
            own, mine = files[tenant], store.for_tenant(tenant)
            name = draw.choice(names)
            if name in own and draw.random() < 0.5:
                del own[name]
                mine.delete(f"{tenant}/{name}")
            else:
                own[name] = write()
                mine.delete(f"{tenant}/{name}")
                mine.add(split({name: own[name]}, tenant))
            LinkTripleExtractor().update(mine)
            assert LinkTripleExtractor().update(mine) == 0
        for tenant, own in files.items():
            fresh = LinkTripleExtractor()(split(own, tenant))
            assert read(store.for_tenant(tenant)) == {node.node_id: set(read_triples(node)) for node in fresh}
        assert store.check().ok


def answer(prompt: str) -> str:
    return json.dumps({"entities": [], "triples": [["Ada", "oils", "the winch"]]})


def refuse(prompt: str) -> str:
    raise ValueError("the model is ill")


def test_facts_that_were_paid_for_stay_beside_new_links_and_links_beside_facts_that_are_retried() -> None:
    def extract(model: Any, text: str) -> dict[str, list[str]]:
        nodes = [TextNode(id_=name, text=text, metadata={"title": name}) for name in ("Bob", "Cid")]
        nodes += [TextNode(id_="Ada", text="See [[Bob]].", metadata={"title": "Ada"})]
        extractors = [GeARTripleExtractor(ScriptedLLM(otherwise=model), max_retries=0), LinkTripleExtractor()]
        store.add(run_transformations(nodes, [*extractors, WordEmbedding()]))
        return read_objects()

    def read_objects() -> dict[str, list[str]]:
        return {node.node_id: [triple.object for triple in read_triples(node)] for node in store.get_nodes()}

    with GeARVectorStore(client=QdrantClient(":memory:"), embed_model=WordEmbedding()) as store:
        assert extract(answer, "Words.")["Ada"] == ["the winch", "Bob"]
        found = extract(refuse, "Words of [[Cid]].")
        assert found == {"Ada": ["the winch", "Bob"], "Bob": ["Cid"], "Cid": []}
        assert not GeARTripleExtractor(ScriptedLLM(otherwise=answer)).retry_failed(store).failures
        assert read_objects() == {"Ada": ["the winch", "Bob"], "Bob": ["the winch", "Cid"], "Cid": ["the winch"]}


@pytest.mark.parametrize("is_async", [False, True])
def test_an_update_leaves_what_another_writer_changed_since_it_read(
    is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Beside:
        """The store, beside which another writer changes a passage as soon as all are read."""

        def get_nodes(self, node_ids: list[str] | None = None, *, with_embeddings: bool = True) -> list[BaseNode]:
            assert not is_async
            return self._go_on(store.get_nodes(node_ids, with_embeddings=with_embeddings), node_ids)

        async def aget_nodes(
            self, node_ids: list[str] | None = None, *, with_embeddings: bool = True
        ) -> list[BaseNode]:
            return self._go_on(await store.aget_nodes(node_ids, with_embeddings=with_embeddings), node_ids)

        def _go_on(self, found: list[BaseNode], node_ids: list[str] | None) -> list[BaseNode]:
            if node_ids is None:
                store.add([attach_triples(node, [theirs]) for node in store.get_nodes(["a.md-0"])])
            return found

        def add(self, nodes: Sequence[BaseNode], *, if_unchanged_since: Sequence[BaseNode]) -> list[str]:
            assert not is_async
            return store.add(nodes, if_unchanged_since=if_unchanged_since)

        async def async_add(self, nodes: Sequence[BaseNode], *, if_unchanged_since: Sequence[BaseNode]) -> list[str]:
            return await store.async_add(nodes, if_unchanged_since=if_unchanged_since)

    class Watched(LinkedPassages):
        def __init__(self, *arguments: Any) -> None:
            is_of_this_thread.append(threading.current_thread() is threading.main_thread())
            super().__init__(*arguments)

    is_of_this_thread: list[bool] = []
    monkeypatch.setattr(links, "LinkedPassages", Watched)
    theirs = Triple("Their", "own", "fact")
    with GeARVectorStore(client=QdrantClient(":memory:"), embed_model=WordEmbedding()) as store:
        files = {"a.md": ("A", "See [[b]]."), "b.md": ("B", "x"), "c.md": ("C", "See [[b]].")}
        store.add(WordEmbedding()(make(files)))
        extractor = LinkTripleExtractor()
        written = asyncio.run(extractor.aupdate(Beside())) if is_async else extractor.update(Beside())
        assert written == 1 and is_of_this_thread == [not is_async]
        assert {id_: len(triples) for id_, triples in read(store).items()} == {"a.md-0": 1, "b.md-0": 0, "c.md-0": 1}
        assert read(store)["a.md-0"] == {theirs}


@pytest.mark.parametrize("is_async", [False, True])
def test_the_links_of_a_store_are_checked_by_tenant(is_async: bool) -> None:
    one = make({"a.md": ("A", "See [b](b.md), [c](c.md) and [[gone]]."), "b.md": ("B", "x")}, of="one")
    two = [node.model_copy(update={"id_": f"two-{node.node_id}"}) for node in make({"c.md": ("C", "x")}, of="two")]
    with GeARVectorStore(client=QdrantClient(":memory:"), embed_model=WordEmbedding()) as store:
        store.add(WordEmbedding()([*one, *two]))
        before = read(store)
        for extractor, number, dead in (
            (LinkTripleExtractor(), 2, ["gone"]),
            (LinkTripleExtractor(tenant_key="of"), 1, ["c.md", "gone"]),
        ):
            report = asyncio.run(extractor.acheck(store)) if is_async else extractor.check(store)
            assert report.number == number and sorted(link.target for link in report.dead) == dead
            assert {(link.node_id, link.path) for link in report.dead} == {("a.md-0", "a.md")}
        assert read(store) == before


def test_what_is_linked_counts_each_link_once_and_names_those_that_lead_nowhere() -> None:
    """Roles of code lead to no document, nor do those with another project's name; escaped HTML is text."""
    text = (
        "See [b](b.md), [c](c.md), {doc}`d`, {ref}`e`, {ref}`f:g`, {doc}`it <h:i>`, {meth}`m <Q.m>`, :attr:`n <Q.n>`. "
        r"Write \<a href='o.md'\>. Also <a href='p.md'>p</a>."
    )
    linked = LinkedPassages(make({"a.md": ("A", text), "b.md": ("B", "x")}))
    assert linked.number == 1 and sorted(link.target for link in linked.dead) == ["c.md", "d", "e", "p.md"]
