"""The evaluation of a method on all questions: its recall at each cut, its costs, and its comparison with another."""

from __future__ import annotations

import math
import statistics
import string
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import compress
from typing import Any

from llama_index.core.schema import QueryBundle
from tqdm import tqdm

from harness.answers import answer_from_passages, answer_with_agent, answers_itself
from harness.data import Dataset, Question
from harness.measures import compare, correct_p_values, exact_match, f1, interval
from harness.methods import Workbench
from harness.settings import BOUNDS, CUTS, MODES, Settings, makes_one_list, split_method
from harness.usage import Spent, count_spending
from llama_index_gear import ExternalGeARRetriever, GeARRetriever, T2RAGRetriever
from llama_index_gear.ranking.measures import recall
from llama_index_gear.retrievers.paper_gear import PaperGeARRetriever
from llama_index_gear.trace.trace import Trace

RECALLS = (2, *CUTS)  # the recall at 2 is of the list for 5, and is not tested by itself
TIMED = 10  # the cut at which times and answers are taken, where they depend on the cut
DIGITS = string.digits + string.ascii_lowercase
DENSITIES = (9, 11, 13)  # triples a gold passage, as GeAR groups them (Table 11)
DENSITY_NAMES = ("<9", "9-11", "11-13", ">=13")


class NoResultError(RuntimeError):
    """An agent ended early since a model or a store failed, so that its figures would mean nothing."""


@dataclass
class Outcome:
    """The outcome of one question with one method."""

    ids: list[str]
    seconds: float
    spent: Spent
    answering: Spent
    answer: str
    trace: Trace | None


@dataclass
class Row:
    """A method with its settings: a row of the results."""

    method: str
    settings: Settings
    swept: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The method, with the settings that differ from the rest of the run."""
        changed = ",".join(f"{name}={value}" for name, value in self.swept.items())
        return f"{self.method}[{changed}]" if changed else self.method


def build_rows(methods: Sequence[str], settings: Settings, sweeps: Sequence[str]) -> Iterator[Row]:
    """Yield a row for each method, and one for each swept value of a setting that the method has.

    Raises:
        SystemExit: a sweep isn't `name=value,value,…`, or no method has its setting.

    """
    for sweep in sweeps:
        if not any(Settings.applies(sweep.partition("=")[0], method) for method in methods):
            raise SystemExit(f"--sweep {sweep}: no method has it")
    for method in methods:
        split_method(method)
        yield Row(method, settings)
        for sweep in sweeps:
            name, equals, values = sweep.partition("=")
            if not equals:
                raise SystemExit(f"--sweep wants NAME=VALUE,VALUE,…, not {sweep!r}")
            for value in values.split(",") if Settings.applies(name, method) else ():
                try:
                    changed = settings.with_value(name, value)
                except ValueError as error:
                    raise SystemExit(f"--sweep: {error}") from error
                if changed.with_defaults_of(method) != settings.with_defaults_of(method):
                    yield Row(method, changed, {name: value})


def ask_questions(
    row: Row, cut: int, questions: Sequence[Question], bench: Workbench, options: Namespace
) -> list[Outcome]:
    """Ask one retriever all questions, `--workers` at a time. Answers are written once, at the cut 10 or for all cuts.

    Raises:
        NoResultError: an agent ended early since a model or a store failed.

    """
    with_answers = options.answers and (cut == TIMED or makes_one_list(row.method, row.settings))
    retriever = bench.retriever(row.method, cut, row.settings)

    def ask(question: Question) -> Outcome:
        answer, trace, ends = "", None, []
        with count_spending() as spent:
            start = time.perf_counter()
            embedding = bench.store.embed_model.get_query_embedding(question.question)
            bundle = QueryBundle(question.question, embedding=embedding)

            def note_found() -> None:
                ends.append((time.perf_counter() - start, spent + Spent()))

            if with_answers and answers_itself(retriever):
                answer, passages, trace = answer_with_agent(bench.llm, retriever, bundle, note_found)  # type: ignore[arg-type]
            else:
                if isinstance(retriever, GeARRetriever | PaperGeARRetriever | ExternalGeARRetriever | T2RAGRetriever):
                    passages, trace = retriever.retrieve_with_trace(bundle)
                else:
                    passages = retriever.retrieve(bundle)
                note_found()
                if with_answers:
                    answer = answer_from_passages(bench.llm, question.question, passages)  # type: ignore[arg-type]
        if trace is not None and trace.stopped.startswith("failed"):
            raise NoResultError(f"{row.name}, question {question.id!r}: {trace.stopped}")
        seconds, before = ends[0]
        ids = [passage.node.node_id for passage in passages][:cut]
        return Outcome(ids, seconds, before, spent - before, answer, trace)

    with ThreadPoolExecutor(options.workers) as pool:
        title = f"{row.name} @{cut}"
        return list(tqdm(pool.map(ask, questions), total=len(questions), desc=title, disable=None, leave=False))


def measure(row: Row, questions: Sequence[Question], bench: Workbench, options: Namespace) -> dict[str, Any]:
    """Measure a row of the results: a method's recall at each cut, and its costs."""
    of_one_list = makes_one_list(row.method, row.settings)
    outcomes: dict[int, list[Outcome]] = {}
    for cut in reversed(CUTS):
        outcomes[cut] = (
            outcomes[CUTS[-1]] if of_one_list and outcomes else ask_questions(row, cut, questions, bench, options)
        )
    outcomes[RECALLS[0]] = outcomes[CUTS[0]]
    recalls = {
        cut: [
            recall(outcome.ids, question.gold, cut) for outcome, question in zip(outcomes[cut], questions, strict=True)
        ]
        for cut in RECALLS
    }
    timed = outcomes[TIMED]
    result = {
        "method": row.name,
        **({"swept": row.swept} if row.swept else {}),
        **{f"recall@{cut}": _to_percent(recalls[cut]) for cut in RECALLS},
        **{f"interval@{cut}": [round(100 * end, 1) for end in interval(recalls[cut])] for cut in RECALLS},
        **{f"complete@{cut}": recalls[cut].count(1.0) for cut in RECALLS},
        **summarize_times(timed, row.method),
        **summarize_costs([outcome.spent for outcome in timed], "", options),
    }
    if traces := [outcome.trace for outcome in timed if outcome.trace is not None]:
        result["steps"] = round(statistics.fmean(len(trace.steps) for trace in traces), 2)
        result["stopped"] = dict(Counter(trace.stopped for trace in traces).most_common())
        result["unread_replies"] = sum(
            "reply" in problem for trace in traces for step in trace.steps for problem in step.problems
        )
    scores: dict[str, Sequence[float]] = {f"recall@{cut}": recalls[cut] for cut in RECALLS}
    if options.answers:
        pairs = [(outcome.answer, question.answers) for outcome, question in zip(timed, questions, strict=True)]
        for name, score in (("em", exact_match), ("f1", f1)):
            scores[name] = [score(*pair) for pair in pairs]
            result[name] = _to_percent(scores[name])
            result[f"{name}_interval"] = [round(100 * end, 1) for end in interval(scores[name])]
        result.update(summarize_costs([outcome.answering for outcome in timed], "answer_", options))
    hops = [question.hops for question in questions]
    triples = [_count_triples(question, bench.dataset) for question in questions]
    result["by_hops"] = {
        str(number): _summarize_group([count == number for count in hops], scores)
        for number in sorted(set(hops))
        if number
    }
    result["by_triples"] = {
        name: _summarize_group([low <= density < high for density in triples], scores)
        for name, low, high in zip(DENSITY_NAMES, (0, *DENSITIES), (*DENSITIES, math.inf), strict=True)
    }
    # One character a question: the number of gold passages found, as a digit, or a letter from ten on.
    for cut in RECALLS:
        result[f"hits@{cut}"] = "".join(
            DIGITS[round(share * len(set(question.gold)))]
            for share, question in zip(recalls[cut], questions, strict=True)
        )
    if options.answers:
        result["answers"] = [answer for answer, _ in pairs]
        result["exact"] = "".join("01"[score == 1] for score in scores["em"])
    return result


def summarize_times(outcomes: Sequence[Outcome], method: str) -> dict[str, float]:
    """Return medians of the milliseconds a question. A recorded reply counts with the time of the first call."""
    wall = [outcome.seconds - outcome.spent.waited_seconds + outcome.spent.llm_seconds for outcome in outcomes]
    embedding = [outcome.spent.embedding_seconds for outcome in outcomes]
    total = [seconds - part for seconds, part in zip(wall, embedding, strict=True)]
    others = [outcome.spent.llm_seconds + outcome.spent.base_seconds for outcome in outcomes]
    graph = [0.0 if method in MODES else seconds - part for seconds, part in zip(total, others, strict=True)]
    by_kind = {"": total, "graph_": graph, "embedding_": embedding, "wall_": wall}
    return {f"{kind}ms_per_query": round(1000 * statistics.median(times), 2) for kind, times in by_kind.items()}


def summarize_costs(spent: Sequence[Spent], prefix: str, options: Namespace) -> dict[str, Any]:
    """Return the mean costs of a question, or nothing if no model was called."""
    if not any(account.calls for account in spent):
        return {}
    means = {name: statistics.fmean(getattr(account, name) for account in spent) for name in asdict(spent[0])}
    prompt, completion = means["prompt_tokens"], means["completion_tokens"]
    result = {
        "calls": round(means["calls"], 2),
        "prompt_tokens": round(prompt, 1),
        "completion_tokens": round(completion, 1),
        "weighted_tokens": round(prompt + 4 * completion, 1),  # T²RAG App. B.4
        "llm_seconds": round(means["llm_seconds"], 2),
    }
    if options.price is not None:
        result["usd_per_1000"] = round(1000 * usd(prompt, completion, options.price), 4)
    return {prefix + name: value for name, value in result.items()}


def usd(prompt_tokens: float, completion_tokens: float, price: Sequence[float]) -> float:
    """Return the price of tokens in US dollars.

    Args:
        prompt_tokens: number of prompt tokens.
        completion_tokens: number of completion tokens.
        price: US dollars of a million prompt tokens, and of a million completion tokens.

    """
    return (prompt_tokens * price[0] + completion_tokens * price[1]) / 1_000_000


def _to_percent(values: Sequence[float]) -> float:
    return round(100 * statistics.fmean(values), 2)


def _count_triples(question: Question, dataset: Dataset) -> float:
    """Return the mean number of triples of a question's gold passages."""
    return statistics.fmean(len(dataset.triples.get(gold, ())) for gold in question.gold)


def _summarize_group(chosen: Sequence[bool], scores: dict[str, Sequence[float]]) -> dict[str, Any]:
    """Return the number and the mean scores of the chosen questions."""
    if not any(chosen):
        return {"questions": 0}
    means = {name: _to_percent(list(compress(values, chosen))) for name, values in scores.items()}
    return {"questions": sum(chosen), **means}


def add_comparisons(results: list[dict[str, Any]], questions: Sequence[Question], against: str | None) -> None:
    """Add to each result, bounds apart, its comparison with the result that it is measured against."""
    known = {result["method"]: result for result in results if result["method"] not in BOUNDS}
    sizes = [len(set(question.gold)) for question in questions]
    gains, p_values = [], []
    for result in known.values():
        plain = result["method"].partition("[")[0]
        default = plain if "swept" in result else plain.rpartition("+")[0]
        other = known.get(against or default)
        if other is None or other is result:
            continue
        result["against"] = other["method"]
        pairs: dict[str, list[list[float]]] = {
            f"@{cut}": [
                [int(hits, 36) / size for hits, size in zip(row[f"hits@{cut}"], sizes, strict=True)]
                for row in (result, other)
            ]
            for cut in CUTS
        }
        if "exact" in result and "exact" in other:
            pairs["_em"] = [[float(score) for score in row["exact"]] for row in (result, other)]
        for name, (scores, other_scores) in pairs.items():
            test = compare(scores, other_scores)
            result[f"gain{name}"] = {
                "points": round(100 * test.difference, 2),
                "interval": [round(100 * test.low, 1), round(100 * test.high, 1)],
                "p": _round_to_two_digits(test.p_value),
                "wins": test.wins,
                "losses": test.losses,
            }
            gains.append(result[f"gain{name}"])
            p_values.append(test.p_value)
    for gain, p_value in zip(gains, correct_p_values(p_values), strict=True):
        gain["p_corrected"] = _round_to_two_digits(p_value)


def _round_to_two_digits(p_value: float) -> float:
    return float(f"{p_value:.1e}")
