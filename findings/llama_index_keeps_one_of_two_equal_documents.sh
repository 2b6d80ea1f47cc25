#!/bin/sh
# llama-index-core 0.14.25: of two documents with the same text and metadata, UPSERTS_AND_DELETE never deletes the first.
#
# To find out what is gone, IngestionPipeline asks the document store for {hash: id} of all documents. The hash is of the
# text and metadata, without the id, so equal documents share an entry, and the last id takes it. When the other document
# is gone, nothing knows of it: its nodes stay in the vector store for good, and are found.
#
# Seen (Python 3.11, Linux), after runs with the documents [a, b] and [b]:
#   equal     stored: ['a', 'b']
#   different stored: ['b']
#
# What helps: metadata that differ, such as each document's path.
# The script exits with 1 if this changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "llama-index-core==0.14.25"
"$work/venv/bin/python" - <<'PROGRAM'
import sys

from llama_index.core import MockEmbedding
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.schema import Document
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore


class Listed(BasePydanticVectorStore):
    """A vector store that keeps the ids of its documents."""

    stores_text: bool = True
    documents: set = set()

    @property
    def client(self):
        return None

    def add(self, nodes, **kwargs):
        self.documents.update(node.ref_doc_id or node.node_id for node in nodes)
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id, **kwargs):
        self.documents.discard(ref_doc_id)

    def query(self, query, **kwargs):
        raise NotImplementedError


def run(name, metadata):
    store = Listed()
    pipeline = IngestionPipeline(
        transformations=[MockEmbedding(embed_dim=2)],
        docstore=SimpleDocumentStore(),
        docstore_strategy=DocstoreStrategy.UPSERTS_AND_DELETE,
        vector_store=store,
        disable_cache=True,
    )
    documents = [Document(id_=id_, text="Ada lives in London.", metadata=metadata(id_)) for id_ in ("a", "b")]
    pipeline.run(documents=documents)
    pipeline.run(documents=documents[1:])  # document a is gone
    print(f"{name:9} stored: {sorted(store.documents)}")
    return sorted(store.documents)


equal, different = run("equal", lambda id_: {}), run("different", lambda id_: {"path": id_})
sys.exit(0 if (equal, different) == (["a", "b"], ["b"]) else "the behaviour has changed")
PROGRAM
