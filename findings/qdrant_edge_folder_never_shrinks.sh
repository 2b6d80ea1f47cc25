#!/bin/sh
# qdrant-edge-py 0.9.0: a shard's folder keeps the room of deleted points, and some 60 MB of its log, for good.
#
# 3,000 points are written and the earlier 3,000 deleted, twelve times over. Neither flush() nor close() and load() give
# room back. optimize() rewrites the segments and leaves the log. A shard that only ever had 3,000 points takes a
# fourteenth.
#
# Seen (Python 3.11, Linux):
#   twelve generations 48.8 MB; closed 48.8; optimize() True: 34.6, of which the log 33.3
#   3000 points; 3,000 points alone take 3.5 MB
#
# What helps: copy the points into a new shard, and put that in the old one's place.
# The script exits with 1 if this changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "qdrant-edge-py==0.9.0"
"$work/venv/bin/python" - "$work" <<'PROGRAM'
import os
import random
import sys

import qdrant_edge as q

random.seed(1)
CONFIG = q.EdgeConfig(
    vectors={"v": q.EdgeVectorParams(size=64, distance=q.Distance.Cosine)},
    on_disk_payload=True,
    optimizers=q.EdgeOptimizersConfig(deleted_threshold=0.2, vacuum_min_vector_number=100, indexing_threshold=10**9),
)


def create(name):
    folder = os.path.join(sys.argv[1], name)
    os.mkdir(folder)
    return folder, q.EdgeShard.create(folder, CONFIG)


def measure(folder):
    sizes = [os.stat(os.path.join(root, name)).st_blocks * 512 for root, _, names in os.walk(folder) for name in names]
    return round(sum(sizes) / 1e6, 1)


def write(shard, first):
    points = [
        q.Point(first + n, {"v": [random.random() for _ in range(64)]}, {"text": f"word{first} " * 60})
        for n in range(3_000)
    ]
    shard.update(q.UpdateOperation.upsert_points(points))


folder, shard = create("edited")
for generation in range(12):
    write(shard, 3_000 * generation)
    if generation:
        shard.update(q.UpdateOperation.delete_points(list(range(3_000 * (generation - 1), 3_000 * generation))))
shard.flush()
full = measure(folder)
shard.close()
closed = measure(folder)
shard = q.EdgeShard.load(folder)
optimized = shard.optimize()
shard.close()
shard = q.EdgeShard.load(folder)
left, log, count = measure(folder), measure(os.path.join(folder, "wal")), shard.count(q.CountRequest(exact=True))
shard.close()
fresh_folder, fresh = create("fresh")
write(fresh, 0)
fresh.close()
alone = measure(fresh_folder)
print(f"twelve generations {full} MB; closed {closed}; optimize() {optimized}: {left}, of which the log {log}")
print(f"{count} points; 3,000 points alone take {alone} MB")
sys.exit(0 if count == 3_000 and closed > 5 * alone and left > 3 * alone else "the behaviour has changed")
PROGRAM
