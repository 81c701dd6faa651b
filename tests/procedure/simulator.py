"""A simulated card for the planner: a budget of bytes, the geometry of a model, and ways to fail.

No engine is imitated here. The planner is a pure function of recorded events, and this plays the events that a
real run would have recorded, so that cards of any size can be tried in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from kvtui.core.config import RunConfig
from kvtui.core.errors import EngineGone, KvtuiError, StartError
from kvtui.core.units import GIB, MIB
from kvtui.engines.base import Abilities, Command, Traits
from kvtui.gpu.samples import DeviceInfo, MemoryRecord, PhasePeak
from kvtui.logs.facts import BufferFacts, CacheFacts, ContextFacts, EngineFacts, FailureFacts, SlotFacts
from kvtui.model.geometry import geometry
from kvtui.model.header import Header, TensorInfo
from kvtui.probes.results import (
    TASK_FAMILIES,
    ConcurrencyResult,
    NeedleResult,
    RecallResult,
    SpeedResult,
    StabilityRequest,
    StabilityResult,
    TaskResult,
    Timing,
)
from kvtui.procedure.choice import chosen
from kvtui.procedure.judge import judge
from kvtui.procedure.next_action import next_action
from kvtui.procedure.oracle import Oracle
from kvtui.procedure.preset import Preset, load_preset
from kvtui.procedure.situation import Close, Finish, Launch, Offer, Situation, Skip
from kvtui.session import events as ev
from kvtui.session.codec import decode, encode, to_builtins
from kvtui.session.records import EngineInfo, HostInfo, ModelInfo, Recommendation
from kvtui.session.state import RunRecord, SessionState, apply

AT = "2026-01-01T00:00:00.000+00:00"


@dataclass(frozen=True)
class Card:
    """The card, the model on it and what goes wrong. Sizes in GiB unless named otherwise."""

    total: float = 16.0
    weights: float = 9.0
    runtime: float = 0.9
    desktop: float = 0.4
    compute_per_ubatch_mib: float = 1.0
    """Compute buffer in MiB for each token of micro-batch, at load."""
    prefill_growth_mib_per_ubatch: float = 0.0
    """More of it that appears only while a prompt is processed, at 32K of context; it grows with the context."""
    flash_attention: bool = True
    loses_at: frozenset[str] = frozenset()
    """Types of keys at which a task is lost."""
    fails_at_baseline: bool = False
    decode_tps: Callable[[int], float] = field(default=lambda depth: 50.0 / (1 + depth / 65536))
    recall_limit: int = 1 << 30
    recall_lost_at: frozenset[str] = frozenset()
    """Types of keys at which nothing is recalled."""
    offloaded: tuple[int, int] = (33, 33)
    hide_kv_lines: bool = False
    fails_above_slots: int = 1 << 10
    n_ctx_train: int = 131072
    gpu: bool = True
    leak_mib: float = 0.0
    """What the engine grows by with every request that is repeated."""
    f16_fallback: bool = False
    """The engine silently allocates f16 whatever was asked."""
    n_layer: int = 32
    n_head_kv: int = 8
    head: int = 128


def header_of(card: Card) -> Header:
    """A llama of conventional geometry whose weights are one tensor per layer."""
    arch = "llama"
    metadata: dict[str, Any] = {
        "general.architecture": arch,
        "general.file_type": 15,
        f"{arch}.block_count": card.n_layer,
        f"{arch}.context_length": card.n_ctx_train,
        f"{arch}.embedding_length": 32 * card.head,
        f"{arch}.attention.head_count": 32,
        f"{arch}.attention.head_count_kv": card.n_head_kv,
        f"{arch}.attention.key_length": card.head,
        f"{arch}.attention.value_length": card.head,
    }
    per_layer = round(card.weights * GIB) // card.n_layer
    tensors = tuple(
        TensorInfo(f"blk.{i}.attn_q.weight", (4096, 4096), "q4_K", per_layer, i * per_layer)
        for i in range(card.n_layer)
    )
    return Header(
        path="/models/model.gguf", version=3, arch=arch, name="Simulated", metadata=metadata, tensors=tensors,
        header_bytes=1000, header_sha256="0" * 64, n_parts=1, file_bytes=per_layer * card.n_layer + 1000,
        tensor_bytes=per_layer * card.n_layer,
    )  # fmt: skip


class NoEngine:
    """What the planner needs of an engine: how a command line is written."""

    label = "llama-server b11434"
    traits = Traits("llama-server", (("f16", "f16"), ("q8_0", "q8_0"), ("q8_0", "q4_0"), ("q4_0", "q4_0")))

    def abilities(self) -> Abilities:
        return Abilities(frozenset())

    def command(self, config: RunConfig, port: int) -> Command:
        return Command(("llama-server", "-m", config.model, "-c", str(config.n_ctx), "-ctk", config.type_k,
                        "-ctv", config.type_v, "-ub", str(config.n_ubatch), "-np", str(config.n_parallel),
                        "-fa", config.flash_attn, "--port", str(port)))  # fmt: skip


@dataclass
class Play:
    """One session played on a card. `launches` are the runs in order, `advice` all recommendations."""

    card: Card
    plan: Preset = field(default_factory=lambda: load_preset("coding-agent"))
    choose: Callable[[Recommendation, SessionState], ev.Decided] | None = None
    launches: list[Launch] = field(default_factory=list)
    advice: list[Recommendation] = field(default_factory=list)

    def run(self) -> SessionState:
        oracle = Oracle(header_of(self.card), geometry(header_of(self.card)))
        state = SessionState(self._start(oracle))
        for _ in range(400):
            if state.verdict is not None:
                return state
            state = self._step(state, oracle)
        raise AssertionError("the procedure does not come to an end")

    def _start(self, oracle: Oracle) -> ev.SessionStarted:
        card, header = self.card, oracle.header
        device = DeviceInfo("nvml" if card.gpu else "host", 0, "Simulated card", round(card.total * GIB))
        base = RunConfig(header.path, self.plan.floor_context, n_batch=self.plan.n_batch, n_ubatch=self.plan.n_ubatch,
                         n_gpu_layers=999 if card.gpu else 0)  # fmt: skip
        return ev.SessionStarted(
            at=AT, session="simulated", kvtui="0", plan=to_builtins(self.plan), base=base,
            model=ModelInfo(header.path, "model.gguf", header.name, header.arch, header.quant or "", header.file_bytes,
                            header.tensor_bytes, header.header_sha256, header.n_ctx_train, header.n_layer,
                            oracle.geometry.exactness, True),
            engine=EngineInfo("llama-server b11434", ("llama-server",), "b11434", "11434", None),
            host=HostInfo("Linux", "cpu", 8, 32 * GIB, "3.11"), device=device,
        )  # fmt: skip

    def _step(self, state: SessionState, oracle: Oracle) -> SessionState:
        sit = Situation.of(state, oracle, NoEngine())  # type: ignore[arg-type]
        action = next_action(sit)
        step = state.current_step
        if step is not None and not step.started and not isinstance(action, Finish):
            state = self._tell(state, ev.StepStarted(AT, step.number))
        match action:
            case Finish(verdict):
                return self._tell(state, ev.SessionFinished(AT, verdict))
            case Close(number, outcome, summary, advice):
                if advice is not None:
                    self.advice.append(advice)
                return self._tell(state, ev.StepFinished(AT, number, outcome, summary))
            case Skip(context, reason, offer):
                before = len(self.launches)
                if offer is not None:
                    state = self._launch(state, sit, offer)
                if len(self.launches) > before:
                    return state
                return self._tell(state, ev.StageSkipped(AT, context, reason))
            case Offer(launch):
                return self._launch(state, sit, launch)
            case Launch():
                return self._launch(state, sit, action)

    def _tell(self, state: SessionState, event: ev.Event) -> SessionState:
        again = decode(encode(event))
        assert again == event, "every event must survive its own encoding"
        return apply(event, state)

    def _launch(self, state: SessionState, sit: Situation, launch: Launch) -> SessionState:
        state = self._tell(state, ev.Recommended(AT, launch.step, None, launch.advice))
        decision = ev.Decided(AT, launch.step, "accept", "unattended")
        if self.choose is not None:
            decision = self.choose(launch.advice, state)
        decision = replace(decision, subject=launch.subject)
        run = chosen(sit, launch, decision)
        state = self._tell(state, decision)
        if run is None:
            return state
        if state.steps[run.step - 1].outcome is not None:
            state = self._tell(state, ev.StepStarted(AT, run.step))
        self.launches.append(run)
        return self._play(state, sit, run)

    def _play(self, state: SessionState, sit: Situation, launch: Launch) -> SessionState:
        number = len(state.runs) + 1
        state = self._tell(state, ev.RunStarted(
            AT, number, launch.step, launch.purpose, launch.config, ("llama-server",), change=launch.change,
            forecast=sit.oracle.forecast(state, launch.config), subject=launch.subject))  # fmt: skip
        outcome = Outcome(self.card, sit.oracle, launch)
        for event in outcome.results(number):
            state = self._tell(state, event)
        run = state.run(number)
        assert run is not None
        run = replace(run, facts=outcome.facts, memory=outcome.memory)
        verdict = judge(state, run, outcome.error)
        return self._tell(state, ev.RunFinished(
            AT, number, verdict.outcome, verdict.reason, outcome.facts, verdict.failure, memory=outcome.memory,
            findings=verdict.findings))  # fmt: skip


class Outcome:
    """What one launch gives on a card."""

    def __init__(self, card: Card, oracle: Oracle, launch: Launch) -> None:
        self.card, self.launch = card, launch
        config = launch.config
        if card.f16_fallback:
            config = replace(config, type_k="f16", type_v="f16")
        self.context = oracle.context(config)
        self.weights = oracle.header.tensor_bytes
        self.kv = self.context.kv_bytes or 0
        self.compute = round(card.compute_per_ubatch_mib * self.context.n_ubatch * MIB)
        depth = self.context.n_ctx / 32768
        self.growth = round(card.prefill_growth_mib_per_ubatch * self.context.n_ubatch * depth * MIB)
        self.actual = config
        room = round((card.total - card.desktop) * GIB) - round(card.runtime * GIB)
        self.error: KvtuiError | None = None
        self.failure: FailureFacts | None = None
        if card.gpu:
            self._fill(room)
        if (
            self.error is None
            and config.type_v != "f16"
            and not card.flash_attention
            and config.flash_attn == "off"
        ):
            self._fail("context", "refused", StartError("crashed", "refused"))
        self.facts = self._facts()
        self.memory = self._memory()

    def _fill(self, room: int) -> None:
        loads = (
            ("weights", self.weights),
            ("kv", self.kv),
            ("compute", self.compute),
            ("prefill", self.growth),
        )
        for phase, n_bytes in loads:
            room -= n_bytes
            if room < 0:
                error: KvtuiError = (
                    EngineGone("gone") if phase == "prefill" else StartError("crashed", "exit 1")
                )
                self._fail(phase, "oom", error)
                return

    def _fail(self, phase: str, kind: str, error: KvtuiError) -> None:
        self.error = error
        self.failure = FailureFacts(phase, kind, f"{kind} in {phase}", 100)  # type: ignore[arg-type]

    def _facts(self) -> EngineFacts:
        card, config = self.card, self.launch.config
        reached_kv = self.failure is None or self.failure.phase in ("compute", "prefill")
        device = "CUDA0" if card.gpu else "CPU"
        shown = reached_kv and not card.hide_kv_lines
        caches = tuple(
            CacheFacts(c.kind, c.cells, c.layers, c.streams, c.type_k, c.type_v, round(c.k_bytes / MIB, 2),
                       round(c.v_bytes / MIB, 2), round(c.bytes / MIB, 2), line=50)
            for c in self.context.caches
        ) if shown else ()  # fmt: skip
        enabled = card.flash_attention and config.flash_attn != "off"
        context = ContextFacts(
            n_ctx=self.context.n_ctx, n_ctx_seq=self.context.n_ctx_seq, n_seq_max=config.n_parallel,
            n_batch=self.context.n_batch, n_ubatch=self.context.n_ubatch, kv_unified=config.kv_unified,
            flash_attn="enabled" if enabled else "disabled", caches=caches,
            kv_buffers=tuple(BufferFacts(device, c.size_mib or 0, 49) for c in caches),
            compute_buffers=(BufferFacts(device, self.compute / MIB, 60),) if reached_kv else (),
        )  # fmt: skip
        slots = SlotFacts(config.n_parallel, self.context.usable_per_slot, config.kv_unified, 70)
        return EngineFacts(
            engine="llama.cpp", build="11434", outcome="ready" if self.error is None else "failed",
            contexts=(context,) if reached_kv else (),
            slots=slots if reached_kv else None,
            model_buffers=(BufferFacts(device, self.weights / MIB, 40),),
            offloaded=card.offloaded if card.gpu else None,
            failures=(self.failure,) if self.failure else (),
        )  # fmt: skip

    def _memory(self) -> MemoryRecord:
        card = self.card
        total, others = round(card.total * GIB), round(card.desktop * GIB)
        loaded = self.weights + self.kv + self.compute + round(card.runtime * GIB)
        highest = loaded + self.growth
        peaks = (
            PhasePeak("warm-up", loaded, loaded + others, 0, 1.0, 10, 1.0),
            PhasePeak("prefill", highest, highest + others, 0, 2.0, 10, 1.0),
        )
        device = DeviceInfo("nvml" if card.gpu else "host", 0, "Simulated card", total)
        return MemoryRecord(device, others, peaks, (), 0.1)

    def results(self, number: int) -> list[ev.Event]:
        if self.error is not None:
            return []
        plan, events = self.launch.probes, []
        if plan.speed is not None:
            events.append(ev.SpeedMeasured(AT, number, self._speed(plan.speed)))
        if plan.tasks:
            events.append(
                ev.TasksMeasured(
                    AT, number, tuple(self._task(f, d) for d in plan.tasks for f in TASK_FAMILIES)
                )
            )
        if plan.deep is not None:
            events.append(ev.SpeedMeasured(AT, number, self._speed(plan.deep)))
            events.append(ev.RecallMeasured(AT, number, self._recall(plan.deep)))
        if plan.stability:
            events.append(ev.StabilityMeasured(AT, number, self._stability(plan.stability)))
        if plan.concurrency:
            failed = max(0, plan.concurrency - self.card.fails_above_slots)
            events.append(
                ev.ConcurrencyMeasured(
                    AT, number, ConcurrencyResult(plan.concurrency, 100, failed, (), (), 1.0)
                )
            )
        return events

    def _speed(self, depth: int) -> SpeedResult:
        tps = self.card.decode_tps(depth)
        timing = Timing(depth, 0, 32, 1000.0, tps, 1.0, 2.0, 1.0, 1.0)
        return SpeedResult(depth, 1000.0, tps, 1.0, (timing,))

    def _recall(self, depth: int) -> RecallResult:
        good = depth <= self.card.recall_limit and self.actual.type_k not in self.card.recall_lost_at
        needles = tuple(
            NeedleResult(p, 0, "k", "v", "v" if good else "", good) for p in (0.02, 0.25, 0.5, 0.75, 0.98)
        )
        return RecallResult(depth, needles, 1.0)

    def _stability(self, requests: int) -> StabilityResult:
        level = self.weights + self.kv + self.compute
        grown = [level + round(self.card.leak_mib * MIB) * (n + 1) for n in range(requests)]
        return StabilityResult(
            1000, 32, requests, level, tuple(StabilityRequest(None, b) for b in grown), 1.0
        )

    def _task(self, family: Any, depth: int) -> TaskResult:
        lost = self.actual.type_k in self.card.loses_at and family == "tool-selection"
        passed = not lost and not (self.card.fails_at_baseline and family == "code-edit")
        tokens = (1, 2, 3) if self.actual.type_k == "f16" else (1, 2, 4)
        return TaskResult(family, family, depth, passed, "", "text", tokens, None)


def play(card: Card, **plan: Any) -> tuple[SessionState, list[Launch]]:
    """The whole procedure on `card`, every recommendation accepted, the preset changed by `plan`."""
    game = Play(card, replace(load_preset(plan.pop("preset", "coding-agent")), **plan))
    return game.run(), game.launches


def runs_of_step(state: SessionState, step: int) -> list[RunRecord]:
    """The runs of one step."""
    return [r for r in state.runs if r.step == step]
