"""GeAR over an external graph, sync and async: searches, prompts, links, dropped links, gist and ranking."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.tools import QueryEngineTool

from llama_index_gear import (
    ExternalGeARRetriever,
    ExternalTripleStore,
    GeARQueryEngine,
    GeARVectorStore,
    SyncGERetriever,
    Triple,
)
from llama_index_gear.expansion.alignment import shared_name
from llama_index_gear.retrievers.paper_gear import PaperGeARRetriever
from llama_index_gear.testing import ScriptedLLM, WordEmbedding
from llama_index_gear.tests.asking import MODES, fill_store
from llama_index_gear.tests.store_contract import passage
from llama_index_gear.trace.trace import Trace
from llama_index_gear.trace.trace_page import show, to_html
from llama_index_gear.triple import GraphTriple

Slots = list[str]

QUESTION = "Which river flows past the city where the director of Jaws was born?"
WHERE = "Where was Steven Spielberg born?"
JAWS = ["Jaws", "directed by", "Steven Spielberg"]
PASSAGES = {
    "jaws": "Jaws is a shark film directed by Steven Spielberg.",
    "spielberg": "Steven Spielberg is a film director; his place of birth is far from the sea.",
    "cincinnati": "Cincinnati is a city in the state of Ohio, the birthplace of film makers.",
    "river": "The Ohio River flows past Cincinnati and other cities.",
    "milk": "Cheese is made of milk.",
}
GRAPH = [
    GraphTriple(Triple("Jaws", "director", "Steven Spielberg"), ("Q1", "Q2")),
    GraphTriple(Triple("Steven Spielberg", "place of birth", "Cincinnati"), ("Q2", "Q3")),
    GraphTriple(Triple("Cincinnati", "located next to body of water", "Ohio River"), ("Q3", "Q4")),
    GraphTriple(Triple("Pacific oyster", "described by source", "a shark handbook"), ("Q5", "Q6")),
]
# What the base retriever finds; the graph has to find the rest.
FOUND: dict[str, list[str]] = {QUESTION: ["jaws", "milk"], WHERE: ["spielberg"]}

Mode = str


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeARVectorStore]:
    yield from fill_store(
        tmp_path_factory.mktemp("store"),
        [
            passage(name, text, metadata={"kind": "food" if name == "milk" else "film"})
            for name, text in PASSAGES.items()
        ],
        embed_triples=False,
    )


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExternalTripleStore]:
    folder = tmp_path_factory.mktemp("graph")
    graph = ExternalTripleStore.from_path(folder, embed_model=WordEmbedding())
    graph.load(GRAPH)
    yield graph
    graph.close()


class Told(BaseRetriever):
    """A base retriever that returns the passages given for a query."""

    def __init__(self, found: Mapping[str, Sequence[str]] = FOUND) -> None:
        super().__init__()
        self.found = found
        self.asked: list[str] = []

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.asked.append(query_bundle.query_str)
        names = self.found.get(query_bundle.query_str, [])
        return [NodeWithScore(node=TextNode(id_=name, text=PASSAGES[name]), score=1.0) for name in names]


def write_facts(*slots: Slots) -> str:
    return json.dumps({"triples": slots})


def ask_next(query: str) -> str:
    return json.dumps({"sufficient": False, "query": query})


BORN = ["Steven Spielberg", "born in", "Cincinnati"]
ENOUGH = json.dumps({"sufficient": True})
READ, DECIDE, RANK = "read", "decide", "rank"


async def retrieve(mode: Mode, retriever: ExternalGeARRetriever, question: str = QUESTION) -> tuple[list[str], Trace]:
    if mode == "sync":
        found, trace = retriever.retrieve_with_trace(question)
    else:
        found, trace = await retriever.aretrieve_with_trace(question)
    return [node.node.node_id for node in found], trace


def list_purposes(trace: Trace) -> list[str]:
    return [call.purpose for call in trace.calls]


@MODES
async def test_two_steps(store: GeARVectorStore, graph: ExternalTripleStore, mode: Mode) -> None:
    """The first step expands nothing; in the second the graph leads to passages that no search found."""
    llm = ScriptedLLM([write_facts(JAWS), ask_next(WHERE), write_facts(BORN), "[4] > [1]"])
    retriever = ExternalGeARRetriever(SyncGERetriever(store, Told(), llm=llm, graph=graph))
    found, trace = await retrieve(mode, retriever)
    assert llm.remaining == 0 and list_purposes(trace) == [READ, DECIDE, READ, RANK]
    one, two = trace.steps
    assert (one.query, one.base, one.passages, one.gist) == (QUESTION, ["jaws", "milk"], ["jaws", "milk"], [JAWS])
    assert (one.linked, one.beams, one.ranked, one.answerable, one.next_query) == ([], [], None, False, WHERE)
    assert (two.query, two.base, two.proximal, two.gist) == (WHERE, ["spielberg"], [BORN], [BORN])
    assert [(link.triple, link.passage_id) for link in two.linked] == [
        (["Steven Spielberg", "place of birth", "Cincinnati"], "spielberg")
    ]
    chains = {tuple(beam.chain[-1]): beam.passage_ids for beam in two.beams}
    assert chains[("Cincinnati", "located next to body of water", "Ohio River")] == ["spielberg", "river"]
    assert chains[("Jaws", "director", "Steven Spielberg")] == ["spielberg", "jaws"]
    # RRF(graph, base): spielberg 1/61 + 1/61; then the second triples' passages in beam order.
    assert two.passages[0] == "spielberg" and set(two.passages) == {"spielberg", "river", "jaws"}
    # Remembered, fused over both steps: jaws 1/61 + …, spielberg 1/61, then the rest; the filter sees these.
    shown = ["jaws", "spielberg", *(["river", "milk"] if two.passages[1] == "river" else ["milk", "river"])]
    ranked = [shown[3], shown[0]]
    assert (two.ranked, found, trace.stopped) == (ranked, ranked, "max_steps")
    assert [source.ranks["filter"] for source in trace.passages] == [1, 2]
    assert [source.score for source in trace.passages] == pytest.approx([1 / 61, 1 / 62])
    assert trace.gist == [JAWS, BORN]


@MODES
async def test_each_call_is_shown_what_it_is_about(
    store: GeARVectorStore, graph: ExternalTripleStore, mode: Mode
) -> None:
    llm = ScriptedLLM([write_facts(JAWS), ask_next(WHERE), write_facts(BORN), "none"])
    await retrieve(mode, ExternalGeARRetriever(SyncGERetriever(store, Told(), llm=llm, graph=graph)))
    first, decision, second, ranking = llm.history
    assert QUESTION in first and "[1] Jaws is a shark film" in first
    assert f"Question: {QUESTION}" in decision and f"1. {QUESTION}" in decision and "- Jaws directed by" in decision
    assert f"Question: {WHERE}" in second and "[1] Steven Spielberg is a film director" in second  # Eq. 2: its query
    assert f"Question: {QUESTION}" in ranking and "- Steven Spielberg born in Cincinnati" in ranking
    assert "[1] Jaws is a shark film" in ranking and "Ohio River" in ranking


@MODES
async def test_facts_that_suffice_end_the_search(
    store: GeARVectorStore, graph: ExternalTripleStore, mode: Mode
) -> None:
    llm = ScriptedLLM([write_facts(JAWS), ENOUGH, "[1]"])
    found, trace = await retrieve(mode, ExternalGeARRetriever(SyncGERetriever(store, Told(), llm=llm, graph=graph)))
    assert (found, trace.stopped, trace.steps[0].answerable, llm.remaining) == (["jaws"], "sufficient", True, 0)


@MODES
async def test_replies_that_cannot_be_read(store: GeARVectorStore, graph: ExternalTripleStore, mode: Mode) -> None:
    """An unreadable ranking leaves nothing out; an unreadable decision ends the search."""
    llm = ScriptedLLM(["?", "?", "?", "?", "?", "?"])
    found, trace = await retrieve(mode, ExternalGeARRetriever(SyncGERetriever(store, Told(), llm=llm, graph=graph)))
    assert (found, trace.stopped, llm.remaining) == (["jaws", "milk"], "no further query", 0)
    assert [
        word in " ".join(trace.steps[0].problems) for word in ("reading", "search ends", "no passage was left out")
    ] == [True] * 3
    assert list_purposes(trace) == [READ, READ, DECIDE, DECIDE, RANK, RANK] and trace.steps[0].ranked is None


@MODES
async def test_none_is_an_answer(store: GeARVectorStore, graph: ExternalTripleStore, mode: Mode) -> None:
    llm = ScriptedLLM([write_facts(JAWS), ENOUGH, "None."])
    found, trace = await retrieve(mode, ExternalGeARRetriever(SyncGERetriever(store, Told(), llm=llm, graph=graph)))
    assert (found, trace.passages, trace.steps[0].ranked) == ([], [], [])


@MODES
async def test_no_filter_fuses_all_steps(store: GeARVectorStore, graph: ExternalTripleStore, mode: Mode) -> None:
    llm = ScriptedLLM([write_facts(JAWS), ask_next(WHERE), write_facts(BORN)])
    retriever = ExternalGeARRetriever(SyncGERetriever(store, Told(), llm=llm, graph=graph), rank_top_k=None)
    found, trace = await retrieve(mode, retriever)
    assert llm.remaining == 0 and set(found) == {"jaws", "spielberg", "river", "milk"}
    ranks = {source.passage_id: source.ranks for source in trace.passages}
    for source in trace.passages:
        assert source.score == pytest.approx(sum(1 / (60 + rank) for rank in ranks[source.passage_id].values()))
    chain = {source.passage_id: source.chain for source in trace.passages}["river"]
    assert chain == [
        ["Steven Spielberg", "place of birth", "Cincinnati"],
        ["Cincinnati", "located next to body of water", "Ohio River"],
    ]


@MODES
async def test_the_filter_sees_as_many_passages_as_asked_for(
    store: GeARVectorStore, graph: ExternalTripleStore, mode: Mode
) -> None:
    llm = ScriptedLLM([write_facts(JAWS), ENOUGH, "[1] > [2]"])
    found, _ = await retrieve(
        mode, ExternalGeARRetriever(SyncGERetriever(store, Told(), llm=llm, graph=graph), rank_top_k=1)
    )
    assert found == ["jaws"] and "[2]" not in llm.history[-1].split("#####")[1]


@MODES
async def test_links_to_something_else_are_dropped_and_shown(
    store: GeARVectorStore, graph: ExternalTripleStore, mode: Mode
) -> None:
    """A noted geoduck does not become an oyster (Millions of GeAR-s, Table 2)."""
    geoduck = ["Pacific geoduck", "described by", "shark handbook for divers of all ages and other readers"]
    checked = ExternalGeARRetriever(
        SyncGERetriever(store, Told(), llm=ScriptedLLM([write_facts(geoduck)]), graph=graph),
        max_steps=1,
        rank_top_k=None,
    )
    found, trace = await retrieve(mode, checked)
    (step,) = trace.steps
    assert [(link.fact, link.triple[0]) for link in step.misaligned] == [(geoduck, "Pacific oyster")]
    assert step.misaligned[0].shared <= 0.5 and (step.linked, step.beams) == ([], [])
    assert step.fallback == "no linked triple is about the same: no expansion" and found == ["jaws", "milk"]
    assert "Pacific oyster" in to_html(trace) and Trace.model_validate_json(trace.model_dump_json()) == trace
    show(trace)
    unchecked = ExternalGeARRetriever(
        SyncGERetriever(store, Told(), llm=ScriptedLLM([write_facts(geoduck)]), check_alignment=False, graph=graph),
        max_steps=1,
        rank_top_k=None,
    )
    _, trace = await retrieve(mode, unchecked)
    assert trace.steps[0].misaligned == [] and [link.triple[0] for link in trace.steps[0].linked] == ["Pacific oyster"]


@pytest.mark.parametrize(
    ("fact", "linked", "shared"),
    [
        (("Pacific geoduck", "is", "clam"), ("Pacific oyster", "is", "mollusc"), 0.5),
        (("Dell Curry", "plays for", "Hornets"), ("Curry", "is a", "name"), 0.5**0.5),
        (("The Piano", "is", "film"), ("piano", "is", "instrument"), 1.0),
        (("the film", "made by", "Jane Campion"), ("Jane Campion", "directed", "The Piano"), 1.0),
        (("Jaws", "is", "x"), ("Cincinnati", "is", "y"), 0.0),
        (("The The", "is", "band"), ("The The", "is", "y"), 1.0),
        (("¿", "is", "!"), ("?", "is", "…"), 0.0),
    ],
)
def test_shared_name(fact: Sequence[str], linked: Sequence[str], shared: float) -> None:
    assert shared_name(Triple(*fact), Triple(*linked)) == pytest.approx(shared)
    assert shared_name(Triple(*linked), Triple(*fact)) == pytest.approx(shared)


@MODES
async def test_a_fact_that_the_graph_has_nothing_for(
    store: GeARVectorStore, graph: ExternalTripleStore, mode: Mode
) -> None:
    llm = ScriptedLLM([write_facts(["Qwxyz", "zzzz", "Vwxyz"]), write_facts()])
    retriever = ExternalGeARRetriever(
        SyncGERetriever(store, Told(), llm=llm, graph=graph), max_steps=1, rank_top_k=None
    )
    for reason in (
        ["no triple to link to: no expansion", "no linked triple is about the same: no expansion"],
        ["the reader noted no fact: no expansion"],
    ):
        found, trace = await retrieve(mode, retriever)
        assert trace.steps[0].fallback in reason and found == ["jaws", "milk"]


@MODES
async def test_a_step_that_finds_nothing(store: GeARVectorStore, graph: ExternalTripleStore, mode: Mode) -> None:
    llm = ScriptedLLM()
    found, trace = await retrieve(mode, ExternalGeARRetriever(SyncGERetriever(store, Told({}), llm=llm, graph=graph)))
    assert (found, trace.stopped, trace.llm_calls) == ([], "nothing found", 0)
    llm = ScriptedLLM([write_facts(JAWS), ask_next("What else?"), "[2]"])
    found, trace = await retrieve(mode, ExternalGeARRetriever(SyncGERetriever(store, Told(), llm=llm, graph=graph)))
    assert (found, trace.stopped, llm.remaining) == (["milk"], "max_steps", 0)


@MODES
async def test_the_engine_takes_the_graph_by_one_argument(
    store: GeARVectorStore, graph: ExternalTripleStore, mode: Mode
) -> None:
    """The engine answers from the passages that pass the filter and from the gist (Eq. 7)."""
    llm = ScriptedLLM([write_facts(JAWS), ask_next(WHERE), write_facts(BORN), "[1]", "The Ohio River [1]"])
    base = VectorStoreIndex.from_vector_store(store, embed_model=store.embed_model).as_retriever(
        similarity_top_k=1, vector_store_query_mode="hybrid"
    )
    engine = GeARQueryEngine.from_vector_store(store, llm=llm, graph=graph, base_retriever=base)
    ask = engine.query_with_trace if mode == "sync" else None
    response, trace = ask(QUESTION) if ask else await engine.aquery_with_trace(QUESTION)
    assert str(response) == "The Ohio River [1]" and llm.remaining == 0
    (kept,) = trace.steps[-1].ranked or []
    assert [node.node.node_id for node in response.source_nodes] == [kept]
    prompt = llm.history[-1]
    assert f"[1] kind: film\n\n{PASSAGES[kept]}" in prompt and "[2]" not in prompt.split("#####")[1]
    assert (
        "Facts noted from the passages on the way:\n- Jaws directed by Steven Spielberg\n- Steven Spielberg born"
        in prompt
    )
    assert response.metadata is not None and response.metadata["gear_stopped"] == "max_steps"
    names = {name.removeprefix("retriever:") for name in engine.get_prompts() if name.startswith("retriever:")}
    assert names == {"read", "decide", "rank"}
    assert isinstance(
        GeARQueryEngine(PaperGeARRetriever(SyncGERetriever(store, llm=llm))).retriever, PaperGeARRetriever
    )


@MODES
async def test_nothing_kept_is_answered_from_the_gist(
    store: GeARVectorStore, graph: ExternalTripleStore, mode: Mode
) -> None:
    llm = ScriptedLLM([write_facts(JAWS), ENOUGH, "none", "Spielberg"])
    tool = QueryEngineTool.from_defaults(GeARQueryEngine.from_vector_store(store, llm=llm, graph=graph))
    output = tool.call(QUESTION) if mode == "sync" else await tool.acall(QUESTION)
    assert output.content == "Spielberg" and "- Jaws directed by Steven Spielberg" in llm.history[-1]
