"""Secrets are in no report, and on request nothing that names a host, a user or a path is."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kvtui.cli import main
from kvtui.core.config import RunConfig
from kvtui.core.findings import Evidence, Finding
from kvtui.core.secrets import REDACTED
from kvtui.logs.facts import FailureFacts
from kvtui.report import FORMATS
from kvtui.report.privacy import anonymous, without_secrets
from kvtui.session.state import SessionState
from tests.report import states
from tests.session import sample

MODEL = "/home/carla/My Models/sub dir/secret-lab.gguf"
PROGRAM = "/opt/carlas build/bin/llama-server"
KEY = "s3cr3t-Value-77"
GONE = (
    *(
        "carla",
        "/home",
        "/opt",
        "My Models",
        "sub dir",
        "carlas build",
        "gpubox",
        "lab.example.org",
        "10.1.2.3",
    ),
    *("/var/lib", "/srv", "fe80::1", "bob@gpubox"),
)


def _state() -> SessionState:
    """The sample session on a box, by a user, with everything that could give them away."""
    state = sample.state()
    argv = (PROGRAM, "-m", MODEL, "-c", "49152", "--host", "gpubox", "--api-key", KEY, f"--hf-token={KEY}")
    argv += (
        "--log-file",
        "/var/lib/kvtui/run.log",
        "--slot-save-path",
        "/srv/slots",
        "--chat-template-file=./t.jinja",
    )
    env = (
        ("HOME", "/home/carla"),
        ("HF_TOKEN", KEY),
        ("CUDA_VISIBLE_DEVICES", "0"),
        ("LD_LIBRARY_PATH", "/opt/x"),
    )
    config = replace(states.run(state, 6).config, model=MODEL, env=env, extra=("--api-key", KEY))
    finding = Finding(
        "open-failed",
        "error",
        f"cannot open '{MODEL}'",
        f"started by bob@gpubox from http://lab.example.org:8080/v1 (10.1.2.3), fe80::1, with --api-key {KEY}",
        evidence=(Evidence(3, f"load_model: failed to load {MODEL}, key={KEY} in /srv/models/a b.gguf"),),
    )
    facts = states.run(state, 6).facts
    facts = replace(
        facts,
        texts={**facts.texts, 1: f"cmd: {PROGRAM} -m {MODEL} in /var/lib/kvtui on gpubox"},
        failures=(FailureFacts("weights", "other", f"no such file: {MODEL}", 9),),
    )
    state = states.with_run(state, 6, argv=argv, env=env, config=config, facts=facts, findings=(finding,))
    assert state.verdict is not None
    command = f"HF_TOKEN={KEY} '{PROGRAM}' -m '{MODEL}' --api-key {KEY}"
    started = replace(
        state.started,
        model=replace(state.started.model, path=MODEL, file_name="secret-lab.gguf"),
        engine=replace(state.started.engine, program=(PROGRAM,)),
        base=replace(state.started.base, model=MODEL, env=env),
        command_line=("kvtui", "tune", "-m", MODEL, "--engine-args", f"--api-key {KEY} --path /srv/www"),
        plan={**state.started.plan, "description": f"for carla on gpubox, in {MODEL}"},
    )
    verdict = replace(state.verdict, command=command, config=config, why=f"as {MODEL} on gpubox shows")
    return replace(state, started=started, verdict=verdict, notes=("see /home/carla/notes.md",))


@pytest.mark.parametrize("form", FORMATS)
def test_no_report_holds_a_secret(form: str) -> None:
    report = FORMATS[form](_state())
    assert KEY not in report
    assert REDACTED in report
    assert "CUDA_VISIBLE_DEVICES" in report
    assert KEY in str(_state())


@pytest.mark.parametrize("form", FORMATS)
def test_an_anonymous_report_names_no_host_user_or_path(form: str) -> None:
    report = FORMATS[form](anonymous(_state(), ["gpubox"]))
    found = [word for word in (*GONE, KEY) if word in report]
    assert not found
    # What the report is about is still there.
    for word in (
        "secret-lab.gguf",
        "llama-server",
        "NVIDIA GeForce RTX 4060 Ti",
        "49152",
        "CUDA_VISIBLE_DEVICES",
    ):
        assert word in report, word


def test_the_command_line_can_still_be_read() -> None:
    state = anonymous(_state(), ["gpubox"])
    assert state.verdict is not None
    assert (
        state.verdict.command == f"HF_TOKEN={REDACTED} llama-server -m secret-lab.gguf --api-key {REDACTED}"
    )
    run = states.run(state, 6)
    assert run.argv[:7] == ("llama-server", "-m", "secret-lab.gguf", "-c", "49152", "--host", "HOST")
    assert run.argv[7:10] == ("--api-key", REDACTED, f"--hf-token={REDACTED}")
    assert run.argv[10:] == (
        "--log-file",
        "run.log",
        "--slot-save-path",
        "PATH",
        "--chat-template-file=t.jinja",
    )
    assert dict(run.env)["LD_LIBRARY_PATH"] == "PATH"


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("q8_0/q8_0 KV at 28.9 t/s, and/or 3/4", True),
        ("tool-selection-1@12288 regressed, micro-batch:256@49152", True),
        ("see https://github.com/ggml-org/llama.cpp/pull/1 at 09:30:00.000+00:00", True),
        ("driver 580.95.05, build b11434, listening on http://127.0.0.1:8080", True),
        ("~/models/x.gguf", False),
        ("../models/x.gguf is 3 MiB", False),
        ("models/deep/x.gguf", False),
        ("C:\\Users\\carla\\x.gguf", False),
        ("https://carla:pw@inside.example/v1", False),
        ("192.168.0.17:8080", False),
        ("ROCR_VISIBLE_DEVICES=GPU-1f2e3d4c5b6a7988,GPU-0011223344556677 models", False),
        ("CUDA_VISIBLE_DEVICES=GPU-1f2e3d4c,MIG-GPU-1f2e3d4c-0000-1111-2222-333344445555/1/0 models", False),
        ("GPU-bound, GPU-7 and MIG-1g.10gb", True),
    ],
)
def test_what_a_path_or_an_address_is(words: str, kept: bool) -> None:
    state = replace(sample.state(), notes=(words,))
    said = anonymous(state).notes[0]
    assert (said == words) is kept
    assert not re.search(r"carla|inside|192|1f2e|0011|models/", said) or kept


def test_a_state_without_secrets_is_left_as_it_is() -> None:
    assert without_secrets(sample.state()) == sample.state()
    odd = replace(sample.state(), notes=("token = 5, EOS token = 1 '<eos>', n_tokens=64",))
    assert without_secrets(odd) == odd


@pytest.mark.parametrize(
    "extra",
    [
        ("--api-key", KEY),
        (f"--api-key={KEY}",),
        ("--api_key", KEY),
        ("--password", KEY),
        (f"MY_SECRET={KEY}",),
        ("--api-key", "first", KEY, "--port", "9"),
        ("-hft", KEY),
        ("-mu", f"https://h.org/m.gguf?a=1&X-Signature={KEY}"),
    ],
)
def test_every_way_to_give_a_secret(extra: tuple[str, ...]) -> None:
    run = states.run(sample.state(), 6)
    config: RunConfig = replace(run.config, extra=extra)
    state = states.with_run(
        sample.state(), 6, config=config, argv=(*run.argv, *extra), reason=f"bad key {KEY}"
    )
    assert KEY not in str(without_secrets(state))


def test_a_command_that_cannot_be_taken_apart_is_left_out() -> None:
    verdict = sample.state().verdict
    assert verdict is not None
    state = replace(
        sample.state(), verdict=replace(verdict, command="llama-server -m $'/home/carla/\\x07.gguf'")
    )
    assert "carla" not in str(anonymous(state).verdict)


def test_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KVTUI_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("USER", "daphne")
    events = sample.events()
    last = events[-1]
    sample.write(tmp_path / "sessions", [*events[:-1], replace(last, notes=("daphne was here",))])  # type: ignore[type-var]
    assert main(["report", "last"]) == 0
    assert "/srv/models" in capsys.readouterr().out
    assert main(["report", "last", "--anonymous"]) == 0
    said = capsys.readouterr().out
    assert "/srv/models" not in said
    assert "/opt/llama" not in said
    assert "daphne" not in said
    assert "host names, user names and paths are left out" in said
