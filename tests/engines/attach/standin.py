"""A stand-in for a running engine: takes any options, listens on `--port` and answers as `STANDIN_MODE` says."""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PROPS = {
    "default_generation_settings": {"n_ctx": 2048},
    "total_slots": 2,
    "model_path": "/models/a\x1b[31m.gguf",
    "build_info": "b7000-abc1234",
    "endpoint_slots": True,
}
ANSWERS: dict[str, dict[str, object]] = {
    "llama": {
        "/health": {"status": "ok"},
        "/props": PROPS,
        "/slots": [
            {"id": 0, "n_ctx": 2048, "is_processing": False, "n_prompt_tokens": 7},
            {"id": 1, "n_ctx": 2048},
        ],
        "/v1/models": {"data": [{"id": "a", "meta": {"n_ctx_train": 32768, "size": 1000}}]},
    },
    "sleeping": {"/props": PROPS | {"is_sleeping": True}},
    "rubbish": {
        "/props": {
            "default_generation_settings": 7,
            "total_slots": "many",
            "model_path": ["x"],
            "build_info": None,
        },
        "/slots": [],
        "/v1/models": {"data": [3]},
    },
    "ollama": {
        "/api/version": {"version": "0.33.0"},
        "/api/ps": {
            "models": [
                {"name": "m:latest", "context_length": 8192, "size": 3 << 30, "size_vram": 2 << 30},
                "x",
            ]
        },
        "/api/show": {"model_info": {"gemma3.context_length": 131072, "general.architecture": "gemma3"}},
    },
    "vllm": {
        "/version": {"version": "0.33.0"},
        "/v1/models": {"data": [{"id": "org/model", "max_model_len": 32768}]},
        "/metrics": "# HELP vllm:cache_config_info\n"
        'vllm:cache_config_info{block_size="16",cache_dtype="fp8",gpu_memory_utilization="0.92",'
        'num_gpu_blocks="4096",engine="0"} 1.0\n',
    },
}


class Handler(BaseHTTPRequestHandler):
    """One answer a path; what is asked is appended to `STANDIN_SEEN`."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        mode = os.environ.get("STANDIN_MODE", "llama")
        if seen := os.environ.get("STANDIN_SEEN"):
            with open(seen, "a") as file:
                file.write(f"{self.command} {self.path}\n")
        if mode == "endless":
            self.send_response(200)
            self.end_headers()
            while True:
                self.wfile.write(b"x" * 65536)
        if mode == "slow":
            time.sleep(30)
        if mode == "deep":
            return self._send(200, '{"a":' * 200 + "1" + "}" * 200)
        if mode == "echo":
            return self._send(200, {"build_info": self.headers.get("Authorization")})
        if mode == "key" and self.headers.get("Authorization") != "Bearer s3cret":
            return self._send(401, {"error": {"code": 401, "message": "Invalid API Key", "type": "auth"}})
        found = ANSWERS.get("llama" if mode == "key" else mode, {}).get(self.path)
        self._send(404 if found is None else 200, {} if found is None else found)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def _send(self, status: int, document: object) -> None:
        body = document.encode() if isinstance(document, str) else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(options: list[str]) -> None:
    port = int(options[options.index("--port") + 1]) if "--port" in options else 0
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    sys.stderr.write(f"listening {server.server_address[1]}\n")
    sys.stderr.flush()
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
