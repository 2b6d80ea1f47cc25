"""GeAR for LlamaIndex: retrieval for questions whose answer is spread over several passages."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llama_index_gear.public import *  # noqa: F403
    from llama_index_gear.public import __all__ as __all__
else:
    _MODULES = {
        "agents.loop": "Budget",
        "embeddings.light": "LightEmbedding",
        "errors": "GeARError",
        "expansion.beam_search": "BeamSearch",
        "expansion.pagerank": "LocalPageRank",
        "extraction.extractor": "GeARTripleExtractor",
        "extraction.mentions": "MentionTripleExtractor",
        "extraction.schema": "ExtractionSchema",
        "ingestion.existing_collection": "ExistingCollection",
        "ingestion.files": "FolderReader",
        "knowledge_graph.store": "ExternalTripleStore",
        "knowledge_graph.triples_file": "TriplesFile",
        "knowledge_graph.wikidata": "WikidataDump",
        "nodes": "attach_triples passage_id",
        "postprocessors.beam_search": "DiverseTripleBeamSearch",
        "postprocessors.passage_ranker": "PassageRanker",
        "postprocessors.passage_selector": "PassageSelector",
        "query_engines.gear": "GeARQueryEngine",
        "query_engines.t2rag": "T2RAGQueryEngine",
        "ranking.weights": "RankingWeights",
        "retrievers.external_gear": "ExternalGeARRetriever",
        "retrievers.gear": "GeARRetriever",
        "retrievers.graph": "GraphRetriever",
        "retrievers.graph_expansion": "NaiveGERetriever SyncGERetriever",
        "retrievers.paper_gear": "PaperGeARRetriever",
        "retrievers.rank_bm25": "RankBM25Retriever",
        "retrievers.t2rag": "T2RAGRetriever",
        "store.vector_store": "GeARVectorStore",
        "triple": "Triple",
    }
    _PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}
    __all__ = sorted(_PLACES)

    def __getattr__(name: str) -> object:
        """Import a public name, and no other: some need LlamaIndex and Qdrant, which take seconds."""
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        try:
            module = import_module(f"{__name__}.{_PLACES[name]}")
        except AttributeError as error:  # of a dependency; as it is, it would say that we lack the name
            raise ImportError(f"{__name__} cannot be imported: {error}") from error
        globals()[name] = getattr(module, name)
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*__all__, *globals()})
