"""The budget before anything is launched: its views at several sizes, and the way through its screens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kvtui.core.units import GIB, size
from kvtui.procedure import setup
from kvtui.procedure.budget import card as card_module
from kvtui.procedure.budget.card import found_card, given_card
from kvtui.procedure.budget.explore import (
    Choices,
    Opened,
    answer,
    budget_command,
    contexts,
    explore,
    first_choices,
    step,
)
from kvtui.procedure.budget.measured import Measurements
from kvtui.procedure.budget.money import MeasuredRuntime, Terms
from kvtui.procedure.budget.question import Answer
from kvtui.session.store import sessions_dir
from kvtui.tui import view_budget
from kvtui.tui.app import KvtuiApp
from kvtui.tui.lines import Line, text_of, width_of
from kvtui.tui.screens import models as screens
from kvtui.tui.screens.budget import ModelScreen
from kvtui.tui.screens.form import TuneScreen, tune_job
from kvtui.tui.screens.models import ModelsScreen
from kvtui.tui.screens.start import StartScreen
from tests.model.gguf_bytes import gguf, model, tensor, write
from tests.session import sample
from tests.sources.conftest import Store
from tests.tui.conftest import screen_text, until

GEMMA = {
    "block_count": 18, "embedding_length": 640, "context_length": 131072, "attention__head_count": 4,
    "attention__head_count_kv": 1, "attention__key_length": 256, "attention__value_length": 256,
    "attention__sliding_window": 512,
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(card_module, "DRIVER_FILES", ())
    monkeypatch.setattr(card_module, "AMD_FILES", ())
    for name in ("OLLAMA_MODELS", "HF_HUB_CACHE", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path / "models")


@pytest.fixture
def gemma(tmp_path: Path) -> str:
    metadata = model("gemma3", **GEMMA) | {"general.name": "Gemma 3 270m", "general.file_type": 15}
    rows = [tensor("token_embd.weight", (640, 1000), 1, 0), tensor("blk.0.w", (640, 640), 1, 1_280_000)]
    return str(write(tmp_path / "models" / "gemma [Q4].gguf", gguf(metadata, rows)))


@pytest.fixture
def opened(gemma: str) -> Opened:
    return explore(gemma, None, Measurements())


def shown(made: Answer, cells: int) -> str:
    return text(view_budget.model(made, cells))


def text(lines: Sequence[Line]) -> str:
    return "\n".join(text_of(row).rstrip() for row in lines)


@pytest.mark.parametrize("cells", [34, 58, 78, 98, 158])
@pytest.mark.parametrize("vram", [None, (1.0,), (16.0,), (8.0, 8.0)])
def test_everything_fits_the_width(opened: Opened, cells: int, vram: tuple[float, ...] | None) -> None:
    card = None if vram is None else given_card(vram)
    for choices in (Choices(), Choices(pair=2, slots=4), Choices(131072, 3, 2, unified=True)):
        made = answer(opened, choices, card, Terms())
        page = view_budget.model(made, cells)
        assert max(map(width_of, page)) <= cells
        for cache in made.made.caches:
            row = next(text_of(row) for row in page if text_of(row).startswith(f"{cache.kind} "))
            assert f"{cache.cells:,}" in row
            assert row.rstrip().endswith(size(cache.bytes))


def test_what_counts_is_in_sight_without_scrolling_on_the_smallest_terminal(opened: Opened) -> None:
    made = answer(opened, Choices(65536, 1), given_card([16]), Terms())
    page = text(view_budget.model(made, 78)[:21])
    for part in (
        "context 64K   KV q8_0   slots 1   -ub 512", "card    16.00 GiB  given", "▚ runtime 1.20 GiB (assumed)",
        "✓ fits", "KV 110.0 MiB (exact)", "›64K", "▶ q8_0 ", "131,072*", "SWA              15      1,024",
        "65,536 cells x 1 x (768 K x 34/32 + 768 V x 34/32) bytes", "15 layers slide",
    ):  # fmt: skip
        assert part in page
    whole = shown(made, 78)
    assert "Not counted" in whole
    assert "f16 scratch" in whole


def test_the_bar_is_the_card_to_scale(opened: Opened) -> None:
    made = answer(opened, Choices(), given_card([10]), Terms(reserve_gib=1, runtime_gib=2, margin_gib=1))
    assert made.money is not None
    body = text_of(view_budget.bar(made.money, view_budget.words.parts(made.money, 2 * GIB), 102))[1:-1]
    assert [body.count(glyph) for glyph in "▒█▓▚·"] == [10, 1, 20, 20, 10]
    assert len(body) == 100


def test_what_is_too_much_stands_behind_the_end_of_the_card(opened: Opened) -> None:
    made = answer(opened, Choices(), given_card([2]), Terms(runtime_gib=3, margin_gib=1))
    assert made.money is not None
    body = text_of(view_budget.bar(made.money, view_budget.words.parts(made.money, made.made.kv_bytes), 102))[
        1:-1
    ]
    assert 45 <= body.index("│") <= 50
    assert "✗ does not fit: 2.11 GiB too much" in shown(made, 78)


def test_without_a_card_the_screen_says_how_to_name_one(opened: Opened) -> None:
    page = shown(answer(opened, Choices(), None, Terms()), 78)
    assert "No GPU is seen here" in page
    assert "16 is suggested" in page
    assert "largest -c" not in page
    assert "✓" not in page


def test_a_refusal_is_named(opened: Opened) -> None:
    made = answer(opened, Choices(pair=1), given_card([16]), Terms())
    refused = replace(made, made=replace(made.made, refused="no such thing", kv_bytes=None))
    assert "✗ refused: no such thing" in shown(refused, 78)


def test_a_runtime_that_was_measured_says_where(opened: Opened) -> None:
    one = MeasuredRuntime(GIB // 2, "20261129-101010-bbbb", 3, 65536, 512)
    known = replace(opened, measured=(one, replace(one, n_bytes=GIB, n_ubatch=1024)))
    page = shown(answer(known, Choices(), given_card([16]), Terms()), 78)
    assert "runtime 0.50 GiB (measured)" in page
    assert "measured by session 20261129-101010-bbbb, run 3, at 64K" in page
    assert "runtime 1.20 GiB (assumed)" in shown(
        answer(known, Choices(n_ubatch=256), given_card([16]), Terms()), 78
    )


def test_the_context_steps_through_round_ones_and_the_largest_that_fits(opened: Opened) -> None:
    made = answer(opened, first_choices(opened), given_card([2.5]), Terms())
    stages = contexts(made)
    largest = made.pairs[0].largest
    assert largest is not None
    assert largest.tokens in stages
    assert {32768, 65536, 98304, 131072} < set(stages)
    assert step(stages, 32768, 1) > 32768 > step(stages, 32768, -1)
    assert step(stages, stages[-1], 1) == stages[-1]
    assert step(stages, stages[0], -1) == stages[0]


def test_the_command_prints_the_same_and_can_be_pasted(gemma: str) -> None:
    said = budget_command(gemma, Choices(65536, 2, 4, unified=True, n_ubatch=256), (16, 8.5))
    assert said == (f"kvtui budget '{gemma}' -c 65536 -ctk q8_0 -ctv q4_0 -np 4 -kvu -ub 256 --vram 16,8.5")


@pytest.mark.parametrize("cells", [20, 30, 78])
def test_a_list_keeps_the_end_of_a_long_name(cells: int) -> None:
    name = view_budget.tail("/a/very/long/path/" * 9 + "model-Q4_K_M.gguf", cells)
    assert len(name) == cells
    assert name.startswith("…")
    assert name.endswith("Q4_K_M.gguf")
    assert view_budget.tail("short", cells) == "short"


async def test_from_the_start_to_a_model_and_its_figures(gemma: str, tmp_path: Path) -> None:
    (tmp_path / "models" / "broken.gguf").write_bytes(b"not a model")
    app = KvtuiApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "Budget" in screen_text(app))
        await pilot.press("home", "down", "enter")
        await until(pilot, lambda: "v takes the memory of a card" in screen_text(app))
        assert isinstance(app.screen, ModelsScreen)
        assert "gemma [Q4].gguf" in screen_text(app)
        assert "not a GGUF file" in screen_text(app)
        await pilot.press("enter")
        assert isinstance(app.screen, ModelsScreen)  # a model that cannot be read
        await pilot.press("v", "x", "enter")
        assert "is not a size in GiB" in screen_text(app)
        await pilot.press("backspace", "1", "6", "enter")
        await until(pilot, lambda: "131,072*" in screen_text(app))
        await pilot.press("down", "enter")
        await until(pilot, lambda: "✓ fits" in screen_text(app))
        assert isinstance(app.screen, ModelScreen)
        for key, part in (
            ("k", "▶ q8_0 "), ("right", "context 64K"), ("left", "context 32K"), ("plus", "slots 2 divided"),
            ("u", "slots 2 unified"), ("minus", "slots 1 unified"), ("m", "-ub 1024"),
        ):  # fmt: skip
            await pilot.press(key)
            await until(pilot, lambda part=part: part in screen_text(app))
        await pilot.press("y")
        assert app.clipboard.endswith("-c 32768 -ctk q8_0 -ctv q8_0 -np 1 -kvu -ub 1024 --vram 16")
        await pilot.press("t")
        await until(pilot, lambda: "Enter goes on" in screen_text(app))
        assert isinstance(app.screen, TuneScreen)
        await pilot.press("enter")
        await until(pilot, lambda: "From the budget: up to 32K, 1 slot, -ub 1024" in screen_text(app))
        await pilot.press("escape", "f2")
        await until(pilot, lambda: isinstance(app.screen, ModelScreen) and "✓ fits" in screen_text(app))
        await pilot.press("escape", "escape", "escape", "escape")
        assert isinstance(app.screen, StartScreen)


async def test_a_name_that_is_typed_leads_to_a_model_to_a_list_or_to_a_reason(
    gemma: str, tmp_path: Path
) -> None:
    app = KvtuiApp()
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause()
        app.push_screen(ModelsScreen(str(tmp_path)))
        await until(pilot, lambda: "models/gemma [Q4].gguf" in screen_text(app))
        field = app.screen.query_one("#where")
        for typed, part in ((f"{tmp_path}/nothing", "no such file"), (str(tmp_path), "models/gemma")):
            await pilot.press("o")
            field.value = typed  # type: ignore[attr-defined]
            await pilot.press("enter")
            await until(pilot, lambda part=part: part in screen_text(app))
        await pilot.press("o")
        field.value = gemma  # type: ignore[attr-defined]
        await pilot.press("enter")
        await until(pilot, lambda: "No GPU is seen here" in screen_text(app))
        assert isinstance(app.screen, ModelScreen)


async def test_a_model_that_is_gone_is_one_line(tmp_path: Path) -> None:
    app = KvtuiApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        app.push_screen(ModelScreen(f"{tmp_path}/gone.gguf"))
        await until(pilot, lambda: "no such file" in " ".join(screen_text(app).split()))
        await pilot.press("k", "right", "plus", "y", "t")
        assert isinstance(app.screen, ModelScreen)


def test_long_lists_and_huge_trees_end(gemma: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(3):
        (tmp_path / "models" / f"sub{n}").mkdir()
        write(tmp_path / "models" / f"sub{n}" / "x.gguf", b"")
    monkeypatch.setattr(screens, "BATCH_S", -1.0)
    found = screens.first_rows(1, str(tmp_path / "models"), None)
    assert [row.name for row in found.rows] == ["gemma [Q4].gguf"]
    assert found.rest is not None
    assert [row.name for row in screens.more_rows(1, found.rest).rows] == ["sub0/x.gguf"]
    monkeypatch.setattr(screens, "BATCH_S", 60.0)
    monkeypatch.setattr(screens, "MOST_MODELS", 2)
    found = screens.first_rows(1, str(tmp_path / "models"), None)
    assert (len(found.rows), found.rest) == (2, None)
    assert "more than 2 models" in found.note
    monkeypatch.setattr(screens, "MOST_FOLDERS", 2)
    monkeypatch.setattr(screens, "MOST_MODELS", 200)
    found = screens.first_rows(1, str(tmp_path / "models"), None)
    assert (len(found.rows), found.rest) == (2, None)
    assert "more than 2 folders" in found.note


def test_what_is_at_hand_comes_once_the_models_of_sessions_first(
    gemma: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    monkeypatch.setenv("OLLAMA_MODELS", str(store.root))
    store.tag("registry.ollama.ai/library/tiny/latest", store.layer("model", Path(gemma).read_bytes()))
    hub = tmp_path / "hub" / "models--x--y" / "snapshots" / "main"
    hub.mkdir(parents=True)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    for path in (hub / "cached.gguf", tmp_path / "elsewhere.gguf"):
        path.write_bytes(Path(gemma).read_bytes())
    for n, path in enumerate((gemma, str(tmp_path / "elsewhere.gguf"), str(tmp_path / "gone.gguf"))):
        started = sample.started()
        about = replace(started.model, path=path)
        sample.write(sessions_dir(), [replace(started, session=f"2026112{n}-101010-aaaa", model=about)])
    found = screens.first_rows(1, "", None)
    assert [row.name for row in found.rows] == [
        str(tmp_path / "elsewhere.gguf"), gemma, "tiny:latest", "models--x--y/snapshots/main/cached.gguf",
    ]  # fmt: skip
    assert all(row.header for row in found.rows)


def test_no_card_is_none_and_one_that_is_not_there_an_error() -> None:
    assert found_card() is None
    with pytest.raises(card_module.InputError, match="GPU 3 cannot be used"):
        found_card([3])


def test_what_was_chosen_is_what_is_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[setup.TuneRequest] = []
    monkeypatch.setattr(setup, "prepare", lambda request, note: asked.append(request))
    tune_job("m.gguf", "coding-agent", None, Choices(65536, 1, 4, n_ubatch=256))(str)
    tune_job("m.gguf", "coding-agent", None)(str)
    chosen, plain = asked
    assert (chosen.target_context, chosen.n_parallel, chosen.n_ubatch) == (65536, 4, 256)
    assert (plain.target_context, plain.n_parallel, plain.n_ubatch) == (None, None, None)
    assert replace(chosen, target_context=None, n_parallel=None, n_ubatch=None) == plain
