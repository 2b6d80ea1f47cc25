"""GeAR for LlamaIndex: retrieval for questions whose answer is spread over several passages."""

from llama_index_gear.bm25 import RankBM25Retriever
from llama_index_gear.cost import ExtractionEstimate
from llama_index_gear.engine import GeARQueryEngine, T2RAGQueryEngine
from llama_index_gear.errors import GeARError
from llama_index_gear.external import ExternalTripleStore
from llama_index_gear.external_retriever import ExternalGeARRetriever
from llama_index_gear.extract import GeARTripleExtractor
from llama_index_gear.gear_retriever import GeARRetriever
from llama_index_gear.graph_files import TriplesFile
from llama_index_gear.ledger import FAILED_EXTRACTIONS, ExtractionLedger
from llama_index_gear.mentions import MentionTripleExtractor
from llama_index_gear.nodes import ToPropertyGraph, attach_triples, passage_id, read_triples
from llama_index_gear.pagerank import LocalPageRank
from llama_index_gear.postprocessor import DiverseTripleBeamSearch
from llama_index_gear.retriever import NaiveGERetriever, SyncGERetriever
from llama_index_gear.store import GeARVectorStore
from llama_index_gear.store_check import StoreReport
from llama_index_gear.t2rag_retriever import T2RAGRetriever
from llama_index_gear.trace import Trace, TraceEvent
from llama_index_gear.triple import GraphTriple, Triple
from llama_index_gear.wikidata import WikidataDump

__all__ = [
    "FAILED_EXTRACTIONS",
    "DiverseTripleBeamSearch",
    "ExternalGeARRetriever",
    "ExternalTripleStore",
    "ExtractionEstimate",
    "ExtractionLedger",
    "GeARError",
    "GeARQueryEngine",
    "GeARRetriever",
    "GeARTripleExtractor",
    "GeARVectorStore",
    "GraphTriple",
    "LocalPageRank",
    "MentionTripleExtractor",
    "NaiveGERetriever",
    "RankBM25Retriever",
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
    "passage_id",
    "read_triples",
]
