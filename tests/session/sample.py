"""A realistic complete session: five steps, a stage that fails in prefill, the micro-batch that cures it, a verdict.

`events()` is the whole of it in order; any beginning of it is a session that was cut short. `state()` folds it and
`write(root)` puts it on disk. Everything is deterministic.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kvtui.core.config import RunConfig
from kvtui.core.units import MIB
from kvtui.engines.base import Missing
from kvtui.probes.results import TASK_FAMILIES, NeedleResult, RecallResult, SpeedResult, TaskResult, Timing
from kvtui.session import events as ev
from kvtui.session.codec import encode
from kvtui.session.records import Change, EngineInfo, Forecast, HostInfo, ModelInfo, Recommendation, Verdict
from kvtui.session.state import SessionState, fold
from kvtui.session.store import EVENTS, SessionStore
from tests.session import sample_facts as sf

SESSION = "20261129-093000-4f1a"
MODEL = "/srv/models/Example-14B-Instruct.Q6_K.gguf"
PROGRAM = "/opt/llama.cpp/bin/llama-server"
BASE = RunConfig(model=MODEL, n_ctx=8192)
KV_PER_TOKEN = 131072
POSITIONS = (0.02, 0.25, 0.5, 0.75, 0.95)
DEPTHS = (2048, 12288)
SUBJECTS = {
    1: "floor",
    2: "baseline:16384",
    3: "quantized:q8_0/q8_0",
    4: "stage:32768",
    5: "stage:49152",
    6: "micro-batch:256@49152",
}

Clock = Callable[[float], str]


def clock() -> Clock:
    """A clock that moves on by the seconds it is given."""
    at = datetime(2026, 11, 29, 9, 30, tzinfo=UTC)

    def tick(seconds: float = 0.1) -> str:
        nonlocal at
        at += timedelta(seconds=seconds)
        return at.isoformat(timespec="milliseconds")

    return tick


def argv(config: RunConfig) -> tuple[str, ...]:
    """The command line that asks for `config`."""
    return (
        *(PROGRAM, "-m", config.model, "-c", str(config.n_ctx), "-np", str(config.n_parallel)),
        *("-b", str(config.n_batch), "-ub", str(config.n_ubatch), "-ngl", str(config.n_gpu_layers)),
        *("-ctk", config.type_k, "-ctv", config.type_v, "-fa", config.flash_attn, "-fit", "off"),
        *("-lv", "4", "--cache-ram", "0", "--host", "127.0.0.1", "--port", "18080"),
    )


def started(at: str = "2026-11-29T09:30:00.000+00:00") -> ev.SessionStarted:
    """The first event."""
    return ev.SessionStarted(
        at=at,
        session=SESSION,
        kvtui="0.1.0",
        plan={"preset": "coding-agent", "stages": [32768, 49152, 65536, 98304], "margin_mib": 1024},
        base=BASE,
        model=ModelInfo(
            path=MODEL,
            file_name="Example-14B-Instruct.Q6_K.gguf",
            name="Example 14B Instruct",
            arch="llama",
            quant="Q6_K",
            file_bytes=12_014_873_184,
            weights_bytes=round(sf.WEIGHTS_MIB * MIB),
            header_sha256="9b74c9897bac770ffc029102a200c5de7d3a8d1c3f6c0cbe54dfb1a6b5a0a9e1",
            n_ctx_train=131072,
            n_layer=32,
            exactness="exact",
            has_chat_template=True,
        ),
        engine=EngineInfo("llama-server b11434", (PROGRAM,), "version: 11434 (d1f1a3c)", "11434", "d1f1a3c"),
        host=HostInfo("Linux 6.12", "AMD Ryzen 7 7700", 16, 65_536 * MIB, "3.11.9"),
        device=sf.DEVICE,
        command_line=("kvtui", "tune", "-m", MODEL, "--preset", "coding-agent"),
    )


def recommendation(kind: Any, title: str, why: str, config: RunConfig, **more: Any) -> Recommendation:
    """An advice to run `config` next."""
    return Recommendation(kind, title, why, command=shlex.join(argv(config)), config=config, **more)


def speed(depth: int, prompt_tps: float, decode_tps: float) -> SpeedResult:
    """Two repeats around the given medians."""
    repeats = tuple(
        Timing(
            prompt_tokens=depth,
            cached_tokens=0,
            generated_tokens=64,
            prompt_tps=prompt_tps * factor,
            decode_tps=decode_tps * factor,
            first_token_s=depth / (prompt_tps * factor) + 0.04,
            wall_s=depth / (prompt_tps * factor) + 64 / (decode_tps * factor) + 0.05,
            prompt_s=depth / (prompt_tps * factor),
            decode_s=64 / (decode_tps * factor),
        )
        for factor in (0.99, 1.01)
    )
    return SpeedResult(depth, prompt_tps, decode_tps, depth / prompt_tps + 0.04, repeats, gpu_util=97)


def recall(depth: int, missed: tuple[float, ...] = ()) -> RecallResult:
    """Five planted facts, those at `missed` not found."""
    needles = tuple(
        NeedleResult(
            position,
            round(depth * position),
            f"vault {i}",
            f"{4711 + i}",
            "I do not know" if position in missed else f"{4711 + i}",
            position not in missed,
        )
        for i, position in enumerate(POSITIONS)
    )
    return RecallResult(depth, needles, round(depth / 900, 1))


def tasks(*, changed: bool = False) -> tuple[TaskResult, ...]:
    """The four families at two depths; the tool selection fails at depth, with f16 too. `changed`: one output
    goes another way from its 41st token on, and still passes."""
    results = []
    for depth in DEPTHS:
        for number, family in enumerate(TASK_FAMILIES):
            tokens = tuple(1000 + (number * 37 + i * 7) % 900 for i in range(96))
            if changed and family == "code-edit" and depth == DEPTHS[1]:
                tokens = (*tokens[:41], *(t + 1 for t in tokens[41:]))
            failed = family == "tool-selection" and depth == DEPTHS[1]
            timing = Timing(
                depth, 0, 96, 1400.0, 31.0, depth / 1400, depth / 1400 + 3.1, depth / 1400, 96 / 31
            )
            why = "asked for `search` instead of `read_file`" if failed else ""
            results.append(
                TaskResult(f"{family}-1", family, depth, not failed, why, f"answer {number}", tokens, timing)
            )
    return tuple(results)


def _forecast(config: RunConfig) -> Forecast:
    kv = round(config.n_ctx * KV_PER_TOKEN * (sf.SHARE[config.type_k] + sf.SHARE[config.type_v]) / 2)
    weights = round(sf.WEIGHTS_MIB * MIB)
    return Forecast(kv, kv, weights, weights + kv + round(sf.RUNTIME_MIB * MIB), "exact")


def _run(
    tick: Clock,
    number: int,
    step: int,
    purpose: str,
    config: RunConfig,
    measured: tuple[Any, ...],
    *,
    change: Change | None = None,
    failed: bool = False,
    findings: tuple[Any, ...] = (),
    wall_s: float = 110.0,
) -> Iterator[ev.Event]:
    log = sf.facts(config.n_ctx, config.type_k, config.type_v, config.n_ubatch, config.flash_attn)
    missing = (
        (Missing("--no-context-shift", "that a full slot refuses instead of shifting"),)
        if number == 1
        else ()
    )
    yield ev.RunStarted(
        *(tick(), number, step, purpose, config, argv(config)),
        env=(("CUDA_VISIBLE_DEVICES", "0"),),
        change=change,
        missing=missing,
        forecast=_forecast(config),
        seed=42,
        subject=SUBJECTS[number],
    )
    yield ev.EngineLaunched(
        at=tick(),
        run=number,
        pid=40_000 + number,
        started=1_764_408_600.0 + number,
        url="http://127.0.0.1:18080",
        log=f"logs/run-{number:02d}.log",
    )
    yield ev.EngineReady(tick(9.4), number, 9.4, log)
    for result in measured:
        if isinstance(result, SpeedResult):
            yield ev.SpeedMeasured(tick(20), number, result)
        elif isinstance(result, RecallResult):
            yield ev.RecallMeasured(tick(20), number, result)
        else:
            yield ev.TasksMeasured(tick(30), number, result)
    until: Any = "prefill" if failed else "decode"
    yield ev.RunFinished(
        *(tick(5), number, "failed" if failed else "ok"),
        "out of memory in prefill at 40,960 tokens" if failed else "",
        sf.out_of_memory(log) if failed else log,
        failure="prefill-oom" if failed else None,
        exit_code=-6 if failed else 0,
        memory=sf.memory(config.n_ctx, config.type_k, config.type_v, config.n_ubatch, until=until),
        findings=findings,
        wall_s=wall_s,
        engine_s=wall_s * 0.94,
    )


def _decided(tick: Clock, step: int, choice: Any, subject: str, **more: Any) -> ev.Decided:
    return ev.Decided(tick(2), step, choice, "operator", subject=subject, **more)


def events() -> list[ev.Event]:
    """The whole session."""
    return list(_events())


def _events() -> Iterator[ev.Event]:
    tick = clock()
    yield started(tick(0))
    base16 = replace(BASE, n_ctx=16384)
    q8 = replace(base16, type_k="q8_0", type_v="q8_0", flash_attn="on")
    q8_32, q8_48 = replace(q8, n_ctx=32768), replace(q8, n_ctx=49152)
    cured = replace(q8_48, n_ubatch=256)

    def advise(step: int, after: int | None, advice: Recommendation) -> Iterator[ev.Event]:
        yield ev.Recommended(tick(), step, after, advice)
        yield _decided(tick, step, "accept", SUBJECTS[(after or 0) + 1])

    yield ev.StepStarted(tick(), 1)
    yield from advise(1, None, recommendation("run", "weights floor", "What weights alone take.", BASE))
    yield from _run(tick, 1, 1, "floor", BASE, (speed(2048, 1420.0, 33.1),), wall_s=44.0)
    yield ev.StepFinished(
        tick(), 1, "passed", "weights and runtime take 11.6 GiB of 16.0 GiB, all on the GPU"
    )

    yield ev.StepStarted(tick(), 2)
    ctx = Change("context", "-c", "8192", "16384", 1)
    yield from advise(
        2, 1, recommendation("run", "f16 baseline", "Your own outputs to compare with.", base16)
    )
    yield from _run(
        *(tick, 2, 2, "baseline", base16, (speed(12288, 1310.0, 29.8), recall(12288), tasks())), change=ctx
    )
    yield ev.StepFinished(tick(), 2, "passed", "7 of 8 tasks; tool-selection-1@12288 fails at f16")

    yield ev.StepStarted(tick(), 3)
    kv = Change("kv-types", "-ctk/-ctv", "f16/f16", "q8_0/q8_0", 2)
    saved = round(-2048 * 15 / 32 * MIB)
    advice = recommendation(
        *("run", "q8_0 keys and values", "Half the KV, and the log will prove it.", q8),
        variable="kv-types",
        option="-ctk/-ctv",
        before="f16/f16",
        after="q8_0/q8_0",
        effect_bytes=saved,
    )
    yield from advise(3, 2, advice)
    measured = (speed(12288, 1295.0, 28.9), recall(12288), tasks(changed=True))
    yield from _run(tick, 3, 3, "quantized", q8, measured, change=kv)
    yield ev.StepFinished(tick(), 3, "passed", "types proven, 960 MiB saved, no task regressed")

    yield ev.StepStarted(tick(), 4)
    c32, c48 = (
        Change("context", "-c", "16384", "32768", 3),
        Change("context", "-c", "32768", "49152", 4),
    )
    yield from advise(4, 3, recommendation("run", "context 32K", "The next stage.", q8_32))
    yield from _run(
        *(tick, 4, 4, "stage", q8_32, (speed(30720, 1050.0, 24.2), recall(30720))), change=c32, wall_s=180.0
    )
    yield from advise(4, 4, recommendation("run", "context 48K", "The next stage.", q8_48))
    yield from _run(
        *(tick, 5, 4, "stage", q8_48, ()),
        change=c48,
        failed=True,
        findings=(sf.OOM_FINDING,),
        wall_s=72.0,
    )
    yield ev.StageSkipped(tick(), 65536, "needs 16,274 MiB, 15,769 MiB are free before the engine starts")
    yield ev.StageSkipped(tick(), 98304, "needs 18,450 MiB, 15,769 MiB are free before the engine starts")
    yield ev.StepFinished(tick(), 4, "failed", "32K holds; 48K runs out of memory in prefill")

    yield ev.StepStarted(tick(), 5)
    ub = Change("micro-batch", "-ub", "512", "256", 5)
    advice = recommendation(
        *(
            "run",
            "micro-batch 256",
            "It failed in prefill: the graph of one micro-batch is the transient.",
            cured,
        ),
        variable="micro-batch",
        option="-ub",
        before="512",
        after="256",
        effect="halves the compute buffer",
        effect_bytes=-round(282.01 * MIB),
        risk="prefill is slower",
        not_this=("q4_0 values: memory is short in prefill only",),
    )
    yield from advise(5, 5, advice)
    measured = (speed(47104, 690.0, 19.7), recall(47104, missed=(0.25,)), tasks(changed=True))
    yield from _run(
        *(tick, 6, 5, "transient", cured, measured), change=ub, findings=(sf.MARGIN_FINDING,), wall_s=260.0
    )
    lower = replace(cured, type_v="q4_0")
    offer = recommendation(
        "run", "q8_0 keys, q4_0 values", "Would free 768 MiB.", lower, variable="kv-types", option="-ctk/-ctv"
    )
    yield ev.Recommended(tick(), 5, 6, offer)
    yield _decided(
        tick, 5, "skip", "kv-types:q8_0/q4_0@49152", reason="code edits must stay exact; 48K is enough"
    )
    yield ev.StepFinished(tick(), 5, "passed", "48K holds with a micro-batch of 256")

    verdict = Verdict(
        *("findings", "48K holds at q8_0/q8_0 with a micro-batch of 256"),
        "All layers on the GPU, 4 of 5 facts recalled at 47,104 tokens, 19.7 t/s decode at that depth.",
        run=6,
        config=cured,
        command=shlex.join(argv(cured)),
        not_measured=("more than one request at the same time",),
    )
    yield ev.SessionFinished(
        tick(), verdict, wall_s=812.0, own_cpu_s=9.6, notes=("memory was read at 10 Hz",)
    )


def state() -> SessionState:
    """The complete session, folded."""
    return fold(events())


def unfinished_events() -> list[ev.Event]:
    """The session up to the moment when the engine of the 48K stage got ready."""
    recorded = events()
    last = next(i for i, e in enumerate(recorded) if isinstance(e, ev.EngineReady) and e.run == 5)
    return recorded[: last + 1]


def unfinished() -> SessionState:
    """The session as it stood while the 48K stage was running."""
    return fold(unfinished_events())


def write(root: Path, recorded: list[ev.Event] | None = None) -> Path:
    """Record `recorded` (default: the whole session) under `root`; returns the session's folder."""
    first, *rest = events() if recorded is None else recorded
    assert isinstance(first, ev.SessionStarted)
    with SessionStore.create(first, root) as store:
        # As the store writes them, but without a sync for each.
        with (store.folder / EVENTS).open("ab") as file:
            file.writelines(encode(event) for event in rest)
        return store.folder
