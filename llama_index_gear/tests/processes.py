"""Processes that start in milliseconds: forks of one that has imported everything and opened nothing.

Python keeps one such process for a program, and what it imports is settled before the first fork; so there is one
list for all tests. Without it each process would import the library anew, for seconds.
"""

from __future__ import annotations

import multiprocessing
import os

PROCESSES = multiprocessing.get_context("forkserver") if hasattr(os, "fork") else multiprocessing.get_context("spawn")
PROCESSES.set_forkserver_preload(
    [
        *("llama_index_gear.tests.store_contract", "llama_index.core.ingestion"),
        *(
            f"llama_index_gear.{name}"
            for name in ("query_engines.gear", "query_engines.t2rag", "extraction.llm_extractor")
        ),
        *(f"llama_index_gear.cli.{name}" for name in ("main", "serving", "indexing", "extracting")),
        *("pytest", "nltk", "tiktoken"),
    ]
)
