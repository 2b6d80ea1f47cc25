"""The Ray Data recipe on two workers fills a store as one process does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import TextNode
from repository import EXAMPLES

from llama_index_gear import GeARVectorStore, LightEmbedding, MentionTripleExtractor
from llama_index_gear.tests.store_contract import contents


def test_two_workers_do_what_one_process_does(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "ray_extraction.py"), "--store", str(tmp_path / "ray")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    from ray_extraction import read_sample

    embed_model = LightEmbedding()
    with_ray = GeARVectorStore.from_path(tmp_path / "ray", embed_model=embed_model)
    alone = GeARVectorStore.from_path(tmp_path / "alone", embed_model=embed_model)
    nodes: list[TextNode] = read_sample()
    IngestionPipeline(transformations=[MentionTripleExtractor(), embed_model], vector_store=alone).run(nodes=nodes)
    assert done.stdout.decode().strip().endswith(str(alone.check()))
    assert contents(with_ray) == contents(alone)
    with_ray.close()
    alone.close()
