"""`kvtui budget`: the contract kvtui.budget/1, the exit status, the page for a person."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvtui.cli import main
from kvtui.gpu import amd, nvml
from kvtui.gpu.nvml import DeviceMemory, NvmlMissing
from kvtui.gpu.samples import DeviceInfo
from kvtui.procedure.budget import card as budget_card
from tests.model.gguf_bytes import gguf, model, tensor, write

GEMMA = {
    "block_count": 18, "embedding_length": 640, "context_length": 32768, "attention__head_count": 4,
    "attention__head_count_kv": 1, "attention__key_length": 256, "attention__value_length": 256,
    "attention__sliding_window": 512,
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget_card, "DRIVER_FILES", ())


@pytest.fixture
def gemma(tmp_path: Path) -> str:
    metadata = model("gemma3", **GEMMA) | {"general.name": "Gemma 3 270m", "general.file_type": 15}
    rows = [tensor("token_embd.weight", (640, 1000), 1, 0), tensor("blk.0.w", (640, 640), 1, 1_280_000)]
    return str(write(tmp_path / "gemma.gguf", gguf(metadata, rows)))


def document(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, Any]]:
    status = main(["budget", *argv, "--json"])
    captured = capsys.readouterr()
    assert captured.err == ""
    return status, json.loads(captured.out)


def test_contract(capsys: pytest.CaptureFixture[str], gemma: str) -> None:
    status, made = document(
        capsys, gemma, "-c", "32768", "-ctk", "q8_0", "-ctv", "q8_0", "-ub", "512", "-np", "1"
    )
    assert status == 0
    assert made["schema"] == "kvtui.budget/1"
    assert made["model"]["path"] == gemma
    assert made["model"]["exactness"] == "exact"
    assert made["model"]["weights_bytes"] == 2_099_200
    assert made["config"] == {
        "ctx": 32768, "ubatch": 512, "n_seq_max": 1, "kv_unified": False, "swa_full": False,
        "type_k": "q8_0", "type_v": "q8_0", "flash_attn": "auto",
    }  # fmt: skip
    assert (made["n_ctx"], made["n_ctx_seq"]) == (32768, 32768)
    assert made["caches"][1] == {
        "kind": "SWA", "layers": 15, "cells": 1024, "streams": 1, "type_k": "q8_0", "type_v": "q8_0",
        "k_bytes": 4_177_920, "v_bytes": 4_177_920, "bytes": 8_355_840,
    }  # fmt: skip
    assert made["kv_bytes"] == 61_833_216
    assert made["recurrent"] is None
    assert made["refused"] is None
    assert made["budget"] is None
    assert {e["name"] for e in made["not_counted"]} == {
        "f16 scratch",
        "mmproj",
        "checkpoints",
        "prompt cache",
    }


def test_options_reach_the_engine_rules(capsys: pytest.CaptureFixture[str], gemma: str) -> None:
    _, made = document(
        capsys, gemma, "-c", "8192", "-np", "4", "-kvu", "--swa-full", "-fa", "on", "-ub", "256"
    )
    assert made["config"]["kv_unified"] is True
    assert made["config"]["swa_full"] is True
    assert made["caches"][1]["cells"] == 8192
    _, made = document(capsys, gemma, "-c", "8192", "-np", "4", "--no-kv-unified")
    assert made["n_ctx_seq"] == 2048
    assert made["caches"][0]["streams"] == 4


def test_several_contexts(capsys: pytest.CaptureFixture[str], gemma: str) -> None:
    _, made = document(capsys, gemma, "-c", "4096", "8192", "-c", "16384")
    assert made["n_ctx"] == 4096
    assert [c["n_ctx"] for c in made["contexts"]] == [4096, 8192, 16384]


def test_without_a_context_the_trained_one_counts(capsys: pytest.CaptureFixture[str], gemma: str) -> None:
    _, made = document(capsys, gemma)
    assert (made["config"]["ctx"], made["n_ctx"]) == (32768, 32768)


def test_budget_terms(capsys: pytest.CaptureFixture[str], gemma: str) -> None:
    status, made = document(capsys, gemma, "-c", "32768", "--vram", "4", "--reserve", "0.5", "--margin", "1")
    money = made["budget"]
    assert status == 0
    left = money["total_bytes"] - money["reserve_bytes"] - money["weights_bytes"]
    left -= money["runtime_bytes"] + money["speculative_bytes"] + money["margin_bytes"]
    assert money["kv_budget_bytes"] == left
    assert money["fits"] is True
    assert money["runtime_source"] == "assumed"
    assert [(t["type_k"], t["type_v"]) for t in money["kv_types"]] == [
        ("f16", "f16"), ("q8_0", "q8_0"), ("q8_0", "q4_0"), ("q4_0", "q4_0"),
    ]  # fmt: skip
    assert money["kv_types"][0]["largest_ctx"] == 32768
    assert money["kv_types"][0]["capped_at_n_ctx_train"] is True
    assert list(money["kv_types"][0]["kv_bytes"]) == ["32768", "65536", "98304", "131072"]
    _, made = document(capsys, gemma, "--vram", "4", "--runtime", "0.25")
    assert made["budget"]["runtime_source"] == "given"
    assert made["budget"]["runtime_bytes"] == 1 << 28


def test_the_first_gpu_stands_in_for_vram(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, gemma: str
) -> None:
    class Driver:
        devices = (DeviceInfo("nvml", 0, "Some GPU 16 GB", 16 << 30),)

        def memory(self, index: int, mig: int | None) -> DeviceMemory:
            assert (index, mig) == (0, None)
            return DeviceMemory(16 << 30, 700 << 20)

    monkeypatch.setattr(nvml, "open_nvml", lambda _limit_s: Driver())
    monkeypatch.setattr(budget_card, "DRIVER_FILES", (gemma,))
    _, made = document(capsys, gemma, "-c", "32768")
    money = made["budget"]
    assert (money["card"], money["total_source"], money["reserve_source"]) == (
        "Some GPU 16 GB",
        "nvml",
        "measured",
    )
    assert (money["total_bytes"], money["reserve_bytes"]) == (16 << 30, 700 << 20)
    main(["budget", gemma])
    page = capsys.readouterr().out
    assert "Some GPU 16 GB" in page
    assert "700.0 MiB (measured)" in page


def test_an_amd_card_stands_in_for_vram(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, gemma: str, tmp_path: Path
) -> None:
    folder = tmp_path / "sys/class/drm/card0/device"
    folder.mkdir(parents=True)
    for name, value in {
        "vendor": "0x1002",
        "uevent": "PCI_SLOT_NAME=0000:03:00.0",
        "product_name": "Radeon 16 GB",
        "mem_info_vram_total": 16 << 30,
        "mem_info_vram_used": 300 << 20,
    }.items():
        (folder / name).write_text(f"{value}\n")
    monkeypatch.setattr(amd, "ROOTS", amd.Roots(sys=tmp_path / "sys"))
    monkeypatch.setattr(budget_card, "DRIVER_FILES", ())
    monkeypatch.setattr(budget_card, "AMD_FILES", (str(tmp_path),))
    money = document(capsys, gemma, "-c", "32768")[1]["budget"]
    assert (money["card"], money["total_source"]) == ("Radeon 16 GB", "amdgpu")
    assert (money["total_bytes"], money["reserve_bytes"]) == (16 << 30, 300 << 20)


def test_a_driver_that_does_not_answer_is_no_card(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, gemma: str
) -> None:
    def missing(_limit_s: float) -> None:
        raise NvmlMissing("the driver does not answer")

    monkeypatch.setattr(nvml, "open_nvml", missing)
    monkeypatch.setattr(budget_card, "DRIVER_FILES", (gemma,))
    assert document(capsys, gemma)[1]["budget"] is None


def test_folder(capsys: pytest.CaptureFixture[str], gemma: str, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub" / "bad.gguf", b"not a model")
    write(tmp_path / "sub" / "x-00002-of-00002.gguf", b"a later part is not listed")
    status, made = document(capsys, str(tmp_path), "--vram", "4")
    assert status == 0
    assert made["schema"] == "kvtui.budget-list/1"
    good, bad = made["models"]
    assert good["path"] == "gemma.gguf"
    assert [pair["largest_ctx"] for pair in good["kv_types"]] == [32768] * 4
    assert bad == {"path": "sub/bad.gguf", "error": "not a GGUF file"}
    assert main(["budget", str(tmp_path)]) == 0
    page = capsys.readouterr().out
    assert "111.0 MiB" in page
    assert "not a GGUF file" in page
    assert all(len(line) <= 80 for line in page.splitlines())


def test_folder_without_models(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["budget", str(tmp_path)]) == 2
    assert "no GGUF file" in capsys.readouterr().err


def test_exit_status_1_where_it_does_not_fit_or_is_refused(
    capsys: pytest.CaptureFixture[str], gemma: str
) -> None:
    status, made = document(capsys, gemma, "-c", "32768", "--vram", "2.2")
    assert status == 1
    assert made["budget"]["over_bytes"] > 0
    status, made = document(capsys, gemma, "-c", "32768", "-ctv", "q8_0", "-fa", "off")
    assert status == 1
    assert "flash attention" in made["refused"]
    assert made["caches"] == []
    assert made["kv_bytes"] is None


def test_exit_status_2_where_it_cannot_be_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write(tmp_path / "bad.gguf", b"not a model")
    for name in (str(path), str(tmp_path / "none.gguf"), "/dev/null"):
        assert main(["budget", name, "--json"]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    "argv", [["-c", "-5"], ["-c", "x"], ["-c", "99999999999"], ["--vram", "nan"], ["-fa", "yes"]]
)
def test_bad_options_are_usage_errors(
    capsys: pytest.CaptureFixture[str], gemma: str, argv: list[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["budget", gemma, *argv])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("kvtui: argument ")
    assert said.endswith(": see kvtui budget --help\n")
    assert "_count" not in said


def test_unknown_is_null_not_zero(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", gguf({"general.architecture": "brand-new"}))
    status, made = document(capsys, str(path), "-c", "4096")
    assert status == 0
    assert made["model"]["exactness"] == "unknown"
    assert made["kv_bytes"] is None
    assert made["conventional_kv_bytes"] is None
    assert made["model"]["notes"]


def test_page_for_a_person(capsys: pytest.CaptureFixture[str], gemma: str) -> None:
    assert main(["budget", gemma, "-c", "32768", "-ctk", "q8_0", "-ctv", "q8_0", "--vram", "16"]) == 0
    page = capsys.readouterr().out
    assert "Gemma 3 270m  gemma3  Q4_K_M  18 layers  trained for 32K" in page
    assert "59.0 MiB (exact)" in page
    assert "32,768 cells x 1 x (768 K x 34/32 + 768 V x 34/32) bytes" in page
    assert "the conventional formula says 306.0 MiB: 15 layers slide" in page
    assert "f16 scratch" in page
    bar = next(line for line in page.splitlines() if line.startswith("["))
    assert len(bar) == 74
    assert "32,768*" in page
    assert all(len(line) <= 80 for line in page.splitlines())


def test_page_names_a_refusal(capsys: pytest.CaptureFixture[str], gemma: str) -> None:
    assert main(["budget", gemma, "-ctk", "q9_9"]) == 1
    assert "refused  unsupported cache type: q9_9" in capsys.readouterr().out


def test_hostile_names_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    metadata = model("gemma3", **GEMMA) | {"general.name": "\x1b]0;owned\x07\x1b[2J\u202eevil"}
    main(["budget", str(write(tmp_path / "m.gguf", gguf(metadata)))])
    page = capsys.readouterr().out
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "evil" in page
