#!/bin/sh
# qdrant-edge-py 0.9.0: a dense vector that is added after optimize() can't be queried once the shard is opened again.
#
# A shard of sparse vectors, with `id_tracker_memory=Memory.Cold`, is optimized. create_dense_vector() then makes a
# storage in the segment for new points, and none in the optimized one. In the same process all goes well: one point
# gets the vector, and a query finds it. After close() and load() a query by that vector raises. Without optimize(), or
# without that setting, it finds the point.
#
# Seen (Python 3.11, Linux):
#   not optimized: before close() [7], after load() [7]
#   optimized: before close() [7], after load() Service runtime error: vector 100 is not readable
#
# What helps: copy the points into a new shard that has the vector from the start, before the first point gets one.
# The script exits with 1 if this changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "qdrant-edge-py==0.9.0"
"$work/venv/bin/python" - "$work" <<'PROGRAM'
import os
import sys

import qdrant_edge as q

CONFIG = q.EdgeConfig(
    sparse_vectors={"s": q.EdgeSparseVectorParams()},
    id_tracker_memory=q.Memory.Cold,
    optimizers=q.EdgeOptimizersConfig(indexing_threshold=1),
)
QUERY = q.QueryRequest(limit=5, query=q.Query.Nearest([1.0, 0.0], using="v"))


def search(shard):
    try:
        return str([point.id for point in shard.query(QUERY)])
    except Exception as error:
        return str(error).split(" from ")[0]


def try_out(name, *, optimize):
    folder = os.path.join(sys.argv[1], name)
    os.mkdir(folder)
    shard = q.EdgeShard.create(folder, CONFIG)
    words = q.SparseVector([*range(50)], [1.0] * 50)
    shard.update(q.UpdateOperation.upsert_points([q.Point(n, {"s": words}, {}) for n in range(100)]))
    if optimize:
        assert shard.optimize()
    shard.update(q.UpdateOperation.create_dense_vector("v", 2, q.Distance.Cosine))
    shard.update(q.UpdateOperation.update_vectors([q.PointVectors(7, {"v": [1.0, 0.0]})]))
    before = search(shard)
    shard.close()
    shard = q.EdgeShard.load(folder)
    after = search(shard)
    shard.close()
    return before, after


plain, packed = try_out("plain", optimize=False), try_out("packed", optimize=True)
print(f"not optimized: before close() {plain[0]}, after load() {plain[1]}")
print(f"optimized: before close() {packed[0]}, after load() {packed[1]}")
is_same = (*plain, packed[0]) == ("[7]",) * 3 and "not readable" in packed[1]
sys.exit(0 if is_same else "the behaviour has changed")
PROGRAM
