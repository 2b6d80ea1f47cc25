#!/bin/sh
# qdrant-edge-py 0.9.0: a dense vector that is declared takes its room in every point, also in those that lack it.
#
# The shards hold the same 20,000 points, which have a sparse vector and no dense one. One shard is told of a dense vector
# of 384 dimensions when it is made, another is not. A point may lack a vector, so one expects a few bits for each that
# does; it is 4 bytes a dimension.
#
# Seen (Python 3.11, Linux; blocks on the disk, without the log):
#   declared        35.3 MiB, 0 of 50 points have the vector; 20,000 · 384 · 4 bytes are 29.3 MiB
#   not declared     5.9 MiB, 0 of 50 points have the vector; …
#   made later      35.3 MiB, 0 of 50 points have the vector; …
#
# What helps: UpdateOperation.create_dense_vector when the first point has one. All others get room then, too.
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

POINTS, SIZE = 20_000, 384


def measure(folder):
    """MiB of the blocks that the files take; the log, which grows alike, is left out."""
    files = [os.path.join(at, name) for at, _, names in os.walk(os.path.join(folder, "segments")) for name in names]
    return round(sum(os.stat(file).st_blocks * 512 for file in files) / 2**20, 1)


def fill(name, vectors):
    folder = os.path.join(sys.argv[1], name)
    os.mkdir(folder)
    words = {"words": q.EdgeSparseVectorParams()}
    shard = q.EdgeShard.create(folder, q.EdgeConfig(vectors=vectors, sparse_vectors=words, on_disk_payload=True))
    for start in range(0, POINTS, 1_000):
        points = [q.Point(n, {"words": q.SparseVector([n % 97], [1.0])}, {}) for n in range(start, start + 1_000)]
        shard.update(q.UpdateOperation.upsert_points(points))
    shard.flush()
    return folder, shard


def close(folder, shard):
    held = [one for one in shard.retrieve(list(range(50)), False, True) if "dense" in (one.vector or {})]
    shard.close()
    return measure(folder), len(held)


declared = close(*fill("declared", {"dense": q.EdgeVectorParams(size=SIZE, distance=q.Distance.Cosine)}))
folder, shard = fill("later", {})
without = close(folder, shard)
shard = q.EdgeShard.load(folder)
shard.update(q.UpdateOperation.create_dense_vector("dense", SIZE, q.Distance.Cosine))
shard.update(q.UpdateOperation.upsert_points([q.Point(POINTS, {"dense": [1.0] * SIZE}, {})]))
shard.flush()
later = close(folder, shard)
room = POINTS * SIZE * 4 / 2**20
for what, (size, held) in (("declared", declared), ("not declared", without), ("made later", later)):
    print(f"{what:14}{size:6} MiB, {held} of 50 points have the vector; {POINTS:,} · {SIZE} · 4 bytes are {room:.1f} MiB")
same = declared[1] == 0 and declared[0] - without[0] > 0.9 * room and later[0] - without[0] > 0.9 * room
sys.exit(0 if same else "the behaviour has changed")
PROGRAM
