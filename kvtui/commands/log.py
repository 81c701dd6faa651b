"""`kvtui log`: what an engine's start-up log proves, and what it says went wrong or changed silently."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import IO, Any

from kvtui.commands.output import err, json_out, out
from kvtui.core.errors import InputError
from kvtui.core.text import clean
from kvtui.logs.facts import EngineFacts
from kvtui.logs.findings import CATALOGUE
from kvtui.logs.parser import LogParser

CLEAN, FINDINGS = 0, 1
_CHUNK = 1 << 18
_GZIP = b"\x1f\x8b"


def add_parser(subparsers: Any) -> None:
    """Declare the sub-command; the expected settings carry llama-server's names."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "log",
        help="read a start-up log: requested against actual",
        description="Read a start-up log of llama.cpp, ik_llama.cpp, Ollama or vLLM and say what it proves."
        " The settings are what you asked the engine for; each difference is a finding.",
        epilog="exit status: 0 clean, 1 findings, 2 unreadable or no engine output in it",
    )
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="the log, plain or gzip; - reads standard input"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document (kvtui.log/1)")
    parser.add_argument(
        "--explain", metavar="ID", help="explain a kind of finding and where it is known from"
    )
    asked = parser.add_argument_group("expected settings")
    asked.add_argument("-c", "--ctx-size", type=int, metavar="N", dest="ctx")
    asked.add_argument("-ctk", "--cache-type-k", metavar="TYPE", dest="cache_type_k")
    asked.add_argument("-ctv", "--cache-type-v", metavar="TYPE", dest="cache_type_v")
    asked.add_argument("-np", "--parallel", type=int, metavar="N", dest="n_parallel")
    asked.add_argument("-fa", "--flash-attn", choices=("on", "off", "auto"), dest="flash_attn")
    asked.add_argument("-ngl", "--gpu-layers", "--n-gpu-layers", type=int, metavar="N", dest="n_gpu_layers")
    asked.add_argument("-b", "--batch-size", type=int, metavar="N", dest="n_batch")
    asked.add_argument("-ub", "--ubatch-size", type=int, metavar="N", dest="n_ubatch")
    asked.add_argument("-kvu", "--kv-unified", action="store_const", const=True, dest="kv_unified")


_SETTINGS = (
    "ctx",
    "cache_type_k",
    "cache_type_v",
    "n_parallel",
    "flash_attn",
    "n_gpu_layers",
    "n_batch",
    "n_ubatch",
    "kv_unified",
)


def run(args: argparse.Namespace) -> int:
    """Read the log and print it. Raises InputError where it cannot be read or holds no engine output."""
    if args.explain:
        out(_explain(args.explain))
        return CLEAN
    if not args.file:
        raise InputError("no log was named", hint="give a file, or - for standard input")
    requested = {k: getattr(args, k) for k in _SETTINGS if getattr(args, k) is not None}
    facts = read(args.file, requested)
    if facts.engine == "unknown":
        raise InputError(
            f"{args.file}: no engine output in it", hint="give a log of llama.cpp, Ollama or vLLM"
        )
    if args.json:
        from kvtui.logs.document import as_json

        json_out(as_json(facts))
    else:
        from kvtui.commands.log_text import overview

        out(overview(facts, args.file))
    return FINDINGS if any(f.severity != "info" for f in facts.findings) else CLEAN


def read(path: str, requested: dict[str, Any] | None = None) -> EngineFacts:
    """The facts of the log at `path` (`-`: standard input), gzip or plain. Raises InputError.

    Of gzip data that was cut off, what is there is read, and a line on stderr says that the rest is missing.
    """
    parser = LogParser(requested)
    try:
        for chunk in _chunks(path):
            parser.feed(chunk)
    except _CutOff:
        err(f"kvtui: {clean(path)}: the gzip data is cut off: the end of the log is missing")
    except (OSError, EOFError) as error:
        raise InputError(
            f"{path}: {getattr(error, 'strerror', None) or error}", hint="give a readable log"
        ) from error
    parser.close()
    return parser.facts()


class _CutOff(Exception):
    """Gzip data ends before it should."""


def _explain(name: str) -> str:
    for entry in CATALOGUE:
        if entry.id == name:
            return entry.explain()
    from kvtui.procedure.findings.faults import FAULTS

    for fault in FAULTS:
        if fault.id == name:
            return fault.explain()
    known = ", ".join(sorted({*(e.id for e in CATALOGUE), *(f.id for f in FAULTS)}))
    raise InputError(f"{name!r} is no kind of finding", hint=f"there are: {known}")


def _chunks(path: str) -> Iterator[bytes]:
    if path == "-":
        yield from _plain_or_gzip(sys.stdin.buffer)
    else:
        with open(path, "rb") as stream:
            yield from _plain_or_gzip(stream)


def _plain_or_gzip(stream: IO[bytes]) -> Iterator[bytes]:
    head = stream.read(_CHUNK)
    if not head.startswith(_GZIP):
        while head:
            yield head
            head = stream.read(_CHUNK)
        return
    import zlib

    inflate = zlib.decompressobj(wbits=31)
    while head:
        fed = True
        try:
            yield inflate.decompress(head, _CHUNK)
            while inflate.unconsumed_tail:
                yield inflate.decompress(inflate.unconsumed_tail, _CHUNK)
        except zlib.error as error:
            raise EOFError(f"broken gzip data ({error})") from error
        head = stream.read(_CHUNK)
        if inflate.eof:
            head = inflate.unused_data + head
            inflate, fed = zlib.decompressobj(wbits=31), False
    if fed:
        raise _CutOff
