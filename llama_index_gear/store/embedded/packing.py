"""Collections of the embedded engine that are written anew: point by point, or packed.

The engine keeps the indexes of points that are written in memory, and makes them again whenever it opens the
collection. Of a packed one they are files, mapped into memory where a question needs them: it opens in a tenth of the
time, and takes no memory of its own. Points that are written, changed or deleted later are again beside the packed
ones.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import qdrant_edge as edge

from llama_index_gear.errors import StoreError
from llama_index_gear.store.embedded import folder as edge_folder
from llama_index_gear.store.embedded.folder_lock import make_locked_error
from llama_index_gear.store.embedded.models import to_config

Result = TypeVar("Result")

_PAGE = 1_000  # points that are copied at once
_SYSTEM_ERROR = re.compile(r"(?:\(os error |Os \{ code: )(\d+)")  # both ways in which the engine names one
_FULL = "the disk of {}, or what this user may write there, is full: make room"
_TOO_MANY = "too many files are open to use {}: close other stores, or raise the limit (`ulimit -n`)"
_CAUSES = dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, *((39, 112) if os.name == "nt" else ())), _FULL)
_CAUSES |= {errno.EMFILE: _TOO_MANY, errno.ENFILE: _TOO_MANY}
_FEWEST = 20_000  # points beside the packed ones that are worth packing: the engine opens fewer in 0.1 s


def call_engine(work: Callable[[], Result], folder: Path) -> Result:
    """Have the engine create, open, write out or pack a shard; translate its errors.

    Raises:
        StoreLockedError: another process or client has it open.
        StoreError: the disk is full, too many files are open, or the engine cannot do it for another reason.

    """
    try:
        return work()
    except BaseException as error:  # the engine raises plain Exception, and panics, which are not an Exception
        if "WouldBlock" in str(error):
            raise make_locked_error(folder.parent) from error  # to a program that knows no lock but the engine's
        causes = [_CAUSES[code] for code in map(int, _SYSTEM_ERROR.findall(str(error))) if code in _CAUSES]
        if causes:
            told = causes[0].format(folder)
            raise StoreError(f"{told}, then repeat the call. The embedded engine says: {error}") from error
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise StoreError(
                f"the embedded engine cannot open {folder}, whose files are damaged or not this user's: restore them "
                f"from a copy, or choose another folder or collection_name. It says: {error}"
            ) from error
        raise


def fill(target: edge.EdgeShard, source: edge.EdgeShard) -> None:
    """Copy all points and payload indexes into an empty shard, and close it."""
    try:
        for name, index in source.info().payload_schema.items():
            target.update(edge.UpdateOperation.create_field_index(name, index.params or index.data_type))
        offset, has_more = None, True
        while has_more:
            request = edge.ScrollRequest(offset=offset, limit=_PAGE, with_payload=True, with_vector=True)
            records, offset = source.scroll(request)
            points = [edge.Point(record.id, record.vector or {}, record.payload) for record in records]
            target.update(edge.UpdateOperation.upsert_points(points))
            has_more = offset is not None
    finally:
        target.close()


def write_anew(
    folder: Path, config: edge.EdgeConfig, get_shard: Callable[[], edge.EdgeShard], close: Callable[[], object]
) -> None:
    """Put a copy of its points in the place of an open collection. It takes about as long as loading them did.

    Args:
        folder: of the collection.
        config: of the copy.
        get_shard: returns the open collection.
        close: closes it.

    Raises:
        OSError: the disk failed.
        StoreError: the engine failed, or the folder is not all the engine's. The collection is whole.

    """
    edge_folder.replace(
        folder,
        lambda draft: call_engine(lambda: fill(edge.EdgeShard.create(draft, config), get_shard()), folder),
        close,
    )


def pack(folder: Path, get_shard: Callable[[], edge.EdgeShard], close: Callable[[], object]) -> bool:
    """Put a packed copy in the place of an open collection, if that pays.

    It pays if half of the points, and 20,000, were written since it was packed. It takes some 60 µs a point.

    Args:
        folder: of the collection.
        get_shard: returns the open collection.
        close: closes it.

    Returns:
        True if it was packed. False if it does not pay, the disk has too little room for two copies, or the collection
        has settings of another program.

    Raises:
        OSError: the disk failed.
        StoreError: the engine failed, or the folder is not all the engine's. The collection is whole.

    """
    call_engine(get_shard().flush, folder)
    written, points = edge_folder.count_unpacked(folder), get_shard().info().points_count
    config = to_config(edge_folder.read_config(folder))
    if config is None or written < max(_FEWEST, points / 2):
        return False
    if edge_folder.free_space(folder) < edge_folder.PLENTY + 2 * edge_folder.measure(folder):
        return False

    def build(draft: str) -> None:
        edge_folder.copy_parts(folder, Path(draft))
        call_engine(lambda: _optimize(draft, config), folder)
        edge_folder.free_zeros(Path(draft))

    edge_folder.replace(folder, build, close)
    return True


def _optimize(folder: str, config: edge.EdgeConfig) -> None:
    shard = edge.EdgeShard.load(folder, config)
    try:
        shard.optimize()
    finally:
        shard.close()
