"""How an engine's program is started: alone, through a wrapper, or in a container by a given command line.

The words may hold `{port}` (the port of the run, which a container has to publish) and `{name}` (a name for the
container, by which kvtui ends it whatever happens to the client). A container sees the model where the command's
own mounts put it.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvtui.core.errors import InputError
from kvtui.core.text import clean

_RUNTIMES = frozenset(("docker", "podman", "nerdctl"))
_MOUNTS = ("-v", "--volume", "--mount")
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - inside a container, whose published port is on the host's loopback


@dataclass(frozen=True, slots=True)
class Invocation:
    """`words` start the program; llama-server's options come after them."""

    words: tuple[str, ...]

    @property
    def runtime(self) -> tuple[str, ...] | None:
        """`("docker",)`, with what stands before it (`sudo`); None where it is no container."""
        for at, word in enumerate(self.words):
            if os.path.basename(word) in _RUNTIMES and "run" in self.words[at + 1 :]:
                return self.words[: at + 1]
        return None

    @property
    def publishes(self) -> bool:
        """Whether a container has a network of its own, out of which the port is published."""
        return self.runtime is not None and any("{port}" in word for word in self.words)

    def argv(self, port: int) -> tuple[str, ...]:
        """The words with their placeholders filled."""
        return tuple(w.replace("{port}", str(port)).replace("{name}", name_of(port)) for w in self.words)

    def inside(self, path: str) -> str:
        """`path` as the engine sees it. Raises InputError where no mount of the container covers it."""
        if self.runtime is None:
            return path
        real = os.path.abspath(path)
        for source, target in sorted(_mounts(self.words), key=lambda m: -len(m[0])):
            if real == source or real.startswith(source.rstrip("/") + "/"):
                return os.path.normpath(target + "/" + real[len(source.rstrip("/")) :].lstrip("/"))
        folder = os.path.dirname(real)
        raise InputError(
            f"{clean(real)}: the container does not see it", hint=f"mount its folder: -v {folder}:/models:ro"
        )

    def kill_command(self, port: int) -> tuple[str, ...]:
        """What ends the container of a run for certain; empty where the guard does."""
        return () if self.runtime is None else (*self.runtime, "kill", name_of(port))

    def pid_command(self, port: int) -> tuple[str, ...]:
        """What tells the container's process on this machine; empty where it is a descendant anyway."""
        if self.runtime is None:
            return ()
        return (*self.runtime, "inspect", "--format", "{{.State.Pid}}", name_of(port))


def name_of(port: int) -> str:
    """The name of a run's container."""
    return f"kvtui-{port}"


def read_invocation(text: str) -> Invocation:
    """The operator's `--engine-command`. Raises InputError: quotes, no program, a container that cannot be ended."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"--engine-command: {clean(text, 120)}: {str(error).lower()}") from None
    return checked(words)


def checked(words: Sequence[str]) -> Invocation:
    """`words` with the program's path made absolute. Raises InputError."""
    if not words:
        raise InputError("--engine-command: no program", hint="e.g. 'numactl -N0 llama-server'")
    program = shutil.which(os.path.expanduser(words[0]))
    if program is None:
        raise InputError(f"--engine-command: {clean(words[0])}: not a program that can be run")
    found = Invocation((os.path.abspath(program), *words[1:]))
    if found.runtime is not None and not any("{name}" in word for word in words):
        raise InputError(
            "--engine-command: the container has no name by which it could be ended",
            hint="add --name {name} (and -p 127.0.0.1:{port}:{port}, or --network host)",
        )
    return found


def _mounts(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for at, word in enumerate(words):
        option, _, value = word.partition("=")
        if option not in _MOUNTS:
            continue
        value = value or (words[at + 1] if at + 1 < len(words) else "")
        if option == "--mount":
            parts = dict(p.split("=", 1) for p in value.split(",") if "=" in p)
            source = parts.get("source", parts.get("src", ""))
            target = parts.get("target", parts.get("destination", parts.get("dst", "")))
        else:
            source, _, rest = value.partition(":")
            target = rest.split(":")[0]
        if source.startswith(("/", "~", ".")) and target.startswith("/"):
            yield os.path.abspath(os.path.expanduser(source)), target
