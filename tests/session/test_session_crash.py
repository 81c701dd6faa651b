"""Real processes: killed while writing, out of space, and two writers."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvtui.session.codec import encode
from kvtui.session.state import fold
from kvtui.session.store import EVENTS, SessionStore, is_locked, load, read_events
from tests.session import sample

ROOT = Path(__file__).resolve().parents[2]

# Announces each event only after `append` returned, so that whatever was announced must be on disk.
WRITER = """
import sys
from pathlib import Path
from kvtui.session.store import SessionStore
from tests.session import sample
recorded = sample.events()
with SessionStore.open(Path(sys.argv[1])) as store:
    print("open", flush=True)
    for turn in range(1000000):
        store.append(recorded[1 + turn % (len(recorded) - 1)])
        print(turn + 1, flush=True)
"""

LIMITED = """
import resource, sys
from pathlib import Path
from kvtui.core.errors import SessionError
from kvtui.session.store import SessionStore
from tests.session import sample
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
written = 0
try:
    first, *rest = sample.events()
    with SessionStore.create(first, Path(sys.argv[1])) as store:
        for event in rest:
            store.append(event)
            written += 1
except SessionError as error:
    print(written, error.line())
    sys.exit(3)
"""


def _python(script: str, *arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def test_kill_9_at_random_moments_loses_nothing_that_was_announced(tmp_path: Path) -> None:
    recorded = sample.events()
    folder = sample.write(tmp_path, recorded[:1])
    dice = random.Random(7)
    total = 0
    for _ in range(6):
        with _python(WRITER, str(folder)) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "open\n"
            assert is_locked(folder)
            time.sleep(dice.uniform(0.0, 0.12))
            writer.send_signal(signal.SIGKILL)
            announced = [int(line) for line in writer.stdout.read().split()]
        assert writer.returncode == -signal.SIGKILL
        assert not is_locked(folder)
        events, torn, good = read_events(folder / EVENTS)
        mine = len(events) - 1 - total
        assert mine - (announced[-1] if announced else 0) in (0, 1)
        assert [encode(e) for e in events[1 + total :]] == [
            encode(recorded[1 + turn % (len(recorded) - 1)]) for turn in range(mine)
        ]
        assert torn is (good != (folder / EVENTS).stat().st_size)
        load(folder)
        total += mine
    assert total > 6


@pytest.mark.parametrize("limit", [300, 4096, 20_000])
def test_no_space_is_one_clear_line_and_what_is_recorded_stays(tmp_path: Path, limit: int) -> None:
    with _python(LIMITED, str(tmp_path), str(limit)) as writer:
        said, trouble = writer.communicate(timeout=60)
    assert writer.returncode == 3, trouble
    count, _, line = said.rstrip("\n").partition(" ")
    assert "cannot write the session" in line
    assert "\n" not in line
    if limit == 300:
        assert list(tmp_path.iterdir()) == []
        return
    folder = tmp_path / sample.SESSION
    state = load(folder)
    assert not state.torn
    assert int(count) > 0
    assert state == fold(sample.events()[: int(count) + 1])
    with SessionStore.open(folder) as store:
        store.append(sample.events()[int(count) + 1])
    assert load(folder) == fold(sample.events()[: int(count) + 2])


def test_two_processes_cannot_write_one_session(tmp_path: Path) -> None:
    folder = sample.write(tmp_path)
    whole = (folder / EVENTS).read_bytes()
    with SessionStore.open(folder), _python(WRITER, str(folder)) as second:
        said, trouble = second.communicate(timeout=60)
    assert said == ""
    assert "another kvtui is writing this session" in trouble
    assert (folder / EVENTS).read_bytes() == whole
