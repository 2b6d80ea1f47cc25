"""Each script of `findings/` installs pinned packages of others alone, and says which versions do what."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from repository import ROOT

SCRIPTS = sorted((ROOT / "findings").glob("*"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_finding_shows_others_alone_and_says_what_it_saw(path: Path) -> None:
    """Run one by hand: it makes an environment, installs, and exits with 1 if what it shows has changed."""
    text = path.read_text("utf-8")
    assert os.access(path, os.X_OK) and text.startswith("#!/bin/sh\n# ")
    assert "llama_index_gear" not in text and "llama-index-gear" not in text
    assert "\n# Seen (" in text and "sys.exit(" in text and "\nset -eu\n" in text
    (installed,) = re.findall(r'pip" install (.*)', text)
    versions = [name.split("==") for name in re.findall(r'"([^"]*)"', installed)]
    assert versions and all(len(version) == 2 for version in versions), "versions are pinned"
    assert all(f"{name} {version}" in text for name, version in versions), "and named"


def test_there_are_some() -> None:
    assert len(SCRIPTS) >= 6
