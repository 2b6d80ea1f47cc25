#!/bin/sh
# rank-bm25 0.2.2 (with numpy 2.2.6): in a small corpus whose passages share most words, a further match lowers a passage's score.
#
# BM25Okapi puts a quarter of the mean IDF in the place of a negative IDF, "to prevent negative scores". Where most words
# stand in more than half of the passages, that mean is negative too: then "red engine" ranks behind "red" for the
# question "red engine".
#
# Seen (Python 3.11, Linux):
#   idf {'red': -0.307, 'engine': -0.307}
#   red -0.375, red engine -0.563, red engine -0.563
#
# What helps: another IDF where `average_idf` is 0 or less, such as Lucene's log(1 + (N - n + 0.5) / (n + 0.5)).
# The script exits with 1 if this changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "rank-bm25==0.2.2" "numpy==2.2.6"
"$work/venv/bin/python" - <<'PROGRAM'
import sys

from rank_bm25 import BM25Okapi

corpus = ["red engine", "red engine", "red"]
bm25 = BM25Okapi([text.split() for text in corpus])
scores = bm25.get_scores("red engine".split())
print("idf", {word: round(idf, 3) for word, idf in bm25.idf.items()})
print(", ".join(f"{text} {score:.3f}" for score, text in sorted(zip(scores, corpus), reverse=True)))
sys.exit(0 if scores[2] > scores[0] and bm25.average_idf < 0 else "the behaviour has changed")
PROGRAM
