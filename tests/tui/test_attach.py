"""Running engines on the screen: found, looked at, looked at again, gone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvtui.core.findings import Finding
from kvtui.engines.attach.asked import Asked
from kvtui.engines.attach.http_facts import HttpFacts
from kvtui.engines.attach.logplace import LogPlace
from kvtui.engines.attach.logread import LogRead
from kvtui.engines.attach.look import Seen
from kvtui.engines.attach.memory import HostMemory
from kvtui.logs.facts import EngineFacts
from kvtui.procedure.attached.inference import Inference
from kvtui.procedure.attached.rows import Row
from kvtui.procedure.attached.view import Attached
from kvtui.tui.app import KvtuiApp
from kvtui.tui.lines import text_of, width_of
from kvtui.tui.screens.attach import EnginesScreen
from kvtui.tui.screens.start import StartScreen
from kvtui.tui.view_attach import attached
from tests.engines.attach.conftest import StandIn, patient, stand_in  # noqa: F401 - fixtures
from tests.engines.attach.test_logread import start_up
from tests.tui.conftest import screen_text, until

ROWS = (
    Row("K cache type", "q8_0", "-ctk q8_0", "q8_0", "inferred", "memory", None, "inferred"),
    Row("context", "8192", "-c 8192", "4096", "differs", "log", 118),
    Row("batch", "-", "", "-", "unproven", "", None),
)


def view() -> Attached:
    seen = Seen(
        "llama-server",
        None,
        Asked(),
        None,
        HttpFacts(),
        LogPlace("none", "/dev/null", why="it is thrown away: give --log FILE"),
        LogRead(EngineFacts(), problem="it is thrown away: give --log FILE"),
        HostMemory(1 << 30, 1 << 29),
        None,
        "no NVIDIA driver",
        0.4,
    )
    finding = Finding("setting-differs", "warning", "A setting differs", "8192 was asked.", "-c")
    inference = Inference("q8_0/q8_0", "host", 1 << 29, "512 MiB measured, 500 MiB ±40 MiB expected")
    return Attached(seen, EngineFacts(), ROWS, (finding,), inference, nothing_read=False)


@pytest.mark.parametrize("cells", [38, 60, 78, 160])
def test_all_of_it_fits_and_says_what_is_inferred(cells: int) -> None:
    out = attached(view(), cells)
    assert max(map(width_of, out)) <= cells
    text = " ".join(" ".join(map(text_of, out)).split())
    for word in ("inferred", "differs", "unproven", "it is thrown", "next: -c", "not proven"):
        assert word in text
    assert ("line 118" in text) == (cells >= 72)


@pytest.mark.usefixtures("patient")
async def test_from_the_start_to_an_engine_and_back(stand_in: Callable[..., StandIn]) -> None:  # noqa: F811
    running = stand_in("llama-server", "-c", "4096", "-ctk", "f16", log_text=start_up(4096))
    app = KvtuiApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "Running" in screen_text(app))
        await pilot.press("end", "up", "up", "enter")
        await until(pilot, lambda: f" {running.pid} " in screen_text(app))
        assert isinstance(app.screen, EnginesScreen)
        await pilot.press("r")
        await until(pilot, lambda: f" {running.pid} " in screen_text(app))
        for _ in range(20):
            rows = screen_text(app).splitlines()
            menu = app.screen.query_one("#menu")
            if menu.get_option_at_index(menu.highlighted).id == f"p{running.pid}":  # type: ignore[attr-defined]
                break
            await pilot.press("down")
        assert rows
        await pilot.press("enter")
        await until(pilot, lambda: "✗ differs" in screen_text(app))
        assert "q8_0" in screen_text(app)
        running.process.kill()
        running.process.wait()
        await pilot.press("r")
        await until(pilot, lambda: "has ended" in screen_text(app))
        await pilot.press("escape", "escape")
        await until(pilot, lambda: isinstance(app.screen, StartScreen))
