"""llama.cpp as it prints today (b11434 to b11549): start-up, model and contexts.

The function name before a line's text is free text here, as it moved more than once. Levels and the KV
lines: `-lv 4`; at the default level only the server's own lines and warnings exist.
"""

from __future__ import annotations

import re

from kvtui.logs.draft import MAX_BUFFERS, MAX_KEPT, Draft
from kvtui.logs.facts import BufferFacts, CacheFacts, DeviceFacts
from kvtui.logs.rules import number, rule

_HEADER = ("n_ctx", "n_ctx_seq", "n_seq_max", "n_batch", "n_ubatch", "n_rs_seq")
_OPENINGS = ("llama_server: initializing ...", "init: initializing ...", "ggml_cuda_init: found", "build: ")
_PROJECTOR = re.compile(r"_compute_meta|\bclip\b|\bclip_|mtmd|whisper|vocoder")
_CONTEXT = r"(?:llama_context|llama_new_context_with_model|llama_init_from_model): "
_FLASH = {"enabled": "enabled", "1": "enabled", "disabled": "disabled", "0": "disabled", "auto": "auto"}


def _new_launch(d: Draft, m: re.Match[str]) -> None:
    if d.has_begun and d.engine != "ollama":
        d.new_launch()
    d.claim("llama.cpp")
    d.opened_by = d.opened_by or next((t for t in _OPENINGS if t in m.string), "")


def _build(d: Draft, m: re.Match[str]) -> None:
    _new_launch(d, m)
    if m["number"] != "0":
        d.fact("build", f"b{m['number']}")
    if m["commit"] != "unknown":
        d.fact("commit", m["commit"])
    if compiler := m.groupdict().get("compiler"):
        d.fact("compiler", compiler.strip())


def _device(d: Draft, m: re.Match[str]) -> None:
    found = m.groupdict()
    old = d.devices.get(m["name"])
    if old is None and len(d.devices) >= MAX_KEPT:
        return
    d.devices[m["name"]] = DeviceFacts(
        m["name"],
        m["what"].strip(),
        int(found["total"]) if found.get("total") else (old.total_mib if old else None),
        int(m["free"]),
        d.here(),
    )


def _fit_begins(d: Draft, m: re.Match[str]) -> None:
    d.stage = "fit"


def _fit_ends(d: Draft, m: re.Match[str]) -> None:
    d.stage = "startup"


def _fit_failed(d: Draft, m: re.Match[str]) -> None:
    d.stage = "startup"
    if not d.model_buffers:
        d.failures.clear()  # what the measuring ran into is no failure of the load that follows
    d.note("fit-failed", m[1])


def _model_begins(d: Draft, m: re.Match[str]) -> None:
    if d.stage == "fit":
        return
    if d.engine == "ollama":
        pass  # its loads begin with a runner's start; more metadata is a look at the vocabulary
    elif d.outcome != "unknown":
        d.new_launch()
    elif any(c.launch == d.launch for c in d.real_contexts()):
        d.next_role = "draft"
    d.stage = "weights"
    d.memory["no_alloc"] = False


def _no_alloc(d: Draft, m: re.Match[str]) -> None:
    d.memory["no_alloc"] = m[1] == "1"


def add_model_buffer(d: Draft, m: re.Match[str]) -> None:
    if d.stage == "fit" or d.memory.get("no_alloc") or d.next_role != "main":
        return
    d.stage = "weights"
    if len(d.model_buffers) < MAX_BUFFERS:
        d.model_buffers.append(BufferFacts(m["device"], number(m["mib"]), d.here()))


def _offloaded(d: Draft, m: re.Match[str]) -> None:
    if d.stage != "fit" and not d.memory.get("no_alloc") and d.next_role == "main":
        d.fact("offloaded", (int(m[1]), int(m[2])))


def _context_begins(d: Draft, m: re.Match[str]) -> None:
    d.open_context().dry_run |= bool(d.memory.get("no_alloc"))


def _header(d: Draft, m: re.Match[str]) -> None:
    header_value(d, m["name"], int(m["value"]))


def header_value(d: Draft, name: str, value: int) -> None:
    """A value of a context's header: a second one of the same name begins another context."""
    context = d.need_context()
    if name in context.values or context.caches or context.kv_buffers or context.compute:
        context = d.open_context()
        context.dry_run |= bool(d.memory.get("no_alloc"))
    d.set_value(context, name, value)


def _unified(d: Draft, m: re.Match[str]) -> None:
    d.set_value(d.need_context(), "kv_unified", m[1] == "true")


def _flash_header(d: Draft, m: re.Match[str]) -> None:
    context, state = d.need_context(), _FLASH[m[1]]
    d.set_value(context, "flash_attn_requested", state)
    if state != "auto":
        d.set_value(context, "flash_attn", state)


def flash_outcome(d: Draft, m: re.Match[str]) -> None:
    d.set_value(d.need_context(), "flash_attn", m["state"])


def _train_length(d: Draft, m: re.Match[str]) -> None:
    context = d.need_context()
    if "n_ctx_train" in context.values:
        context = d.open_context()
    d.set_value(context, "n_ctx_train", int(m["train"]))
    if "n_ctx_seq" not in context.values:
        d.set_value(context, "n_ctx_seq", int(m["seq"]))
    if m["sign"] in (">", "&gt;"):
        d.note("above-trained-length", m["seq"], m["train"])


def _cache_kind(d: Draft, m: re.Match[str]) -> None:
    kind = m["kind"].strip()
    d.memory["kind"] = "full" if kind == "main" else kind


def _cache(d: Draft, m: re.Match[str]) -> None:
    context = d.need_context()
    if context.is_full:
        return
    context.caches.append(
        CacheFacts(
            kind=d.memory.pop("kind", "full"),
            cells=int(m["cells"]),
            layers=int(m["layers"]),
            streams=int(m["streams"] or 1),
            type_k=m["type_k"],
            type_v=m["type_v"],
            k_mib=number(m["k"]),
            v_mib=number(m["v"]) if m["v"] else None,
            size_mib=number(m["size"]),
            line=d.here(),
        )
    )


def _recurrent(d: Draft, m: re.Match[str]) -> None:
    context = d.need_context()
    if context.is_full:
        return
    context.caches.append(
        CacheFacts(
            kind="recurrent",
            cells=int(m["cells"]),
            layers=int(m["layers"]),
            type_r=m["type_r"],
            r_mib=number(m["r"]),
            type_s=m["type_s"],
            s_mib=number(m["s"]),
            size_mib=number(m["size"]),
            line=d.here(),
        )
    )
    if m["rs_seq"]:
        d.note("recurrent-rows", m["seqs"], m["rs_seq"])


def _kv_buffer(d: Draft, m: re.Match[str]) -> None:
    context = d.need_context()
    if d.stage != "fit":
        d.stage = "kv"
    if not context.is_full:
        context.kv_buffers.append(BufferFacts(m["device"], number(m["mib"]), d.here()))


def _rs_buffer(d: Draft, m: re.Match[str]) -> None:
    if d.stage != "fit":
        d.stage = "recurrent"
    context = d.need_context()
    if not context.is_full:
        context.rs_buffers.append(BufferFacts(m["device"], number(m["mib"]), d.here()))


def _compute_buffer(d: Draft, m: re.Match[str]) -> None:
    if d.stage == "mmproj" or _PROJECTOR.search(m.string):
        return
    context, device = d.need_context(), m["device"]
    several = sum(c.launch == d.launch for c in d.real_contexts()) > 1
    if d.stage == "ready" and several and device in context.compute:
        return  # one of the contexts was reserved anew, and the log does not say which
    if device in context.compute or len(context.compute) < MAX_KEPT:
        context.compute[device] = BufferFacts(device, number(m["mib"]), d.here())


def _output_buffer(d: Draft, m: re.Match[str]) -> None:
    context, device = d.need_context(), m["device"]
    if device in context.output or len(context.output) < MAX_KEPT:
        context.output[device] = BufferFacts(device, number(m["mib"]), d.here())


def _splits(d: Draft, m: re.Match[str]) -> None:
    if context := d.context:
        d.set_value(context, "graph_splits", int(m["splits"]))


def _reserving(d: Draft, m: re.Match[str]) -> None:
    if d.stage not in ("fit", "ready"):
        d.stage = "compute"


def _projector(d: Draft, m: re.Match[str]) -> None:
    if d.stage != "fit":
        d.stage = "mmproj"


def _projector_done(d: Draft, m: re.Match[str]) -> None:
    if d.stage == "mmproj":
        d.stage = "startup"


def _mtp(d: Draft, m: re.Match[str]) -> None:
    d.next_role = "mtp"


def _draft_model(d: Draft, m: re.Match[str]) -> None:
    d.next_role = "draft"


def _system_info(d: Draft, m: re.Match[str]) -> None:
    d.fact("system_info", m[1].strip())


_SIZE = r"size\s*=\s*(?P<size>\d+[.,]\d+)\s*MiB\s*\(\s*(?P<cells>\d+)\s*cells,\s*(?P<layers>\d+)\s*layers,"
BUFFER = r"(?P<device>[\w.:\[\]/-]+)\s+%s buffer size\s*=\s*(?P<mib>\d+[.,]\d+)\s*MiB"

LOADING = "load_model: loading model '"
"""What every start of a server says, at every verbosity."""

RULES = (
    rule("initializing ...", r"(?:llama_server|init): initializing \.\.\.", _new_launch),
    rule("ggml_cuda_init: found", "", _new_launch),
    rule("loading model '", LOADING, _new_launch),
    rule(
        "build", r"\bbuild:? (?P<number>\d+) \((?P<commit>\w+)\) with (?P<compiler>.+?)(?: for .+)?$", _build
    ),
    rule("build_info", r"build_info: b(?P<number>\d+)-(?P<commit>\w+)", _build),
    rule("system_info", r"system_info: (.+)", _system_info),
    rule(
        "MiB free",
        r"- (?P<name>\S+)\s*: (?P<what>.+) \((?P<total>\d+) MiB, (?P<free>\d+) MiB free\)",
        _device,
    ),
    rule(
        "using device",
        r"using device (?P<name>\S+) \((?P<what>.+?)\)(?: \(.+\))? - (?P<free>\d+) MiB free",
        _device,
    ),
    rule("getting device memory data", "", _fit_begins),
    rule("successfully fit params", "", _fit_ends),
    rule(
        "to fit params to free",
        r"(?:failed|error while trying) to fit params to free device memory: (.+)",
        _fit_failed,
    ),
    rule("loaded meta data", "", _model_begins),
    rule("no_alloc", r"print_info: no_alloc\s*= (\d)", _no_alloc),
    rule("model buffer", BUFFER % "model", add_model_buffer),
    rule("offloaded", r"offloaded (\d+)/(\d+) layers to GPU", _offloaded),
    rule("constructing llama_context", "", _context_begins),
    rule(": n_", rf"{_CONTEXT}(?P<name>{'|'.join(_HEADER)})\s*= (?P<value>\d+)\b(?![.>…])", _header),
    rule("kv_unified", _CONTEXT + r"kv_unified\s*= (true|false)\b", _unified),
    rule("flash_attn", _CONTEXT + r"flash_attn\s*= (enabled|disabled|auto|0|1)\b", _flash_header),
    rule("Flash Attention", r": Flash Attention (?P<state>enabled|disabled)\b", flash_outcome),
    rule("Flash Attention", r": Flash Attention not supported, set to (?P<state>disabled)\b", flash_outcome),
    rule(
        "n_ctx_train",
        r"n_ctx_(?:per_)?seq \((?P<seq>\d+)\) (?P<sign>[<>]|&lt;|&gt;) n_ctx_train \((?P<train>\d+)\)",
        _train_length,
    ),
    rule("KV cache, size", r"creating\s+(?P<kind>.+?) KV cache, size =", _cache_kind),
    rule("KV buffer", BUFFER % "KV", _kv_buffer),
    rule(
        "cells,",
        _SIZE + r"\s*\d+(?:/\s*(?P<streams>\d+))?\s*seqs\),"
        r"\s*K\s*\((?P<type_k>\w+)\):\s*(?P<k>\d+[.,]\d+)\s*MiB,\s*V\s*\((?P<type_v>\w+)\):\s*(?:(?P<v>\d+[.,]\d+)\s*MiB)?",
        _cache,
    ),
    rule(
        "cells,",
        _SIZE + r"\s*(?P<seqs>\d+)\s*seqs(?:\s+(?P<rs_seq>\d+)\s*rs_seq)?\),"
        r"\s*R\s*\((?P<type_r>\w+)\):\s*(?P<r>\d+[.,]\d+)\s*MiB,\s*S\s*\((?P<type_s>\w+)\):\s*(?P<s>\d+[.,]\d+)\s*MiB",
        _recurrent,
    ),
    rule("RS buffer", BUFFER % "RS", _rs_buffer),
    rule("sched_reserve: reserving", "", _reserving),
    rule("compute buffer size", BUFFER % "compute", _compute_buffer),
    rule("output buffer", BUFFER % "output", _output_buffer),
    rule("splits", r": graph(?:: nodes = [^,]+,| ) ?splits\s*= (?P<splits>\d+)", _splits),
    rule("clip_", r"\bclip_(?:model_loader|ctx|init)", _projector),
    rule("loaded multimodal model", "", _projector_done),
    rule("MTP draft context", r"creating MTP draft context", _mtp),
    rule("loading draft model", "", _draft_model),
)
