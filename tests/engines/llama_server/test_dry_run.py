"""The engine's own forecast: what `llama-fit-params` prints, and everything else that a program may do instead."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kvtui.core.config import RunConfig
from kvtui.core.errors import InputError, StartError
from kvtui.engines.base import DeviceNeed, DryRun
from kvtui.engines.llama_server import dry_run
from kvtui.engines.llama_server.dry_run import find_program
from kvtui.engines.llama_server.server import LlamaServer, dry_runner
from tests.tiny_model import write_tiny_model

HELP = """\
-c,    --ctx-size N                     size of the prompt context
-ctk,  --cache-type-k TYPE              KV cache data type for K
-ub,   --ubatch-size N                  physical maximum batch size
-fit,  --fit [on|off]                   whether to adjust unset arguments
-fitp, --fit-print [on|off]             print the estimated required memory
"""
CONFIG = RunConfig("model.gguf", 8192, type_k="q8_0", n_ubatch=256)


def program(folder: Path, body: str, name: str = "llama-fit-params", help_text: str = HELP) -> str:
    path = folder / name
    path.write_text(
        f"#!/bin/sh\ncase \"$1\" in --help) cat <<'END'\n{help_text}END\nexit;; --version) echo 'version: 11434 (abc)';"
        f" exit;; esac\n{body}\n"
    )
    path.chmod(0o755)
    return str(path)


def test_every_device_is_read_with_the_host_last(tmp_path: Path) -> None:
    told = "echo 'CUDA0 7000 1024 300 '; echo 'Tesla T4 (1) 10 0 2 '; echo 'Host 222 39 527 '; echo noise >&2"
    answer = dry_runner(program(tmp_path, told)).ask(CONFIG)
    assert answer.devices == (
        DeviceNeed("CUDA0", 7000, 1024, 300),
        DeviceNeed("Tesla T4 (1)", 10, 0, 2),
        DeviceNeed("Host", 222, 39, 527),
    )
    assert answer.total(host_counts=False) == DeviceNeed("GPU", 7010, 1024, 302)
    assert answer.total(host_counts=True) == DeviceNeed("host", 7232, 1063, 829)


def test_it_is_asked_for_the_very_configuration_with_options_it_knows(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    more = replace(CONFIG, extra=("--jinja", "--alias", "x", "--ctx-size=1", "-ub", "-1"))
    dry_runner(program(tmp_path, f"echo \"$*\" > '{asked}'; echo 'Host 1 2 3 '")).ask(more)
    assert asked.read_text().strip() == "-c 8192 -ctk q8_0 -ub 256 -fit off --ctx-size=1 -ub -1 -fitp on"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            "echo '0.01 E llama_model_load: error loading model: no such file' >&2; exit 1",
            "error loading model",
        ),
        ("echo 'Host 1 2 3 '; kill -ABRT $$", "ended with"),
        ("echo '-c 8192 -ngl -1'", "printed no figures"),
        ("echo 'CUDA0 1 2 3 '", "printed no figures"),
        ("echo 'Host 1 2 3 '; echo 'CUDA0 1 2 3 '", "printed no figures"),
        ("head -c 100000000 /dev/zero", "printed no figures"),
    ],
)
def test_what_is_no_forecast_is_an_error_in_its_own_words(tmp_path: Path, body: str, says: str) -> None:
    with pytest.raises(StartError, match=says):
        dry_runner(program(tmp_path, body)).ask(CONFIG)


def test_a_build_that_cannot_print_says_so(tmp_path: Path) -> None:
    old = "\n".join(line for line in HELP.splitlines() if "fitp" not in line) + "\n"
    with pytest.raises(StartError, match="has no --fit-print"):
        dry_runner(program(tmp_path, "echo 'Host 1 2 3 '", help_text=old)).ask(CONFIG)


def test_a_program_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run, "_LIMIT_S", 0.2)
    began = time.monotonic()
    with pytest.raises(StartError, match="did not answer"):
        dry_runner(program(tmp_path, "exec sleep 30")).ask(CONFIG)
    assert time.monotonic() - began < 10


def test_the_program_beside_the_server_is_asked(tmp_path: Path) -> None:
    server = LlamaServer((program(tmp_path, "exit 1", name="llama-server"),))
    assert server.dry_run(CONFIG) is None
    fit = Path(program(tmp_path, "echo 'Host 1 2 3 '"))
    answer = server.dry_run(CONFIG)
    assert isinstance(answer, DryRun)
    assert answer.devices == (DeviceNeed("Host", 1, 2, 3),)
    fit.write_text("#!/bin/sh\nexit 1\n")
    assert server.dry_run(CONFIG) is None


def test_a_given_program_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a program"):
        find_program(str(tmp_path / "nowhere"))
    there = program(tmp_path, "exit 1")
    assert find_program(there) == there


@pytest.mark.engine
def test_the_real_program_agrees_with_the_geometry(tmp_path: Path) -> None:
    real = os.environ.get("LLAMA_FIT_PARAMS_BIN") or shutil.which("llama-fit-params")
    if real is None:
        pytest.skip("no llama-fit-params on the PATH (LLAMA_FIT_PARAMS_BIN)")
    from kvtui.procedure.oracle import Oracle

    model = str(write_tiny_model(tmp_path / "tiny.gguf"))
    config = RunConfig(model, 65536, n_gpu_layers=0)
    kv = Oracle.read(model).context(config).kv_bytes
    assert kv is not None
    told = dry_runner(real).ask(config).total(host_counts=True).context_mib
    assert told == kv // (1 << 20)
