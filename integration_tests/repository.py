"""Paths within the repository."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
BENCHMARKS = EXAMPLES / "benchmarks"
