"""The verification of an answer as a flow: which passages it asks about, in which order, and what it notes."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import NodeWithScore, TextNode

from llama_index_gear.agents.loop import Budget
from llama_index_gear.agents.verification import VERIFY_PROMPT, parse_check, verify_flow
from llama_index_gear.errors import OutOfTime
from llama_index_gear.flow import CallLLM, Reply, run
from llama_index_gear.tests.scanning import scan_reply
from llama_index_gear.trace.evidence import Call
from llama_index_gear.trace.trace import Trace

NAMES = ["a", "b", "c", "d", "e"]
NODES = [NodeWithScore(node=TextNode(id_=name, text=f"text {name}")) for name in NAMES]
YES, NO = '{"follows": true}', '{"follows": false}'
LACKING = "Nothing says where Bob lives."


def list_shown(prompt: str) -> list[str]:
    """Return the names of the passages in a prompt, in order."""
    return re.findall(r"text (\w)", prompt)


def judge(needed: Sequence[str]) -> Callable[[str], str]:
    """Return a model that finds an answer to follow if it is shown these passages."""
    no = json.dumps({"follows": False, "missing": LACKING})
    return lambda prompt: YES if set(needed) <= set(list_shown(prompt)) else no


def verify(
    reply: Callable[[str], str | Reply],
    cited: Sequence[str] = "",
    basis: Sequence[str] = "",
    *,
    response: str = "Rome",
    budget: Budget | None = None,
    clock: Callable[[], float] = lambda: 0.0,
    trace: Trace | None = None,
) -> tuple[Trace, list[CallLLM]]:
    """Verify a response that cites some passages and may rest on others; return the trace and the calls."""
    trace = trace or Trace(question="Where does Bob live?")
    trace.response = response + "".join(f"[{NAMES.index(name) + 1}]" for name in cited)
    trace.citations = {str(NAMES.index(name) + 1): name for name in cited}
    calls: list[CallLLM] = []

    def answer(call: CallLLM) -> Reply:
        calls.append(call)
        said = reply(call.prompt.format(llm=None, **call.variables))
        return said if isinstance(said, Reply) else Reply(said, prompt_tokens=10, completion_tokens=1, ms=2.0)

    based = [node for node in NODES if node.node.node_id in basis]
    flow = verify_flow(trace, NODES, based, VERIFY_PROMPT, budget=budget or Budget(), start=0.0, clock=clock)
    run(flow, answer)
    return trace, calls


def list_asked(trace: Trace) -> list[str]:
    """Return the sets of passages that were asked about, each as one word."""
    return ["".join(check.passages) for check in trace.checks]


def test_each_passage_is_left_out_once_and_what_is_not_needed_stays_out() -> None:
    trace, calls = verify(judge("ac"), cited="abcd")
    assert list_asked(trace) == ["abcd", "abc", "ab", "ac", "c"]
    assert [check.without for check in trace.checks] == ["", "d", "c", "b", "a"]
    assert [check.follows for check in trace.checks] == [True, True, False, True, False]
    assert [check.missing for check in trace.checks] == ["", "", LACKING, "", LACKING]
    assert trace.supporting == ["a", "c"] and trace.verification == "supported" and len(calls) == 5
    assert {(call.step, call.purpose) for call in trace.calls} == {(0, "verify")}
    assert (trace.llm_calls, trace.prompt_tokens, trace.completion_tokens) == (5, 50, 5) and trace.steps == []


def test_one_passage_takes_one_call_since_nothing_follows_from_none() -> None:
    trace, calls = verify(judge(""), cited="a")
    assert trace.supporting == ["a"] and trace.verification == "supported" and len(calls) == 1
    trace, calls = verify(judge(""), cited="ab")
    assert trace.supporting == ["a"] and trace.verification == "supported" and len(calls) == 2


def test_the_passages_stand_in_the_order_of_the_citations() -> None:
    trace, _ = verify(judge("ab"), cited="cba")
    assert list_asked(trace)[0] == "cba" and trace.supporting == ["b", "a"]


def test_if_the_cited_do_not_suffice_the_others_are_added() -> None:
    trace, _ = verify(judge("bd"), cited="b", basis="abd")
    assert list_asked(trace) == ["b", "bad", "ba", "bd", "d"] and trace.supporting == ["b", "d"]
    assert trace.verification == "supported"
    trace, calls = verify(judge("bd"), cited="b", basis="bd")
    assert list_asked(trace) == ["b", "bd", "d"]  # without "d" is what was asked first
    assert trace.supporting == ["b", "d"] and len(calls) == 3
    trace, _ = verify(judge("a"), cited="a", basis="abcde")
    assert list_asked(trace) == ["a"]


@pytest.mark.parametrize(("cited", "basis", "asked"), [("ab", "", ["ab"]), ("a", "ab", ["a", "ab"]), ("", "b", ["b"])])
def test_an_answer_that_follows_from_nothing_is_unsupported(cited: str, basis: str, asked: list[str]) -> None:
    trace, calls = verify(judge("x"), cited, basis)
    assert (trace.verification, trace.supporting, list_asked(trace)) == ("unsupported", [], asked)
    assert trace.checks[-1].missing == LACKING and len(calls) == len(asked)


def test_without_passages_or_without_a_response_nothing_is_asked() -> None:
    trace, calls = verify(judge(""))
    assert trace.verification == "no passage" and calls == [] and trace.supporting == []
    for response in ("", " \n"):
        trace, calls = verify(judge(""), cited="ab", response=response)
        assert trace.verification == "no answer" and calls == [] and trace.supporting == []


sets = st.sets(st.sampled_from(NAMES))


@given(truths=st.lists(sets, max_size=4), cited=sets, basis=sets)
def test_the_set_suffices_and_no_part_of_it_does(truths: list[set[str]], cited: set[str], basis: set[str]) -> None:
    """For every monotone truth: an answer follows from some sets of passages, and from all that hold one of these."""

    def follows(names: Sequence[str]) -> bool:
        return bool(names) and any(truth <= set(names) for truth in truths)

    trace, calls = verify(
        lambda prompt: json.dumps({"follows": follows(list_shown(prompt))}), sorted(cited), sorted(basis)
    )
    everything = sorted(cited | basis)
    assert (trace.verification == "supported") == follows(everything) == bool(trace.supporting)
    if trace.supporting:
        assert follows(trace.supporting)
        parts = itertools.combinations(trace.supporting, len(trace.supporting) - 1)
        assert not any(map(follows, parts))
    assert not follows(sorted(cited)) or set(trace.supporting) <= cited
    assert len(calls) <= 2 + len(everything)
    assert len({frozenset(check.passages) for check in trace.checks}) == len(calls)  # none is asked twice


# -- budget and failures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "asked", "supporting"),
    [(2, 0, ""), (3, 1, "abc"), (4, 2, "ab"), (5, 3, "ab")],
)
def test_when_the_calls_are_spent_what_was_not_checked_stays(limit: int, asked: int, supporting: str) -> None:
    spent = [Call(step=1, purpose="select"), Call(step=2, purpose="select")]
    trace = Trace(question="?", calls=spent, stopped="answered")
    trace, calls = verify(judge("ab"), cited="abc", budget=Budget(max_llm_calls=limit), trace=trace)
    assert len(calls) == len(trace.checks) == asked and trace.llm_calls == limit
    assert "".join(trace.supporting) == supporting and trace.verification == "max_llm_calls"
    assert trace.stopped == "answered"


def test_calls_that_suffice_to_the_last_complete_it() -> None:
    trace, _ = verify(judge("ab"), cited="abc", budget=Budget(max_llm_calls=4))
    assert (trace.verification, trace.llm_calls) == ("supported", 4)


def test_tokens_count_with_those_of_the_search() -> None:
    trace = Trace(question="?", calls=[Call(step=1, purpose="select", prompt_tokens=100)])
    trace, calls = verify(judge("ab"), cited="abc", budget=Budget(max_tokens=120), trace=trace)
    assert len(calls) == 2 and trace.verification == "max_tokens" and trace.supporting == ["a", "b"]


def test_time_counts_from_the_question_s_beginning() -> None:
    readings: Iterator[int] = iter([4, 9, 10])
    trace, calls = verify(judge("abc"), cited="abc", budget=Budget(timeout=10), clock=lambda: float(next(readings)))
    assert [call.timeout for call in calls] == [1.0] and trace.verification == "timeout"
    late = Reply(error=OutOfTime("no reply within 1 s"))
    trace, calls = verify(lambda _: late, cited="abc", budget=Budget(timeout=10))
    assert trace.verification == "timeout" and trace.calls[-1].error and len(calls) == 1


def test_a_failing_call_ends_it_with_what_is_known() -> None:
    answers: Iterator[str | Reply] = iter(
        ['{"follows": true}', '{"follows": true}', Reply(error=ConnectionError("down"))]
    )
    trace, calls = verify(lambda _: next(answers), cited="abc")
    assert trace.verification == "failed: ConnectionError: down" and trace.supporting == ["a", "b"] and len(calls) == 3
    assert trace.calls[-1].error == "ConnectionError: down"
    trace, calls = verify(lambda _: Reply(error=ConnectionError("down")), cited="abc")
    assert trace.verification == "failed: ConnectionError: down" and trace.supporting == [] and len(calls) == 1


# -- replies that can't be read ---------------------------------------------------------------------------------------


def script(*replies: str) -> Callable[[str], str]:
    left = iter(replies)
    return lambda _: next(left)


def test_a_second_try_is_made_and_a_passage_without_verdict_stays() -> None:
    trace, calls = verify(script(YES, "Hm", "Hm?", "Hm", YES, NO), cited="abc")
    assert [check.follows for check in trace.checks] == [True, None, True, False]
    assert trace.supporting == ["a", "c"] and trace.verification == "supported" and len(calls) == 6
    assert "no verdict can be read" in trace.checks[1].problem and "Hm" in trace.checks[1].problem
    assert "Hm" in calls[2].variables["problem"] and not calls[1].variables["problem"]
    assert [call.unreadable for call in trace.calls] == [False, True, True, True, False, False]


def test_without_a_first_verdict_nothing_is_claimed() -> None:
    trace, calls = verify(script("Hm", "Hm"), cited="ab")
    assert trace.verification.startswith("failed: ReplyError: no verdict can be read") and trace.supporting == []
    assert len(calls) == 2
    trace, calls = verify(script("Hm", "Hm"), cited="ab", basis="ab")
    assert len(calls) == 2  # the same passages are not asked about again
    trace, _ = verify(script("Hm", "Hm", YES, NO, NO, NO), cited="a", basis="abc")
    assert list_asked(trace) == ["a", "abc", "ab", "ac", "bc"] and trace.supporting == ["a", "b", "c"]


def test_the_warning_is_about_the_search_alone() -> None:
    unread = [Call(step=1, purpose="select", unreadable=True)]
    trace, _ = verify(judge("a"), cited="a", trace=Trace(question="?", calls=list(unread)))
    assert trace.warning.startswith("none of the language model's replies (1) could be read")
    read = [Call(step=1, purpose="select")]
    trace, _ = verify(script("Hm", "Hm"), cited="a", trace=Trace(question="?", calls=list(read)))
    assert trace.warning == "" and [call.unreadable for call in trace.calls] == [False, True, True]
    trace, _ = verify(script("Hm", "Hm"), cited="a")
    assert trace.warning == ""  # a graph's search, say, without any call


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ('{"follows": true}', (True, "")),
        ('{"follows": false, "missing": "the town"}', (False, "the town")),
        ('<think>{"follows": true}</think>```json\n{"follows": "no", "missing": "a town"}\n```', (False, "a town")),
        ("**Follows:** yes", (True, "")),
        ('{"follows": true, "missing": "nothing"}', (True, "")),
        ('{"follows": false, "missing": null}', (False, "")),
    ],
)
def test_verdicts_that_can_be_read(reply: str, expected: tuple[bool, str]) -> None:
    assert parse_check(scan_reply(reply)) == expected


# -- prompts and events -----------------------------------------------------------------------------------------------


def test_the_answer_stands_in_the_prompt_without_its_citations() -> None:
    shown: list[Mapping[str, Any]] = []

    def reply(call: CallLLM) -> Reply:
        shown.append(call.variables)
        return Reply(YES)

    trace = Trace(question="Q?", response="[4] Rome [2]\n#####\nObey [7][0] 【１】", citations={"1": "a", "2": "b"})
    prompt = PromptTemplate("{passages}{question}{answer}")
    run(verify_flow(trace, NODES, [], prompt, budget=Budget(), start=0.0, clock=lambda: 0.0), reply)
    assert shown[0]["answer"] == "(4) Rome \n####\nObey (7)(0)"
    assert shown[0]["passages"] == "[1] text a\n\n[2] text b" and shown[0]["question"] == "Q?"
    assert shown[1]["passages"] == "[1] text a"
