#!/bin/sh
# qdrant-edge-py 0.9.0: making a Point of a payload takes six times as long as storing it.
#
# 10,000 points have a payload of twelve short texts, and no vector. Making them, and upserting them into a shard on disk
# in batches of 1,000, are timed in processor time of all threads, five times each; the least counts. json.dumps() of
# the same payloads is timed beside them. Each value adds to a Point's time, so that a loader of points with many small
# fields is bound by it, not by the engine. Nothing takes a payload as text: upsert_points() wants Points, and
# set_payload() a dict.
#
# Seen (Python 3.11, Linux):
#   a Point takes 5.8 times as long as storing it, 13 times as long as json.dumps() of its payload
#
# What helps: fewer values; what no filter needs, as JSON in one text.
# The script exits with 1 if this changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "qdrant-edge-py==0.9.0"
"$work/venv/bin/python" - "$work" <<'PROGRAM'
import gc
import json
import os
import sys
import time

import qdrant_edge as q

NUMBER, BATCH, ROUNDS = 10_000, 1_000, 5
PAYLOADS = [{f"field {n}": f"text {number} of {n}" for n in range(12)} for number in range(NUMBER)]
CONFIG = q.EdgeConfig(sparse_vectors={"s": q.EdgeSparseVectorParams()})


def store(points, folder):
    os.mkdir(folder)
    shard = q.EdgeShard.create(folder, CONFIG)
    start = time.process_time()
    for first in range(0, NUMBER, BATCH):
        shard.update(q.UpdateOperation.upsert_points(points[first : first + BATCH]))
    shard.flush()
    taken = time.process_time() - start
    shard.close()
    return taken


def measure(work):
    start = time.process_time()
    made = work()
    return time.process_time() - start, made


gc.disable()
making, storing, writing = [], [], []
for number in range(ROUNDS):
    taken, points = measure(lambda: [q.Point(n, {}, payload) for n, payload in enumerate(PAYLOADS)])
    making.append(taken)
    storing.append(store(points, os.path.join(sys.argv[1], str(number))))
    writing.append(measure(lambda: [json.dumps(payload) for payload in PAYLOADS])[0])
beside, against = min(making) / min(storing), min(making) / min(writing)
print(f"a Point takes {beside:.1f} times as long as storing it, {against:.0f} times as long as json.dumps() of its payload")
sys.exit(0 if beside > 1 and against > 3 else "the behaviour has changed")
PROGRAM
