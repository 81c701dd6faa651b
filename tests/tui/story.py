"""A session as it could have been: a model of 270M parameters on a box without a GPU, five steps, real figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event as Flag

from kvtui.core.config import RunConfig
from kvtui.core.errors import Cancelled
from kvtui.core.findings import Evidence, Finding
from kvtui.core.units import MIB
from kvtui.gpu.samples import PHASES, DeviceInfo, MemoryRecord, Phase, PhasePeak, Sample
from kvtui.logs.facts import BufferFacts, CacheFacts, ContextFacts, EngineFacts, SlotFacts
from kvtui.probes.results import NeedleResult, RecallResult, SpeedResult, TaskResult, Timing
from kvtui.procedure.live import Decider, Observer, Progress
from kvtui.session import events as ev
from kvtui.session.records import (
    Change,
    EngineInfo,
    Forecast,
    HostInfo,
    ModelInfo,
    Recommendation,
    Verdict,
)
from kvtui.session.state import SessionState, fold
from kvtui.session.store import SessionStore

AT = "2026-11-29T22:15:30.000+00:00"
HOST = DeviceInfo("host", 0, "host memory", 62 * 1024 * MIB, note="no GPU: host memory stands in for VRAM")
CARD = DeviceInfo("nvml", 0, "RTX 4080", 16 * 1024 * MIB, driver="575.51", cuda="12.9")
BASE = RunConfig("/models/gemma-3-270m-Q4_K_M.gguf", 512, n_gpu_layers=0, n_batch=512, n_ubatch=256)
LOG = [
    "0.00.000.101 I main: build = 11434 (3f1c0a2) with GNU 13.3.0",
    "0.00.000.350 I system_info: n_threads = 2 / 2 | AVX2 = 1",
    "0.00.031.214 I llama_model_loader: loaded meta data with 40 key-value pairs and 236 tensors",
    "0.00.122.077 I load_tensors:   CPU_Mapped model buffer size =   235.10 MiB",
    "0.00.130.498 I llama_context: constructing llama_context",
    "0.00.130.512 I llama_context: n_seq_max     = 1",
    "0.00.130.515 I llama_context: n_ctx         = {n_ctx}",
    "0.00.130.517 I llama_context: n_ctx_seq     = {n_ctx}",
    "0.00.130.519 I llama_context: n_batch       = 512",
    "0.00.130.520 I llama_context: n_ubatch      = 256",
    "0.00.130.524 I llama_context: flash_attn    = enabled",
    "0.00.130.526 I llama_context: kv_unified    = false",
    "0.00.131.007 W llama_context: n_ctx_seq ({n_ctx}) < n_ctx_train (32768) -- capacity not used",
    "0.00.131.800 I llama_kv_cache:        CPU KV buffer size =    12.00 MiB",
    "0.00.133.371 I llama_kv_cache: size =   12.00 MiB ( {n_ctx} cells,   3 layers,  1/1 seqs), K ({k}), V ({v})",
    "0.00.139.020 I sched_reserve:        CPU compute buffer size =   256.50 MiB",
    "0.00.150.904 I srv    load_model: initializing, n_slots = 1, n_ctx_slot = {n_ctx}, kv_unified = 'false'",
    "0.00.151.001 I main: server is listening on http://127.0.0.1:41233",
]  # fmt: skip


def log_of(config: RunConfig) -> list[str]:
    """What the engine would print."""
    return [t.format(n_ctx=config.n_ctx, k=config.type_k, v=config.type_v) for t in LOG]


def facts_of(config: RunConfig, *, slot: int | None = None) -> EngineFacts:
    """What that log proves."""
    text = log_of(config)
    kv = CacheFacts("full", config.n_ctx, 18, 1, config.type_k, config.type_v, 6.0, 6.0, 12.0, line=15)
    main = ContextFacts(
        n_ctx=config.n_ctx,
        n_ctx_seq=config.n_ctx,
        n_seq_max=1,
        n_batch=512,
        n_ubatch=256,
        kv_unified=False,
        flash_attn="enabled",
        flash_attn_requested=config.flash_attn,
        caches=(kv,),
        kv_buffers=(BufferFacts("CPU", 12.0, 14),),
        compute_buffers=(BufferFacts("CPU", 256.5, 16),),
        lines={"n_ctx": 7, "n_ctx_seq": 8, "n_batch": 9, "n_ubatch": 10, "flash_attn": 11, "n_seq_max": 6},
    )
    return EngineFacts(
        engine="llama.cpp",
        build="b11434",
        outcome="ready",
        contexts=(main,),
        slots=SlotFacts(1, slot or config.n_ctx, False, 17),
        model_buffers=(BufferFacts("CPU_Mapped", 235.1, 4),),
        n_lines=len(text),
        lines={"build": 1},
        texts={n: text[n - 1] for n in (1, 4, 6, 7, 8, 9, 10, 11, 14, 15, 16, 17)},
    )


def started(device: DeviceInfo = HOST) -> ev.SessionStarted:
    """The beginning."""
    return ev.SessionStarted(
        at=AT,
        session="20261129-221530-4f1a",
        kvtui="0.1.0",
        plan={"name": "demo"},
        base=BASE,
        model=ModelInfo(
            "/models/gemma-3-270m-Q4_K_M.gguf", "gemma-3-270m-Q4_K_M.gguf", "Gemma 3 270M", "gemma3", "Q4_K_M",
            253 * MIB, 235 * MIB, "ab" * 32, 32768, 18, "exact", False,
        ),
        engine=EngineInfo("embedded llama.cpp", ("python",), "11434", "b11434", "3f1c0a2"),
        host=HostInfo("Linux", "EPYC", 2, 62 * 1024 * MIB, "3.11.7"),
        device=device,
    )  # fmt: skip


def samples(top: int = 620, n: int = 240) -> list[Sample]:
    """Memory of one run, 10 Hz: nothing, a load, a plateau with a peak in prefill."""
    out = []
    for i in range(n):
        share = i / n
        phase: Phase = PHASES[min(int(share * 6), 5)]
        mib = 0 if share < 0.1 else min(1.0, (share - 0.1) * 4) * (top - 60)
        if phase == "prefill":
            mib += 60
        out.append(Sample(i / 10, phase, int(mib * MIB), int((mib + 600) * MIB), int(mib * MIB), "rss"))
    return out


def memory_of(top: int = 620, device: DeviceInfo = HOST) -> MemoryRecord:
    """The record of those samples."""
    taken = samples(top)
    peaks = []
    for phase in PHASES:
        mine = [s for s in taken if s.phase == phase]
        best = max(mine, key=lambda s: s.engine_bytes or 0)
        peaks.append(
            PhasePeak(
                phase, best.engine_bytes, best.used_bytes, best.host_bytes, best.t, len(mine), len(mine) / 10
            )
        )
    return MemoryRecord(device, 600 * MIB, tuple(peaks), tuple(taken[::5]), 0.1)


def speed(depth: int, decode: float = 48.1) -> SpeedResult:
    """Speed at one depth."""
    timing = Timing(depth, 0, 32, 1412.0, decode, 0.72, 1.4, depth / 1412, 32 / decode)
    return SpeedResult(depth, 1412.0, decode, 0.72, (timing,))


def recall(depth: int, found: int = 3) -> RecallResult:
    """Recall at one depth."""
    needles = tuple(
        NeedleResult(
            p, int(p * depth), f"key{n}", f"{n}731", f"{n}731" if n < found else "I do not know", n < found
        )
        for n, p in enumerate((0.05, 0.5, 0.95))
    )
    return RecallResult(depth, needles, 2.5)


def tasks(failed: int = 1) -> tuple[TaskResult, ...]:
    """The four families."""
    names = ("retrieval", "code-edit", "tool-selection", "long-instruction")
    return tuple(
        TaskResult(
            name, name, 400, n >= failed, "" if n >= failed else "the answer lacks 4711", "text", (1, 2), None
        )  # type: ignore[arg-type]
        for n, name in enumerate(names)
    )


def advice(title: str, **changes: object) -> Recommendation:
    """A recommendation with all its fields."""
    base = Recommendation(
        "run",
        title,
        "Half the bytes for keys and values, and mostly the same answers; the task suite shows whether it is so here.",
        variable="kv-types",
        option="-ctk/-ctv",
        before="f16/f16",
        after="q8_0/q8_0",
        effect="KV cache 12.0 MiB → 6.4 MiB",
        effect_bytes=-int(5.6 * MIB),
        risk="long recall may suffer; it is measured",
        command="llama-server -m /models/gemma-3-270m-Q4_K_M.gguf -c 2048 -ctk q8_0 -ctv q8_0 -fa on",
        config=replace(BASE, n_ctx=2048, type_k="q8_0", type_v="q8_0", flash_attn="on"),
        not_this=("Fewer GPU layers would not help: nothing is on a GPU.",),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def run_events(
    number: int,
    step: int,
    purpose: str,
    config: RunConfig,
    change: Change | None = None,
    *,
    outcome: str = "ok",
    slot: int | None = None,
    top: int = 620,
    device: DeviceInfo = HOST,
) -> list[ev.Event]:
    """One run from its launch to its end."""
    facts = facts_of(config, slot=slot)
    forecast = Forecast(int(12.1 * MIB), int(36 * MIB), 235 * MIB, 600 * MIB, "exact")
    findings = (
        (
            Finding(
                "swa",
                "warning",
                "usable context is smaller",
                "the slots divide it",
                "slots",
                (Evidence(17, "x"),),
            ),
        )
        if slot
        else ()
    )
    argv = ("llama-server", "-m", config.model, "-c", str(config.n_ctx), "-ctk", config.type_k, "-lv", "4")
    return [
        ev.RunStarted(AT, number, step, purpose, config, argv, change=change, forecast=forecast),
        ev.EngineLaunched(AT, number, 4242, 1.0, "http://127.0.0.1:41233"),
        ev.EngineReady(AT, number, 0.9, facts),
        ev.SpeedMeasured(AT, number, speed(config.n_ctx // 2)),
        ev.RecallMeasured(AT, number, recall(config.n_ctx // 2)),
        ev.TasksMeasured(AT, number, tasks()),
        ev.RunFinished(
            AT, number, outcome, "" if outcome == "ok" else "the engine died in prefill", facts,  # type: ignore[arg-type]
            memory=memory_of(top, device), wall_s=30.0, engine_s=27.0, findings=findings,
        ),
    ]  # fmt: skip


def story(device: DeviceInfo = HOST) -> list[ev.Event]:
    """All events up to the verdict."""
    base = replace(BASE, n_ctx=2048)
    q8 = replace(base, type_k="q8_0", type_v="q8_0", flash_attn="on")
    out: list[ev.Event] = [started(device), ev.StepStarted(AT, 1)]
    first = advice(
        "Weights floor",
        variable="",
        before="",
        after="",
        option="",
        effect="",
        effect_bytes=None,
        config=BASE,
    )
    out += [ev.Recommended(AT, 1, None, first), ev.Decided(AT, 1, "accept", "unattended")]
    out += run_events(1, 1, "floor", BASE, top=540, device=device)
    out += [ev.StepFinished(AT, 1, "passed", "540 MiB, nothing unexpected on the CPU"), ev.StepStarted(AT, 2)]
    out += [
        ev.Recommended(
            AT, 2, 1, advice("F16 baseline", variable="context", before="512", after="2048", option="-c")
        )
    ]
    out += [ev.Decided(AT, 2, "accept", "unattended")]
    out += run_events(2, 2, "baseline", base, Change("context", "-c", "512", "2048", 1), device=device)
    out += [ev.StepFinished(AT, 2, "passed", "3/4 tasks, recall 3/3 at 1K"), ev.StepStarted(AT, 3)]
    out += [
        ev.Recommended(AT, 3, 2, advice("q8_0 keys and values")),
        ev.Decided(AT, 3, "accept", "unattended"),
    ]
    out += run_events(
        3,
        3,
        "quantized",
        q8,
        Change("kv-types", "-ctk/-ctv", "f16/f16", "q8_0/q8_0", 2),
        slot=512,
        device=device,
    )
    out += [ev.StepFinished(AT, 3, "passed", "types proven, no task lost"), ev.StepStarted(AT, 4)]
    for n, (before, after) in enumerate(((2048, 1024), (1024, 4096)), 4):
        text = advice(
            f"Context {after}", variable="context", option="-c", before=str(before), after=str(after)
        )
        out += [ev.Recommended(AT, 4, n - 1, text), ev.Decided(AT, 4, "accept", "unattended")]
        change = Change("context", "-c", str(before), str(after), n - 1)
        out += run_events(n, 4, "stage", replace(q8, n_ctx=after), change, top=600 + 40 * n, device=device)
    out += [ev.StageSkipped(AT, 8192, "the model was trained for less")]
    out += [ev.StepFinished(AT, 4, "passed", "4K is the highest stable stage")]
    out += [ev.StepStarted(AT, 5), ev.StepFinished(AT, 5, "not-needed", "nothing failed")]
    verdict = Verdict(
        "done", "4K context at q8_0/q8_0 holds", "Recall 3/3 at 2K, 48.1 t/s.",
        5, replace(q8, n_ctx=4096),
        "llama-server -m /models/gemma-3-270m-Q4_K_M.gguf -c 4096 -ctk q8_0 -ctv q8_0 -fa on",
        ("concurrency",),
    )  # fmt: skip
    return [*out, ev.SessionFinished(AT, verdict, wall_s=151.0, own_cpu_s=3.2)]


def up_to(kind: type[ev.Event], nth: int = 1, device: DeviceInfo = HOST) -> list[ev.Event]:
    """The story up to and with the `nth` event of that kind."""
    out = []
    for event in story(device):
        out.append(event)
        if isinstance(event, kind):
            nth -= 1
            if nth == 0:
                return out
    raise AssertionError(f"the story has no such {kind.__name__}")


class StoryTuning:
    """Plays the story as a Tuning would, at `pace` seconds between events."""

    def __init__(self, root: Path, pace: float = 0.0, device: DeviceInfo = HOST) -> None:
        events = story(device)
        assert isinstance(events[0], ev.SessionStarted)
        self.store = SessionStore.create(events[0], root)
        self._events = events[1:]
        self._pace = pace

    def run(self, observer: Observer, decider: Decider, cancel: Flag) -> SessionState:
        """See kvtui.procedure.tune.Tuning."""
        with self.store:
            for event in self._events:
                if isinstance(event, ev.Decided):
                    recommendation = self.store.state.recommendation
                    assert recommendation is not None
                    event = replace(decider.decide(recommendation, self.store.state), at=AT)
                observer.event(event, self.store.append(event))
                if isinstance(event, ev.RunStarted):
                    text = log_of(event.config)
                    self.store.log_path(event.run).write_text("\n".join(text) + "\n")
                    observer.log(text)
                if isinstance(event, ev.EngineReady):
                    self._live(observer, event.run, cancel)
                self._wait(cancel)
            return self.store.state

    def _wait(self, cancel: Flag) -> None:
        if cancel.wait(self._pace):
            raise Cancelled

    def _live(self, observer: Observer, number: int, cancel: Flag) -> None:
        run = self.store.state.run(number)
        assert run is not None
        taken = samples()
        for n, sample in enumerate(taken):
            observer.sample(sample)
            what = f"recall at {run.config.n_ctx // 2}"
            observer.progress(Progress(run.step, number, what, n, len(taken), "tokens", 1412.0, 24 - n / 10))
            if self._pace and cancel.wait(self._pace / 10):
                raise Cancelled


Note = Callable[[str], None]


def job(root: Path, pace: float = 0.0, device: DeviceInfo = HOST) -> Callable[[Note], StoryTuning]:
    """The story as a job of the app."""

    def begin(note: Note) -> StoryTuning:
        note("reading gemma-3-270m-Q4_K_M.gguf")
        return StoryTuning(root, pace, device)

    return begin


def fold_of(kind: type[ev.Event], nth: int = 1, device: DeviceInfo = HOST) -> SessionState:
    """The state after that event."""
    return fold(up_to(kind, nth, device))
