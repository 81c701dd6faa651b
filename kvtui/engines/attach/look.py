"""Everything that can be learnt of one running engine, within two seconds, without touching it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from kvtui.core.errors import InputError
from kvtui.core.text import clean
from kvtui.engines.attach import container, processes
from kvtui.engines.attach.asked import Asked
from kvtui.engines.attach.http_facts import Access, Address, HttpFacts, address_of, ask
from kvtui.engines.attach.kinds import Kind
from kvtui.engines.attach.llama_asked import config_paths, llama_asked, python_server_asked
from kvtui.engines.attach.logplace import LogPlace, find_log, in_its_own_root
from kvtui.engines.attach.logread import LogRead, read_log
from kvtui.engines.attach.memory import HostMemory, gpu_memory, host_memory
from kvtui.engines.attach.other_asked import ollama_asked, unit_environment, vllm_asked
from kvtui.engines.attach.processes import EngineProcess, Listening
from kvtui.gpu.host import family
from kvtui.sources.files import read_bytes

LIMIT_S = 1.7
"""For log, HTTP and memory together; they are read at the same time."""
_CONFIG_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Found:
    """One engine in the list: what it is, what it was asked, where its log and its HTTP are."""

    process: EngineProcess
    asked: Asked
    log: LogPlace
    address: Address | None


@dataclass(frozen=True, slots=True)
class Seen:
    """One engine looked at. `process` is None where only an address is known. `gpu_bytes` is what the process and
    those it started hold on GPUs, None where the driver does not tell (`gpu_why`). `seconds` is how long it took."""

    kind: Kind
    process: EngineProcess | None
    asked: Asked
    address: Address | None
    http: HttpFacts
    place: LogPlace
    log: LogRead
    host: HostMemory
    gpu_bytes: int | None
    gpu_why: str
    seconds: float
    notes: tuple[str, ...] = field(default=())


def discover() -> list[Found]:
    """The engines that run on this machine, oldest first."""
    running = processes.engines()
    by_pid = {one.pid: one for one in running}
    return [describe(one, by_pid) for one in running]


def describe(process: EngineProcess, by_pid: Mapping[int, EngineProcess]) -> Found:
    """What is known of one process without asking it. Asks docker, podman or systemctl where /proc is closed."""
    process = _opened(process)
    asked = asked_of(process)
    return Found(process, asked, find_log(process, asked, by_pid), address_of(process, asked))


def asked_address(process: EngineProcess) -> Address | None:
    """Where `process` was asked to answer."""
    return address_of(process, asked_of(process))


def asked_of(process: EngineProcess) -> Asked:
    """What its command line, environment and configuration files ask."""
    match process.kind:
        case "vllm":
            return vllm_asked(process.argv)
        case "ollama":
            return ollama_asked(process.env)
        case "llama-cpp-python":
            return python_server_asked(process.argv, process.env)
        case "vllm-worker":
            return Asked()
        case _:
            configs = [] if _is_embedded(process) else _configs(process)
            env = {} if _is_embedded(process) else process.env
            return llama_asked(process.argv, env, configs)


def look(found: Found, access: Access, *, log: LogPlace | None = None, limit_s: float = LIMIT_S) -> Seen:
    """One engine of this machine: log, HTTP and memory at the same time."""
    began = time.monotonic()
    place = log or found.log
    asked = found.asked
    kind = found.process.kind
    pid = found.process.pid
    families = {pid: family(pid)}
    with ThreadPoolExecutor(3) as pool:
        reading = pool.submit(read_log, place, _expected(kind, asked), limit_s, daemon=kind == "ollama")
        asking = pool.submit(_ask, kind, found.address, access)
        measuring = pool.submit(gpu_memory, families, limit_s)
        host = host_memory(pid)
        http, read, gpu = asking.result(), reading.result(), measuring.result()
    return Seen(
        kind=kind,
        process=found.process,
        asked=asked,
        address=found.address,
        http=http,
        place=place,
        log=read,
        host=host,
        gpu_bytes=gpu.by_pid.get(pid),
        gpu_why=gpu.why,
        seconds=time.monotonic() - began,
        notes=_notes(found),
    )


def look_at_address(
    kind: Kind, address: Address, access: Access, *, log: LogPlace | None, limit_s: float = LIMIT_S
) -> Seen:
    """An engine of which only the address is known: on another machine, or a process that is not shown."""
    began = time.monotonic()
    unknown = LogPlace(
        "none",
        "unknown",
        why="its process is not seen from here: give its log with --log FILE or --journal UNIT",
    )
    place = log or unknown
    with ThreadPoolExecutor(2) as pool:
        reading = pool.submit(read_log, place, {}, limit_s, daemon=kind == "ollama")
        http, read = pool.submit(_ask, kind, address, access).result(), reading.result()
    note = "what it was asked is not known: its process is not seen from here"
    return Seen(
        kind=kind,
        process=None,
        asked=Asked(unread=(note,)),
        address=address,
        http=http,
        place=place,
        log=read,
        host=HostMemory(None, None),
        gpu_bytes=None,
        gpu_why="its process is not known",
        seconds=time.monotonic() - began,
    )


def _ask(kind: Kind, address: Address | None, access: Access) -> HttpFacts:
    if address is None:
        return HttpFacts(problems=("it answers no requests itself",))
    return ask(kind, address, access)


def _expected(kind: Kind, asked: Asked) -> dict[str, object]:
    """What the log's own findings compare with. An Ollama daemon's log holds what it was asked in its own words."""
    return dict(asked.values) if kind in ("llama-server", "llama-cpp-python") else {}


def _opened(process: EngineProcess) -> EngineProcess:
    """The process with what /proc denies and its container runtime or unit tells."""
    if process.container is not None and (process.env is None or not process.listening):
        told = container.inspect(process.container)
        if told is None:
            return process
        env = told.env if process.env is None else process.env
        ports = tuple(Listening("127.0.0.1", port) for port in told.ports.values())
        return replace(process, env=env, listening=process.listening or ports or process.listening)
    if process.env is None and process.unit is not None:
        text = container.unit_property(process.unit, user=process.user_unit)
        return replace(process, env=unit_environment(text)) if text else process
    return process


def _notes(found: Found) -> tuple[str, ...]:
    process = found.process
    denied = [what for what in process.denied if what != "environment" or process.env is None]
    notes = [f"permission denied: its {what} may not be looked at" for what in denied]
    return (*notes, *found.asked.unread)


def _is_embedded(process: EngineProcess) -> bool:
    return "kvtui.engines.embedded" in process.argv[:6]


def _configs(process: EngineProcess) -> list[tuple[str, str]]:
    found = []
    for path in config_paths(process.env):
        try:
            text = read_bytes(in_its_own_root(process, path), _CONFIG_BYTES).decode("utf-8", "replace")
        except InputError:  # not there, or nothing that an engine could read its settings from
            continue
        found.append((clean(path), text))
    return found
