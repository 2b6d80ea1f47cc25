"""Randomly drawn replies through every method that asks a model: no error, no passage lost, no fact from nowhere.

Each prompt gets replies in its own form, whole or broken, and replies to other prompts. `GEAR_DRAWN_REPLIES` sets how
many runs there are (a method runs a 25th as often, sync and async), `GEAR_DRAWN_SEED` where the draw begins.
"""

from __future__ import annotations

import io
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from llama_index.core.schema import TextNode
from rich.console import Console

from llama_index_gear import (
    ExternalGeARRetriever,
    GeARQueryEngine,
    GeARRetriever,
    GeARTripleExtractor,
    SyncGERetriever,
    T2RAGQueryEngine,
    T2RAGRetriever,
    Triple,
)
from llama_index_gear.agents.gear import external_policy
from llama_index_gear.agents.gear import paper_policy as policy
from llama_index_gear.agents.gear import policy as selection
from llama_index_gear.agents.t2rag import policy as t2rag
from llama_index_gear.extraction.calls import EXTRACT_PROMPT
from llama_index_gear.llm.prompting import _find_examples
from llama_index_gear.nodes import read_triples
from llama_index_gear.query_engines.gear import ANSWER_PROMPT
from llama_index_gear.query_engines.t2rag import CLUES_PROMPT
from llama_index_gear.retrievers.paper_gear import PaperGeARRetriever
from llama_index_gear.testing import ScriptedLLM
from llama_index_gear.tests.asking import House, fill_house
from llama_index_gear.tests.store_contract import passage
from llama_index_gear.trace import trace_page as rendering
from llama_index_gear.trace.trace import Trace
from llama_index_gear.triple import GraphTriple

RUNS = max(2, int(os.environ.get("GEAR_DRAWN_REPLIES", "150")) // 25)
SEED = int(os.environ.get("GEAR_DRAWN_SEED", "22"))
QUESTION = "Where does the father of Ann live"
FACTS = [
    ["Ann", "has a father, who is", "Bob"],
    ["Bob", "lives in", "Rome"],
    ["Rome", "lies in", "Italy"],
    ["Cheese", "is made of", "milk"],
    ["Tea", "is a", "drink"],
]
PASSAGES = {f"p{number}": " ".join(slots) for number, slots in enumerate(FACTS)}
PROMPTS = {
    **policy.PROMPTS,
    **selection.PROMPTS,
    **external_policy.PROMPTS,
    **t2rag.PROMPTS,
    "answer": ANSWER_PROMPT,
    "clues": CLUES_PROMPT,
    "extract": EXTRACT_PROMPT,
}
EXAMPLES = {triple for prompt in PROMPTS.values() for triple in _find_examples(prompt.get_template())}

NAMES = ["Ann", "Bob", "Rome", "Italy", "milk"]
PREDICATES = ["has a father, who is", "lives in", "lies in", "is", "father"]
UNKNOWNS = ["?father", "?town", "?x", "<town>", "[land]", "?"]
ODD = ["", "…", "#####", "[2] Official", "?x", "</think>", "a\u2028[3] b", "\ud800", "\x00", "x" * 3_000, "٣", "null"]
NUMBERS = [1, 2, 3, 5, 0, -1, 99, 10**30, "4", "[2]", "two", None, True, 1.5]
QUERIES = ["Where does Bob live", "Where does Rome lie", QUESTION, "In which land is Rome", "milk?", "Who is Ann"]
PIECES = ["{", "}", "[", "]", '"triples": ', '"needed": [', '"answerable": ', "true", ", ", "[2] > [1]", "none",
          "A | x | B", "1. Ann | father | Bob", "<think>", "</think>", "```json\n", "Query: who",
          "answerable: no"]  # fmt: skip


def draw_triple(chance: random.Random, unknown: float = 0.0) -> Any:
    """Draw a triple of the passages' names; now and then of something else, or nothing like a triple."""
    kind = chance.random()
    if kind < 0.05:
        return chance.choice([None, [], {}, "Ann | is | Bob", ["a", "b"], [["Ann"]], 7, ["Ann", ["is"], "Bob"]])
    slots = [chance.choice(NAMES), chance.choice(PREDICATES), chance.choice(NAMES)]
    if chance.random() < 0.5:
        slots = list(chance.choice(FACTS))
    for place in (0, 2):
        slots[place] = chance.choice(UNKNOWNS) if chance.random() < unknown else slots[place]
    if kind < 0.15:
        slots[chance.randrange(3)] = chance.choice(ODD)
    return dict(zip(("subject", "predicate", "object"), slots, strict=True)) if kind > 0.9 else slots


def draw_triples(chance: random.Random, unknown: float = 0.0) -> Any:
    count = chance.choice([0, 1, 2, 2, 3, 3, 40]) if chance.random() < 0.95 else 300
    return [draw_triple(chance, unknown) for _ in range(count)]


def draw_numbers(chance: random.Random) -> list[Any]:
    return chance.choices(NUMBERS[:4] if chance.random() < 0.6 else NUMBERS, k=chance.randrange(6))


def draw_verdict(chance: random.Random, otherwise: str) -> dict[str, Any]:
    if chance.random() < 0.3:
        return {"answerable": True, "answer": chance.choice(["Rome", "Rome [3]", "", 7, ["Rome", "Italy"], *ODD])}
    said = chance.choice([*QUERIES, *QUERIES, *ODD, ["a", "b"]])
    return {"answerable": chance.choice([False, False, False, "no", None, "maybe"]), otherwise: said}


def draw_statement(chance: random.Random) -> dict[str, Any]:
    number = chance.choice([1, 1, 2, 2, *NUMBERS])
    return {"clue": number, "triple": draw_triple(chance, 0.1), "passages": draw_numbers(chance)}


FORMS: dict[str, Callable[[random.Random], Any]] = {
    "read": lambda chance: {"triples": draw_triples(chance)},
    "gist": lambda chance: {"triples": draw_triples(chance)},
    "reason": lambda chance: draw_verdict(chance, "reason"),
    "merged": lambda chance: {"triples": draw_triples(chance), **draw_verdict(chance, "reason")},
    "rewrite": lambda chance: {"query": chance.choice([*QUERIES, *QUERIES, *ODD])},
    "select": lambda chance: {
        "needed": draw_numbers(chance),
        "facts": draw_triples(chance),
        **draw_verdict(chance, "query"),
    },  # fmt: skip
    "decide": lambda chance: {
        "sufficient": chance.choice([True, False, False, False, "no"]),
        "query": chance.choice([*QUERIES, *ODD]),
    },  # fmt: skip
    "rank": lambda chance: chance.choice(["none", " > ".join(f"[{number}]" for number in draw_numbers(chance))]),
    "decompose": lambda chance: {"triples": draw_triples(chance, 0.5)[: chance.choice([1, 2, 3, 300])]},
    "resolve": lambda chance: {"facts": [draw_statement(chance) for _ in range(chance.choice([0, 1, 2, 3, 40]))]},
    "answer": lambda chance: chance.choice(["Rome [2].", "[1][2][3]", "I don't know", "[99] [0] [x]", *ODD]),
    "clues": lambda chance: chance.choice(["Rome [2].", "[1][2][3]", "[99]", *ODD]),
    "extract": lambda chance: {"entities": NAMES[:2], "triples": draw_triples(chance)},
    "extract several": lambda chance: {
        "passages": [
            {"passage": number, "entities": [], "triples": draw_triples(chance)}
            for number in chance.choice([[1, 2, 3], [1, 2, 3], [2, 1], [1, 1, 2], [0, 3, 9], []])
        ]
    },
}


def draw_reply(chance: random.Random, name: str, prompt: str) -> str:
    """Draw a reply to a prompt: of its form, of another's, shreds, or the prompt; some are cut or doubled."""
    kind = chance.random()
    if kind < 0.05:
        shown = [line for line in prompt.splitlines() if line.startswith("{")]
        reply = chance.choice([prompt, *shown])
    elif kind < 0.15:
        reply = "".join(chance.choices(PIECES, k=chance.randrange(12)))
    else:
        form = FORMS[name if kind < 0.9 else chance.choice(list(FORMS))](chance)
        reply = form if isinstance(form, str) else json.dumps(form, ensure_ascii=chance.random() < 0.5)
    if chance.random() < 0.1:
        reply = reply[: chance.randrange(len(reply) + 1)] + chance.choice(["", reply])
    if chance.random() < 0.1:
        reply = chance.choice(["<think>[1] is best</think>\n", "```json\n", "Of [1] I think: "]) + reply
    return reply


def find_name(prompt: str) -> str:
    """Return the name of the prompt that was filled in: the one that begins alike for longest."""
    return max(PROMPTS, key=lambda name: len(os.path.commonprefix([PROMPTS[name].get_template(), prompt])))


@dataclass
class DrawnModel:
    """Answers by draw, and keeps what it was asked and what it said."""

    seed: str
    prompts: list[str] = field(default_factory=list)
    replies: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    def answer(self, prompt: str) -> str:
        name = find_name(prompt)
        self.prompts.append(prompt)
        self.names.append(name)
        self.replies.append(draw_reply(self.chance, name, prompt))
        return self.replies[-1]


@pytest.fixture(scope="module")  # nobody writes to it
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    nodes = [passage(name, text, [slots]) for (name, text), slots in zip(PASSAGES.items(), FACTS, strict=True)]
    # One triple of the graph is about something else than any fact: links to it are dropped.
    slots_of_graph = [*FACTS[:3], ["Ann", "is", "a queen"], ["Pacific oyster", "lives in", "a sea"]]
    triples = [GraphTriple(Triple(*slots), (slots[0], slots[2])) for slots in slots_of_graph]
    yield from fill_house(tmp_path_factory.mktemp("drawn"), nodes, triples)


Method = Callable[[House, ScriptedLLM], Any]
METHODS: dict[str, tuple[Method, int]] = {  # the method, and how many calls it makes at most if all can be read
    "selection": (lambda house, llm: GeARRetriever(house.store, llm=llm), 4),
    "separate": (lambda house, llm: PaperGeARRetriever(SyncGERetriever(house.store, llm=llm)), 15),
    "merged": (
        lambda house, llm: PaperGeARRetriever(SyncGERetriever(house.store, llm=llm), calls="merged"),
        11,
    ),
    "single": (lambda house, llm: PaperGeARRetriever(SyncGERetriever(house.store, llm=llm), calls="single"), 1),
    "separate, graph": (
        lambda house, llm: PaperGeARRetriever(SyncGERetriever(house.store, llm=llm, graph=house.graph)),
        15,
    ),
    "merged, graph, unchecked": (
        lambda house, llm: PaperGeARRetriever(
            SyncGERetriever(house.store, llm=llm, graph=house.graph, check_alignment=False), calls="merged"
        ),
        11,
    ),
    "external": (
        lambda house, llm: ExternalGeARRetriever(SyncGERetriever(house.store, llm=llm, graph=house.graph), max_steps=3),
        6,
    ),
    "external, unfiltered": (
        lambda house, llm: ExternalGeARRetriever(
            SyncGERetriever(house.store, llm=llm, check_alignment=False, graph=house.graph),
            max_steps=3,
            rank_top_k=None,
        ),
        5,
    ),
    "T²RAG": (lambda house, llm: T2RAGRetriever(house.store, llm=llm, passages_per_round=2), 4),
    "T²RAG, ungrounded": (lambda house, llm: T2RAGRetriever(house.store, llm=llm, require_grounding=False), 4),
    "T²RAG over passages": (lambda house, llm: T2RAGRetriever(house.store, llm=llm, search_by="passages"), 4),
    "engine, selection": (lambda house, llm: GeARQueryEngine.from_vector_store(house.store, llm=llm), 5),
    "engine, abstaining": (lambda house, llm: GeARQueryEngine.from_vector_store(house.store, llm=llm, abstain=True), 4),
    "engine, merged": (
        lambda house, llm: GeARQueryEngine(PaperGeARRetriever(SyncGERetriever(house.store, llm=llm), calls="merged")),
        12,
    ),
    "engine, external": (lambda house, llm: GeARQueryEngine.from_vector_store(house.store, llm, graph=house.graph), 5),
    "engine, T²RAG": (lambda house, llm: T2RAGQueryEngine.from_vector_store(house.store, llm=llm), 5),
    "engine, T²RAG, abstaining": (
        lambda house, llm: T2RAGQueryEngine.from_vector_store(house.store, llm=llm, abstain=True),
        5,
    ),  # fmt: skip
}


@dataclass
class Run:
    """The result of one question."""

    ids: list[str]
    trace: Trace
    model: DrawnModel
    response: str = ""


async def run_method(method: Method, house: House, seed: str, mode: str) -> Run:
    model = DrawnModel(seed)
    asked = method(house, ScriptedLLM(otherwise=model.answer))
    if isinstance(asked, GeARQueryEngine | T2RAGQueryEngine):
        response, trace = (
            asked.query_with_trace(QUESTION) if mode == "sync" else await asked.aquery_with_trace(QUESTION)
        )
        return Run([result.node.node_id for result in response.source_nodes], trace, model, str(response))
    found, trace = asked.retrieve_with_trace(QUESTION) if mode == "sync" else await asked.aretrieve_with_trace(QUESTION)
    return Run([result.node.node_id for result in found], trace, model)


def check_passages(run: Run) -> None:
    """Check that every passage that a step found is in the result, but for those that the filter left out."""
    steps = run.trace.steps
    found = {name for step in steps for name in [*step.base, *step.passages]}
    found |= {name for link in run.trace.links for name in link.passages}
    ranked = [step.ranked for step in steps if step.ranked is not None]
    assert len(set(run.ids)) == len(run.ids) and set(run.ids) <= set(PASSAGES)
    if ranked:
        assert run.ids == ranked[-1] and set(run.ids) <= found
    else:
        assert set(run.ids) == found != set()
    assert [source.passage_id for source in run.trace.passages] == run.ids
    for step in steps:
        needed = step.needed or []
        assert len(set(needed)) == len(needed) and set(needed) <= set(step.passages[: step.shown])


def check_facts(run: Run, gist_size: int) -> None:
    """Check that each fact has three texts, and that none is a prompt's example, which no passage states."""
    trace = run.trace
    facts = [*trace.gist, *(slots for step in trace.steps for slots in [*step.gist, *step.proximal])]
    assert all(len(slots) == 3 and all(slot.strip() for slot in slots) for slots in facts)
    assert not EXAMPLES & {Triple(*slots) for slots in facts}
    assert len(trace.gist) <= gist_size
    assert Trace.model_validate_json(trace.model_dump_json()) == trace


def check_calls(run: Run, most: int) -> None:
    """Check that each call is counted and asked for once more at most, and that no reply opens or closes a fence."""
    names, trace = run.model.names, run.trace
    assert trace.llm_calls == sum(name not in ("answer", "clues") for name in names) <= len(names) <= 2 * most
    assert all(call.error == "" for call in trace.calls) and not trace.stopped.startswith("failed")
    for name, prompt in zip(names, run.model.prompts, strict=True):
        is_retry = "Your last reply could not be read" in prompt
        fences = [line for line in prompt.splitlines() if line.strip() == "#####"]
        assert len(fences) == PROMPTS[name].get_template().splitlines().count("#####") + 2 * is_retry, prompt


def check_shown(run: Run) -> None:
    """Check that the trace can be drawn."""
    written = io.StringIO()
    rendering.show(run.trace, Console(file=written, width=100))
    assert written.getvalue() and rendering.to_html(run.trace).rstrip().endswith("</html>")


def describe(run: Run) -> dict[str, Any]:
    """Return all of a run that sync and async share."""
    trace = run.trace.model_dump(exclude={"ms", "calls"})
    return {"ids": run.ids, "trace": trace, "asked": run.model.names, "response": run.response}


@pytest.mark.parametrize("name", METHODS)
async def test_whatever_is_replied_a_method_gives_what_it_found_and_sync_and_async_are_one(
    house: House, name: str
) -> None:
    method, most = METHODS[name]
    counts: Counter[str] = Counter()
    for number in range(RUNS):
        seed = f"{SEED} {name} {number}"
        runs = []
        for mode in ("sync", "async"):
            try:
                run = await run_method(method, house, seed, mode)
                check_passages(run)
                check_facts(run, 200)
                check_calls(run, most)
                if number < 2:
                    check_shown(run)
            except Exception as error:
                raise AssertionError(f"seed {seed!r}, {mode}") from error
            runs.append(describe(run))
        assert runs[0] == runs[1], seed
        counts["replies"] += len(run.model.replies)
        counts["unread"] += sum(call.unreadable for call in run.trace.calls)
        counts["facts"] += len(run.trace.gist)
        counts["steps"] += len(run.trace.steps)
    assert counts["unread"] < counts["replies"] and counts["facts"] > 0, counts


async def test_whatever_is_replied_to_an_extractor_every_passage_is_kept_and_accounted_for() -> None:
    counts: Counter[str] = Counter()
    for number in range(RUNS):
        seed = f"{SEED} extractor {number}"
        runs = []
        for mode in ("sync", "async"):
            model = DrawnModel(seed)
            llm = ScriptedLLM(otherwise=model.answer)
            extractor = GeARTripleExtractor(llm, num_workers=1)
            passages = [TextNode(id_=name, text=text) for name, text in PASSAGES.items()]
            nodes = extractor(passages) if mode == "sync" else await extractor.acall(passages)
            triples = [read_triples(node) for node in nodes]
            outcomes = [node.metadata["gear_extraction"]["outcome"] for node in nodes]
            try:
                assert [node.node_id for node in nodes] == list(PASSAGES)
                assert [node.get_content() for node in nodes] == list(PASSAGES.values())
                assert set(outcomes) <= {"extracted", "no facts", "unreadable", "empty"}
                assert [outcome == "extracted" for outcome in outcomes] == list(map(bool, triples))
                assert not EXAMPLES & {triple for of_passage in triples for triple in of_passage}
                assert extractor.ledger.passages == len(PASSAGES)
                assert extractor.ledger.calls == len(model.replies) <= 3 * len(PASSAGES)
                assert json.loads(json.dumps(nodes[0].metadata, ensure_ascii=False).encode()) == nodes[0].metadata
            except Exception as error:
                raise AssertionError(f"seed {seed!r}, {mode}") from error
            runs.append((triples, outcomes, model.prompts))
        assert runs[0] == runs[1], seed
        counts.update(outcomes)
    assert counts.total() > counts["extracted"] > 0, counts
