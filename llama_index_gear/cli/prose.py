"""Tells files of text that nobody reads: what a program wrote for programs."""

from __future__ import annotations

import re

_LOCK = re.compile(r".*\.lock|.*[-.]lock\.(?:json|yaml|yml|hcl)|go\.sum|npm-shrinkwrap\.json", re.IGNORECASE)
_MINIFIED = re.compile(r".*[-.]min\.(?:js|css|mjs)", re.IGNORECASE)
_MAP = re.compile(r'\s*\{[^{}]{0,2000}"mappings"\s*:')
_ROFF = re.compile(r"(?:[.'](?:\\\"|\\}|ie|if|el|de|ds|nr|so|hy|ad|nh)[^\n]*\n|\s*\n)*\.(?:TH|Dd|so)\s")
_UNBROKEN = re.compile(r"[!-~]{160,}")
"""Matches a run of ASCII characters that no word or address is as long as."""
_MOST_UNBROKEN = 0.3
"""Share of a text in such runs, or in lines like those of minified code, at most."""
_LONG_LINE = 400  # characters
_LEAST_SPACES = 0.06  # share of a line's characters


def explain_no_prose(file: str, text: str) -> str:
    """Return why a file has no text for readers, by its name and how it begins; "" if it may have."""
    if text.startswith("{\\rtf"):
        return "rich text (RTF): name it .rtf"
    if file.lower().endswith(".svg") or re.match(r"\s*(?:<\?xml[^>]*>\s*)?(?:<!DOCTYPE svg[^>]*>\s*)?<svg\b", text):
        return "a drawing (SVG)"
    if _ROFF.match(text):
        return "the source of a manual's page (roff): save what `man` shows of it as .txt"
    name = file.rsplit("/", 1)[-1]
    if _LOCK.fullmatch(name):
        return "a lock file, which a program wrote"
    if _MINIFIED.fullmatch(name):
        return "minified code"
    if _MAP.match(text):
        return "a source map"
    return ""


def explain_no_sentences(text: str) -> str:
    """Return why a text, without its markup, is none for readers; "" if it is."""
    unbroken = sum(len(run) for run in _UNBROKEN.findall(text))
    crowded = sum(len(line) for line in text.split("\n") if _is_crowded(line))
    if max(unbroken, crowded) > _MOST_UNBROKEN * len(text):
        return "no running text: minified code, base64 or the like"
    return ""


def _is_crowded(line: str) -> bool:
    return len(line) > _LONG_LINE and line.isascii() and line.count(" ") < _LEAST_SPACES * len(line)
