"""What each retrieval method gives and costs on a data folder: recall, answers, calls, tokens, time, intervals, tests.

    python examples/benchmarks/retrieval.py --data DIR --embed MODEL_DIR --out results.json

Through the public API, store included. Methods are named in `methods.py`; `--llm` is "recorded" (the data's
`reader.jsonl`), "own" (a stand-in that notes triples of the base passages), or "openai", a model behind such a server
(OPENAI_API_KEY, OPENAI_BASE_URL, OPENAI_MODEL), whose replies `--replies` keeps: a killed run goes on where it was, and
`--offline` replays it without a model or a network.

R@k is measured as GeAR does (App. B.2): in a single step the base returns k passages at each cut k, and the method
returns k; in agents 10 passages a step, and one list for all cuts. Times are medians at k = 10; graph time is all but
embedding the question, base retrieval and the language model (of "hipporag": all but embedding the question).

Every recall has its 95 % bootstrap interval, and every method is compared with `--against` (default: itself without its
last part; for a swept setting, itself without it) by a paired permutation test at each cut, also corrected for the
number of tests in the file (Holm). What each question found stays in the file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import socket
import sys
import tempfile
import time
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cached_embedding import CachedEmbedding
from data import Dataset, Question, load
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.embedding import EmbeddingEndEvent, EmbeddingStartEvent
from llama_index.core.llms import LLM
from llama_index.core.schema import TextNode, TransformComponent
from llama_index.embeddings.huggingface import HuggingFaceEmbedding
from llama_index.llms.openai import OpenAI
from llama_index_instrumentation import get_dispatcher
from methods import Settings, Workbench, flag, own_reader, recorded_reader, to_nodes
from recorded import RecordedLLM
from running import comparisons, measure, rows_of

from llama_index_gear import GeARVectorStore, MentionTripleExtractor

sys.path.insert(0, str(Path(__file__).parent.parent))
from quickstart import language_model

METHODS = "bm25,dense,hybrid,bm25+naive,dense+naive,hybrid+naive"


class EmbeddingClock(BaseEventHandler):
    """Adds up the seconds that embedding models take, by LlamaIndex's own events."""

    seconds: float = 0.0
    _start: float = PrivateAttr(default=0.0)

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        """Start and end of a batch."""
        if isinstance(event, EmbeddingStartEvent):
            self._start = time.perf_counter()
        elif isinstance(event, EmbeddingEndEvent):
            self.seconds += time.perf_counter() - self._start


def chosen(dataset: Dataset, options: argparse.Namespace) -> list[Question]:
    """The questions to ask: all, a seeded sample of them, or the first."""
    questions = dataset.questions
    if options.sample is not None:
        numbers = sorted(random.Random(options.seed).sample(range(len(questions)), options.sample))
        questions = [questions[n] for n in numbers]
    return questions[: options.limit]


def model_of(options: argparse.Namespace, dataset: Dataset, store: GeARVectorStore) -> LLM | None:
    """What `--llm` names.

    Raises:
        SystemExit: a model is named and the environment doesn't say where it is.

    """
    match options.llm:
        case "none":
            return None
        case "recorded":
            return recorded_reader(dataset)
        case "own":
            return own_reader(dataset, store)
    llm = None if options.offline else language_model()
    if llm is None and not options.offline:
        raise SystemExit("--llm openai: set OPENAI_API_KEY (and OPENAI_BASE_URL, OPENAI_MODEL for another server)")
    if isinstance(llm, OpenAI):
        llm.max_tokens = options.max_tokens
    if options.replies is not None:
        return RecordedLLM(llm, options.replies)
    if llm is None:
        raise SystemExit("--offline: --replies names the file to replay")
    return llm


def refuse_network() -> None:
    """Have every connection to another machine fail."""
    connect = socket.socket.connect

    def local(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            raise OSError(f"--offline: no connection to {address}")
        connect(self, address)

    socket.socket.connect = local  # type: ignore[method-assign, assignment]
    os.environ["HF_HUB_OFFLINE"] = "1"


def ingest(nodes: list[TextNode], store: GeARVectorStore, triples: str) -> dict[str, Any]:
    """Bring the passages into the store: what it took."""
    clock = EmbeddingClock()
    get_dispatcher().add_event_handler(clock)
    transformations: list[TransformComponent] = [store.embed_model]
    if triples == "offline":
        transformations.insert(0, MentionTripleExtractor())
    start = time.perf_counter()
    pipeline = IngestionPipeline(transformations=transformations, vector_store=store, disable_cache=True)
    pipeline.run(nodes=nodes, show_progress=True)
    return {
        "ingest_seconds": round(time.perf_counter() - start, 1),
        "embedding_seconds": round(clock.seconds, 1),
    }


def disk_use(folder: Path) -> int:
    """Bytes that a folder's files take on the disk; of what is reserved and empty, nothing."""
    return sum(each.stat().st_blocks * 512 for each in folder.rglob("*") if each.is_file())


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = result.add_argument
    add("--data", type=Path, required=True, help="folder with the corpus, questions and triples")
    add("--embed", required=True, help="folder (or hub name) of a sentence-transformers model")
    add("--methods", default=METHODS, help=f"default: {METHODS}; see methods.py")
    add("--llm", choices=("none", "recorded", "own", "openai"), default="none", help="the language model")
    add("--max-tokens", type=int, default=512, help="that a reply of --llm openai may have")
    add("--replies", type=Path, default=None, help="JSON Lines file that keeps the model's replies")
    add("--offline", action="store_true", help="no network: replies from --replies alone")
    add("--answers", action="store_true", help="have the model answer, and score that (exact match, F1)")
    add("--price", type=float, nargs=2, metavar=("PROMPT", "COMPLETION"), help="US dollars a million tokens")
    add("--triples", choices=("file", "offline"), default="file", help="ready ones, or extracted here")
    add("--sweep", action="append", default=[], metavar="NAME=VALUE,…", help="another row a value, of each expansion")
    add("--against", default=None, help="method that all others are compared with")
    add("--limit", type=int, default=None, help="only the first N questions")
    add("--sample", type=int, default=None, help="only N questions, drawn by --seed")
    add("--seed", type=int, default=0)
    add("--workers", type=int, default=1, help="questions at a time; times are only true with 1")
    add("--store", type=Path, default=None, help="keep the store here and use it again")
    add("--cache", type=Path, default=None, help="file in which embeddings are kept")
    add("--out", type=Path, default=None, help="JSON file for the results")
    group = result.add_argument_group("settings, which can be swept over too")
    for setting in fields(Settings):
        name, help_ = f"--{setting.name.replace('_', '-')}", f"{setting.metadata['help']} (default: {setting.default})"
        if setting.metadata["parse"] is flag:
            group.add_argument(name, action=argparse.BooleanOptionalAction, default=setting.default, help=help_)
        else:
            group.add_argument(name, type=setting.metadata["parse"], default=setting.default, help=help_)
    return result


def main() -> None:
    """Ingest, measure, print, write."""
    arguments = parser()
    options = arguments.parse_args()
    if options.answers and options.llm != "openai":
        arguments.error("--answers: answers are a model's: --llm openai")
    if options.offline:
        refuse_network()
    settings = Settings(**{setting.name: getattr(options, setting.name) for setting in fields(Settings)})
    rows = list(rows_of(options.methods.split(","), settings, options.sweep))
    dataset = load(options.data)
    questions = chosen(dataset, options)
    embed: BaseEmbedding = HuggingFaceEmbedding(model_name=options.embed, embed_batch_size=64, device="cpu")
    if options.cache is not None:
        embed = CachedEmbedding(embed, options.cache)
    nodes = to_nodes(dataset, with_triples=options.triples == "file")
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.store or Path(scratch) / "store"
        is_new = not folder.exists()
        store = GeARVectorStore.from_path(folder, embed_model=embed, show_progress=True)
        took = ingest(nodes, store, options.triples) if is_new else {}
        llm = model_of(options, dataset, store)
        bench = Workbench(dataset, store, nodes, llm, Path(scratch))
        results = []
        for row in rows:
            results.append(measure(row, questions, bench, options))
            print(line_of(results[-1]), flush=True)
        comparisons(results, questions, options.against)
        report = {
            "conditions": {
                "data": dataset.name,
                "passages": len(dataset.passages),
                "questions": len(questions),
                "triples": store.client.count(store.triple_collection_name).count,
                "problems": dict(dataset.problems),
                "embed": Path(options.embed).name,
                "llm": llm.metadata.model_name if options.llm == "openai" and llm is not None else options.llm,
                **{name: getattr(options, name) for name in ("max_tokens", "limit", "sample", "seed", "price")},
                **asdict(settings),
                "triples_from": options.triples,
                **took,
                "index_mib": round(disk_use(folder) / 2**20, 1),
                "peak_memory_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10),
                "engine": f"qdrant-edge-py {version('qdrant-edge-py')}",
                "python": platform.python_version(),
            },
            "methods": results,
        }
        bench.close()
        store.close()
    if options.out is not None:
        options.out.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", "utf-8")
    print(json.dumps(report["conditions"]))


def line_of(result: dict[str, Any]) -> str:
    """A row for the terminal."""
    line = (
        "{method:32} {recall@5:6.1f} {recall@10:6.1f} {recall@15:6.1f} {ms_per_query:9.1f} ms, "
        "graph {graph_ms_per_query:7.1f} ms"
    ).format(**result)
    if "calls" in result:
        line += "   {calls:.1f} calls, {prompt_tokens:,.0f} + {completion_tokens:,.0f} tokens".format(**result)
    return line + ("   EM {em:.1f} F1 {f1:.1f}".format(**result) if "em" in result else "")


if __name__ == "__main__":
    main()
