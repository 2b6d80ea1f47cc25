"""Learn the ranking's weights, and measure what the ranking is worth: recall at seven cuts, without a language model.

    python examples/benchmarks/ranking.py --data DIR --stores DIR --embed MODEL_DIR --out results.json [--learn FILE]

`--stores` holds a filled store for each set and kind of triples, `SET-file` and `SET-offline`, as
`retrieval.py --store` leaves it, and may hold copies `SET-file-aliases` and `SET-offline-aliases` in which aliases are
linked (`store.link_aliases()`). Pools are gathered once, by `GraphRetriever.gather_pool`; the rankings are computed
from them.

Rows:

- "dense", "bm25", "hybrid": the store's own search; hybrid fuses as many passages of each as it returns.
- "pool": all that the pool holds, a bound.
- "naive", "hipporag", "hipporag-synonyms", "property graph": methods to compare with, over the same store
  (`harness/compared.py`).
- "default": the ranking. On the sets of `LEARNED` each question is ranked by weights that were learned without its
  fifth of the questions (of all sets); elsewhere by the shipped ones, which saw none of these questions.
- "left out": the ranking by weights that were learned without the whole set.
- "default − NAME": the ranking without a signal; "default − pagerank" over a pool of both searches alone.
- "default + beams": the ranking over a pool with a further list, the first forty passages of the papers' beam search
  (`NaiveGERetriever` from ten of hybrid), by weights that were learned with it.
- "default + aliases": the ranking over the store in which aliases are linked.
- "first rule": the ranking by lists alone.
- "ranker": what `PassageRanker` does with the first forty of hybrid: from their order, texts and triples alone.

Each row but the lists has its gain over hybrid; "default" has its gain over HippoRAG too, at each cut over the variant
with more recall there.

`--learn` writes weights that are learned from all questions of `LEARNED`.

`--shipped musique_train,hotpotqa` learns nothing: it ranks these sets, whatever model embeds them, by the shipped
weights, without the rows that need other weights. The shipped weights saw some questions of `LEARNED`, embedded by
all-MiniLM-L6-v2.

With `--cache` the recalls of the methods to compare with are kept there, in `SET-KIND.compared.json`; delete the file
to measure them anew. `--compare musique,2wiki` does nothing but measure these for some sets: a later run reads them.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from harness.cached_embedding import CachedEmbedding
from harness.compared import HIPPORAG, METHODS, measure_compared
from harness.data import Question, load, write_whole
from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.embeddings.huggingface import HuggingFaceEmbedding

from llama_index_gear import GeARVectorStore, GraphRetriever, NaiveGERetriever, RankingWeights
from llama_index_gear.nodes import RANKS_KEY
from llama_index_gear.ranking.learning import Example, fit_weights
from llama_index_gear.ranking.measures import permutation_p_value
from llama_index_gear.ranking.pool import Pool, PoolPassage, RankedPassage
from llama_index_gear.ranking.ranker import rank
from llama_index_gear.ranking.reasons import to_pool_passage
from llama_index_gear.store.fusion import reciprocal_rank_fusion

EXAMPLES = Path(__file__).parent.parent
LEARNED = ("musique", "2wiki", "hotpotqa")
"""Sets that the shipped weights are learned from."""
NOT_LEARNED = (("hotpotqa", "offline"),)
"""Of these sets, the stores that they are not learned from: with both of HotpotQA the others lose 0.3 points at 5."""
OTHERS = {"musique_train": None, "sample": EXAMPLES / "data", "company_wiki": EXAMPLES / "data" / "company_wiki"}
"""Sets that they are not learned from, and their folder if it is not under `--data`."""
KINDS = ("file", "offline")
CUTS = (2, 3, 5, 8, 10, 15, 40)
FOLDS = 5
PER_SET = 400
"""Questions of a set that weights are learned from, at most."""
TOP_K = 40
BEAM_BASE = 10
"""Passages that the beam search starts from."""
SIGNALS = ("new_words", "named", "linked", "in_question")


@dataclass
class Gathered:
    """A set's questions with their pools, how large its store is, and the recalls of the methods to compare with.

    `with_beams` has pools with a further list; `with_aliases` those of the store with linked aliases, if there is one.
    """

    passages: int
    triples: int
    pools: list[tuple[Question, Pool]]
    compared: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    with_beams: list[tuple[Question, Pool]] = field(default_factory=list)
    with_aliases: list[tuple[Question, Pool]] = field(default_factory=list)


def gather_pools(name: str, kind: str, options: argparse.Namespace) -> Gathered:
    """Gather the pool of each question of a set, and measure the methods to compare with, over its store.

    Raises:
        SystemExit: the store was not filled to the end.

    """
    dataset = load(OTHERS.get(name) or options.data / name)
    questions = [question for question in dataset.questions if question.gold][: options.limit]
    embed: BaseEmbedding = HuggingFaceEmbedding(model_name=options.embed, device="cpu")
    if options.cache is not None:
        embed = CachedEmbedding(embed, options.cache / f"{name}.sqlite")
    kept = None if options.cache is None else options.cache / f"{name}-{kind}.compared.json"
    made_of = read_note(options.stores / f"{name}-{kind}")
    path = options.stores / f"{name}-{kind}"
    asked = [] if options.compare else questions
    with closing(GeARVectorStore.from_path(path, embed_model=embed)) as store:
        pools = ask_pools(store, asked)
        beams = make_beam_retriever(store)
        with_beams = [] if options.shipped else [(question, add_beams(pool, beams)) for question, pool in pools]
        ids = [passage.id for passage in dataset.passages]
        compared = measure_compared(store, ids, questions, CUTS, kept, made_of, options.methods)
        triples = store.client.count(store.triple_collection_name).count
    with_aliases = []
    linked = path.with_name(f"{path.name}-aliases")
    if linked.exists():
        with closing(GeARVectorStore.from_path(linked, embed_model=embed)) as store:
            with_aliases = ask_pools(store, asked)
    return Gathered(len(ids), triples, pools, compared, with_beams, with_aliases)


def ask_pools(store: GeARVectorStore, questions: Sequence[Question]) -> list[tuple[Question, Pool]]:
    """Gather the pool of each question."""
    retriever = GraphRetriever(store)
    return [(question, retriever.gather_pool(question.question)) for question in questions]


def make_beam_retriever(store: GeARVectorStore) -> NaiveGERetriever:
    """Make the papers' expansion of the ten first passages of hybrid, which returns all that it reaches."""
    index = VectorStoreIndex.from_vector_store(store, embed_model=store.embed_model)
    base = index.as_retriever(vector_store_query_mode="hybrid", similarity_top_k=BEAM_BASE)
    return NaiveGERetriever(store, base, similarity_top_k=1_000)


def add_beams(pool: Pool, retriever: BaseRetriever) -> Pool:
    """Return the pool with the passages of a beam search as a further list, in the place of a foreign retriever's."""
    found = [result.node for result in retriever.retrieve(pool.question) if "graph" in result.node.metadata[RANKS_KEY]]
    found = sorted(found, key=lambda node: node.metadata[RANKS_KEY]["graph"])[:TOP_K]
    passages = [to_pool_passage(node) for node in found if node.node_id not in pool.places]
    return pool.extend(passages, {"base": [RankedPassage(node.node_id) for node in found]})


def read_note(store: Path) -> Any:
    """Read what a store is made of, as `retrieval.py` notes it beside the store.

    Raises:
        SystemExit: there is no note.

    """
    try:
        return json.loads(store.with_name(f"{store.name}.made_of.json").read_text("utf-8"))
    except FileNotFoundError:
        sys.exit(f"--stores: {store} was not filled to the end: make it anew with retrieval.py --store")


# -- learning ----------------------------------------------------------------------------------------------------------


def draw_variants(pool: Pool, draw: random.Random) -> list[Pool]:
    """Return the pool as it is, and two other forms of it that users have.

    These lack a list, have one list of a foreign retriever in the place of both searches, or have no triples.
    """
    lists = pool.lists
    hybrid = fuse_lists(lists, TOP_K)
    one = draw.choice([hybrid, forget_scores(lists["dense"]), forget_scores(lists["bm25"])])
    forms = [
        pool.select({"base": one}),
        pool.select({"base": hybrid, "pagerank": lists["pagerank"]}),
        pool.select({"base": one, "pagerank": lists["pagerank"]}),
        pool.select({"dense": lists["dense"], "pagerank": lists["pagerank"]}),
        pool.select({"bm25": lists["bm25"], "pagerank": lists["pagerank"]}),
        without_triples(pool.select({"dense": lists["dense"], "bm25": lists["bm25"]})),
        without_triples(pool.select({"base": hybrid})),
    ]
    return [pool, *draw.sample(forms, 2)]


def as_they_are(pool: Pool, draw: random.Random) -> list[Pool]:
    """Return the pool alone."""
    return [pool]


def fuse_lists(lists: Mapping[str, Sequence[RankedPassage]], top_k: int) -> list[RankedPassage]:
    """Fuse the first of both searches, as the store's hybrid search does."""
    both = [[place.id for place in lists[name][:top_k]] for name in ("dense", "bm25")]
    return [RankedPassage(passage_id) for passage_id, _ in reciprocal_rank_fusion(both)[:top_k]]


def forget_scores(places: Sequence[RankedPassage]) -> list[RankedPassage]:
    """Return the places of a list without its scores."""
    return [RankedPassage(place.id) for place in places]


def without_triples(pool: Pool) -> Pool:
    """Return the pool of passages that state no facts."""
    passages = [PoolPassage(passage.id, passage.text, ()) for passage in pool.passages]
    return Pool(pool.question, passages, pool.lists, pool.encoder)


def learn(
    pools: Iterable[Sequence[tuple[Question, Pool]]],
    keep: Callable[[int], bool],
    draw_forms: Callable[[Pool, random.Random], list[Pool]] = draw_variants,
) -> RankingWeights:
    """Learn weights from forms of the pools of some questions of each set, those whose number `keep` keeps."""
    examples = []
    for of_set in pools:
        draw = random.Random(0)
        chosen = sorted(draw.sample(range(len(of_set)), min(PER_SET, len(of_set))))
        for number in filter(keep, chosen):
            question, pool = of_set[number]
            examples += [Example(variant, frozenset(question.gold)) for variant in draw_forms(pool, draw)]
    return fit_weights(examples)


def round_weights(weights: RankingWeights) -> RankingWeights:
    """Round weights to three decimals, as they are shipped."""
    tables = weights.to_dict().items()
    return RankingWeights.from_dict(
        {field: {name: round(w, 3) for name, w in table.items()} for field, table in tables}
    )


def keep_others(fold: int) -> Callable[[int], bool]:
    """Keep the questions that are not of this fold."""
    return lambda number: number % FOLDS != fold


# -- measuring ---------------------------------------------------------------------------------------------------------

Ranking = Callable[[int, Pool, int], Sequence[str]]
"""Returns the ids of a question's first passages: by its number, its pool, and how many are wanted."""


def by_weights(weights: RankingWeights) -> Ranking:
    """Rank every pool by the same weights."""
    return lambda number, pool, top_k: [ranked.id for ranked in rank(pool, weights, top_k)]


def by_list(name: str) -> Ranking:
    """Return a list as it is."""
    return lambda number, pool, top_k: [place.id for place in pool.lists[name][:top_k]]


def by_folds(weights: Sequence[RankingWeights], others: Sequence[tuple[Question, Pool]] = ()) -> Ranking:
    """Rank each pool, or the other one of its question, by the weights that were learned without its fold."""

    def ranking(number: int, pool: Pool, top_k: int) -> list[str]:
        chosen = others[number][1] if others else pool
        return [ranked.id for ranked in rank(chosen, weights[number % FOLDS], top_k)]

    return ranking


BASES: dict[str, Ranking] = {
    "dense": by_list("dense"),
    "bm25": by_list("bm25"),
    "hybrid": lambda number, pool, top_k: [place.id for place in fuse_lists(pool.lists, top_k)],
    "pagerank": by_list("pagerank"),
    "pool": lambda number, pool, top_k: [passage.id for passage in pool.passages],
}


def recalls(pools: Sequence[tuple[Question, Pool]], ranking: Ranking) -> dict[int, list[float]]:
    """Return the recall of each question at each cut. A ranking that depends on the cut is asked for each."""
    shares: dict[int, list[float]] = {cut: [] for cut in CUTS}
    for number, (question, pool) in enumerate(pools):
        whole = ranking(number, pool, max(CUTS))
        for cut in CUTS:
            ids = whole if ranking is BASES["pool"] else whole[:cut]
            if ranking is BASES["hybrid"]:  # depends on the cut, as the store's own does
                ids = ranking(number, pool, cut)
            shares[cut].append(len(set(ids) & set(question.gold)) / len(question.gold))
    return shares


def without_signal(weights: RankingWeights, signal: str) -> RankingWeights:
    """Return the weights without those of a signal; "named" is without its likeness too."""
    dropped = {signal, f"{signal}_likeness"}
    return RankingWeights(
        weights.first, {name: weight for name, weight in weights.second.items() if name not in dropped}
    )


def list_rankings(
    weights: Sequence[RankingWeights],
    with_beams: Sequence[RankingWeights],
    left_out: RankingWeights | None,
    of_set: Gathered,
) -> dict[str, Ranking]:
    """Return the rankings to measure by name. `weights` holds those of each fold, `with_beams` those with beams."""
    rankings: dict[str, Ranking] = {
        **BASES,
        "default": by_folds(weights),
        "default + beams": by_folds(with_beams, of_set.with_beams),
        "default + aliases": by_folds(weights, of_set.with_aliases),
        "first rule": by_folds([RankingWeights(fold.first, {"first": 1.0}) for fold in weights]),
        **{f"default − {name}": by_folds([without_signal(fold, name) for fold in weights]) for name in SIGNALS},
        "default − pagerank": lambda number, pool, top_k: by_folds(weights)(
            number, pool.select({name: pool.lists[name] for name in ("dense", "bm25")}), top_k
        ),
        "ranker": lambda number, pool, top_k: by_folds(weights)(
            number, pool.select({"base": fuse_lists(pool.lists, TOP_K)}), top_k
        ),
    }
    if not of_set.with_beams:
        del rankings["default + beams"]
    if not of_set.with_aliases:
        del rankings["default + aliases"]
    return rankings if left_out is None else {**rankings, "left out": by_weights(left_out)}


def learn_rankings(
    gathered: Mapping[tuple[str, str], Gathered], options: argparse.Namespace
) -> Iterator[tuple[tuple[str, str], dict[str, Ranking]]]:
    """Yield each set with its rankings, by weights learned from the sets of `LEARNED` or, `--shipped`, by these."""
    shipped = RankingWeights.default()
    if options.shipped:
        for key, of_set in gathered.items():
            yield key, list_rankings([shipped] * FOLDS, [], None, of_set)
        return
    learned = {key: of_set.pools for key, of_set in gathered.items() if key[0] in LEARNED and key not in NOT_LEARNED}
    if options.learn is not None:
        shipped = round_weights(learn(learned.values(), lambda number: True))
        shipped.save(options.learn)
        print(shipped.to_json())
    folds = [learn(learned.values(), keep_others(fold)) for fold in range(FOLDS)]
    beams = [gathered[key].with_beams for key in learned]
    beam_folds = [learn(beams, keep_others(fold), as_they_are) for fold in range(FOLDS)]
    beam_whole = learn(beams, lambda number: True, as_they_are)
    for key, of_set in gathered.items():
        if key[0] in LEARNED:
            left_out = learn((p for k, p in learned.items() if k[0] != key[0]), lambda number: True)
            yield key, list_rankings(folds, beam_folds, left_out, of_set)
        else:
            yield key, list_rankings([shipped] * FOLDS, [beam_whole] * FOLDS, None, of_set)


def summarize(shares: Mapping[int, Sequence[float]], base: Mapping[int, Sequence[float]] | None) -> dict[str, Any]:
    """Return a row: recall in percent and complete questions at each cut; its gain over hybrid, with the p-value."""
    row: dict[str, Any] = {}
    for cut, values in shares.items():
        row[f"recall@{cut}"] = round(100 * mean(values), 1)
        row[f"complete@{cut}"] = sum(value == 1 for value in values)
        if base is not None:
            row[f"gain@{cut}"] = compare_shares(values, base[cut])
    return row


def compare_shares(values: Sequence[float], others: Sequence[float]) -> dict[str, float]:
    """Return the mean gain over others in points, with the p-value of the paired test."""
    gains = [value - other for value, other in zip(values, others, strict=True)]
    return {"points": round(100 * mean(gains), 2), "p": round(permutation_p_value(gains), 4)}


def measure(
    pools: Sequence[tuple[Question, Pool]],
    rankings: Mapping[str, Ranking],
    compared: Mapping[str, Mapping[int, Sequence[float]]],
) -> list[dict[str, Any]]:
    """Return a row for each ranking of a set, and for each method that it is compared with."""
    hybrid = recalls(pools, rankings["hybrid"])
    shares: dict[str, Mapping[int, Sequence[float]]] = {name: recalls(pools, rankings[name]) for name in BASES}
    shares |= compared
    shares |= {name: recalls(pools, ranking) for name, ranking in rankings.items() if name not in BASES}
    rows = []
    for name, of_method in shares.items():
        row = {"method": name, **summarize(of_method, None if name in BASES else hybrid)}
        if name == "default" and not compared.keys().isdisjoint(HIPPORAG):
            for cut, values in of_method.items():
                best = max((compared[other][cut] for other in HIPPORAG if other in compared), key=mean)
                row[f"gain_over_hipporag@{cut}"] = compare_shares(values, best)
        rows.append(row)
        print(f"{name:24}", *(f"{row[f'recall@{cut}']:6.1f}" for cut in CUTS), flush=True)
    return rows


def read_options() -> argparse.Namespace:
    """Read and check the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names: dict[str, Any] = {"type": lambda words: words.split(","), "default": []}
    parser.add_argument("--data", type=Path, required=True, help="folder with the data folders")
    parser.add_argument("--stores", type=Path, required=True, help="folder with the stores, SET-file and SET-offline")
    parser.add_argument("--embed", required=True, help="folder (or hub name) of a sentence-transformers model")
    parser.add_argument("--cache", type=Path, default=None, help="folder in which embeddings are kept")
    parser.add_argument("--compare", **names, help="sets; only measure what they compare with")
    parser.add_argument("--shipped", **names, help="sets; measure these by the shipped weights")
    what = f"what to compare with, beside what is kept; default {','.join(METHODS)}"
    parser.add_argument("--methods", **{**names, "default": METHODS}, help=what)
    parser.add_argument("--limit", type=int, default=None, help="questions of a set, at most")
    parser.add_argument("--learn", type=Path, default=None, help="write weights, learned from all questions, here")
    parser.add_argument("--out", type=Path, default=None, help="write the results here")
    options = parser.parse_args()
    if unknown := sorted({*options.methods} - {*METHODS}):
        sys.exit(f"--methods: no method {', '.join(unknown)}; there are {', '.join(METHODS)}")
    if options.compare and options.cache is None:
        sys.exit("--compare: --cache names the folder for the recalls")
    if options.learn and options.shipped:
        sys.exit("--shipped: nothing is learned, so leave --learn out")
    for option in ("compare", "shipped"):
        if unknown := sorted({*getattr(options, option)} - {*LEARNED, *OTHERS}):
            sys.exit(f"--{option}: no set {', '.join(unknown)}; there are {', '.join((*LEARNED, *OTHERS))}")
    return options


def main() -> None:
    """Gather, learn, measure, print, write."""
    options = read_options()
    some = options.compare or options.shipped
    names = [(name, kind) for name in some or (*LEARNED, *OTHERS) for kind in KINDS]
    gathered = {key: gather_pools(*key, options) for key in names if (options.stores / "-".join(key)).exists()}
    if missing := [name for name in some or LEARNED if not any(key[0] == name for key in gathered)]:
        sys.exit(f"--stores: no store of {', '.join(missing)}")
    if options.compare:
        return
    results: dict[str, Any] = {}
    for key, rankings in learn_rankings(gathered, options):
        of_set = gathered[key]
        print(*key, f"({len(of_set.pools)} questions)")
        results["-".join(key)] = {
            "questions": len(of_set.pools),
            "passages": of_set.passages,
            "triples": of_set.triples,
            "rows": measure(of_set.pools, rankings, of_set.compared),
        }
        if options.out is not None:
            write_whole(options.out, json.dumps(results, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
