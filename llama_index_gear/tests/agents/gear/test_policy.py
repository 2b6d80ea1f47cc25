"""The agent that makes one call a step, as a retriever on a real embedded store, and as a query engine."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import PromptTemplate
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_index_gear import (
    Budget,
    GeARRetriever,
    GeARVectorStore,
    GraphRetriever,
    RankingWeights,
    attach_triples,
)
from llama_index_gear.agents.gear.policy import STEP_PROMPT, parse_step
from llama_index_gear.errors import ReplyError
from llama_index_gear.retrievers.rank_bm25 import RankBM25Retriever
from llama_index_gear.testing import Reply, ScriptedLLM, WordEmbedding
from llama_index_gear.tests.asking import MODES, fill_store, list_ids, unlabelled
from llama_index_gear.tests.scanning import scan_reply
from llama_index_gear.trace.trace import Trace, TraceEvent

QUESTION = "Which land borders the land that the father of Ann lives in"
WHERE_BOB = "Where does Bob live"
FACTS = {
    "ann": ["Ann", "father", "Bob"],
    "bob": ["Bob", "lives in", "Rome"],
    "rome": ["Rome", "lies in", "Italy"],
    "italy": ["Italy", "borders", "France"],
    "milk": ["Cheese", "made of", "milk"],
}
TEXTS = {
    "ann": "Ann's father is Bob",
    "bob": "Bob lives in Rome",
    "rome": "Rome lies in Italy",
    "italy": "Italy borders France",
    "milk": "Cheese is made of milk",
}


def make_nodes() -> list[BaseNode]:
    return [
        unlabelled(name, text, [FACTS[name]], open="no" if name == "italy" else "yes", title=name)
        for name, text in TEXTS.items()
    ]


@pytest.fixture(scope="module")  # nobody writes to it
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeARVectorStore]:
    yield from fill_store(tmp_path_factory.mktemp("store"), make_nodes(), embed_triples=False)


def number_of(prompt: str, name: str) -> int:
    """Return the number that a passage has in a prompt."""
    found = re.search(rf"^\[(\d+)\] {TEXTS[name]}$", prompt, re.MULTILINE)
    assert found, prompt
    return int(found[1])


def say(*names: str, **rest: Any) -> Callable[[str], str]:
    """Make a reply that names passages by their numbers in the prompt."""
    return lambda prompt: json.dumps({"needed": [number_of(prompt, name) for name in names], **rest})


def say_next(*names: str, query: str, facts: Sequence[str] = ()) -> Callable[[str], str]:
    return say(*names, facts=[FACTS[name] for name in facts], answerable=False, query=query)


def say_answer(*names: str, answer: str = "France", facts: Sequence[str] = ()) -> Callable[[str], str]:
    return say(*names, facts=[FACTS[name] for name in facts], answerable=True, answer=answer)


TWO_STEPS: list[Reply] = [
    say_next("ann", query=WHERE_BOB, facts=["ann"]),
    say_answer("italy", "bob", facts=["bob", "italy"]),
]


async def retrieve(
    mode: str, store: GeARVectorStore, replies: Sequence[Reply], **arguments: Any
) -> tuple[list[NodeWithScore], Trace, ScriptedLLM]:
    llm = ScriptedLLM(replies)
    base = arguments.pop("base", None)
    agent = GeARRetriever(store, base, llm=llm, **arguments)
    if mode == "sync":
        return *agent.retrieve_with_trace(QUESTION), llm
    return *(await agent.aretrieve_with_trace(QUESTION)), llm


class OnlyMilk(BaseRetriever):
    """A retriever that finds one passage, whatever it is asked."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [NodeWithScore(node=TextNode(id_="milk", text=TEXTS["milk"]))]


@MODES
async def test_the_walk_starts_from_the_notes_too(store: GeARVectorStore, mode: str) -> None:
    """A base retriever that finds nothing of use: the second step's pool holds what the note leads to."""
    replies: list[Reply] = [say_next("milk", query=WHERE_BOB, facts=["ann"]), say_answer("bob", "ann")]
    found, trace, _ = await retrieve(mode, store, replies, base=OnlyMilk())
    assert trace.steps[0].passages == ["milk"] and {"ann", "bob"} < set(trace.steps[1].passages)
    assert list_ids(found)[:3] == ["milk", "bob", "ann"]


@MODES
async def test_two_steps(store: GeARVectorStore, mode: str) -> None:
    found, trace, llm = await retrieve(mode, store, TWO_STEPS)
    assert list_ids(found)[:3] == ["ann", "italy", "bob"] and len(found) == 5
    assert [result.node.metadata["gear_ranks"].get("needed") for result in found] == [1, 2, 3, None, None]
    assert found[1].node.metadata["gear_reasons"] == [
        {"signal": "needed", "share": 1.0, "reason": "named 2nd by the reader"}
    ]
    assert "gear_reasons" not in found[4].node.metadata
    scores = [result.score or 0 for result in found]
    assert scores == sorted(scores, reverse=True) and len(set(scores)) == 5
    assert (trace.stopped, trace.answer, [call.purpose for call in trace.calls]) == (
        "answered",
        "France",
        2 * ["select"],
    )
    first, second = trace.steps
    assert (first.needed, first.gist, first.next_query) == (["ann"], [FACTS["ann"]], WHERE_BOB)
    assert (first.shown, first.shortened, first.answerable, first.linked) == (5, [], False, [])
    assert (second.query, second.needed, second.gist) == (WHERE_BOB, ["italy", "bob"], [FACTS["bob"], FACTS["italy"]])
    assert [link.triple for link in second.linked] == [FACTS["ann"]]  # the walk starts from the notes, too
    assert sorted(second.passages) == sorted(TEXTS) and second.pagerank and second.base
    assert {source.passage_id for source in trace.passages if "needed" in source.ranks} == {"ann", "italy", "bob"}
    assert "Notes so far:\n#####\n(none)\n#####" in llm.history[0]
    assert "Notes so far:\n#####\n- Ann father Bob\n#####" in llm.history[1]
    assert f"Searched so far:\n- {QUESTION}\n- {WHERE_BOB}\n" in llm.history[1]


@MODES
async def test_a_single_call_shows_the_ranking_of_the_graph_retriever(store: GeARVectorStore, mode: str) -> None:
    ranking = list_ids(GraphRetriever(store).retrieve(QUESTION))
    named = ranking[2]
    found, trace, llm = await retrieve(mode, store, [say_next(named, query="Who")], max_steps=1, show_top_k=3)
    assert trace.steps[0].passages == ranking and trace.steps[0].shown == 3
    numbers = {number_of(llm.history[0], name): name for name in ranking[:3]}
    assert [numbers[number] for number in (1, 2, 3)] == ranking[:3] and "[4]" not in llm.history[0]
    assert list_ids(found) == [named, *(name for name in ranking if name != named)]
    assert (trace.stopped, trace.llm_calls) == ("max_steps", 1)


@MODES
async def test_weights_of_one_s_own_rank_the_pool(store: GeARVectorStore, mode: str) -> None:
    backwards = RankingWeights({"tied": -1.0})
    replies = [say_next(query=WHERE_BOB), say_next(query="And then")]
    _, trace, llm = await retrieve(mode, store, replies, max_steps=2, weights=backwards)
    for step in trace.steps:
        ranking = list_ids(GraphRetriever(store, weights=backwards).retrieve(step.query))
        assert step.passages == ranking != list_ids(GraphRetriever(store).retrieve(step.query))
    assert number_of(llm.history[0], trace.steps[0].passages[0]) == 1


@MODES
@pytest.mark.parametrize(
    ("replies", "stopped", "calls"),
    [
        ([say_next("ann", query=QUESTION.upper())], "repeated query", 1),
        ([say("ann", answerable=False)], "no further query", 1),
        ([say("ann", answerable=False, query="")], "no further query", 1),
        (["nothing", "at all"], "no further query", 2),
        (["nothing", say_answer("ann")], "answered", 2),
        ([say_next("ann", query=WHERE_BOB), say_next("bob", query="And then")], "max_steps", 2),
        ([say_next("ann", query=WHERE_BOB), PermissionError("down")], "failed: PermissionError: down", 2),
    ],
)
async def test_how_it_ends(store: GeARVectorStore, mode: str, replies: list[Reply], stopped: str, calls: int) -> None:
    found, trace, llm = await retrieve(mode, store, replies, max_steps=2)
    assert (trace.stopped, trace.llm_calls, llm.remaining) == (stopped, calls, 0)
    assert sorted(list_ids(found)) == sorted(TEXTS)
    if trace.steps[0].needed:
        assert list_ids(found)[0] == "ann"


@MODES
async def test_unreadable_replies_leave_the_ranking_and_say_so(store: GeARVectorStore, mode: str) -> None:
    found, trace, llm = await retrieve(mode, store, ['{"needed": [9], "answerable": false}', "I don't know"])
    assert list_ids(found) == list_ids(GraphRetriever(store).retrieve(QUESTION))
    (problem,) = trace.steps[0].problems
    assert problem.endswith("no passage was named, no fact noted") and trace.steps[0].needed is None
    assert "none of the passages 1 to 5 is named" in llm.history[1]


@MODES
async def test_the_budget_ends_it_with_what_there_is(store: GeARVectorStore, mode: str) -> None:
    found, trace, _ = await retrieve(mode, store, TWO_STEPS[:1], budget=Budget(max_llm_calls=1))
    assert trace.stopped == "max_llm_calls" and list_ids(found)[0] == "ann" and len(found) == 5
    assert trace.steps[1].passages  # the second step had ranked its pool


@MODES
async def test_filters_bind_every_list(store: GeARVectorStore, mode: str) -> None:
    only = MetadataFilters(filters=[MetadataFilter(key="open", value="yes")])
    replies = [say_next("ann", query=WHERE_BOB, facts=["italy"]), say_answer("bob")]
    found, trace, llm = await retrieve(mode, store, replies, filters=only)
    assert sorted(list_ids(found)) == ["ann", "bob", "milk", "rome"]
    assert f"] {TEXTS['italy']}" not in "".join(llm.history)
    assert all(link.passage_id != "italy" for step in trace.steps for link in step.linked)


@MODES
async def test_a_base_retriever_gives_the_pool(store: GeARVectorStore, mode: str) -> None:
    unknown = TextNode(id_="new", text="Ann has a father")
    base = RankBM25Retriever([unknown, *make_nodes()[:1]], similarity_top_k=2)
    found, trace, _ = await retrieve(mode, store, [say_answer("ann")], base=base)
    assert sorted(trace.steps[0].base) == ["ann", "new"] and list_ids(found)[0] == "ann" and "new" in list_ids(found)


@MODES
async def test_nothing_found_asks_nobody(tmp_path: Path, mode: str) -> None:
    with GeARVectorStore.from_path(tmp_path / "store", embed_model=WordEmbedding()) as empty:
        found, trace, _ = await retrieve(mode, empty, [])
    assert found == [] and trace.stopped == "nothing found" and trace.llm_calls == 0


async def test_tenants_see_their_own(tmp_path: Path) -> None:
    with GeARVectorStore.from_path(tmp_path / "s", embed_model=WordEmbedding(), tenant_field="owner") as shared:
        for owner in ("ada", "bob"):
            nodes = [attach_triples(TextNode(text=f"{owner} knows Ann", metadata={"owner": owner}), [])]
            nodes[0].embedding = WordEmbedding().get_text_embedding(nodes[0].text)  # type: ignore[attr-defined]
            shared.add(nodes)
        llm = ScriptedLLM(['{"needed": [1], "answerable": true, "answer": "x"}'])
        (result,) = GeARRetriever(shared.for_tenant("ada"), llm=llm).retrieve(QUESTION)
    assert "ada knows Ann" in result.node.get_content() and "bob knows" not in llm.history[0]


async def test_events_prompts_and_pages(store: GeARVectorStore, tmp_path: Path) -> None:
    own = PromptTemplate("Mine\n{passages}\n{gist} {question} {queries}")
    agent = GeARRetriever(store, llm=ScriptedLLM(TWO_STEPS), prompts={"select": own})
    assert list(agent.get_prompts()) == ["select"]
    stream: AsyncIterator[Any] = agent.astream_events(QUESTION)
    items = [item async for item in stream]
    events = [item for item in items if isinstance(item, TraceEvent)]
    assert [event.value for event in events if event.kind == "needed"] == [["ann"], ["italy", "bob"]]
    assert list_ids(items[-1])[:1] == ["ann"]
    agent = GeARRetriever(store, llm=ScriptedLLM(TWO_STEPS))
    _, trace = agent.retrieve_with_trace(QUESTION)
    assert Trace.model_validate_json(trace.model_dump_json()) == trace
    place = trace.steps[0].passages.index("ann") + 1
    page = trace.to_html(tmp_path / "page.html").read_text("utf-8")
    assert f"<li>ann (place {place} of the 5 found)</li>" in page and "Named as needed, of 5 shown" in page


def test_long_passages_are_shortened_and_the_trace_says_so(tmp_path: Path) -> None:
    filler = " ".join(f"Thing number {number} is as it is." for number in range(400))
    with GeARVectorStore.from_path(tmp_path / "s", embed_model=WordEmbedding()) as made:
        node = TextNode(id_="long", text=f"{filler} The father of Ann lives in Rome. {filler}")
        node.embedding = WordEmbedding().get_text_embedding(node.text)
        made.add([*make_nodes(), node])
        llm = ScriptedLLM(['{"needed": [1], "answerable": true, "answer": "x"}'])
        agent = GeARRetriever(made, llm=llm, show_tokens=300)
        _, trace = agent.retrieve_with_trace(QUESTION)
    assert trace.steps[0].shortened == ["long"] and trace.steps[0].shown == 6
    assert "The father of Ann lives in Rome." in llm.history[0] and len(llm.history[0]) < 4_000


# -- replies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ('{"needed": [2], "facts": [], "answerable": true, "answer": "Rome"}', ([1], 0, True, "Rome", "")),
        (
            '{"needed": [], "triples": [["a", "b", "c"]], "answerable": "no", "query": "Who?"}',
            ([], 1, False, "", "Who?"),
        ),
        ('{"needed": [1], "answerable": false}', ([0], 0, False, "", "")),
        ('{"needed": [1], "answerable": true, "answer": "…"}', ([0], 0, True, "", "")),
        ('{"needed": [1], "answerable": false, "query": "…"}', None),
        ('{"needed": [1], "facts": [["…", "…"]], "answerable": true, "answer": "x"}', None),
        ('{"facts": [], "answerable": true, "answer": "x"}', None),
        ('{"needed": [1], "facts": []}', None),
        ('{"needed": [1], "answerable": true, "answer": "x"} {"needed": [2], "answerable": true, "answer": "x"}', None),
        ('{"needed": [1], "answerable": true, "answer": "x"} {"needed": [1], "answerable": false}', None),
        ('{"needed": [1], "facts": [["a", "b", "c"]], "answer', None),
        (STEP_PROMPT.get_template(), None),
        ("", None),
    ],
)
def test_replies(reply: str, value: tuple[list[int], int, bool, str, str] | None) -> None:
    if value is None:
        with pytest.raises(ReplyError):
            parse_step(scan_reply(reply), 4)
    else:
        step = parse_step(scan_reply(reply), 4)
        verdict = step.verdict
        assert (step.needed, len(step.facts), verdict.answerable, verdict.answer, step.query) == value
