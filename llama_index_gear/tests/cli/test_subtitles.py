"""Subtitles as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from llama_index_gear import FolderReader

VTT = """WEBVTT - A call

NOTE Made by a tool

STYLE
::cue { color: red }

intro
00:01.000 --> 00:04.000 align:start
<v.loud Nora Blum>The crane is here.</v>

00:00:04.500 --> 00:00:07.000
<v Paul Kern>Weserkran GmbH installs it

00:00:07.500 --> 00:00:09.000
<v Paul Kern>in <c.yellow>Bremen</c>.</v>

00:08.000 --> 00:09.000
- Yes.
- Ida Falk<00:08.500> paints
"""
SRT = """1
00:00:01,000 --> 00:00:04,000
<i>Nora Blum founded</i>
Osthafen.

2
00:00:04,500 --> 00:00:07,000
{\\an8}Paul Kern paints

3
00:00:07,500 --> 00:00:09,000
<font color="#fff">IDA FALK: in 2 < 3 towns.</font>
"""
ASS = """[Script Info]
Title: Film

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Comment: 0,0:00:00.00,0:00:01.00,Default,,0,0,0,,To do
Dialogue: 0,0:00:01.00,0:00:03.00,Default,Nora Blum,0,0,0,,{\\i1}The crane,{\\i0} see,\\Nis here.
Dialogue: 0,0:00:04.00,0:00:05.00,Default,,0,0,0,,In Bremen.
"""
SBV = "0:00:00.599,0:00:04.160\nNora Blum founded\nOsthafen.\n\n0:00:04.160,0:00:06.770\nIn Bremen.\n"
LRC = "[ar:Ida Falk]\n[offset:+500]\n\n[00:12.00]Here <00:12.50>is the crane\n[00:15.30][00:45.30] In Bremen\n"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "call.vtt",
            VTT,
            [
                "Nora Blum: The crane is here.",
                "Paul Kern: Weserkran GmbH installs it in Bremen.",
                "Yes.",
                "Ida Falk paints",
            ],
        ),
        ("film.srt", SRT, ["Nora Blum founded Osthafen.", "Paul Kern paints", "IDA FALK: in 2 < 3 towns."]),
        ("film.srt", SRT.replace("\n", "\r\n"), ["Nora Blum founded Osthafen.", "Paul Kern paints"]),
        ("film.ass", ASS, ["Nora Blum: The crane, see, is here.", "In Bremen."]),
        ("film.sbv", SBV, ["Nora Blum founded Osthafen.", "In Bremen."]),
        ("song.lrc", LRC, ["Here is the crane\nIn Bremen"]),
    ],
)
def test_what_is_said_is_the_text(tmp_path: Path, name: str, text: str, said: list[str]) -> None:
    (tmp_path / name).write_bytes(text.encode())
    (document,) = FolderReader(tmp_path).load_data()
    assert document.text.split("\n\n")[: len(said)] == said
    assert "-->" not in document.text and "NOTE" not in document.text
