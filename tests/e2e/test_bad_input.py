"""Whatever is wrong with what kvtui is given: one clear line, the right exit status, no traceback."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


def one_line(done: subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    """stderr ends in one line of kvtui's that holds all `words`, and nothing of it is a traceback."""
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("kvtui: "), done.stderr
    for word in words:
        assert word in last, last
    assert done.stdout == ""


def test_no_model(kvtui: Run) -> None:
    one_line(kvtui("tune", "--headless"), 2, "no model given", "kvtui demo")


def test_missing_model(kvtui: Run) -> None:
    one_line(
        kvtui("tune", "-m", "/nowhere/model.gguf", "--headless"), 2, "/nowhere/model.gguf", "no such file"
    )


def test_not_a_gguf(kvtui: Run, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_text("hello, I am no model\n" * 100)
    one_line(kvtui("tune", "-m", str(path), "--headless"), 2, "model.gguf")


def test_truncated_gguf(kvtui: Run, tmp_path: Path, tiny_model: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny_model.read_bytes()[:2000])
    one_line(kvtui("tune", "-m", str(path), "--headless"), 2, "model.gguf")


@pytest.mark.engine
def test_a_model_whose_tensors_are_cut_off_fails_in_the_engine_with_its_words(
    kvtui: Run, tmp_path: Path, tiny_model: Path, tiny_preset: Path
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny_model.read_bytes()[:-50_000])
    done = kvtui("tune", "-m", str(path), "--preset", str(tiny_preset), "--headless")
    assert "Traceback" not in done.stderr
    assert done.returncode in (2, 3), done.stderr


def test_unknown_preset_and_broken_preset(
    kvtui: Run, tmp_path: Path, tiny_model: Path, tiny_preset: Path
) -> None:
    one_line(
        kvtui("tune", "-m", str(tiny_model), "--preset", "codeing-agent", "--headless"), 2, "coding-agent"
    )
    tiny_preset.write_text(tiny_preset.read_text().replace("n_ubatch", "n_ubach"))
    one_line(kvtui("tune", "-m", str(tiny_model), "--preset", str(tiny_preset), "--headless"), 2, "n_ubatch")
    unreadable = tmp_path / "folder.toml"
    unreadable.mkdir()
    one_line(
        kvtui("tune", "-m", str(tiny_model), "--preset", str(unreadable), "--headless"), 2, "folder.toml"
    )


def test_engine_that_is_not_there(kvtui: Run, tiny_model: Path) -> None:
    done = kvtui("tune", "-m", str(tiny_model), "--engine-bin", "/nowhere/llama-server", "--headless")
    one_line(done, done.returncode, "/nowhere/llama-server")
    assert done.returncode in (2, 3)


def script(path: Path, body: str) -> Path:
    """A program that claims to be a llama-server."""
    helps = "-m, --model FNAME\\n-c, --ctx-size N\\n-ctk, --cache-type-k TYPE\\n--port PORT\\n--host HOST\\n"
    path.write_text(
        "#!/bin/sh\n"
        f'case "$1" in --help) printf -- "{helps}"; exit 0;; --version) echo "version: 1 (abc)"; exit 0;; esac\n'
        f"{body}\n"
    )
    path.chmod(0o755)
    return path


def test_engine_that_exits_at_once(kvtui: Run, tmp_path: Path, tiny_model: Path, tiny_preset: Path) -> None:
    engine = script(tmp_path / "llama-server", "echo 'error: invalid argument: --frobnicate' >&2; exit 1")
    done = kvtui(
        "tune", "-m", str(tiny_model), "--preset", str(tiny_preset), "--engine-bin", str(engine), "--headless"
    )
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert "invalid argument: --frobnicate" in done.stderr
    assert Path(done.stdout.strip()).is_file()


def test_no_space_for_the_session(environment: dict[str, str], tiny_model: Path, tiny_preset: Path) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "kvtui",
            "tune",
            "-m",
            str(tiny_model),
            "--preset",
            str(tiny_preset),
            "--headless",
        ],
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        preexec_fn=small_files,
        check=False,
    )
    one_line(done, 3, "cannot write the session", "KVTUI_DATA_DIR")


def test_unwritable_data_folder(environment: dict[str, str], tiny_model: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "kvtui", "tune", "-m", str(tiny_model), "--headless"],
        env={**environment, "KVTUI_DATA_DIR": str(blocked)},
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    one_line(done, 3, "cannot write the session")


def test_resuming_what_is_not_there(kvtui: Run) -> None:
    done = kvtui("tune", "--resume", "19990101", "--headless")
    one_line(done, done.returncode, "no such session")
    assert done.returncode in (2, 3)


def test_no_command_and_no_terminal(kvtui: Run) -> None:
    done = kvtui()
    assert done.returncode == 2
    assert "--headless" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--target-context", "0"], ["--target-context: 0 is not", "256"]),
        (["--target-context", "1" + "0" * 30], ["--target-context"]),
        (["--margin", "nan"], ["--margin: nan"]),
        (["--margin=-5"], ["--margin: -5"]),
        (["--reserve", "inf"], ["--reserve: inf"]),
        (["--min-decode", "nan"], ["--min-decode: nan"]),
        (["-np", "0"], ["--parallel: 0"]),
        (["-ub", "4096", "-b", "256"], ["--ubatch-size: 4096", "--batch-size"]),
        (["-ngl", "9" * 30], ["--gpu-layers"]),
        (["-ngl", "abc"], ["'abc' is not a number of layers", "kvtui tune --help"]),
        (["-t", "-3"], ["--threads: -3"]),
        (["--sample-hz", "nan"], ["--sample-hz: nan is not a number from 1 to 50"]),
        (["--sample-hz", "51"], ["--sample-hz: 51"]),
        (["--gpu", "0,x"], ["'0,x' is not the number of a GPU", "kvtui tune --help"]),
        (["--gpu", "0"], ["GPU 0 cannot be used"]),
        (["--kv-type", "\x1b[31mx"], ["--kv-type: x is not the name"]),
        (["--engine-args", "--a 'b"], ["--engine-args: --a 'b: no closing quotation"]),
        (["--tasks", "/nowhere/\x1b[31mprompts"], ["/nowhere/prompts: no such file", "a folder of prompts"]),
        (["--tasks", "/dev/null"], ["/dev/null: not a directory", "a folder of prompts"]),
        (["-m", "~nobody-by-this-name/x.gguf"], ["no such file"]),
        (["--preset", "~nobody-by-this-name/x.toml"], ["no such file"]),
        (["-m", "a\x1b]52;c;aGk=\x07.gguf"], ["a.gguf", "rename it"]),
    ],
)
def test_options_that_cannot_be_used(
    kvtui: Run, tiny_model: Path, options: list[str], words: list[str]
) -> None:
    done = kvtui("tune", "-m", str(tiny_model), "--headless", *options)
    one_line(done, 2, *words)
    assert "\x1b" not in done.stderr


def test_a_cache_type_that_the_engine_does_not_have(kvtui: Run, tiny_model: Path) -> None:
    done = kvtui("tune", "-m", str(tiny_model), "--kv-type", "q9_9", "--headless")
    one_line(done, 2, "--kv-type: q9_9", "q8_0")


def test_output_that_nobody_can_read_or_take(environment: dict[str, str]) -> None:
    def run(redirections: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "-c", f'exec "$0" -m kvtui log --explain oom-weights {redirections}', sys.executable],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    for closed in (">&-", "2>&-", ">&- 2>&- <&-", "| head -c 1"):
        done = run(closed)
        assert "Traceback" not in done.stderr, closed
    if Path("/dev/full").exists():
        one_line(run(">/dev/full"), 3, "standard output", "No space left")
