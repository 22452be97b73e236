"""Mixture-of-experts models with random weights, in mlx-lm's own format.

Nothing is downloaded. A model directory holds ``config.json``, ``model.safetensors`` and a
word-level tokenizer (one word, one token) with a chat template, so that ``mlx_lm.load`` and
``mlx_lm.server`` take it as any other.

Routers of random weights send most tokens of a long prompt to few experts in deep layers: hidden
states grow alike. Times of such a model are for a small union of experts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from calibration.mlx.installed import engine_module
from sim.atomic import check_folder
from sim.documents import did_you_mean
from sim.errors import InputError, Problem

_QWEN3_MOE = {
    "model_type": "qwen3_moe",
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "tie_word_embeddings": False,
    "max_position_embeddings": 262_144,
    "norm_topk_prob": True,
}

SHAPES: dict[str, dict[str, Any]] = {
    # For checks of the scheduler: a tick takes a few milliseconds on a CPU.
    "nano": {
        **_QWEN3_MOE,
        "vocab_size": 256,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "intermediate_size": 64,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
    },
    # For a server on a CPU.
    "micro": {
        **_QWEN3_MOE,
        "vocab_size": 2048,
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_experts": 16,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
    },
    # A real size: 61 GB in bf16, 17 GB in 4 bit.
    "qwen3-30b-a3b": {
        **_QWEN3_MOE,
        "vocab_size": 151_936,
        "hidden_size": 2048,
        "num_hidden_layers": 48,
        "intermediate_size": 6144,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "rope_theta": 1e7,
    },
}
"""Configurations by name, in the keys of mlx-lm's ``config.json``."""

SPECIAL_WORDS = (
    "<|pad|>", "<|eos|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>",
    "<|unk|>",
)  # fmt: skip
"""First words of the vocabulary; word ``n`` after them is called ``wn``."""

_EOS_ID = SPECIAL_WORDS.index("<|eos|>")
_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|> {{ m['content'] }} <|end|> {% endfor %}"
    "{% if add_generation_prompt %}<|assistant|> {% endif %}"
)
_GROUP_SIZE = 64


def find_shape(name: str, source: str = "--make-model") -> dict[str, Any]:
    """Return a configuration.

    Raises
    ------
    InputError
        There is no such shape.
    """
    if name not in SHAPES:
        message = f"unknown shape; there are {', '.join(SHAPES)}{did_you_mean(name, SHAPES)}"
        raise InputError(Problem(source, name[:60], message))
    return dict(SHAPES[name])


def build_model(config: dict[str, Any], *, bits: int | None = None, seed: int = 0) -> Any:
    """Return a model with random weights, built layer by layer.

    Parameters
    ----------
    config
        As in `SHAPES`.
    bits
        Quantise to so many bits in groups of 64; None leaves floats: bfloat16 on a GPU, float32 on
        a CPU, which has no other kernel for experts.
    seed
        Of the weights.
    """
    mx, nn = engine_module("mlx.core"), engine_module("mlx.nn")
    module = engine_module(f"mlx_lm.models.{config['model_type']}")
    mx.random.seed(seed)
    model = module.Model(module.ModelArgs.from_dict(config))
    on_cpu = mx.default_device() == mx.Device(mx.cpu)
    dtype = mx.float32 if on_cpu else mx.bfloat16

    def finish(part: Any) -> None:
        part.set_dtype(dtype)
        if bits is not None:
            predicate = getattr(model, "quant_predicate", None)

            def quantises(path: str, layer: Any) -> Any:
                if not hasattr(layer, "to_quantized") or layer.weight.shape[-1] % _GROUP_SIZE:
                    return False
                return predicate(path, layer) if predicate else True

            nn.quantize(part, group_size=_GROUP_SIZE, bits=bits, class_predicate=quantises)
        mx.eval(part.parameters())
        mx.clear_cache()

    for layer in model.layers:
        finish(layer)
    finish(model)
    model.eval()
    return model


def write_model(shape: str, folder: Path, *, bits: int | None = None, seed: int = 0) -> None:
    """Write a model directory.

    Parameters
    ----------
    shape
        Name of a shape.
    folder
        Must not exist, or be empty.
    bits, seed
        As in `build_model`.

    Raises
    ------
    InputError
        No such shape, or the folder is in use.
    """
    config = find_shape(shape)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(Problem("--make-model", str(folder), "exists and is not an empty folder"))
    check_folder(folder, "--make-model")
    mx, utils = engine_module("mlx.core"), engine_module("mlx.utils")
    model = build_model(config, bits=bits, seed=seed)
    config["eos_token_id"] = _EOS_ID
    if bits is not None:
        config["quantization"] = {"group_size": _GROUP_SIZE, "bits": bits}
    folder.mkdir(parents=True, exist_ok=True)
    weights = dict(utils.tree_flatten(model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    _write_tokenizer(folder, config["vocab_size"])
    # Last: a folder with a config is a whole model.
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


def _write_tokenizer(folder: Path, vocabulary: int) -> None:
    tokenizers = engine_module("tokenizers")
    words = [*SPECIAL_WORDS, *[f"w{index}" for index in range(len(SPECIAL_WORDS), vocabulary)]]
    model = tokenizers.models.WordLevel(
        {word: index for index, word in enumerate(words)}, unk_token="<|unk|>"
    )
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|eos|>",
        "pad_token": "<|pad|>",
        "unk_token": "<|unk|>",
        "chat_template": _TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1 << 20,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(about), encoding="utf-8")
