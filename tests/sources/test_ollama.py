"""Tags of Ollama: names, stores, manifests that lie."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvtui.core.errors import InputError, ModelFileError
from kvtui.sources import ollama
from kvtui.sources.ollama import Tag, parse_tag
from kvtui.sources.open import local_gguf, open_model
from kvtui.sources.source import GgufModel, ModelFolder
from tests.sources.conftest import SMALL, Store

LIBRARY = "registry.ollama.ai/library"


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("llama3.2", ("registry.ollama.ai", "library", "llama3.2", "latest")),
        ("llama3.2:1b-q8_0", ("registry.ollama.ai", "library", "llama3.2", "1b-q8_0")),
        ("me/mine", ("registry.ollama.ai", "me", "mine", "latest")),
        ("hf.co/x/y:Q4", ("hf.co", "x", "y", "Q4")),
        ("localhost:5000/x/y:z", ("localhost:5000", "x", "y", "z")),
    ],
)
def test_names(name: str, full: tuple[str, ...]) -> None:
    tag = parse_tag(name)
    assert tag == full
    assert parse_tag(tag.short) == tag


@pytest.mark.parametrize("name", ["", ":x", "a/b/c/d", "../x", "a/../b", "x:", "a b", "x:y:z", "x\0y", ".."])
def test_what_is_no_name(name: str) -> None:
    assert parse_tag(name) is None


def test_a_tag_is_its_blob_with_what_is_loaded_beside_it(store: Store) -> None:
    store.tag(
        f"{LIBRARY}/llava/7b",
        store.layer("model", SMALL),
        store.layer("projector", b"GGUF projector"),
        store.layer("adapter", b"GGUF adapter"),
        store.layer("params", json.dumps({"num_ctx": 8192, "stop": ["x"], "num_batch": 1 << 50}).encode()),
        store.layer("template", b"{{ x }}"),
    )
    source = open_model("llava:7b")
    assert isinstance(source, GgufModel)
    assert (source.kind, source.header.arch) == ("ollama", "llama")
    assert source.path is not None
    assert Path(source.path).read_bytes() == SMALL
    assert [(c.role, c.n_bytes) for c in source.companions] == [("projector", 14), ("adapter", 12)]
    assert source.notes[:2] == ("Ollama's llava:7b", "the tag sets num_ctx 8192")
    assert any("projector" in note for note in source.notes)
    assert local_gguf("LLaVA:7B").path == source.path


def test_the_first_store_that_has_a_tag_counts(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, own, service = (
        Store(tmp_path / "named"),
        Store(home / ".ollama" / "models"),
        Store(tmp_path / "service"),
    )
    for at, names in ((named, "a"), (own, "ab"), (service, "abc")):
        for name in names:
            at.tag(f"{LIBRARY}/{name}/latest", at.layer("model", SMALL))
    monkeypatch.setenv("OLLAMA_MODELS", str(named.root))
    for name, at in (("a", named), ("b", own), ("c", service)):
        assert local_gguf(name).path.startswith(str(at.root))
    with pytest.raises(InputError, match=r"d:latest: .*not among Ollama's models") as caught:
        local_gguf("d")
    assert caught.value.hint == "ollama pull d:latest"


def test_a_store_that_may_not_be_read_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ollama.os, "access", lambda *_: False)
    with pytest.raises(InputError) as caught:
        local_gguf("d")
    assert caught.value.hint == f"{store.root} may not be read by this user"


def test_damaged_stores_are_named(store: Store) -> None:
    whole = store.layer("model", SMALL)
    gone = {**whole, "digest": "sha256:" + "0" * 64}
    partial = {**whole, "digest": "sha256:" + "1" * 64}
    (store.root / "blobs" / ("sha256-" + "1" * 64 + "-partial")).write_bytes(b"GG")
    cases = {
        "gone": ([gone], "missing from the store"),
        "partial": ([partial], "not downloaded to its end"),
        "short": ([{**whole, "size": 5}], "its manifest says 5"),
        "outside": ([{**whole, "digest": "sha256:../../../../etc/passwd"}], "has no digest"),
        "climbing": ([{**whole, "digest": "../../blobs/x"}], "has no digest"),
        "number": ([{**whole, "digest": 3}], "has no digest"),
        "typeless": ([{"digest": whole["digest"]}], "a layer has no type"),
        "nothing": ([], "names no GGUF model"),
        "tensors": ([{**whole, "mediaType": "application/vnd.ollama.image.tensor"}], "names no GGUF model"),
        "two": ([whole, whole], "names 2 models"),
        "flood": ([whole, *[store.layer("params", b"{}")] * 4000], "names parameters 4,000 times"),
    }
    for name, (layers, reason) in cases.items():
        store.tag(f"{LIBRARY}/{name}/latest", *layers)
        with pytest.raises(ModelFileError, match=reason):
            open_model(name)
    for name, text in {"broken": "{", "list": "[]", "empty": "", "deep": "[" * 100_000, "bare": "{}"}.items():
        store.tag(f"{LIBRARY}/{name}/latest").write_text(text)
        with pytest.raises(ModelFileError):
            open_model(name)


def test_an_older_store_spells_its_blobs_with_a_colon(store: Store) -> None:
    layer = store.layer("model", SMALL)
    blob = store.root / "blobs" / layer["digest"].replace(":", "-")
    blob.rename(blob.with_name(layer["digest"]))
    store.tag(f"{LIBRARY}/old/latest", layer)
    assert local_gguf("old").path.endswith(layer["digest"])


def test_a_store_is_listed_by_its_tags(store: Store) -> None:
    store.tag(f"{LIBRARY}/b/latest", store.layer("model", SMALL))
    store.tag("hf.co/x/y/Q4", store.layer("model", SMALL))
    for folder in (store.root, store.root.parent):
        assert open_model(str(folder)) == ModelFolder(str(store.root), ollama=True)
    assert [found.tag for found in ollama.tags(str(store.root))] == [
        Tag("hf.co", "x", "y", "Q4"), Tag("registry.ollama.ai", "library", "b", "latest"),
    ]  # fmt: skip
