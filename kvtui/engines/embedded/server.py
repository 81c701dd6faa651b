"""The embedded engine: llama.cpp in one Python process, behind llama-server's own option names.

`python -m kvtui.engines.embedded -m model.gguf -c 4096 ..` stands in for `llama-server` where no such
program is installed. Log lines and HTTP answers are the engine's own; only the command line is ours, and it
says the same things in the same words. Environment variables (`LLAMA_ARG_*`) are not read.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sys
from importlib import metadata
from typing import Any

from kvtui.engines.embedded.options import ArgumentError, Options, help_text, parse

PACKAGE = "xllamacpp"
_NOT_INSTALLED = "the embedded engine is not installed: pip install 'kvtui[demo]'"
_CLEAN_UP_LIMIT_S = 2.0


def build_number(version: str) -> str:
    """llama.cpp's build in the package's version: `2026.10.11549` -> `11549`, `0` where it holds none."""
    last = version.rsplit(".", 1)[-1]
    return last if last.isdecimal() else "0"


def main(argv: list[str]) -> int:
    """Serve until TERM or INT. Exit status 1 with one line on stderr for what cannot be done."""
    try:
        options = parse(argv)
    except ArgumentError as error:
        return _refuse(str(error))
    if options.help:
        sys.stdout.write(help_text())
        return 0
    try:
        version = metadata.version(PACKAGE)
        import xllamacpp as engine
    except ImportError:
        return _refuse(_NOT_INSTALLED)
    info = engine.BUILD_INFO
    build = build_number(version)
    if options.version:
        sys.stdout.write(f"version: {build} ({info['commit']})\n")
        sys.stdout.write(f"built with {info['compiler']} for {info['build_target']} ({PACKAGE} {version})\n")
        return 0
    # The wheel is built without its number and would print `build 0 (unknown)` as all there is.
    sys.stderr.write(
        f"build: {build} ({info['commit']}) with {info['compiler']} for {info['build_target']}\n"
    )
    sys.stderr.flush()
    return _serve(engine, options)


def _refuse(line: str) -> int:
    sys.stderr.write(line + "\n")
    return 1


def _serve(engine: Any, options: Options) -> int:
    # Loading does not let Python run signal handlers: until it is done the default action ends the process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        server = engine.Server(_common_params(engine, options))
    except RuntimeError:
        return 1  # the engine's own log says why
    _await_signal()
    # The engine's destructor waits for open connections for ever, and prints the last memory figures.
    if _is_idle(options):
        signal.setitimer(signal.ITIMER_REAL, _CLEAN_UP_LIMIT_S)
        del server
    sys.stderr.flush()
    os._exit(0)


def _common_params(engine: Any, options: Options) -> Any:
    flash = engine.llama_flash_attn_type
    params = engine.CommonParams()
    params.model.path = options.model
    params.n_ctx = options.ctx_size
    params.cache_type_k = _ggml_type(engine, options.cache_type_k)
    params.cache_type_v = _ggml_type(engine, options.cache_type_v)
    params.flash_attn_type = {
        "auto": flash.LLAMA_FLASH_ATTN_TYPE_AUTO,
        "off": flash.LLAMA_FLASH_ATTN_TYPE_DISABLED,
        "on": flash.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    }[options.flash_attn]
    params.n_parallel = options.parallel
    params.kv_unified = options.kv_unified
    params.n_batch = options.batch_size
    params.n_ubatch = options.ubatch_size
    params.n_gpu_layers = options.gpu_layers
    params.cpuparams.n_threads = options.threads
    params.hostnames = [options.host]
    params.port = options.port
    params.verbosity = options.verbosity
    params.fit_params = options.fit
    params.swa_full = options.swa_full
    params.no_kv_offload = not options.kv_offload
    params.cache_ram_mib = options.cache_ram
    params.n_ctx_checkpoints = options.ctx_checkpoints
    params.endpoint_metrics = options.metrics
    params.endpoint_slots = options.slots
    params.warmup = options.warmup
    params.cache_prompt = options.cache_prompt
    return params


def _ggml_type(engine: Any, name: str) -> Any:
    return getattr(engine.ggml_type, f"GGML_TYPE_{name.upper()}")


def _await_signal() -> None:
    """Return on TERM or INT, whichever of the engine's threads the kernel hands it to."""
    wake, woken = socket.socketpair()
    woken.setblocking(False)
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda *_: None)
    wake.recv(1)


def _is_idle(options: Options) -> bool:
    connection = http.client.HTTPConnection(options.host, options.port, timeout=0.3)
    try:
        connection.request("GET", "/slots")
        slots = json.loads(connection.getresponse().read())
        return not any(slot["is_processing"] for slot in slots)
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
        return False
    finally:
        connection.close()
