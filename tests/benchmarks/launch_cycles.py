"""Launches and ends the embedded engine over and over: `python -m tests.benchmarks.launch_cycles [CYCLES] [MODEL]`.

Prints the time per cycle and what is left behind, which must be nothing: no process, listening port, open descriptor,
thread or file. Every third engine is ended by SIGKILL from outside.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import psutil

from kvtui.core.config import RunConfig
from kvtui.engines.find import embedded_engine

CYCLES = 30
READY_S = 120.0


@dataclass(frozen=True, slots=True)
class Left:
    """What is there now that was not there before. `ready_s` and `end_s` are seconds, one a cycle."""

    processes: tuple[int, ...]
    ports: tuple[int, ...]
    descriptors: int
    threads: int
    files: tuple[str, ...]
    ready_s: tuple[float, ...]
    end_s: tuple[float, ...]

    @property
    def nothing(self) -> bool:
        """Whether nothing is left."""
        return not (self.processes or self.ports or self.files or self.descriptors > 0 or self.threads > 0)


def cycles(count: int, model: Path, folder: Path) -> Left:
    """Launch, wait until ready, end; `count` times. Logs go to `folder`."""
    engine = embedded_engine()
    engine.abilities()
    me = psutil.Process()
    before = me.num_fds(), me.num_threads()
    pids: set[int] = set()
    ports: list[int] = []
    ready: list[float] = []
    end: list[float] = []
    elsewhere = set(os.listdir(tempfile.gettempdir()))
    for number in range(count):
        config = RunConfig(model=str(model), n_ctx=512, n_gpu_layers=0, threads=1)
        process = engine.launch(config, folder / f"{number}.log", lambda lines: None)
        try:
            ready.append(process.wait_ready(READY_S, Event(), lambda at: None))
            pids |= {process.pid, *(child.pid for child in me.children(recursive=True))}
            ports.append(int(process.base_url.rpartition(":")[2]))
            if number % 3 == 2:
                os.kill(process.pid, signal.SIGKILL)
        finally:
            began = time.monotonic()
            process.stop()
            end.append(time.monotonic() - began)
    deadline = time.monotonic() + 5  # a joined thread takes its time to leave the kernel
    while me.num_threads() > before[1] and time.monotonic() < deadline:
        time.sleep(0.02)
    logs = {f"{number}.log" for number in range(count)}
    new = {name for name in set(os.listdir(tempfile.gettempdir())) - elsewhere if "kvtui" in name}
    return Left(
        processes=tuple(sorted(pid for pid in pids if psutil.pid_exists(pid))),
        ports=tuple(port for port in ports if not _is_free(port)),
        descriptors=me.num_fds() - before[0],
        threads=me.num_threads() - before[1],
        files=tuple(sorted((set(os.listdir(folder)) - logs) | new)),
        ready_s=tuple(ready),
        end_s=tuple(end),
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def main(argv: list[str]) -> int:
    """Exit status 1 when something is left behind."""
    count = int(argv[0]) if argv else CYCLES
    if len(argv) > 1:
        model = Path(argv[1])
    else:
        from kvtui.sources.demo_model import demo_model

        model = demo_model()
    with tempfile.TemporaryDirectory(prefix="launch-cycles-") as folder:
        left = cycles(count, model, Path(folder))
    ready, end = sorted(left.ready_s), sorted(left.end_s)
    print(f"{count} cycles: ready after {ready[len(ready) // 2]:.2f} s (slowest {ready[-1]:.2f} s),", end=" ")
    print(f"ended in {end[len(end) // 2]:.2f} s (slowest {end[-1]:.2f} s)")
    print(f"left behind: processes {left.processes}, ports {left.ports}, files {left.files},", end=" ")
    print(f"descriptors {left.descriptors}, threads {left.threads}")
    return 0 if left.nothing else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
