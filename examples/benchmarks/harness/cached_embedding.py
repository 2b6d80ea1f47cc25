"""An embedding model with a cache on disk, so that a repeated benchmark embeds nothing anew."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr

Embed = Callable[[list[str]], list[list[float]]]


class CachedEmbedding(BaseEmbedding):
    """`embed_model` behind a SQLite file; key = SHA-256 of (model name, kind of text, text).

    Args:
        embed_model: the model that embeds the texts that the file doesn't hold yet.
        path: the SQLite file; made if absent. Every batch is committed, so a killed run loses one batch at most.

    """

    _model: BaseEmbedding = PrivateAttr()
    _db: sqlite3.Connection = PrivateAttr()
    _lock: Any = PrivateAttr()

    def __init__(self, embed_model: BaseEmbedding, path: Path) -> None:
        super().__init__(model_name=embed_model.model_name, embed_batch_size=embed_model.embed_batch_size)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._model = embed_model
        self._db = sqlite3.connect(path, check_same_thread=False, timeout=300)
        self._db.execute("CREATE TABLE IF NOT EXISTS embedding (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")
        self._lock = threading.Lock()

    def _make_key(self, kind: str, text: str) -> bytes:
        return hashlib.sha256(f"{self.model_name}\0{kind}\0{text}".encode()).digest()

    def _embed_missing(self, kind: str, texts: Sequence[str], embed: Embed) -> list[list[float]]:
        with self._lock:
            keys = [self._make_key(kind, text) for text in texts]
            vectors: dict[bytes, list[float]] = {}
            for key in keys:
                row = self._db.execute("SELECT vector FROM embedding WHERE key = ?", (key,)).fetchone()
                if row is not None:
                    vectors[key] = np.frombuffer(row[0], dtype=np.float32).tolist()
            missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in vectors}
            if missing:
                for key, vector in zip(missing, embed(list(missing.values())), strict=True):
                    stored = np.asarray(vector, dtype=np.float32)
                    self._db.execute("INSERT OR REPLACE INTO embedding VALUES (?, ?)", (key, stored.tobytes()))
                    vectors[key] = stored.tolist()
                self._db.commit()
            return [vectors[key] for key in keys]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._embed_missing("text", texts, self._model._get_text_embeddings)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._embed_missing(
            "query", [query], lambda texts: [self._model._get_query_embedding(text) for text in texts]
        )[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)
