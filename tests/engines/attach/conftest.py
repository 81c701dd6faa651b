"""Running stand-ins under the names of real engines."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvtui.engines.attach import http_facts
from tests.engines.attach import standin


@dataclass
class StandIn:
    """A process that runs."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers may be late: the machine that runs the tests may be busy."""
    monkeypatch.setattr(http_facts, "_TIMEOUT_S", 20.0)


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[Callable[..., StandIn]]:
    """Start a stand-in called `name` with `options`; `log_text` is what its log file holds already."""
    started: list[subprocess.Popen[bytes]] = []

    def start(
        name: str = "llama-server", *options: str, mode: str = "llama", log_text: bytes = b"", **env: str
    ) -> StandIn:
        folder = tmp_path / f"bin{len(started)}"
        folder.mkdir()
        program = folder / name
        program.write_text(f"#!{sys.executable}\n{Path(standin.__file__).read_text()}")
        program.chmod(0o755)
        log = folder / "engine.log"
        log.write_bytes(log_text)
        with log.open("ab") as output:
            process = subprocess.Popen(
                [str(program), *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={"PATH": "/usr/bin:/bin", "STANDIN_MODE": mode, "HOME": str(tmp_path), **env},
            )
        started.append(process)
        return StandIn(process, _port(log, process), log)

    yield start
    for process in started:
        process.kill()
        process.wait()


def _port(log: Path, process: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        lines = log.read_bytes().split(b"\n")
        told = [line for line in lines[:-1] if line.startswith(b"listening ")]
        if told:
            return int(told[-1].split()[1])
        time.sleep(0.02)
    raise AssertionError(f"the stand-in did not start: {log.read_text()}")
