"""`ask`: the passages of a question with the chains that lead to them, or an agent's answer, step by step."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

from click import ClickException, echo
from llama_index.core.llms import LLM
from llama_index.core.schema import NodeWithScore

from llama_index_gear import GeARVectorStore, GraphRetriever, RankingWeights
from llama_index_gear.characters import count
from llama_index_gear.errors import GeARError
from llama_index_gear.extraction.sentences import Form, split_sentences
from llama_index_gear.llm.fitting import sum_weights, weigh_words
from llama_index_gear.nodes import CHAIN_KEY, RANKS_KEY, REASONS_KEY, read_title, shorten
from llama_index_gear.retrievers.base import new_trace
from llama_index_gear.trace.trace import Trace, TraceEvent, run_traced
from llama_index_gear.trace.trace_page import format_fact

_LINE = 110  # characters
_TEXT = 400  # characters shown of a passage
_WRAPPER = textwrap.TextWrapper(
    _LINE, initial_indent="   ", subsequent_indent="   ", break_long_words=False, break_on_hyphens=False
)
"""Breaks lines between words alone, so that what is shown can be found in its file."""


@dataclass(frozen=True)
class Answer:
    """The passages, and the answer if there is a model, to a question.

    Attributes:
        question: as asked.
        passages: best first.
        text: the agent's answer, with citations; empty without a model.
        trace: the agent's; None without a model.

    """

    question: str
    passages: Sequence[NodeWithScore]
    text: str = ""
    trace: Trace | None = None

    @property
    def is_missing(self) -> bool:
        """True if the model gave no answer, and the passages stand in its place."""
        return self.trace is not None and self.trace.unanswered

    def to_json(self, indent: int | None = 2) -> str:
        """Return all of it as JSON; in one line if `indent` is None."""
        values: dict[str, Any] = {"question": self.question}
        if self.trace is not None:
            values |= {"answer": self.text, "citations": self.trace.citations, "stopped": self.trace.stopped}
            values |= {"model_calls": self.trace.llm_calls, "warning": self.trace.warning}
        values["passages"] = [_describe(result) for result in self.passages]
        return json.dumps(values, ensure_ascii=False, indent=indent)


def load_weights(path: Path) -> RankingWeights:
    """Load the weights of the ranking.

    Raises:
        ClickException: `compare --fit` did not write the file.

    """
    try:
        return RankingWeights.load(path)
    except GeARError as error:
        raise ClickException(f"--weights takes a file from `compare --fit`; {path}: {error}") from error


def find_passages(store: GeARVectorStore, question: str, top_k: int, weights: RankingWeights | None) -> Answer:
    """Retrieve passages, without a language model."""
    return Answer(question, GraphRetriever(store, similarity_top_k=top_k, weights=weights).retrieve(question))


def ask_agent(
    store: GeARVectorStore,
    question: str,
    llm: LLM,
    *,
    top_k: int,
    weights: RankingWeights | None,
    show: Callable[[str], None],
) -> Answer:
    """Let the agent search and answer; `show` is given a line for each thing that it does."""
    from llama_index_gear import GeARQueryEngine

    engine = GeARQueryEngine.from_vector_store(store, llm=llm, similarity_top_k=top_k, weights=weights)
    trace = new_trace(question)
    with trace.subscribe(lambda event: _show_event(event, show)):
        response = run_traced(trace, lambda: engine.query(question))
    return Answer(question, response.source_nodes, trace.response, trace)


def _show_event(event: TraceEvent, show: Callable[[str], None]) -> None:
    if event.kind == "query":
        show(f"step {event.step}: {event.value}")
    elif event.kind == "gist":
        for slots in event.value:
            show(f"   noted: {format_fact(slots)}")
    elif event.kind == "problems":
        for problem in event.value[-1:]:
            show(f"   problem: {problem}")


def show_answer(answer: Answer) -> None:
    """Print an agent's answer and the passages that it cites, or the passages that were found."""
    if answer.trace is None:
        _show_passages(answer.question, {f"{rank}.": result for rank, result in enumerate(answer.passages, start=1)})
        if not answer.passages:
            echo("Nothing was found.")
        return
    echo(f"\n{answer.text or 'No answer.'}\n")
    by_id = {result.node.node_id: result for result in answer.passages}
    cited = {f"[{mark}]": by_id.get(node_id) for mark, node_id in answer.trace.citations.items()}
    matter = f"{answer.question}\n{answer.text}"
    _show_passages(matter, {mark: result for mark, result in cited.items() if result is not None})
    echo(f"{answer.trace.stopped}; {count(answer.trace.llm_calls, 'call')} of the model")


def _show_passages(matter: str, passages: Mapping[str, NodeWithScore]) -> None:
    """Print passages by their marks: title and file, the triples that lead to each, and where it speaks of `matter`."""
    weights = weigh_words(matter, [result.node.get_content() for result in passages.values()])
    for mark, result in passages.items():
        file = _read_file(result)
        title = read_title(result.node)
        is_named = not title or PurePosixPath(file).stem == title  # a file's title is its name
        echo(f"{mark} {file if is_named else title}" + (f" ({file})" if file and not is_named else ""))
        for slots in result.metadata.get(CHAIN_KEY) or []:
            echo(f"   ↳ {format_fact(slots)}")
        excerpt = _make_excerpt(result.node.get_content(), title, weights)
        echo(_WRAPPER.fill(excerpt))


def _make_excerpt(text: str, title: str, weights: Mapping[str, float]) -> str:
    """Return the part of a passage that begins with the sentence that weighs most.

    The sentences before it are part of it, as far as there is room.
    """
    prose = [sentence for sentence in split_sentences(text) if sentence.form in (Form.PROSE, Form.ROW)]
    said = {sentence.start: " ".join(sentence.words) for sentence in prose}
    starts = [start for start, sentence in said.items() if sentence != title] or [0]  # nothing but code
    parts = {start: text[start:end] for start, end in pairwise([*starts, len(text)])}
    best = first = max(range(len(starts)), key=lambda place: sum_weights(parts[starts[place]], weights))
    if first and len(text[starts[best - 1] : starts[best]] + said.get(starts[best], "")) <= _TEXT // 2:
        first -= 1
    while first and len(" ".join(text[starts[first - 1] :].split())) <= _TEXT:
        first -= 1
    return ("… " if first else "") + shorten(text[starts[first] :], _TEXT)


def _describe(result: NodeWithScore) -> dict[str, Any]:
    node = result.node
    return {
        "id": node.node_id,
        "title": read_title(node),
        "file": _read_file(result),
        "score": result.score,
        "text": node.get_content(),
        "chain": node.metadata.get(CHAIN_KEY) or [],
        "ranks": node.metadata.get(RANKS_KEY) or {},
        "reasons": node.metadata.get(REASONS_KEY) or [],
    }


def _read_file(result: NodeWithScore) -> str:
    return str(result.node.metadata.get("file") or result.node.ref_doc_id or "")


_PROMPT = "? "


def read_questions() -> Iterator[str]:
    """Yield a question a line, until the input ends; empty lines are none.

    At the keyboard a prompt asks for each. Ctrl-D and Ctrl-C end it.
    """
    with suppress(EOFError, KeyboardInterrupt):
        for line in _prompt() if sys.stdin.isatty() else sys.stdin:
            if line.strip():
                yield line.strip()


def _prompt() -> Iterator[str]:
    with suppress(ImportError):  # Windows has none
        import readline  # noqa: F401  # so that lines can be edited, and called back
    while True:
        yield input(_PROMPT)
