"""Stands in for the `vllm` command, which needs a GPU: log lines and endpoints of 0.11.0 on an invented card.

`FAKE_VLLM` holds JSON: `total_gib`, `weights_gib`, `token_bytes` (one token of KV at 16 bits), `mode`.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CARD = {"total_gib": 16.0, "weights_gib": 4.0, "token_bytes": 131072, "mode": "", "share": None} | json.loads(
    os.environ.get("FAKE_VLLM", "{}")
)
HELP = """\
usage: vllm serve [model_tag] [options]

ModelConfig:
  --max-model-len MAX_MODEL_LEN
                        Model context length (prompt and output).
  --enforce-eager, --no-enforce-eager
                        Whether to always use eager-mode PyTorch.
CacheConfig:
  --gpu-memory-utilization GPU_MEMORY_UTILIZATION
                        The fraction of GPU memory, see --kv-cache-memory-bytes.
  --kv-cache-dtype {auto,bfloat16,fp8,fp8_e4m3,fp8_e5m2,fp8_inc}
                        Data type for kv cache storage.
  --enable-prefix-caching, --no-enable-prefix-caching
                        Whether to enable prefix caching.
SchedulerConfig:
  --max-num-batched-tokens MAX_NUM_BATCHED_TOKENS
  --max-num-seqs MAX_NUM_SEQS
Frontend:
  --host HOST           Host name.
  --port PORT           Port number.
"""


def log(text: str, *, core: bool = False, level: str = "INFO") -> None:
    who = "EngineCore_DP0" if core else "APIServer"
    print(f"({who} pid={os.getpid()}) {level} 11-02 09:14:21 [x.py:1] {text}", file=sys.stderr, flush=True)


class Handler(BaseHTTPRequestHandler):
    """The endpoints that kvtui asks; one byte of text is one token."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        self._json(200, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            text = body.get("prompt")
            if text is None:
                text = "".join(f"<{m['role']}>{m['content']}" for m in body["messages"]) + "<assistant>"
            self._json(200, {"tokens": list(text.encode()), "max_model_len": 1})
        elif self.path == "/detokenize":
            self._json(200, {"prompt": bytes(body["tokens"]).decode()})
        elif CARD["mode"] == "refuses":
            self._json(400, {"error": {"message": "maximum context length is 64 tokens", "code": 400}})
        else:
            self._complete(body)

    def _complete(self, body: dict[str, object]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        prompt, n = body["prompt"], int(str(body["max_tokens"]))
        assert isinstance(prompt, list)
        for i in range(n * 50 if CARD["mode"] == "endless" else n):
            reason = "length" if i == n - 1 else None
            choice = {"index": 0, "text": "b", "token_ids": [98], "finish_reason": reason}
            if body.get("logprobs"):
                choice["logprobs"] = {"top_logprobs": [{"token_id:97": -3.0, "token_id:98": -0.05}]}
            self._event({"choices": [choice]})
            if CARD["mode"] == "dies":
                os._exit(1)
        usage = {"prompt_tokens": len(prompt), "completion_tokens": n}
        self._event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, event: dict[str, object]) -> None:
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        self.wfile.flush()

    def _json(self, status: int, document: dict[str, object]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    arguments = sys.argv[1:]
    if "--version" in arguments:
        print("0.11.0")
        return
    if any(a.startswith("--help") for a in arguments):
        print(HELP)
        return
    given = dict(itertools.pairwise(arguments))
    n_ctx, dtype = int(given["--max-model-len"]), given["--kv-cache-dtype"]
    share = float(given.get("--gpu-memory-utilization", "0.9"))
    log("vLLM API server version 0.11.0")
    log("non-default args: " + repr({"max_model_len": n_ctx, "kv_cache_dtype": dtype, "gpu_memory_utilization": share,
                                      "max_num_seqs": int(given["--max-num-seqs"]),
                                      "max_num_batched_tokens": int(given["--max-num-batched-tokens"])}))  # fmt: skip
    log(f"Using max model len {n_ctx}")
    if dtype.startswith("fp8"):
        log(
            "Using fp8 data type to store kv cache. It reduces the GPU memory footprint and boosts the performance."
        )
    log(f"Initializing a V1 LLM engine (v0.11.0) with config: model='m', dtype=torch.bfloat16, max_seq_len={n_ctx}, "
        f"kv_cache_dtype={dtype}", core=True)  # fmt: skip
    log(f"Model loading took {CARD['weights_gib']:.4f} GiB and 0.93 seconds", core=True)
    share = CARD["share"] or share
    pool = CARD["total_gib"] * share - CARD["weights_gib"] - 0.5
    log(f"Available KV cache memory: {pool:.2f} GiB", core=True)
    room = int(pool * 2**30 / (CARD["token_bytes"] / (2 if dtype.startswith("fp8") else 1)))
    if room < n_ctx:
        print(f"ValueError: To serve at least one request with the models's max seq len ({n_ctx}), "
              f"(9.00 GiB KV cache is needed, which is larger than the available KV cache memory ({pool:.2f} GiB). "
              f"Based on the available memory, the estimated maximum model length is {room}. Try increasing "
              "`gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
              file=sys.stderr, flush=True)  # fmt: skip
        sys.exit(1)
    log(f"GPU KV cache size: {room:,} tokens", core=True)
    log(f"Maximum concurrency for {n_ctx:,} tokens per request: {room / n_ctx:.2f}x", core=True)
    time.sleep(0.1)
    server = ThreadingHTTPServer((given["--host"], int(given["--port"])), Handler)
    print(
        f"(APIServer pid={os.getpid()}) INFO:     Application startup complete.", file=sys.stderr, flush=True
    )
    server.serve_forever()


main()
