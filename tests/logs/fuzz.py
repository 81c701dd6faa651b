"""Inputs made from real lines: mutated, interleaved, cut anywhere. Whatever comes out must not raise, and not
depend on the chunks.

`python -m tests.logs.fuzz [N] [SEED]` reads N inputs and prints how many and how fast.
"""

from __future__ import annotations

import json
import random
import sys
import time

from kvtui.logs.document import as_json
from kvtui.logs.facts import EngineFacts
from kvtui.logs.parser import LogParser
from tests.logs.conftest import DATA
from tests.logs.test_findings import CASES

LINES = sorted(
    {line for path in DATA.glob("*.log") for line in path.read_bytes().splitlines()}
    | {line.encode() for text, _ in CASES.values() for line in text.splitlines()}
)
RUBBISH = (
    b"\x00",
    b"\xff\xfe",
    b"\r",
    b"\x1b[31m",
    b"\x1b]0;",
    b"\xe2\x80\xae",
    b'"',
    b"{",
    b"(",
    b"=",
    b"%s",
    b"9" * 40,
)
PREFIXES = (
    b"",
    b"",
    b"0.00.1.2 I ",
    b"0.00.165.479 I ",
    b"[41234] ",
    b"a-1  | ",
    b"Apr 21 11:15:51 h x[1]: ",
    b"> ",
)
SLOW_S = 2.0


def mutate(rng: random.Random, line: bytes) -> bytes:
    """`line` with one thing wrong with it, or none."""
    at = rng.randrange(len(line) + 1)
    match rng.randrange(10):
        case 0:
            return line[:at]
        case 1:
            return line[at:]
        case 2:
            return line[:at] + rng.choice(RUBBISH) + line[at:]
        case 3:
            return line[:at] + line[at:].replace(b" ", b"", 3)
        case 4:
            return line[:at] + b"\n" + line[at:]
        case 5:
            return line + b"  " + rng.choice(LINES)
        case 6:
            return bytes(rng.choice(b"0123456789") if 48 <= c < 58 else c for c in line)
        case 7:
            return json.dumps({"msg": line.decode("utf-8", "replace")}).encode()
        case _:
            return line


def make(rng: random.Random) -> bytes:
    """One log of a few dozen lines, from the stretches of several."""
    parts = []
    for _ in range(rng.randrange(1, 8)):
        at, prefix = rng.randrange(len(LINES)), rng.choice(PREFIXES)
        parts += [prefix + mutate(rng, line) for line in LINES[at : at + rng.randrange(1, 8)]]
    if rng.random() < 0.3:
        rng.shuffle(parts)
    return rng.choice((b"\n", b"\n", b"\r\n")).join(parts) + rng.choice((b"", b"\n"))


def read(*chunks: bytes) -> EngineFacts:
    parser = LogParser()
    for chunk in chunks:
        parser.feed(chunk)
    parser.close()
    return parser.facts()


def check(rng: random.Random, log: bytes) -> None:
    """Read `log` whole and in pieces."""
    started = time.process_time()
    whole = read(log)
    json.dumps(as_json(whole), allow_nan=False)
    cuts = sorted(rng.randrange(len(log) + 1) for _ in range(rng.randrange(1, 9)))
    pieces = [log[a:b] for a, b in zip([0, *cuts], [*cuts, len(log)], strict=True)]
    assert read(*pieces) == whole, log
    assert time.process_time() - started < SLOW_S, log


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    started = time.process_time()
    for _ in range(count):
        check(rng, make(rng))
    spent = time.process_time() - started
    print(f"{count:,} inputs in {spent:,.0f} s CPU, no exception, the same facts at every chunking")


if __name__ == "__main__":
    main()
