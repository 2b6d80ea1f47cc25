"""How triples ride on a node through LlamaIndex: from an extractor to the store, neither embedded nor shown.

Two carriers are read: this package's own (`gear_triples`, plain JSON, safe in every cache and store) and that of
LlamaIndex's property-graph extractors (`nodes` and `relations`, as objects or as the dicts a cache makes of them).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from llama_index.core.bridge.pydantic import BaseModel, ValidationError
from llama_index.core.graph_stores.types import KG_NODES_KEY, KG_RELATIONS_KEY, EntityNode, Relation
from llama_index.core.schema import BaseNode, MetadataMode, TransformComponent

from llama_index_gear.errors import TripleError, check_counts, check_kind, check_kinds
from llama_index_gear.triple import Triple

TRIPLES_KEY = "gear_triples"
"""Metadata key: a list of `{"subject", "predicate", "object"}`."""
EXTRACTION_KEY = "gear_extraction"
"""Metadata key: what became of the passage's extraction (see `extract.py`)."""
CHAIN_KEY = "gear_chain"
"""Metadata key of a returned passage: the triples that lead to it, `[[subject, predicate, object], …]`; [] if none."""
RANKS_KEY = "gear_ranks"
"""Metadata key of a returned passage: its rank, from 1, in each list that named it, `{"base": 3, "graph": 1}`."""
DOC_KEYS = ("doc_id", "document_id", "ref_doc_id")
"""Where LlamaIndex's own vector stores write a passage's document ("None" if there is none)."""

ONE_NODE = "write [node] for one"
"""What to write instead of `add(node)`."""

Model = TypeVar("Model", bound=BaseModel)

_TRIPLES = "write [Triple(subject, predicate, object)]"
_STRUCTURE = {"SOURCE", "PARENT", "PREVIOUS", "NEXT", "CHILD"}  # ImplicitPathExtractor's, between chunks not entities


def with_metadata(node: BaseNode, values: Mapping[str, Any], *, drop: Sequence[str] = ()) -> BaseNode:
    """A copy of `node` with `values` in its metadata, hidden from the embedding model and from the LLM.

    The node itself and the lists and dicts that it owns stay as they are.
    """
    kept = {key: value for key, value in node.metadata.items() if key not in drop}
    return node.model_copy(
        update={
            "metadata": {**kept, **values},
            "excluded_embed_metadata_keys": [*dict.fromkeys([*node.excluded_embed_metadata_keys, *values])],
            "excluded_llm_metadata_keys": [*dict.fromkeys([*node.excluded_llm_metadata_keys, *values])],
        }
    )


_MARKS: dict[type[BaseModel], set[str]] = {
    EntityNode: {"label", "name", "properties"},
    Relation: {"label", "source_id", "target_id", "properties"},
}
"""What a dict must hold to be taken for one of LlamaIndex's objects."""


class _Explained(dict[str, Any]):
    """Metadata whose text leaves the explanation out.

    LlamaIndex's fusion knows a passage again by its text and `str(metadata)`: the same passage, found in two ways,
    must be one.
    """

    def __repr__(self) -> str:
        return repr({key: value for key, value in self.items() if key not in (CHAIN_KEY, RANKS_KEY)})


def with_explanation(node: BaseNode, chain: list[list[str]], ranks: dict[str, int]) -> BaseNode:
    """A copy of `node` that says why it was found; hidden from models, and the same node to LlamaIndex's fusion."""
    copy = with_metadata(node, {CHAIN_KEY: chain, RANKS_KEY: ranks})
    return copy.model_copy(update={"metadata": _Explained(copy.metadata)})


def without_explanation(node: BaseNode) -> BaseNode:
    """The node without what a retriever said of it; itself if it says nothing."""
    if CHAIN_KEY not in node.metadata and RANKS_KEY not in node.metadata:
        return node
    ours = (CHAIN_KEY, RANKS_KEY)
    return node.model_copy(
        update={
            "metadata": {key: value for key, value in node.metadata.items() if key not in ours},
            "excluded_embed_metadata_keys": [key for key in node.excluded_embed_metadata_keys if key not in ours],
            "excluded_llm_metadata_keys": [key for key in node.excluded_llm_metadata_keys if key not in ours],
        }
    )


def llm_texts(passages: Iterable[BaseNode]) -> list[str]:
    """What a language model is shown of passages."""
    return [node.get_content(metadata_mode=MetadataMode.LLM) for node in passages]


def attach_triples(node: BaseNode, triples: Iterable[Triple]) -> BaseNode:
    """A copy of `node` that carries these triples, without repetition, in place of those it had.

    Raises:
        ArgumentError: `node` is no node, or `triples` are no `Triple`s.

    """
    check_kind(BaseNode, node=node)
    check_kind(Iterable, hint=_TRIPLES, triples=triples)
    several = list(triples)
    check_kinds(Triple, hint=_TRIPLES, triples=several)
    plain = [
        {"subject": triple.subject, "predicate": triple.predicate, "object": triple.object}
        for triple in dict.fromkeys(several)
    ]
    return with_metadata(node, {TRIPLES_KEY: plain}, drop=triple_metadata_keys(node))


def triple_metadata_keys(node: BaseNode) -> list[str]:
    """The metadata keys under which LlamaIndex's extractors left triples, and nothing of the user's own."""
    return [
        key for key, kind in ((KG_NODES_KEY, EntityNode), (KG_RELATIONS_KEY, Relation)) if _carried(node, key, kind)
    ]


def read_triples(node: BaseNode) -> list[Triple]:
    """The triples that `node` carries, of either kind, without repetition; empty if none.

    Raises:
        TripleError: `gear_triples` is not a list of subject, predicate, object, or a slot is empty.
        ArgumentError: `node` is no node.

    """
    check_kind(BaseNode, node=node)
    return list(dict.fromkeys([*_own(node), *_property_graph(node)]))


def _own(node: BaseNode) -> list[Triple]:
    entries = node.metadata.get(TRIPLES_KEY) or []
    if not isinstance(entries, list | tuple):
        entries = [entries]
    triples = []
    for entry in entries:
        try:
            triples.append(Triple(entry["subject"], entry["predicate"], entry["object"]))
        except TripleError as error:
            raise TripleError(f"{error} (in metadata {TRIPLES_KEY!r} of node {node.node_id!r})") from error
        except (TypeError, KeyError, AttributeError) as error:
            raise TripleError(
                f"metadata {TRIPLES_KEY!r} of node {node.node_id!r} must be a list of "
                f'{{"subject": …, "predicate": …, "object": …}} with text in each, found {entry!r}'
            ) from error
    return triples


def _property_graph(node: BaseNode) -> list[Triple]:
    names = {entity.id: entity.name for entity in _carried(node, KG_NODES_KEY, EntityNode)}
    triples = []
    for relation in _carried(node, KG_RELATIONS_KEY, Relation):
        if relation.label in _STRUCTURE and not {relation.source_id, relation.target_id} <= set(names):
            continue
        ends = [names.get(end, end) for end in (relation.source_id, relation.target_id)]
        if all(text.strip() for text in (*ends, relation.label)):
            triples.append(Triple(ends[0], relation.label, ends[1]))
    return triples


def _carried(node: BaseNode, key: str, kind: type[Model]) -> list[Model]:
    """The objects of this kind under `key`. The keys are common words: what else stands there is the user's own."""
    values = node.metadata.get(key)
    found = []
    for value in values if isinstance(values, list) else []:
        try:
            if isinstance(value, kind):
                found.append(value)
            elif isinstance(value, dict) and _MARKS[kind] <= set(value):
                found.append(kind.model_validate(value))
        except ValidationError:
            continue
    return found


def passage_id(number: int, document: BaseNode) -> str:
    """The id of a document's passage by its place: for the `id_func` of LlamaIndex's splitters.

    Their own ids are random: a run that is repeated after a kill, or with a document store that was not persisted,
    then stores every passage a second time.

        SentenceSplitter(chunk_size=256, id_func=passage_id)

    Args:
        number: place of the passage in the document, from 0.
        document: what is split; its id tells it from all others, those of other tenants too.

    Raises:
        ArgumentError: `number` is no whole number, or `document` no node.

    """
    check_counts(least=0, number=number)
    check_kind(BaseNode, document=document)
    return f"{document.node_id}-{number}"


class ToPropertyGraph(TransformComponent):
    """Hands extracted triples to LlamaIndex's `PropertyGraphIndex`.

    Put it behind an extractor:
    `PropertyGraphIndex(…, kg_extractors=[GeARTripleExtractor(llm=llm), ToPropertyGraph()])`.
    """

    @classmethod
    def class_name(cls) -> str:
        """Name under which the component is serialised."""
        return "GeARToPropertyGraph"

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[BaseNode]:
        """Copies of the nodes whose triples stand as `EntityNode` and `Relation` objects in their metadata."""
        check_kinds(BaseNode, hint=ONE_NODE, nodes=nodes)
        converted = []
        for node in nodes:
            triples = read_triples(node)
            entities = dict.fromkeys(name for triple in triples for name in (triple.subject, triple.object))
            graph = {name: EntityNode(name=name) for name in entities}
            relations = [
                Relation(label=t.predicate, source_id=graph[t.subject].id, target_id=graph[t.object].id)
                for t in triples
            ]
            values = {KG_NODES_KEY: list(graph.values()), KG_RELATIONS_KEY: relations}
            converted.append(with_metadata(node, values, drop=(TRIPLES_KEY, EXTRACTION_KEY)))
        return converted
