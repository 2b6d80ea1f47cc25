"""Measure every committed result of `retrieval.py` anew, by the commands behind the tables.

    python examples/benchmarks/remeasure.py --data DIR --out DIR [--only NAME …] [--print]

`--data` has the data folders `musique_train` and `hotpotqa`. Stores and embeddings are kept in `--keep`, so that a
second run embeds little (only the files of `UNCACHED` embed everything anew). Files that are in `--out` are not made
again; a file that a killed run left unfinished is. `--print` only shows the commands.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from retrieval import note_path

HERE = Path(__file__).parent
EMBED = {"minilm": "all-MiniLM-L6-v2", "mpnet": "all-mpnet-base-v2"}
QWEN, READER = "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M", "strong-reader"

BASES = "bm25,dense,hybrid"
NAIVE = "bm25+naive,dense+naive,hybrid+naive"
NAIVE_PAGERANK = "bm25+naive+pagerank,dense+naive+pagerank,hybrid+naive+pagerank"
SYNC = "bm25+sync,dense+sync,hybrid+sync"
SYNC_PAGERANK = "bm25+sync+pagerank,dense+sync+pagerank,hybrid+sync+pagerank"
GEAR = "bm25+gear,dense+gear,hybrid+gear"
GEAR_PAGERANK = "bm25+gear+pagerank,dense+gear+pagerank,hybrid+gear+pagerank"
OKAPI = "rank-bm25+naive,rank-hybrid+naive,rank-hybrid+sync"

WITHOUT_MODEL = f"--methods {BASES},{NAIVE},{NAIVE_PAGERANK},hipporag"
AGAINST_HIPPORAG = "--methods hybrid+naive,hybrid+naive+pagerank,hipporag --against hipporag"
AGAINST_SYNONYMS = "--methods hybrid+naive,hybrid+naive+pagerank,hipporag,hipporag-synonyms --against hipporag-synonyms"
FACTS = "--methods hipporag,hipporag-synonyms --sweep fact_weight=2"
EXTERNAL = "--methods hybrid,hybrid+naive,hybrid+sync,hybrid+naive+external,hybrid+sync+external"
SHARE = f"--methods {BASES},{NAIVE} --triples-share"
OF_MUSIQUE = {
    "": f"--llm recorded --methods {BASES},rank-bm25,rank-hybrid,{NAIVE},{NAIVE_PAGERANK},{SYNC},{SYNC_PAGERANK},"
    f"{GEAR},{GEAR_PAGERANK},{OKAPI},hipporag",
    "-gear": "--llm recorded --methods hybrid+sync,hybrid+gear --against hybrid+sync",
    "-hipporag": AGAINST_HIPPORAG,
    "-synonyms": AGAINST_SYNONYMS,
    "-facts": FACTS,
    "-okapi": "--methods rank-bm25,rank-bm25+naive,rank-hybrid,rank-hybrid+naive,bm25,bm25+naive,hybrid,hybrid+naive",
    "-bases": "--llm recorded --methods bm25+naive,dense+naive,bm25+sync,dense+sync --sweep diversity=off "
    "--sweep scorer=composed,additive --sweep link_top_k=2,3,5",
    "-pagerank": "--llm recorded --methods hybrid+naive+pagerank,hybrid+naive,bm25+naive,dense+naive,hybrid+sync "
    "--sweep epsilon=1e-2,1e-4,1e-5 --sweep base_top_k=5,10,15,20,30",
    "-sweeps": "--llm recorded --methods hybrid,hybrid+naive,hybrid+sync,hybrid+gear --sweep gamma=1,2,5,10,50,1000 "
    "--sweep diversity=off --sweep beam_size=3,5,20,50 --sweep beam_length=1,3,4 --sweep neighbors=10,30,300 "
    "--sweep link_top_k=2,3,5 --sweep passage_link_top_k=1,5,10 --sweep scorer=composed,additive,exact",
}
OF_HOTPOTQA = {
    "": WITHOUT_MODEL,
    "-hipporag": AGAINST_HIPPORAG,
    "-synonyms": AGAINST_SYNONYMS,
    "-facts": FACTS,
}
OF_QWEN = "--sample 30 --max-steps 4 --against hybrid --answers --llm openai --offline --replies {replies} --methods"
OF_SAMPLE = "--triples llm --max-tokens 2048 --llm openai --offline --replies {replies} --methods"

OF_READER = "--triples {triples} --sample {sample} --llm openai --offline --replies {{replies}}"
READER_RUNS = {
    "once": ("offline", "--methods hybrid,graph,hybrid+sync,hybrid+select,graph+select --against hybrid"),
    "agents": (
        "offline",
        "--answers --calls merged --methods graph+selection,hybrid+gear,t2rag,hybrid+ircot --against graph+selection",
    ),
    "now": ("offline", "--embed light --methods hybrid,graph,graph+select --against graph"),
    "selection": ("offline", "--embed light --answers --methods graph+selection"),
    "plain": ("none", "--answers --methods graph+selection"),
    "widths": ("offline", "--methods graph+select --show-tokens 16000 --show-top-k 10 --sweep show_top_k=20,60,90"),
    "orders": (
        "offline",
        "--methods graph+select,graph+llmrerank,graph+rankgpt --sweep show_order=reversed,shuffled "
        "--against graph+select",
    ),
}
"""Kind → triples, and the methods that a strong reader was asked for.

"now" and "selection" have today's ranking, the other kinds the former one.
"""
READER_FILES = {
    "musique": (40, ("now", "selection", "once", "agents", "plain", "widths", "orders")),
    "2wiki": (30, ("now", "selection", "once", "agents", "plain")),
}
"""Data → questions, and the kinds of files that were measured."""

RUNS = {
    **{f"musique_train-{embed}{kind}": run for embed in EMBED for kind, run in OF_MUSIQUE.items()},
    **{f"hotpotqa-{embed}{kind}": run for embed in EMBED for kind, run in OF_HOTPOTQA.items()},
    "musique_train-minilm-offline": f"--triples offline --methods {BASES},{NAIVE},{NAIVE_PAGERANK}",
    "musique_train-minilm-external": f"--llm recorded {EXTERNAL} --sweep graph_share=0.5",
    "musique_train-minilm-external-unchecked": "--llm recorded --no-check-alignment --methods hybrid+sync+external "
    "--sweep graph_share=0.5",
    "hotpotqa-minilm-external": f"--llm own {EXTERNAL}",
    "hotpotqa-minilm-share60": f"{SHARE} 0.6",
    "hotpotqa-minilm-share80": f"{SHARE} 0.8",
    "musique_train-minilm-qwen": f"{OF_QWEN} closed-book,gold,bm25,dense,hybrid,hybrid+naive,hybrid+sync,hybrid+gear,"
    "t2rag,hybrid+ircot,hipporag,hipporag-filter,hipporag-synonyms-filter --sweep calls=merged,single "
    "--sweep search_by=passages --sweep max_steps=1,2,3",
    "musique_train-minilm-qwen-ircot": f"{OF_QWEN} hybrid,bm25+ircot,hipporag+ircot",
    "musique_train-minilm-qwen-selection": f"{OF_QWEN} hybrid,graph,graph+select,graph+selection --show-top-k 10 "
    "--against graph",
    "sample-minilm-qwen-1": f"{OF_SAMPLE} hybrid,hybrid+naive,hybrid+naive+pagerank,hipporag",
    "musique_train-minilm-ingest": "--methods hybrid,hybrid+naive",
    **{
        f"{data}-minilm-reader-{kind}": f"{OF_READER} {READER_RUNS[kind][1]}".format(
            triples=READER_RUNS[kind][0], sample=20 if kind == "orders" else sample
        )
        for data, (sample, kinds) in READER_FILES.items()
        for kind in kinds
    },
}
"""File → arguments of `retrieval.py`. A file's name begins with the data and the embedding model."""
UNCACHED = ("musique_train-minilm-ingest", "musique_train-minilm-offline")
"""Files that measure ingestion, and so use no cache and no kept store."""
REPLIES = {
    "musique_train": "musique_train-minilm-qwen.jsonl",
    "sample": "sample-minilm-qwen.jsonl",
    **{data: f"{data}-minilm-reader.jsonl" for data in READER_FILES},
}


def build_arguments(name: str) -> list[str]:
    """Build the arguments that make a file, without the paths."""
    data, embed, *_ = name.split("-")
    replies = HERE / "replies" / REPLIES.get(data, "")
    return ["--embed-name", EMBED[embed], *shlex.split(RUNS[name].format(replies=shlex.quote(str(replies))))]


def name_model(name: str) -> str:
    """Return the name of the language model that a file was measured with, if it was with one."""
    return READER if "-reader-" in name else QWEN


def build_command(name: str, options: argparse.Namespace) -> list[str]:
    """Build the command that makes a file."""
    data, embed, *_ = name.split("-")
    folder = HERE.parent / "data" if data == "sample" else options.data / data
    places = {"data": folder, "embed": getattr(options, embed), "out": unfinished_path(name, options)}
    if name not in UNCACHED:
        places["cache"] = options.keep / f"{embed}.sqlite"
    if (store := find_store(name, options)) is not None:
        places["store"] = store
    return [
        sys.executable,
        str(HERE / "retrieval.py"),
        *(word for option, place in places.items() for word in (f"--{option}", str(place))),
        *build_arguments(name),
    ]


def find_store(name: str, options: argparse.Namespace) -> Path | None:
    """Return the path of a file's kept store, shared by all files of the data's own triples, or None."""
    data, embed, *_ = name.split("-")
    return None if name in UNCACHED or "--triples" in RUNS[name] else Path(options.keep, f"{data}-{embed}")


def unfinished_path(name: str, options: argparse.Namespace) -> Path:
    """Return the path at which a file is until it is complete."""
    return Path(options.out, f"{name}.part.json")


def find_missing(options: argparse.Namespace) -> Iterator[str]:
    """Yield the names of the files to make."""
    for name in options.only or RUNS:
        if not (options.out / f"{name}.json").exists():
            yield name


def main() -> None:
    """Make each missing file; stop at the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data folders")
    parser.add_argument("--out", type=Path, required=True, help="folder for the files")
    for embed, name in EMBED.items():
        hub = f"sentence-transformers/{name}"
        parser.add_argument(f"--{embed}", default=hub, help=f"folder of {name}; default: {hub}, of the hub")
    parser.add_argument("--keep", type=Path, default=None, help="folder of stores and embeddings; default: in --out")
    parser.add_argument("--only", nargs="+", choices=RUNS, metavar="NAME", help=f"of {', '.join(RUNS)}")
    parser.add_argument("--print", action="store_true", help="only show the commands")
    options = parser.parse_args()
    options.keep = options.keep or options.out / "kept"
    for name in find_missing(options):
        words = build_command(name, options)
        print(shlex.join(words), flush=True)
        if not options.print:
            options.keep.mkdir(parents=True, exist_ok=True)
            if (store := find_store(name, options)) is not None and not note_path(store).exists():
                shutil.rmtree(store, ignore_errors=True)  # a killed run didn't fill it to the end
            subprocess.run(words, env={**os.environ, "OPENAI_MODEL": name_model(name)}, check=True)
            unfinished_path(name, options).replace(options.out / f"{name}.json")


if __name__ == "__main__":
    main()
