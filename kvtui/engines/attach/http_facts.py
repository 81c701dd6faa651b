"""What a running engine says of itself over HTTP: questions that change nothing, wake nothing and generate nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from kvtui.core.errors import EngineError, InputError
from kvtui.core.text import clean
from kvtui.engines.attach.asked import Asked, Setting
from kvtui.engines.attach.kinds import Kind
from kvtui.engines.attach.other_asked import DEFAULT_OLLAMA_PORT
from kvtui.engines.attach.processes import EngineProcess, hosts_of
from kvtui.engines.http import is_address
from kvtui.engines.llama_server.client import EngineClient

_TIMEOUT_S = 0.7
"""The longest that one answer may take. Two are asked one after the other, and all must be there in two seconds."""
_BODY = 8 << 20
_PORTS: dict[Kind, int] = {
    "llama-server": 8080,
    "llama-cpp-python": 8000,
    "ollama": DEFAULT_OLLAMA_PORT,
    "vllm": 8000,
}
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Address:
    """Where to ask. `unix_socket` is a path; `url` then only names the host."""

    url: str
    unix_socket: str | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """What the operator gave to get in."""

    api_key: str | None = None
    ca_file: str | None = None


@dataclass(frozen=True, slots=True)
class HttpFacts:
    """`proven` maps a fact's name to its value and the endpoint that says it; `problems` say what was refused.

    llama-server: `n_ctx_slot`, `n_slots`, `model_path`, `build`, `n_ctx_train`, `weights_bytes`, `busy_slots`,
    `used_tokens`, `sleeping`. Ollama: `version`, `models` (name, context_length, size, size_vram), `n_ctx_train`.
    vLLM: `version`, `model`, `max_model_len`, `kv_cache_dtype`, `kv_blocks`, `block_size`, ..
    """

    answered: bool = False
    proven: Mapping[str, Setting] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def address_of(process: EngineProcess, asked: Asked) -> Address | None:
    """Where `process` answers, from the sockets it holds, else from what it was asked; None for workers."""
    if process.kind == "vllm-worker":
        return None
    hosts = [h.strip() for h in str(asked.value("host") or "").split(",") if h.strip()]
    sock = next((h for h in hosts if h.endswith(".sock")), asked.value("uds"))
    prefix = str(asked.value("api_prefix") or "")
    scheme = "https" if asked.value("tls_cert_file") else "http"
    if sock and not (process.listening and len(hosts) > 1):
        path = os.path.join(process.cwd or "/", str(sock))
        return Address(f"{scheme}://localhost{prefix}", path)
    port = asked.value("port")
    seen = [at for at in process.listening or () if at.port == port] or list(process.listening or ())
    if seen:
        return Address(f"{scheme}://{next(hosts_of(tuple(seen)))}{prefix}")
    if process.kind == "ollama-runner" and port is None:
        return None
    if process.kind == "ollama":
        return Address(_ollama_url(hosts[0] if hosts else ""))
    host = hosts[0] if hosts and hosts[0] not in ("0.0.0.0", "::") else "127.0.0.1"  # noqa: S104 - read
    host = f"[{host}]" if ":" in host else host
    return Address(f"{scheme}://{host}:{port or _PORTS.get(process.kind, 8080)}{prefix}")


def ask(kind: Kind, address: Address, access: Access, model: str | None = None) -> HttpFacts:
    """Everything that may be asked. Raises InputError for an API key or authority that cannot be used."""
    if not is_address(address.url):
        return HttpFacts(problems=(f"{clean(address.url, 200)}: not an address at which it could be asked",))
    with _client(address, access) as client:
        asking = _Asking(client)
        if kind in ("ollama",):
            _ollama(asking, model)
        elif kind == "vllm":
            _vllm(asking)
        elif kind == "llama-cpp-python":
            _models(asking, "/v1/models")
        else:
            _llama(asking)
    return HttpFacts(asking.answered, asking.proven, tuple(asking.problems))


def kind_at(address: Address, access: Access) -> Kind | None:
    """Which engine answers at an address of which no process is known; None for none that is known."""
    with _client(address, access) as client:
        asking = _Asking(client)
        with ThreadPoolExecutor(3) as pool:
            ollama = pool.submit(asking.get, "/api/version")
            vllm = pool.submit(asking.get, "/version")
            llama = pool.submit(asking.get, "/props")
        if isinstance(llama.result(), dict) and "default_generation_settings" in llama.result():
            return "llama-server"
        if isinstance(vllm.result(), dict) and "version" in vllm.result():
            return "vllm"
        if isinstance(ollama.result(), dict) and "version" in ollama.result():
            return "ollama"
        health = client.health(_TIMEOUT_S)
    if health in ("ready", "loading") or any("key" in p.lower() for p in asking.problems):
        return "llama-server"
    return None


def _client(address: Address, access: Access) -> EngineClient:
    return EngineClient(
        address.url,
        timeout_s=_TIMEOUT_S,
        api_key=access.api_key,
        ca_file=access.ca_file,
        unix_socket=address.unix_socket,
        body_limit=_BODY,
        limit_s=_TIMEOUT_S,
    )


class _Asking:
    """Collects answers; what one endpoint refuses keeps nothing from the others."""

    def __init__(self, client: EngineClient) -> None:
        self.client = client
        self.answered = False
        self.proven: dict[str, Setting] = {}
        self.problems: list[str] = []

    def get(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            found = self.client.answer(path, body)
        except (EngineError, InputError) as error:
            self.problem(path, error)
            return {}
        self.answered = True
        return found

    def problem(self, path: str, error: EngineError | InputError) -> None:
        status = getattr(error, "status", None)
        if status in (401, 403):
            text = "it wants an API key: --api-key-file FILE"
        elif status == 503:
            text = "it is still loading its model"
        else:
            text = clean(error.line(), 300)
        line = f"{path}: {text}"
        if line not in self.problems:
            self.problems.append(line)

    def prove(self, name: str, value: Any, source: str) -> None:
        if value is not None:
            self.proven[name] = Setting(value, source)


def _llama(asking: _Asking) -> None:
    with ThreadPoolExecutor(2) as pool:
        models = pool.submit(_models, asking, "/v1/models")
        props = asking.get("/props")
        models.result()
    asking.prove("n_slots", _count(props.get("total_slots")), "/props")
    asking.prove("model_path", _text(props.get("model_path")), "/props")
    asking.prove("build", _text(props.get("build_info")), "/props")
    settings = props.get("default_generation_settings")
    if isinstance(settings, dict):
        asking.prove("n_ctx_slot", _count(settings.get("n_ctx")), "/props")
    sleeps = props.get("is_sleeping") is True
    if sleeps:
        asking.prove("sleeping", True, "/props")
    if props and props.get("endpoint_slots", True) and not sleeps and props.get("role") != "router":
        _slots(asking)


def _slots(asking: _Asking) -> None:
    """Not asked where it could wake a server that sleeps, or load a model of a router."""
    try:
        slots = asking.client.slots()
    except (EngineError, InputError) as error:
        asking.problem("/slots", error)
        return
    sizes = {n for slot in slots if (n := _count(slot.get("n_ctx"))) is not None}
    if slots:
        asking.prove("n_slots", len(slots), "/slots")
    if len(sizes) == 1:
        asking.prove("n_ctx_slot", sizes.pop(), "/slots")
    asking.prove("busy_slots", sum(slot.get("is_processing") is True for slot in slots), "/slots")
    used = [n for slot in slots if (n := _count(slot.get("n_prompt_tokens"))) is not None]
    asking.prove("used_tokens", sum(used), "/slots")


def _models(asking: _Asking, path: str) -> None:
    data = asking.get(path).get("data")
    first = data[0] if isinstance(data, list) and data and isinstance(data[0], dict) else {}
    meta = first.get("meta")
    meta = meta if isinstance(meta, dict) else {}
    asking.prove("model", _text(first.get("id")), path)
    asking.prove("n_ctx_train", _count(meta.get("n_ctx_train")), path)
    asking.prove("weights_bytes", _count(meta.get("size")), path)
    asking.prove("max_model_len", _count(first.get("max_model_len")), path)


def _ollama(asking: _Asking, model: str | None) -> None:
    with ThreadPoolExecutor(2) as pool:
        version = pool.submit(asking.get, "/api/version")
        loaded = asking.get("/api/ps").get("models")
        asking.prove("version", _text(version.result().get("version")), "/api/version")
    models = [_loaded(m) for m in loaded if isinstance(m, dict)] if isinstance(loaded, list) else []
    if isinstance(loaded, list):
        asking.prove("models", models, "/api/ps")
    shown = model or (models[0]["name"] if models else None)
    if shown is None:
        return
    info = asking.get("/api/show", {"model": shown}).get("model_info")
    if isinstance(info, dict):
        length = next((v for k, v in info.items() if k.endswith(".context_length")), None)
        asking.prove("n_ctx_train", _count(length), "/api/show")


def _loaded(model: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": _text(model.get("name")),
        "context_length": _count(model.get("context_length")),
        "size": _count(model.get("size")),
        "size_vram": _count(model.get("size_vram")),
    }


def _vllm(asking: _Asking) -> None:
    """Its metrics are gauges and counters that a reader does not reset."""
    with ThreadPoolExecutor(3) as pool:
        version = pool.submit(asking.get, "/version")
        models = pool.submit(_models, asking, "/v1/models")
        try:
            metrics = asking.client.text("/metrics")
        except (EngineError, InputError) as error:
            asking.problem("/metrics", error)
            metrics = ""
        models.result()
        asking.prove("version", _text(version.result().get("version")), "/version")
    line = next((t for t in metrics.splitlines() if t.startswith("vllm:cache_config_info{")), "")
    config = dict(_LABEL.findall(line))
    asking.prove("kv_cache_dtype", _text(config.get("cache_dtype")), "/metrics")
    blocks, size = _written(config.get("num_gpu_blocks")), _written(config.get("block_size"))
    asking.prove("kv_blocks", blocks, "/metrics")
    asking.prove("block_size", size, "/metrics")
    asking.prove("gpu_memory_utilization", _text(config.get("gpu_memory_utilization")), "/metrics")


def _ollama_url(host: str) -> str:
    """`OLLAMA_HOST` in its shapes: a host, host:port, :port, a URL."""
    scheme, _, rest = host.rpartition("://")
    name, colon, port = rest.rpartition(":") if not rest.endswith("]") else (rest, "", "")
    if not colon:
        name, port = rest, "443" if scheme == "https" else "80" if scheme else str(DEFAULT_OLLAMA_PORT)
    name = "127.0.0.1" if name in ("", "0.0.0.0", "[::]", "::") else name  # noqa: S104 - read
    return f"{scheme or 'http'}://{name}:{port.rstrip('/')}"


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 50 else None


def _written(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\d{1,15}", text) else None


def _text(value: Any) -> str | None:
    return clean(value, 400) or None if isinstance(value, str) else None
