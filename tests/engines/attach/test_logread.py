"""Logs found by themselves, and the start-up part of huge ones read within bounds."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kvtui.engines.attach import logread
from kvtui.engines.attach.asked import Asked, Setting
from kvtui.engines.attach.logplace import LogPlace, find_log, given_file, given_unit
from kvtui.engines.attach.logread import read_log
from kvtui.engines.attach.processes import Container, EngineProcess, engine_at
from tests.engines.attach.conftest import StandIn


def start_up(ctx: int, build: int = 7000) -> bytes:
    return (
        f"build: {build} (abc1234) with cc for x86_64\n"
        f"srv    load_model: loading model '/m.gguf'\n"
        f"llama_context: constructing llama_context\n"
        f"llama_context: n_ctx         = {ctx}\n"
        f"llama_kv_cache: size =  {ctx / 128:7.2f} MiB ({ctx:6d} cells,  32 layers,  1/1 seqs), "
        f"K (q8_0): {ctx / 256:7.2f} MiB, V (q8_0): {ctx / 256:7.2f} MiB\n"
        f"main: server is listening on http://127.0.0.1:8080 - starting the main loop\n"
    ).encode()


NOISE = b"srv  log_server_r: request: GET /health 127.0.0.1 200\n"


def process(pid: int = 0, **fields: object) -> EngineProcess:
    base = EngineProcess(pid, "llama-server", ("llama-server",), "someone", 1_700_000_000.7)
    return EngineProcess(**{f: getattr(base, f) for f in base.__slots__} | fields)  # type: ignore[arg-type]


class TestWhere:
    def test_the_file_behind_standard_error(self, stand_in: Callable[..., StandIn]) -> None:
        running = stand_in("llama-server", "-c", "4096")
        found = engine_at(running.pid)
        assert found is not None
        place = find_log(found, Asked(), {})
        assert (place.kind, place.where) == ("file", str(running.log))
        assert place.path is not None
        assert Path(place.path).read_bytes().startswith(b"listening ")

    def test_a_file_that_was_deleted_is_read_all_the_same(self, stand_in: Callable[..., StandIn]) -> None:
        running = stand_in(log_text=start_up(4096))
        running.log.unlink()
        place = find_log(process(running.pid), Asked(), {})
        assert place.kind == "deleted file"
        main = read_log(place, {}, 5).facts.main
        assert main is not None
        assert main.n_ctx == 4096

    def test_the_option_goes_before_the_descriptor_and_is_seen_from_its_directory(
        self, tmp_path: Path
    ) -> None:
        asked = Asked(reach={"log_file": Setting("logs/a.log", "--log-file logs/a.log")})
        place = find_log(process(os.getpid(), cwd=str(tmp_path)), asked, {})
        assert place.path == f"{tmp_path}/logs/a.log"
        inside = process(os.getpid(), cwd="/app", container=Container("docker", "ab" * 32))
        assert find_log(inside, asked, {}).path == f"/proc/{os.getpid()}/root/app/logs/a.log"

    def test_container_unit_and_parent(self) -> None:
        docker = find_log(process(container=Container("podman", "ab" * 32)), Asked(), {})
        assert docker.command == ("podman", "logs", "--since", "1700000000", "ab" * 6)
        unit = find_log(process(unit="llm.service", user_unit=True), Asked(), {})
        assert unit.command[:4] == ("journalctl", "--user", "-u", "llm.service")
        assert unit.command[-2:] == ("--since", "@1700000000")
        daemon = process(4194001, kind="ollama", unit="ollama.service")
        runner = process(4194002, kind="ollama-runner", parent=4194001)
        assert find_log(runner, Asked(), {4194001: daemon}).where == "ollama.service"

    @pytest.mark.parametrize(
        ("output", "said"),
        [(subprocess.DEVNULL, "/dev/null, it is thrown away"), (subprocess.PIPE, "a pipe to another")],
    )
    def test_where_nobody_keeps_it_the_way_to_get_one_is_said(self, output: int, said: str) -> None:
        command = [sys.executable, "-c", "input()"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output) as child:
            place = find_log(process(child.pid), Asked(), {})
            child.communicate(b"\n")
        assert place.kind == "none"
        assert said in place.why
        assert "--log FILE or --journal UNIT" in place.why
        assert "--log-file engine.log -lv 4" in place.why
        assert read_log(place, {}, 1).problem == place.why


class TestReading:
    def read(self, path: Path) -> logread.LogRead:
        return read_log(given_file(str(path)), {}, 10)

    def test_of_several_starts_the_newest_counts_with_its_line_numbers(self, tmp_path: Path) -> None:
        log = tmp_path / "a.log"
        log.write_bytes(start_up(8192) + NOISE * 1000 + start_up(4096, build=7001) + NOISE * 10)
        found = self.read(log)
        assert found.facts.main is not None
        assert (found.facts.main.n_ctx, found.facts.build) == (4096, "b7001")
        assert found.first_line == 1007
        text = log.read_bytes().split(b"\n")
        assert b"n_ctx         = 4096" in text[found.first_line - 1 + found.facts.main.lines["n_ctx"] - 1]

    def test_a_prompt_that_quotes_a_start_is_no_start(self, tmp_path: Path) -> None:
        log = tmp_path / "a.log"
        quoted = b"x" * 200 + b" they wrote: build: 1 (abc) with cc\n"
        log.write_bytes(start_up(4096) + quoted)
        assert self.read(log).first_line == 1

    def test_of_a_huge_log_the_middle_is_left_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(logread, "_HEAD", 1 << 16)
        monkeypatch.setattr(logread, "_TAIL", 1 << 14)
        log = tmp_path / "a.log"
        failure = b"CUDA error: out of memory\n"
        log.write_bytes(NOISE * 100_000 + start_up(4096) + NOISE * 100_000 + failure)
        began = time.monotonic()
        found = self.read(log)
        assert time.monotonic() - began < 5
        assert found.skipped
        assert found.first_line == 100_001
        text = log.read_bytes().split(b"\n")
        failed = found.line(found.facts.failures[0].line or 0)
        assert failed == len(text) - 1
        assert text[failed - 1] + b"\n" == failure
        assert found.facts.main is not None
        assert found.facts.failures
        assert found.facts.n_lines < 10_000

    def test_of_a_daemon_its_own_start_and_the_newest_engine(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(logread, "_HEAD", 1 << 16)
        config = b'time=2026-08-01T10:00:00.000Z level=INFO source=routes.go:1 msg="server config" env="map['
        config += b'OLLAMA_FLASH_ATTENTION:true OLLAMA_KV_CACHE_TYPE:q8_0]"\n'
        log = tmp_path / "a.log"
        log.write_bytes(
            NOISE * 10 + config + (NOISE * 20_000 + start_up(8192)) + NOISE * 20_000 + start_up(4096)
        )
        found = read_log(given_file(str(log)), {}, 20, daemon=True)
        assert found.first_line == 11
        assert found.facts.engine == "ollama"
        assert found.facts.requested["kv_type"] == "q8_0"
        assert found.facts.main is not None
        assert found.facts.main.n_ctx == 4096
        line = found.line(found.facts.main.lines["n_ctx"])
        assert line is not None
        assert b"n_ctx         = 4096" in log.read_bytes().split(b"\n")[line - 1]

    def test_a_start_across_two_blocks_is_found(self, tmp_path: Path) -> None:
        log = tmp_path / "a.log"
        for shift in (0, 5, 12, 30, 70):
            pad = NOISE * 20_000
            log.write_bytes(pad + start_up(4096) + b"y" * ((1 << 20) - len(start_up(4096)) + shift) + b"\n")
            assert self.read(log).first_line == 20_001, shift

    def test_a_truncated_log_that_starts_with_zeros(self, tmp_path: Path) -> None:
        log = tmp_path / "a.log"
        with log.open("wb") as file:
            file.truncate(3 << 20)
            file.seek(3 << 20)
            file.write(b"\n" + start_up(4096))
        main = self.read(log).facts.main
        assert main is not None
        assert main.n_ctx == 4096

    def test_what_cannot_be_read_is_said(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        assert "No such file" in self.read(tmp_path / "none").problem
        assert "not a regular file" in self.read(tmp_path / "pipe").problem
        assert "not a regular file" in self.read(tmp_path).problem

    def test_records_of_json(self, tmp_path: Path) -> None:
        log = tmp_path / "a.log"
        lines = start_up(4096).decode().splitlines()
        log.write_text(
            "".join(f'{{"type":"log","time":1,"level":"info","msg":"{line}\\n"}}\n' for line in lines)
        )
        main = self.read(log).facts.main
        assert main is not None
        assert main.caches[0].type_k == "q8_0"


def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    program = tmp_path / "journalctl"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def test_the_journal_of_a_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text").write_bytes(start_up(4096))
    journal(tmp_path, monkeypatch, f'echo "$@" > {tmp_path}/asked; cat {tmp_path}/text')
    main = read_log(given_unit("llm", 1_700_000_000.5), {}, 10).facts.main
    assert main is not None
    assert main.n_ctx == 4096
    assert (tmp_path / "asked").read_text() == "-u llm -o cat --no-pager -q --since @1700000000\n"


def test_a_journal_that_never_ends_or_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logread, "_COMMAND_BYTES", 1 << 20)
    journal(tmp_path, monkeypatch, "exec yes 'srv  request: GET /health'")
    began = time.monotonic()
    assert read_log(given_unit("llm", None), {}, 20).problem
    journal(tmp_path, monkeypatch, "exec sleep 60")
    assert "shows no engine's output" in read_log(given_unit("llm", None), {}, 0.3).problem
    assert time.monotonic() - began < 15
    journal(tmp_path, monkeypatch, "echo 'No journal files were found.' >&2; exit 1")
    assert "No journal files were found." in read_log(given_unit("llm", None), {}, 10).problem
    missing = LogPlace("journal", "x", command=("/no/such/journalctl",))
    assert "No such file" in read_log(missing, {}, 1).problem
