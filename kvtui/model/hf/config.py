"""Reading a `config.json`: layers, head counts, types. Pure: a parsed JSON object in, values out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvtui.core.errors import ModelFileError
from kvtui.core.text import clean
from kvtui.model.hf.known import DEFAULTS, TEXT_TYPES
from kvtui.model.hf.layers import Layer
from kvtui.model.hf.pattern import Undetermined, layers_of
from kvtui.model.hf.values import Values
from kvtui.model.shapes import Exactness

_NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
_BYTES = {"bfloat16": 2, "float16": 2, "half": 2, "float32": 4, "float": 4}
MAX_LAYERS = 1024


@dataclass(frozen=True, slots=True)
class HfConfig:
    """What a model keeps, before any size is known. `n_ctx_train` is in tokens, None where the file does not say.

    `layers` are those that keep something. `dtype` is the type that vLLM serves the model in: a file in float32 is
    served in 16 bits. `kv_fp8`: the checkpoint itself asks for an fp8 cache, which `auto` then gives.
    `exactness` is that of the layers: `exact` for types of models whose rule is known, `approximate` where the file
    was taken at its word, `unknown` where it does not say enough; `notes` give the reasons.
    """

    path: str
    model_type: str
    architecture: str
    n_layer: int | None
    n_ctx_train: int | None
    dtype: str
    dtype_bytes: int
    quantization: str | None
    kv_fp8: bool
    layers: tuple[Layer, ...]
    exactness: Exactness
    notes: tuple[str, ...]


def read_config(raw: Mapping[str, Any], path: str) -> HfConfig:
    """The configuration in `raw`. Raises ModelFileError where it is not that of a language model at all."""
    text = _text(raw)
    model_type = _word(text.get("model_type")) or TEXT_TYPES.get(_word(raw.get("model_type")), "")
    model_type = model_type or _word(raw.get("model_type"))
    values = Values({**DEFAULTS.get(model_type, {}), **{k: v for k, v in text.items() if v is not None}})
    if not model_type and not any(values.has(key) for key in _LAYERS):
        raise ModelFileError(path, "not a model's config.json: it names neither a model type nor layers")
    exactness: Exactness
    n_layer = None
    try:
        n_layer = values.count(*_LAYERS, most=MAX_LAYERS)
        layers, exactness, notes = layers_of(model_type, values, n_layer)
    except Undetermined as reason:
        layers, exactness, notes = (), "unknown", (str(reason),)
    dtype, told = _dtype(raw, text)
    quantization, kv_fp8 = _quantization(raw, text)
    if kv_fp8:
        notes += ("the checkpoint asks for an fp8 cache: `auto` is fp8 for it",)
    return HfConfig(
        path=path,
        model_type=model_type,
        architecture=_architecture(raw, model_type),
        n_layer=n_layer,
        n_ctx_train=_trained(values),
        dtype=dtype,
        dtype_bytes=2,
        quantization=quantization,
        kv_fp8=kv_fp8,
        layers=layers,
        exactness=exactness,
        notes=notes + told,
    )


def _trained(values: Values) -> int | None:
    try:
        return (
            values.count("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", most=1 << 30)
            or None
        )
    except Undetermined:
        return None


def _text(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part that describes the language model."""
    for name in _NESTED:
        inner = raw.get(name)
        if isinstance(inner, Mapping):
            return _text(inner) if name == "thinker_config" else inner
    return raw


def _word(value: Any) -> str:
    return clean(value, 64) if isinstance(value, str) else ""


def _architecture(raw: Mapping[str, Any], model_type: str) -> str:
    named = raw.get("architectures")
    first = named[0] if isinstance(named, list) and named else None
    return _word(first) or model_type


def _dtype(raw: Mapping[str, Any], text: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The type that the model is served in, and a note where the file leaves it open."""
    for source in (raw, text):
        for key in ("dtype", "torch_dtype"):
            name = _word(source.get(key)).removeprefix("torch.")
            if name in _BYTES:
                return (name if _BYTES[name] == 2 else "bfloat16"), ()
    return "bfloat16", ("no dtype in the file: 16 bits are taken for `auto`",)


def _quantization(raw: Mapping[str, Any], text: Mapping[str, Any]) -> tuple[str | None, bool]:
    """How the weights are quantized, and whether the checkpoint asks for an fp8 cache."""
    found = next(
        (
            q
            for s in (raw, text)
            for k in ("quantization_config", "compression_config")
            if isinstance(q := s.get(k), Mapping)
        ),
        None,
    )
    if found is None:
        return None, False
    inner = found.get("quantization")
    algo = _word(
        found.get("kv_cache_quant_algo")
        or (inner.get("kv_cache_quant_algo") if isinstance(inner, Mapping) else "")
    )
    scheme = found.get("kv_cache_scheme")
    fp8 = algo.upper() == "FP8" or (
        isinstance(scheme, Mapping) and scheme.get("type") == "float" and scheme.get("num_bits") == 8
    )
    return _word(found.get("quant_method")) or "unnamed", fp8
