"""The command line of `retrieval.py`."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

from harness.settings import Settings, flag
from harness.stand_in_readers import READERS

METHODS = "bm25,dense,hybrid,bm25+naive,dense+naive,hybrid+naive"


def number_or_file(value: str) -> float | Path:
    """Parse a number, or else the name of a file."""
    try:
        return float(value)
    except ValueError:
        return Path(value)


def a_share(value: str) -> float:
    """Parse a share: a number above 0 and at most 1."""
    if not 0 < (number := float(value)) <= 1:
        raise argparse.ArgumentTypeError(f"{value} is not above 0 and at most 1")
    return number


def at_least_one(value: str) -> int:
    """Parse a whole number of at least 1."""
    if (number := int(value)) < 1:
        raise argparse.ArgumentTypeError(f"{value} is below 1")
    return number


def build_parser(description: str | None = None) -> argparse.ArgumentParser:
    """Build the parser of the command line; its options include every field of `Settings`."""
    result = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = result.add_argument
    add("--data", type=Path, required=True, help="folder with the corpus, questions and triples")
    add(
        "--embed", required=True, help="folder (or hub name) of a sentence-transformers model; or light: LightEmbedding"
    )
    add("--embed-name", default=None, help="what the results call it; default: the folder's name")
    add("--methods", default=METHODS, help=f"default: {METHODS}; see harness/settings.py")
    add("--llm", choices=("none", *READERS, "openai"), default="none", help="the language model")
    add("--max-tokens", type=int, default=512, help="that a reply of --llm openai may have")
    add("--context-window", type=int, default=32_768, help="of --llm openai, in tokens")
    add(
        "--replies",
        type=Path,
        default=None,
        help="JSON Lines file that keeps the model's replies; default: beside --out, *.replies.jsonl",
    )
    add("--offline", action="store_true", help="no network: replies from --replies alone")
    add("--answers", action="store_true", help="have the model answer, and score that (exact match, F1)")
    add(
        "--price",
        type=number_or_file,
        nargs="+",
        metavar="PRICE",
        help="US dollars a million tokens: PROMPT COMPLETION, or a JSON file of {model: [PROMPT, COMPLETION]}",
    )
    add(
        "--triples",
        choices=("file", "offline", "llm", "none"),
        default="file",
        help="ready ones, by rule, by --llm openai, or none",
    )
    add("--triples-share", type=a_share, default=1.0, help="of --triples file: only so many, drawn by --seed")
    add("--sweep", action="append", default=[], metavar="NAME=VALUE,…", help="another row a value, of each expansion")
    add("--against", default=None, help="method that all others are compared with")
    add("--limit", type=at_least_one, default=None, help="only the first N questions")
    add("--sample", type=at_least_one, default=None, help="only N questions, drawn by --seed")
    add("--seed", type=int, default=0)
    add("--workers", type=at_least_one, default=1, help="questions at a time; times are only true with 1")
    add("--store", type=Path, default=None, help="keep the store here and use it again")
    add("--cache", type=Path, default=None, help="file in which embeddings are kept")
    add("--out", type=Path, default=None, help="JSON file for the results")
    group = result.add_argument_group("settings, which can be swept over too")
    for setting in fields(Settings):
        name = f"--{setting.name.replace('_', '-')}"
        help_ = f"{setting.metadata['help']}; of {', '.join(setting.metadata['of'])}. Default: {setting.default}"
        if setting.metadata["parse"] is flag:
            group.add_argument(name, action=argparse.BooleanOptionalAction, default=setting.default, help=help_)
        else:
            group.add_argument(name, type=setting.metadata["parse"], default=setting.default, help=help_)
    return result


def parse_arguments(description: str | None) -> argparse.Namespace:
    """Parse the command line.

    Raises:
        SystemExit: an option is unknown, or options contradict one another.

    """
    arguments = build_parser(description)
    options = arguments.parse_args()
    if options.llm != "openai" and (options.answers or options.triples == "llm"):
        arguments.error("--answers and --triples llm need a model: --llm openai")
    if options.triples_share < 1 and options.triples != "file":
        arguments.error("--triples-share is of ready triples: --triples file")
    return options
