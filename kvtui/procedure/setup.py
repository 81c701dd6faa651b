"""From what the operator gave to a session that can be worked on, or back to one that was interrupted."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from kvtui import __version__
from kvtui.core.config import RunConfig
from kvtui.core.errors import InputError, SessionError
from kvtui.core.secrets import is_secret_name, without_secrets
from kvtui.core.text import clean
from kvtui.engines.base import Command, Engine
from kvtui.engines.invocation import read_invocation
from kvtui.engines.reach import take_key
from kvtui.gpu.samples import DEFAULT_HZ, MAX_HZ, DeviceInfo
from kvtui.procedure.box import device_info, host_info, share_of_card, visible_gpus
from kvtui.procedure.models import find_model, same_model
from kvtui.procedure.preset import Preset, check_field, in_words, load_preset, with_tasks
from kvtui.procedure.tune import Tuning
from kvtui.session.codec import to_builtins
from kvtui.session.events import SessionResumed, SessionStarted
from kvtui.session.records import EngineInfo
from kvtui.session.store import SessionStore, new_session_id, now

Note = Callable[[str], None]

_MOST = 9999
"""Layers or threads: more than any model or machine has, and no more than the engine can read."""


@dataclass(frozen=True, slots=True)
class TuneRequest:
    """What the operator gave. None: take the preset's value, or the engine's. `model` None is the demo's model.

    `extra` may hold the server's API key: it goes to the engine and its clients, and into no record.
    """

    model: str | None = None
    engine: str | None = None
    engine_bin: str | None = None
    engine_command: str | None = None
    url: str | None = None
    engine_log: str | None = None
    preset: str = "coding-agent"
    target_context: int | None = None
    kv_type: str | None = None
    n_parallel: int | None = None
    n_batch: int | None = None
    n_ubatch: int | None = None
    n_gpu_layers: int | None = None
    n_cpu_moe: int | None = None
    threads: int | None = None
    margin_gib: float | None = None
    reserve_gib: float | None = None
    min_decode_tps: float | None = None
    tasks: str | None = None
    extra: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    gpus: tuple[int, ...] | None = None
    sample_hz: float = DEFAULT_HZ


def prepare(request: TuneRequest, note: Note) -> Tuning:
    """A new session. Takes seconds: reads the header, asks the engine what it can do, looks at the device.

    Raises InputError (model, preset, options), StartError (the engine cannot be run), SessionError.
    """
    plan = with_options(load_preset(request.preset), request)
    if request.tasks is not None:
        plan = with_tasks(plan, request.tasks)
    return begin(request, plan, note)


def begin(
    request: TuneRequest,
    plan: Preset,
    note: Note,
    *,
    header_sha256: str | None = None,
    like: RunConfig | None = None,
) -> Tuning:
    """A new session that follows `plan`. With `header_sha256` the model file must have that header; with `like` the
    session's base is that configuration, for this model and these GPUs. Raises what `prepare` raises."""
    if not 1 <= request.sample_hz <= MAX_HZ:
        raise InputError(f"--sample-hz: {in_words(request.sample_hz)} is not a number from 1 to {MAX_HZ:.0f}")
    model = request.model
    if model is None:
        from kvtui.sources.demo_model import demo_model

        note("assembling the demo model (once)")
        model = str(demo_model())
    extra, api_key = take_key(request.extra)
    request = replace(request, extra=extra)
    engine = choose_engine(request, api_key)
    note(f"reading {clean(os.path.basename(model))}")
    found = find_model(model, engine.traits)
    for told in found.notes:
        note(told)
    if header_sha256 is not None and found.info.header_sha256 != header_sha256:
        raise InputError(
            f"{clean(found.info.path)}: not the model file that was recorded (another header)",
            hint="give the same file with -m",
        )
    note("asking the engine what it can do")
    abilities = engine.abilities()
    offered = abilities.cache_types
    if request.kv_type is not None and offered and request.kv_type not in offered:
        raise InputError(
            f"--kv-type: {request.kv_type} is no cache type of this engine",
            hint=f"it has {', '.join(offered)}",
        )
    device = device_info(request.gpus)
    base = base_config(request, plan, found.given, device)
    if engine.traits.reserves_share:
        base = replace(base, n_gpu_layers=None, gpu_memory_utilization=share_of_card(request.gpus, plan))
    if like is not None:
        base = replace(like, model=base.model, env=(*base.env, *like.env))
    base = engine.traits.tied(base)
    started = SessionStarted(
        at=now(),
        session=new_session_id(),
        kvtui=__version__,
        plan=to_builtins(plan),
        base=base,
        model=found.info,
        engine=EngineInfo(
            label=engine.label,
            program=_program(request, engine.command(base, 0)),
            version=abilities.version,
            build=abilities.build,
            commit=abilities.commit,
            compiler=abilities.compiler,
            target=abilities.target,
            backends=abilities.backends,
            cache_types=abilities.cache_types,
            kind=engine.traits.kind,
            url=request.url or "",
            log=os.path.abspath(request.engine_log) if request.engine_log else "",
        ),
        host=host_info(),
        device=device,
        command_line=tuple(clean(a) for a in without_secrets(sys.argv)),
        sample_hz=request.sample_hz,
    )
    return Tuning(SessionStore.create(started), engine, found.oracle)


def resume(folder: Path, note: Note) -> Tuning:
    """An interrupted session, ready to go on. An engine that it left running is ended first.

    Raises SessionError (locked, damaged, finished) and whatever `prepare` raises for model and engine.
    """
    store = SessionStore.open(folder)
    try:
        state = store.state
        if state.verdict is not None:
            raise SessionError(
                f"{folder.name}: this session has its verdict", hint=f"kvtui report {folder.name}"
            )
        note(f"reading {state.started.model.file_name}")
        engine = same_engine(state.started)
        oracle = same_model(state.started.model, engine.traits)
        note("asking the engine what it can do")
        engine.abilities()
        run = state.current_run
        if run is not None and run.pid is not None and run.pid_started is not None:
            from kvtui.engines.orphan import end_orphan

            end_orphan(run.pid, run.pid_started)
        store.append(SessionResumed(now(), __version__, run.number if run else None))
    except BaseException:
        store.close()
        raise
    return Tuning(store, engine, oracle)


def with_options(plan: Preset, request: TuneRequest) -> Preset:
    """`plan` with the operator's own values in place of the preset's. Raises InputError for one that cannot be."""
    given = {
        "target_context": request.target_context,
        "kv_type": request.kv_type,
        "n_parallel": request.n_parallel,
        "n_batch": request.n_batch,
        "n_ubatch": request.n_ubatch,
        "margin_gib": request.margin_gib,
        "reserve_gib": request.reserve_gib,
        "min_decode_tps": request.min_decode_tps,
    }
    for field, value in given.items():
        if value is not None and field != "kv_type" and (field, value) != ("min_decode_tps", 0):
            check_field(field, value)
    if request.kv_type is not None and not re.fullmatch(r"\w{1,16}", request.kv_type, re.ASCII):
        raise InputError(f"--kv-type: {clean(request.kv_type, 40)} is not the name of a cache type")
    for option, count in (
        ("--gpu-layers", request.n_gpu_layers),
        ("--n-cpu-moe", request.n_cpu_moe),
        ("--threads", request.threads),
    ):
        if count is not None and not 0 <= count <= _MOST:
            raise InputError(f"{option}: {in_words(count)} is not a number from 0 to {_MOST}")
    plan = replace(plan, **{k: v for k, v in given.items() if v is not None})  # type: ignore[arg-type]
    if plan.n_ubatch > plan.n_batch:
        raise InputError(
            f"--ubatch-size: {plan.n_ubatch} is more than the batch of {plan.n_batch}",
            hint="make --batch-size at least as large",
        )
    return plan


def _program(request: TuneRequest, command: Command) -> tuple[str, ...]:
    """The words by which the engine is found again: a program, or the command that starts one."""
    if request.engine_command is None:
        return command.argv[:1]
    return read_invocation(request.engine_command).words


def choose_engine(request: TuneRequest, api_key: str | None = None) -> Engine:
    """The operator's engine; the demo always takes the embedded one unless another is named."""
    from kvtui.engines.find import engine_at, engine_of

    if request.url is not None:
        if request.engine not in (None, "ollama") or request.engine_bin or request.engine_command:
            raise InputError("--url: a running Ollama is driven, none is started", hint="give it alone")
        return engine_at(request.url, request.engine_log)
    if request.engine_log is not None:
        raise InputError("--engine-log goes with --url", hint="what kvtui starts, it logs itself")
    given = (request.model, request.engine, request.engine_bin, request.engine_command)
    demo = all(value is None for value in given)
    if request.engine_command is not None:
        if request.engine_bin is not None:
            raise InputError("--engine-bin and --engine-command: give one of them")
        words = read_invocation(request.engine_command).words
        return engine_of(request.engine, None, command=words, api_key=api_key)
    return engine_of("embedded" if demo else request.engine, request.engine_bin, api_key=api_key)


def same_engine(started: SessionStarted) -> Engine:
    """The engine of a recorded session, found again by its program."""
    from kvtui.engines.find import engine_at, engine_of

    if started.engine.url:
        return engine_at(started.engine.url, started.engine.log or None)
    program = started.engine.program[0] if started.engine.program else None
    if len(started.engine.program) > 1:
        return engine_of(started.engine.kind, None, command=started.engine.program)
    kind = started.engine.kind or ("embedded" if "embedded" in started.engine.label else "llama-server")
    return engine_of(kind, program)


def base_config(request: TuneRequest, plan: Preset, model: str, device: DeviceInfo) -> RunConfig:
    """What all runs of the session share. Without a GPU no layer is asked to be on one."""
    layers = request.n_gpu_layers
    if layers is None:
        layers = 0 if device.kind == "host" else 999
    return RunConfig(
        model=model,
        n_ctx=plan.floor_context,
        n_batch=plan.n_batch,
        n_ubatch=plan.n_ubatch,
        n_gpu_layers=layers,
        n_cpu_moe=request.n_cpu_moe,
        swa_full=plan.swa_full,
        cache_ram_mib=plan.cache_ram_mib,
        threads=request.threads,
        prefix_reuse=plan.prefix_reuse,
        extra=request.extra,
        env=_environment(request, device),
    )


def _environment(request: TuneRequest, device: DeviceInfo) -> tuple[tuple[str, str], ...]:
    """What is set for the engine on top of our own environment. Raises InputError for a secret: this is recorded."""
    for name, _ in request.env:
        if is_secret_name(name):
            raise InputError(
                f"--env {clean(name, 80)}: a secret would be kept in the session",
                hint="set it in kvtui's own environment, which the engine inherits",
            )
    return (*(() if request.gpus is None else visible_gpus(device)), *request.env)
