"""A BERT encoder with its pooling, as a graph that OpenVINO computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_index_gear.embeddings.model_folder import ModelSettings

Weights = Mapping[str, NDArray[Any]]
"""Arrays by the names that Transformers gives them, "embeddings.LayerNorm.weight" and the like.

Those that are looked up may be whole numbers, with a factor a row beside them: "embeddings.word_embeddings.scale".
"""

_MASKED = np.float32(3e38)


class _Layers:
    """Builds the parts of a graph, each from its input and the name of its weights."""

    def __init__(self, settings: ModelSettings, weights: Weights, ops: Any) -> None:
        self._settings, self._weights, self._ops = settings, weights, ops

    def constant(self, value: Any) -> Any:
        return self._ops.constant(np.asarray(value, order="C"))

    def weight(self, name: str) -> Any:
        return self.constant(self._weights[name])

    def look_up(self, name: str, rows: Any) -> Any:
        found = self._ops.gather(self.weight(f"{name}.weight"), rows, self.constant(0))
        if f"{name}.scale" not in self._weights:
            return found
        scale = self._ops.gather(self.weight(f"{name}.scale"), rows, self.constant(0))
        return self._ops.multiply(self._ops.convert(found, "f32"), scale)

    def normalize(self, x: Any, name: str) -> Any:
        scaled = self._ops.mvn(x, self.constant([-1]), True, self._settings.epsilon, "inside_sqrt")
        return self._ops.add(self._ops.multiply(scaled, self.weight(f"{name}.weight")), self.weight(f"{name}.bias"))

    def connect(self, x: Any, name: str) -> Any:
        product = self._ops.matmul(x, self.weight(f"{name}.weight"), False, True)
        return self._ops.add(product, self.weight(f"{name}.bias"))

    def attend(self, x: Any, name: str, mask: Any) -> Any:
        heads, width = self._settings.heads, self._settings.width
        shape, order = self.constant([0, 0, heads, width // heads]), self.constant([0, 2, 1, 3])
        query, key, value = (
            self._ops.transpose(self._ops.reshape(self.connect(x, f"{name}.self.{part}"), shape, True), order)
            for part in ("query", "key", "value")
        )
        read = self._ops.transpose(self._ops.scaled_dot_product_attention(query, key, value, mask), order)
        return self.connect(self._ops.reshape(read, self.constant([0, 0, width]), True), f"{name}.output.dense")

    def add_layer(self, x: Any, name: str, mask: Any) -> Any:
        attended = self.attend(x, f"{name}.attention", mask)
        x = self.normalize(self._ops.add(attended, x), f"{name}.attention.output.LayerNorm")
        wide = self._ops.gelu(self.connect(x, f"{name}.intermediate.dense"), "erf")
        return self.normalize(self._ops.add(self.connect(wide, f"{name}.output.dense"), x), f"{name}.output.LayerNorm")


def build_graph(settings: ModelSettings, weights: Weights) -> Any:
    """Return an OpenVINO model from token ids and mask, each of texts × tokens, to a vector a text.

    Args:
        settings: of the model.
        weights: of the model.

    Raises:
        KeyError: a weight is missing; it names it.

    """
    import openvino
    from openvino import opset15 as ops

    layers = _Layers(settings, weights, ops)
    constant = layers.constant
    ids = ops.parameter([-1, -1], np.int64, name="ids")
    mask = ops.parameter([-1, -1], np.float32, name="mask")
    length = ops.gather(ops.shape_of(ids), constant(1), constant(0))
    places = ops.range(constant(np.int64(0)), length, constant(np.int64(1)), "i64")
    words = layers.look_up("embeddings.word_embeddings", ids)
    positions = layers.look_up("embeddings.position_embeddings", places)
    kind = constant(weights["embeddings.token_type_embeddings.weight"][0])
    x = layers.normalize(ops.add(ops.add(words, positions), kind), "embeddings.LayerNorm")
    hidden = ops.multiply(ops.subtract(mask, constant(np.float32(1))), constant(_MASKED))
    for number in range(settings.layers):
        x = layers.add_layer(x, f"encoder.layer.{number}", ops.unsqueeze(hidden, constant([1, 2])))
    if settings.pooling == "cls":
        vectors = ops.gather(x, constant(0), constant(1))
    else:
        share = ops.unsqueeze(ops.divide(mask, ops.reduce_sum(mask, constant([1]), True)), constant(2))
        vectors = ops.reduce_sum(ops.multiply(x, share), constant([1]))
    if settings.normalizes:
        vectors = ops.normalize_l2(vectors, constant([1]), 1e-24, "max")
    return openvino.Model([vectors], [ids, mask], "bert")
