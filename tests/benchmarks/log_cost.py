"""Time and memory of reading a large verbose log, beside a bare line loop in the same process.

`python -m tests.benchmarks.log_cost [LOG] [MIB]` repeats LOG (a recorded start, every line at debug level) to
MIB and reads it; without LOG, one recorded start is followed by a long run. A small log as a whole process
comes last.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kvtui.logs.parser import LogParser

START = Path(__file__).parent.parent / "logs" / "data" / "llamacpp-q8.log"
RUN = """1.00.346.567 I slot launch_slot_: id  0 | task {n} | processing task, is_child = 0
1.00.347.231 I slot   operator(): id  0 | task {n} | new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = 1500
1.00.350.033 I slot   operator(): id  0 | task {n} | cached n_tokens = 0, memory_seq_rm [0, end)
1.07.343.351 I slot print_timing: id  0 | task {n} | prompt processing, n_tokens =    984, progress = 0.66
1.11.716.025 I slot      release: id  0 | task {n} | stop processing: n_tokens = 1507, truncated = 0
1.11.716.172 I srv  update_slots: all slots are idle
"""


def large(path: Path, source: Path | None, mib: int) -> None:
    """Write the log that is measured."""
    with path.open("wb") as out:
        if source is None:
            out.write(START.read_bytes())
        while out.tell() < mib << 20:
            out.write(source.read_bytes() if source else RUN.format(n=out.tell()).encode() * 200)


def loop(path: Path) -> None:
    with path.open("rb") as stream:
        for _line in stream:
            pass


def parse(path: Path) -> None:
    parser = LogParser()
    with path.open("rb", buffering=0) as stream:
        while chunk := stream.read(1 << 18):
            parser.feed(chunk)
    parser.close()
    facts = parser.facts()
    assert facts.outcome == "ready"
    assert facts.main is not None


def seconds(work: Callable[[Path], None], path: Path) -> float:
    """The best of three, in CPU time: other work on the machine is not ours."""
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        work(path)
        best = min(best, time.process_time() - started)
    return best


def main() -> None:
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    mib = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.log"
        large(path, source, mib)
        bare, ours = seconds(loop, path), seconds(parse, path)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{mib} MiB: line loop {bare:.3f} s, kvtui {ours:.3f} s ({ours / bare:.1f} times), peak {peak:.0f} MiB"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "kvtui", "log", str(START), "--json"], check=True, stdout=subprocess.DEVNULL
    )
    wall = time.perf_counter() - started
    cpu = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    print(f"small log, whole process: {wall:.2f} s, {cpu:.2f} s CPU")


if __name__ == "__main__":
    main()
