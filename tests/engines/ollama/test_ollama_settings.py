"""What Ollama is told and by whom: the private daemon, each request, the operator's own service."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from kvtui.core.config import RunConfig
from kvtui.core.errors import InputError, StartError
from kvtui.engines.find import engine_of
from kvtui.engines.ollama.engine import OllamaEngine
from kvtui.engines.ollama.settings import left_out, load_options, tuning_variables
from kvtui.engines.ollama.tokens import IMPLIED, MeasuredTokenizer
from kvtui.engines.recipes import recipes_of
from tests.engines.ollama.conftest import CONFIG, Stand

BIG = RunConfig("gemma3:4b", 32768, "q8_0", "q8_0", flash_attn="on", n_parallel=2, n_batch=512, n_ubatch=512)


def test_the_context_of_one_request_is_a_slots_share() -> None:
    assert load_options(BIG) == {"num_ctx": 16384, "num_batch": 512, "num_gpu": 999}
    assert dict(tuning_variables(BIG))["OLLAMA_CONTEXT_LENGTH"] == "16384"
    assert load_options(replace(BIG, n_gpu_layers=None, threads=3)) == {
        "num_ctx": 16384,
        "num_batch": 512,
        "num_thread": 3,
    }


@pytest.mark.parametrize(
    ("asked", "probes", "expected"),
    [("auto", True, None), ("auto", False, "1"), ("on", True, "1"), ("off", True, "0"), ("off", False, "0")],
)
def test_flash_attention_by_era(asked: str, probes: bool, expected: str | None) -> None:
    config = replace(BIG, flash_attn=asked)  # type: ignore[arg-type]
    assert dict(tuning_variables(config, probes=probes)).get("OLLAMA_FLASH_ATTENTION") == expected


def test_what_ollama_has_no_setting_for_is_said() -> None:
    assert left_out(BIG) == ()
    odd = replace(
        BIG, type_v="q4_0", kv_unified=True, n_cpu_moe=4, kv_offload=False, swa_full=True, prefix_reuse=False
    )
    assert len(left_out(odd)) == 6
    assert left_out(replace(BIG, extra=("--fast", "OLLAMA_DEBUG=1")))[0].option == "--fast"


def test_the_command_is_exact_and_keeps_to_itself(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "0.0.0.0:11434")
    monkeypatch.setenv("OLLAMA_GPU_OVERHEAD", "1000")
    monkeypatch.setenv("OLLAMA_API_KEY", "secret")
    engine = OllamaEngine(stand.program())
    config = replace(CONFIG, extra=("OLLAMA_LOAD_TIMEOUT=10m",))
    command = engine.command(config, 4321)
    env = dict(command.env)
    assert command.argv[1:] == ("serve",)
    assert env["OLLAMA_HOST"] == "127.0.0.1:4321"
    assert env["OLLAMA_MODELS"] == str(stand.folder / "models")
    assert (env["OLLAMA_GPU_OVERHEAD"], env["OLLAMA_LOAD_TIMEOUT"]) == ("1000", "10m")
    assert (env["OLLAMA_NOPRUNE"], env["OLLAMA_NO_CLOUD"], env["OLLAMA_KEEP_ALIVE"]) == ("1", "1", "-1")
    assert "OLLAMA_API_KEY" not in env
    (request,) = command.follow
    words = shlex.split(request)
    assert words[:2] == ["curl", "http://127.0.0.1:4321/api/generate"]
    assert json.loads(words[3])["options"] == load_options(config)
    assert engine.label == "Ollama 0.33.0"
    assert engine.traits.tied(replace(CONFIG, n_batch=2048)).n_batch == 256


def test_an_ollama_without_a_setting_says_what_is_lost(stand: Stand) -> None:
    path = Path(stand.program())
    path.write_text(
        path.read_text().replace("exec", 'test "$2" != --help || { echo "  OLLAMA_HOST  x"; exit; }\nexec')
    )
    missing = {m.option for m in OllamaEngine(str(path)).command(CONFIG, 1).missing}
    assert missing == {"OLLAMA_KV_CACHE_TYPE", "OLLAMA_FLASH_ATTENTION", "OLLAMA_NUM_PARALLEL"}


def test_a_file_is_not_loaded_but_how_to_import_it_is_told(stand: Stand) -> None:
    file = stand.folder / "My Model-Q4.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(InputError) as caught:
        OllamaEngine(stand.program()).command(replace(CONFIG, model=str(file)), 1)
    assert f"FROM {file}" in caught.value.hint
    assert "ollama create my-model-q4 -f Modelfile" in caught.value.hint


@pytest.mark.parametrize("name", ["nothing-here:7b", "///"])
def test_a_model_that_no_store_has(stand: Stand, name: str) -> None:
    with pytest.raises(InputError):
        OllamaEngine(stand.program()).command(replace(CONFIG, model=name), 1)


def test_a_program_that_is_no_ollama(tmp_path: Path) -> None:
    path = tmp_path / "ollama"
    path.write_text("#!/bin/sh\necho hello\n")
    path.chmod(0o755)
    engine = engine_of("ollama", str(path))
    with pytest.raises(StartError, match="does not answer serve --help as Ollama does"):
        engine.abilities()


def test_the_lines_for_a_service_that_is_not_ours() -> None:
    found = {recipe.title: recipe for recipe in recipes_of("ollama", BIG)}
    systemd = found["Ollama's service (systemd)"].lines
    assert 'Environment="OLLAMA_KV_CACHE_TYPE=q8_0"' in systemd
    assert 'Environment="OLLAMA_FLASH_ATTENTION=1"' in systemd
    assert systemd.index("sudo systemctl daemon-reload") > systemd.index("END")
    assert "launchctl setenv OLLAMA_NUM_PARALLEL 2" in found["Ollama's app on macOS (launchctl)"].lines
    assert 'setx OLLAMA_CONTEXT_LENGTH "16384"' in found["Ollama on Windows (setx)"].lines
    assert '      OLLAMA_KV_CACHE_TYPE: "q8_0"' in found["Ollama in Docker Compose"].lines
    modelfile = found["Ollama Modelfile"]
    assert modelfile.lines == (
        "FROM gemma3:4b",
        "PARAMETER num_ctx 16384",
        "PARAMETER num_batch 512",
        "PARAMETER num_gpu 999",
    )
    assert "16,384 for each of 2 slots" in modelfile.notes[0]
    assert recipes_of("llama-server", BIG) == ()


def test_a_setting_left_to_the_engine_is_taken_out_of_the_service() -> None:
    plain = replace(BIG, type_k="f16", type_v="f16", flash_attn="auto")
    systemd = recipes_of("ollama", plain)[0].lines
    assert "UnsetEnvironment=OLLAMA_FLASH_ATTENTION" in systemd
    quantized = recipes_of("ollama", replace(BIG, flash_attn="auto"))[0].lines
    assert 'Environment="OLLAMA_FLASH_ATTENTION=1"' in quantized


def test_measured_pieces_keep_the_text_and_end_at_lines() -> None:
    tokenizer = MeasuredTokenizer(3.7)
    text = "Zażółć gęślą jaźń: 12 345.\n\n  end\n"
    ids = tokenizer.encode(text, add_special=True, parse_special=False)
    assert ids[0] == IMPLIED
    assert tokenizer.decode(ids) == text
    newline = tokenizer.encode("\n", add_special=False, parse_special=False)
    assert len(newline) == 1
    assert ids.count(newline[0]) == 3
    assert ids == tokenizer.encode(text, add_special=True, parse_special=False)
