"""A server in strict mode, which refuses filters on fields without an index."""

from __future__ import annotations

from pathlib import Path

import pytest
from qdrant_client.http import models
from qdrant_node import BINARY, Node

from llama_index_gear import GeARVectorStore
from llama_index_gear.store.schema import ANY_CALL, UNFINISHED
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import passage

pytestmark = pytest.mark.skipif(BINARY is None, reason="QDRANT_BIN names no server")
EMBED = WordEmbedding(16)


def test_what_a_call_left_is_finished_in_a_store_of_an_earlier_version(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        client, _ = node.make_clients(prefer_grpc=False)
        GeARVectorStore("strict", client, embed_model=EMBED).add(
            [passage("p", "Ada met Bob.", [("Ada", "met", "Bob")], embed_model=EMBED)]
        )
        triples = "strict_triples"
        client.delete_payload_index(triples, UNFINISHED, wait=True)
        client.set_payload(triples, {UNFINISHED: [ANY_CALL, "1-a-1-1"]}, points=models.Filter(), wait=True)
        strict = models.StrictModeConfig(
            enabled=True, unindexed_filtering_retrieve=False, unindexed_filtering_update=False
        )
        for name in ("strict", triples):
            client.update_collection(name, strict_mode_config=strict)
        GeARVectorStore("strict", client, embed_model=EMBED).finish_writes()
        (point,) = client.scroll(triples, with_payload=True)[0]
        assert UNFINISHED not in (point.payload or {})
        client.close()
