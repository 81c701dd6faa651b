"""`kvtui budget` with what sessions measured of the runtime, and over several GPUs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvtui.cli import main
from kvtui.gpu import nvml
from kvtui.gpu.nvml import DeviceMemory
from kvtui.gpu.samples import DeviceInfo
from kvtui.model.header import read_header
from kvtui.procedure.budget import card as budget_card
from kvtui.procedure.budget import measured
from kvtui.session import events as ev
from kvtui.session.store import IMPORTED, sessions_dir
from tests.model.gguf_bytes import gguf, model, tensor, write
from tests.session import sample

CARD = "NVIDIA GeForce RTX 4060 Ti"
HELD = 1_200_856_498  # what the recorded runs held beyond weights and KV at -ub 512
HELD_256 = 816_434_905
SIZES = {
    "block_count": 32, "embedding_length": 4096, "context_length": 131072, "attention__head_count": 32,
    "attention__head_count_kv": 8,
}  # fmt: skip


class Driver:
    """Two GPUs of one kind."""

    devices = tuple(DeviceInfo("nvml", n, CARD, 16 << 30) for n in range(2))

    def memory(self, index: int, mig: int | None) -> DeviceMemory:
        return DeviceMemory(16 << 30, (index + 1) << 28)


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KVTUI_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(nvml, "open_nvml", lambda _limit_s: Driver())
    monkeypatch.setattr(budget_card, "DRIVER_FILES", (str(tmp_path),))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(write(tmp_path / "m.gguf", gguf(model("llama", **SIZES), [tensor("blk.0.w", (64, 64), 0, 0)])))


def record(path: str, name: str, *, card: str = CARD) -> Path:
    """The sample session as one of the model at `path`."""
    first, *rest = sample.events()
    assert isinstance(first, ev.SessionStarted)
    about = replace(first.model, header_sha256=read_header(path).header_sha256)
    device = replace(first.device, name=card)
    return sample.write(sessions_dir(), [replace(first, session=name, model=about, device=device), *rest])


def budget(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    main(["budget", *argv, "--json"])
    made: dict[str, Any] = json.loads(capsys.readouterr().out)["budget"]
    return made


def test_what_a_session_measured_is_used_and_named(capsys: pytest.CaptureFixture[str], path: str) -> None:
    assert budget(capsys, path)["runtime_source"] == "assumed"
    record(path, "20261129-101010-bbbb")
    record(path, "20261130-101010-cccc", card="another card")
    made = budget(capsys, path)
    assert (made["runtime_bytes"], made["runtime_source"]) == (HELD, "measured")
    assert made["runtime_run"] == {
        "session": "20261129-101010-bbbb", "run": 1, "n_ctx": 8192, "n_ubatch": 512,
    }  # fmt: skip
    assert main(["budget", path, "-c", "8192"]) == 0
    page = capsys.readouterr().out
    assert "1.12 GiB (measured)" in page
    assert "runtime measured by session 20261129-101010-bbbb, run 1, at 8K" in page


def test_a_list_uses_it_too_and_says_so(
    capsys: pytest.CaptureFixture[str], path: str, tmp_path: Path
) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for name in ("one.gguf", "two.gguf"):
        (folder / name).write_bytes(Path(path).read_bytes())
    write(folder / "other.gguf", gguf(model("llama", **SIZES | {"block_count": 30})))
    record(path, "20261129-101010-bbbb")
    main(["budget", str(folder), "--json"])
    sources = [one["runtime_source"] for one in json.loads(capsys.readouterr().out)["models"]]
    assert sources == ["measured", "assumed", "measured"]
    main(["budget", str(folder)])
    assert capsys.readouterr().out.splitlines()[-1] == "runtime measured by a session: one.gguf, two.gguf"
    main(["budget", str(folder), "--vram", "16"])
    assert "runtime measured" not in capsys.readouterr().out


def test_only_a_run_with_the_same_micro_batch_and_layers_tells(
    capsys: pytest.CaptureFixture[str], path: str
) -> None:
    record(path, "20261129-101010-bbbb")
    assert budget(capsys, path, "-ub", "256")["runtime_bytes"] == HELD_256
    for other in (("-ub", "128"), ("-ngl", "20"), ("-ncmoe", "4")):
        assert budget(capsys, path, *other)["runtime_source"] == "assumed"
    assert budget(capsys, path, "-ngl", "999", "-ncmoe", "0")["runtime_source"] == "measured"


def test_what_is_given_wins(capsys: pytest.CaptureFixture[str], path: str) -> None:
    record(path, "20261129-101010-bbbb")
    made = budget(capsys, path, "--runtime", "2")
    assert (made["runtime_bytes"], made["runtime_source"], made["runtime_run"]) == (2 << 30, "given", None)
    assert budget(capsys, path, "--vram", "16")["runtime_source"] == "assumed"


def test_sessions_of_others_damaged_and_old_ones_tell_nothing(
    capsys: pytest.CaptureFixture[str], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = record(path, "20261129-101010-bbbb")
    (imported / IMPORTED).touch()
    damaged = record(path, "20261129-101010-cccc")
    lines = (damaged / "events.jsonl").read_bytes().splitlines(keepends=True)
    (damaged / "events.jsonl").write_bytes(b"".join([lines[0], b"nonsense\n", *lines[1:]]))
    torn = record(path, "20261129-101010-dddd")
    (torn / "events.jsonl").write_bytes(b"{")
    assert budget(capsys, path)["runtime_source"] == "assumed"
    record(path, "20261101-101010-aaaa")
    assert budget(capsys, path)["runtime_run"]["session"] == "20261101-101010-aaaa"
    monkeypatch.setattr(measured, "NEWEST", 3)
    assert budget(capsys, path)["runtime_source"] == "assumed"
    monkeypatch.setattr(measured, "NEWEST", 50)
    monkeypatch.setattr(measured, "MAX_SESSION_BYTES", 100)
    assert budget(capsys, path)["runtime_source"] == "assumed"


@pytest.mark.parametrize(
    ("argv", "total", "reserve", "indices"),
    [
        ((), 16 << 30, 1 << 28, []),
        (("--gpu", "1"), 16 << 30, 2 << 28, []),
        (("--gpu", "1,0"), 32 << 30, 3 << 28, [1, 0]),
        (("--vram", "16,8"), 24 << 30, 0, [None, None]),
    ],
)
def test_several_gpus_are_summed(
    capsys: pytest.CaptureFixture[str],
    path: str,
    argv: Sequence[str],
    total: int,
    reserve: int,
    indices: list[int],
) -> None:
    made = budget(capsys, path, *argv)
    assert (made["total_bytes"], made["reserve_bytes"]) == (total, reserve)
    assert [gpu["index"] for gpu in made["gpus"]] == indices


def test_all_that_the_environment_leaves_is_the_default(
    capsys: pytest.CaptureFixture[str], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    main(["budget", path, "-c", "8192"])
    page = capsys.readouterr().out
    assert f"card     32.00 GiB  2 x {CARD}: the sum of 16.00 + 16.00" in page
    assert max(map(len, page.splitlines())) <= 80
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    main(["budget", path, "--json"])
    assert json.loads(capsys.readouterr().out)["budget"] is None


def test_a_split_is_named_an_approximation_and_adds_up(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = [tensor(f"blk.{n}.w", (64, 64 + n), 0, 0) for n in range(32)]
    rows += [tensor("output.weight", (64, 1000), 0, 0), tensor("token_embd.weight", (64, 1000), 0, 0)]
    path = str(write(tmp_path / "s.gguf", gguf(model("llama", **SIZES), rows)))
    main(["budget", path, "--vram", "16,16,1", "-c", "32768", "--json"])
    made = json.loads(capsys.readouterr().out)
    shares = made["budget"]["split"]
    # 33 positions, the output last; the shares end at 16/33, 32/33 and 1, and a position at an end goes behind it.
    assert [(one["layers"], one["output"]) for one in shares] == [(16, False), (16, False), (0, True)]
    assert sum(one["kv_bytes"] for one in shares) == made["kv_bytes"] == 4 << 30
    assert sum(one["weights_bytes"] for one in shares) == made["weights"]["gpu_bytes"]
    assert {one["exactness"] for one in shares} == {"approximate"}
    assert main(["budget", path, "--vram", "2,1.5", "-c", "32768"]) == 1
    page = capsys.readouterr().out
    assert "split    about: layers in proportion to free memory" in page
    assert "too much" in page.split("split ")[1]
    assert max(map(len, page.splitlines())) <= 80
    main(["budget", path, "--vram", "16", "-c", "32768"])
    assert "\nsplit " not in capsys.readouterr().out


def test_layers_that_stay_on_the_host_are_no_part_of_the_split(
    capsys: pytest.CaptureFixture[str], path: str
) -> None:
    shares = budget(capsys, path, "--vram", "8,8", "-c", "32768", "-ngl", "9")["split"]
    assert [(one["layers"], one["output"]) for one in shares] == [(5, False), (3, True)]
    assert sum(one["kv_bytes"] for one in shares) == 1 << 30
    assert budget(capsys, path, "--vram", "8,8", "-ngl", "0")["split"] == []


def test_a_gpu_that_is_not_there(
    capsys: pytest.CaptureFixture[str], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["budget", path, "--gpu", "5"]) == 2
    assert capsys.readouterr().err == "kvtui: there is no GPU 5: there is 0, 1\n"
    monkeypatch.setattr(budget_card, "DRIVER_FILES", ())
    assert main(["budget", path, "--gpu", "0"]) == 2
    assert "give --vram" in capsys.readouterr().err
    assert main(["budget", path, "--gpu", "0", "--vram", "16"]) == 2
    assert "give one of both" in capsys.readouterr().err
    for bad in (("--vram", "16,"), ("--vram", "x"), ("--gpu", "a"), ("--gpu", "")):
        with pytest.raises(SystemExit) as caught:
            main(["budget", path, *bad])
        assert caught.value.code == 2
        capsys.readouterr()
