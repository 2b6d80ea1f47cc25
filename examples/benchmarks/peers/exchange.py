"""The files that peers are handed and hand back: passages and questions without gold, embeddings, rankings.

A peer's script runs in an environment of its own, which has this package with its extra `offline` for the embeddings.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from llama_index_gear import LightEmbedding

CUTS = (2, 5, 10)
WIDTH = 40
"""Passages that a ranking has, at most."""
Rankings = dict[str, dict[str, list[str]]]
"""Question id → cut → ids of passages, best first: at least as many as make so many documents, where gold are these."""


class Passage(NamedTuple):
    """A passage as every method sees it.

    Attributes:
        id: its node id.
        text: its text, with its title.
        document: id of the document that it is a part of; its own if it is none's.
        triples: (subject, predicate, object), as a model or a rule wrote them.

    """

    id: str
    text: str
    document: str
    triples: list[tuple[str, str, str]]


class Asked(NamedTuple):
    """A question as every method sees it."""

    id: str
    question: str


def read_passages(folder: Path) -> list[Passage]:
    """Read the passages of a folder, in the order in which every peer gets them."""
    rows = [Passage(**json.loads(line)) for line in (folder / "passages.jsonl").open(encoding="utf-8", newline="\n")]
    return [row._replace(triples=[(slots[0], slots[1], slots[2]) for slots in row.triples]) for row in rows]


def read_questions(folder: Path) -> list[Asked]:
    """Read the questions of a folder."""
    return [Asked(**json.loads(line)) for line in (folder / "questions.jsonl").open(encoding="utf-8", newline="\n")]


def write_lines(path: Path, rows: Sequence[Passage] | Sequence[Asked]) -> None:
    """Write passages or questions, one a line."""
    path.write_text("".join(json.dumps(row._asdict(), ensure_ascii=False) + "\n" for row in rows), "utf-8")


class Embedder:
    """`LightEmbedding` under the names by which peers call an embedding model; vectors are normalised."""

    def __init__(self) -> None:
        self._model = LightEmbedding()
        self._known: dict[str, NDArray[np.float32]] = {}

    def encode(self, texts: str | Sequence[str], **options: Any) -> NDArray[np.float32]:
        """Embed a text or several, each once; `options` of sentence-transformers change nothing.

        Returns:
            Shape (384,) of one text, (texts, 384) of several.

        """
        if isinstance(texts, str):
            one: NDArray[np.float32] = self.encode([texts])[0]
            return one
        missing = [text for text in dict.fromkeys(texts) if text not in self._known]
        vectors = self._model.get_text_embedding_batch(missing)
        self._known |= {text: np.asarray(vector, np.float32) for text, vector in zip(missing, vectors, strict=True)}
        return np.stack([self._known[text] for text in texts]) if texts else np.zeros((0, 384), np.float32)

    def batch_encode(self, texts: str | Sequence[str], **options: Any) -> NDArray[np.float32]:
        """Embed texts as `encode` does; an instruction, which this model doesn't know, is left out."""
        return self.encode([texts] if isinstance(texts, str) else texts)


def same_for_all_cuts(ids: Sequence[str]) -> dict[str, list[str]]:
    """Return one list for each cut."""
    return {str(cut): list(ids[:WIDTH]) for cut in CUTS}


def ask_for_documents(search: Callable[[int], list[str]], documents: Mapping[str, str]) -> dict[str, list[str]]:
    """Ask for as many passages as each cut, or as make so many documents; at most `WIDTH`.

    Args:
        search: returns the ids of so many passages.
        documents: passage id → document.

    """
    lists: dict[str, list[str]] = {}
    for cut in CUTS:
        for wanted in range(cut, WIDTH + 1):
            lists[str(cut)] = search(wanted)
            if len({documents[id_] for id_ in lists[str(cut)]}) >= cut:
                break
    return lists


def run(
    name: str, packages: Sequence[str], rank: Callable[[Path, argparse.Namespace], Rankings], **checkout: str
) -> None:
    """Read the command line of a peer's script, rank, and write `rankings-NAME.json` into the folder of the set.

    Args:
        name: the peer's name.
        packages: the packages whose versions are noted.
        rank: returns the rankings of a set; figures that it puts into `measured` of its options are written beside.
        checkout: `checkout=` what the folder of its code is, if it is no package.

    """
    parser = argparse.ArgumentParser(description=name)
    parser.add_argument("folder", type=Path, help="folder of a set, as `peers_beside.py prepare` writes it")
    for option, said in checkout.items():
        parser.add_argument(f"--{option}", type=Path, required=True, help=said)
    options = parser.parse_args(namespace=argparse.Namespace(measured={}))
    begun = time.process_time()
    rankings = rank(options.folder, options)
    made: dict[str, Any] = {"versions": {package: find_version(package) for package in packages}}
    if checkout:
        words = ("git", "-C", str(options.checkout), "rev-parse", "HEAD")
        made["commit"] = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    made |= {"processor_seconds": round(time.process_time() - begun), **options.measured}
    path = options.folder / f"rankings-{name}.json"
    path.write_text(json.dumps({**made, "rankings": rankings}) + "\n", "utf-8")
    print(path, made)


def find_version(package: str) -> str:
    """Return the version of an installed package, or that it is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
