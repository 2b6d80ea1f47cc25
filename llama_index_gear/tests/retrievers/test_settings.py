"""Constructors of retrievers, engines and the postprocessor: settings, graphs, prompts, and refused arguments."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.prompts import PromptTemplate, RichPromptTemplate, SelectorPromptTemplate
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters, VectorStoreQueryMode

from llama_index_gear import (
    BeamSearch,
    Budget,
    DiverseTripleBeamSearch,
    ExternalGeARRetriever,
    ExternalTripleStore,
    GeARQueryEngine,
    GeARRetriever,
    GeARVectorStore,
    GraphRetriever,
    LocalPageRank,
    NaiveGERetriever,
    RankingWeights,
    SyncGERetriever,
    T2RAGQueryEngine,
    T2RAGRetriever,
    Triple,
)
from llama_index_gear.agents.gear.paper_policy import PROMPTS, PROMPTS_OF_CALLS, GeARPolicy
from llama_index_gear.errors import ArgumentError, StoreError
from llama_index_gear.retrievers.paper_gear import PaperGeARRetriever
from llama_index_gear.retrievers.rank_bm25 import RankBM25Retriever
from llama_index_gear.testing import ScriptedLLM, WordEmbedding
from llama_index_gear.tests.asking import fill_store
from llama_index_gear.tests.store_contract import passage

QUESTION = "Where was the director of Gift born?"
ONLY = MetadataFilters(filters=[MetadataFilter(key="open", value="yes")])
SEARCH = BeamSearch(beam_size=3, beam_length=1, neighbors=7, gamma=2.0, diversity=False, scorer="additive")
PAGERANK = LocalPageRank(restart=0.3)
BUDGET = Budget(max_llm_calls=3, max_tokens=1000, timeout=60)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeARVectorStore]:
    told = {
        "gift": ("Gift is a film that Curtiz directed.", ("Gift", "directed by", "Curtiz")),
        "curtiz": ("Curtiz came from Budapest.", ("Curtiz", "born in", "Budapest")),
        "tea": ("Tea grows in Assam.", ("Tea", "grown in", "Assam")),
    }
    nodes = [passage(name, text, [fact], metadata={"open": "yes"}) for name, (text, fact) in told.items()]
    yield from fill_store(tmp_path_factory.mktemp("store"), nodes)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExternalTripleStore]:
    with ExternalTripleStore.from_path(tmp_path_factory.mktemp("graph"), embed_model=WordEmbedding()) as made:
        made.load([Triple("Gift", "director", "Curtiz"), Triple("Curtiz", "place of birth", "Budapest")])
        yield made


def write_facts(*triples: tuple[str, str, str]) -> str:
    return str({"triples": [list(triple) for triple in triples]}).replace("'", '"')


# -- where settings arrive --------------------------------------------------------------------------------------------


def settings_cases(store: GeARVectorStore, graph: ExternalTripleStore) -> list[tuple[Any, dict[str, Any]]]:
    """Return arguments of every retriever; those that exclude each other stand in two cases."""
    llm, base, sparse = ScriptedLLM(), RankBM25Retriever([TextNode(text="x")]), VectorStoreQueryMode.SPARSE
    weights, read = RankingWeights({"tied": 1.0}), PromptTemplate("Own {question} {passages}")
    select = PromptTemplate("Own {passages} {gist} {question} {queries}")
    every: dict[str, Any] = {"similarity_top_k": 4, "callback_manager": CallbackManager()}
    over: dict[str, Any] = {**every, "vector_store": store, "filters": ONLY}
    walk: dict[str, Any] = {**over, "beam_search": SEARCH}
    sync: dict[str, Any] = {**walk, "llm": llm, "link_top_k": 2, "prompts": {"read": read}}
    steps: dict[str, Any] = {**every, "budget": BUDGET, "max_steps": 2, "prompts": {"read": read}}
    clues: dict[str, Any] = {"passages_per_round": 3, "search_by": "passages", "require_grounding": False}
    clues |= {"max_rounds": 5, "prompts": {"decompose": PromptTemplate("Own {question}")}}
    shown: dict[str, Any] = {"show_top_k": 7, "show_tokens": 900, "weights": weights, "prompts": {"select": select}}
    return [
        (GraphRetriever, {**over, "weights": weights, "pagerank": PAGERANK, "vector_store_query_mode": sparse}),
        (GraphRetriever, {**over, "base_retriever": base}),
        (NaiveGERetriever, {**walk, "pagerank": PAGERANK}),
        (NaiveGERetriever, {**walk, "base_retriever": base, "graph": graph}),
        (SyncGERetriever, {**sync, "pagerank": PAGERANK}),
        (SyncGERetriever, {**sync, "base_retriever": base, "graph": graph, "check_alignment": False}),
        (GeARRetriever, {**over, **shown, "base_retriever": base, "llm": llm, "max_steps": 2, "budget": BUDGET}),
        (
            PaperGeARRetriever,
            {**steps, "expansion": SyncGERetriever(store, llm=llm), "calls": "merged", "passage_link_top_k": 5},
        ),
        (
            ExternalGeARRetriever,
            {**steps, "expansion": SyncGERetriever(store, llm=llm, graph=graph), "rank_top_k": None},
        ),
        (T2RAGRetriever, {**over, **clues, "llm": llm, "budget": BUDGET}),
    ]


OTHER_NAMES = {"max_rounds": "max_steps", "passages_per_round": "passages", "vector_store_query_mode": "mode"}


def find_setting(retriever: Any, name: str) -> Any:
    """Return an argument's value from where the retriever's flow reads it."""
    policy = getattr(retriever, "_policy", None)
    parts = [getattr(retriever, part, None) for part in ("_retrieval", "_expansion", "_backends")]
    for holder in (retriever, policy, getattr(policy, "retrieval", None), *parts):
        if hasattr(holder, OTHER_NAMES.get(name, name)):
            return getattr(holder, OTHER_NAMES.get(name, name))
    raise AssertionError(f"{name} arrives nowhere")


def test_every_argument_arrives(store: GeARVectorStore, graph: ExternalTripleStore) -> None:
    given: dict[Any, set[str]] = {}
    for kind, arguments in settings_cases(store, graph):
        retriever = kind(**arguments)
        for name in arguments.keys() - {"prompts", "expansion"}:
            assert find_setting(retriever, name) == arguments[name], name
        assert arguments.get("prompts", {}).items() <= retriever.get_prompts().items()
        given.setdefault(kind, set()).update(arguments)
    assert given == {kind: set(inspect.signature(kind).parameters) for kind in given}


def test_an_agent_has_what_its_expansion_has(store: GeARVectorStore, graph: ExternalTripleStore) -> None:
    base, prompt = RankBM25Retriever([TextNode(text="x")]), PromptTemplate("Own {question} {passages}")
    step = SyncGERetriever(
        store, base, llm=ScriptedLLM(), graph=graph, filters=ONLY, similarity_top_k=4, prompts={"read": prompt}
    )
    for agent in (PaperGeARRetriever(step), ExternalGeARRetriever(step)):
        for name in ("vector_store", "base_retriever", "llm", "graph", "filters"):
            assert getattr(agent, name) == getattr(step, name)
        assert (agent.get_prompts()["read"], agent.similarity_top_k, agent.budget) == (prompt, 10, Budget())
    assert SyncGERetriever(store, llm=ScriptedLLM(), graph=graph)._expansion.check_alignment is True
    assert SyncGERetriever(store, llm=ScriptedLLM())._expansion.check_alignment is None


def test_an_engine_takes_what_it_and_its_retriever_take(store: GeARVectorStore, graph: ExternalTripleStore) -> None:
    llm = ScriptedLLM()
    engine = GeARQueryEngine.from_vector_store(store, llm, max_steps=2, answer_top_k=3, budget=BUDGET)
    assert isinstance(engine.retriever, GeARRetriever) and engine.retriever._policy.max_steps == 2
    assert (engine.retriever.budget, engine.retriever.llm, engine._answer_top_k) == (BUDGET, llm, 3)
    for kind in (GeARQueryEngine, T2RAGQueryEngine):
        with pytest.raises(TypeError, match="max_stepps"):
            kind.from_vector_store(store, llm, max_stepps=2)
    over = GeARQueryEngine.from_vector_store(store, llm, graph=graph, max_steps=3, link_top_k=2, answer_top_k=3)
    assert isinstance(over.retriever, ExternalGeARRetriever) and over.retriever._policy.max_steps == 3
    assert over.retriever.graph is graph and over._answer_top_k == 3
    assert over.retriever._policy.expansion.link_top_k == 2  # type: ignore[attr-defined]  # an `ExternalPolicy`


# -- a graph that exists, wherever GeAR goes --------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True])
async def test_gear_s_agent_walks_a_graph_that_exists(
    store: GeARVectorStore, graph: ExternalTripleStore, is_async: bool
) -> None:
    """The graph leads to passages that state none of its triples, and noted facts are linked through it too."""
    llm = ScriptedLLM([write_facts(("Gift", "directed by", "Curtiz"), ("Dog", "chases", "Cat"))])
    base = RankBM25Retriever([TextNode(id_="tea", text="Gift of tea")])
    retriever = PaperGeARRetriever(SyncGERetriever(store, base, llm=llm, graph=graph), calls="single")
    found, trace = (
        await retriever.aretrieve_with_trace(QUESTION) if is_async else retriever.retrieve_with_trace(QUESTION)
    )
    chains = {result.node.node_id: result.node.metadata["gear_chain"] for result in found}
    assert {"gift", "curtiz", "tea"} == set(chains) and chains["tea"] == []
    assert ["Curtiz", "place of birth", "Budapest"] in chains["curtiz"]  # the graph's words, not the passages'
    gift, dog = trace.links
    assert "gift" in gift.passages and dog.passages == []  # nothing of the graph is about a dog


def test_a_missing_graph_is_found_out_before_the_model_is_asked(store: GeARVectorStore, tmp_path: Path) -> None:
    with ExternalTripleStore.from_path(tmp_path, embed_model=WordEmbedding()) as empty:
        retrievers: list[Any] = [
            SyncGERetriever(store, llm=ScriptedLLM(), graph=empty),
            PaperGeARRetriever(SyncGERetriever(store, llm=ScriptedLLM(), graph=empty)),
            ExternalGeARRetriever(SyncGERetriever(store, llm=ScriptedLLM(), graph=empty)),
        ]
        for retriever in retrievers:
            with pytest.raises(StoreError, match="load triples into it first"):
                retriever.retrieve(QUESTION)
            assert retriever.llm.history == []


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_failure_at_the_end_leaves_what_the_steps_found(store: GeARVectorStore, is_async: bool) -> None:
    """If linking the gist fails, the trace names the failure and the steps' passages are the result."""

    class Failing(BaseRetriever):
        calls = 0

        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            self.calls += 1
            if self.calls > 1:
                raise ConnectionError("refused")
            return [NodeWithScore(node=TextNode(id_="gift", text="Gift"), score=1.0)]

    llm = ScriptedLLM([write_facts(("Gift", "directed by", "Curtiz"))])
    retriever = PaperGeARRetriever(SyncGERetriever(store, Failing(), llm=llm), calls="single")
    found, trace = (
        await retriever.aretrieve_with_trace(QUESTION) if is_async else retriever.retrieve_with_trace(QUESTION)
    )
    assert {result.node.node_id for result in found} >= {"gift", "curtiz"}
    assert (trace.stopped, trace.links) == ("failed: ConnectionError: refused", [])


def test_an_error_of_our_own_at_the_end_is_raised(store: GeARVectorStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that is no request's failure does not pass for one."""

    def raise_bug(*arguments: Any) -> Any:
        raise ZeroDivisionError("a bug")
        yield

    monkeypatch.setattr(GeARPolicy, "_locate_flow", raise_bug)
    llm = ScriptedLLM([write_facts(("Gift", "directed by", "Curtiz"))])
    with pytest.raises(ZeroDivisionError, match="a bug"):
        PaperGeARRetriever(SyncGERetriever(store, llm=llm), calls="single").retrieve(QUESTION)


def test_a_fact_is_linked_to_as_many_passages_as_filters_admit(store: GeARVectorStore) -> None:
    """Passages that the filters exclude take no place of a fact's passages."""
    base = RankBM25Retriever(
        [TextNode(id_=f"out-{n}", text="Gift directed by Curtiz") for n in range(3)]
        + [TextNode(id_="tea", text="Gift of tea from the gardens of Assam")]
    )
    llm = ScriptedLLM([write_facts(("Gift", "directed by", "Curtiz"))])
    retriever = PaperGeARRetriever(
        SyncGERetriever(store, base, llm=llm, filters=ONLY), calls="single", passage_link_top_k=1
    )
    (link,) = retriever.retrieve_with_trace(QUESTION)[1].links
    assert "tea" in link.passages


def test_the_postprocessor_walks_a_graph_that_exists(store: GeARVectorStore, graph: ExternalTripleStore) -> None:
    given = [NodeWithScore(node=TextNode(id_="tea", text="Gift of tea"), score=1.0)]
    found = DiverseTripleBeamSearch(store, graph=graph).postprocess_nodes(given, query_str=QUESTION)
    assert {"gift", "curtiz", "tea"} == {result.node.node_id for result in found}
    expected = NaiveGERetriever(
        store,
        RankBM25Retriever([given[0].node]),
        graph=graph,
    ).retrieve(QUESTION)
    assert found == expected


# -- what would overrule something else -------------------------------------------------------------------------------


def test_of_two_arguments_none_overrules_the_other(store: GeARVectorStore, graph: ExternalTripleStore) -> None:
    llm, base = ScriptedLLM(), RankBM25Retriever([TextNode(text="x")])
    pairs: list[tuple[Any, dict[str, Any], str]] = [
        (GraphRetriever, {"base_retriever": base, "vector_store_query_mode": VectorStoreQueryMode.SPARSE}, "base_retr"),
        (NaiveGERetriever, {"graph": graph, "pagerank": PAGERANK}, "pagerank"),
        (SyncGERetriever, {"llm": llm, "check_alignment": False}, "check_alignment"),
        (DiverseTripleBeamSearch, {"graph": graph, "pagerank": PAGERANK}, "pagerank"),
    ]
    for make, arguments, named in pairs:
        with pytest.raises(ArgumentError, match=named):
            make(store, **arguments)
    with pytest.raises(ArgumentError, match=r"expansion has no graph: write SyncGERetriever\(store, graph=graph\)"):
        ExternalGeARRetriever(SyncGERetriever(store, llm=llm))
    with pytest.raises(ArgumentError, match="streaming"):
        GeARQueryEngine(GeARRetriever(store, llm=llm), get_response_synthesizer(llm=llm), streaming=True)
    with pytest.raises(ArgumentError, match="abstain: write GeARRetriever"):
        GeARQueryEngine(PaperGeARRetriever(SyncGERetriever(store, llm=llm)), abstain=True)


# -- prompts ----------------------------------------------------------------------------------------------------------

READERS: list[tuple[Any, str]] = [
    (PromptTemplate("Mine {question} {passages}"), "Mine"),
    (PromptTemplate("Mapped {q} {p}", template_var_mappings={"question": "q", "passages": "p"}), "Mapped"),
    (
        PromptTemplate(
            "Counted {asked}", function_mappings={"asked": lambda **given: f"{given['question']} {given['passages']}"}
        ),
        "Counted",
    ),
    (RichPromptTemplate("Rich {{ question }} {{ passages }}"), "Rich"),
    (SelectorPromptTemplate(default_template=PromptTemplate("Chosen {question} {passages}")), "Chosen"),
    (
        SelectorPromptTemplate(
            default_template=PromptTemplate("Both {q} {passages}", template_var_mappings={"question": "q"})
        ),
        "Both",
    ),
]


@pytest.mark.parametrize(("prompt", "begins"), READERS, ids=[begins for _, begins in READERS])
def test_prompts_of_every_form_are_asked(store: GeARVectorStore, prompt: Any, begins: str) -> None:
    def ask(use: Any) -> str:
        llm = ScriptedLLM(["[]", "[]", "[]"])
        use(llm)
        return str(llm.history[0])

    given = [NodeWithScore(node=TextNode(id_="gift", text="Gift"), score=1.0)]
    for shown in (
        ask(lambda llm: SyncGERetriever(store, llm=llm, prompts={"read": prompt}).retrieve(QUESTION)),
        ask(
            lambda llm: PaperGeARRetriever(
                SyncGERetriever(store, llm=llm), calls="single", prompts={"read": prompt}
            ).retrieve(QUESTION)
        ),
        ask(
            lambda llm: DiverseTripleBeamSearch(store, llm=llm, prompts={"read": prompt}).postprocess_nodes(
                given, query_str=QUESTION
            )
        ),
    ):
        assert shown.removeprefix("user: ").startswith(begins) and QUESTION in shown and "Gift" in shown


def test_where_nobody_reads_there_is_no_prompt(store: GeARVectorStore) -> None:
    for owner in (NaiveGERetriever(store), DiverseTripleBeamSearch(store)):
        assert owner.get_prompts() == {}
        with pytest.raises(ArgumentError, match="there is no prompt 'read'"):
            owner.update_prompts({"read": PromptTemplate("{question} {passages}")})


def test_every_prompt_is_shown_and_can_be_replaced(store: GeARVectorStore, graph: ExternalTripleStore) -> None:
    llm = ScriptedLLM()
    owners: list[tuple[Any, set[str]]] = [
        (SyncGERetriever(store, llm=llm), {"read"}),
        (DiverseTripleBeamSearch(store, llm=llm), {"read"}),
        (PaperGeARRetriever(SyncGERetriever(store, llm=llm)), {"read", "gist", "reason", "rewrite"}),
        (PaperGeARRetriever(SyncGERetriever(store, llm=llm), calls="merged"), {"read", "merged", "rewrite"}),
        (PaperGeARRetriever(SyncGERetriever(store, llm=llm), calls="single"), {"read"}),
        (ExternalGeARRetriever(SyncGERetriever(store, llm=llm, graph=graph)), {"read", "decide", "rank"}),
        (T2RAGRetriever(store, llm=llm), {"decompose", "resolve"}),
    ]
    for owner, expected in owners:
        assert set(owner.get_prompts()) == expected
        for name, prompt in owner.get_prompts().items():
            variables = " ".join(f"{{{variable}}}" for variable in prompt.template_vars if variable != "problem")
            own = PromptTemplate(f"Own {variables}")
            owner.update_prompts({name: own})
            assert owner.get_prompts()[name].get_template() == own.get_template()
            with pytest.raises(ArgumentError, match="lacks the variable"):
                owner.update_prompts({name: PromptTemplate("Own")})
            with pytest.raises(ArgumentError, match=r"write PromptTemplate\("):
                owner.update_prompts({name: "Own"})
            assert owner.get_prompts()[name].get_template() == own.get_template()
        with pytest.raises(ArgumentError, match="there is no prompt 'nonsense'"):
            owner.update_prompts({"nonsense": PromptTemplate("x")})


def test_a_prompt_that_no_call_uses_is_refused(store: GeARVectorStore) -> None:
    """It would be given in vain. The error names the calls, and the prompts that they use."""
    llm = ScriptedLLM()
    for calls, names in PROMPTS_OF_CALLS.items():
        for name in PROMPTS.keys() - set(names):
            said = f"no prompt '{name}' with calls='{calls}'; there are: {', '.join(names)}$"
            with pytest.raises(ArgumentError, match=said):
                PaperGeARRetriever(SyncGERetriever(store, llm=llm), calls=calls, prompts={name: PROMPTS[name]})
            with pytest.raises(ArgumentError, match=said):
                PaperGeARRetriever(SyncGERetriever(store, llm=llm), calls=calls).update_prompts({name: PROMPTS[name]})


def test_of_several_prompts_all_are_replaced_or_none(store: GeARVectorStore) -> None:
    step = SyncGERetriever(store, llm=ScriptedLLM())
    retriever = PaperGeARRetriever(step)
    before = retriever.get_prompts()
    good_one = PromptTemplate("{question} {passages}")
    with pytest.raises(ArgumentError):
        retriever.update_prompts({"read": good_one, "gist": PromptTemplate("{question}")})
    assert retriever.get_prompts() == before
    retriever.update_prompts({"read": good_one})
    policy: Any = retriever._policy
    assert policy.expansion.prompts["read"] is good_one  # the expansion's and the policy's are one
    assert step.get_prompts() == {"read": before["read"]}


def test_a_pool_is_the_same_in_the_retriever_and_the_agent(store: GeARVectorStore) -> None:
    policy: Any = GeARQueryEngine.from_vector_store(store, llm=ScriptedLLM()).retriever._policy
    retriever = GraphRetriever(store)
    assert policy.retrieval.weights == retriever.weights == RankingWeights.default()
    assert policy.retrieval.pagerank == retriever._retrieval.pagerank == LocalPageRank(epsilon=5e-4)
