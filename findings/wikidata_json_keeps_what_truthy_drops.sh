#!/bin/sh
# Wikidata's formats, read by qwikidata 0.4.2: "all" JSON gives facts that "truthy" N-Triples do not.
#
# A statement has a rank. Of a property whose statements include a preferred one, a truthy dump (latest-truthy.nt) has the
# preferred ones alone; JSON (latest-all.json) has all. A reader of JSON that only leaves out deprecated statements so
# gets two capitals of Germany: Bonn, which was it until 1990, and Berlin. A preferred "unknown value" leaves no fact.
# qwikidata has both readings, which shows it on the same entity.
#
# Seen (Python 3.11, Linux):
#   not deprecated: ['Q586', 'Q64']   truthy: ['Q64']
#
# What helps: take a property's preferred statements alone, if it has some.
# The script exits with 1 if this changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "qwikidata==0.4.2"
"$work/venv/bin/python" - <<'PROGRAM'
import sys

from qwikidata.entity import WikidataItem


def state(item, rank):
    value = {"entity-type": "item", "numeric-id": int(item[1:]), "id": item}
    snak = {"snaktype": "value", "property": "P36", "hash": "0" * 40, "datatype": "wikibase-item"}
    snak["datavalue"] = {"type": "wikibase-entityid", "value": value}
    return {"mainsnak": snak, "type": "statement", "id": f"Q183${item}", "rank": rank, "qualifiers": {}, "references": []}


germany = {
    "type": "item",
    "id": "Q183",
    "labels": {"en": {"language": "en", "value": "Germany"}},
    "descriptions": {},
    "aliases": {},
    "claims": {"P36": [state("Q586", "normal"), state("Q64", "preferred"), state("Q365", "deprecated")]},
    "sitelinks": {},
}
item = WikidataItem(germany)


def read(group):
    return [claim.mainsnak.datavalue.value["id"] for claim in group if claim.rank != "deprecated"]


every, truthy = read(item.get_claim_group("P36")), read(item.get_truthy_claim_group("P36"))
print(f"not deprecated: {every}   truthy: {truthy}")
sys.exit(0 if (every, truthy) == (["Q586", "Q64"], ["Q64"]) else "the behaviour has changed")
PROGRAM
