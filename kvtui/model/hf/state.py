"""State per sequence of layers without attention, as vLLM 0.33 shapes it (`MambaStateShapeCalculator`)."""

from __future__ import annotations

from kvtui.model.hf.layers import StateLayer
from kvtui.model.hf.values import Undetermined, Values

_DELTA = ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text")


def state_layer(model_type: str, values: Values) -> StateLayer:
    """What one such layer keeps. Raises Undetermined for a kind whose shape is not known."""
    if model_type in _DELTA:
        return _gated_delta(values)
    if model_type in ("lfm2", "lfm2_moe"):
        width = values.count("conv_dim") or values.needed("hidden_size")
        return StateLayer(width * (values.needed("conv_L_cache") - 1), 0)
    if model_type == "jamba":
        inner = values.needed("mamba_expand") * values.needed("hidden_size")
        return StateLayer(inner * (values.needed("mamba_d_conv") - 1), inner * values.needed("mamba_d_state"))
    if model_type == "nemotron_h":
        heads, head = values.needed("mamba_num_heads"), values.needed("mamba_head_dim")
        groups, state = values.needed("n_groups"), values.needed("ssm_state_size")
        f32 = values.text("mamba_ssm_cache_dtype") != "bfloat16"
        return _mamba2(heads * head, groups, heads, head, state, values.needed("conv_kernel"), f32=f32)
    if model_type in ("bamba", "granitemoehybrid", "falcon_h1"):
        inner = values.count("mamba_d_ssm") or values.needed("mamba_expand") * values.needed("hidden_size")
        return _mamba2(
            inner, values.needed("mamba_n_groups"), values.needed("mamba_n_heads"), values.needed("mamba_d_head"),
            values.needed("mamba_d_state"), values.needed("mamba_d_conv"),
        )  # fmt: skip
    raise Undetermined(f"the shape of the state of {model_type or 'this type'} is not known")


def _gated_delta(values: Values) -> StateLayer:
    k_heads, v_heads = values.needed("linear_num_key_heads"), values.needed("linear_num_value_heads")
    k, v = values.needed("linear_key_head_dim"), values.needed("linear_value_head_dim")
    convolution = (2 * k * k_heads + v * v_heads) * (values.needed("linear_conv_kernel_dim") - 1)
    return StateLayer(convolution, v_heads * v * k, values.text("mamba_ssm_dtype") == "float32")


def _mamba2(
    inner: int, groups: int, heads: int, head: int, state: int, kernel: int, *, f32: bool = False
) -> StateLayer:
    return StateLayer((inner + 2 * groups * state) * (kernel - 1), heads * head * state, f32)
