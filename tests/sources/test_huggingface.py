"""The Hugging Face cache and its folders: snapshots, references, weights."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kvtui.core.errors import InputError, ModelFileError
from kvtui.sources.huggingface import hub_cache
from kvtui.sources.open import local_gguf, open_model
from kvtui.sources.source import GgufModel, HfModel, ModelFolder
from kvtui.sources.weights import WeightFiles, weights_in
from tests.sources.conftest import CONFIG, SMALL, Store, hub_model, safetensors


@pytest.fixture
def cache(home: Path) -> Path:
    return home / ".cache" / "huggingface" / "hub"


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    assert hub_cache() == str(home / ".cache" / "huggingface" / "hub")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert hub_cache() == "/x/huggingface/hub"
    monkeypatch.setenv("HF_HOME", "~/hf")
    assert hub_cache() == str(home / "hf" / "hub")
    monkeypatch.setenv("HF_HUB_CACHE", "/hub")
    assert hub_cache() == "/hub"


def test_an_id_is_the_commit_that_its_reference_names(cache: Path) -> None:
    hub_model(cache, "x/y", {"config.json": b"{}"}, commit="b" * 40, ref=False)
    snapshot = hub_model(cache, "x/y", {"config.json": CONFIG, "model.safetensors": safetensors(640)})
    for reference in ("x/y", str(snapshot), str(snapshot / "config.json"), str(snapshot.parent.parent)):
        source = open_model(reference)
        assert isinstance(source, HfModel)
        assert source.config.n_layer == 32
        assert source.weights == WeightFiles(640, "headers")


def test_states_without_a_reference(cache: Path) -> None:
    one = hub_model(cache, "x/one", {"config.json": CONFIG}, ref=False)
    source = open_model("x/one")
    assert isinstance(source, HfModel)
    assert source.path == str(one)
    for commit in ("b" * 40, "c" * 40):
        hub_model(cache, "x/two", {"config.json": CONFIG}, commit=commit, ref=False)
    with pytest.raises(ModelFileError, match="2 states"):
        open_model("x/two")
    (cache / "models--x--none" / "snapshots").mkdir(parents=True)
    with pytest.raises(ModelFileError, match="nothing of it"):
        open_model("x/none")
    with pytest.raises(InputError, match="not in the Hugging Face cache") as caught:
        open_model("x/absent")
    assert "hf download x/absent" in caught.value.hint


def test_a_reference_that_leads_elsewhere_is_not_followed(cache: Path) -> None:
    snapshot = hub_model(cache, "x/y", {"config.json": CONFIG})
    (cache / "models--x--y" / "refs" / "main").write_text("../../../../etc")
    source = open_model("x/y")
    assert isinstance(source, HfModel)
    assert source.path == str(snapshot)


def test_an_unfinished_download_says_so(cache: Path) -> None:
    snapshot = hub_model(cache, "x/y", {"config.json": CONFIG})
    os.unlink((snapshot / "config.json").resolve())
    with pytest.raises(ModelFileError, match="not downloaded to its end"):
        open_model("x/y")


def test_a_cached_gguf_is_picked_by_its_quant(cache: Path, store: Store) -> None:
    files = {f"y-{quant}.gguf": SMALL for quant in ("Q4_K_M", "Q4_K_S", "Q8_0")}
    hub_model(cache, "x/y", {**files, "mmproj-F16.gguf": SMALL, "config.json": CONFIG})
    assert local_gguf("x/y:q4_k_m").path.endswith("y-Q4_K_M.gguf")
    for name, reason in (("x/y", "3 GGUF files"), ("x/y:Q4_K", "no GGUF file with Q4_K")):
        with pytest.raises(InputError, match=reason) as caught:
            local_gguf(name)
        assert "y-Q8_0.gguf" in caught.value.hint
    store.tag("registry.ollama.ai/x/y/Q8_0", store.layer("model", SMALL))
    both = open_model("x/y:Q8_0")
    assert isinstance(both, GgufModel)
    assert both.kind == "ollama"
    assert "Hugging Face cache has a model of this name too" in both.notes[-1]


def test_what_an_engine_cannot_be_given(cache: Path, tmp_path: Path) -> None:
    hub_model(cache, "x/y", {"config.json": CONFIG})
    for reference, reason in (
        ("x/y", "not a GGUF file"),
        (str(tmp_path), "is a directory"),
        ("https://h/x.gguf", "loads files, not addresses"),
    ):
        with pytest.raises(InputError, match=reason) as caught:
            local_gguf(reference)
        assert caught.value.hint


def test_weights_of_split_models(tmp_path: Path) -> None:
    index = {"metadata": {"total_size": 999}, "weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "m-1.safetensors").write_bytes(safetensors(100))
    assert weights_in(str(tmp_path)) == WeightFiles(999, "index", ("1 of 2 weight files are not here",))
    (tmp_path / "m-2.safetensors").write_bytes(safetensors(200))
    (tmp_path / "consolidated.safetensors").write_bytes(safetensors(300))
    assert weights_in(str(tmp_path)) == WeightFiles(300, "headers")
    (tmp_path / "model.safetensors.index.json").unlink()
    assert weights_in(str(tmp_path)) == WeightFiles(300, "headers")
    (tmp_path / "m-2.safetensors").write_bytes(safetensors(200)[:-1])
    with pytest.raises(ModelFileError, match="cut off: 1 bytes"):
        weights_in(str(tmp_path))


def test_an_index_cannot_lead_out_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.safetensors").write_bytes(safetensors(100))
    inner = tmp_path / "m"
    inner.mkdir()
    index = {"metadata": {"total_size": 5}, "weight_map": {"a": "../secret.safetensors", "b": ".."}}
    (inner / "model.safetensors.index.json").write_text(json.dumps(index))
    assert weights_in(str(inner)) == WeightFiles(5, "index")


@pytest.mark.parametrize("data", [b"", b"short", b"\xff" * 8 + b"{}", (5).to_bytes(8, "little") + b"[1,2]"])
def test_what_is_no_safetensors_file(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "m.safetensors").write_bytes(data)
    with pytest.raises(ModelFileError):
        weights_in(str(tmp_path))


@pytest.mark.parametrize("place", [[10, 4], [0, 10**400], [-1, 4], [0, 4, 8], "0-4", [0, 3], [0, 5]])
def test_a_safetensors_header_that_lies_is_no_size(tmp_path: Path, place: Any) -> None:
    head = json.dumps({"a": {"dtype": "U8", "shape": [4], "data_offsets": place}}).encode()
    (tmp_path / "m.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + bytes(4))
    with pytest.raises(ModelFileError, match=r"damaged|cut off") as caught:
        weights_in(str(tmp_path))
    assert len(caught.value.line()) < 200 + len(str(tmp_path))


def test_weights_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").symlink_to("/proc/self/mem")  # it opens, and reading it fails
    with pytest.raises(ModelFileError, match=r"m\.safetensors"):
        weights_in(str(tmp_path))


def test_older_weights_count_as_files(tmp_path: Path) -> None:
    assert weights_in(str(tmp_path)) is None
    (tmp_path / "pytorch_model-00001.bin").write_bytes(b"x" * 70)
    assert weights_in(str(tmp_path)) == WeightFiles(70, "files")


def test_paths_and_folders(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(SMALL)
    source = open_model(str(tmp_path / "m.gguf"))
    assert isinstance(source, GgufModel)
    assert (source.kind, source.notes, source.fetched_bytes) == ("file", (), None)
    assert open_model(str(tmp_path)) == ModelFolder(str(tmp_path))
    for missing in ("./none", "none.gguf", "/nowhere/at/all", "~/none"):
        with pytest.raises(ModelFileError, match="no such file"):
            open_model(missing)
    with pytest.raises(InputError):
        open_model("bad\0name")
    (tmp_path / "config.json").write_text("[1]")
    for reference in ("config.json", "other.json"):
        with pytest.raises(ModelFileError):
            open_model(str(tmp_path / reference))
