"""The words of subtitles: without times, numbers and styles, and with who says them."""

from __future__ import annotations

import re

SUBTITLES = {".ass", ".lrc", ".sbv", ".srt", ".ssa", ".vtt"}
"""Endings of files of subtitles."""
_TIME = re.compile(r"(?:\d+:)?\d{1,2}:\d{2}[.,]\d{1,3}(?:[ \t]*-->|,\d).*")
_DIALOGUE = re.compile(r"^Dialogue:(?:[^,\n]*,){4}([^,\n]*),(?:[^,\n]*,){4}(.*)$", re.MULTILINE)
"""Matches a line of Advanced SubStation Alpha: who says it, and what."""
_LYRICS = re.compile(r"^(?:\[\w+:[^\[\]\n]*\][ \t]*)+|<\d+:[\d.:]+>[ \t]*", re.MULTILINE)
_VOICE = re.compile(r"<v(?:\.[\w.-]+)?[ \t]+([^<>\n]+)>")
_TAG = re.compile(r"</?[a-z][^<>\n]*>|</?\d[\d:.]*>|\{\\?[a-z][^{}\n]*\}", re.IGNORECASE)
_BEGINS = re.compile(r"-[ \t]|[^\W\d_][\w .'-]{0,40}:[ \t]")
"""Matches the start of a line that somebody else says."""
_ENDS = (".", "!", "?", "…", '"', "”", "♪")


def read_subtitles(text: str) -> str:
    """Return what is said, a paragraph for each sentence or speaker.

    A voice is written in front: "Nora Blum: The crane is here." What stands above the first time, in notes and in
    styles is left out.

    Args:
        text: the file, of SubRip, WebVTT, SubStation Alpha, YouTube (SBV) or lyrics (LRC), whose lines stay.

    """
    if re.match(r"\s*\[\w+:", text):
        return _LYRICS.sub("", text).strip()
    if dialogue := _DIALOGUE.findall(text):
        cues = (f"<v {name.strip()}>{words}" if name.strip() else words for name, words in dialogue)
        text = "\n\n".join(f"0:00.0 -->\n{cue}".replace("\\N", " ") for cue in cues)
    said: list[str] = []
    voice = ""
    for cue in re.split(r"\n[ \t]*\n", text.replace("\r\n", "\n")):
        lines = cue.strip().split("\n")
        start = next((place for place, line in enumerate(lines[:2]) if _TIME.match(line.strip())), None)
        for line in [] if start is None else lines[start + 1 :]:
            spoken = _VOICE.search(line)
            if spoken and spoken[1].strip() != voice:
                voice = spoken[1].strip()
                line = f"{voice}: {line}"
                said.append("")
            line = " ".join(_TAG.sub("", line).split())
            if line and said and not said[-1].endswith(_ENDS) and not (_BEGINS.match(line) and said[-1]):
                said[-1] = f"{said[-1]} {line}".strip()
            elif line:
                said.append(line.removeprefix("- "))
    return "\n\n".join(filter(None, said))
