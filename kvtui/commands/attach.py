"""`kvtui attach`: engines that already run on this machine, and what one of them really does with what was asked."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvtui.commands.output import json_out, out
from kvtui.core.errors import InputError
from kvtui.core.text import clean

if TYPE_CHECKING:
    from kvtui.engines.attach.http_facts import Access, Address
    from kvtui.engines.attach.logplace import LogPlace
    from kvtui.engines.attach.look import Found, Seen
    from kvtui.engines.attach.processes import EngineProcess

CLEAN, FINDINGS, NOTHING = 0, 1, 2
_KEY_BYTES = 1 << 16
_LOOPBACK = frozenset(("127.0.0.1", "localhost", "[::1]", "0.0.0.0", "[::]"))  # noqa: S104 - compared, not bound


def add_parser(subparsers: Any) -> None:
    """Declare the sub-command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "attach",
        help="requested against actual for a server that already runs",
        description="Without --pid or --url: the engines that run on this machine. With one: what was asked of it"
        " against what its log, its own answers and its memory prove. Read-only: nothing is signalled, changed or"
        " generated.",
        epilog="exit status: 0 clean, 1 findings, 2 nothing to read",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--pid", type=int, metavar="N", help="the engine's process")
    which.add_argument("--url", metavar="U", help="where it answers: http(s)://HOST:PORT or unix:/PATH.sock")
    log = parser.add_mutually_exclusive_group()
    log.add_argument("--log", metavar="FILE", help="its log, where kvtui does not find it by itself")
    log.add_argument("--journal", metavar="UNIT", help="the systemd unit whose journal holds its log")
    parser.add_argument("--api-key-file", metavar="FILE", help="a file whose first line is the API key")
    parser.add_argument("--cacert", metavar="FILE", help="certificates (PEM) to trust for https")
    parser.add_argument("--json", action="store_true", help="one JSON document (kvtui.attach/1)")


def run(args: argparse.Namespace) -> int:
    """List, or look at one. Raises InputError where there is no such engine, or an option cannot be used."""
    if args.pid is None and args.url is None and args.log is None and args.journal is None:
        return _list(args.json)
    from kvtui.procedure.attached.view import attach

    view = attach(_seen(args))
    if view.nothing_read:
        problems = [p for p in (*view.seen.http.problems, view.seen.log.problem) if p]
        name = view.seen.address.url if view.seen.process is None and view.seen.address else None
        what = name or f"process {view.seen.process.pid if view.seen.process else '?'}"
        raise InputError(f"{what}: nothing to read", hint="; ".join(problems) or "it does not answer")
    if args.json:
        from kvtui.commands.attach_json import as_json

        json_out(as_json(view))
    else:
        from kvtui.commands.attach_text import overview

        out(overview(view))
    return FINDINGS if any(f.severity != "info" for f in view.findings) else CLEAN


def access_of(api_key_file: str | None, cacert: str | None) -> Access:
    """The key of a file in llama-server's format (one a line, `#` begins a comment). Raises InputError."""
    from kvtui.engines.attach.http_facts import Access

    key = None
    if api_key_file is not None:
        try:
            with Path(api_key_file).expanduser().open("rb") as file:
                text = file.read(_KEY_BYTES).decode("utf-8", "replace")
        except OSError as error:
            raise InputError(
                f"{clean(api_key_file)}: {error.strerror}", hint="--api-key-file wants a file"
            ) from error
        lines = (line.strip() for line in text.splitlines())
        key = next((line for line in lines if line and not line.startswith("#")), None)
        if key is None:
            raise InputError(f"{clean(api_key_file)}: holds no API key", hint="one key a line is wanted")
    return Access(key, cacert)


def address_at(url: str) -> Address:
    """The address that the operator gives. Raises InputError for what is none."""
    from kvtui.engines.attach.http_facts import Address

    if url.startswith("unix:"):
        return Address("http://localhost", "/" + url.removeprefix("unix:").lstrip("/"))
    if re.fullmatch(r"(?:\[[\w:.]+\]|[\w.-]*):\d{1,5}(?:/.*)?", url):
        url = f"http://{url if not url.startswith(':') else '127.0.0.1' + url}"
    if not re.fullmatch(r"https?://(?:\[[\w:.%]+\]|[\w.-]+)(?::\d{1,5})?(?:/[\w./~-]*)?", url):
        raise InputError(f"{clean(url, 200)}: not an address", hint="http://HOST:PORT or unix:/PATH.sock")
    return Address(url.rstrip("/"))


def _list(as_document: bool) -> int:
    from kvtui.engines.attach.look import discover
    from kvtui.engines.attach.memory import gpu_memory
    from kvtui.gpu.host import family

    found = discover()
    gpu = gpu_memory({one.process.pid: family(one.process.pid) for one in found}, limit_s=1.5)
    if as_document:
        from kvtui.commands.attach_json import list_json

        json_out(list_json(found, gpu))
    elif found:
        from kvtui.commands.attach_text import listing

        out(listing(found, gpu))
    else:
        raise InputError(
            "no engine is seen to run here", hint="--url takes the address of one on another machine"
        )
    return CLEAN if found else NOTHING


def _seen(args: argparse.Namespace) -> Seen:
    access = access_of(args.api_key_file, args.cacert)
    if args.url is not None:
        return _seen_at(address_at(args.url), access, args)
    from kvtui.engines.attach.look import look

    found = _found(args.pid)
    return look(found, access, log=_log(args, found.process))


def _seen_at(address: Address, access: Access, args: argparse.Namespace) -> Seen:
    """By address: with its process where it is one of this machine that we may see."""
    from dataclasses import replace

    from kvtui.engines.attach.http_facts import kind_at
    from kvtui.engines.attach.look import look, look_at_address

    process = _listener(address)
    if process is not None:
        found = replace(_describe(process), address=address)
        return look(found, access, log=_log(args, found.process))
    kind = kind_at(address, access)
    if kind is None:
        raise InputError(
            f"{clean(address.unix_socket or address.url)}: no engine answers there",
            hint="llama-server, Ollama and vLLM are known; https may need --cacert",
        )
    return look_at_address(kind, address, access, log=_log(args, None))


def _listener(address: Address) -> EngineProcess | None:
    from kvtui.engines.attach.look import asked_address
    from kvtui.engines.attach.processes import engines, listener_on

    if address.unix_socket is not None:
        same = (e for e in engines() if (at := asked_address(e)) and at.unix_socket == address.unix_socket)
        return next(same, None)
    match = re.match(r"https?://(\[[^\]]+\]|[^:/]+)(?::(\d+))?", address.url)
    if match is None or (match[1] not in _LOOPBACK and match[1] not in _own_addresses()):
        return None
    return listener_on(int(match[2] or (443 if address.url.startswith("https") else 80)))


def _own_addresses() -> frozenset[str]:
    from kvtui.engines.attach.processes import own_addresses

    return own_addresses()


def _found(pid: int | None) -> Found:
    from kvtui.engines.attach import processes

    if pid is None:
        running = processes.engines()
        if len(running) != 1:
            how = "which one is meant is not clear" if running else "no engine is seen to run here"
            raise InputError(how, hint="give --pid or --url")
        return _describe(running[0])
    process = processes.engine_at(pid)
    if process is None:
        what = "not an engine that is known" if processes.exists(pid) else "no such process"
        raise InputError(f"process {pid}: {what}", hint="kvtui attach lists the engines that run here")
    return _describe(process)


def _describe(process: EngineProcess) -> Found:
    from kvtui.engines.attach import processes
    from kvtui.engines.attach.look import describe

    parent = None if process.parent is None else processes.engine_at(process.parent)
    return describe(process, {} if parent is None else {parent.pid: parent})


def _log(args: argparse.Namespace, process: EngineProcess | None) -> LogPlace | None:
    from kvtui.engines.attach.logplace import given_file, given_unit

    if args.log is not None:
        return given_file(args.log)
    if args.journal is not None:
        return given_unit(args.journal, None if process is None else process.started)
    return None
