"""Which engine is taken."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kvtui.core.errors import InputError
from kvtui.engines import find
from kvtui.engines.base import Engine
from kvtui.engines.find import embedded_engine, engine_of, find_engine


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LLAMA_SERVER_BIN", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    (tmp_path / "path").mkdir()


def program(path: Path) -> str:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def prefix(engine: Engine) -> tuple[str, ...]:
    return engine._prefix  # type: ignore[attr-defined, no-any-return]


def test_a_given_path_comes_first_then_the_variable_then_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = program(tmp_path / "path" / "llama-server")
    assert prefix(find_engine(None)) == (on_path,)
    named = program(tmp_path / "named")
    monkeypatch.setenv("LLAMA_SERVER_BIN", named)
    assert prefix(find_engine(None)) == (named,)
    given = program(tmp_path / "given")
    assert prefix(find_engine(given)) == (given,)


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = program(tmp_path / "given")
    monkeypatch.chdir(tmp_path)
    assert prefix(find_engine("./given")) == (given,)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert prefix(find_engine("~/given")) == (given,)


@pytest.mark.parametrize("how", ["given", "variable"])
def test_a_path_that_is_no_program_is_refused_and_nothing_else_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    program(tmp_path / "path" / "llama-server")
    (tmp_path / "text").write_text("x")
    bad = str(tmp_path / "text")
    if how == "variable":
        monkeypatch.setenv("LLAMA_SERVER_BIN", bad)
    with pytest.raises(InputError, match="not a program") as caught:
        find_engine(bad if how == "given" else None)
    assert ("--engine-bin" if how == "given" else "LLAMA_SERVER_BIN") in caught.value.hint


def test_the_embedded_engine_is_the_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "embedded_is_installed", lambda: True)
    assert prefix(find_engine(None)) == (sys.executable, "-P", "-m", "kvtui.engines.embedded")
    assert find_engine(None).label == "embedded llama.cpp"


def test_without_any_it_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "embedded_is_installed", lambda: False)
    with pytest.raises(InputError, match="no engine found") as caught:
        find_engine(None)
    assert "pip install 'kvtui[demo]'" in caught.value.hint
    assert "--engine-bin" in caught.value.hint
    with pytest.raises(InputError, match="not installed"):
        embedded_engine()


@pytest.mark.parametrize(("name", "kind"), [("vllm", "vllm"), ("ollama", "ollama"), ("mine", "llama-server")])
def test_a_program_may_say_by_its_name_what_it_is(tmp_path: Path, name: str, kind: str) -> None:
    program = tmp_path / name
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert engine_of(None, str(program)).traits.kind == kind


def test_ollama_is_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("OLLAMA_BIN", raising=False)
    with pytest.raises(InputError, match="ollama: not a program") as caught:
        engine_of("ollama", None)
    assert "OLLAMA_BIN" in caught.value.hint


def test_vllm_is_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("VLLM_BIN", raising=False)
    with pytest.raises(InputError, match="vllm: not a program"):
        engine_of("vllm", None)
    program = tmp_path / "vllm"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert engine_of("vllm", None).traits.kind == "vllm"
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("VLLM_BIN", str(program))
    assert engine_of("vllm", None).traits.kind == "vllm"
    with pytest.raises(InputError, match="is not an engine that can be driven"):
        engine_of("exllama", None)
