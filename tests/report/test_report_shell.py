"""Command lines come back from a real shell as they went in."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtui.core.shell import command_line, quote

BASH = shutil.which("bash")

AWKWARD = [
    "plain",
    "",
    "two words",
    "it's",
    '"quoted"',
    "$HOME `id` $(id) !!",
    "model[Q4_K_M].gguf",
    "back\\slash\\n",
    "tab\tand\nline",
    "\x1b[2J",
    "\u202egnp.exe",
    "é🦙",
    "not utf-8: \udcff\udc80",
    "\x7f\x01'\\",
    "-rf",
    "~",
    "a=b",
    "#",
]


def _arguments(line: str, shell: str) -> list[bytes]:
    script = f"show() {{ printf '%s\\0' \"$@\"; }}\nshow {line}\n"
    done = subprocess.run([shell, "-c", script], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"})
    return done.stdout.split(b"\0")[:-1]


@pytest.mark.skipif(BASH is None, reason="needs bash")
def test_a_real_shell_reads_back_every_argument() -> None:
    assert BASH is not None
    assert _arguments(command_line(AWKWARD), BASH) == [os.fsencode(a) for a in AWKWARD]


def test_what_prints_needs_no_more_than_a_plain_shell() -> None:
    printable = [a for a in AWKWARD if a.isprintable()]
    assert "$'" not in command_line(printable)
    assert _arguments(command_line(printable), "/bin/sh") == [os.fsencode(a) for a in printable]


@given(st.text(st.characters(), max_size=30))
def test_a_quoted_argument_is_one_printable_word(argument: str) -> None:
    quoted = quote(argument)
    assert quoted.isprintable()
    assert quoted


def test_variables_stand_in_front_of_the_command() -> None:
    line = command_line(
        ["llama-server", "-c", "512"], [("CUDA_VISIBLE_DEVICES", "0,1"), ("LLAMA_ARG_X", "a b")]
    )
    assert line == "CUDA_VISIBLE_DEVICES=0,1 LLAMA_ARG_X='a b' llama-server -c 512"
    odd = command_line(["printenv", "A-B"], [("A-B", "x y")])
    assert odd == "env 'A-B=x y' printenv A-B"
