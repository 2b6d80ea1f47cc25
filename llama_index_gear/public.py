"""The public names, which `llama_index_gear` has, for type checkers."""

from llama_index_gear.agents.loop import Budget
from llama_index_gear.cli.files import FolderReader
from llama_index_gear.embeddings.light import LightEmbedding
from llama_index_gear.errors import GeARError
from llama_index_gear.expansion.beam_search import BeamSearch
from llama_index_gear.expansion.pagerank import LocalPageRank
from llama_index_gear.extraction.accounting import FAILED_EXTRACTIONS, ExtractionEstimate, ExtractionLedger
from llama_index_gear.extraction.extractor import GeARTripleExtractor
from llama_index_gear.extraction.mentions import MentionTripleExtractor
from llama_index_gear.ingestion.existing_collection import CollectionReport, ExistingCollection
from llama_index_gear.ingestion.property_graph import from_property_graph
from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.knowledge_graph.triples_file import TriplesFile
from llama_index_gear.knowledge_graph.wikidata import WikidataDump
from llama_index_gear.nodes import ToPropertyGraph, attach_triples, passage_id, read_triples
from llama_index_gear.postprocessors.beam_search import DiverseTripleBeamSearch
from llama_index_gear.postprocessors.passage_ranker import PassageRanker
from llama_index_gear.postprocessors.passage_selector import PassageSelector
from llama_index_gear.query_engines.gear import GeARQueryEngine
from llama_index_gear.query_engines.t2rag import T2RAGQueryEngine
from llama_index_gear.ranking.learning import RankingFit, fit_ranking
from llama_index_gear.ranking.weights import RankingWeights
from llama_index_gear.retrievers.external_gear import ExternalGeARRetriever
from llama_index_gear.retrievers.gear import GeARRetriever
from llama_index_gear.retrievers.graph import GraphRetriever
from llama_index_gear.retrievers.graph_expansion import NaiveGERetriever, SyncGERetriever
from llama_index_gear.retrievers.rank_bm25 import RankBM25Retriever
from llama_index_gear.retrievers.t2rag import T2RAGRetriever
from llama_index_gear.store.aliases import AliasPair
from llama_index_gear.store.maintenance import StoreReport
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.trace.trace import Trace, TraceEvent
from llama_index_gear.triple import GraphTriple, Triple

__all__ = [
    "FAILED_EXTRACTIONS",
    "AliasPair",
    "BeamSearch",
    "Budget",
    "CollectionReport",
    "DiverseTripleBeamSearch",
    "ExistingCollection",
    "ExternalGeARRetriever",
    "ExternalTripleStore",
    "FolderReader",
    "ExtractionEstimate",
    "ExtractionLedger",
    "GeARError",
    "GeARQueryEngine",
    "GeARRetriever",
    "GeARTripleExtractor",
    "GeARVectorStore",
    "GraphRetriever",
    "GraphTriple",
    "LightEmbedding",
    "LocalPageRank",
    "MentionTripleExtractor",
    "NaiveGERetriever",
    "PassageRanker",
    "PassageSelector",
    "RankBM25Retriever",
    "RankingFit",
    "RankingWeights",
    "StoreReport",
    "SyncGERetriever",
    "T2RAGQueryEngine",
    "T2RAGRetriever",
    "ToPropertyGraph",
    "Trace",
    "TraceEvent",
    "Triple",
    "TriplesFile",
    "WikidataDump",
    "attach_triples",
    "fit_ranking",
    "from_property_graph",
    "passage_id",
    "read_triples",
]
