"""CPU time and memory of the sampler, against the stand-in for NVML's library; and the peaks that it finds.

`python -m tests.benchmarks.sampler_cost [SECONDS]` samples one GPU and two at 10 and 50 Hz for that long (10 each),
in a process of its own, beside the same process that only sleeps. The stand-in reads its scenario file in every
call, which the real library does not: what its calls alone cost is given too. A second part injects peaks of 200 ms
at 10 Hz in real time and counts how many were seen.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GIB = 1 << 30
SOURCE = Path(__file__).parents[1] / "gpu" / "fake_nvml.c"
WORK = """
import json, os, resource, sys, time
hz, seconds, gpus = float(sys.argv[1]), float(sys.argv[2]), [int(n) for n in sys.argv[3].split(",")]
from kvtui.gpu.sampler import Sampler
import kvtui.gpu.source
def rss():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
before = rss()
seen = []
if hz:
    source = kvtui.gpu.source.open_source(None, gpus)
    sampler = Sampler(source, hz, lambda sample: seen.append(sample.used_bytes))
    sampler.set_engine(os.getpid())
    sampler.start()
    sampler.phase("decode")
time.sleep(1)
cpu, began = time.process_time(), time.monotonic()
time.sleep(seconds)
used, wall = time.process_time() - cpu, time.monotonic() - began
memory = rss() - before
calls = None
if hz:
    sampler.stop()
    cpu, began = time.process_time(), time.monotonic()
    for _ in range(200):
        source.read(None)
    calls = (time.process_time() - cpu) / 200
print(json.dumps({"share": used / wall, "rss": memory, "n": len(seen), "read_s": calls,
                  "seen": sorted({s for s in seen if s is not None})}))
"""


def scenario(path: Path, extra: str = "") -> None:
    """Two GPUs that tell everything."""
    lines = ["count 2"]
    for n in (0, 1):
        lines += [
            f"memory {n} {24 * GIB} {GIB // 2} {9 * GIB}",
            f"name {n} NVIDIA RTX 4090",
            f"process {n} {os.getpid()} {8 * GIB}",
            *(f"{key} {n} {value}" for key, value in (("util", 97), ("power", 300000), ("clock", 2500))),
            f"throttle {n} 4",
            f"pcie {n} 1000 1000",
        ]
    path.write_text("\n".join((*lines, extra, "")), encoding="utf-8")


def sample(library: Path, path: Path, hz: float, seconds: float, gpus: str) -> dict[str, float]:
    """One process that samples."""
    env = os.environ | {
        "LD_LIBRARY_PATH": str(library),
        "KVTUI_FAKE_NVML": str(path),
        "PYTHONPATH": os.getcwd(),
    }
    command = (sys.executable, "-W", "ignore", "-c", WORK, str(hz), str(seconds), gpus)
    answer: dict[str, float] = json.loads(
        subprocess.run(command, env=env, capture_output=True, check=True).stdout
    )
    return answer


def peaks(library: Path, path: Path, seconds: float) -> tuple[int, int]:
    """How many 200 ms peaks were seen, of how many, at 10 Hz in real time."""
    n = int(seconds / 0.5)
    began = time.monotonic() + 3.0
    lines = [f"epoch {began}"]
    for at in range(n):
        lines += [f"during {0.5 * at} {0.5 * at + 0.2} memory 0 {24 * GIB} {GIB // 2} {9 * GIB + at + 1}"]
    scenario(path, "\n".join(lines))
    seen = sample(library, path, 10, seconds + 4, "0")["seen"]
    heights = {int(s) for s in seen}  # type: ignore[attr-defined]
    return sum(at + 1 in {h - min(heights) for h in heights} for at in range(n)), n


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "a C compiler is needed"
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder)
        target = library / "libnvidia-ml.so.1"
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(target), str(SOURCE)], check=True)
        path = library / "scenario"
        scenario(path)
        idle = sample(library, path, 0, seconds, "0")
        print(f"sleeping alone: {idle['share']:.3%} of one core")
        for gpus in ("0", "0,1"):
            for hz in (10, 50):
                found = sample(library, path, hz, seconds, gpus)
                share = found["share"] - idle["share"]
                rate, memory = found["n"] / (seconds + 1), found["rss"] / (1 << 20)
                print(
                    f"{len(gpus.split(','))} GPU, {hz} Hz: {share:.2%} of one core, {memory:.1f} MiB "
                    f"({rate:.1f} readings a second, {found['read_s'] * 1e6:.0f} us for one in a row)"
                )
        hit, n = peaks(library, path, seconds)
        print(f"peaks of 200 ms at 10 Hz: {hit} of {n} found")


if __name__ == "__main__":
    main()
