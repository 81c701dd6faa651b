"""Time and memory of reading a header with a 262,144-token vocabulary, beside the `gguf` package's reader.

`python -m tests.benchmarks.header_cost [MODEL.gguf]` prints both; the reference takes 20 s and more. Without a
model, a header with a vocabulary of that size is written first.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.model.gguf_bytes import gguf, model, write

TOKENS = 262_144
OURS = "from kvtui.model.header import read_header as read"
THEIRS = "from gguf import GGUFReader as read"
PROBE = """
import resource, sys, time
{imports}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
started = time.process_time()
read(sys.argv[1])
spent = time.process_time() - started
print(spent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def vocabulary(folder: Path) -> Path:
    """A header as large as those of models with 262,144 tokens."""
    tokens = [f"token-{i}" for i in range(TOKENS)]
    extra = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [1] * TOKENS}
    return write(folder / "vocabulary.gguf", gguf(model("gemma3", block_count=18) | extra))


def measure(imports: str, path: Path) -> tuple[float, float]:
    """CPU seconds and MiB that one read in a fresh process takes."""
    code = PROBE.format(imports=imports)
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True)
    seconds, kib = done.stdout.split()
    return float(seconds), float(kib) / 1024


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(sys.argv[1]) if len(sys.argv) > 1 else vocabulary(Path(folder))
        ours, theirs = measure(OURS, path), measure(THEIRS, path)
    print(f"kvtui  {ours[0]:8.3f} s CPU  {ours[1]:8.1f} MiB")
    print(f"gguf   {theirs[0]:8.3f} s CPU  {theirs[1]:8.1f} MiB")
    print(f"{theirs[0] / ours[0]:,.0f} times faster")


if __name__ == "__main__":
    main()
