"""Measure what graph and ranking are worth when documents are split as people split them. No language model.

    python examples/benchmarks/chunks.py --data DIR --embed MODEL_DIR --out chunks.json

Two corpora: "company_wiki", whose documents are its pages, and "2wiki" (in `--data`). Ten passages of the latter, drawn
at random, make one document. Their titles are its headings, and its own title says nothing: a chunk mixes topics.
LlamaIndex's `SentenceSplitter` splits documents into chunks of 224, 256, 512 and 1,024 tokens, which overlap by 20.
"As they are" means whole pages, and single passages under their own titles. "Headings" means that its
`MarkdownNodeParser` makes a chunk of each section of the wiki, with the headings above in its metadata (`header_path`);
"headings, 224", that `SentenceSplitter` splits the long ones of these. Triples are found by rule.

Every method returns forty chunks. What it found is the text of its results, in their order, up to

- so many chunks (`5 chunks`, `10 chunks`), which is more text the larger the chunks are;
- so many characters (`5,000 characters` and more), which is the same amount of text at every size: the last chunk is
  cut, and an overlap counts twice.

A gold passage is found if at least half of its evidence stands in that text. Its evidence is the sentences that the
question's decomposition quotes from it (the wiki has them), or else the whole passage, without its title. Recall is the
share of a question's gold passages that are found.

Methods: "dense", "bm25" and "hybrid" are the store's own search. "bm25, average 60" is the same with `bm25_avg_len=60`
instead of the learned length. "graph" is `GraphRetriever`, compared with hybrid. "ranker" is `PassageRanker` over the
forty of dense, compared with dense. p is of the paired permutation test, two-sided, uncorrected.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from harness.cached_embedding import CachedEmbedding
from harness.data import Dataset, Passage, Question, load, write_whole
from harness.methods import to_nodes
from harness.settings import MODES
from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.node_parser import MarkdownNodeParser, SentenceSplitter
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore
from llama_index.embeddings.huggingface import HuggingFaceEmbedding

from llama_index_gear import GeARVectorStore, GraphRetriever, MentionTripleExtractor, PassageRanker, passage_id
from llama_index_gear.nodes import read_triples
from llama_index_gear.ranking.measures import permutation_p_value
from llama_index_gear.store.bm25 import LEAST_AVG_LEN, learn_average, make_encoder
from llama_index_gear.store.settings import CollectionSettings

WIKI = Path(__file__).parent.parent / "data" / "company_wiki"
TOGETHER = {"company_wiki": 1, "2wiki": 10}
"""Corpus → its passages that make one document."""
SIZES = (None, 224, 256, 512, 1_024)
"""Tokens of a chunk at most; None: passages as they are."""
OF_MARKDOWN = {"company_wiki": (None, 224)}
"""Corpus of Markdown → tokens of a chunk at most, where sections are split; None: sections as they are."""
OVERLAP = 20
TOP_K = 40
CHUNKS = (5, 10)
BUDGETS = (5_000, 10_000, 20_000)
AGAINST = {"graph": "hybrid", "ranker": "dense", "bm25": "bm25, average 60"}
"""Method → the method that it is compared with."""
BATCH = 64

Retrieve = Callable[[str], list[NodeWithScore]]


class Span(NamedTuple):
    """A part of a document, from one of its characters to before another."""

    document: str
    start: int
    end: int


Evidence = Sequence[Sequence[Span]]
"""The evidence of a question: the spans of each gold passage."""


# -- documents and chunks ----------------------------------------------------------------------------------------------


def draw(dataset: Dataset, questions: int, passages: int) -> Dataset:
    """Draw so many questions, and a corpus of so many passages: their gold ones, then others."""
    generator = random.Random(0)
    chosen = generator.sample(dataset.questions, questions)
    gold = {passage_id for question in chosen for passage_id in question.gold}
    others = [passage.id for passage in dataset.passages if passage.id not in gold]
    kept = gold | set(generator.sample(others, passages - len(gold)))
    return Dataset(dataset.name, [passage for passage in dataset.passages if passage.id in kept], chosen)


def join_passages(dataset: Dataset, together: int) -> tuple[list[Passage], dict[str, Span]]:
    """Join passages, shuffled, into documents. Return these, and the place of each passage's text by its id.

    With one passage a document, documents are the passages as they are.
    """
    passages = list(dataset.passages)
    if together == 1:
        return passages, {passage.id: Span(passage.id, 0, len(passage.text)) for passage in passages}
    random.Random(0).shuffle(passages)
    documents, places = [], {}
    for number, first in enumerate(range(0, len(passages), together)):
        name, text = f"handbook-{number:03}", ""
        for passage in passages[first : first + together]:
            text += f"# {passage.title}\n\n"
            places[passage.id] = Span(name, len(text), len(text) + len(passage.text))
            text += f"{passage.text}\n\n"
        documents.append(Passage(name, name, text))
    return documents, places


def split_documents(documents: Sequence[Passage], chunk_size: int | None, by_headings: bool = False) -> list[BaseNode]:
    """Split documents into sections, if by headings, and into chunks of so many tokens; None: into none."""
    nodes = to_nodes(Dataset("", list(documents), []), with_triples=False)
    if by_headings:
        return split_sections(nodes, chunk_size)
    if chunk_size is None:
        return nodes
    splitter = SentenceSplitter(chunk_size=chunk_size, chunk_overlap=OVERLAP, id_func=passage_id)
    return splitter(nodes)


def split_sections(documents: Sequence[BaseNode], chunk_size: int | None) -> list[BaseNode]:
    """Split documents at their headings, and sections into chunks of so many tokens; None: into none."""
    nodes: list[BaseNode] = []
    for document in documents:
        sections = MarkdownNodeParser()([document])
        for number, section in enumerate(sections):
            section.id_ = f"{document.node_id}-{number}"
        if chunk_size is None:
            nodes += sections
            continue
        splitter = SentenceSplitter(chunk_size=chunk_size, chunk_overlap=OVERLAP, id_func=passage_id)
        for section in sections:
            first = find_span(section).start
            for chunk in splitter([section]):
                _, start, end = find_span(chunk)  # within the section
                nodes.append(chunk.model_copy(update={"start_char_idx": first + start, "end_char_idx": first + end}))
    return nodes


def find_span(node: BaseNode) -> Span:
    """Return the place of a chunk in its document."""
    document = node.ref_doc_id
    if document is None:
        return Span(node.node_id, 0, len(node.get_content(MetadataMode.NONE)))
    start, end = getattr(node, "start_char_idx", None), getattr(node, "end_char_idx", None)
    if start is None or end is None:
        raise ValueError(f"the splitter doesn't say where in {document} the chunk {node.node_id} stands")
    return Span(document, start, end)


# -- evidence ----------------------------------------------------------------------------------------------------------


def read_quotes(folder: Path) -> dict[tuple[str, str], list[str]]:
    """Read the sentences that questions' decompositions quote: (question id, passage id) → sentences."""
    quotes: dict[tuple[str, str], list[str]] = {}
    with (folder / "questions.jsonl").open(encoding="utf-8", newline="\n") as lines:
        for row in map(json.loads, lines):
            for step in row.get("decomposition") or ():
                quotes.setdefault((row["id"], step["support_passage_id"]), []).append(step["support"])
    return quotes


def find_evidence(
    question: Question,
    quotes: Mapping[tuple[str, str], Sequence[str]],
    texts: Mapping[str, str],
    places: Mapping[str, Span],
) -> Evidence:
    """Return the spans of the evidence in each gold passage of a question."""
    evidence = []
    for gold in question.gold:
        place, spans = places[gold], []
        for quote in quotes.get((question.id, gold), ()):
            start = place.start + texts[gold].index(quote)
            spans.append(Span(place.document, start, start + len(quote)))
        evidence.append(spans or [place])
    return evidence


def cut_text(spans: Sequence[Span], budget: int) -> list[Span]:
    """Return the first so many characters of chunks: whole ones, then the beginning of the next."""
    read = []
    for document, start, end in spans:
        read.append(Span(document, start, min(end, start + budget)))
        budget -= end - start
        if budget <= 0:
            break
    return read


def is_found(evidence: Sequence[Span], read: Sequence[Span]) -> bool:
    """Return True if at least half of the characters of the evidence stand in what is read."""
    found = 0
    for document, start, end in evidence:
        parts = [range(max(start, part.start), min(end, part.end)) for part in read if part.document == document]
        found += len(set().union(*parts))
    return 2 * found >= sum(span.end - span.start for span in evidence)


def measure_recalls(spans: Sequence[Span], evidence: Evidence) -> dict[str, float]:
    """Return a question's recall by measure, from the places of the chunks found, best first."""
    read = {f"{number} chunks": spans[:number] for number in CHUNKS}
    read |= {f"{budget:,} characters": cut_text(spans, budget) for budget in BUDGETS}
    return {name: mean(is_found(gold, parts) for gold in evidence) for name, parts in read.items()}


# -- measuring ---------------------------------------------------------------------------------------------------------


def embed_chunks(nodes: Sequence[BaseNode], embed_model: BaseEmbedding) -> None:
    """Embed chunks, short ones first, so that a batch pads little."""
    by_length = sorted(nodes, key=lambda node: len(node.get_content(MetadataMode.EMBED)))
    texts = [node.get_content(MetadataMode.EMBED) for node in by_length]
    for node, vector in zip(by_length, embed_model.get_text_embedding_batch(texts), strict=True):
        node.embedding = vector


def describe_chunks(nodes: Sequence[BaseNode], model: HuggingFaceEmbedding) -> dict[str, Any]:
    """Return the number of chunks and triples, what the embedding model leaves unread, and BM25's learned length."""
    texts = [node.get_content(MetadataMode.EMBED) for node in nodes]
    tokenizer = copy.deepcopy(model._model.tokenizer)
    tokens = [len(ids) for ids in tokenizer(texts, truncation=False, padding=False, verbose=False)["input_ids"]]
    triples = [len(read_triples(node)) for node in nodes]
    encoder, limit = make_encoder("english", LEAST_AVG_LEN), model.max_length
    return {
        "chunks": len(nodes),
        "characters": round(mean(len(node.get_content(MetadataMode.NONE)) for node in nodes)),
        "triples": sum(triples),
        "cut_off": sum(number == MentionTripleExtractor().max_triples_per_passage for number in triples),
        "longer": sum(number > limit for number in tokens),
        "unread": round(100 * sum(max(0, number - limit) for number in tokens) / sum(tokens), 1),
        "average_words": learn_average([encoder.measure(text) for text in texts[:1_000]]),
    }


def list_methods(store: GeARVectorStore, constant: GeARVectorStore) -> dict[str, Retrieve]:
    """Return the methods over a store, and over one of the same chunks with a constant average length."""

    def search(name: str, in_store: GeARVectorStore) -> Retrieve:
        index = VectorStoreIndex.from_vector_store(in_store, embed_model=in_store.embed_model)
        return index.as_retriever(similarity_top_k=TOP_K, vector_store_query_mode=MODES[name]).retrieve

    dense, ranker = search("dense", store), PassageRanker(top_n=TOP_K)
    return {
        "dense": dense,
        "bm25": search("bm25", store),
        "bm25, average 60": search("bm25", constant),
        "hybrid": search("hybrid", store),
        "graph": GraphRetriever(store, similarity_top_k=TOP_K).retrieve,
        "ranker": lambda question: ranker.postprocess_nodes(dense(question), query_str=question),
    }


def compare(values: Mapping[str, Sequence[float]], others: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return the gain over another method by measure, in points, with its p-value."""
    gains = {name: [x - y for x, y in zip(values[name], others[name], strict=True)] for name in values}
    return {
        name: {"points": round(100 * mean(gain), 1), "p": round(permutation_p_value(gain), 4)}
        for name, gain in gains.items()
    }


def measure_methods(
    methods: Mapping[str, Retrieve],
    questions: Sequence[tuple[str, Evidence]],
    spans: Mapping[str, Span],
) -> list[dict[str, Any]]:
    """Return a row for each method: its recalls in percent, and its gains over the method it is compared with."""
    recalls: dict[str, dict[str, list[float]]] = {}
    for method, retrieve in methods.items():
        of_questions = [
            measure_recalls([spans[result.node.node_id] for result in retrieve(question)], evidence)
            for question, evidence in questions
        ]
        recalls[method] = {name: [row[name] for row in of_questions] for name in of_questions[0]}
    rows = []
    for method, values in recalls.items():
        row: dict[str, Any] = {"method": method}
        row["recall"] = {name: round(100 * mean(shares), 1) for name, shares in values.items()}
        if method in AGAINST:
            row |= {"against": AGAINST[method], "gain": compare(values, recalls[AGAINST[method]])}
        rows.append(row)
        print(f"    {method:18}", *(f"{share:6.1f}" for share in row["recall"].values()), flush=True)
    return rows


def name_size(chunk_size: int | None, by_headings: bool) -> str:
    """Return the name of a way to split documents in the results."""
    if by_headings:
        return "headings" if chunk_size is None else f"headings, {chunk_size}"
    return "as they are" if chunk_size is None else str(chunk_size)


def measure_size(
    dataset: Dataset,
    quotes: Mapping[tuple[str, str], Sequence[str]],
    together: int,
    chunk_size: int | None,
    by_headings: bool,
    embed_model: BaseEmbedding,
    model: HuggingFaceEmbedding,
) -> dict[str, Any]:
    """Split a corpus into chunks of one size, and measure every method on them."""
    documents, places = join_passages(dataset, 1 if chunk_size is None else together)
    plain = split_documents(documents, chunk_size, by_headings)
    nodes = MentionTripleExtractor()(plain)
    embed_chunks(nodes, embed_model)
    for node, embedded in zip(plain, nodes, strict=True):
        node.embedding = embedded.embedding
    texts = {passage.id: passage.text for passage in dataset.passages}
    questions = [(asked.question, find_evidence(asked, quotes, texts, places)) for asked in dataset.questions]
    described = describe_chunks(nodes, model)
    print("  ", name_size(chunk_size, by_headings), described, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {"embed_model": embed_model, "batch_size": BATCH}
        with (
            closing(GeARVectorStore.from_path(Path(folder, "learned"), **settings)) as store,
            closing(
                GeARVectorStore.from_path(
                    Path(folder, "constant"), collection_settings=CollectionSettings(bm25_avg_len=60), **settings
                )
            ) as constant,
            warnings.catch_warnings(action="ignore", category=UserWarning),  # on long chunks: they are counted above
        ):
            store.add(nodes)
            constant.add(plain)
            spans = {node.node_id: find_span(node) for node in nodes}
            return {**described, "rows": measure_methods(list_methods(store, constant), questions, spans)}


def main() -> None:
    """Measure every size of both corpora, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the data folder 2wiki")
    parser.add_argument("--embed", required=True, help="folder (or hub name) of a sentence-transformers model")
    parser.add_argument("--cache", type=Path, default=None, help="file in which embeddings are kept")
    parser.add_argument(
        "--sample", type=int, nargs=2, metavar=("QUESTIONS", "PASSAGES"), help="of 2wiki, drawn; default: all"
    )
    parser.add_argument("--only", choices=TOGETHER, default=None, help="one corpus; the other's results stay in --out")
    parser.add_argument("--out", type=Path, default=None, help="write the results here")
    options = parser.parse_args()
    model = HuggingFaceEmbedding(model_name=options.embed, embed_batch_size=BATCH, device="cpu")
    embed_model: BaseEmbedding = model if options.cache is None else CachedEmbedding(model, options.cache)
    results: dict[str, Any] = {}
    if options.only is not None and options.out is not None and options.out.exists():
        results = json.loads(options.out.read_text("utf-8"))
    for name in TOGETHER if options.only is None else [options.only]:
        folder = WIKI if name == WIKI.name else options.data / name
        dataset = load(folder)
        if options.sample is not None and name != WIKI.name:
            dataset = draw(dataset, *options.sample)
        sizes: dict[str, Any] = {}
        results[name] = {"questions": len(dataset.questions), "passages": len(dataset.passages), "sizes": sizes}
        print(name, f"({len(dataset.questions)} questions, {len(dataset.passages):,} passages)", flush=True)
        quotes, together = read_quotes(folder), TOGETHER[name]
        for size, by_headings in [*product(SIZES, [False]), *product(OF_MARKDOWN.get(name, ()), [True])]:
            measured = measure_size(dataset, quotes, together, size, by_headings, embed_model, model)
            sizes[name_size(size, by_headings)] = measured
            if options.out is not None:
                write_whole(options.out, json.dumps(results, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
