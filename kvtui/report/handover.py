"""The configuration that holds, in the forms in which it is put to use: each can be pasted as it stands.

Sources of the formats: systemd.service(5) and systemd.exec(5) for quoting, `%` and `$`; the Compose specification for
services, `$$` and device reservations; Ollama's Modelfile reference and its environment variables.
"""

from __future__ import annotations

import json
import os.path
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from kvtui.core.text import clean
from kvtui.engines.recipes import recipes_of
from kvtui.procedure.preset import Preset
from kvtui.procedure.preset_keys import KEYS
from kvtui.report.facts import SessionFacts
from kvtui.report.run_facts import RunFacts
from kvtui.session.codec import from_builtins

_OLLAMA_TYPES = ("f16", "q8_0", "q4_0")
_PORT = 8080


@dataclass(frozen=True, slots=True)
class Paste:
    """Something to paste: `where` says where it goes, `language` how it is written (for a code block), `notes` what
    it cannot say."""

    title: str
    where: str
    language: str
    text: str
    notes: tuple[str, ...] = ()


def pastes(session: SessionFacts) -> tuple[Paste, ...]:
    """Everything that can be pasted for the session's verdict; nothing where no configuration was proven."""
    run = session.final
    if run is None:
        return ()
    own = recipes_of(session.state.started.engine.kind, run.record.config)
    service = [Paste(r.title, r.where, r.language, "\n".join(r.lines), r.notes) for r in own]
    options = () if own else (systemd(run), compose(session, run), modelfile(run))
    return tuple(paste for paste in (*service, *options, preset(session, run)) if paste is not None)


# systemd


def systemd(run: RunFacts) -> Paste:
    """A drop-in for a unit that runs the engine."""
    lines = ["[Service]"]
    lines += [f"Environment={systemd_word(f'{n}={v}', variable=False)}" for n, v in run.record.env]
    lines += ["ExecStart=", f"ExecStart={' '.join(map(systemd_word, run.record.argv))}"]
    return Paste(
        "systemd override",
        "/etc/systemd/system/llama-server.service.d/kvtui.conf, or `systemctl edit` of your unit; then "
        "systemctl daemon-reload and a restart",
        "ini",
        "\n".join(lines),
    )


def systemd_word(word: str, *, variable: bool = True) -> str:
    """One word of a systemd setting. `%` begins a specifier everywhere, `$` a variable in a command line."""
    plain = word.replace("%", "%%")
    if variable:
        plain = plain.replace("$", "$$")
    if re.fullmatch(r"[A-Za-z0-9_./:=,+@%$-]+", plain):
        return plain
    return f'"{"".join(map(_systemd_char, plain))}"'


def _systemd_char(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if char.isprintable():
        return char
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


# Compose


def compose(session: SessionFacts, run: RunFacts) -> Paste | None:
    """A Compose service with the same options; None where the command line has no `-m MODEL` to mount."""
    options = _options(run)
    if options is None:
        return None
    model = run.record.config.model
    on_gpu = session.state.started.device.kind != "host"
    service: list[str] = [
        f"image: ghcr.io/ggml-org/llama.cpp:{'server-cuda' if on_gpu else 'server'}",
        "command:",
        "  [",
        *(f"    {', '.join(map(yaml_text, words))}," for words in _by_option(options)),
        "  ]",
    ]
    if run.record.env:
        service += ["environment:", *(f"  {yaml_text(n)}: {yaml_text(v)}" for n, v in run.record.env)]
    service += [
        "ports:",
        f'  - "127.0.0.1:{_PORT}:{_PORT}"',
        "volumes:",
        "  - type: bind",
        f"    source: {yaml_text(os.path.dirname(model) or '.')}",
        "    target: /models",
        "    read_only: true",
    ]
    if on_gpu:
        service += [
            *("deploy:", "  resources:", "    reservations:", "      devices:", "        - driver: nvidia"),
            "          device_ids:",
            f'            - "{session.state.started.device.index}"',
            "          capabilities: [gpu]",
        ]
    build = run.build or session.state.started.engine.build
    note = f"the image brings a build of its own; this was measured with build {build}" if build else ""
    return Paste(
        "Docker Compose",
        "compose.yaml, then docker compose up -d",
        "yaml",
        "\n".join(["services:", "  llama-server:", *(f"    {line}" for line in service)]),
        (note,) if note else (),
    )


def _options(run: RunFacts) -> tuple[str, ...] | None:
    """The command line behind its program, as it is in the container."""
    argv = run.record.argv
    model = run.record.config.model
    start = next(
        (i for i, word in enumerate(argv[:-1]) if word in ("-m", "--model") and argv[i + 1] == model), None
    )
    if start is None:
        return None
    words = [argv[start], f"/models/{os.path.basename(model)}", *argv[start + 2 :]]
    for option, value in (("--host", "0.0.0.0"), ("--port", str(_PORT))):  # noqa: S104 - inside the container
        if option in words[:-1]:
            words[words.index(option) + 1] = value
        else:
            words += [option, value]
    return tuple(words)


def _by_option(words: Sequence[str]) -> list[list[str]]:
    """An option and its values to a row."""
    rows: list[list[str]] = []
    for word in words:
        if rows and not re.match(r"--?[A-Za-z]", word):
            rows[-1].append(word)
        else:
            rows.append([word])
    return rows


def yaml_text(text: str) -> str:
    """`text` as a YAML string of one line, with Compose's own `$` doubled."""
    return json.dumps(clean(text, len(text) + 1).replace("$", "$$"), ensure_ascii=False)


# Ollama


def modelfile(run: RunFacts) -> Paste | None:
    """A Modelfile with the variables of the service that it needs; None where a path cannot be written in it."""
    config = run.record.config
    if not config.model.isprintable() or config.model[:1] in ('"', " ") or config.model[-1:] == " ":
        return None
    share = config.n_ctx if config.n_parallel == 1 else config.n_ctx // config.n_parallel
    lines = [
        f"FROM {config.model}",
        f"PARAMETER num_ctx {share}",
        f"PARAMETER num_batch {config.n_ubatch}",
    ]
    if config.n_gpu_layers is not None:
        lines.append(f"PARAMETER num_gpu {config.n_gpu_layers}")
    if config.threads is not None:
        lines.append(f"PARAMETER num_thread {config.threads}")
    return Paste(
        "Ollama Modelfile",
        "a file called Modelfile, then ollama create NAME -f Modelfile",
        "text",
        "\n".join(lines),
        tuple(_ollama_notes(run, share)),
    )


def _ollama_notes(run: RunFacts, share: int) -> Iterator[str]:
    config = run.record.config
    variables = [f"OLLAMA_NUM_PARALLEL={config.n_parallel}"]
    if run.flash_attn is not None:
        variables.append(f"OLLAMA_FLASH_ATTENTION={int(run.flash_attn == 'enabled')}")
    if config.type_k == config.type_v and config.type_k in _OLLAMA_TYPES:
        variables.append(f"OLLAMA_KV_CACHE_TYPE={config.type_k}")
    yield f"the service itself needs: {' '.join(variables)}"
    if config.type_k != config.type_v:
        yield f"Ollama has one type for keys and values: {config.kv_types} cannot be set"
    elif config.type_k not in _OLLAMA_TYPES:
        yield f"Ollama knows {', '.join(_OLLAMA_TYPES)}: {config.kv_types} cannot be set"
    if config.n_parallel > 1:
        yield f"num_ctx is the context of one request: {share} for each of {config.n_parallel}"
    if config.n_batch != config.n_ubatch:
        yield "num_batch sets batch and micro-batch alike"


# The preset


def preset(session: SessionFacts, run: RunFacts) -> Paste | None:
    """A preset that aims at what was proven; None when the session's plan is none that this version knows."""
    try:
        plan: Preset = from_builtins(session.state.started.plan, Preset)
    except (msgspec.ValidationError, ValueError):
        return None
    config = run.record.config
    target = config.n_ctx
    plan = replace(
        plan,
        target_context=target,
        stages=tuple(dict.fromkeys([*(s for s in plan.stages if s < target), target])),
        kv_type=config.type_k if config.type_k == config.type_v else plan.kv_type,
        n_parallel=config.n_parallel,
        kv_unified=config.kv_unified,
        n_batch=config.n_batch,
        n_ubatch=config.n_ubatch,
        swa_full=config.swa_full,
    )
    notes: tuple[str, ...] = ()
    if config.type_k != config.type_v:
        notes = (f"step 3 tries one type for both; {config.kv_types} comes from step 5",)
    return Paste(
        "kvtui preset",
        "a file such as mine.toml, then kvtui tune -m MODEL --preset ./mine.toml",
        "toml",
        preset_toml(plan),
        notes,
    )


def preset_toml(plan: Preset) -> str:
    """`plan` as the TOML that `load_preset` reads."""
    blocks = []
    for table, keys in KEYS.items():
        values = {key: getattr(plan, spec.field) for key, spec in keys.items()}
        lines = [f"{key} = {_toml(value)}" for key, value in values.items() if value not in (None, "")]
        if lines:
            blocks.append("\n".join([f"[{table}]", *lines] if table else lines))
    return "\n\n".join(blocks)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(clean(value), ensure_ascii=False)
    return f"[{', '.join(map(_toml, value))}]" if isinstance(value, Sequence) else repr(value)
