"""The requests that a method makes of the outside world; each says what its answer is.

A flow yields batches of them (see `flow`); the store, a graph, an embedding model, a language model or a base retriever
answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle

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
class RetrievePassages(Request[list[NodeWithScore]]):
    """Base retrieval over passages, h(q, C) of GeAR §3. Answer: `list[NodeWithScore]`, best first."""

    query: QueryBundle


@dataclass(frozen=True)
class Reply:
    """What came of asking.

    Attributes:
        text: the reply: text, or the structured output as JSON; the words of refusal if the model refused. It holds no
            half characters, which neither a trace nor a store can keep.
        refused: the model, or its provider's filter, refused.
        truncated: the reply was cut off at the model's limit.
        error: the exception that ended the last try; None if there is a reply.
        calls: calls made, retries included.
        prompt_tokens: of the call that was answered; as its client counts them, else by LlamaIndex's tokenizer;
            beyond 500,000 characters a quarter of these.
        completion_tokens: likewise.
        ms: how long it took, in milliseconds, retries included.

    """

    text: str = ""
    refused: bool = False
    truncated: bool = False
    error: Exception | None = None
    calls: int = 1
    prompt_tokens: int = 0
    completion_tokens: int = 0
    ms: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", repair_surrogates(self.text))


@dataclass(frozen=True)
class CallLLM(Request[Reply]):
    """One call of the language model. Answer: a `Reply`, which holds the error if the call failed.

    `purpose` names the call in a trace; `timeout` is how many seconds to wait for the reply (None: no limit).
    """

    prompt: BasePromptTemplate
    variables: Mapping[str, str]
    purpose: str = ""
    timeout: float | None = None


class GraphRequest(Request[Answer_co]):
    """A request for triples that a graph of its own answers in the store's place, if there is one."""


@dataclass(frozen=True)
class LinkTriples(GraphRequest[list[list[StoredTriple]]]):
    """tripleLink (GeAR Eq. 2): the `top_k` stored triples most similar to each text.

    `query` is the question's embedding. `names` are of each text the words that name something, without the predicate:
    given them, a sparse graph looks among the triples that share some of these.

    Answer: a `list[StoredTriple]` a text, most similar first; the scores are cosines with `query`.
    """

    texts: Sequence[str]
    top_k: int
    query: Sequence[float]
    names: Sequence[str] = ()


@dataclass(frozen=True)
class SearchTriples(Request[list[StoredTriple]]):
    """Adaptive retrieval (T²RAG Alg. 2): the triples most similar to any of the texts, until `passages` are reached.

    All texts' hits in one list, most similar first, each triple once; the list ends with the triple that brings the
    last of `passages` distinct passages, or with the last triple there is. `embeddings` are those of further texts.

    Answer: `list[StoredTriple]`; a score is the cosine with the text that the triple is most similar to.
    """

    texts: Sequence[str]
    passages: int
    embeddings: Sequence[Sequence[float]] = ()


@dataclass(frozen=True)
class PassageTriples(Request[list[StoredTriple]]):
    """The triples of these passages, most similar to `query` first, at most `limit` (None: all).

    Answer: `list[StoredTriple]`.
    """

    passage_ids: Sequence[str]
    query: Sequence[float]
    limit: int | None


class Candidate(NamedTuple):
    """A triple that a beam may grow by, before anybody has read it."""

    id: str
    score: float
    """Cosine of the query's embedding and the triple's."""


@dataclass(frozen=True)
class NeighborTriples(GraphRequest[list[list[Candidate]]]):
    """For each triple, the triples that share an entity with it (GeAR §4.2), most similar to `query` first.

    At most `limit` each, none of `exclude`. `query` is the question's embedding, `question` its text, for a graph that
    is searched by words.

    Answer: a `list[Candidate]` a triple.
    """

    triple_entities: Sequence[tuple[str, ...]]
    query: Sequence[float]
    exclude: Sequence[str]
    limit: int
    question: str = ""


class Incidence(NamedTuple):
    """What a triple joins."""

    id: str
    entities: tuple[str, ...]
    passage_id: str


@dataclass(frozen=True)
class IncidentTriples(Request[list[list[Incidence]]]):
    """For each group of entities and passages: triples with one of the entities, or of one of the passages, by id.

    `limits` says how many at most, a group. Answer: a `list[Incidence]` a group.
    """

    groups: Sequence[tuple[Sequence[str], Sequence[str]]]
    limits: Sequence[int]


@dataclass(frozen=True)
class FetchTriples(GraphRequest[dict[str, StoredTriple]]):
    """Fetch triples by id: a hop sees a thousand candidates and reads the few that win.

    Answer: id → `StoredTriple`, its score 0, of those that exist.
    """

    ids: Sequence[str]


@dataclass(frozen=True)
class ChainSimilarities(GraphRequest[list[list[float]]]):
    """For each pair (chain ids, candidate ids): the dot product of each candidate with the sum of the chain's vectors.

    Vectors are unit length. Answer: a `list[float]` a pair.
    """

    pairs: Sequence[tuple[Sequence[str], Sequence[str]]]


@dataclass(frozen=True)
class FetchPassages(Request[list[BaseNode]]):
    """Fetch passages by node id. Answer: the `list[BaseNode]` of those that exist, in the order asked."""

    ids: Sequence[str]


@dataclass(frozen=True)
class ExtractionCallIds(Request[list[tuple[str, str]]]):
    """Which passages there are, and which call of an extractor each shared.

    Answer: a `list[tuple[str, str]]`: node id, and the call's name as `gear_extraction` has it (empty if it has none).
    """


@dataclass(frozen=True)
class AlignPassages(Request[list[list[NodeWithScore]]]):
    """Online alignment (Millions of GeAR-s, Eq. 4): for each text the `top_k` passages that BM25 ranks first.

    Answer: a `list[NodeWithScore]` a text, best first.
    """

    texts: Sequence[str]
    top_k: int


@dataclass(frozen=True)
class RunFunction(Request[Answer_co]):
    """Work for the processor that takes longer than an event loop should wait. Answer: what the function returns."""

    function: Callable[[], Answer_co]


@dataclass(frozen=True)
class QdrantCall(Request[Any]):
    """One call of a Qdrant client's method. Answer: what the method returns."""

    method: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
