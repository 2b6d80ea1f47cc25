"""GeAR's agent as a retriever on a real embedded store: its searches, prompts, verdicts and ranking."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import llama_index.core
import numpy as np
import pytest
from llama_index.core import Settings
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.span_handlers import SimpleSpanHandler
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle
from llama_index.core.utils import get_tokenizer
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters
from llama_index_instrumentation import get_dispatcher

from llama_index_gear import GeARVectorStore, NaiveGERetriever, SyncGERetriever
from llama_index_gear.agents.gear.paper_calls import GIST_PROMPT, READ_AND_REASON_PROMPT, REASON_PROMPT, REWRITE_PROMPT
from llama_index_gear.agents.gear.paper_policy import Calls
from llama_index_gear.retrievers.base import GeAREvent
from llama_index_gear.retrievers.paper_gear import PaperGeARRetriever
from llama_index_gear.testing import ScriptedLLM, WordEmbedding
from llama_index_gear.tests.asking import MODES, fill_store, list_ids, unlabelled
from llama_index_gear.trace.trace import Trace, TraceEvent

Slots = list[str]

QUESTION = "Which land borders the land that the father of Ann lives in"
WHERE_BOB, WHERE_ROME, WHAT_BORDERS = "Where does Bob live", "Where is Rome", "What borders Italy"
FATHER, LIVES, LIES = ["Ann", "father", "Bob"], ["Bob", "lives in", "Rome"], ["Rome", "lies in", "Italy"]
BORDERS, MADE = ["Italy", "borders", "France"], ["Cheese", "made of", "milk"]
# One fact a passage; each fact shares a name with the next, but for the last.
PASSAGES: dict[str, tuple[str, Slots]] = {
    "ann": ("Ann's father is Bob", FATHER),
    "bob": ("Bob lives in Rome", LIVES),
    "rome": ("Rome lies in Italy", LIES),
    "italy": ("Italy borders France", BORDERS),
    "milk": ("Cheese is made of milk", MADE),
}
# What the base retriever finds; the last four are asked when the facts of the gist are linked to passages.
FOUND = {
    QUESTION: ["milk", "ann"],
    WHERE_BOB: ["bob"],
    WHERE_ROME: ["rome"],
    WHAT_BORDERS: ["italy"],
    "Ann father Bob": ["ann"],
    "Bob lives in Rome": ["bob", "milk"],
    "Rome lies in Italy": ["rome", "milk"],
    "Italy borders France": ["italy"],
}
# Reading, linking and walking from each query: RRF(graph, base), beams in the order of the words they share with it.
WALKED = {
    QUESTION: ["ann", "milk", "bob"],  # RRF([ann, bob], [milk, ann]): 1/61 + 1/62, 1/61, 1/62
    WHERE_BOB: ["bob", "ann", "rome"],  # RRF([bob, ann, rome], [bob])
    WHERE_ROME: ["rome", "bob", "italy"],  # RRF([rome, bob, italy], [rome])
    WHAT_BORDERS: ["italy", "rome"],  # RRF([italy, rome], [italy])
}


def make_nodes() -> dict[str, BaseNode]:
    return {name: unlabelled(name, text, [fact], name=name) for name, (text, fact) in PASSAGES.items()}


@pytest.fixture(scope="module", autouse=True)
def tokenizer() -> None:
    get_tokenizer()  # loading it takes a quarter of a second, once


@pytest.fixture(scope="module")  # nobody writes to it
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeARVectorStore]:
    yield from fill_store(tmp_path_factory.mktemp("store"), make_nodes().values())


class Told(BaseRetriever):
    """A base retriever that returns the passages given for a query, and remembers its queries."""

    def __init__(self, found: Mapping[str, Sequence[str]] = FOUND, known: Mapping[str, BaseNode] | None = None) -> None:
        super().__init__()
        self.found = found
        self.known = known or make_nodes()
        self.asked: list[str] = []
        self.under_way = self.most_under_way = 0

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.asked.append(query_bundle.query_str)
        names = self.found.get(query_bundle.query_str, [])
        return [NodeWithScore(node=self.known[name], score=1 / rank) for rank, name in enumerate(names, start=1)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await let_others_run()
        self.under_way -= 1
        return self._retrieve(query_bundle)


async def let_others_run() -> None:
    """Let everything else on the event loop run, many times over."""
    for _ in range(50):
        await asyncio.sleep(0)


def write_facts(*slots: Slots) -> str:
    return json.dumps({"triples": slots})


def say_missing(reason: str) -> str:
    return json.dumps({"answerable": False, "reason": reason})


def say_answered(answer: str) -> str:
    return json.dumps({"answerable": True, "answer": answer})


def ask_next(query: str) -> str:
    return json.dumps({"query": query})


ONE_STEP = [write_facts(FATHER), write_facts(FATHER, LIVES), say_answered("France")]
STEP_1 = [write_facts(FATHER), write_facts(FATHER), say_missing("where Bob lives")]
STEP_2 = [write_facts(LIVES), write_facts(FATHER, LIVES), say_missing("where Rome is")]
STEP_3 = [write_facts(LIES), write_facts(LIVES, LIES), say_missing("what borders Italy")]
STEP_4 = [write_facts(BORDERS), write_facts(BORDERS, LIES)]
THREE_STEPS = [*STEP_1, ask_next(WHERE_BOB), *STEP_2, ask_next(WHERE_ROME), *STEP_3, ask_next(WHAT_BORDERS)]
FOUR_STEPS = [*THREE_STEPS, *STEP_4, say_answered("France")]
THREE = ["read", "gist", "reason"]
FOUR = [*THREE, "rewrite"]

Mode = str


async def retrieve(
    mode: Mode, retriever: PaperGeARRetriever, question: str = QUESTION
) -> tuple[list[NodeWithScore], Trace]:
    if mode == "sync":
        return retriever.retrieve_with_trace(question)
    return await retriever.aretrieve_with_trace(question)


def make_gear(
    store: GeARVectorStore, replies: Sequence[Any] = (), **arguments: Any
) -> tuple[PaperGeARRetriever, ScriptedLLM]:
    llm = arguments.pop("llm", None) or ScriptedLLM(replies)
    base = arguments.pop("base", None) or Told()
    step = SyncGERetriever(store, base, llm=llm, filters=arguments.pop("filters", None))
    return PaperGeARRetriever(step, **arguments), llm


def list_purposes(trace: Trace) -> list[str]:
    return [call.purpose for call in trace.calls]


def get_transcript(trace: Trace) -> dict[str, Any]:
    """Return all of a trace except its times."""
    return trace.model_dump(exclude={"ms": True, "calls": {"__all__": {"ms"}}})


def list_results(found: Sequence[NodeWithScore]) -> list[tuple[str, float | None, Any]]:
    return [(result.node.node_id, result.score, result.node.metadata) for result in found]


# -- transcripts ------------------------------------------------------------------------------------------------------


@MODES
async def test_one_step(store: GeARVectorStore, mode: Mode) -> None:
    base = Told()
    retriever, llm = make_gear(store, ONE_STEP, base=base, passage_link_top_k=1)
    found, trace = await retrieve(mode, retriever)
    (step,) = trace.steps
    assert step.model_dump(exclude={"linked": {"__all__": {"score"}}, "beams": {"__all__": {"score"}}}) == {
        "number": 1,
        "query": QUESTION,
        "base": ["milk", "ann"],
        "proximal": [FATHER],
        "linked": [{"triple": FATHER, "passage_id": "ann"}],
        "misaligned": [],
        "fallback": "",
        "beams": [{"chain": [FATHER, LIVES], "passage_ids": ["ann", "bob"]}],
        "pagerank": [],
        "passages": ["ann", "milk", "bob"],
        "gist": [FATHER, LIVES],
        "left_out": 0,
        "answerable": True,
        "answer": "France",
        "reason": "",
        "next_query": "",
        "ranked": None,
        "shown": 0,
        "shortened": [],
        "needed": None,
        "searched": [],
        "values": {},
        "clues": [],
        "open": [],
        "problems": [],
    }
    embed = WordEmbedding().get_text_embedding
    assert step.linked[0].score == pytest.approx(np.dot(embed(QUESTION), embed("Ann father Bob")), abs=1e-3)
    assert [(link.triple, link.passages) for link in trace.links] == [(FATHER, ["ann"]), (LIVES, ["bob"])]
    assert (trace.question, trace.stopped, trace.answer) == (QUESTION, "answered", "France")
    assert trace.gist == [FATHER, LIVES]
    assert trace.titles == {name: PASSAGES[name][0] for name in ("milk", "ann", "bob")}
    assert list_purposes(trace) == THREE and {call.step for call in trace.calls} == {1}
    assert [source.passage_id for source in trace.passages] == list_ids(found)
    assert base.asked == [QUESTION, "Ann father Bob", "Bob lives in Rome"]
    assert llm.remaining == 0


@MODES
async def test_four_steps(store: GeARVectorStore, mode: Mode) -> None:
    retriever, llm = make_gear(store, FOUR_STEPS)
    found, trace = await retrieve(mode, retriever)
    told = [(s.query, s.base, s.proximal, s.passages, s.gist, s.reason, s.next_query) for s in trace.steps]
    assert told == [
        (QUESTION, ["milk", "ann"], [FATHER], WALKED[QUESTION], [FATHER], "where Bob lives", WHERE_BOB),
        (WHERE_BOB, ["bob"], [LIVES], WALKED[WHERE_BOB], [LIVES], "where Rome is", WHERE_ROME),
        (WHERE_ROME, ["rome"], [LIES], WALKED[WHERE_ROME], [LIES], "what borders Italy", WHAT_BORDERS),
        (WHAT_BORDERS, ["italy"], [BORDERS], WALKED[WHAT_BORDERS], [BORDERS], "", ""),
    ]
    assert [step.answerable for step in trace.steps] == [False, False, False, True]
    assert [[beam.chain for beam in step.beams] for step in trace.steps] == [
        [[FATHER, LIVES]],
        [[LIVES, FATHER], [LIVES, LIES]],
        [[LIES, LIVES], [LIES, BORDERS]],
        [[BORDERS, LIES]],
    ]
    assert list_purposes(trace) == [*FOUR, *FOUR, *FOUR, *THREE]
    assert [call.step for call in trace.calls] == [1] * 4 + [2] * 4 + [3] * 4 + [4] * 3
    assert (trace.stopped, trace.answer) == ("answered", "France")
    assert [link.triple for link in trace.links] == trace.gist == [FATHER, LIVES, LIES, BORDERS]
    assert set(list_ids(found)) == set(PASSAGES)
    assert llm.remaining == 0


@MODES
async def test_each_call_is_shown_what_it_is_about(store: GeARVectorStore, mode: Mode) -> None:
    retriever, llm = make_gear(store, FOUR_STEPS)
    await retrieve(mode, retriever)
    read, gist, reason, rewrite = llm.history[4:8]
    assert f"[1] Bob lives in Rome\n#####\n\nQuestion: {WHERE_BOB}\n" in read
    passages = "[1] Bob lives in Rome\n\n[2] Ann's father is Bob\n\n[3] Rome lies in Italy"
    assert gist == GIST_PROMPT.format(passages=passages, gist="- Ann father Bob", question=QUESTION, problem="")
    notes = "- Ann father Bob\n- Bob lives in Rome"
    assert reason == REASON_PROMPT.format(gist=notes, question=QUESTION, problem="")
    queries = f"- {QUESTION}\n- {WHERE_BOB}"
    assert rewrite == REWRITE_PROMPT.format(
        gist=notes, question=QUESTION, reason="where Rome is", queries=queries, problem=""
    )
    assert "Notes so far:\n#####\n(none)\n#####" in llm.history[1]


@MODES
@pytest.mark.parametrize("again", [QUESTION, QUESTION.upper(), f"«{QUESTION}»?!", WHERE_BOB.lower() + " ?"])
async def test_a_query_that_was_searched_before_ends_the_search(store: GeARVectorStore, mode: Mode, again: str) -> None:
    retriever, llm = make_gear(store, [*STEP_1, ask_next(WHERE_BOB), *STEP_2, ask_next(again)])
    found, trace = await retrieve(mode, retriever)
    assert (trace.stopped, len(trace.steps), trace.steps[1].next_query) == ("repeated query", 2, again)
    assert [step.query for step in trace.steps] == [QUESTION, WHERE_BOB]
    assert {"ann", "bob"} <= set(list_ids(found)) and llm.remaining == 0


@MODES
async def test_a_query_that_cannot_be_read_twice_ends_the_search(store: GeARVectorStore, mode: Mode) -> None:
    retriever, llm = make_gear(store, [*STEP_1, "I have\nno idea", '{"query": ""}'])
    found, trace = await retrieve(mode, retriever)
    assert trace.stopped == "no further query" and list_purposes(trace) == [*FOUR, "rewrite"]
    (problem,) = trace.steps[0].problems
    assert "no query can be read" in problem and "the search ends" in problem
    assert "could not be read" in llm.history[4] and "could not be read" not in llm.history[3]
    assert list_ids(found) and llm.remaining == 0


@MODES
async def test_notes_and_verdicts_that_cannot_be_read_are_told_and_the_search_goes_on(
    store: GeARVectorStore, mode: Mode
) -> None:
    step = [write_facts(FATHER), "Well.", "Well, well.", "Perhaps.", "Perhaps not."]
    retriever, llm = make_gear(store, [*step, ask_next(WHERE_BOB), *STEP_2[:2], say_answered("Rome")])
    _, trace = await retrieve(mode, retriever)
    assert list_purposes(trace)[:6] == ["read", "gist", "gist", "reason", "reason", "rewrite"]
    first, second = trace.steps[0].problems
    assert first.endswith("no fact was noted") and second.endswith("the search goes on")
    assert (trace.steps[0].gist, trace.steps[0].answerable) == ([], False)
    assert (trace.stopped, trace.gist, llm.remaining) == ("answered", [FATHER, LIVES], 0)


@MODES
async def test_a_step_that_finds_nothing_ends_the_search_and_keeps_the_steps_before(
    store: GeARVectorStore, mode: Mode
) -> None:
    retriever, llm = make_gear(store, [*STEP_1, ask_next("Who is who")])
    found, trace = await retrieve(mode, retriever)
    assert (trace.stopped, trace.steps[1].base, list_purposes(trace)) == ("nothing found", [], FOUR)
    assert {"ann", "bob"} <= set(list_ids(found)) and llm.remaining == 0


@MODES
@pytest.mark.parametrize("call", range(1, 8))
async def test_a_later_call_that_fails_loses_nothing(
    store: GeARVectorStore, mode: Mode, call: int, caplog: pytest.LogCaptureFixture
) -> None:
    whole = [*STEP_1, ask_next(WHERE_BOB), *STEP_2, ask_next(WHERE_ROME)]
    retriever, llm = make_gear(store, [*whole[:call], PermissionError("down")])
    found, trace = await retrieve(mode, retriever)
    assert trace.stopped == "failed: PermissionError: down"
    assert "ended early, with what it had found: failed: PermissionError; its trace" in caplog.text
    assert [logged_call.error for logged_call in trace.calls] == [""] * call + ["PermissionError: down"]
    assert list_purposes(trace) == [*FOUR, *FOUR][: call + 1]
    # The gist is noted in calls 2 and 6.
    assert trace.gist == [] if call < 2 else trace.gist == [FATHER] if call < 6 else trace.gist == [FATHER, LIVES]
    assert [link.triple for link in trace.links] == trace.gist
    assert {"ann", "bob"} <= set(list_ids(found)) and llm.remaining == 0
    # Before the reading of step 2 is there, its base passages are what is known of it.
    assert "step 2" not in found[0].node.metadata["gear_ranks"] if call < 4 else "bob" in trace.steps[1].base


@MODES
async def test_tokens_and_times_of_every_call_are_counted(store: GeARVectorStore, mode: Mode) -> None:
    def reply_late(prompt: str) -> str:
        time.sleep(0.1)
        return ONE_STEP[1]

    llm = ScriptedLLM([ONE_STEP[0], reply_late, *ONE_STEP[2:]])
    retriever, _ = make_gear(store, llm=llm)
    _, trace = await retrieve(mode, retriever)
    count = get_tokenizer()
    assert [call.prompt_tokens for call in trace.calls] == [len(count(prompt)) for prompt in llm.history]
    assert [call.completion_tokens for call in trace.calls] == [len(count(reply)) for reply in ONE_STEP]
    assert trace.prompt_tokens == sum(call.prompt_tokens for call in trace.calls)
    assert trace.calls[1].ms > 95 and all(call.ms > 0 for call in trace.calls)
    assert trace.ms >= trace.calls[1].ms


# -- the ranking ------------------------------------------------------------------------------------------------------


@MODES
async def test_the_ranking_is_arithmetic_that_one_can_check_by_eye(store: GeARVectorStore, mode: Mode) -> None:
    """The final list is RRF of what the steps found and of what the gist's facts are linked to (GeAR Eq. 9, 10)."""
    replies = [*STEP_1, ask_next(WHERE_ROME), write_facts(LIES), write_facts(LIES), say_answered("France")]
    retriever, _ = make_gear(store, replies, passage_link_top_k=2)
    found, trace = await retrieve(mode, retriever)
    assert [step.passages for step in trace.steps] == [["ann", "milk", "bob"], ["rome", "bob", "italy"]]
    assert [link.passages for link in trace.links] == [
        ["ann", "bob"],  # RRF of searched [ann] and, by the facts that are most like it, [ann, bob]
        ["rome", "milk", "bob"],  # RRF of searched [rome, milk] and, by facts, [rome, bob]
    ]
    scores: list[tuple[str, Any]] = [(result.node.node_id, result.score) for result in found]
    assert scores == [
        ("bob", pytest.approx(1 / 63 + 1 / 62 + 1 / 62 + 1 / 63, abs=1e-12)),  # in every list, at the top of none
        ("ann", pytest.approx(1 / 61 + 1 / 61, abs=1e-12)),
        ("rome", pytest.approx(1 / 61 + 1 / 61, abs=1e-12)),
        ("milk", pytest.approx(1 / 62 + 1 / 62, abs=1e-12)),
        ("italy", pytest.approx(1 / 63, abs=1e-12)),
    ]
    assert [result.node.metadata["gear_ranks"] for result in found] == [
        {"step 1": 3, "step 2": 2, "fact 1": 2, "fact 2": 3},
        {"step 1": 1, "fact 1": 1},
        {"step 2": 1, "fact 2": 1},
        {"step 1": 2, "fact 2": 2},
        {"step 2": 3},
    ]
    assert [result.node.metadata["gear_chain"] for result in found] == [
        [FATHER, LIVES], [FATHER], [LIES], [], [LIES, BORDERS],
    ]  # fmt: skip
    assert [(source.passage_id, source.score, source.ranks, source.chain) for source in trace.passages] == [
        (result.node.node_id, result.score, result.node.metadata["gear_ranks"], result.node.metadata["gear_chain"])
        for result in found
    ]


@MODES
async def test_a_fact_leads_to_passages_that_no_step_saw(store: GeARVectorStore, mode: Mode) -> None:
    """Linking searches passages and facts anew: a fact about cheese brings its passage into the result."""
    found_by = {QUESTION: ["ann"]}
    retriever, _ = make_gear(
        store, [write_facts(FATHER), write_facts(MADE), say_answered("?")], base=Told(found_by), passage_link_top_k=1
    )
    found, trace = await retrieve(mode, retriever)
    assert trace.steps[0].passages == ["ann", "bob"]
    assert [(link.triple, link.passages) for link in trace.links] == [(MADE, ["milk"])]
    (milk,) = [result for result in found if result.node.node_id == "milk"]
    assert milk.node.metadata["gear_ranks"] == {"fact 1": 1} and milk.node.metadata["gear_chain"] == [MADE]
    assert milk.node.get_content(metadata_mode=MetadataMode.LLM) == PASSAGES["milk"][0]
    assert trace.titles["milk"] == PASSAGES["milk"][0]


async def test_as_many_passages_as_asked_for(store: GeARVectorStore) -> None:
    whole = make_gear(store, FOUR_STEPS)[0].retrieve(QUESTION)
    assert len(whole) == 5
    assert list_ids(make_gear(store, FOUR_STEPS, similarity_top_k=2)[0].retrieve(QUESTION)) == list_ids(whole)[:2]


async def test_the_searches_of_the_linking_run_at_once(store: GeARVectorStore) -> None:
    base = Told()
    await make_gear(store, [write_facts(FATHER), write_facts(FATHER, LIVES, LIES), say_answered("?")], base=base)[
        0
    ].aretrieve(QUESTION)
    assert base.most_under_way == 3


# -- which calls ------------------------------------------------------------------------------------------------------


def merge_reply(said: str, *slots: Slots) -> str:
    return json.dumps({"triples": slots, **json.loads(said)})


@MODES
async def test_note_and_verdict_in_one_call(store: GeARVectorStore, mode: Mode) -> None:
    replies = [
        write_facts(FATHER), merge_reply(say_missing("where Bob lives"), FATHER), ask_next(WHERE_BOB),
        write_facts(LIVES), merge_reply(say_answered("Rome"), FATHER, LIVES),
    ]  # fmt: skip
    retriever, llm = make_gear(store, replies, calls="merged")
    _, trace = await retrieve(mode, retriever)
    assert list_purposes(trace) == ["read", "gist and reason", "rewrite", "read", "gist and reason"]
    assert [(s.gist, s.answerable, s.reason, s.answer, s.next_query) for s in trace.steps] == [
        ([FATHER], False, "where Bob lives", "", WHERE_BOB),
        ([LIVES], True, "", "Rome", ""),
    ]
    passages = "[1] Bob lives in Rome\n\n[2] Ann's father is Bob\n\n[3] Rome lies in Italy"
    assert llm.history[4] == READ_AND_REASON_PROMPT.format(
        passages=passages, gist="- Ann father Bob", question=QUESTION, problem=""
    )
    assert llm.remaining == 0


@MODES
async def test_a_single_call_whose_facts_are_the_gist(store: GeARVectorStore, mode: Mode) -> None:
    retriever, llm = make_gear(store, [write_facts(FATHER, FATHER, LIES)], calls="single", passage_link_top_k=1)
    found, trace = await retrieve(mode, retriever)
    assert (list_purposes(trace), trace.stopped, len(trace.steps), llm.remaining) == (["read"], "one call", 1, 0)
    assert trace.gist == trace.steps[0].proximal == [FATHER, LIES]
    assert [(link.triple, link.passages) for link in trace.links] == [(FATHER, ["ann"]), (LIES, ["rome"])]
    assert (trace.steps[0].answerable, trace.answer) == (None, "")
    ranks = {result.node.node_id: result.node.metadata["gear_ranks"] for result in found}
    assert ranks["rome"]["fact 2"] == ranks["ann"]["fact 1"] == 1 and "fact 1" not in ranks["rome"]
    assert ranks["milk"].keys() == {"step 1"}


@MODES
@pytest.mark.parametrize(("calls", "most"), [("separate", 15), ("merged", 11), ("single", 1)])
async def test_as_many_calls_as_the_docstring_says(store: GeARVectorStore, mode: Mode, calls: Calls, most: int) -> None:
    llm = ScriptedLLM(otherwise=Unsettled())
    _, trace = await retrieve(mode, PaperGeARRetriever(SyncGERetriever(store, llm=llm), calls=calls))
    assert trace.llm_calls == len(llm.history) == most


# -- models that don't help -------------------------------------------------------------------------------------------


class Unsettled:
    """A model that notes the facts it is given, is never satisfied, and always has another query."""

    def __init__(self, noted: Callable[[int], list[Slots]] = lambda call: [FATHER]) -> None:
        self.noted = noted
        self.calls = 0

    def __call__(self, prompt: str) -> str:
        self.calls += 1
        return json.dumps(
            {
                "triples": self.noted(self.calls),
                "answerable": False,
                "reason": "not sure",
                "query": f"Where does Bob live, attempt {self.calls}",
            }
        )


@MODES
async def test_the_gist_is_bounded(store: GeARVectorStore, mode: Mode) -> None:
    def make_facts(call: int) -> list[Slots]:
        return [[f"Ann {call}", "knows", f"Bob {number}"] for number in range(70)]

    llm = ScriptedLLM(otherwise=Unsettled(make_facts))
    _, trace = await retrieve(mode, PaperGeARRetriever(SyncGERetriever(store, llm=llm)))
    assert [(len(step.gist), step.left_out) for step in trace.steps] == [(70, 0), (30, 40), (0, 70), (0, 70)]
    assert len(trace.gist) == len(trace.links) == 100
    assert max(prompt.count("\n- Ann") for prompt in llm.history) == 100


# -- cancelling, streaming, watching ----------------------------------------------------------------------------------


def replay_events(events: Sequence[TraceEvent]) -> dict[str, Any]:
    """Return the transcript that the events describe."""
    told: dict[str, Any] = {"question": QUESTION, "steps": {}, "calls": []}
    for event in events:
        if event.kind == "call":
            told["calls"].append(event.value)
        elif event.step:
            told["steps"].setdefault(event.step, {})[event.kind] = event.value
        else:
            told[event.kind] = event.value
    told["steps"] = [{"number": number, **fields} for number, fields in told["steps"].items()]
    return get_transcript(Trace.model_validate(told))


async def test_the_events_tell_the_whole_trace_and_the_result_comes_last(store: GeARVectorStore) -> None:
    items = [item async for item in make_gear(store, FOUR_STEPS)[0].astream_events(QUESTION)]
    *events, last = items
    found, trace = await make_gear(store, FOUR_STEPS)[0].aretrieve_with_trace(QUESTION)
    assert isinstance(last, list) and list_results(last) == list_results(found)
    assert all(isinstance(event, TraceEvent) for event in events)
    seen = [event for event in events if isinstance(event, TraceEvent)]
    assert replay_events(seen) == {**get_transcript(trace), "titles": {}}
    assert json.loads(json.dumps([event.model_dump() for event in seen]))[0] == {
        "step": 1, "kind": "query", "value": QUESTION,
    }  # fmt: skip
    assert [e.kind for e in seen if e.step == 1][:4] == ["query", "base", "call", "proximal"]


async def test_a_stream_that_nobody_reads_leaves_nothing_behind(store: GeARVectorStore) -> None:
    with warnings.catch_warnings(action="ignore"):
        gc.collect()  # what earlier tests left, such as an event loop of LlamaIndex's
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stream = make_gear(store, ONE_STEP)[0].astream_events(QUESTION)
        await stream.aclose()  # type: ignore[attr-defined]
        del stream
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


async def test_an_error_comes_out_of_the_stream(store: GeARVectorStore) -> None:
    kinds = []
    with pytest.raises(PermissionError, match="down"):
        async for item in make_gear(store, [PermissionError("down")])[0].astream_events(QUESTION):
            kinds.append(item.kind if isinstance(item, TraceEvent) else "result")
    assert kinds == ["query", "base", "call", "stopped", "ms"]


class Recorder(BaseEventHandler):
    seen: list[GeAREvent] = []

    @classmethod
    def class_name(cls) -> str:
        return "Recorder"

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        if isinstance(event, GeAREvent):
            self.seen.append(event)


@MODES
async def test_llama_index_s_instrumentation_is_told_everything(store: GeARVectorStore, mode: Mode) -> None:
    root, recorder, spans = get_dispatcher(), Recorder(seen=[]), SimpleSpanHandler()
    root.add_event_handler(recorder)
    root.add_span_handler(spans)
    try:
        _, trace = await retrieve(mode, make_gear(store, FOUR_STEPS)[0])
    finally:
        root.event_handlers.remove(recorder)
        root.span_handlers.remove(spans)
    events = [TraceEvent(step=event.step, kind=event.kind, value=event.value) for event in recorder.seen]
    assert replay_events(events) == {**get_transcript(trace), "titles": {}}
    assert {event.class_name() for event in recorder.seen} == {"GeAREvent"}
    names = [span.id_.split("-")[0] for span in spans.completed_spans]
    method = f"PaperGeARRetriever.{'_retrieve' if mode == 'sync' else '_aretrieve'}"
    assert names.count(method) == 1


# -- filters ----------------------------------------------------------------------------------------------------------

NOT_BOB = MetadataFilters(filters=[MetadataFilter(key="name", operator=FilterOperator.NE, value="bob")])


@MODES
async def test_a_filter_binds_every_hop_and_the_linking(store: GeARVectorStore, mode: Mode) -> None:
    stranger = {**make_nodes(), "stranger": unlabelled("stranger", "Bob lives in Rome, says a stranger")}
    base = Told({**FOUND, QUESTION: ["stranger", "milk", "ann"], "Bob lives in Rome": ["stranger", "bob"]}, stranger)
    free, trace = await retrieve(mode, make_gear(store, FOUR_STEPS, base=base)[0])
    assert {"bob", "stranger"} <= trace.titles.keys() and {"bob", "stranger"} <= set(list_ids(free))
    # As FOUR_STEPS, but what Bob's passage says is known only from the model: it is linked all the same.
    replies = [
        write_facts(FATHER),
        write_facts(FATHER, LIVES),
        say_missing("where Rome is"),
        ask_next(WHERE_ROME),
        *FOUR_STEPS[8:],
    ]
    replies[6] = say_answered("France")
    found, trace = await retrieve(mode, make_gear(store, replies, base=base, filters=NOT_BOB)[0])
    assert found and not {"bob", "stranger"} & ({*list_ids(found)} | trace.titles.keys())
    assert [link.triple for link in trace.links][1] == LIVES and trace.links[1].passages
    assert not {"bob", "stranger"} & {name for link in trace.links for name in link.passages}
    assert [step.base for step in trace.steps] == [["milk", "ann"], ["rome"]]
    walked = [slots for step in trace.steps for beam in step.beams for slots in beam.chain]
    chains = [slots for result in found for slots in result.node.metadata["gear_chain"]]
    assert walked and LIVES not in walked and chains and LIVES not in chains


# -- input ------------------------------------------------------------------------------------------------------------


def test_the_settings_model_is_the_default(store: GeARVectorStore, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = ScriptedLLM(ONE_STEP)
    monkeypatch.setattr(Settings, "_llm", llm)
    retriever = PaperGeARRetriever(SyncGERetriever(store, Told()))
    assert retriever.llm is llm
    assert retriever.retrieve(QUESTION) and llm.remaining == 0


# -- at once ----------------------------------------------------------------------------------------------------------


async def test_counting_tokens_holds_nobody_up(store: GeARVectorStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop leaves the loading of a tokenizer, which takes a while, to another thread."""
    counting: list[int] = []

    def count(text: str) -> list[int]:
        counting.append(threading.get_ident())
        return [0] * len(text)

    monkeypatch.setattr(llama_index.core, "global_tokenizer", count)
    await make_gear(store, ONE_STEP)[0].aretrieve(QUESTION)
    assert counting and threading.get_ident() not in counting


# -- with other retrievers --------------------------------------------------------------------------------------------


@MODES
async def test_on_graph_expansion_and_on_itself_without_mixing_traces(store: GeARVectorStore, mode: Mode) -> None:
    for inner in (
        NaiveGERetriever(store, Told()),
        PaperGeARRetriever(SyncGERetriever(store, Told(), llm=ScriptedLLM(otherwise=Unsettled())), max_steps=2),
    ):
        found, trace = await retrieve(mode, make_gear(store, ONE_STEP, base=inner)[0])
        assert trace.llm_calls == 3 and [step.query for step in trace.steps] == [QUESTION]
        for result in found:  # the outer explanation, not the inner one
            ranks = result.node.metadata["gear_ranks"]
            assert {name.split()[0] for name in ranks} <= {"step", "fact"} and "step 2" not in ranks
            assert result.score == pytest.approx(sum(1 / (60 + rank) for rank in ranks.values()), abs=1e-12)
            assert "gear_" not in result.node.get_content(metadata_mode=MetadataMode.LLM)
