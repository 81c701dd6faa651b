"""`kvtui budget` of everything that is not a path to a GGUF file, and its page and document for vLLM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvtui.cli import main
from kvtui.commands import budget_folder, budget_vllm
from kvtui.procedure.budget import card as budget_card
from kvtui.procedure.budget.card import Card
from tests.sources.conftest import CONFIG, LLAMA, SMALL, Store, home, hub_model, safetensors, store
from tests.sources.servers import ranges, serving, status

__all__ = ["home", "store"]
GIB = 1 << 30


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget_card, "DRIVER_FILES", ())


def document(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, Any]]:
    status = main(["budget", *argv, "--json"])
    captured = capsys.readouterr()
    assert captured.err == ""
    return status, json.loads(captured.out)


@pytest.fixture
def llama(tmp_path: Path) -> str:
    folder = tmp_path / "llama"
    folder.mkdir()
    (folder / "config.json").write_bytes(CONFIG)
    index = {"metadata": {"total_size": 15 * GIB}, "weight_map": {}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return str(folder)


def test_a_tag_of_ollama(capsys: pytest.CaptureFixture[str], store: Store) -> None:
    params = store.layer("params", b'{"num_ctx": 8192}')
    projector = store.layer("projector", b"GGUF")
    tag = "registry.ollama.ai/library/tiny/latest"
    store.tag(tag, store.layer("model", SMALL), params, projector)
    status_, made = document(capsys, "tiny")
    assert status_ == 0
    assert made["source"]["kind"] == "ollama"
    assert made["source"]["path"] == made["model"]["path"]
    assert made["source"]["companions"][0]["role"] == "projector"
    assert made["source"]["fetched_bytes"] is None
    assert main(["budget", "tiny"]) == 0
    assert "source   the tag sets num_ctx 8192" in capsys.readouterr().out


def test_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    data = SMALL + bytes(-len(SMALL) % 32 + 512)
    with serving(ranges(data)) as server:
        status_, made = document(capsys, server.url())
    assert status_ == 0
    assert (made["source"]["kind"], made["source"]["path"]) == ("url", None)
    assert made["source"]["fetched_bytes"] == len(data)
    assert made["model"]["path"] == server.url()
    with serving(status("404 Not Found")) as server:
        assert main(["budget", server.url()]) == 2
    assert capsys.readouterr().err == (
        f"kvtui: {server.url()}: no such file on the server (404): check the address\n"
    )


@pytest.mark.parametrize("reference", ["nobody", "no/body", "hf.co/no/body:Q4"])
def test_what_is_nowhere(capsys: pytest.CaptureFixture[str], reference: str) -> None:
    assert main(["budget", reference, "--json"]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.count("\n") == 1
    assert "not among Ollama's models" in streams.err


def test_a_store_is_listed(capsys: pytest.CaptureFixture[str], store: Store) -> None:
    store.tag("registry.ollama.ai/library/tiny/latest", store.layer("model", SMALL))
    store.tag(
        "hf.co/x/y/Q4", {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + "0" * 64}
    )
    status_, made = document(capsys, str(store.root), "--vram", "16")
    assert status_ == 0
    broken, whole = made["models"]
    assert (broken["path"], broken["error"]) == ("hf.co/x/y:Q4", "the model is missing from the store")
    assert (whole["path"], whole["arch"]) == ("tiny:latest", "llama")
    assert made["left_out"] is False
    for folder in (store.root / "manifests").iterdir():
        folder.rename(store.root / folder.name)
    assert main(["budget", str(store.root)]) == 2
    assert "no model in it" in capsys.readouterr().err


def test_a_huge_folder_says_what_it_leaves_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(budget_folder, "MAX_MODELS", 2)
    for name in "abc":
        (tmp_path / f"{name}.gguf").write_bytes(SMALL)
    _, made = document(capsys, str(tmp_path))
    assert ([m["path"] for m in made["models"]], made["left_out"]) == (["a.gguf", "b.gguf"], True)
    assert main(["budget", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "... more than 2 models: the others are left out"


def test_the_document_of_a_hugging_face_model(capsys: pytest.CaptureFixture[str], llama: str) -> None:
    status_, made = document(capsys, llama, "-c", "16384", "262144", "--vram", "24", "--runtime", "1")
    assert status_ == 1  # the second context does not fit
    assert made["schema"] == "kvtui.budget/1"
    assert made["model"] == {
        "path": llama, "arch": "LlamaForCausalLM", "name": "llama", "quant": None, "n_layer": 32,
        "n_ctx_train": 131072, "weights_bytes": 15 * GIB, "exactness": "exact", "notes": [],
    }  # fmt: skip
    assert made["caches"] == [
        {
            "kind": "full", "layers": 32, "cells": 16384, "streams": 1, "type_k": "bfloat16", "type_v": "bfloat16",
            "k_bytes": None, "v_bytes": None, "blocks": 1024, "bytes": 2 * GIB,
        },
    ]  # fmt: skip
    assert (made["n_ctx"], made["kv_bytes"], made["refused"]) == (16384, 2 * GIB, None)
    money = made["budget"]
    assert money["kv_budget_bytes"] == money["usable_bytes"] - money["weights_bytes"] - GIB
    assert (money["gpu_memory_utilization"], money["runtime_source"], money["fits"]) == (0.92, "given", True)
    auto, fp8 = (made["vllm"]["kv_cache_dtypes"][t] for t in ("auto", "fp8"))
    assert (auto["bytes_per_token"], fp8["bytes_per_token"]) == (131072, 65536)
    first, second = auto["contexts"]
    assert (first["request_bytes"], first["fits"], second["fits"]) == (2 * GIB, True, False)
    assert first["num_blocks"] == money["kv_budget_bytes"] // auto["bytes_per_block"]
    assert second["longest_ctx"] == (first["num_blocks"] - 1) * 16
    assert first["max_concurrency"] == round(first["num_blocks"] / 1024, 2)


def test_options_of_vllm(capsys: pytest.CaptureFixture[str], llama: str) -> None:
    options = (
        "--gpu-memory-utilization",
        "0.5",
        "--block-size",
        "32",
        "-tp",
        "2",
        "--max-num-batched-tokens",
        "8192",
    )
    status_, made = document(capsys, llama, "--vram", "24", "-c", "8192", "-np", "3", *options)
    assert status_ == 0
    assert made["budget"]["usable_bytes"] == 12 * GIB
    assert made["budget"]["weights_bytes"] == 15 * GIB // 2
    assert made["vllm"]["max_in_flight_tokens"] == 16384
    assert made["vllm"]["kv_cache_dtypes"]["auto"]["groups"][0]["block_size"] == 32
    assert made["kv_bytes"] == 3 * 8192 * 131072 // 2
    status_, made = document(capsys, llama, "--vram", "24", "-c", "8192", "-np", "30", "-tp", "2")
    assert (status_, made["budget"]["fits"]) == (1, False)


def test_options_of_the_other_engine_are_refused(
    capsys: pytest.CaptureFixture[str], llama: str, tmp_path: Path
) -> None:
    for given in ("-ctk q8_0", "-ctv q4_0", "-b 1", "-ub 1", "--margin 2", "-ngl 5", "-ncmoe 1", "--swa-full", "-kvu",
                  "-fa on", "--ask-engine x"):  # fmt: skip
        assert main(["budget", llama, *given.split()]) == 2
        assert f"{given.split()[0]} is of llama.cpp" in capsys.readouterr().err
    assert main(["budget", str(tmp_path), "--ask-engine", "x"]) == 2
    assert "not for a folder" in capsys.readouterr().err
    path = tmp_path / "m.gguf"
    path.write_bytes(SMALL)
    assert main(["budget", str(path), "--block-size", "32"]) == 2
    assert "--block-size is of vLLM" in capsys.readouterr().err
    for bad in (("--gpu-memory-utilization", "1.5"), ("--block-size", "0"), ("-tp", "x")):
        with pytest.raises(SystemExit) as caught:
            main(["budget", llama, *bad])
        assert caught.value.code == 2


def test_vllm_does_not_start_where_others_hold_the_memory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, llama: str
) -> None:
    monkeypatch.setattr(budget_vllm, "card_for", lambda _: Card("Some GPU", 24 * GIB, 3 * GIB))
    status_, made = document(capsys, llama, "-c", "8192")
    assert status_ == 1
    assert "less is free on the card" in made["refused"]
    assert made["budget"]["reserve_bytes"] == 3 * GIB
    assert document(capsys, llama, "-c", "8192", "--gpu-memory-utilization", "0.8")[0] == 0
    _, made = document(capsys, llama, "-c", "8192", "--gpu-memory-utilization", "0.5")
    assert "leave nothing for the KV cache" in made["refused"]


def test_without_weights_or_layers_nothing_is_guessed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(CONFIG)
    status_, made = document(capsys, str(path), "--vram", "24")
    assert (status_, made["model"]["weights_bytes"], made["budget"]) == (0, None, None)
    path.write_text(json.dumps({**LLAMA, "layer_types": ["warp"] * 32}))
    status_, made = document(capsys, str(path))
    assert (status_, made["model"]["exactness"], made["kv_bytes"], made["caches"]) == (0, "unknown", None, [])
    assert "warp" in made["model"]["notes"][0]
    assert main(["budget", str(path)]) == 0
    assert "KV       unknown" in capsys.readouterr().out
    path.write_text(json.dumps({**LLAMA, "max_position_embeddings": None, "model_type": "qwen2"}))
    assert main(["budget", str(path)]) == 2
    assert "say with -c" in capsys.readouterr().err


def test_the_page_for_a_person(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    gemma = {"model_type": "gemma3", "text_config": {"num_hidden_layers": 34, "sliding_window": 1024}}
    files = {"config.json": json.dumps(gemma).encode(), "model.safetensors": safetensors(1 << 20)}
    hub_model(home / ".cache" / "huggingface" / "hub", "x/gemma", files)
    assert main(["budget", "x/gemma", "--vram", "8", "-c", "32768", "131072"]) == 0
    page = capsys.readouterr().out
    assert max(map(len, page.splitlines())) <= 80
    assert "         sliding       29       6        1      16  1,024 + 4,096" in page
    for part in (
        "1.0 MiB (from the files' headers)", "20.0 KiB per further token", "x 0.92", "no dtype in the file",
    ):  # fmt: skip
        assert part in page
    rows = [line.split() for line in page.splitlines() if " auto " in line or " fp8 " in line]
    assert [row[:2] for row in rows] == [
        ["32,768", "auto"],
        ["32,768", "fp8"],
        ["131,072", "auto"],
        ["131,072", "fp8"],
    ]
