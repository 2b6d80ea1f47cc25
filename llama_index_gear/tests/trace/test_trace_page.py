"""A trace as text and as a page, as far as this can be tested without a browser; integration_tests opens one."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from llama_index_gear.trace import trace_page as rendering
from llama_index_gear.trace.evidence import Call, Check, ClueState, Linked, PassageLink, Source, Step, Walked
from llama_index_gear.trace.trace import Trace

VOID = {"meta", "link", "br"}


def make_large() -> Trace:
    """Return a trace of four steps, 50 triples and 20 passages, with names that HTML, JavaScript and rich misread."""
    trace = Trace(question="Who <b>wrote</b> & “when”? [red]", stopped="answered", answer="1982 </script>", ms=1234.5)
    for number in range(1, 5):
        triples = [[f"Person {number}-{n}", "knows [bold]", f"Place {number}-{n % 4}"] for n in range(8)]
        links = [[f"Place {number}-{n}", "lies in", f"Person {number + 1}-{n}"] for n in range(4)]
        ids = [f"p{number}-{n}" for n in range(5)]
        step = trace.open_step()
        trace.titles.update({passage_id: f"Title of {passage_id}" for passage_id in ids})
        trace.note(
            step,
            query=f"query {number}",
            base=ids,
            proximal=triples[:3],
            linked=[Linked(triple=slots, passage_id=ids[0], score=0.5) for slots in triples[:3]],
            beams=[
                Walked(score=1.5, chain=[one, two], passage_ids=[ids[0], ids[1]])
                for one, two in zip(triples, links * 2, strict=True)
            ],
            passages=ids,
            gist=triples[:2],
            answerable=number == 4,
            reason="" if number == 4 else "the year is missing",
            answer="1982" if number == 4 else "",
            next_query="" if number == 4 else f"query {number + 1}",
        )
        trace.add_call(Call(step=number, purpose="read", prompt_tokens=100 * number, completion_tokens=number, ms=1.0))
    extra = [["Ärger\u202e", "ist <i>", "\"quoted\" 'name'"], ["Person 4-0", "is", "Person 4-0"]]
    trace.note(trace.steps[3], gist=[*trace.steps[3].gist, *extra])
    trace.note(
        links=[PassageLink(triple=slots, passages=["p1-0"]) for slots in trace.gist],
        passages=[
            Source(
                passage_id=f"p{number}-{n}",
                title=f"Title of p{number}-{n} <img src=x onerror=alert(1)>",
                text="A text that holds <script>alert('x')</script> and $title and {braces}.",
                score=1 / (60 + n),
                ranks={f"step {number}": n + 1},
                chain=[trace.steps[number - 1].beams[0].chain[0]] if n < 2 else [],
            )
            for number in range(1, 5)
            for n in range(5)
        ],
    )
    return trace


class Page(HTMLParser):
    """A parser that checks that tags nest, and keeps what the tests look at."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.data: dict[str, str] = {}
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        tag = self.open[-1] if self.open else ""
        self.data[tag] = self.data.get(tag, "") + data

    def with_class(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.seen if name in (attributes.get("class") or "").split()]


def test_every_step_its_facts_and_every_passage_are_there_once() -> None:
    trace = make_large()
    page = Page(rendering.to_html(trace))
    assert len(page.with_class("step")) == 4 and len(page.with_class("gist")) == 4
    assert len(page.with_class("score")) == sum(len(step.beams) for step in trace.steps) == 32
    assert all(slots[0] in page.data["b"] for step in trace.steps for slots in step.proximal)
    assert [element["data-passage"] for element in page.with_class("passage")] == [s.passage_id for s in trace.passages]


def test_text_stays_text() -> None:
    """No tag, script or template variable in a passage's or a model's text becomes one of the page."""
    page = Page(rendering.to_html(make_large()))
    tags = [tag for tag, _ in page.seen]
    assert tags.count("script") == 1 and not {"img", "b", "i"} - {"b", "i"} & set(tags)
    assert "alert('x')</script> and $title and {braces}." in page.data["p"]
    assert "Who <b>wrote</b> & “when”? [red]" in page.data["h1"]


def test_nothing_in_the_page_points_anywhere_but_into_the_page() -> None:
    trace = make_large()
    trace.note(response=HOSTILE_RESPONSE, citations=HOSTILE_CITATIONS)
    html = rendering.to_html(trace)
    assert not re.search(r"src\s*=|url\(|@import|https?:", html.replace("&lt;img src=x", ""))
    page = Page(html)
    links = [attributes for tag, attributes in page.seen if "href" in attributes]
    assert links and all(re.fullmatch(r"#passage-[0-9]+", attributes["href"] or "") for attributes in links)
    assert all(rule in html for rule in ("default-src 'none'", "base-uri 'none'", "form-action 'none'"))


HOSTILE_RESPONSE = "</p><script>alert(1)</script> [1](javascript:alert(1)) <a href='#x'>[2]</a> [3] [٤] [" + "9" * 5000
HOSTILE_RESPONSE += "] [5]"
HOSTILE_CITATIONS = {"1": "p1-0' onclick='alert(1)", "2": "p1-1", "3": "gone", "4": "p1-2", "x": "p1-0"}


def test_citations_lead_to_their_passages() -> None:
    trace = make_large()
    hostile = HOSTILE_CITATIONS["1"]
    trace.passages[0].passage_id = hostile
    trace.note(response=HOSTILE_RESPONSE, citations=HOSTILE_CITATIONS)
    page = Page(rendering.to_html(trace))
    ranks = {f"passage-{rank}": source.passage_id for rank, source in enumerate(trace.passages, start=1)}
    assert {element["id"]: element["data-passage"] for element in page.with_class("passage")} == ranks
    cited = [str(attributes["href"])[1:] for tag, attributes in page.seen if tag == "a" and "class" not in attributes]
    assert [ranks[anchor] for anchor in cited] == 2 * [hostile, "p1-1", "p1-2"]  # in the answer, and below it
    assert "<script>alert(1)</script>" in page.data["p"] and "[3]" in page.data["p"] and "[5]" in page.data["p"]
    assert "</a>" in page.data["p"] and [tag for tag, _ in page.seen].count("script") == 1
    assert "[1] Title of p1-0 <img src=x onerror=alert(1)>" in page.data["a"]


def test_without_citations_the_answer_is_text() -> None:
    trace = make_large()
    trace.answer = "1982 [1]"
    page = Page(rendering.to_html(trace))
    assert "1982 [1]" in page.data["p"] and all(seen["class"] == "chip" for tag, seen in page.seen if tag == "a")


def make_verified(verification: str, supporting: list[str], checks: list[Check]) -> Trace:
    trace = make_large()
    trace.note(response="1982 [1]", citations={"1": "p1-0"})
    trace.note(checks=checks, supporting=supporting, verification=verification)
    return trace


def show(trace: Trace) -> str:
    out = io.StringIO()
    rendering.show(trace, Console(file=out, width=200))
    return out.getvalue()


HOSTILE_MISSING = "the year <script>alert(1)</script> [red]\x1b[2J"
CHECKS = [
    Check(passages=["p1-0", "gone", "p2-0"], follows=True),
    Check(passages=["p1-0", "gone"], without="p2-0", follows=False, missing=HOSTILE_MISSING),
    Check(passages=["p1-0", "p2-0"], without="gone", follows=True),
    Check(passages=["p2-0"], without="p1-0", problem="no verdict can be read in the reply 'Hm'"),
]


def test_the_passages_that_suffice_are_shown_beside_the_citations() -> None:
    trace = make_verified("supported", ["p1-0", "p2-0"], CHECKS)
    html = rendering.to_html(trace)
    page = Page(html)
    (head,) = re.findall("<p class='answer'>.*?</details>", html)
    assert "<p class='verdict'>The answer still follows from these passages alone</p><ul class='supporting'>" in head
    links = re.findall(r"<a href='#(passage-[0-9]+)'>", head.split("class='supporting'")[1])
    ranks = {source.passage_id: f"passage-{rank}" for rank, source in enumerate(trace.passages, start=1)}
    assert links == [ranks["p1-0"], ranks["p2-0"]] and "<summary>4 checks</summary>" in head
    for said in (
        "From Title of p1-0; gone; Title of p2-0: follows",
        f"Without “Title of p2-0”: does not follow. {HOSTILE_MISSING}",
        "Without “gone”: follows",
        "Without “Title of p1-0”: no verdict, no verdict can be read in the reply 'Hm'",
    ):
        assert said in page.data["li"], said
    assert [tag for tag, _ in page.seen].count("script") == 1
    assert "The answer still follows from these passages alone: Title of p1-0; Title of p2-0" in show(trace)


@pytest.mark.parametrize(
    ("verification", "supporting", "said"),
    [
        ("unsupported", [], "The answer does not follow from its passages"),
        ("max_llm_calls", ["gone"], "follows from these passages alone (not checked to the end: max_llm_calls)"),
        ("timeout", [], "The answer was not verified: timeout"),
        ("failed: KeyError: </p>[red]", [], "The answer was not verified: failed: KeyError: </p>[red]"),
        ("no answer", [], "The answer was not verified: no answer"),
    ],
)
def test_a_verification_that_did_not_succeed_says_so(verification: str, supporting: list[str], said: str) -> None:
    trace = make_verified(verification, supporting, CHECKS[:1])
    html = rendering.to_html(trace)
    assert said in Page(html).data["p"] and said in show(trace)
    assert ("<p class='problem'>The answer" in html) == (not supporting)
    assert ("<ul class='supporting'><li>gone</li></ul>" in html) == bool(supporting)  # it is not on the page


def test_without_a_verification_nothing_is_said_of_it() -> None:
    trace = make_verified("", [], [])
    assert "follow" not in Page(rendering.to_html(trace)).data["p"] + show(trace)


@pytest.mark.parametrize("steps", [0, 1])
def test_a_trace_with_little_in_it(steps: int) -> None:
    trace = Trace(question="?", steps=[Step(number=1, query="?")] * steps, stopped="nothing found")
    page = Page(rendering.to_html(trace))
    assert "nothing found" in page.data["div"]
    assert show(trace).startswith("?")


def test_files_and_notebooks_show_the_same_page(tmp_path: Path) -> None:
    trace = make_large()
    file = trace.to_html(tmp_path / "trace.html")
    assert file.read_text("utf-8") == rendering.to_html(trace)
    frame = Page(trace._repr_html_())
    ((tag, attributes),) = frame.seen
    assert tag == "iframe" and attributes["srcdoc"] == rendering.to_html(trace)


def test_a_summary_has_25_lines_at_most_and_none_is_wider_than_the_terminal() -> None:
    trace = make_large()
    trace.note(question="Who wrote it? " * 40, response="In 1982 [1][2][3][4][5], said so. " * 40)
    trace.note(citations={str(n): f"p1-{n - 1}" for n in range(1, 6)}, verification="unsupported")
    trace.note(steps=trace.steps * 2)
    clues = [
        ClueState(asked=["a", "b", "?c"], triple=[f"a {n}", "b", "?c"], state="searchable", round=0) for n in range(4)
    ]
    trace.note(trace.steps[-1], clues=clues)
    for call in trace.calls:
        call.unreadable = True
    for width in (40, 80, 200):
        out = io.StringIO()
        rendering.show(trace, Console(file=out, width=width))
        lines = out.getvalue().splitlines()
        assert len(lines) == 25 and max(map(len, lines)) <= width
        assert lines[0].startswith("Who wrote it?") and "trace.to_html(path)" in lines[-1][:40]
    for wanted in ("In 1982 [1][2]", "open: a 0 — b — ?c", "[1] Title of p1-0", "path: ", "step 1: query 1", "4 calls"):
        assert any(wanted in line for line in lines), wanted


@pytest.mark.parametrize("words", ["wrote, as everybody knows, ", "衆所周知愛達寫了"])
@pytest.mark.parametrize("width", [60, 80, 160])
@pytest.mark.parametrize("subject", ["Ada", "The University of Cambridge in the East of England"])
def test_the_object_of_a_long_sentence_is_seen(words: str, width: int, subject: str) -> None:
    trace = Trace(question="Who?")
    trace.note(trace.open_step(), gist=[[subject, words * 10, "the notes"]])
    out = io.StringIO()
    rendering.show(trace, Console(file=out, width=width))
    start = re.escape(words[:3])
    end = re.escape(words.strip(" ,")[-2:])
    assert re.search(rf"^path: {subject[:3]}.* — {start}.* … .*{end},? — the notes$", out.getvalue(), re.MULTILINE)


def test_a_summary_of_little_has_few_lines() -> None:
    out = io.StringIO()
    rendering.show(Trace(question="Why?"), Console(file=out, width=80))
    assert out.getvalue().splitlines()[:2] == ["Why?", "No answer."] and len(out.getvalue().splitlines()) == 4


def test_pagerank_is_shown_where_it_took_part() -> None:
    trace = make_large()
    assert "PageRank" not in rendering.to_html(trace)
    trace.note(trace.steps[1], pagerank=["p2-3", "p1-0"])
    assert "2 by PageRank</summary><ol><li>Title of p2-3</li><li>Title of p1-0</li>" in rendering.to_html(trace)
