"""Measure `GraphRetriever` and peers by their own code over the same passages, questions and embeddings.

    python examples/benchmarks/peers_beside.py prepare --data DIR --folder DIR [--questions 150] [--sets NAMES]
    python examples/benchmarks/peers_beside.py measure --data DIR --folder DIR --cache FILE --out peers.json

`prepare` writes a folder for each set: passages, and some of its questions, without their gold. Where the questions
name their passages (`context_passage_ids`) the corpus is these alone, and shuffled; documents are split, and stay in
order. Each script of `peers/` then adds `rankings-NAME.json` to such a folder, in an environment of its own.

`measure` fills a store with the same passages, once with their triples and once with triples by rule, and compares:
"hybrid" is the store's own search; "left out" is the ranking by weights that were learned without this set: those that
`--left-out` has under the set's name or, as `ranking.py` writes them, under its kind of text.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.cached_embedding import CachedEmbedding
from harness.data import Dataset, load, write_whole
from harness.methods import to_nodes
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import MetadataMode
from peers.exchange import CUTS, Asked, Passage, read_passages, read_questions, write_lines
from ranking import BASES, FOLDS, Gathered, by_weights, fill_and_ask, name_kind, read_left_out, summarize

from llama_index_gear import LightEmbedding, MentionTripleExtractor, RankingWeights
from llama_index_gear.nodes import read_triples

LEFT_OUT = Path(__file__).parent / "left_out_weights.json"
SETS = ("2wiki", "musique", "lihua")
Lists = Mapping[str, Mapping[str, Sequence[str]]]
"""Question id → cut → ids of passages."""


def draw_subset(folder: Path, number: int) -> Dataset:
    """Draw some questions of a set, and their own passages, shuffled, where they name these."""
    dataset = load(folder)
    draw = random.Random(0)
    kept = {question.id for question in draw.sample(dataset.questions, min(number, len(dataset.questions)))}
    rows = [json.loads(line) for line in (folder / "questions.jsonl").open(encoding="utf-8", newline="\n")]
    own = {name for row in rows if row["id"] in kept for name in row.get("context_passage_ids", ())}
    passages = [passage for passage in dataset.passages if not own or passage.id in own]
    if own:
        draw.shuffle(passages)
    return replace(
        dataset, passages=passages, questions=[question for question in dataset.questions if question.id in kept]
    )


def prepare(dataset: Dataset, folder: Path) -> None:
    """Write passages, with a model's triples or, without these, those by rule, and questions."""
    nodes = to_nodes(dataset, with_triples=True)
    if not dataset.triples:
        nodes = MentionTripleExtractor()(nodes)
    folder.mkdir(parents=True, exist_ok=True)
    write_lines(
        folder / "passages.jsonl",
        [
            Passage(
                node.node_id,
                node.get_content(metadata_mode=MetadataMode.EMBED),
                node.ref_doc_id or node.node_id,
                [(triple.subject, triple.predicate, triple.object) for triple in read_triples(node)],
            )
            for node in nodes
        ],
    )
    write_lines(folder / "questions.jsonl", [Asked(question.id, question.question) for question in dataset.questions])


def list_ours(of_set: Gathered, weights: RankingWeights) -> dict[str, Lists]:
    """Return the lists of both searches, hybrid and the ranking."""
    rankings = {**BASES, "left out": by_weights([weights] * FOLDS)}
    return {
        name: {
            question.id: {
                str(cut): list(rankings[name](of_set, number, cut if name == "hybrid" else len(pool.passages)))
                for cut in CUTS
            }
            for number, (question, pool) in enumerate(of_set.pools)
        }
        for name in ("dense", "bm25", "hybrid", "left out")
    }


def find_shares(dataset: Dataset, lists: Lists, documents: Mapping[str, str]) -> dict[int, list[float]]:
    """Return the recall of each question at each cut; a document counts at the place of its first passage."""
    shares: dict[int, list[float]] = {cut: [] for cut in CUTS}
    for question in dataset.questions:
        for cut in CUTS:
            found = dict.fromkeys(documents[passage] for passage in lists[question.id][str(cut)])
            shares[cut].append(len({*list(found)[:cut]} & {*question.gold}) / len(question.gold))
    return shares


def measure(dataset: Dataset, folder: Path, weights: RankingWeights, embed: BaseEmbedding) -> dict[str, Any]:
    """Return the rows of a set, those of peers with what their scripts noted."""
    documents = {passage.id: passage.document for passage in read_passages(folder)}
    if [one.id for one in read_questions(folder)] != [question.id for question in dataset.questions]:
        raise ValueError(f"{folder} holds other questions: prepare it anew")
    methods: dict[str, tuple[str, Lists, dict[str, Any]]] = {}
    for kind in ("file", "offline") if dataset.triples else ("offline",):
        for name, lists in list_ours(fill_and_ask(dataset, kind, embed), weights).items():
            methods.setdefault(name if name != "left out" else f"left out, {kind}", (kind, lists, {}))
    for path in sorted(folder.glob("rankings-*.json")):
        made = json.loads(path.read_text("utf-8"))
        methods[path.stem.removeprefix("rankings-")] = ("", made.pop("rankings"), made)
    shares = {name: find_shares(dataset, lists, documents) for name, (_, lists, _) in methods.items()}
    bases = {name: shares[name] for name in ("dense", "bm25", "hybrid")}
    rows = []
    for name, (_, _, made) in methods.items():
        rows.append({"method": name, **summarize(shares[name], {} if name in bases else bases), **made})
        print(f"{name:20}", *(f"{rows[-1][f'recall@{cut}']:6.1f}" for cut in CUTS), flush=True)
    return {"questions": len(dataset.questions), "passages": len(documents), "rows": rows}


def main() -> None:
    """Prepare the sets, or measure them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("prepare", "measure"))
    parser.add_argument("--data", type=Path, required=True, help="folder with the data folders")
    parser.add_argument("--folder", type=Path, required=True, help="folder of the prepared sets")
    parser.add_argument("--sets", type=lambda words: words.split(","), default=list(SETS), help="the sets")
    parser.add_argument("--questions", type=int, default=150, help="questions of a set, at most")
    parser.add_argument("--cache", type=Path, help="file in which vectors are kept")
    parser.add_argument(
        "--left-out", type=Path, default=LEFT_OUT, help="weights, as `ranking.py --left-out` writes them"
    )
    parser.add_argument("--out", type=Path, help="write the results here")
    options = parser.parse_args()
    results = {}
    for name in options.sets:
        dataset = draw_subset(options.data / name, options.questions)
        print(name, f"({len(dataset.questions)} questions, {len(dataset.passages)} passages)")
        if options.step == "prepare":
            prepare(dataset, options.folder / name)
        else:
            learned = read_left_out(options.left_out)
            weights = learned.get(name) or learned[name_kind(name)]
            embed = CachedEmbedding(LightEmbedding(), options.cache)
            results[name] = measure(dataset, options.folder / name, weights, embed)
    if options.step == "measure" and options.out is not None:
        write_whole(options.out, json.dumps(results, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
