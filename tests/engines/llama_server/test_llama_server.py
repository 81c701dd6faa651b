"""Command lines for builds of several eras, and programs that are no llama-server."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from kvtui.core.config import RunConfig
from kvtui.core.errors import StartError
from kvtui.engines.base import Abilities, Missing
from kvtui.engines.embedded.options import help_text
from kvtui.engines.llama_server.abilities import read_abilities
from kvtui.engines.llama_server.server import LlamaServer
from tests.engines import misbehaving

CONFIG = RunConfig(model="model [Q4_K_M].gguf", n_ctx=32768, type_k="q8_0", type_v="q8_0", flash_attn="on")
CURRENT = read_abilities(help_text(), "version: 11434 (d1ce6c1)")


def server(abilities: Abilities = CURRENT) -> LlamaServer:
    engine = LlamaServer(("/opt/llama-server",))
    engine._abilities = abilities
    return engine


def test_everything_is_explicit() -> None:
    command = server().command(CONFIG, 8123)
    assert command.argv == (
        *("/opt/llama-server", "-m", "model [Q4_K_M].gguf", "-c", "32768", "-ctk", "q8_0", "-ctv", "q8_0"),
        *("-fa", "on", "-np", "1", "--no-kv-unified", "-b", "2048", "-ub", "512", "-ngl", "999", "-lv", "4"),
        *("-fit", "off", "-cram", "0", "--host", "127.0.0.1", "--port", "8123"),
    )
    assert command.missing == ()


def test_what_is_asked_beyond_the_usual() -> None:
    config = replace(
        CONFIG,
        n_parallel=4,
        kv_unified=True,
        kv_offload=False,
        swa_full=True,
        threads=6,
        n_gpu_layers=None,
        cache_ram_mib=512,
        type_v="turbo3",
        extra=("--ctx-checkpoints", "4"),
        env=(("GGML_CUDA_NO_PINNED", "1"),),
    )
    line = " ".join(server().command(config, 1).argv)
    for words in ("-np 4", "-kvu", "-nkvo", "--swa-full", "-t 6", "-cram 512", "-ctv turbo3"):
        assert f" {words} " in line
    assert "-ngl" not in line
    assert "--no-kv-unified" not in line
    assert line.endswith("--port 1 --ctx-checkpoints 4")
    assert ("GGML_CUDA_NO_PINNED", "1") in server().command(config, 1).env


def without(*names: str) -> Abilities:
    return replace(CURRENT, options=CURRENT.options - set(names))


def test_an_option_that_the_build_does_not_know_is_left_out_and_named() -> None:
    command = server(without("-lv", "--verbosity", "--log-verbosity")).command(CONFIG, 1)
    assert "4" not in command.argv
    assert [missing.option for missing in command.missing] == ["--log-verbosity"]
    assert "KV" in command.missing[0].lost


def test_a_long_name_is_taken_where_the_short_one_is_unknown() -> None:
    assert "--verbosity" in server(without("-lv")).command(CONFIG, 1).argv


def test_nothing_is_lost_without_fit_and_cache_ram() -> None:
    command = server(without("-fit", "--fit", "-cram", "--cache-ram")).command(CONFIG, 1)
    assert command.missing == ()
    assert "off" not in command.argv


def test_experts_on_the_cpu_are_missing_where_the_build_has_no_such_option() -> None:
    assert server().command(replace(CONFIG, n_cpu_moe=8), 1).missing == (
        Missing("--n-cpu-moe", "experts kept on the CPU"),
    )


@pytest.mark.parametrize(
    ("wanted", "words", "missing"),
    [("on", ["-fa", "-np"], 0), ("off", ["q8_0", "-np"], 0), ("auto", ["q8_0", "-np"], 1)],
)
def test_a_build_whose_flash_attention_is_a_bare_flag(wanted: str, words: list[str], missing: int) -> None:
    engine = server(replace(CURRENT, flash_attn_takes_value=False))
    command = engine.command(replace(CONFIG, flash_attn=wanted), 1)  # type: ignore[arg-type]
    at = command.argv.index("-np")
    assert list(command.argv[at - 1 : at + 1]) == words
    assert len(command.missing) == missing


def test_kv_unified_by_era() -> None:
    flag_only = without("--no-kv-unified", "-no-kvu")
    assert server(flag_only).command(CONFIG, 1).missing == ()
    assert "-kvu" in server(flag_only).command(replace(CONFIG, kv_unified=True), 1).argv
    none = without("--no-kv-unified", "-no-kvu", "-kvu", "--kv-unified")
    assert [m.option for m in server(none).command(CONFIG, 1).missing] == ["--no-kv-unified"]


@pytest.mark.parametrize("mode", ["fine", "help-on-stderr"])
def test_abilities_are_asked_of_the_program_on_both_streams(mode: str) -> None:
    engine = LlamaServer((sys.executable, misbehaving.__file__, mode))
    assert engine.label == "llama-server"
    abilities = engine.abilities()
    assert {"-c", "--ctx-size", "-fa", "-lv", "--host"} <= abilities.options
    assert abilities.cache_types == ("f32", "f16", "q8_0")
    assert (abilities.build, abilities.commit) == ("b6190", "ab12cd3")
    assert engine.label == "llama-server b6190"
    assert engine.abilities() is abilities


def program(path: Path, text: str) -> tuple[str, ...]:
    path.write_text(text)
    path.chmod(0o755)
    return (str(path),)


def failure_of(argv: tuple[str, ...]) -> StartError:
    with pytest.raises(StartError) as caught:
        LlamaServer(argv).abilities()
    assert caught.value.kind == "missing"
    return caught.value


def test_a_program_that_is_not_there() -> None:
    assert failure_of(("/nowhere/llama-server",)).what == "/nowhere/llama-server: No such file or directory"


def test_a_file_that_is_no_program(tmp_path: Path) -> None:
    assert "Exec format error" in failure_of(program(tmp_path / "x", "\x00\x01\x02")).what


def test_a_program_that_is_no_llama_server(tmp_path: Path) -> None:
    error = failure_of(program(tmp_path / "x", "#!/bin/sh\necho usage: x FILE\n"))
    assert error.what.endswith("does not answer --help as llama-server does: usage: x FILE")


def test_a_program_without_its_libraries_says_so(tmp_path: Path) -> None:
    said = "x: error while loading shared libraries: libllama.so.0: cannot open shared object file"
    error = failure_of(program(tmp_path / "x", f"#!/bin/sh\necho '{said}' >&2\nexit 127\n"))
    assert said in error.what


@pytest.mark.parametrize(
    ("said", "label"),
    [
        ("version: 6190 (ab12)", "llama-server b6190"),
        ("version: 0.6.0-dev (build 0, commit unknown)", "llama-server 0.6.0-dev"),
        ("version: 0 (unknown)", "llama-server"),
        ("my fork", "llama-server"),
    ],
)
def test_the_label_says_which_one_it_is(said: str, label: str) -> None:
    assert server(read_abilities(help_text(), said)).label == label


def test_a_program_that_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvtui.engines.llama_server.server._ASK_LIMIT_S", 0.5)
    began = time.monotonic()
    error = failure_of(program(tmp_path / "x", "#!/bin/sh\nsleep 60 & sleep 60\n"))
    assert "did not answer --help" in error.what
    assert time.monotonic() - began < 10


def test_a_program_that_never_stops_talking(tmp_path: Path) -> None:
    began = time.monotonic()
    failure_of(program(tmp_path / "x", "#!/bin/sh\nwhile :; do echo yes yes yes yes yes yes; done\n"))
    assert time.monotonic() - began < 30


def test_a_program_that_leaves_a_child_with_its_output_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvtui.engines.llama_server.server._ASK_LIMIT_S", 0.5)
    failure_of(program(tmp_path / "x", f"#!/bin/sh\nsleep 60 &\necho $! > {tmp_path}/pid\nexit 0\n"))
    assert all_end([int((tmp_path / "pid").read_text())])


def test_asking_a_wrapper_leaves_none_of_its_children_behind(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text('#!/bin/sh\nsleep 300 >/dev/null 2>&1 &\necho $! >> "$0.pids"\necho nothing\n')
    program.chmod(0o755)
    with pytest.raises(StartError, match="does not answer --help"):
        LlamaServer((str(program),)).abilities()
    pids = [int(pid) for pid in Path(f"{program}.pids").read_text().split()]
    assert pids
    assert all_end(pids)


def all_end(pids: list[int]) -> bool:
    """Whether all of them end soon: a killed process is a zombie until somebody fetches its status."""
    deadline = time.monotonic() + 5
    while any(map(lives, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(lives, pids))


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
