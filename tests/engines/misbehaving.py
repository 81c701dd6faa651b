"""A server with llama-server's options that misbehaves as it is told: `python misbehaving.py MODE [options]`."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HELP = """----- common params -----

-h,    --help, --usage                  print usage and exit
-c,    --ctx-size N                     size of the prompt context (default: 0, 0 = loaded from model)
-fa,   --flash-attn [on|off|auto]       set Flash Attention use ('on', 'off', or 'auto', default: 'auto')
-ctk,  --cache-type-k TYPE              KV cache data type for K
                                        allowed values: f32, f16, q8_0
                                        (default: f16)
-m,    --model FNAME                    model path to load
-lv,   --verbosity, --log-verbosity N   Set the verbosity threshold.
--host HOST                             ip address to listen
--port PORT                             port to listen (default: 8080)
"""


REFUSALS: dict[str, tuple[int, dict[str, object]]] = {
    "context-too-small": (
        400,
        {
            "message": "request (1802 tokens) exceeds the available context size (512 tokens), try increasing it",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 1802,
            "n_ctx": 512,
        },
    ),
    "pool-full": (500, {"message": "Context size has been exceeded.", "type": "server_error"}),
    "loads-again": (503, {"message": "Loading model", "type": "unavailable_error"}),
    "unknown-endpoint": (404, {"message": "File Not Found", "type": "not_found_error"}),
    "wants-a-key": (401, {"message": "Invalid API Key", "type": "authentication_error"}),
}


class Handler(BaseHTTPRequestHandler):
    """Answers as `mode` says."""

    mode = ""
    prefix = ""

    def address_string(self) -> str:
        """A unix socket's clients have none."""
        return "client"

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        if not self._allowed():
            return
        if self.mode == "never-ready":
            self._json(503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}})
        else:
            self._json(200, {"status": "ok"})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self._allowed():
            return
        if self.mode == "dies-and-is-restarted":
            die(signal.SIGKILL)
        if self.mode == "dies-in-prefill":
            say("CUDA error: out of memory")
            die(signal.SIGABRT)
        if self.mode == "dies-in-decode":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'data: {"content":"a","tokens":[5],"stop":false,"tokens_predicted":1}\n\n')
            self.wfile.flush()
            die(signal.SIGKILL)
        if self.mode in REFUSALS:
            status, error = REFUSALS[self.mode]
            self._json(status, {"error": {"code": status, **error}})
            return
        if self.mode == "garbage":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"data: <html>login</html>\n\n")
            return
        if self.mode in ("endless", "hangs-in-generation"):
            self._stream()
            return
        self._json(500, {"error": {"message": "nothing here", "type": "server_error", "code": 500}})

    def _stream(self) -> None:
        """Tokens without end, or one and then nothing."""
        self.send_response(200)
        self.end_headers()
        for number in range(1, 1_000_000):
            event = {"content": "a", "tokens": [5], "stop": False, "tokens_predicted": number}
            try:
                self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
                self.wfile.flush()
            except OSError:
                return
            if self.mode == "hangs-in-generation":
                time.sleep(600)

    def _allowed(self) -> bool:
        """The key is asked for everywhere but at /health, as llama-server does; paths begin with the prefix."""
        if not self.path.startswith(self.prefix):
            self._json(404, {"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}})
            return False
        key = os.environ.get("LLAMA_API_KEY")
        if key and not self.path.endswith("/health") and self.headers.get("Authorization") != f"Bearer {key}":
            message = {"message": "Invalid API Key", "type": "authentication_error", "code": 401}
            self._json(401, {"error": message})
            return False
        return True

    def _json(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def die(number: signal.Signals) -> None:
    """End by a signal, and do nothing until it arrives."""
    os.kill(os.getpid(), number)
    time.sleep(60)


class UnixServer(ThreadingHTTPServer):
    """The same on a unix socket."""

    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        """Without a name and a port."""
        self.socket.bind(self.server_address)


def make_server(host: str, port: int) -> ThreadingHTTPServer:
    if host.endswith(".sock"):
        return UnixServer(host, Handler)  # type: ignore[arg-type]
    return ThreadingHTTPServer((host, port), Handler)


def option(options: list[str], name: str, default: str = "") -> str:
    return options[options.index(name) + 1] if name in options else default


def serve(mode: str, port: int, options: list[str]) -> None:
    Handler.mode = mode
    Handler.prefix = option(options, "--api-prefix")
    try:
        server = make_server(option(options, "--host", "127.0.0.1"), port)
        if certificate := option(options, "--ssl-cert-file"):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, option(options, "--ssl-key-file"))
            server.socket = context.wrap_socket(server.socket, server_side=True)
    except OSError:
        say(
            f"0.00.028.529 E srv         start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: {port}"
        )
        sys.exit(1)
    say("0.00.000.001 I srv          init: listening")
    server.serve_forever()


def main(mode: str, options: list[str]) -> None:
    if "--help" in options:
        (sys.stderr if mode == "help-on-stderr" else sys.stdout).write(HELP)
        return
    if "--version" in options:
        say("version: 6190 (ab12cd3)\nbuilt with cc (GCC) 13.3 for x86_64-linux-gnu")
        return
    port = int(options[options.index("--port") + 1])
    if mode == "exits-at-once":
        say("0.00.001.000 I srv init: initializing ...")
        say(
            "0.00.002.000 E gguf_init_from_file: failed to open GGUF file 'gone.gguf' (No such file or directory)"
        )
        say("0.00.003.000 E srv init: exiting due to model loading error")
        sys.exit(1)
    if mode == "wrong-option":
        say('error while handling argument "-ctk": Unsupported cache type: q9_0')
        sys.exit(1)
    if mode == "oom-at-load":
        say("0.00.900.000 I load_tensors: loading model tensors, this can take a while... (mmap = true)")
        say(
            "0.00.901.000 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 14000.00 MiB on device 0: "
            "cudaMalloc failed: out of memory"
        )
        say("0.00.902.000 E alloc_tensor_range: failed to allocate CUDA0 buffer of size 14680064000")
        say("0.00.903.000 E llama_model_load: error loading model: unable to allocate CUDA0 buffer")
        say("0.00.904.000 E srv init: exiting due to model loading error")
        sys.exit(1)
    if mode == "killed-while-loading":
        say("load_tensors: loading model tensors")
        die(signal.SIGKILL)
    if mode == "says-nothing":
        sys.exit(3)
    if mode == "segfaults":
        say("load_tensors: loading model tensors")
        die(signal.SIGSEGV)
    if mode == "hangs":
        say("loading \x1b]0;owned\x07model")
        time.sleep(600)
    if mode == "starts-slowly":
        time.sleep(1)
    if mode == "dies-and-is-restarted":
        say("build: 6190 (ab12cd3) with cc for x86_64-linux-gnu")
        say("llama_context: n_ctx         = 512")
    if mode == "ignores-term":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if mode == "has-a-child" and os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Path(options[options.index("-m") + 1]).write_text(str(os.getpid()))
        time.sleep(600)
    if mode == "wrapper" and (child := os.fork()) > 0:
        os.waitpid(child, 0)
        return
    if mode == "floods":
        for number in range(50_000):
            sys.stderr.write(f"line {number}\n")
    serve(mode, port, options)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
