"""A trace as one self-contained page that needs no network, in a file or in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from llama_index_gear.characters import count
from llama_index_gear.llm.escaping import split_citations
from llama_index_gear.trace import wording
from llama_index_gear.trace.evidence import Evidence
from llama_index_gear.trace.fact_graph import collect_facts, draw_graph
from llama_index_gear.trace.pages import fill_page
from llama_index_gear.trace.path import PathNode, find_answer_path

_MAX_OPEN = 3  # cited passages that are shown without a click, if there are no more


def to_html(trace: Evidence) -> str:
    """Return the page: the answer, the path to it with its passages, and folded below that all steps and facts."""
    facts, path = collect_facts(trace), find_answer_path(trace)
    data = {
        "facts": [
            {"slots": fact.slots, "step": fact.step, "kind": fact.kind, "passages": fact.passages} for fact in facts
        ],
        "titles": trace.titles,
    }
    cited = {*trace.citations.values(), *trace.supporting}
    opened = cited if len(cited) <= _MAX_OPEN else set()
    passages = [
        {
            "rank": rank,
            "source": source,
            "is_main": source.passage_id in path.passages,
            "is_open": source.passage_id in opened,
            "facts": " ".join(str(number) for number, fact in enumerate(facts) if source.passage_id in fact.passages),
        }
        for rank, source in enumerate(trace.passages, start=1)
    ]
    return fill_page(
        "trace/page.html",
        data,
        title=trace.question,
        trace=trace,
        cost=f"{count(trace.llm_calls, 'call')} · {trace.prompt_tokens} + {trace.completion_tokens} tokens · "
        f"{trace.ms:.0f} ms · {trace.stopped}",
        answer=[
            (part, trace.citations.get(str(number)))
            for part, number in split_citations(trace.response or trace.answer)
            if part
        ],
        cited=_list_cited(trace),
        values="; ".join(f"{name} = {value}" for step in trace.steps for name, value in step.values.items()),
        path=path,
        nodes=_list_nodes(path.trees),
        passages=passages,
        graph=draw_graph(facts) if facts else None,
        anchors={source.passage_id: f"passage-{rank}" for rank, source in enumerate(trace.passages, start=1)},
        marks={passage_id: f"[{number}] " for number, passage_id in trace.citations.items()},
        name_all=lambda ids: [trace.titles.get(passage_id, passage_id) for passage_id in ids],
        wording=wording,
        count=count,
    )


def _list_cited(trace: Evidence) -> list[tuple[str, str, str, str]]:
    """Return the cited passages on the page: number, id, title, and its places in the steps that named it."""
    titles = {source.passage_id: source.title for source in trace.passages}
    cited = []
    for number, passage_id in trace.citations.items():
        if passage_id in titles:
            named = [step for step in trace.steps if passage_id in (step.needed or ())]
            places = (f", named in step {step.number}: {wording.format_place(passage_id, step)}" for step in named)
            cited.append((number, passage_id, titles[passage_id], "".join(places)))
    return cited


def _list_nodes(nodes: Sequence[PathNode]) -> list[PathNode]:
    below = (_list_nodes([branch.node for branch in node.branches]) for node in nodes)
    return [*nodes, *(node for found in below for node in found)]


def to_frame(trace: Evidence) -> str:
    """Return the page in a frame of its own, for a notebook."""
    return (
        "<iframe sandbox='allow-scripts' style='width:100%;height:720px;border:1px solid #ccc' "
        f'srcdoc="{escape(to_html(trace))}"></iframe>'
    )
