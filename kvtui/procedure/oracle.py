"""What a configuration will cost, told from the model file before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from kvtui.core.config import RunConfig
from kvtui.core.units import MIB
from kvtui.engines.base import DryRun
from kvtui.model.context import ContextPlan, plan
from kvtui.model.geometry import Geometry, geometry
from kvtui.model.header import Header, read_header
from kvtui.model.request import ContextRequest
from kvtui.model.weights import place
from kvtui.procedure.forecast import runtime_overhead
from kvtui.session.records import Forecast
from kvtui.session.state import SessionState


@dataclass(frozen=True, slots=True)
class Oracle:
    """One model file, ready to be asked."""

    header: Header
    geometry: Geometry

    @classmethod
    def read(cls, path: str) -> Oracle:
        """Read the header of the GGUF file at `path`. Raises ModelFileError."""
        header = read_header(path)
        return cls(header, geometry(header))

    def context(self, config: RunConfig) -> ContextPlan:
        """Context, caches and refusals of `config`."""
        return plan(self.geometry, request_of(config))

    def weights_bytes(self, config: RunConfig, *, on_gpu: bool) -> int:
        """Bytes of weights on the GPU for `config`, or all of them where host memory stands in."""
        if not on_gpu:
            return self.header.tensor_bytes
        return place(self.header, config.n_gpu_layers, config.n_cpu_moe).gpu_bytes

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
