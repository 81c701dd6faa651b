"""How an engine is started and reached: wrappers, containers, keys, certificates, sockets, the environment."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from kvtui.core.config import RunConfig
from kvtui.core.errors import InputError, RequestError
from kvtui.core.secrets import without_secrets
from kvtui.engines.find import engine_of
from kvtui.engines.invocation import Invocation, read_invocation
from kvtui.engines.llama_server.abilities import read_abilities
from kvtui.engines.llama_server.server import LlamaServer
from kvtui.engines.process import EngineProcess
from kvtui.engines.reach import take_key, take_reach
from kvtui.gpu.host import process_started
from tests.engines import misbehaving
from tests.engines.conftest import READY_S, ignore

SERVER = (sys.executable, misbehaving.__file__, "fine")
FAKE_DOCKER = Path(misbehaving.__file__).with_name("fake_docker.py")
KEY = "sk-very-secret"

Launch = Callable[..., EngineProcess]


def is_gone(pid: int, within_s: float = 5.0) -> bool:
    deadline = time.monotonic() + within_s
    while process_started(pid) is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    return process_started(pid) is None


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Launch the stand-in server in some way and wait until it is ready; it is ended after the test."""
    started: list[EngineProcess] = []

    def start(*extra: str, words: tuple[str, ...] = SERVER, api_key: str | None = None) -> EngineProcess:
        engine = LlamaServer(words, "test-server", api_key=api_key)
        engine._abilities = read_abilities(misbehaving.HELP, "")
        config = RunConfig(model=str(tmp_path / "model.gguf"), n_ctx=512, extra=extra)
        process = engine.launch(config, tmp_path / "engine.log", ignore)
        started.append(process)
        process.wait_ready(READY_S, Event(), ignore)
        return process

    yield start
    for process in started:
        process.stop()


def answers(process: EngineProcess) -> bool:
    """Whether a client reaches it: the stand-in refuses every POST in its own words."""
    with process.connect() as client, pytest.raises(RequestError, match="nothing here"):
        client.complete([1], 1, cache_prompt=False)
    return True


def test_a_key_reaches_the_server_and_the_client_and_nothing_that_is_shown(launch: Launch) -> None:
    process = launch(api_key=KEY)
    assert answers(process)
    shown = (*process.command.argv, *(f"{n}={v}" for n, v in process.command.env))
    assert not any(KEY in word for word in shown)
    from kvtui.engines.llama_server.client import EngineClient

    with (
        EngineClient(process.base_url) as stranger,
        pytest.raises(RequestError, match="Invalid API Key") as caught,
    ):
        stranger.props()
    assert caught.value.status == 401


def test_tls_with_a_certificate_for_another_name(launch: Launch, tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    pem, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-subj", "/CN=box.lan", "-days", "2", "-keyout", key, "-out", pem]
    subprocess.run(command, check=True, capture_output=True)
    process = launch("--ssl-cert-file", pem, "--ssl-key-file", key)
    assert process.base_url.startswith("https://127.0.0.1:")
    assert answers(process)


def test_a_unix_socket(launch: Launch, tmp_path: Path) -> None:
    path = Path(os.path.relpath(tmp_path / "s.sock")) if len(str(tmp_path)) > 90 else tmp_path / "s.sock"
    process = launch("--host", str(path))
    assert answers(process)


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.2"])
def test_another_address_than_loopback_and_a_prefix(launch: Launch, address: str) -> None:
    process = launch("--host", address, "--api-prefix", "/llm")
    assert process.base_url.endswith("/llm")
    assert answers(process)
    assert process.command.argv.count("--host") == 1


def test_the_key_is_taken_out_of_the_options() -> None:
    assert take_key(("-a", "--api-key", f"{KEY},other", "-b")) == (("-a", "-b"), KEY)
    assert take_key(("-a",)) == (("-a",), None)
    with pytest.raises(InputError, match="no key"):
        take_key(("--api-key",))


def test_a_key_file(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# ours\n\n{KEY}\n")
    assert take_key(("--api-key-file", str(path))) == ((), KEY)
    for bad in ("/nowhere/keys", str(tmp_path)):
        with pytest.raises(InputError, match="--api-key-file"):
            take_key(("--api-key-file", bad))


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (("--port", "8080"), "free one"),
        (("--host", "127.0.0.1,::1"), "cannot be used"),
        (("--host",), "nothing"),
        (("--ssl-cert-file", "x"), "both"),
    ],
)
def test_options_of_the_address_that_cannot_be_used(extra: tuple[str, ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        take_reach(extra)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:1"),
        ("::", "http://[::1]:1"),
        ("::1", "http://[::1]:1"),
        ("box", "http://box:1"),
    ],
)
def test_the_address_of_a_host(host: str, url: str) -> None:
    assert take_reach(("--host", host))[1].base_url(1) == url


def test_secrets_of_a_command_line_are_hidden() -> None:
    words = (
        "kvtui",
        "--engine-args",
        f"-x --api-key {KEY} -y",
        "--api-key",
        KEY,
        "-z",
        f"HF_TOKEN={KEY}",
        "--key=a",
    )
    hidden = without_secrets(words)
    assert not any(KEY in word for word in hidden)
    assert hidden[2] == "-x --api-key *** -y"
    assert hidden[5] == "-z"


# The environment


def test_variables_that_would_overrule_what_is_asked_are_kept_from_the_engine(
    monkeypatch: pytest.MonkeyPatch, launch: Launch, tmp_path: Path
) -> None:
    for name, value in (
        ("LLAMA_ARG_SWA_FULL", "1"),
        ("LLAMA_ARG_NO_KV_OFFLOAD", "1"),
        ("LLAMA_ARG_HF_REPO", "some/model"),
        ("LLAMA_ARG_N_CPU_MOE", "4"),
        ("LLAMA_API_KEY", KEY),
    ):
        monkeypatch.setenv(name, value)
    process = launch()
    environment = Path(f"/proc/{process.pid}/environ").read_text().split("\0")
    names = {entry.partition("=")[0] for entry in environment}
    assert not names & {"LLAMA_ARG_SWA_FULL", "LLAMA_ARG_NO_KV_OFFLOAD", "LLAMA_ARG_HF_REPO", "LLAMA_API_KEY"}
    assert "LLAMA_ARG_N_CPU_MOE" in names
    shown = dict(process.command.env)
    assert shown["LLAMA_ARG_N_CPU_MOE"] == "4"
    assert "LLAMA_ARG_SWA_FULL" not in shown
    assert KEY not in shown.values()


# Wrappers


def test_a_wrapper_command_starts_the_engine(launch: Launch, tmp_path: Path) -> None:
    script = tmp_path / "wrap"
    script.write_text('#!/bin/sh\necho wrapped >&2\n"$@"\n')
    script.chmod(0o755)
    process = launch(words=(str(script), *SERVER))
    assert process.command.argv[: len(SERVER) + 1] == (str(script), *SERVER)
    engine, wrapper = process.pid, process._engine_pid
    assert engine != wrapper
    process.stop()
    assert is_gone(engine)
    assert is_gone(wrapper)


LAUNCHER = """
import sys, threading, time
from pathlib import Path
from kvtui.core.config import RunConfig
from kvtui.engines.llama_server.server import LlamaServer
process = LlamaServer(tuple(sys.argv[2:])).launch(RunConfig(model="m", n_ctx=512), Path(sys.argv[1]), lambda x: None)
process.wait_ready(60, threading.Event(), lambda progress: None)
print(process.pid, process._engine_pid, flush=True)
time.sleep(600)
"""


def test_kill_9_of_kvtui_leaves_nothing_of_a_wrapper_that_does_not_exec(tmp_path: Path) -> None:
    command = (sys.executable, "-c", LAUNCHER, str(tmp_path / "log"), *SERVER[:2], "wrapper")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        engine, wrapper = map(int, launcher.stdout.readline().split())
        assert engine != wrapper
        launcher.send_signal(signal.SIGKILL)
        assert is_gone(engine)
        assert is_gone(wrapper)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no program"),
        ("'open", "no closing quotation"),
        ("/nowhere/x llama-server", "not a program"),
        ("env docker run --rm IMAGE", "no name"),
    ],
)
def test_commands_that_cannot_be_used(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_invocation(text)


def test_a_command_is_for_llama_server_only() -> None:
    with pytest.raises(InputError, match="--engine-command"):
        engine_of("vllm", None, command=("env", "vllm"))


# Containers


MOUNTED = Invocation(
    ("docker", "run", "-v", "/data:/d:ro", "--mount=type=bind,src=/data/models,dst=/m", "IMAGE")
)


@pytest.mark.parametrize(
    ("path", "inside"), [("/data/models/a.gguf", "/m/a.gguf"), ("/data/x/../b.gguf", "/d/b.gguf")]
)
def test_a_model_is_named_as_the_container_sees_it(path: str, inside: str) -> None:
    assert MOUNTED.inside(path) == inside


def test_a_model_that_the_container_does_not_see() -> None:
    with pytest.raises(InputError, match="does not see it") as caught:
        MOUNTED.inside("/database/a.gguf")
    assert caught.value.hint == "mount its folder: -v /database:/models:ro"
    assert Invocation(("numactl", "-N0", "llama-server")).inside("/x") == "/x"


def test_a_container_listens_where_its_port_can_be_published_only_if_it_is() -> None:
    published = LlamaServer(
        ("docker", "run", "-p", "127.0.0.1:{port}:{port}", "-v", "/:/h", "--name", "{name}", "I")
    )
    host_network = LlamaServer(("docker", "run", "--network", "host", "-v", "/:/h", "--name", "{name}", "I"))
    for engine, host in ((published, "0.0.0.0"), (host_network, "127.0.0.1")):
        engine._abilities = read_abilities(misbehaving.HELP, "")
        argv = engine.command(RunConfig(model="/m.gguf", n_ctx=512), 8123).argv
        assert argv[argv.index("--host") + 1] == host
        assert "kvtui-8123" in argv
    assert "127.0.0.1:8123:8123" in published.command(RunConfig(model="/m.gguf", n_ctx=512), 8123).argv


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, ...]]:
    """A container runtime whose containers are no descendants of kvtui; yields the command that uses it."""
    home = tmp_path / "docker-state"
    home.mkdir()
    monkeypatch.setenv("FAKE_DOCKER", str(home))
    program = tmp_path / "docker"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE_DOCKER} "$@"\n')
    program.chmod(0o755)
    image = tmp_path / "image"
    image.write_text(f'#!/bin/sh\nexec {shlex.join(SERVER)} "$@"\n')
    image.chmod(0o755)
    run = ("run", "--rm", "--name", "{name}", "-p", "127.0.0.1:{port}:{port}", "-v", f"{tmp_path}:/models:ro")
    with subprocess.Popen((str(program), "daemon"), stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        daemon.stdout.readline()
        yield (str(program), *run, str(image))
        daemon.kill()


def test_an_engine_in_a_container(docker: tuple[str, ...], launch: Launch, tmp_path: Path) -> None:
    process = launch(words=docker)
    argv = process.command.argv
    assert argv[argv.index("-m") + 1] == "/models/model.gguf"
    engine = process.pid
    assert engine != process._engine_pid
    assert b"listening" in process.log_path.read_bytes()
    assert answers(process)
    process.stop()
    assert is_gone(engine)
    assert not list((tmp_path / "docker-state").glob("kvtui-*"))


def test_a_container_whose_client_does_not_pass_the_signal_on_is_killed(
    docker: tuple[str, ...], launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvtui.engines.process._TERM_S", 0.3)
    monkeypatch.setenv("FAKE_DOCKER_DEAF", "1")
    process = launch(words=docker)
    engine = process.pid
    process.stop()
    assert is_gone(engine)


def test_kill_9_of_kvtui_ends_the_container(docker: tuple[str, ...], tmp_path: Path) -> None:
    launcher_code = LAUNCHER.replace('model="m"', f'model="{tmp_path}/m"')
    command = (sys.executable, "-c", launcher_code, str(tmp_path / "log"), *docker)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        engine, _ = map(int, launcher.stdout.readline().split())
        launcher.send_signal(signal.SIGKILL)
        assert is_gone(engine)


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (
            ("vllm", "serve", "--api-key", "S3", "S3", "--port", "9"),
            ("vllm", "serve", "--api-key", "***", "***", "--port", "9"),
        ),
        (("x", "--api_key", "S3", "-c", "1"), ("x", "--api_key", "***", "-c", "1")),
        (("x", "-hft", "S3", "m.gguf"), ("x", "-hft", "***", "m.gguf")),
        (("x", "--hf-token=S3"), ("x", "--hf-token=***")),
        (
            ("x", "-mu", "https://me:S3@h/m.gguf?a=1&token=S3#f"),
            ("x", "-mu", "https://***@h/m.gguf?a=1&token=***#f"),
        ),
    ],
)
def test_every_shape_of_a_secret(words: tuple[str, ...], kept: tuple[str, ...]) -> None:
    assert without_secrets(words) == kept
