"""`compare`: what the graph is worth on a user's own questions, beside dense and hybrid search."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from click import ClickException, echo
from llama_index.core import VectorStoreIndex
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import VectorStoreQueryMode
from tqdm import tqdm

from llama_index_gear import GeARVectorStore, GraphRetriever
from llama_index_gear.characters import count, unify_spelling
from llama_index_gear.nodes import shorten
from llama_index_gear.ranking.learning import RankingFit, fit_ranking
from llama_index_gear.ranking.measures import permutation_p_value, recall
from llama_index_gear.ranking.pool import Pool
from llama_index_gear.ranking.ranker import rank_ids

METHODS = DENSE, HYBRID, GRAPH = "dense", "hybrid", "GraphRetriever"
CUTS = (2, 5, 10)
_VERDICT_CUT = 5
_CHANCE = 0.05
_GOLD_KEYS = ("gold_ids", "gold_passage_ids")
_FORM = (
    'write a JSON list, or a JSON object a line: {"question": "…", "gold_ids": ["file.txt"]}; gold_ids may be missing'
)
_SHOWN = 10  # questions whose lists are shown
_COLUMN = 34  # characters
_LINE = 100  # characters of a question in a list
_NO_NEED = "You don't need the graph here"


@dataclass(frozen=True)
class Question:
    """A question, and the ids of the passages or files that answer it, in one spelling; empty if nobody knows them."""

    text: str
    gold: frozenset[str]


@dataclass(frozen=True)
class Found:
    """The passages that each method found for a question.

    Attributes:
        question: the question.
        lists: method → its passages, best first, at most ten.

    """

    question: Question
    lists: Mapping[str, Sequence[BaseNode]]

    def recall(self, method: str, cut: int) -> float:
        """Return the share of what the question needs that is among a method's first passages."""
        names = [_read_gold_name(node, self.question.gold) for node in self.lists[method]]
        return recall(names, self.question.gold, cut)

    def gain(self, plain: str) -> float:
        """Return the graph's share less that of a plain search, among the first five passages of each."""
        return self.recall(GRAPH, _VERDICT_CUT) - self.recall(plain, _VERDICT_CUT)

    def find_new(self, method: str, other: str) -> set[str]:
        """Return the ids of the first five passages of a method that another's first five lack."""
        first, others = ({node.node_id for node in self.lists[name][:_VERDICT_CUT]} for name in (method, other))
        return first - others


def read_questions(path: Path) -> list[Question]:
    """Read questions from a file: a JSON list, or a JSON value a line.

    Raises:
        ClickException: the file holds something else, or no question.

    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
        if text.lstrip().startswith("["):
            rows = list(enumerate(json.loads(text), start=1))
        else:
            rows = [
                (number, _read_line(path, number, line))
                for number, line in enumerate(text.split("\n"), start=1)
                if line.strip()
            ]
    except ValueError as error:
        raise ClickException(f"{path} is no JSON ({error}): {_FORM}") from error
    questions = [_read_question(row, f"{path}, question {number}") for number, row in rows]
    if not questions:
        raise ClickException(f"{path} holds no question: {_FORM}")
    return questions


def _read_line(path: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise ClickException(f"{path}, line {number}, is no JSON ({error}): {_FORM}") from error


def _read_question(row: Any, where: str) -> Question:
    values = {"question": row} if isinstance(row, str) else row
    text = values.get("question") if isinstance(values, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise ClickException(f"{where}: {_FORM}")
    gold: Any = next((values[key] for key in _GOLD_KEYS if key in values), [])
    if not isinstance(gold, list) or not all(isinstance(name, str) for name in gold):
        raise ClickException(f"{where}: gold_ids must be a list of names of files, or of ids of passages")
    return Question(text, frozenset(map(unify_spelling, gold)))


def compare(store: GeARVectorStore, questions: Sequence[Question]) -> list[Found]:
    """Ask every question by dense search, by hybrid search, and by `GraphRetriever`.

    Raises:
        ClickException: a gold id is neither a stored file nor a stored passage.

    """
    _check_gold(store, questions)
    index = VectorStoreIndex.from_vector_store(store, embed_model=store.embed_model)
    width = max(CUTS)
    retrievers = {
        DENSE: index.as_retriever(similarity_top_k=width),
        HYBRID: index.as_retriever(similarity_top_k=width, vector_store_query_mode=VectorStoreQueryMode.HYBRID),
        GRAPH: GraphRetriever(store, similarity_top_k=width),
    }
    found = []
    with tqdm(questions, desc="Asking", unit="question") as bar:
        for question in bar:
            results = {name: retriever.retrieve(question.text) for name, retriever in retrievers.items()}
            lists = {name: [result.node for result in ranked[:width]] for name, ranked in results.items()}
            found.append(Found(question, lists))
    return found


def _check_gold(store: GeARVectorStore, questions: Sequence[Question]) -> None:
    if not any(question.gold for question in questions):
        return
    known = {name for node in store.get_nodes(with_embeddings=False) for name in _read_names(node)}
    for number, question in enumerate(questions, start=1):
        if unknown := sorted(question.gold - known):
            raise ClickException(
                f"question {number}: the store has neither a file nor a passage {unknown[0]!r}; a file is named by its "
                f"path below the folder, such as {min(known, default='a.txt')!r}; `ask --json` shows ids of passages"
            )


def _read_names(node: BaseNode) -> list[str]:
    """Return the names under which a question may name a passage, in one spelling: its id, its file, its document."""
    return [unify_spelling(name) for name in (node.node_id, node.metadata.get("file"), node.ref_doc_id) if name]


def _read_gold_name(node: BaseNode, gold: frozenset[str]) -> str:
    names = _read_names(node)
    return next((name for name in names if name in gold), names[0])


def show_comparison(found: Sequence[Found]) -> None:
    """Print recall where it is known, lists side by side where it isn't, and a verdict."""
    known = [one for one in found if one.question.gold]
    unknown = [one for one in found if not one.question.gold]
    if known:
        _show_recall(known)
    if unknown:
        _show_lists(unknown)


def _average(found: Sequence[Found], method: str, cut: int) -> float:
    """Return a method's recall of all questions, in percent."""
    return 100 * fmean(one.recall(method, cut) for one in found)


def _show_recall(found: Sequence[Found]) -> None:
    echo(f"recall, in percent, of {count(len(found), 'question')}")
    echo(
        f"{'':16}"
        + "".join(f"{f'at {cut}':>8}" for cut in CUTS)
        + "".join(f"{f'all in {cut}':>11}" for cut in CUTS[1:])
    )
    for method in METHODS:
        recalls = "".join(f"{_average(found, method, cut):8.1f}" for cut in CUTS)
        whole = [100 * fmean(one.recall(method, cut) == 1 for one in found) for cut in CUTS[1:]]
        echo(f"{method:16}{recalls}" + "".join(f"{share:11.1f}" for share in whole))
    plain = max((HYBRID, DENSE), key=lambda name: _average(found, name, _VERDICT_CUT))
    gains = [one.gain(plain) for one in found]
    p_value = permutation_p_value(gains)
    changes = sorted(zip(gains, (one.question.text for one in found), strict=True), key=lambda change: -abs(change[0]))
    better, worse = ([change for change in changes if change[0] * sign > 0] for sign in (1, -1))
    echo(
        f"\n{GRAPH} against {plain}, at {_VERDICT_CUT}: {100 * fmean(gains):+.1f} points; better on {len(better)}, "
        f"worse on {len(worse)}; p = {p_value:.2g} (paired permutation test)"
    )
    echo(judge(gains, p_value, plain))
    for heading, changed in (("better", better), ("worse", worse)):
        if changed:
            echo(f"\n{heading}, in points of recall at {_VERDICT_CUT}:")
        for gain, text in changed:
            echo(f"{100 * gain:+6.0f}  {shorten(text, _LINE)}")


def judge(gains: Sequence[float], p_value: float, plain: str) -> str:
    """Return the verdict on the graph, in plain words.

    Args:
        gains: for each question, its recall less that of the plain search.
        p_value: of these gains.
        plain: name of the plain search.

    """
    different = sum(gain != 0 for gain in gains)
    least = math.ceil(1 - math.log2(_CHANCE))  # questions on which the two differ, all one way, for such a p-value
    if p_value < _CHANCE:
        if fmean(gains) > 0:
            return f"The graph helps beyond chance: use {GRAPH}."
        return f"The graph hurts beyond chance: use {plain} search. {_NO_NEED}."
    if not different and len(gains) < least:
        return (
            f"Too few to tell: both find as much on {count(len(gains), 'question')}. Add questions, some of them hard."
        )
    if not different:
        return f"{_NO_NEED}: {plain} search finds as much on every question."
    if 2 / 2**different >= _CHANCE:
        return (
            f"Too few to tell: the two differ on {count(different, 'question')}, and {least} are the least for a "
            "verdict. Add questions."
        )
    return f"{_NO_NEED}, as far as {count(len(gains), 'question')} can tell: the difference may be chance."


def _show_lists(found: Sequence[Found]) -> None:
    different = [one for one in found if one.find_new(GRAPH, HYBRID)]
    different.sort(key=lambda one: len(one.find_new(GRAPH, HYBRID)), reverse=True)
    for one in different[:_SHOWN]:
        new = one.find_new(GRAPH, HYBRID)
        echo(f"\n{one.question.text}")
        echo("   " + "".join(f"{name:{_COLUMN}}" for name in METHODS).rstrip())
        for place in range(_VERDICT_CUT):
            cells = [_format_cell(one.lists[name], place, new if name == GRAPH else set()) for name in one.lists]
            if any(cells):
                echo(f"{place + 1}. " + "".join(f"{cell:{_COLUMN}}" for cell in cells).rstrip())
    if len(different) > _SHOWN:
        echo(f"\n… and {count(len(different) - _SHOWN, 'question')} more whose lists differ less")
    if not different:
        echo(f"{_NO_NEED}: on every one of {count(len(found), 'question')} it has hybrid search's first five.")
        return
    mean = fmean(len(one.find_new(GRAPH, HYBRID)) for one in found)
    echo(
        f"\n{GRAPH}'s first five differ from hybrid search's on {len(different)} of {count(len(found), 'question')}, "
        f"by {mean:.1f} passages on average (marked +).\nAre these what the answers need? If not, you don't need the "
        "graph here. With gold_ids in the file, compare counts it."
    )


def _format_cell(nodes: Sequence[BaseNode], place: int, new: set[str]) -> str:
    if place >= len(nodes):
        return ""
    node_id = nodes[place].node_id
    width = _COLUMN - 4
    short = node_id if len(node_id) <= width else f"…{node_id[1 - width :]}"
    return f"{'+' if node_id in new else ' '} {short}"


def learn_weights(store: GeARVectorStore, questions: Sequence[Question]) -> RankingFit:
    """Learn the ranking's weights from the questions whose gold ids are known.

    Of a file with several passages the one counts that ranks first before learning.

    Raises:
        ArgumentError: there are too few such questions.

    """
    known = [question for question in questions if question.gold]
    retriever = GraphRetriever(store)
    with tqdm(known, desc="Gathering pools", unit="question") as bar:
        pools = {question.text: retriever.gather_pool(question.text) for question in bar}
    names = {node.node_id: _read_names(node) for node in store.get_nodes(with_embeddings=False)}
    gold_ids = [_choose_gold(pools[question.text], question.gold, names, retriever) for question in known]
    return fit_ranking(pools.__getitem__, [question.text for question in known], gold_ids)


def _choose_gold(
    pool: Pool, gold: frozenset[str], names: Mapping[str, Sequence[str]], retriever: GraphRetriever
) -> list[str]:
    ranked = rank_ids(pool, retriever.weights)
    return [next((node_id for node_id in ranked if name in names.get(node_id, ())), name) for name in sorted(gold)]


def show_fit(fit: RankingFit, path: Path) -> None:
    """Print what learning was worth."""
    if math.isinf(fit.pull):
        echo(f"No other weights are better beyond chance: {path} holds those that come with the package.")
        return
    echo(
        f"Weights learned from {count(fit.questions, 'question')}: recall at 5 {fit.recall_before:.1f} → "
        f"{fit.recall_after:.1f}, each question ranked without itself. Use them: ask --weights {path}"
    )
