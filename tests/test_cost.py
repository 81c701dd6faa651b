"""Cheap commands stay cheap: what they import is asserted, what they cost is measured."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys

import pytest

HEAVY = {
    "textual",
    "rich",
    "httpx",
    "numpy",
    "gguf",
    "pynvml",
    "psutil",
    "msgspec",
    "asyncio",
    "platformdirs",
}

SPY = """
import json, sys
from kvtui.cli import main
try:
    main({argv!r})
except SystemExit:
    pass
print("\\n" + json.dumps(sorted({{m.split(".")[0] for m in sys.modules}})))
"""


def modules_of(*argv: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", SPY.format(argv=list(argv))], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("argv", [("--version",), ("--help",), ("tune", "--help"), ("demo", "--help")])
def test_help_and_version_import_nothing_heavy(argv: tuple[str, ...]) -> None:
    assert modules_of(*argv) & HEAVY == set()


def cpu_ms(*argv: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "kvtui", *argv], stdout=subprocess.DEVNULL, check=True, env=dict(os.environ)
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_help_take_little_cpu(option: str) -> None:
    best = min(cpu_ms(option) for _ in range(5))
    print(f"kvtui {option}: {best:.0f} ms CPU")
    assert best <= 120


def test_the_first_paint_waits_for_no_session() -> None:
    code = (
        "import sys, kvtui.tui.app, kvtui.tui.screens.start; print([m for m in sys.modules if 'kvtui' in m])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "kvtui.tui.screens.start" in told
    for part in ("session", "engines", "gpu", "procedure", "probes", "logs", "report", "model"):
        assert f"'kvtui.{part}" not in told
