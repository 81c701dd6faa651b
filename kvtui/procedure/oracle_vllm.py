"""What a configuration will cost with vLLM, told from the model's `config.json` and the pools measured so far.

vLLM takes its share of the card whatever the context is: the forecast of a run is that share. What one request of the
context needs more than the pool in it holds is what is short: vLLM does not start then.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass, replace
from itertools import combinations

from kvtui.core.config import RunConfig
from kvtui.core.errors import InputError
from kvtui.core.text import clean
from kvtui.core.units import GIB
from kvtui.engines.base import DryRun
from kvtui.model.context import ContextPlan
from kvtui.model.hf.layers import AttentionLayer
from kvtui.model.hf.vllm import KvDtype, Pages, ServeRequest, lay_out, value_bytes
from kvtui.session.records import Forecast, ModelInfo
from kvtui.session.state import RunRecord, SessionState
from kvtui.sources.files import listing, read_bytes
from kvtui.sources.open import open_model
from kvtui.sources.source import HfModel

_CONFIG = "config.json"
_MAX_CONFIG = 16 << 20
_TEMPLATES = ("chat_template.jinja", "chat_template.json")


@dataclass(frozen=True, slots=True)
class VllmOracle:
    """One model as Hugging Face lays it out; implements `ModelOracle`. `weights` is in bytes."""

    model: HfModel
    sha256: str
    weights: int
    has_chat_template: bool

    @classmethod
    def read(cls, reference: str) -> VllmOracle:
        """The model that `reference` means (an id in the Hugging Face cache, a folder). Raises InputError."""
        found = open_model(reference)
        if not isinstance(found, HfModel):
            raise InputError(
                f"{clean(reference, 200)}: not a Hugging Face model", hint="vLLM takes its id, or its folder"
            )
        if found.weights is None or os.path.basename(found.path) == _CONFIG:
            raise InputError(
                f"{clean(reference, 200)}: its weights are not on this machine",
                hint=f"hf download {clean(reference, 200)}",
            )
        config = read_bytes(os.path.join(found.path, _CONFIG), _MAX_CONFIG)
        return cls(
            found, hashlib.sha256(config).hexdigest(), found.weights.n_bytes, _has_template(found.path)
        )

    @property
    def path(self) -> str:
        """The folder of its files."""
        return self.model.path

    @property
    def notes(self) -> tuple[str, ...]:
        """What the operator should know of it, in sentences."""
        return (*self.model.notes, *self.model.config.notes)

    @property
    def n_ctx_train(self) -> int | None:
        """See ModelOracle."""
        return self.model.config.n_ctx_train

    @property
    def n_layer(self) -> int | None:
        """See ModelOracle."""
        return self.model.config.n_layer

    @property
    def has_experts(self) -> bool:
        """vLLM keeps all experts on the GPU."""
        return False

    def context(self, config: RunConfig) -> ContextPlan:
        """What one request of the whole context takes from the pool."""
        n_ctx, trained = config.n_ctx, self.n_ctx_train
        pages = self._pages(config)
        refused = None
        if trained is not None and n_ctx > trained:
            refused = f"vLLM takes no context above the trained one ({trained:,} tokens)"
        usable = pages is not None and refused is None
        return ContextPlan(
            n_ctx=n_ctx,
            n_ctx_seq=n_ctx,
            n_batch=config.n_batch,
            n_ubatch=config.n_batch,
            usable_per_slot=n_ctx,
            caches=(),
            recurrent=None,
            state_bytes=0,
            kv_bytes=pages.request_bytes(n_ctx) if usable and pages is not None else None,
            conventional_kv_bytes=self._conventional(config),
            exactness=self.model.config.exactness,
            refused=refused,
            notes=() if pages is None else pages.notes,
        )

    def weights_bytes(self, config: RunConfig, *, on_gpu: bool) -> int:
        """All of them, wherever the engine runs."""
        return self.weights

    def forecast(self, state: SessionState, config: RunConfig, told: DryRun | None = None) -> Forecast:
        """The share of the card, and what a request needs beyond the pool. Unknown before a run measured a pool."""
        share, pool = config.gpu_memory_utilization, pool_bytes(state, config)
        need = self.context(config).kv_bytes
        measured = share is not None and pool is not None
        return Forecast(
            kv_bytes=pool,
            conventional_kv_bytes=None,
            weights_bytes=self.weights,
            total_bytes=math.ceil(state.started.device.total_bytes * share) if share and measured else None,
            exactness=self.model.config.exactness if need is None else "approximate",
            short_bytes=max(0, need - pool) if pool is not None and need is not None else None,
        )

    def info(self, path: str, shown: str) -> ModelInfo:
        """See ModelOracle."""
        config = self.model.config
        return ModelInfo(
            path=path,
            file_name=clean(shown),
            name=clean(shown),
            arch=config.model_type,
            quant=config.quantization or config.dtype,
            file_bytes=self.weights,
            weights_bytes=self.weights,
            header_sha256=self.sha256,
            n_ctx_train=config.n_ctx_train,
            n_layer=config.n_layer,
            exactness=config.exactness,
            has_chat_template=self.has_chat_template,
        )

    def _pages(self, config: RunConfig) -> Pages | None:
        return lay_out(self.model.config, _dtype(config), ServeRequest(in_flight=2 * max(config.n_batch, 1)))

    def _conventional(self, config: RunConfig) -> int:
        """Every attention layer keeping the whole context."""
        layers = [x for x in self.model.config.layers if isinstance(x, AttentionLayer)]
        per_token = sum(x.kv_heads * (x.head_k + x.head_v) for x in layers)
        return per_token * value_bytes(self.model.config, _dtype(config)) * config.n_ctx


def pool_bytes(state: SessionState, config: RunConfig) -> int | None:
    """The pool to expect, from the latest run with the same sequences and graphs; None before one.

    Another share of the card gives that much more or less, another batch by what a token of it was measured to take;
    the type of the cache changes nothing.
    """
    for run in reversed(state.runs):
        pool = _told(state, run, config)
        if pool is not None and _same_runtime(run.config, config):
            return pool
    slope = _per_batched_token(state, config)
    for run in reversed(state.runs if slope is not None else ()):
        pool = _told(state, run, config)
        if pool is not None and slope is not None and _same_runtime(_with_batch(run.config, config), config):
            return max(0, round(pool + slope * (config.n_batch - run.config.n_batch)))
    return None


def _told(state: SessionState, run: RunRecord, config: RunConfig) -> int | None:
    """The pool that the log of `run` tells, with the share of `config`."""
    told, before = (run.facts.actual or {}).get("kv_gib"), run.config.gpu_memory_utilization
    if not isinstance(told, int | float) or before is None or config.gpu_memory_utilization is None:
        return None
    moved = (config.gpu_memory_utilization - before) * state.started.device.total_bytes
    return max(0, round(told * GIB + moved))


def _per_batched_token(state: SessionState, config: RunConfig) -> float | None:
    """Bytes of pool for one more token of batch, from two runs that differ in it and in nothing beside the pool."""
    known = [(r.config, pool) for r in state.runs if (pool := _told(state, r, config)) is not None]
    for (a, pool_a), (b, pool_b) in combinations(reversed(known), 2):
        if a.n_batch != b.n_batch and _same_runtime(_with_batch(a, b), b):
            return min(0.0, (pool_a - pool_b) / (a.n_batch - b.n_batch))
    return None


def _with_batch(config: RunConfig, other: RunConfig) -> RunConfig:
    return replace(config, n_batch=other.n_batch, n_ubatch=other.n_ubatch)


def _same_runtime(a: RunConfig, b: RunConfig) -> bool:
    same = replace(b, n_ctx=a.n_ctx, type_k=a.type_k, type_v=a.type_v)
    return replace(same, gpu_memory_utilization=a.gpu_memory_utilization, extra=a.extra) == a


def _dtype(config: RunConfig) -> KvDtype:
    return "fp8" if config.type_k.startswith("fp8") else "auto"


def _has_template(folder: str) -> bool:
    names = listing(folder)
    if any(name in names for name in _TEMPLATES):
        return True
    path = os.path.join(folder, "tokenizer_config.json")
    return os.path.basename(path) in names and b'"chat_template"' in read_bytes(path, _MAX_CONFIG)
