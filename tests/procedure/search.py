"""Two ways to find the best configuration without advice: all of them, and one variable after the other, blindly.

The truth is the card's own (tests.procedure.outcome), not the planner's judgement of it.

The blind operator knows the same variables and the same values as the advisor, and nothing else: no forecast, no log,
no order. From full precision, the planned micro-batch and the smallest planned context, each variable in turn is given
each of its values while the others stay; the best value is kept; passes are made until one changes nothing. Where that
ends short of the best, two variables are changed at once, then three, in the same order, until the best is met: the
blind operator is told when to stop. What was launched before is remembered and not launched again, and contexts above
one that does not hold are not tried in that pass. The proof of stability is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, product
from typing import Any

from kvtui.core.config import RunConfig
from kvtui.core.units import GIB
from kvtui.procedure.preset import Preset
from kvtui.procedure.rules.offload import SHARES
from kvtui.procedure.variables import bits_of
from tests.procedure.outcome import Card
from tests.procedure.reserving import oracle_of, outcome_of

Score = tuple[float, ...]
SLOW = 0.5
"""A configuration that decodes below this share of the fastest types is a worse answer than one that does not."""
UNUSABLE = 0.35


@dataclass
class Search:
    """One card and one aim. `score` is None for a configuration that does not hold."""

    card: Card
    plan: Preset
    launches: dict[RunConfig, Score | None] = field(default_factory=dict)

    @cached_property
    def oracle(self) -> Any:
        """The model on the card."""
        return oracle_of(self.card)

    @cached_property
    def values(self) -> dict[str, list[dict[str, Any]]]:
        """Every variable with the values that both may use."""
        plan, trained = self.plan, self.card.n_ctx_train
        contexts = sorted({c for c in (*plan.stages, plan.target_context) if c <= plan.target_context})
        ladder = self.card.traits.kv_ladder
        batches = [plan.n_ubatch >> n for n in range(8) if plan.n_ubatch >> n >= 64]
        slots = [n for n in (1, 2, 4, 8) if n <= plan.n_parallel]
        layers = (self.oracle.n_layer or 0) + 1
        pairs = [*ladder, *([("q8_0", "f16")] if not self.card.flash_attention else [])]
        names = self.card.traits.variables
        found = {
            "kv-types": [{"type_k": k, "type_v": v} for k, v in pairs],
            "context": [{"n_ctx": c} for c in contexts if c <= trained],
            "micro-batch": [{"n_ubatch": n} for n in batches],
            "slots": [{"n_parallel": n} for n in slots],
            "flash-attention": [{"flash_attn": "on"}, {"flash_attn": "off"}],
            "gpu-layers": [{"n_gpu_layers": n} for n in (999, *(round(layers * share) for share in SHARES))],
        }
        if "graphs" in names:
            found["batch"] = [{"n_batch": n, "n_ubatch": n} for n in (2048, 1024, 512, 256)]
            found["graphs"] = [{"enforce_eager": False}, {"enforce_eager": True}]
        known = {name: v for name, v in found.items() if not names or name in names}
        return {name: v for name, v in known.items() if len(v) > 1 or name == "context"}

    @cached_property
    def start(self) -> RunConfig:
        """Where the blind operator begins."""
        plan, (type_k, type_v) = self.plan, self.card.traits.kv_ladder[0]
        return RunConfig(
            "/models/model.gguf", min(c["n_ctx"] for c in self.values["context"]), type_k, type_v, "on",
            n_batch=plan.n_batch, n_ubatch=plan.n_ubatch, n_gpu_layers=999 if self.card.gpu else 0,
        )  # fmt: skip

    def score(self, config: RunConfig) -> Score | None:
        """How good `config` is by the card's own truth, in the order in which answers are preferred: context,
        more of it on the GPU, not slow, better types (8 bits and more count alike), simultaneous requests."""
        card, plan = self.card, self.plan
        whole = config.n_gpu_layers == self.start.n_gpu_layers
        if not whole and plan.offload != "run":
            return None
        out = outcome_of(card, self.oracle, config, again=True)
        if out.error is not None or out.actual.n_ctx < config.n_ctx or out.actual.kv_types != config.kv_types:
            return None
        depth = max(64, config.n_ctx // config.n_parallel - plan.decode_tokens - 48)
        share = out.share_of_speed
        floor = plan.min_decode_tps or 0.0
        holds = (
            (not card.gpu or out.free >= plan.margin_gib * GIB)
            and not out.spilled
            and out.decode(depth) >= floor
            and out.keeps(depth)
            and not out.loses_task()
            and config.n_parallel <= card.fails_above_slots
            and (share >= UNUSABLE or not whole)
            and not card.leak_mib
        )
        if not holds:
            return None
        bits = sum(min(bits_of(t), 8) for t in (config.type_k, config.type_v))
        on_gpu = config.n_gpu_layers or 0
        slow = card.slow_pairs.get(config.kv_types, 1.0) < SLOW
        return (config.n_ctx, on_gpu, not slow, bits, config.n_parallel)

    @cached_property
    def best(self) -> tuple[Score, RunConfig] | None:
        """The best of all configurations; the operator's fixed flash attention is `on`, or `off` where the device
        has none."""
        scored = [(s, c) for c in self._all() if (s := self.score(c)) is not None]
        return max(scored, key=lambda pair: pair[0], default=None)

    def _all(self) -> Iterator[RunConfig]:
        names = list(self.values)
        for combination in product(*(self.values[name] for name in names)):
            fields: dict[str, Any] = {}
            for values in combination:
                fields |= values
            yield replace(self.start, **fields)

    def blind(self) -> tuple[Score, RunConfig] | None:
        """One variable after the other until a pass changes nothing; then two at once, three, until the best of all is
        found. Every configuration launched is counted."""
        here = self.start
        best = self._launch(here)
        moved = True
        while moved:
            here, found = self._pass(here, best)
            moved, best = found != best, found
        top = self.best
        for count in range(2, len(self.values) + 1):
            if top is None or best == top[0]:
                break
            here, best = self._widened(here, best, count, top[0])
        return None if best is None else (best, here)

    def _pass(self, here: RunConfig, best: Score | None) -> tuple[RunConfig, Score | None]:
        """Every value of every variable, the best kept at once."""
        for name, values in self.values.items():
            for value in values:
                config = replace(here, **value)
                found = self._launch(config)
                if name == "context" and found is None and config.n_ctx > here.n_ctx:
                    break
                if found is not None and (best is None or found > best):
                    best, here = found, config
        return here, best

    def _widened(
        self, here: RunConfig, best: Score | None, count: int, top: Score
    ) -> tuple[RunConfig, Score | None]:
        """`count` variables changed at once from `here`, in the variables' order, until the best of all is found."""
        for names in combinations(self.values, count):
            for chosen in product(*(self.values[name] for name in names)):
                fields: dict[str, Any] = {}
                for value in chosen:
                    fields |= value
                config = replace(here, **fields)
                found = self._launch(config)
                if found == top:
                    return config, found
        return here, best

    def _launch(self, config: RunConfig) -> Score | None:
        if config not in self.launches:
            self.launches[config] = self.score(config)
        return self.launches[config]
