"""Command lines that can be pasted into a shell as they stand, whatever is in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def quote(argument: str) -> str:
    """`argument` for a POSIX shell. With characters that do not print, as `$'..'` (bash, zsh, ksh), so that a file
    name can neither move the cursor nor hide."""
    if argument.isprintable():
        return shlex.quote(argument)
    try:
        data = argument.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        data = argument.encode("utf-8", "replace")
    plain = (chr(b) if 32 <= b < 127 and b not in b"'\\" else f"\\x{b:02x}" for b in data)
    return f"$'{''.join(plain)}'"


def command_line(argv: Sequence[str], env: Sequence[tuple[str, str]] = ()) -> str:
    """`argv` as one line, behind the variables that are set for it alone."""
    words = [quote(a) for a in argv]
    if not env:
        return " ".join(words)
    if all(_NAME.match(name) for name, _ in env):
        return " ".join([*(f"{name}={quote(value)}" for name, value in env), *words])
    return " ".join(["env", *(quote(f"{name}={value}") for name, value in env), *words])
