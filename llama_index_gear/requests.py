"""The requests that a flow makes of the outside world, each with its answer.

A flow yields them in batches (see `flow`). The store, an external graph, an embedding model, an LLM or a base retriever
answers them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle
from llama_index.core.vector_stores.types import VectorStoreQueryMode

from llama_index_gear.errors import repair_surrogates
from llama_index_gear.flow import Answer_co, Request
from llama_index_gear.triple import StoredTriple


@dataclass(frozen=True)
class EmbedQuery(Request[list[float]]):
    """Embed a question. Answer: `list[float]`."""

    text: str


@dataclass(frozen=True)
class EmbedTexts(Request[list[list[float]]]):
    """Embed documents. Answer: one `list[float]` a text."""

    texts: Sequence[str]


@dataclass(frozen=True)
class FinishWrites(Request[None]):
    """Finish or undo what calls that ended early left in a store. Answer: None.

    Afterwards each triple is one that its passage states. On a store that is in order it costs one query.
    """


@dataclass(frozen=True)
class RetrievePassages(Request[list[NodeWithScore]]):
    """Base retrieval over passages, h(q, C) of GeAR §3. Answer: `list[NodeWithScore]`, best first."""

    query: QueryBundle


@dataclass(frozen=True)
class SearchLists(Request[list[list[NodeWithScore]]]):
    """Search passages in several modes at once: dense (DEFAULT; scores are cosines) and BM25 (SPARSE).

    `embedding` is the question's; BM25 doesn't need it. Answer: for each mode a `list[NodeWithScore]` of at most
    `top_k`, best first.
    """

    question: str
    embedding: Sequence[float]
    modes: Sequence[VectorStoreQueryMode]
    top_k: int


@dataclass(frozen=True)
class Reply:
    """The result of one LLM call.

    Attributes:
        text: the reply without thoughts: text, or the structured output as JSON. If the model refused, its words of
            refusal. Lone surrogates are replaced, since neither a trace nor a store can keep them.
        refused: True if the model, or its provider's filter, refused.
        truncated: True if the reply was cut off at the model's limit.
        is_thought: True if it was cut off in the model's thoughts, so that there is no text.
        error: the exception that ended the last try; None if there is a reply.
        calls: calls made, retries included.
        prompt_tokens: tokens of the answered calls' prompts, as the LLM's client counts them, else by LlamaIndex's
            tokenizer; for more than 500,000 characters, a quarter of their number. Two calls are answered if the first
            reply was cut off in its thoughts, and asked for again.
        completion_tokens: tokens of the replies, counted likewise.
        ms: duration in milliseconds, retries included.

    """

    text: str = ""
    refused: bool = False
    truncated: bool = False
    is_thought: bool = False
    error: Exception | None = None
    calls: int = 1
    prompt_tokens: int = 0
    completion_tokens: int = 0
    ms: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", repair_surrogates(self.text))


@dataclass(frozen=True)
class CallLLM(Request[Reply]):
    """Call the language model. Answer: a `Reply`, which holds the error if the call failed.

    `purpose` names the call in a trace. `timeout` is the time limit of the reply in seconds (None: no limit).
    `max_calls` limits the calls that are made for it, retries included (None: no further limit).
    """

    prompt: BasePromptTemplate
    variables: Mapping[str, str]
    purpose: str = ""
    timeout: float | None = None
    max_calls: int | None = None


class GraphRequest(Request[Answer_co]):
    """A request for triples. The external graph answers it in the store's place, if there is one."""


@dataclass(frozen=True)
class LinkTriples(GraphRequest[list[list[StoredTriple]]]):
    """Find the `top_k` stored triples most similar to each text: tripleLink (GeAR Eq. 2).

    `query` is the question's embedding. `names` holds, for each text, its words without the predicate. Given them, a
    sparse graph searches only triples that share some of these words.

    Answer: a `list[StoredTriple]` a text, most similar first; the scores are cosines with `query`.
    """

    texts: Sequence[str]
    top_k: int
    query: Sequence[float]
    names: Sequence[str] = ()


@dataclass(frozen=True)
class SearchTriples(Request[list[StoredTriple]]):
    """Find the triples most similar to any of the texts, from `passages` distinct passages (T²RAG Alg. 2).

    The hits of all texts form one list, most similar first, each triple once. The list ends with the triple that brings
    the last of the `passages` distinct passages, or with the last stored triple. `embeddings` are those of further
    texts to search by.

    Answer: `list[StoredTriple]`; a score is the cosine with the text that the triple is most similar to.
    """

    texts: Sequence[str]
    passages: int
    embeddings: Sequence[Sequence[float]] = ()


@dataclass(frozen=True)
class PassageTriples(Request[list[StoredTriple]]):
    """Fetch the triples of these passages, most similar to `query` first, at most `limit` (None: all).

    Answer: `list[StoredTriple]`.
    """

    passage_ids: Sequence[str]
    query: Sequence[float]
    limit: int | None


class Candidate(NamedTuple):
    """A triple that may extend a beam; its text is not fetched yet."""

    id: str
    score: float
    """Cosine of the query's embedding and the triple's."""


@dataclass(frozen=True)
class NeighborTriples(GraphRequest[list[list[Candidate]]]):
    """Find the neighbors of each triple: the triples that share an entity with it (GeAR §4.2).

    Each triple gets at most `limit` neighbors, most similar to `query` first, and none of `exclude`. `query` is the
    question's embedding; `question` is its text, for a graph that is searched by words.

    Answer: a `list[Candidate]` a triple.
    """

    triple_entities: Sequence[tuple[str, ...]]
    query: Sequence[float]
    exclude: Sequence[str]
    limit: int
    question: str = ""


class Incidence(NamedTuple):
    """The entities and the passage that a triple joins, and the links of the entities: (entity, its alias)."""

    id: str
    entities: tuple[str, ...]
    passage_id: str
    aliases: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class IncidentTriples(Request[list[list[Incidence]]]):
    """Find, for each group of entities and passages, the triples with one of the entities or of one of the passages.

    `limits` holds the highest number of triples of each group. Answer: a `list[Incidence]` a group, ordered by id.
    """

    groups: Sequence[tuple[Sequence[str], Sequence[str]]]
    limits: Sequence[int]


@dataclass(frozen=True)
class FetchTriples(GraphRequest[dict[str, StoredTriple]]):
    """Fetch triples by id: of a hop's thousand candidates, only the winning few are read.

    Answer: id → `StoredTriple` with score 0, for the ids that exist.
    """

    ids: Sequence[str]


@dataclass(frozen=True)
class ChainSimilarities(GraphRequest[list[list[float]]]):
    """Compute the dot product of each candidate's vector with the sum of its chain's vectors.

    A pair is (chain ids, candidate ids). Vectors have unit length. Answer: a `list[float]` a pair.
    """

    pairs: Sequence[tuple[Sequence[str], Sequence[str]]]


@dataclass(frozen=True)
class FetchPassages(Request[list[BaseNode]]):
    """Fetch passages by node id. Answer: the `list[BaseNode]` of those that exist, in the order asked."""

    ids: Sequence[str]


@dataclass(frozen=True)
class ExtractionCallIds(Request[list[tuple[str, str]]]):
    """List the passages, each with the id of the extractor's call that it shared.

    Answer: a `list[tuple[str, str]]`: node id, and `shared_call_id` of its `gear_extraction` (empty if it has none).
    """


@dataclass(frozen=True)
class ImportedPassages(Request[tuple[list[BaseNode], Any]]):
    """Read passages that were taken from another collection, without embeddings; of a whole store, all tenants'.

    Either the passages with these `ids` are read, whoever gave them, or the page at `offset` of those that `collection`
    gave, at `place` (see `Connection.place`) or, if that is empty, anywhere. Answer: the passages, and the offset of
    the next page (None: no more).
    """

    ids: Sequence[str] | None = None
    collection: str = ""
    place: str = ""
    offset: Any = None


@dataclass(frozen=True)
class ResolveCollections(Request[dict[str, Any]]):
    """Find the collections that the store's two names lead to now.

    Answer: name → `NamedCollection`, for the names that lead to one.
    """


@dataclass(frozen=True)
class AlignPassages(Request[list[list[NodeWithScore]]]):
    """Find, for each text, the `top_k` passages that BM25 ranks first: online alignment (Millions of GeAR-s, Eq. 4).

    Answer: a `list[NodeWithScore]` a text, best first.
    """

    texts: Sequence[str]
    top_k: int


@dataclass(frozen=True)
class RunFunction(Request[Answer_co]):
    """Run a function that would block an event loop for too long. Answer: what the function returns."""

    function: Callable[[], Answer_co]


@dataclass(frozen=True)
class QdrantCall(Request[Any]):
    """Call a method of a Qdrant client. Answer: what the method returns."""

    method: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
