"""The marks that models write around their thoughts and at the ends of their turns, as patterns."""

from __future__ import annotations

import re
from typing import NamedTuple


class Family(NamedTuple):
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


def _make_family(opening: str, closing: str) -> Family:
    flags = re.IGNORECASE | re.MULTILINE
    opening, closing = f"(?:{opening})", f"(?:{closing})"
    return Family(
        re.compile(rf"{opening}(?P<line>[ \t\r]*\n)?(?![ \t]*\|)", flags),
        re.compile(closing, flags),
        re.compile(rf"^[^|\[\](){{}}\"“<\n]*{closing}[ \t\r]*$", flags),
        re.compile(
            rf"(?<![|\"'`“‘(])(?:{closing}(?=[ \t\r]*$|\S)|(?<=\S){closing}|^[ \t]*{closing})(?![ \t]*\|)", flags
        ),
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

FAMILIES = [
    _make_family(rf"<\|(?:begin|start)_(?:of_)?{_SPOKEN}\|>", rf"<\|end_(?:of_)?{_SPOKEN}\|>"),
    _make_family(rf"<\|{_SPOKEN}_(?:begin|start)\|>", rf"<\|{_SPOKEN}_end\|>"),
    *(
        _make_family(rf"<\|?{_BEFORE}{stem}{_BEHIND}(?:\s[^<>\n]*)?\|?>", rf"<(?:\|?/|/\|){_BEFORE}{stem}{_BEHIND}\|?>")
        for stem in _STEMS
    ),
    _make_family(rf"\[{_SQUARE}\]", rf"\[/{_SQUARE}\]"),
    _make_family(rf"◁{_SQUARE}▷", rf"◁/{_SQUARE}▷"),
    _make_family(r"<details\s+type=\"reasoning\"[^<>\n]*>", r"</details>"),
    _make_family(r"<\|channel>\s?thought", r"<channel\|>"),
    _make_family(r"<unused94>\s?thought", r"<unused95>"),
    _make_family(r"here(?: is|'s) my thought process:", r"here(?: is|'s) my response:"),
    _make_family(r"(?!)", r"\[BEGIN FINAL RESPONSE\]"),  # no mark opens them
]
"""All ways to mark thoughts."""

MAY_HAVE_MARKS = re.compile(
    r"<[|/｜a-z]|\[[|/a-z]|◁|\A\s*(?:assistant)?analysis|human|user|instruction|input|here(?: is|'s) my",
    re.IGNORECASE,
)
"""Is found in every text that has a mark."""

CHANNEL = re.compile(
    r"(?:<\|start\|>\w*)?<\|channel\|>\s?(?P<name>\w+)(?P<to>[^<\n]*)(?:<\|constrain\|>[^<\n]*)?<\|message\|>"
)
"""The head of a message in Harmony's channels: analysis, commentary, final."""
MESSAGE_END = re.compile(r"<\|(?:end|return|call|start|channel)\|>")
BARE_ANALYSIS = re.compile(r"\s*(?:assistant)?analysis(?=[A-Z\"'`{\[(0-9]|\Z)")
"""The analysis channel, of a server that leaves Harmony's marks out."""
BARE_FINAL = re.compile(r"assistant\s?(?:final|commentary to=functions\S*(?: ?json)?)(?![a-z])")

TURN_BEGINS = re.compile(
    r"(?:\s*(?:<\|(?:im_start|start)\|>assistant|<\|start_header_id\|>assistant<\|end_header_id\|>|<start_of_turn>model"
    r"|<\|(?:assistant|begin_of_text|CHATBOT_TOKEN|START_OF_TURN_TOKEN)\|>|<｜Assistant｜>|<s>|<bos>|\[/INST\]))+",
    re.IGNORECASE,
)
TURN_END = re.compile(
    r"(?<![|\"'`“‘(])(?:<\|(?:im_end|im_start|eot_id|eom_id|eot|eod|end|endoftext|end_of_text|end_?of_?turn|endofprompt|eos|return|call"
    r"|start|start_header_id|begin_of_text|user|assistant|system|observation|(?:END|START)_OF_TURN_TOKEN)\|>"
    r"|<｜(?!tool▁)[^｜<>\n]{1,30}｜>|</s>|<eos>|<EOT>|<(?:end|start)_of_turn>|<end_of_utterance>|<turn\|>|<\|turn>"
    r"|\[END FINAL RESPONSE\]|\[/?INST\]|<</?SYS>>|\[\|(?:endofturn|user|assistant|system)\|\])",
    re.IGNORECASE,
)
BEHIND_TURN_END = re.compile(
    r"[ \t]*(?:\Z|[\r\n<]|\[/?INST|\[\||(?:user|assistant|system|human|model)\b)", re.IGNORECASE
)
"""Follows a mark that ends a turn, not one that a sentence mentions."""
CALL_MARKS = re.compile(r"<｜tool▁call▁begin｜>[\w.-]*<｜tool▁sep｜>(?:[\w.-]+(?=\s*```))?|<｜tool▁\w{1,20}｜>")
"""Stand around DeepSeek's calls of functions, whose arguments are JSON."""
BOX = re.compile(r"<\|(?:begin|end)_of_box\|>")
"""Stands around what matters most of an answer."""
NEXT_TURN = re.compile(r"^[ \t]*(?:#{2,4} ?(?:Instruction|Human|User|Input)|\**(?:Human|User)\**):", re.MULTILINE)
WRAPPED = re.compile(
    r"(?:<(?P<tag>answer|final_answer|response|output|result)>|<\|(?:begin_of_solution|START_RESPONSE)\|>)"
    r"(?P<inside>.*?)(?:</(?P=tag)>|<\|(?:end_of_solution|END_RESPONSE)\|>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
"""An answer that is marked as one."""

UNDECIDED = re.compile(
    r"(?:<[^<>\n]{0,60}(?:>\s*(?:\[[a-z/|]*)?)?|\[(?:[a-z/|][^\[\]\n]{0,20}\]?)?|◁[^▷\n]{0,20}"
    r"|\n[ \t]*(?:[#*]{1,4} ?\w{0,12}|[HU]\w{0,5}))\s*\Z",
    re.IGNORECASE,
)
"""The end of a text that may be the beginning of a mark."""
UNDECIDED_BEGINNING = re.compile(
    r"\s*(?:[<◁].{0,100}|\[[a-z/|]?[^\[\]\n\d]{0,20}|(?:here|assistant|analysis).{0,30}"
    r"|(?:h|he|her|a|as|ass|assi|assis|assist|assista|assistan|an|ana|anal|analy|analys|analysi))?\Z",
    re.IGNORECASE | re.DOTALL,
)
"""The whole of a text that may be the beginning of a mark."""
