"""Requested against actual, setting by setting. A value without evidence is unproven, never true.

One function per setting in `CHECKS`; each reads what was asked from the run's configuration and what is proven
from the engine's facts, and returns None where the setting does not apply to this run.
"""

from __future__ import annotations

from collections.abc import Callable

from kvtui.core.config import RunConfig
from kvtui.logs.facts import CacheFacts, ContextFacts, EngineFacts
from kvtui.session.records import SettingCheck
from kvtui.session.state import RunRecord

# A graph that runs where its layers are has one split per device and one for the host's embedding.
MOST_SPLITS = 8

Check = Callable[[RunConfig, EngineFacts], SettingCheck | None]


def on_host(device: str) -> bool:
    """True for an engine's name of host memory: `CPU`, `CPU_Mapped`, `CPU_REPACK`, `CUDA_Host`, `BLAS`."""
    return device.startswith("CPU") or device.endswith("_Host") or device == "BLAS"


def setting_checks(run: RunRecord) -> tuple[SettingCheck, ...]:
    """Every setting of `run` that applies, in the order in which a person reads them."""
    return compare(run.config, run.facts)


def compare(config: RunConfig, facts: EngineFacts) -> tuple[SettingCheck, ...]:
    """The same for a configuration and facts that are not (yet) a run."""
    found = (check(config, facts) for check in CHECKS)
    return tuple(row for row in found if row is not None)


def _row(
    setting: str,
    asked: str,
    actual: str | None,
    line: int | None,
    note: str = "",
    *,
    same: bool | None = None,
) -> SettingCheck:
    if actual is None:
        return SettingCheck(setting, asked, "-", "unproven", None, note)
    equal = asked == actual if same is None else same
    return SettingCheck(setting, asked, actual, "proven" if equal else "differs", line, note)


def _attention_caches(facts: EngineFacts) -> list[CacheFacts]:
    return [c for c in facts.main.caches if c.kind != "recurrent"] if facts.main else []


def _types(label: str, asked: str, values: list[tuple[str, int | None]]) -> SettingCheck:
    names = sorted({name for name, _ in values})
    if not names:
        return _row(label, asked, None, None, "the log shows no KV cache line")
    line = next((at for name, at in values if name != asked), values[0][1])
    return _row(label, asked, ", ".join(names), line)


def _type_k(config: RunConfig, facts: EngineFacts) -> SettingCheck | None:
    values = [(c.type_k, c.line) for c in _attention_caches(facts) if c.type_k]
    return _types("K cache type", config.type_k, values)


def _type_v(config: RunConfig, facts: EngineFacts) -> SettingCheck | None:
    caches = _attention_caches(facts)
    if caches and all(c.v_mib == 0 for c in caches):
        line = caches[0].line
        return SettingCheck(
            "V cache type", config.type_v, "none", "proven", line, "values are a view of the keys"
        )
    return _types("V cache type", config.type_v, [(c.type_v, c.line) for c in caches if c.type_v])


def _context_number(
    label: str, asked: int, facts: EngineFacts, field: str, note: Callable[[int], str] | None = None
) -> SettingCheck:
    main = facts.main or ContextFacts()
    value: int | None = getattr(main, field)
    text = "" if value is None or value == asked or note is None else note(value)
    return _row(label, str(asked), None if value is None else str(value), main.lines.get(field), text)


def _n_ctx(config: RunConfig, facts: EngineFacts) -> SettingCheck | None:
    def note(actual: int) -> str:
        return (
            "rounded up to the engine's block of 256"
            if actual > config.n_ctx
            else "made smaller by the engine"
        )

    return _context_number("context", config.n_ctx, facts, "n_ctx", note)


def _usable(config: RunConfig, facts: EngineFacts) -> SettingCheck | None:
    asked = config.n_ctx
    slots = facts.slots
    actual = slots.n_ctx_slot if slots else None
    note = ""
    if actual is not None and actual < asked:
        divided = config.n_parallel > 1 and not config.kv_unified
        note = (
            f"{config.n_parallel} slots divide the context" if divided else "less than the allocated context"
        )
    rounded = actual is not None and facts.main is not None and actual == facts.main.n_ctx and actual >= asked
    return _row(
        "usable per slot",
        str(asked),
        None if actual is None else str(actual),
        slots.line if slots else None,
        note,
        same=(actual == asked or rounded) if actual is not None else None,
    )


def _slots(config: RunConfig, facts: EngineFacts) -> SettingCheck | None:
    if facts.slots and facts.slots.n_slots is not None:
        return _row("parallel slots", str(config.n_parallel), str(facts.slots.n_slots), facts.slots.line)
    return _context_number("parallel slots", config.n_parallel, facts, "n_seq_max")


def _unified(config: RunConfig, facts: EngineFacts) -> SettingCheck | None:
    if config.n_parallel == 1:
        return None
    asked = "on" if config.kv_unified else "off"
    main = facts.main
    if main is None or main.kv_unified is None:
        return _row("unified KV", asked, None, None)
    return _row("unified KV", asked, "on" if main.kv_unified else "off", main.lines.get("kv_unified"))


def _flash_attention(config: RunConfig, facts: EngineFacts) -> SettingCheck | None:
    main = facts.main
    if main is None or main.flash_attn is None:
        return _row("flash attention", config.flash_attn, None, None, "the log shows no outcome")
    actual = "on" if main.flash_attn == "enabled" else "off"
    line = main.lines.get("flash_attn")
    if config.flash_attn == "auto":
        return _row("flash attention", "auto", actual, line, "decided by the engine's own probe", same=True)
    if config.flash_attn == "off" or actual == "off":
        return _row("flash attention", config.flash_attn, actual, line)
    return _taken_as_asked(main, facts, line)


def _taken_as_asked(main: ContextFacts, facts: EngineFacts, line: int | None) -> SettingCheck:
    """`-fa on` is taken without a probe: where it is computed shows only in the splits of the graph."""
    splits = main.graph_splits
    if splits is None:
        return _row(
            "flash attention", "on", None, None, "taken without a probe, and the log shows no graph splits"
        )
    if splits <= MOST_SPLITS:
        at = main.lines.get("graph_splits", line)
        return _row(
            "flash attention", "on", "on", at, f"{splits} graph splits: computed where the layers are"
        )
    if facts.offloaded is not None and facts.offloaded[0] < facts.offloaded[1]:
        return _row(
            "flash attention", "on", None, None, f"{splits} graph splits, layers on the CPU among them"
        )
    note = f"{splits} graph splits: it is probably computed on the CPU"
    return SettingCheck(
        "flash attention", "on", "on CPU?", "differs", main.lines.get("graph_splits", line), note
    )


def _n_batch(config: RunConfig, facts: EngineFacts) -> SettingCheck | None:
    def note(actual: int) -> str:
        return "limited by the context" if actual < config.n_batch else ""

    return _context_number("batch", config.n_batch, facts, "n_batch", note)


def _n_ubatch(config: RunConfig, facts: EngineFacts) -> SettingCheck | None:
    def note(actual: int) -> str:
        return "limited by the batch" if actual < config.n_ubatch else ""

    return _context_number("micro-batch", config.n_ubatch, facts, "n_ubatch", note)


def _gpu_layers(config: RunConfig, facts: EngineFacts) -> SettingCheck | None:
    if config.n_gpu_layers is None and facts.offloaded is None:
        return None
    wanted = config.n_gpu_layers
    asked = "all" if wanted in (None, 999) else str(wanted)
    if facts.offloaded is not None:
        done, total = facts.offloaded
        same = done == total if asked == "all" else done == min(wanted or 0, total)
        return _row("layers on GPU", asked, f"{done}/{total}", facts.lines.get("offloaded"), same=same)
    if facts.model_buffers and all(on_host(b.device) for b in facts.model_buffers):
        line = facts.model_buffers[0].line
        return _row(
            "layers on GPU", asked, "0", line, "every model buffer is in host memory", same=asked == "0"
        )
    return _row("layers on GPU", asked, None, None)


def _kv_place(config: RunConfig, facts: EngineFacts) -> SettingCheck | None:
    wants_gpu = config.kv_offload and config.n_gpu_layers != 0
    asked = "GPU" if wants_gpu else "host"
    buffers = facts.main.kv_buffers if facts.main else ()
    if not buffers:
        return _row("KV placed on", asked, None, None)
    host = [b for b in buffers if on_host(b.device) and b.mib > 0]
    accelerated = [b for b in buffers if not on_host(b.device)]
    if not host:
        actual, line = "GPU", accelerated[0].line
    elif accelerated:
        actual, line = f"{sum(b.mib for b in host):,.2f} MiB on host", host[0].line
    else:
        actual, line = "host", host[0].line
    return _row("KV placed on", asked, actual, line)


def _swa_full(config: RunConfig, facts: EngineFacts) -> SettingCheck | None:
    caches = _attention_caches(facts)
    window = next((c for c in caches if c.kind == "SWA"), None)
    whole = next((c for c in caches if c.kind == "non-SWA"), None)
    if window is None or whole is None or window.cells is None or whole.cells is None:
        return None
    asked = "full" if config.swa_full else "window"
    if window.cells < whole.cells:
        return _row("SWA cache", asked, "window", window.line, f"{window.cells:,} cells")
    if config.swa_full:
        return _row("SWA cache", asked, "full", window.line, f"{window.cells:,} cells")
    return _row("SWA cache", asked, "window", window.line, "the window covers the whole context", same=True)


CHECKS: tuple[Check, ...] = (
    _type_k,
    _type_v,
    _n_ctx,
    _usable,
    _slots,
    _unified,
    _flash_attention,
    _gpu_layers,
    _kv_place,
    _n_batch,
    _n_ubatch,
    _swa_full,
)
