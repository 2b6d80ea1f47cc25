"""The public names, which `llama_index_gear` has, for type checkers."""

from llama_index_gear.agents.loop import Budget
from llama_index_gear.embeddings.light import LightEmbedding
from llama_index_gear.errors import GeARError
from llama_index_gear.expansion.beam_search import BeamSearch
from llama_index_gear.expansion.pagerank import LocalPageRank
from llama_index_gear.extraction.extractor import GeARTripleExtractor
from llama_index_gear.extraction.mentions import MentionTripleExtractor
from llama_index_gear.extraction.schema import ExtractionSchema
from llama_index_gear.ingestion.existing_collection import ExistingCollection
from llama_index_gear.ingestion.files import FolderReader
from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.knowledge_graph.triples_file import TriplesFile
from llama_index_gear.knowledge_graph.wikidata import WikidataDump
from llama_index_gear.nodes import attach_triples, passage_id
from llama_index_gear.postprocessors.beam_search import DiverseTripleBeamSearch
from llama_index_gear.postprocessors.passage_ranker import PassageRanker
from llama_index_gear.postprocessors.passage_selector import PassageSelector
from llama_index_gear.query_engines.gear import GeARQueryEngine
from llama_index_gear.query_engines.t2rag import T2RAGQueryEngine
from llama_index_gear.ranking.weights import RankingWeights
from llama_index_gear.retrievers.external_gear import ExternalGeARRetriever
from llama_index_gear.retrievers.gear import GeARRetriever
from llama_index_gear.retrievers.graph import GraphRetriever
from llama_index_gear.retrievers.graph_expansion import NaiveGERetriever, SyncGERetriever
from llama_index_gear.retrievers.paper_gear import PaperGeARRetriever
from llama_index_gear.retrievers.rank_bm25 import RankBM25Retriever
from llama_index_gear.retrievers.t2rag import T2RAGRetriever
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.triple import Triple

__all__ = [
    "BeamSearch",
    "Budget",
    "DiverseTripleBeamSearch",
    "ExistingCollection",
    "ExternalGeARRetriever",
    "ExternalTripleStore",
    "ExtractionSchema",
    "FolderReader",
    "GeARError",
    "GeARQueryEngine",
    "GeARRetriever",
    "GeARTripleExtractor",
    "GeARVectorStore",
    "GraphRetriever",
    "LightEmbedding",
    "LocalPageRank",
    "MentionTripleExtractor",
    "NaiveGERetriever",
    "PaperGeARRetriever",
    "PassageRanker",
    "PassageSelector",
    "RankBM25Retriever",
    "RankingWeights",
    "SyncGERetriever",
    "T2RAGQueryEngine",
    "T2RAGRetriever",
    "Triple",
    "TriplesFile",
    "WikidataDump",
    "attach_triples",
    "passage_id",
]
