"""The reference, made from docstrings by the documented command, shows all that is public."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

from pdoc import __main__ as pdoc
from repository import EXAMPLES

PAGE = (EXAMPLES / "guides" / "api.md").read_text("utf-8")


def test_everything_public_is_in_the_reference(tmp_path: Path) -> None:
    (command,) = re.findall(r"`pip install pdoc && pdoc ([^`]+)`", " ".join(PAGE.split()))
    pdoc.cli([*command.split(), "--output-directory", str(tmp_path)])
    modules = [word for word in command.split() if word.startswith("llama_index_gear")]
    assert len(modules) == 13
    headings = 0
    for name in modules:
        module = importlib.import_module(name)
        page = (tmp_path / f"{name.replace('.', '/')}.html").read_text("utf-8")
        public = getattr(module, "__all__", None) or [
            attribute
            for attribute, value in vars(module).items()
            if (inspect.isclass(value) or inspect.isfunction(value))
            and value.__module__ == name
            and not attribute.startswith("_")
        ]
        assert public
        for member in public:
            assert f'id="{member}"' in page, f"{name}.{member}"
        text = re.sub(r"<[^>]+>", "", page)
        assert "Args:" not in text
        headings += text.count("Arguments:")
    assert headings > 20
