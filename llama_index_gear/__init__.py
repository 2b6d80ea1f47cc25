"""GeAR for LlamaIndex: retrieval for questions whose answer is spread over several passages."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llama_index_gear.agents.loop import Budget as Budget
    from llama_index_gear.embeddings.light import LightEmbedding as LightEmbedding
    from llama_index_gear.errors import GeARError as GeARError
    from llama_index_gear.expansion.beam_search import BeamSearch as BeamSearch
    from llama_index_gear.expansion.pagerank import LocalPageRank as LocalPageRank
    from llama_index_gear.extraction.link_extractor import LinkTripleExtractor as LinkTripleExtractor
    from llama_index_gear.extraction.llm_extractor import GeARTripleExtractor as GeARTripleExtractor
    from llama_index_gear.extraction.mention_extractor import MentionTripleExtractor as MentionTripleExtractor
    from llama_index_gear.extraction.schema import ExtractionSchema as ExtractionSchema
    from llama_index_gear.ingestion.existing_collection import ExistingCollection as ExistingCollection
    from llama_index_gear.ingestion.files import FolderReader as FolderReader
    from llama_index_gear.knowledge_graph.store import ExternalTripleStore as ExternalTripleStore
    from llama_index_gear.knowledge_graph.wikidata import WikidataDump as WikidataDump
    from llama_index_gear.nodes import attach_triples as attach_triples
    from llama_index_gear.nodes import passage_id as passage_id
    from llama_index_gear.nodes import read_triples as read_triples
    from llama_index_gear.postprocessors.beam_search import DiverseTripleBeamSearch as DiverseTripleBeamSearch
    from llama_index_gear.postprocessors.passage_ranker import PassageRanker as PassageRanker
    from llama_index_gear.postprocessors.passage_selector import PassageSelector as PassageSelector
    from llama_index_gear.query_engines.gear import GeARQueryEngine as GeARQueryEngine
    from llama_index_gear.query_engines.t2rag import T2RAGQueryEngine as T2RAGQueryEngine
    from llama_index_gear.ranking.learning import fit_ranking as fit_ranking
    from llama_index_gear.ranking.weights import RankingWeights as RankingWeights
    from llama_index_gear.retrievers.gear import GeARRetriever as GeARRetriever
    from llama_index_gear.retrievers.graph import GraphRetriever as GraphRetriever
    from llama_index_gear.retrievers.graph_expansion import NaiveGERetriever as NaiveGERetriever
    from llama_index_gear.retrievers.graph_expansion import SyncGERetriever as SyncGERetriever
    from llama_index_gear.retrievers.paper_gear import ExternalGeARRetriever as ExternalGeARRetriever
    from llama_index_gear.retrievers.rank_bm25 import RankBM25Retriever as RankBM25Retriever
    from llama_index_gear.retrievers.t2rag import T2RAGRetriever as T2RAGRetriever
    from llama_index_gear.store.vector_store import GeARVectorStore as GeARVectorStore
    from llama_index_gear.triple import Triple as Triple

    __all__: list[str]
else:
    _MODULES = {
        "agents.loop": "Budget",
        "embeddings.light": "LightEmbedding",
        "errors": "GeARError",
        "expansion.beam_search": "BeamSearch",
        "expansion.pagerank": "LocalPageRank",
        "extraction.llm_extractor": "GeARTripleExtractor",
        "extraction.link_extractor": "LinkTripleExtractor",
        "extraction.mention_extractor": "MentionTripleExtractor",
        "extraction.schema": "ExtractionSchema",
        "ingestion.existing_collection": "ExistingCollection",
        "ingestion.files": "FolderReader",
        "knowledge_graph.store": "ExternalTripleStore",
        "knowledge_graph.wikidata": "WikidataDump",
        "nodes": "attach_triples passage_id read_triples",
        "postprocessors.beam_search": "DiverseTripleBeamSearch",
        "postprocessors.passage_ranker": "PassageRanker",
        "postprocessors.passage_selector": "PassageSelector",
        "query_engines.gear": "GeARQueryEngine",
        "query_engines.t2rag": "T2RAGQueryEngine",
        "ranking.learning": "fit_ranking",
        "ranking.weights": "RankingWeights",
        "retrievers.paper_gear": "ExternalGeARRetriever",
        "retrievers.gear": "GeARRetriever",
        "retrievers.graph": "GraphRetriever",
        "retrievers.graph_expansion": "NaiveGERetriever SyncGERetriever",
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
