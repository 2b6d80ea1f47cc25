#!/bin/sh
# qdrant-edge-py 0.9.0: an index of a payload field changes what a filter finds.
#
# The same five points are filtered without and with an index. With one the engine asks the index alone, so that values
# of another kind than the index's are not there:
# - With an index of integers, the range "> 1845" no longer finds 1850.5, and "== 1840" finds 1840.0 too, which a
#   search without an index tells apart from 1840.
# - `MatchExcept` ("anything but") loses values of other kinds, with an index of keywords and with one of integers.
# - With an index of floats, datetimes or integers, a match with a text that has the form of a UUID finds nothing.
#
# Seen (Python 3.11, Linux):
#   > 1845           no index: Eve                   integer: -
#   == 1840          no index: Bob                   integer: Bob Dee
#   anything but "x" no index: Ada Bob Cid Dee Eve   keyword: Cid
#   anything but 1   no index: Ada Bob Cid Dee Eve   integer: Ada Bob Dee
#   == a UUID        no index: Uma                   float: -
#
# What helps: index numbers as floats and ask for a range beside a match; write "anything but" as must_not(match).
# The script exits with 1 if any of this changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "qdrant-edge-py==0.9.0"
"$work/venv/bin/python" - "$work" <<'PROGRAM'
import os
import sys

import qdrant_edge as q

YEARS = {1: ("Ada", 1833), 2: ("Bob", 1840), 3: ("Cid", "about 1840"), 4: ("Dee", 1840.0), 5: ("Eve", 1850.5)}
UUID = "123e4567-e89b-12d3-a456-426614174000"
kinds = q.PayloadSchemaType


def find(index, condition, field="year"):
    find.count += 1
    folder = f"{sys.argv[1]}/shard{find.count}"
    os.mkdir(folder)
    config = q.EdgeConfig(vectors={"v": q.EdgeVectorParams(size=2, distance=q.Distance.Cosine)})
    shard = q.EdgeShard.create(folder, config)
    if index is not None:
        shard.update(q.UpdateOperation.create_field_index(field, index))
    points = [q.Point(id_, {"v": [1.0, 0.5]}, {"name": name, "year": year}) for id_, (name, year) in YEARS.items()]
    points.append(q.Point(6, {"v": [1.0, 0.5]}, {"name": "Uma", "key": UUID}))
    shard.update(q.UpdateOperation.upsert_points(points))
    request = q.ScrollRequest(limit=10, filter=q.Filter(must=[condition]), with_payload=True, with_vector=False)
    found = sorted(point.payload["name"] for point in shard.scroll(request)[0])
    shard.close()
    return " ".join(found) or "-"


find.count = 0
everyone = "Ada Bob Cid Dee Eve"
cases = [
    ("> 1845", kinds.Integer, q.FieldCondition("year", range=q.RangeFloat(gt=1845)), "year", "Eve", "-"),
    ("== 1840", kinds.Integer, q.FieldCondition("year", match=q.MatchValue(1840)), "year", "Bob", "Bob Dee"),
    ('anything but "x"', kinds.Keyword, q.FieldCondition("year", match=q.MatchExcept(["x"])), "year", everyone, "Cid"),
    ("anything but 1", kinds.Integer, q.FieldCondition("year", match=q.MatchExcept([1])), "year", everyone, "Ada Bob Dee"),
    ("== a UUID", kinds.Float, q.FieldCondition("key", match=q.MatchValue(UUID)), "key", "Uma", "-"),
]
changed = False
for what, index, condition, field, without, with_index in cases:
    seen = find(None, condition, field), find(index, condition, field)
    print(f"{what:17}no index: {seen[0]:22}{str(index).rsplit('.')[-1].lower()}: {seen[1]}")
    changed = changed or seen != (without, with_index)
sys.exit("the behaviour has changed" if changed else 0)
PROGRAM
