"""Where the weights go: bytes per layer, on the GPU and on the host, for `-ngl` and `--n-cpu-moe`.

Rules (llama.cpp b11434, `load_tensors`): input tensors always stay on the host; `-ngl N` puts the last N of
`layers + 1` on the GPU, the output counting as the last; a model without an output tensor uses the token
embedding again and loads a second copy of it beside the output; next-token-prediction layers are not loaded
for the main context.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvtui.model.header import Header, TensorInfo
from kvtui.model.layout import MAX_LAYERS

_BLOCK = re.compile(r"^(?:blk|enc\.blk|dec\.blk)\.(\d+)\.")
_EXPERT = re.compile(r"\.ffn_(?:up|down|gate_up|gate)_(?:ch)?exps")
_INPUT = ("token_embd.", "token_types.", "position_embd.", "per_layer_token_embd.")


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer's weights in bytes; `expert_bytes` of them are those that `--n-cpu-moe` moves."""

    layer: int
    n_bytes: int
    expert_bytes: int
    on_gpu: bool


@dataclass(frozen=True, slots=True)
class WeightPlacement:
    """Bytes of weights by place. `input_bytes` (token embedding and the like) are part of `host_bytes`.

    `output_bytes` include the second copy of a tied token embedding. `nextn_bytes` are in the file but not
    loaded. `offloaded` is (layers on the GPU, layers in all) as the engine counts them, output included.
    """

    gpu_bytes: int
    host_bytes: int
    input_bytes: int
    output_bytes: int
    output_on_gpu: bool
    expert_bytes: int
    nextn_bytes: int
    layers: tuple[LayerWeights, ...]
    offloaded: tuple[int, int]


def place(header: Header, n_gpu_layers: int | None, n_cpu_moe: int | None = None) -> WeightPlacement:
    """Where the weights go with `-ngl n_gpu_layers` (None: all) and `--n-cpu-moe n_cpu_moe` (None: none)."""
    n_layers = max(0, min(header.n_layer or 0, MAX_LAYERS))
    n_nextn = max(0, min(header.integer("nextn_predict_layers") or 0, n_layers))
    wanted = n_layers + 1 if n_gpu_layers is None else max(0, min(n_gpu_layers, n_layers + 1))
    first_gpu = n_layers + 1 - wanted
    output_on_gpu = wanted > 0
    sizes, experts, inputs, outputs = _sums(header)
    # A file of nothing but next-token-prediction layers is loaded for their sake.
    loaded = n_layers if n_nextn == n_layers else n_layers - n_nextn
    nextn = sum(sizes.get(i, 0) for i in range(loaded, n_layers))
    layers = tuple(
        LayerWeights(i, sizes.get(i, 0), experts.get(i, 0), on_gpu=i >= first_gpu) for i in range(loaded)
    )
    gpu = outputs if output_on_gpu else 0
    host = inputs + (0 if output_on_gpu else outputs)
    for layer in layers:
        moved = layer.expert_bytes if layer.layer < (n_cpu_moe or 0) else 0
        gpu += layer.n_bytes - moved if layer.on_gpu else 0
        host += moved if layer.on_gpu else layer.n_bytes
    return WeightPlacement(
        gpu_bytes=gpu,
        host_bytes=host,
        input_bytes=inputs,
        output_bytes=outputs,
        output_on_gpu=output_on_gpu,
        expert_bytes=sum(layer.expert_bytes for layer in layers),
        nextn_bytes=nextn,
        layers=layers,
        offloaded=(wanted, n_layers + 1),
    )


def _sums(header: Header) -> tuple[dict[int, int], dict[int, int], int, int]:
    """Bytes per layer, of experts per layer, of input tensors and of output tensors."""
    sizes: dict[int, int] = {}
    experts: dict[int, int] = {}
    inputs = outputs = 0
    tied: TensorInfo | None = None
    for tensor in header.tensors:
        block = _BLOCK.match(tensor.name)
        if block:
            layer = int(block[1])
            sizes[layer] = sizes.get(layer, 0) + tensor.n_bytes
            if _EXPERT.search(tensor.name):
                experts[layer] = experts.get(layer, 0) + tensor.n_bytes
        elif tensor.name.startswith(_INPUT):
            inputs += tensor.n_bytes
            tied = tensor if tensor.name == "token_embd.weight" else tied
        else:
            outputs += tensor.n_bytes
    if tied is not None and all(t.name != "output.weight" for t in header.tensors):
        outputs += tied.n_bytes
    return sizes, experts, inputs, outputs
