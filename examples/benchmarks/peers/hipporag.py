"""Rank with HippoRAG 2, by its own code.

It needs a checkout of github.com/OSU-NLP-Group/HippoRAG, and in the environment:

    pip install igraph torch transformers sentence-transformers pandas pyarrow openai httpx filelock requests tqdm
    pip install pydantic tenacity tiktoken einops nest_asyncio
    python -m peers.hipporag FOLDER --checkout HippoRAG        (in examples/benchmarks)

What is stubbed: the triples come from the folder (GPT-3.5's, or ours by rule where there are none), as the file of
results that it keeps itself; its filter of facts, a language model's, lets all five facts pass; the embedding is
`LightEmbedding`, which knows no instruction; clients that it imports and doesn't call here (boto3, botocore, gritlm,
litellm) are empty. All settings are its defaults.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from peers.exchange import WIDTH, Embedder, Passage, Rankings, read_passages, read_questions, run, same_for_all_cuts

UNUSED = ("boto3", "botocore", "botocore.auth", "botocore.awsrequest", "botocore.exceptions", "gritlm", "litellm")
NAME = "none"


def pass_all(query: str, facts: list[Any], places: list[int], len_after_rerank: int) -> tuple[Any, Any, dict[str, Any]]:
    """Stand where a language model drops facts that don't help: drop none."""
    return places[:len_after_rerank], facts[:len_after_rerank], {}


def to_openie(passage: Passage) -> dict[str, Any]:
    """Return a passage's triples in the form of HippoRAG's file of extractions."""
    entities = dict.fromkeys(end for subject, _, object_ in passage.triples for end in (subject, object_))
    triples = [list(triple) for triple in passage.triples]
    return {"idx": "", "passage": passage.text, "extracted_entities": [*entities], "extracted_triples": triples}


def rank(folder: Path, options: argparse.Namespace) -> Rankings:
    """Rank the passages of a set for each of its questions."""
    sys.path.insert(0, str(options.checkout.resolve() / "src"))
    sys.modules.update(dict.fromkeys(UNUSED, MagicMock()))
    from hipporag import HippoRAG
    from hipporag.utils.config_utils import BaseConfig

    passages, asked = read_passages(folder), read_questions(folder)
    ids: dict[str, list[str]] = {}
    for passage in passages:
        ids.setdefault(passage.text, []).append(passage.id)
    with tempfile.TemporaryDirectory() as scratch:
        extracted = {"docs": [to_openie(passage) for passage in passages]}
        Path(scratch, f"openie_results_ner_{NAME}.json").write_text(json.dumps(extracted), "utf-8")
        config = BaseConfig(save_dir=scratch, llm_name=NAME, embedding_model_name="light", retrieval_top_k=WIDTH)
        model = HippoRAG(global_config=config, extraction_llm=MagicMock(), embedding_model=Embedder())
        model.rerank_filter = pass_all
        model.index([*ids])
        found = model.retrieve([one.question for one in asked])
    return {
        one.id: same_for_all_cuts([id_ for text in of_one.docs for id_ in ids[text]])
        for one, of_one in zip(asked, found, strict=True)
    }


if __name__ == "__main__":
    run("hipporag", ("igraph", "torch"), rank, checkout="folder of HippoRAG's checkout")
