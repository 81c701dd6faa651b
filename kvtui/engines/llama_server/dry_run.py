"""What the engine itself says a configuration will take: `llama-fit-params --fit-print on`, nothing allocated.

It prints one line a device, host last: `NAME MODEL CONTEXT COMPUTE`, in MiB, each cut to a whole number
(common_fit_print in llama.cpp's common/fit.cpp). It takes about a second, most of it the vocabulary.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from tempfile import TemporaryFile

from kvtui.core.config import RunConfig
from kvtui.core.errors import InputError, StartError
from kvtui.core.text import clean
from kvtui.engines.base import DeviceNeed, DryRun, Engine
from kvtui.engines.failure import last_words
from kvtui.logs.facts import EngineFacts

PROGRAM = "llama-fit-params"
_PRINT = ("-fitp", "--fit-print")
_OPTION = re.compile(r"--?[A-Za-z]")
_LINE = re.compile(r"(\S.{0,63}?) (\d{1,9}) (\d{1,9}) (\d{1,9}) ?")
_MOST_DEVICES = 64
_LIMIT_S = 60.0
_LIMIT_BYTES = 1 << 16


def beside(server: str) -> str | None:
    """The program that came with `server`, a path; None where there is none, or `server` is no llama.cpp server."""
    folder, name = os.path.split(server)
    program = os.path.join(folder, PROGRAM)
    return program if name != PROGRAM and folder and os.access(program, os.X_OK) else None


def find_program(given: str) -> str:
    """The program at `given`, a path or a name on PATH. Raises InputError when it is not there."""
    program = shutil.which(os.path.expanduser(given))
    if program is None:
        raise InputError(
            f"{clean(given)}: not a program that can be run", hint=f"--ask-engine wants {PROGRAM}"
        )
    return os.path.abspath(program)


class DryRunner:
    """One `llama-fit-params`, asked what it can do once and for a forecast as often as wanted.

    `options` knows what `program` can do, and writes a configuration in llama-server's options, which it takes too.
    """

    def __init__(self, program: str, options: Engine) -> None:
        self.program = program
        self._options = options

    def ask(self, config: RunConfig) -> DryRun:
        """What `config` would take. Raises StartError: no such program, another program, or a refusal in its words."""
        options = self._options.abilities().options
        option = next((o for o in _PRINT if o in options), None)
        if option is None:
            raise StartError(
                "missing",
                f"{clean(self.program)} has no {_PRINT[1]}",
                hint="it came to llama.cpp's llama-fit-params in 2026",
            )
        program, *words = self._options.command(config, 0).argv
        argv = (program, *_known(words, options), option, "on")
        began = time.monotonic()
        code, said, complaint = _run(argv)
        devices = _read(said)
        if code != 0 or not devices:
            why = last_words(complaint, EngineFacts()) or f"it ended with {code} and printed no figures"
            raise StartError("crashed", f"{clean(os.path.basename(self.program))}: {why}")
        return DryRun(self.program, devices, time.monotonic() - began)


def _known(words: list[str], options: frozenset[str]) -> list[str]:
    """`words` without the options that this program does not have (the server's address, say) and their values."""
    kept: list[str] = []
    keep = True
    for word in words:
        if _OPTION.match(word):
            keep = word.partition("=")[0] in options
        if keep:
            kept.append(word)
    return kept


def _run(argv: tuple[str, ...]) -> tuple[int, str, str]:
    """Exit code, stdout and the end of stderr, in bounded time and size."""
    # A build that dies calls a debugger to print where, which takes many seconds.
    env = dict(os.environ) | {"GGML_NO_BACKTRACE": "1"}
    with TemporaryFile() as out, TemporaryFile() as err:
        try:
            code = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                timeout=_LIMIT_S,
                env=env,
                check=False,
                start_new_session=True,
            ).returncode
        except OSError as error:
            raise StartError("missing", f"{clean(argv[0])}: {error.strerror or error}") from error
        except subprocess.TimeoutExpired as error:
            raise StartError("hung", f"{clean(argv[0])} did not answer in {_LIMIT_S:.0f} s") from error
        out.seek(0)
        err.seek(max(0, err.seek(0, os.SEEK_END) - _LIMIT_BYTES))
        return code, out.read(_LIMIT_BYTES).decode("utf-8", "replace"), err.read().decode("utf-8", "replace")


def _read(text: str) -> tuple[DeviceNeed, ...]:
    found = [m for line in text.splitlines() if (m := _LINE.fullmatch(line))]
    if not found or found[-1][1] != "Host" or len(found) > _MOST_DEVICES:
        return ()
    return tuple(DeviceNeed(clean(m[1], 64), int(m[2]), int(m[3]), int(m[4])) for m in found)
