"""Stands in for the Ollama program: `serve`, `serve --help`, `--version`, and the runner that it starts for a model.

The lines it prints and the shapes it answers with are those of real logs, for two eras (`FAKE_OLLAMA_ERA`): `0.33`,
whose runner is a llama-server with a tokenizer, and `0.12`, whose runner says everything in its load request. The model
is tests/tiny_model.py's `llama`: 2 layers, 1 KV head of 64. `FAKE_OLLAMA_FAULT` names what goes wrong while it loads, a
prompt that begins with `fault: ` what goes wrong with the answer.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

ERA = os.environ.get("FAKE_OLLAMA_ERA", "0.33")
FAULT = os.environ.get("FAKE_OLLAMA_FAULT", "")
VERSION = {"0.33": "0.33.0", "0.12": "0.12.3"}[ERA]
N_LAYER, HEAD = 2, 64
BYTES = {"f16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}
HELP = """Start Ollama

Usage:
  ollama serve [flags]

Environment Variables:
      OLLAMA_DEBUG               Show additional debug information (e.g. OLLAMA_DEBUG=1)
      OLLAMA_HOST                IP Address for the ollama server (default 127.0.0.1:11434)
      OLLAMA_CONTEXT_LENGTH      Context length to use unless otherwise specified (default: 4096)
      OLLAMA_KEEP_ALIVE          The duration that models stay loaded in memory (default "5m")
      OLLAMA_MODELS              The path to the models directory
      OLLAMA_NUM_PARALLEL        Maximum number of parallel requests
      OLLAMA_FLASH_ATTENTION     Enabled flash attention
      OLLAMA_KV_CACHE_TYPE       Quantization type for the K/V cache (default: f16)
"""
RUNNER = """\
srv    load_model: loading model '{blob}'
load_tensors:          CPU model buffer size =     0.33 MiB
llama_context: constructing llama_context
llama_context: n_seq_max             = {np}
llama_context: n_ctx                 = {ctx}
llama_context: n_ctx_seq             = {share}
llama_context: n_batch               = {batch}
llama_context: n_ubatch              = {batch}
llama_context: causal_attn           = 1
llama_context: flash_attn            = {fa}
llama_context: kv_unified            = false
llama_context:        CPU  output buffer size =     0.00 MiB
llama_kv_cache:        CPU KV buffer size = {size:8.2f} MiB
llama_kv_cache: size = {size:7.2f} MiB ({share:6d} cells,   2 layers,  {np}/{np} seqs), \
K ({kv}): {half:7.2f} MiB, V ({kv}): {half:7.2f} MiB
sched_reserve:        CPU compute buffer size =     1.64 MiB
sched_reserve: graph: nodes = 322, splits = 1, input objects = 4, input tensors = 17
srv    load_model: initializing, n_slots = {np}, n_ctx_slot = {share}, kv_unified = 'false'
slot   load_model: id  0 | task -1 | new slot, n_ctx = {share}"""


def say(text: str) -> None:
    """A line of the log."""
    print(text, file=sys.stderr, flush=True)


def record(source: str, text: str, level: str = "INFO") -> None:
    """A record of Ollama's own."""
    say(f"time=2026-11-30T01:24:45.137Z level={level} source={source} msg={text}")


def setting(name: str, default: str = "") -> str:
    """A variable of the daemon."""
    return os.environ.get(f"OLLAMA_{name}", default)


def pieces_of(text: str) -> list[str]:
    """What a token is here: four characters of a line, or its end."""
    return re.findall(r"[^\n]{1,4}|\n", text)


class Daemon:
    """The loaded model: its options and its runner."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}
        self.runner: subprocess.Popen[bytes] | None = None

    def load(self, model: str, options: dict[str, Any]) -> str | None:
        """Load it, again where the options that count are others. Returns what goes wrong."""
        counting = {name: options.get(name) for name in ("num_ctx", "num_batch", "num_gpu")}
        if self.runner is not None and self.runner.poll() is None and counting == self.options:
            return None
        self.end()
        self.options = counting
        blob = blob_of(model)
        if FAULT == "oom":
            record(
                "server.go:1030",
                '"model request too large for system" requested="9.0 GiB" available="4.8 GiB" total="7.6 GiB" '
                'free="4.8 GiB" swap="0 B"',
                "WARN",
            )
            return "model requires more system memory (9.0 GiB) than is available (4.8 GiB)"
        if FAULT == "hang":
            time.sleep(60)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        command = [sys.executable, __file__, "runner", "--model", str(blob), "--port", port]
        self.runner = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.runner.stdout is not None
        self.runner.stdout.readline()
        self.runner.stdout.close()
        if FAULT == "crash-at-load":
            self.runner.kill()
            record("server.go:444", '"llama runner terminated" error="signal: killed"', "ERROR")
            return "llama runner process has terminated: signal: killed"
        (self._said_033 if ERA == "0.33" else self._said_012)(blob, port)
        return None

    def end(self) -> None:
        """End the runner."""
        if self.runner is not None:
            self.runner.kill()
            self.runner.wait()

    def _said_033(self, blob: Path, port: str) -> None:
        parallel = int(setting("NUM_PARALLEL", "1"))
        kv, share = setting("KV_CACHE_TYPE", "f16"), self.options["num_ctx"]
        half = parallel * share * HEAD * N_LAYER * BYTES[kv] / 2**20
        fa = {"1": "on", "0": "off"}.get(setting("FLASH_ATTENTION"), "auto")
        batch = self.options["num_batch"]
        types = f" --cache-type-k {kv} --cache-type-v {kv}" if kv else ""
        record(
            "llama_server.go:433",
            f'"starting llama-server" cmd="/usr/lib/ollama/llama-server --model {blob} --port {port} '
            f"--host 127.0.0.1 --no-webui --offline -c {share * parallel} -np {parallel} --log-verbosity 4 "
            f'--no-log-prefix --no-log-timestamps{types} --flash-attn {fa} -b {batch} -ub {batch} -ngl 0"',
        )
        values = {
            "blob": blob,
            "np": parallel,
            "ctx": share * parallel,
            "share": share,
            "batch": batch,
            "kv": kv,
        }
        say(RUNNER.format(**values, fa=fa.replace("on", "enabled"), half=half, size=2 * half))
        record("llama_server.go:1381", '"llama-server started in 0.85 seconds"')

    def _said_012(self, blob: Path, port: str) -> None:
        parallel, share = int(setting("NUM_PARALLEL", "1")), self.options["num_ctx"]
        kv, fa = setting("KV_CACHE_TYPE"), setting("FLASH_ATTENTION") == "1"
        if kv not in ("", "f16") and not fa:
            record(
                "server.go:217",
                f'"quantized kv cache requested but flash attention disabled" type={kv}',
                "WARN",
            )
        kv = kv if fa else ""
        record(
            "server.go:392", f'"starting runner" cmd="/usr/bin/ollama runner --ollama-engine --port {port}"'
        )
        record(
            "server.go:392",
            f'"starting runner" cmd="/usr/bin/ollama runner --ollama-engine --model {blob} --port {port}"',
        )
        record("server.go:653", '"loading model" "model layers"=3 requested=0')
        for operation in ("fit", "commit"):
            record(
                "runner.go:1222",
                f'load request="{{Operation:{operation} LoraPath:[] Parallel:{parallel} '
                f"BatchSize:{self.options['num_batch']} FlashAttention:{str(fa).lower()} "
                f"KvSize:{share * parallel} KvCacheType:{kv} NumThreads:2 GPULayers:[] MultiUserCache:false "
                'ProjectorPath: MainGPU:0 UseMmap:false}"',
            )
        size = 2 * parallel * share * HEAD * N_LAYER * BYTES[kv or "f16"]
        record("device.go:245", '"model weights" device=CPU size="334.5 KiB"')
        record("device.go:256", f'"kv cache" device=CPU size="{size / 1024:.1f} KiB"')
        record("device.go:267", '"compute graph" device=CPU size="1.6 MiB"')
        record("ggml.go:494", '"offloaded 0/3 layers to GPU"')
        record("server.go:1310", '"llama runner started in 0.95 seconds"')


def blob_of(model: str) -> Path:
    """The file of a model in the store."""
    name, _, tag = model.partition(":")
    store = Path(setting("MODELS"))
    manifest = store / "manifests" / "registry.ollama.ai" / "library" / name / (tag or "latest")
    digest = str(json.loads(manifest.read_text())["layers"][0]["digest"])
    return store / "blobs" / digest.replace(":", "-")


class Handler(BaseHTTPRequestHandler):
    """The daemon's API."""

    daemon = Daemon()

    def log_message(self, format: str, *args: Any) -> None:
        """The log is Ollama's."""

    def do_GET(self) -> None:
        self.answer({"version": VERSION} if self.path == "/api/version" else {"models": []})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/api/chat":
            said = body["messages"][0]["content"]
            self.answer(
                {"_debug_info": {"rendered_template": f"<|user|>\n{said}\n<|assistant|>\n"}, "done": False}
                if body.get("_debug_render_only") and not said.startswith("fault: ")
                else {"message": {"role": "assistant", "content": "hello"}, "done": True}
            )
            return
        if body.get("keep_alive") == 0:
            self.daemon.end()
            self.answer({"model": body["model"], "response": "", "done": True, "done_reason": "unload"})
            return
        try:
            problem = self.daemon.load(body["model"], body["options"])
        except OSError:
            self.answer({"error": f"model '{body['model']}' not found"}, 404)
            return
        if problem is not None:
            self.answer({"error": problem}, 500)
        elif not body.get("prompt"):
            self.answer({"model": body["model"], "response": "", "done": True, "done_reason": "load"})
        else:
            self.generate(body)

    def generate(self, body: dict[str, Any]) -> None:
        """Stream an answer: the text `a b c ..`, or what the fault makes of it."""
        options, text = body["options"], body["prompt"]
        read = len(pieces_of(text)) + 1
        fault = text.split()[1] if text.startswith("fault: ") else ""
        if fault == "crash" and self.daemon.runner is not None:
            self.daemon.end()
            self.answer({"error": "llama runner process has terminated: signal: killed"}, 500)
            return
        if fault == "reload":
            self.daemon.end()
            self.daemon.load(body["model"], options)
        if read > options["num_ctx"]:
            if ERA == "0.33" and not body.get("truncate", True):
                inner = {
                    "code": 400,
                    "message": f"request ({read} tokens) exceeds the available context size "
                    f"({options['num_ctx']} tokens), try increasing it",
                    "type": "exceed_context_size_error",
                    "n_prompt_tokens": read,
                    "n_ctx": options["num_ctx"],
                }
                self.answer({"error": json.dumps({"error": inner}, separators=(",", ":"))}, 400)
                return
            record(
                "runner.go:122",
                f'"truncating input prompt" limit={options["num_ctx"]} prompt={read} keep=4 '
                f"new={options['num_ctx']}",
                "WARN",
            )
            read = options["num_ctx"]
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.end_headers()
        count = options["num_predict"]
        self.pieces(body["model"], 10**6 if fault == "endless" else count, fault)
        if fault not in ("broken-off", "repeat"):
            self.line({
                "model": body["model"], "response": "", "done": True, "done_reason": "length",
                "total_duration": 290936144, "load_duration": 1447514, "prompt_eval_count": read,
                "prompt_eval_duration": read * 1_000_000, "eval_count": count,
                "eval_duration": count * 10_000_000,
            })  # fmt: skip

    def pieces(self, model: str, count: int, fault: str) -> None:
        """The records with text."""
        for i in range(count):
            if fault == "garbage" and i == 1:
                self.wfile.write(b"\x00{not json\n")
            if fault == "broken-off":
                return
            if fault == "slow" and i == 1:
                time.sleep(30)
            try:
                self.line({"model": model, "response": f" {chr(97 + i % 26)}", "done": False})
            except OSError:
                return

    def line(self, value: dict[str, Any]) -> None:
        """One record of a stream."""
        self.wfile.write(json.dumps(value).encode() + b"\n")

    def answer(self, value: dict[str, Any], status: int = 200) -> None:
        """A whole answer."""
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Runner(BaseHTTPRequestHandler):
    """What a llama-server says about tokens: its pieces, numbered in the order of their first use."""

    pieces: ClassVar[dict[str, int]] = {}

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if ERA != "0.33":
            self.send_error(404)
            return
        if self.path == "/tokenize":
            texts = pieces_of(body["content"])
            ids = [self.pieces.setdefault(text, 10 + len(self.pieces)) for text in texts]
            value: dict[str, Any] = {"tokens": [1, *ids] if body["add_special"] else ids}
        else:
            texts = list(self.pieces)
            value = {"content": "".join("<s>" if i == 1 else texts[i - 10] for i in body["tokens"])}
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def serve() -> None:
    """The daemon, until it is ended."""
    names = ("CONTEXT_LENGTH", "FLASH_ATTENTION", "HOST", "KV_CACHE_TYPE", "MODELS", "NUM_PARALLEL")
    shown = " ".join(f"OLLAMA_{name}:{setting(name)}" for name in names)
    record("routes.go:1951", f'"server config" env="map[CUDA_VISIBLE_DEVICES: {shown} http_proxy:]"')
    if FAULT == "refuses":
        say("Error: listen tcp 127.0.0.1: bind: permission denied")
        sys.exit(1)
    host, _, port = setting("HOST").rpartition(":")
    server = ThreadingHTTPServer((host, int(port)), Handler)
    record("routes.go:2008", f'"Listening on {host}:{port} (version {VERSION})"')
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        server.serve_forever()
    finally:
        Handler.daemon.end()


def run_model() -> None:
    """The runner: says its port and waits to be asked or ended."""
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[-1])), Runner)
    print("listening", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", "--help"]:
            listed = (
                "      LLAMA_ARG_FIT              Enable llama.cpp automatic fit\n" if ERA == "0.33" else ""
            )
            print(HELP + listed)
        case ["--version"]:
            print(
                f"Warning: could not connect to a running Ollama instance\nWarning: client version is {VERSION}"
            )
        case ["serve"]:
            serve()
        case ["runner", *_]:
            run_model()
