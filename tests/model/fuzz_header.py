"""Mutated headers: nothing but a Header or a ModelFileError may come out, quickly and in little memory.

Run by hand for a long time: `python -m tests.model.fuzz_header 100000 [SEED]`.
"""

from __future__ import annotations

import random
import resource
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kvtui.core.errors import ModelFileError
from kvtui.model.context import plan
from kvtui.model.geometry import geometry
from kvtui.model.header import read_header
from kvtui.model.request import ContextRequest
from kvtui.model.weights import place
from tests.model.gguf_bytes import gguf, model, tensor

EXTREMES = (
    0,
    1,
    2,
    7,
    8,
    9,
    12,
    13,
    255,
    1 << 16,
    1 << 31,
    (1 << 31) - 1,
    (1 << 32) - 1,
    1 << 62,
    (1 << 64) - 1,
)
REQUEST = ContextRequest(4096, n_seq_max=2, type_k="q8_0")


def seeds() -> list[bytes]:
    """Headers of several families, both byte orders, with every kind of value in them."""
    common = {
        "general.name": "n",
        "general.alignment": 32,
        "tokenizer.ggml.tokens": ["a", "bb", ""] * 20,
        "tokenizer.ggml.scores": [0.5, 1.5],
        "x.flags": [True, False],
    }
    swa = {"attention__sliding_window": 512, "attention__sliding_window_pattern": [1, 1, 0, 1]}
    heads = {"block_count": 4, "attention__head_count": 8, "attention__head_count_kv": [2, 2, 0, 2]}
    mla = {
        "attention__kv_lora_rank": 512,
        "attention__key_length_mla": 192,
        "attention__value_length_mla": 128,
    }
    ssm = {f"ssm__{k}": 4 for k in ("conv_kernel", "inner_size", "state_size", "group_count")}
    rows = [
        tensor("token_embd.weight", (64, 32), 0, 0),
        tensor("blk.0.ffn_up_exps.weight", (256, 2), 12, 8192),
    ]
    return [
        gguf(model("llama", **heads) | common, rows),
        gguf(model("gemma3", **heads, **swa) | common, rows, version=2),
        gguf(model("deepseek2", **heads, **mla), rows, order=">"),
        gguf(model("qwen35", **heads, **ssm) | common, rows),
        gguf(model("something-new", **heads) | common, rows),
    ]


def mutate(rng: random.Random, data: bytes) -> bytes:
    """One or two changes: flipped bits, extreme numbers, cuts, copies, noise."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(len(out)) if out else 0
        match rng.choices(range(6), (6, 6, 1, 1, 1, 2))[0]:
            case 0 if out:
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                code = rng.choice(("<I", ">I", "<Q", ">Q"))
                size = struct.calcsize(code)
                value = rng.choice(EXTREMES) & ((1 << 8 * size) - 1)
                out[at : at + size] = struct.pack(code, value)
            case 2:
                del out[at:]
            case 3:
                end = min(len(out), at + rng.randint(1, 40))
                out[at:at] = out[at:end]
            case 4:
                del out[at : at + rng.randint(1, 16)]
            case _:
                out[at : at + 4] = rng.randbytes(4)
    return bytes(out)


def outcomes(count: int, seed: int, folder: Path) -> Iterator[str]:
    """Runs `count` mutated headers; yields what became of each."""
    rng = random.Random(seed)
    originals = seeds()
    path = folder / "mutated.gguf"
    for _ in range(count):
        path.write_bytes(mutate(rng, rng.choice(originals)))
        started = time.process_time()
        try:
            header = read_header(path)
        except ModelFileError:
            yield "refused"
        else:
            shape = geometry(header)
            plan(shape, REQUEST)
            place(header, 10, 2)
            yield shape.exactness
        assert time.process_time() - started < 2


if __name__ == "__main__":
    n, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begun = time.perf_counter()
        counts = Counter(outcomes(n, seed, Path(folder)))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        sys.stdout.write(f"{n} headers, {dict(counts)}, {time.perf_counter() - begun:.0f} s, +{grown} KiB\n")
