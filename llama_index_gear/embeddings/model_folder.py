"""A folder with an embedding model, as sentence-transformers writes it: its settings and its weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_index_gear.errors import ArgumentError

WEIGHTS = "model.safetensors"
"""Name of the file of the weights."""
TOKENIZER = "tokenizer.json"
"""Name of the file of the tokenizer."""
_MODULES = {"Transformer", "Pooling", "Normalize"}


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The settings of a BERT encoder that embeds texts.

    Attributes:
        layers: number of its layers.
        heads: number of heads of each layer's attention.
        width: length of a vector.
        epsilon: of the layers' normalization.
        limit: number of tokens of a text that it reads.
        pooling: "mean" of the tokens' vectors, or that of the first, "cls".
        normalizes: its vectors have the length 1.
        lowers: it reads texts in lower case.

    """

    layers: int
    heads: int
    width: int
    epsilon: float
    limit: int
    pooling: str
    normalizes: bool
    lowers: bool


@dataclass(frozen=True)
class ModelFolder:
    """A folder that holds a BERT encoder with its tokenizer.

    Attributes:
        encoder: the folder of the encoder's files, mostly the whole folder.
        settings: of the model.

    """

    encoder: Path
    settings: ModelSettings


def read_folder(folder: Path) -> ModelFolder:
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
    if not (encoder / TOKENIZER).is_file():
        raise _lacks(encoder / TOKENIZER)
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
    return ModelFolder(encoder, settings)


def read_weights(encoder: Path) -> dict[str, NDArray[Any]]:
    """Read an encoder's weights, by the names that Transformers gives them.

    Raises:
        ArgumentError: the file is missing or damaged.

    """
    path = encoder / WEIGHTS
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
