"""Measure retrieval methods on a data folder: recall, answers, calls, tokens, time, intervals, tests.

    python examples/benchmarks/retrieval.py --data DIR --embed MODEL_DIR --out results.json

Ingestion and queries go through the public API. `harness/settings.py` names the methods. `--llm` is one of:
- "recorded": the data's `reader.jsonl`;
- "own": a stand-in that notes triples of the base passages;
- "openai": a model behind a server of OpenAI's protocol (OPENAI_API_KEY, OPENAI_BASE_URL, OPENAI_MODEL). Its replies
  are kept in `--replies`, or beside `--out`. A killed run goes on where it was, and `--offline` with `--replies`
  repeats it without a model or a network.

R@k is measured as in GeAR (App. B.2). In a single step the base returns k passages at each cut k, and the method
returns k. An agent's base returns 10 passages a step, and the agent makes one list for all cuts. R@2 is of the list
for 5.

Times are medians at k = 10 (at 15 for methods of one list), in milliseconds from a question to its passages. A recorded
reply counts with the time of the first call.
- `wall_ms_per_query`: the whole time.
- `embedding_ms_per_query`: the embedding in it: of the question (once, also for a method that needs none), of noted
  facts, and of each candidate with `--scorer exact`. For texts in `--cache` it is the look-up.
- `ms_per_query`: the whole time without embedding.
- `graph_ms_per_query`: the same without base retrieval and the language model ("hipporag": without the model alone).

`--price` prices questions (`usd_per_1000`, `answer_usd_per_1000`) and, with `--triples llm`, extraction: `ingest_cost`
in the conditions, in US dollars, calls whose replies were recorded before included.

Every recall has its 95 % bootstrap interval. Every method but the bounds is compared with `--against` by an exact
paired permutation test at each cut; p is also corrected for the number of tests in the file (Holm). The default of
`--against` is the method without its last part, and for a swept setting the method without it. The hits of each
question stay in the file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
import random
import resource
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from harness.cached_embedding import CachedEmbedding
from harness.command_line import parse_arguments
from harness.data import Dataset, Question, load, thin_triples, write_whole
from harness.evaluation import NoResultError, Row, add_comparisons, build_rows, measure, usd
from harness.methods import Workbench, check_needs, to_nodes
from harness.recorded_llm import NotRecordedError, RecordedLLM
from harness.settings import BOUNDS, Settings, needs_triple_vectors
from harness.stand_in_readers import READERS
from harness.usage import EmbeddingClock, count_spending
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.llms import LLM
from llama_index.core.schema import BaseNode, TransformComponent
from llama_index.embeddings.huggingface import HuggingFaceEmbedding
from llama_index_instrumentation import get_dispatcher

from llama_index_gear import GeARTripleExtractor, GeARVectorStore, LightEmbedding, MentionTripleExtractor
from llama_index_gear.extraction.accounting import ExtractionLedger
from llama_index_gear.nodes import Outcome, read_triples

sys.path.insert(0, str(Path(__file__).parent.parent))
from openai_model import language_model


def choose_questions(dataset: Dataset, options: argparse.Namespace) -> list[Question]:
    """Choose the questions to ask: all, a seeded sample of them, or the first."""
    questions = dataset.questions
    if options.sample is not None and options.sample > len(questions):
        raise SystemExit(f"--sample {options.sample}: there are {len(questions)} questions")
    if options.sample is not None:
        numbers = sorted(random.Random(options.seed).sample(range(len(questions)), options.sample))
        questions = [questions[number] for number in numbers]
    return questions[: options.limit]


def open_model(options: argparse.Namespace) -> LLM | None:
    """Open the model of `--llm openai`, or return None. Its replies are counted and, with `--replies` or `--out`, kept.

    Raises:
        SystemExit: the environment names no model; the file of replies can't be written or, offline, replayed.

    """
    if options.llm != "openai":
        return None
    if options.offline and options.replies is None:
        raise SystemExit("--offline: --replies names the file to replay")
    replies = options.replies
    if replies is None and options.out is not None:
        replies = options.out.with_name(f"{options.out.stem}.replies.jsonl")
    llm = None if options.offline else language_model()
    if llm is None and not options.offline:
        raise SystemExit("--llm openai: set OPENAI_API_KEY (and OPENAI_BASE_URL, OPENAI_MODEL for another server)")
    try:
        return RecordedLLM(
            llm,
            replies,
            os.environ.get("OPENAI_MODEL", "") if llm is None else "",
            context_window=options.context_window,
            max_tokens=options.max_tokens,
        )
    except (OSError, ValueError) as error:
        raise SystemExit(f"--replies: {error}") from error


def read_price(given: list[float | Path] | None, llm: LLM | None) -> list[float] | None:
    """Read `--price`: US dollars of a million prompt and completion tokens; None if there is nothing to pay.

    Raises:
        SystemExit: the price is neither two numbers nor a readable table that has the model.

    """
    if given is None:
        return None
    price: Any = given
    if len(given) == 1 and isinstance(given[0], Path):
        if llm is None:
            return None
        try:
            table = dict(json.loads(given[0].read_text("utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise SystemExit(f"--price: {given[0]} is no table of prices: {error}") from error
        name = llm.metadata.model_name
        if name not in table:
            raise SystemExit(f"--price: {given[0]} has no price of {name}; it has {', '.join(table)}")
        price = table[name]
    match price:
        case [int() | float(), int() | float()] if all(0 <= amount < math.inf for amount in price):
            return [float(amount) for amount in price]
    raise SystemExit(f"--price: two numbers, 0 or more, or a file of them by model, not {price}")


def refuse_network() -> None:
    """Make Python's sockets fail if they connect or send to another machine, or look up its address."""
    look_up = socket.getaddrinfo

    def require_local(host: Any) -> None:
        if host not in ("127.0.0.1", "::1", "localhost", "", None):
            raise OSError(f"--offline: no connection to {host}")

    def guard(original: Callable[..., Any]) -> Callable[..., Any]:
        def check_and_call(self: socket.socket, *arguments: Any) -> Any:
            if self.family in (socket.AF_INET, socket.AF_INET6):
                require_local(arguments[-1][0])  # the address comes last
            return original(self, *arguments)

        return check_and_call

    def look_up_local(host: Any, *arguments: Any, **options: Any) -> Any:
        require_local(host)
        return look_up(host, *arguments, **options)

    for name in ("connect", "connect_ex", "sendto"):
        setattr(socket.socket, name, guard(getattr(socket.socket, name)))
    socket.getaddrinfo = look_up_local


def ingest(
    nodes: list[BaseNode],
    store: GeARVectorStore,
    triples: str,
    llm: LLM | None,
    price: Sequence[float] | None = None,
) -> dict[str, Any]:
    """Bring the passages into the store, and return the time and the cost.

    Args:
        nodes: the passages.
        store: the store, empty.
        triples: the value of `--triples`.
        llm: the model that extracts, with `--triples llm`.
        price: US dollars of a million prompt and completion tokens. Default None: no cost is returned.

    Raises:
        SystemExit: the call for a passage failed. Recorded replies are kept. (An unreadable reply is only counted.)

    """
    transformations: list[TransformComponent] = [store.embed_model]
    if triples == "offline":
        transformations.insert(0, MentionTripleExtractor())
    elif triples == "llm":
        transformations.insert(0, GeARTripleExtractor(llm=llm, show_progress=True))
    start = time.perf_counter()
    with count_spending() as spent:
        pipeline = IngestionPipeline(transformations=transformations, vector_store=store, disable_cache=True)
        made = pipeline.run(nodes=nodes, show_progress=True)
    took: dict[str, Any] = {
        "ingest_seconds": round(time.perf_counter() - start, 1),
        "embedding_seconds": round(spent.embedding_seconds, 1),
    }
    if triples == "llm":
        ledger = ExtractionLedger.of(made)
        calls_failed = {Outcome.FAILED.value, Outcome.TIMED_OUT.value}
        if unasked := [failure for failure in ledger.failures if failure[1] in calls_failed]:
            raise SystemExit(f"no triples of {len(unasked)} passages: {unasked[0]}")
        took |= {
            "ingest_calls": ledger.calls,
            "ingest_outcomes": dict(sorted(ledger.outcomes.items())),
            "prompt_tokens_per_passage": round(ledger.prompt_tokens / len(nodes), 1),
            "completion_tokens_per_passage": round(ledger.completion_tokens / len(nodes), 1),
        }
        if price is not None:
            took["ingest_cost"] = round(usd(ledger.prompt_tokens, ledger.completion_tokens, price), 6)
    return took


def describe_store(dataset: Dataset, options: argparse.Namespace, embed: str, llm: LLM | None) -> dict[str, Any]:
    """Describe the data, model and settings that a store is made of, so that a run can't use another store."""
    triples = dataset.triples if options.triples == "file" else {}
    texts = hashlib.sha256()
    for passage in dataset.passages:
        row = [passage.id, passage.title, passage.text, triples.get(passage.id, [])]
        texts.update(json.dumps(row).encode())
    made_of = {"data": dataset.name, "passages": len(dataset.passages), "triples": options.triples, "embed": embed}
    if options.triples == "llm" and llm is not None:
        made_of |= {"llm": llm.metadata.model_name, "max_tokens": options.max_tokens}
    return {**made_of, "sha256": texts.hexdigest()}


def open_embedding(name: str) -> BaseEmbedding:
    """Open the embedding model of `--embed`."""
    if name == "light":
        return LightEmbedding()
    return HuggingFaceEmbedding(model_name=name, embed_batch_size=64, device="cpu")


def open_store(
    folder: Path, embed: BaseEmbedding, made_of: dict[str, Any], *, embed_triples: bool = True
) -> tuple[GeARVectorStore, bool]:
    """Open the store in a folder, and say if it is new and has to be filled.

    Args:
        folder: the folder.
        embed: the embedding model.
        made_of: what the store is made of (`describe_store`).
        embed_triples: True embeds the triples of a new store.

    Raises:
        SystemExit: the store was not filled to the end, or is made of something else.

    """
    note = note_path(folder)
    is_new = not folder.exists()
    if not is_new:
        try:
            before = json.loads(note.read_text("utf-8"))
        except FileNotFoundError:
            raise SystemExit(f"--store: {folder} was not filled to the end: delete it") from None
        except ValueError:
            raise SystemExit(f"--store: {note} can't be read: delete it and {folder}") from None
        if before != made_of:
            raise SystemExit(f"--store: {folder} is made of {before}, not of {made_of}")
    else:
        note.unlink(missing_ok=True)  # left by a store that was deleted
    store = GeARVectorStore.from_path(folder, embed_model=embed, embed_triples=embed_triples, show_progress=True)
    return store, is_new


def note_path(folder: Path) -> Path:
    """Return the path of the file that describes a store. It is beside the store, and written when that is filled."""
    return folder.with_name(f"{folder.name}.made_of.json")


def measure_disk(folder: Path) -> int:
    """Return the bytes that a folder's files take on the disk, without reserved and empty space."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def read_rows(options: argparse.Namespace) -> list[Row]:
    """Read the rows that the command line names.

    Raises:
        SystemExit: there is no such method, setting or row.

    """
    settings = Settings(**{setting.name: getattr(options, setting.name) for setting in fields(Settings)})
    rows = list(build_rows(options.methods.split(","), settings, options.sweep))
    names = [row.name for row in rows if row.method not in BOUNDS]
    if options.against is not None and options.against not in names:
        raise SystemExit(f"--against {options.against}: no such row; there are {', '.join(names)}")
    return rows


def main() -> None:
    """Ingest, measure, print, write."""
    options = parse_arguments(__doc__)
    if options.offline:
        refuse_network()
    rows = read_rows(options)
    dataset = load(options.data)
    for problem, number in dataset.problems.items():
        print(f"{options.data}: {number} {problem}", file=sys.stderr)
    dataset.triples = thin_triples(dataset.triples, options.triples_share, options.seed)
    for row in rows:
        check_needs(row.method, dataset, options.llm, options.triples)
    questions = choose_questions(dataset, options)
    llm = open_model(options)
    options.price = read_price(options.price, llm)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
    embed = open_embedding(options.embed)
    if options.cache is not None:
        embed = CachedEmbedding(embed, options.cache)
    get_dispatcher().add_event_handler(EmbeddingClock())
    name = options.embed_name or Path(options.embed).name
    nodes: list[BaseNode] = to_nodes(dataset, with_triples=options.triples == "file")
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder = options.store or scratch / "store"
        made_of = describe_store(dataset, options, name, llm)
        with_vectors = any(needs_triple_vectors(row.method) for row in rows)
        store, is_new = open_store(folder, embed, made_of, embed_triples=with_vectors)
        took = {}
        if is_new:
            with closing(store):
                took = ingest(nodes, store, options.triples, llm, options.price)
            write_whole(note_path(folder), json.dumps(made_of))
            store, _ = open_store(
                folder, embed, made_of, embed_triples=with_vectors
            )  # without the log of its writes, as in any later run
        stack.callback(store.close)
        if options.triples != "file":  # the extracted triples are in the store
            nodes = store.get_nodes([node.node_id for node in nodes])
            dataset.triples = {
                node.node_id: [(triple.subject, triple.predicate, triple.object) for triple in read_triples(node)]
                for node in nodes
            }
        if options.llm in READERS:
            llm = READERS[options.llm](dataset, store)
        bench = Workbench(dataset, store, nodes, llm, scratch)
        stack.callback(bench.close)
        conditions = {
            "data": dataset.name,
            "passages": len(dataset.passages),
            "questions": len(questions),
            "triples": store.client.count(store.triple_collection_name).count,
            "problems": dict(dataset.problems),
            "embed": name,
            "llm": llm.metadata.model_name if options.llm == "openai" and llm is not None else options.llm,
            **{key: getattr(options, key) for key in ("max_tokens", "limit", "sample", "seed", "price", "workers")},
            **asdict(rows[0].settings),
            "triples_from": options.triples,
            "triples_share": options.triples_share,
            "offline": options.offline,
            **took,
            "index_mib": round(measure_disk(folder) / 2**20, 1),
            "engine": f"qdrant-edge-py {version('qdrant-edge-py')}",
            "python": platform.python_version(),
        }
        measure_all(rows, questions, bench, options, conditions)
    print(json.dumps(conditions))


def measure_all(
    rows: Sequence[Row],
    questions: Sequence[Question],
    bench: Workbench,
    options: argparse.Namespace,
    conditions: dict[str, Any],
) -> None:
    """Measure the rows. Each is printed and written as soon as it is measured.

    Raises:
        SystemExit: a replay lacks a reply, or an agent failed.

    """
    results: list[dict[str, Any]] = []
    for row in rows:
        try:
            results.append(measure(row, questions, bench, options))
        except (NotRecordedError, NoResultError) as error:
            raise SystemExit(str(error)) from error
        print(format_line(results[-1]), flush=True)
        write_results(conditions, results, options.out)
    add_comparisons(results, questions, options.against)
    write_results(conditions, results, options.out)


def write_results(conditions: dict[str, Any], results: list[dict[str, Any]], out: Path | None) -> None:
    """Write the results so far, with the peak memory of the whole process, models included."""
    conditions["peak_memory_mib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10)
    if out is not None:
        report = {"conditions": conditions, "methods": results}
        write_whole(out, json.dumps(report, indent=2, ensure_ascii=False) + "\n")


def format_line(result: dict[str, Any]) -> str:
    """Format a row for the terminal."""
    line = (
        "{method:32} {recall@5:6.1f} {recall@10:6.1f} {recall@15:6.1f} {ms_per_query:9.1f} ms, "
        "graph {graph_ms_per_query:7.1f} ms"
    ).format(**result)
    if "calls" in result:
        line += "   {calls:.1f} calls, {prompt_tokens:,.0f} + {completion_tokens:,.0f} tokens".format(**result)
    return line + ("   EM {em:.1f} F1 {f1:.1f}".format(**result) if "em" in result else "")


if __name__ == "__main__":
    main()
