"""The words of a reply that are meant for the reader: without thoughts, and without what follows the end of the turn.

Every reply passes here. A mark inside a JSON value, in quotes or in a cell of a row is a name that the model writes
down, and stays: a passage may tell of `<think>`, of `</s>` or of chat templates. Time grows linearly with the reply.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from llama_index_gear.errors import repair_surrogates
from llama_index_gear.llm.json_scan import MAX_REPLY_LENGTH, scan

_NAMED = r"[|“‘(]|(?:\A|[\s\[({,:=\\])[\"'`]"
"""Matches what stands before a mark that is a name: in a cell, in brackets or in quotes, unless these end there."""
_UNNAMED = r"(?<![|“‘(])(?<!\A[\"'`])(?<![\s\[({,:=\\][\"'`])"


class _Family(NamedTuple):
    """One way to mark thoughts.

    Attributes:
        opening: the opening mark; its group `line` tells that it ends its line. A cell of a row is none.
        closing: the closing mark.
        closing_line: a closing mark that ends a line of prose.
        unopened_closing: a closing mark that stands at one end of its line, or next to a word.
        late_opening: an opening mark that begins its line.
        late_closing: a closing mark that ends its line.

    """

    opening: re.Pattern[str]
    closing: re.Pattern[str]
    closing_line: re.Pattern[str]
    unopened_closing: re.Pattern[str]
    late_opening: re.Pattern[str]
    late_closing: re.Pattern[str]


def _make_family(opening: str, closing: str, unopened: str | None = None) -> _Family:
    """Return a family.

    Args:
        opening: the opening mark.
        closing: the closing mark.
        unopened: the closing mark where no mark opens. Default None: the same.

    """
    flags = re.IGNORECASE | re.MULTILINE
    opening, closing = f"(?:{opening})", f"(?:{closing})"
    unopened = closing if unopened is None else unopened
    return _Family(
        re.compile(rf"{opening}(?P<line>[ \t\r]*\n)?(?![ \t]*\|)", flags),
        re.compile(closing, flags),
        re.compile(rf"^[^|\[\](){{}}\"“<\n]*{closing}[ \t\r]*$", flags),
        re.compile(rf"{_UNNAMED}(?:{unopened}(?=[ \t\r]*$|\S)|(?<=\S){unopened}|^[ \t]*{unopened})(?![ \t]*\|)", flags),
        re.compile(rf"^[ \t]*{opening}(?P<line>[ \t\r]*$)?(?![ \t]*\|)", flags),
        re.compile(rf"{closing}[ \t\r]*$", flags),
    )


_STEMS = (
    *("think(?:ing)?", "thoughts?", "reason(?:ing)?", "reflection", "scratch[_-]?pad", "analysis", "deliberation"),
    *("(?:(?:inner|internal)[_-])?monologue", "(?:inner|internal)[_-]thoughts?", "rationale", "cot"),
    "chain[_-]of[_-]thought",
)
_BEFORE, _BEHIND = r"(?:\w+[_:]|ant)?", "(?:[_-]?(?:process|trace|block|content|mode))?"
_SQUARE, _SPOKEN = "(?:think(?:ing)?|thoughts?|reasoning)", r"(?:think|thought|reason)\w*"

_FAMILIES = [
    _make_family(r"<\|think\|>", r"<\|/think\|>|<\|end\|><\|begin\|>assistant<\|content\|>"),
    _make_family(rf"<\|(?:begin|start)_(?:of_)?{_SPOKEN}\|>", rf"<\|end_(?:of_)?{_SPOKEN}\|>"),
    _make_family(rf"<\|{_SPOKEN}_(?:begin|start)\|>", rf"<\|{_SPOKEN}_end\|>"),
    *(
        _make_family(
            rf"<\|? ?{_BEFORE}{stem}{_BEHIND}(?:\s[^<>\n]*)?[|/]?>",
            rf"<(?:\|?/|/\|| /) ?{_BEFORE}{stem}{_BEHIND}\s?\|?>|<\|end_?(?:of_?)?{stem}\|>",
        )
        for stem in _STEMS
    ),
    _make_family(rf"\[{_SQUARE}\]", rf"\[/{_SQUARE}\]"),
    _make_family(rf"◁{_SQUARE}▷", rf"◁/{_SQUARE}▷"),
    _make_family(rf"<details\s+type=\"reasoning\"[^<>\n]*>|<details>\s?<summary>{_SPOKEN}", r"</details>", r"(?!)"),
    _make_family(r"<\|channel>\s?thought", r"<channel\|>"),
    _make_family(r"<unused94>\s?thought", r"<unused95>"),
    _make_family(r"[*#]{0,3} ?here(?: is|'s) my thought process:\**", r"[*#]{0,3} ?here(?: is|'s) my response:\**"),
    _make_family(r"(?!)", r"\[BEGIN FINAL RESPONSE\]"),  # no mark opens them
]
"""All ways to mark thoughts."""

_MAY_HAVE_MARKS = re.compile(
    r"< ?[|/｜a-z]|\[[|/a-z]|◁|\A\s*(?:assistant)?analysis|human|user|instruction|input|here(?: is|'s) my",
    re.IGNORECASE,
)
"""Is found in every text that has a mark."""

_CHANNEL = re.compile(
    r"(?:<\|start\|>\w*)?<\|channel\|>\s?(?P<name>\w+)(?P<to>[^<\n]*)(?:<\|constrain\|>[^<\n]*)?<\|message\|>"
)
"""The head of a message in Harmony's channels: analysis, commentary, final."""
_MESSAGE_END = re.compile(r"<\|(?:end|return|call|start|channel)\|>")
_BARE_ANALYSIS = re.compile(r"\s*(?:assistant)?analysis(?=[A-Z\"'`{\[(0-9]|\Z)")
"""The analysis channel, of a server that leaves Harmony's marks out."""
_BARE_FINAL = re.compile(r"assistant\s?(?:final|commentary to=functions\S*(?: ?json)?)(?![a-z])")

_TURN_BEGINS = re.compile(
    r"(?:\s*(?:<\|(?:im_start|start|begin)\|>assistant(?:<\|(?:im_sep|content)\|>)?|<\|start_header_id\|>assistant<\|end_header_id\|>|<start_of_turn>model"
    r"|<\|(?:assistant|begin_of_text|CHATBOT_TOKEN|START_OF_TURN_TOKEN)\|>|<｜Assistant｜>|<s>|<bos>|\[/INST\]))+",
    re.IGNORECASE,
)
_TURN_END = re.compile(
    _UNNAMED + r"(?:<\|(?:im_end|im_start|eot_id|eom_id|eot|eod"
    r"|end(?!\|><\|begin\|>assistant<)|endoftext|end_of_text|end_?of_?turn"
    r"|endofprompt|eos|return|call"
    r"|start|start_header_id|begin_of_text|user|assistant|system|observation|(?:END|START)_OF_TURN_TOKEN)\|>"
    r"|<｜(?!tool▁)[^｜<>\n]{1,30}｜>|</s>|<eos>|<EOT>|<(?:end|start)_of_turn>|<end_of_utterance>|<turn\|>|<\|turn>"
    r"|\[END FINAL RESPONSE\]|\[/?INST\]|<</?SYS>>|\[\|(?:endofturn|user|assistant|system)\|\])",
    re.IGNORECASE,
)
_BEHIND_TURN_END = re.compile(
    r"[ \t]*(?:\Z|[\r\n<]|\[/?INST|\[\||[\[{][\[{\"]|(?:user|assistant|system|human|model)\b)", re.IGNORECASE
)
"""Follows a mark that ends a turn, not one that a sentence mentions."""
_CALL_MARKS = re.compile(r"<｜tool▁call▁begin｜>[\w.-]*<｜tool▁sep｜>(?:[\w.-]+(?=\s*```))?|<｜tool▁\w{1,20}｜>")
"""Stand around DeepSeek's calls of functions, whose arguments are JSON."""
_BOX = re.compile(r"<\|(?:begin|end)_of_box\|>")
"""Stands around what matters most of an answer."""
_NEXT_TURN = re.compile(r"^[ \t]*(?:#{2,4} ?(?:Instruction|Human|User|Input)|\**(?:Human|User)\**):", re.MULTILINE)
_WRAPPED = re.compile(
    r"(?:<(?P<tag>answer|final_answer|response|output|result)>|<\|(?:begin_of_solution|START_RESPONSE)\|>)"
    r"(?P<inside>.*?)(?:</(?P=tag)>|<\|(?:end_of_solution|END_RESPONSE)\|>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
"""An answer that is marked as one."""

_UNDECIDED = re.compile(
    r"(?:<[^<>\n]{0,60}(?:>\s*(?:\[[a-z/|]*)?)?|\[(?:[a-z/|][^\[\]\n]{0,20}\]?)?|◁[^▷\n]{0,20}"
    r"|\n[ \t]*(?:[#*]{1,4} ?\w{0,12}|[HU]\w{0,5}))\s*\Z",
    re.IGNORECASE,
)
"""The end of a text that may be the beginning of a mark."""
_UNDECIDED_BEGINNING = re.compile(
    r"\s*(?:[<◁].{0,100}|\[[a-z/|]?[^\[\]\n\d]{0,20}|(?:[*#]{0,3} ?here|assistant|analysis).{0,30}|[*#]{1,3} ?"
    r"|[*#]{0,3} ?(?:h|he|her|a|as|ass|assi|assis|assist|assista|assistan|an|ana|anal|analy|analys|analysi))?\Z",
    re.IGNORECASE | re.DOTALL,
)
"""The whole of a text that may be the beginning of a mark."""

_ENDS_NAMED = re.compile(rf"(?:{_NAMED})[ \t]*\Z")
_NEAR, _LINE = 20, 1_000  # characters: how far before a mark is looked


class Said(NamedTuple):
    """The words of a reply.

    Attributes:
        text: without thoughts, and without what follows the end of the turn; stripped.
        is_cut_off: True if the reply ends in its thoughts, and nothing is said.
        is_unopened: True if thoughts are closed that no mark opens: the prompt did.

    """

    text: str
    is_cut_off: bool = False
    is_unopened: bool = False


def clean_reply(reply: str) -> Said:
    """Return the words of a whole reply: `read_said`, without marks of calls. JSON in a JSON text is decoded.

    A reply that is longer than `MAX_REPLY_LENGTH` stays, since no parser reads it.
    """
    if len(reply) > MAX_REPLY_LENGTH:
        return Said(reply)
    said = read_said(reply)
    text = _CALL_MARKS.sub("", said.text).strip()
    inner = text
    while inner[:1] == inner[-1:] == '"':
        try:
            inner = json.loads(inner).strip()
        except (ValueError, RecursionError):
            break
    return said._replace(text=inner if inner[:1] in ("[", "{", "`") else text)


def read_said(reply: str) -> Said:
    """Take thoughts off a reply, and cut it at the end of its turn.

    Thoughts that a mark opens, at the beginning or at the beginning of a line, end with the first closing mark that
    ends a line of prose: no statement ends with one. Without such a line they end with the first closing mark; without
    any, they are the rest of the reply. Thoughts that no mark opens are what stands before the first closing mark.
    """
    text = repair_surrogates(reply)
    if not _MAY_HAVE_MARKS.search(text):
        return Said(text.strip())
    channels = _read_channels(text)
    if channels is not None:
        return channels
    said = _strip_thoughts(_cut_turn(text))
    whole = _Text(said.text)
    return said._replace(text=_BOX.sub(lambda mark: mark[0] if whole.is_name(mark) else "", said.text))


class _Text:
    """A text with the places of its JSON values and its last marks, each found when it is first asked for."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._last: dict[re.Pattern[str], int] = {}

    @cached_property
    def _values(self) -> list[tuple[int, int]]:
        return [(span.start, span.end) for span in scan(self.text) if span.is_read]

    def end_of_value_before(self, position: int) -> int:
        """Return the end of the last value that begins before a position; 0 if there is none."""
        number = bisect_right(self._values, (position, 0))
        return self._values[number - 1][1] if number else 0

    def is_name(self, mark: re.Match[str]) -> bool:
        """Return True if a mark is written down as a name: inside a JSON value, in quotes, or in a cell."""
        start = mark.start()
        near = self.text[max(0, start - _NEAR) : start]
        return _ENDS_NAMED.search(near) is not None or self.end_of_value_before(start) > start

    def search(self, pattern: re.Pattern[str], position: int) -> re.Match[str] | None:
        """Search a pattern from a position on; if there is none, without reading the text again each time."""
        if pattern not in self._last:
            self._last[pattern] = max((match.start() for match in pattern.finditer(self.text)), default=-1)
        return pattern.search(self.text, position) if position <= self._last[pattern] else None


def _read_channels(text: str) -> Said | None:
    """Read a reply in Harmony's channels; None if it has none.

    The final channel is what is said. Without one, it is the arguments of a function, or else the commentary.
    """
    if bare := _BARE_ANALYSIS.match(text):
        final = _BARE_FINAL.search(text, bare.end())
        return Said("", is_cut_off=True) if final is None else Said(_cut_turn(text[final.end() :]).strip())
    headers = list(_CHANNEL.finditer(text))
    if not headers or _Text(text).is_name(headers[0]):
        return None
    bodies: dict[str, list[str]] = {}
    for header in headers:
        end = _MESSAGE_END.search(text, header.end())
        kind = "call" if "to=" in header["to"] else header["name"].lower()
        bodies.setdefault(kind, []).append(text[header.end() : len(text) if end is None else end.start()].strip())
    said = bodies.get("final", [])[:1] or bodies.get("call") or bodies.get("commentary") or []
    is_unopened = bool(text[: headers[0].start()].strip())
    return Said("\n".join(said), is_cut_off=not said, is_unopened=is_unopened)


def _cut_turn(text: str) -> str:
    """Return a text without the marks of its turn's beginning, and without the turn's end and what follows it."""
    begins = _TURN_BEGINS.match(text)
    whole = _Text(text if begins is None else text[begins.end() :])
    return whole.text[: min(_find_turn_ends(whole), default=len(whole.text))]


def _find_turn_ends(whole: _Text) -> Iterator[int]:
    """Find where the turn ends: at a mark, and where a made-up turn of the other's begins."""
    text = whole.text
    strikes = text.find("<s>")  # HTML has </s> too
    for mark in _TURN_END.finditer(text):
        start = mark.start()
        is_html = mark[0] == "</s>" and 0 <= strikes < start
        is_glued = start == 0 or text[start - 1] == "\n" or (not text[start - 1].isspace() and mark[0] != "</s>")
        if not is_html and (is_glued or _BEHIND_TURN_END.match(text, mark.end())) and not whole.is_name(mark):
            yield start
            break
    first = len(text) - len(text.lstrip())
    for mark in _NEXT_TURN.finditer(text, first + 1):
        if not whole.is_name(mark):
            yield mark.start()
            break


def _strip_thoughts(text: str) -> Said:
    """Take off the thoughts at the beginning, and the ones that are opened and closed in lines of their own."""
    whole = _Text(text)
    position = start = _find_end_of_unopened(whole)
    is_closed = True
    while opened := _match_opening(text, position):
        family, mark = opened
        closed = mark if mark[0].rstrip().endswith("/>") else _find_closing(whole, family, mark)
        is_closed = closed is not None
        position = len(text) if closed is None else closed.end()
    said = _unwrap(_strip_late_thoughts(text[position:]), is_sure=position > 0)
    return Said(said, is_cut_off=not is_closed and not said, is_unopened=start > 0)


def _match_opening(text: str, position: int) -> tuple[_Family, re.Match[str]] | None:
    """Return the mark that opens thoughts at a position, behind white space."""
    while text[position : position + 1].isspace():
        position += 1
    marks = ((family, family.opening.match(text, position)) for family in _FAMILIES)
    return next(((family, mark) for family, mark in marks if mark is not None), None)


def _find_closing(whole: _Text, family: _Family, opened: re.Match[str]) -> re.Match[str] | None:
    """Find the mark that closes thoughts, and those that are opened inside them."""
    line = whole.search(family.closing_line, opened.end()) if opened["line"] else None
    closed = line or whole.search(family.closing, opened.end())
    start = opened.end()
    while closed is not None and (inner := family.opening.search(whole.text, start, closed.start())):
        start = inner.end()
        outer = None if whole.is_name(inner) else whole.search(family.unopened_closing, closed.end())
        closed = closed if outer is None else outer
    return closed


def _find_end_of_unopened(whole: _Text) -> int:
    """Find the end of thoughts whose opening mark was in the prompt; 0 if there are none."""
    text = whole.text
    for family in _FAMILIES:
        if whole.search(family.closing, 0) is None or _match_opening(text, 0) is not None:
            continue
        opening = next((mark.start() for mark in family.opening.finditer(text) if not whole.is_name(mark)), len(text))
        for closed in family.unopened_closing.finditer(text, 0, opening):
            before = text[max(0, closed.start() - _LINE) : closed.start()].rpartition("\n")[2]
            if "|" not in before and not whole.is_name(closed):
                return closed.end()
    return 0


def _strip_late_thoughts(text: str) -> str:
    """Take off thoughts behind the first words: they begin a line and end one, or nothing closes them."""
    whole = _Text(text)
    thoughts: list[tuple[int, int]] = []
    for family in _FAMILIES:
        position = 0
        while opened := whole.search(family.late_opening, position):
            position = opened.end()
            if whole.is_name(opened):
                continue
            closed = whole.search(family.late_closing, position)
            if closed is not None or opened["line"] is not None:
                position = len(text) if closed is None else closed.end()
                thoughts.append((opened.start(), position))
    kept, end = [], 0
    for start, position in sorted(thoughts):
        kept.append(text[end : max(start, end)])
        end = max(end, position)
    return "".join([*kept, text[end:]])


def _unwrap(text: str, *, is_sure: bool) -> str:
    """Return the inside of an answer that is marked as one; if not sure, only if the marks are around the whole."""
    text = text.strip()
    wrapped = _WRAPPED.match(text)
    if wrapped is None or not (is_sure or (wrapped.end() == len(text) and wrapped.end("inside") < len(text))):
        return text
    return wrapped["inside"].strip()


class ReplyStream:
    """Hands on the words of a reply that comes in pieces, as soon as it is known that they are no thoughts.

    Args:
        waits: True hands on nothing before the end: the model's thoughts have no opening mark.

    """

    def __init__(self, *, waits: bool = False) -> None:
        self._waits = waits
        self._text = self._shown = ""

    def add(self, piece: str) -> str:
        """Take the next piece, and return the words that can be handed on."""
        self._text += piece
        if self._waits:
            return ""
        said = read_said(self._text).text
        if _UNDECIDED_BEGINNING.match(said) or _UNDECIDED_BEGINNING.match(self._text):
            return ""
        line = said.rfind("\n") + 1
        patterns = [_UNDECIDED, *(family.late_opening for family in _FAMILIES)]
        marks = (pattern.search(said, max(0, line - 1)) for pattern in patterns)
        known = min((mark.start() for mark in marks if mark is not None), default=len(said))
        return self._hand_on(said[:known].rstrip())

    def end(self) -> str:
        """Return the rest of the words."""
        return self._hand_on(read_said(self._text).text)

    def _hand_on(self, said: str) -> str:
        if not said.startswith(self._shown):  # thoughts that no mark had opened were handed on, or a mark came late
            rest, self._shown = ("", self._shown) if self._shown.startswith(said) else (f"\n{said}", said)
            return rest
        rest, self._shown = said[len(self._shown) :], said
        return rest
