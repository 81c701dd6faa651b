"""What a configuration will cost, told from the model file before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from kvtui.core.config import RunConfig
from kvtui.core.text import clean
from kvtui.core.units import MIB
from kvtui.engines.base import DryRun
from kvtui.model.context import ContextPlan, plan
from kvtui.model.geometry import Geometry, geometry
from kvtui.model.header import Header, read_header
from kvtui.model.request import ContextRequest
from kvtui.model.weights import WeightPlacement, place
from kvtui.procedure.forecast import runtime_overhead
from kvtui.session.records import Forecast, ModelInfo
from kvtui.session.state import SessionState


class ModelOracle(Protocol):
    """One model, ready to be asked; what is asked is the same whatever form its files have."""

    @property
    def n_ctx_train(self) -> int | None:
        """Tokens of context that it was trained on."""
        ...

    @property
    def n_layer(self) -> int | None:
        """Its layers."""
        ...

    @property
    def has_experts(self) -> bool:
        """Whether it has experts that could stay on the CPU."""
        ...

    def context(self, config: RunConfig) -> ContextPlan:
        """Context, caches and refusals of `config`."""
        ...

    def weights_bytes(self, config: RunConfig, *, on_gpu: bool) -> int:
        """Bytes of weights on the GPU for `config`, or all of them where host memory stands in."""
        ...

    def forecast(self, state: SessionState, config: RunConfig, told: DryRun | None = None) -> Forecast:
        """The memory of a run with `config`; `told` is the engine's own forecast."""
        ...

    def info(self, path: str, shown: str) -> ModelInfo:
        """What its files state; `path` is what an engine is given, `shown` what the operator calls it."""
        ...


@dataclass(frozen=True, slots=True)
class Oracle:
    """One GGUF file; implements `ModelOracle`."""

    header: Header
    geometry: Geometry
    _placed: dict[tuple[int | None, int | None], WeightPlacement] = field(
        default_factory=dict, compare=False, repr=False
    )
    _planned: dict[ContextRequest, ContextPlan] = field(default_factory=dict, compare=False, repr=False)
    """Placements and contexts that were asked for before: a target is searched among hundreds, most of them again."""

    @classmethod
    def read(cls, path: str) -> Oracle:
        """Read the header of the GGUF file at `path`. Raises ModelFileError."""
        header = read_header(path)
        return cls(header, geometry(header))

    @property
    def n_ctx_train(self) -> int | None:
        """See ModelOracle."""
        return self.header.n_ctx_train

    @property
    def n_layer(self) -> int | None:
        """See ModelOracle."""
        return self.header.n_layer

    @property
    def has_experts(self) -> bool:
        """See ModelOracle."""
        return self._place(None, None).expert_bytes > 0

    def info(self, path: str, shown: str) -> ModelInfo:
        """See ModelOracle."""
        header = self.header
        return ModelInfo(
            path=path,
            file_name=clean(shown),
            name=header.name or "",
            arch=header.arch,
            quant=header.quant or "",
            file_bytes=header.file_bytes,
            weights_bytes=header.tensor_bytes,
            header_sha256=header.header_sha256,
            n_ctx_train=header.n_ctx_train,
            n_layer=header.n_layer,
            exactness=self.geometry.exactness,
            has_chat_template=header.has_chat_template,
        )

    def context(self, config: RunConfig) -> ContextPlan:
        """Context, caches and refusals of `config`."""
        request = request_of(config)
        if request not in self._planned:
            self._planned[request] = plan(self.geometry, request)
        return self._planned[request]

    def weights_bytes(self, config: RunConfig, *, on_gpu: bool) -> int:
        """Bytes of weights on the GPU for `config`, or all of them where host memory stands in."""
        if not on_gpu:
            return self.header.tensor_bytes
        return self._place(config.n_gpu_layers, config.n_cpu_moe).gpu_bytes

    def _place(self, n_gpu_layers: int | None, n_cpu_moe: int | None) -> WeightPlacement:
        key = (n_gpu_layers, n_cpu_moe)
        if key not in self._placed:
            self._placed[key] = place(self.header, *key)
        return self._placed[key]

    def forecast(self, state: SessionState, config: RunConfig, told: DryRun | None = None) -> Forecast:
        """The memory of a run with `config`. The total needs one earlier run that measured what is neither
        weights nor KV (runtime, compute buffers), see kvtui.procedure.forecast; `told` is the engine's own forecast,
        which knows the compute buffers."""
        expected = self.context(config)
        host = state.started.device.kind == "host"
        weights = self.weights_bytes(config, on_gpu=not host)
        kv = expected.kv_bytes
        compute = None if told is None else told.total(host_counts=host).compute_mib * MIB
        overhead = runtime_overhead(state, config, compute)
        total = None if kv is None or overhead is None else weights + self._kv_share(config, kv) + overhead
        return Forecast(
            kv_bytes=kv,
            conventional_kv_bytes=expected.conventional_kv_bytes,
            weights_bytes=weights,
            total_bytes=total,
            exactness=self.geometry.exactness,
            dry_run=() if told is None else told.devices,
        )

    def _kv_share(self, config: RunConfig, kv_bytes: int) -> int:
        """The part of the KV that is where the layers on the GPU are; all of it without layers elsewhere."""
        layers, wanted = self.header.n_layer or 0, config.n_gpu_layers
        if not layers or wanted is None or not 0 < wanted <= layers:
            return kv_bytes
        return kv_bytes * (wanted - 1) // layers


def request_of(config: RunConfig) -> ContextRequest:
    """What `config` asks of the context, in the terms of the model file's arithmetic."""
    return ContextRequest(
        ctx=config.n_ctx,
        n_seq_max=config.n_parallel,
        n_ubatch=config.n_ubatch,
        n_batch=config.n_batch,
        kv_unified=config.kv_unified,
        swa_full=config.swa_full,
        type_k=config.type_k,
        type_v=config.type_v,
        flash_attn=config.flash_attn,
    )
