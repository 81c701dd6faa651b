"""The app on recorded stories: no engine, no network, sessions in a temporary folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from kvtui.tui.app import KvtuiApp

Until = Callable[[Pilot[int], Callable[[], object]], object]


@pytest.fixture(autouse=True)
def _own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVTUI_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("kvtui.tui.render.UNICODE", True)


async def until(pilot: Pilot[int], what: Callable[[], object], seconds: float = 40.0) -> None:
    """Let the app work until `what()` is true; fails when it never is."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            pytest.fail("the screen never came to this")
        await pilot.pause(0.02)


def screen_text(app: KvtuiApp) -> str:
    """What is on the screen, line by line, without colour."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(s.text.rstrip() for s in strips)
