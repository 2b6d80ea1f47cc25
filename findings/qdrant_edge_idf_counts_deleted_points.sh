#!/bin/sh
# qdrant-edge-py 0.9.0: sparse vectors with the IDF modifier go on counting deleted points until the shard is opened anew.
#
# Word 1 stands in 200 points that are deleted, and in one that stays; word 2 in five that stay. The rarer word of what is
# stored is 1, so its point should come first. It comes last until close() and load(): an answer depends on what the
# shard held before. Replaced points count likewise.
#
# Seen (Python 3.11, Linux):
#   after the deletion  [(304, 3.88), (303, 3.88), (302, 3.88), (300, 3.88), (301, 3.88), (200, 0.28)]
#   with IdfParams      [(200, 3.8), (301, 2.5), (304, 2.5), (302, 2.5), (300, 2.5), (303, 2.5)]
#   opened anew         [(200, 3.8), (301, 2.5), (304, 2.5), (302, 2.5), (300, 2.5), (303, 2.5)]
#
# What helps: SearchParams(idf=IdfParams(corpus=Filter())), which counts the points of that filter (here: all) for the
# query. It is refused for a vector without the modifier.
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

folder = os.path.join(sys.argv[1], "shard")
os.mkdir(folder)
shard = q.EdgeShard.create(
    folder,
    q.EdgeConfig(
        vectors={"v": q.EdgeVectorParams(size=2, distance=q.Distance.Cosine)},
        sparse_vectors={"words": q.EdgeSparseVectorParams(modifier=q.Modifier.Idf)},
    ),
)
words = {**dict.fromkeys(range(201), 1), **dict.fromkeys(range(300, 305), 2), **dict.fromkeys(range(400, 460), 3)}
shard.update(
    q.UpdateOperation.upsert_points(
        [q.Point(id_, {"v": [1.0, 0.5], "words": q.SparseVector([word], [1.0])}, {}) for id_, word in words.items()]
    )
)
shard.update(q.UpdateOperation.delete_points(list(range(200))))


def ask(params=None):
    query = q.Query.Nearest(q.SparseVector([1, 2], [1.0, 1.0]), using="words")
    found = shard.query(q.QueryRequest(limit=6, query=query, params=params, with_payload=False, with_vector=False))
    return [(point.id, round(point.score, 2)) for point in found]


before = ask()
counted = ask(q.SearchParams(idf=q.IdfParams(corpus=q.Filter())))
shard.close()
shard = q.EdgeShard.load(folder)
after = ask()
for what, found in (("after the deletion", before), ("with IdfParams", counted), ("opened anew", after)):
    print(f"{what:20}{found}")
shard.close()
same = before[0][0] != 200 and before[-1][0] == 200 and counted[0][0] == 200 and after == counted
sys.exit(0 if same else "the behaviour has changed")
PROGRAM
