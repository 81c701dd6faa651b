"""What was asked: command line over environment over configuration file, each with its source."""

from __future__ import annotations

import pytest

from kvtui.engines.attach.llama_asked import ALL_LAYERS, config_paths, llama_asked, python_server_asked
from kvtui.engines.attach.other_asked import ollama_asked, unit_environment, vllm_asked


def test_the_command_line_wins_over_the_environment_and_that_over_files() -> None:
    asked = llama_asked(
        ["llama-server", "-m", "a.gguf", "-c", "4096", "--cache_type_k", "q8_0", "-np", "2", "-np", "3"],
        {"LLAMA_ARG_CTX_SIZE": "8192", "LLAMA_ARG_CACHE_TYPE_V": "q4_0", "LLAMA_ARG_FLASH_ATTN": "true"},
        [
            (
                "/etc/llama.cpp/config.ini",
                "ctx-size = 1\nbatch-size = 256 ; half\ncache-type-v = f32\n[other]\nub = 1\n",
            )
        ],
    )
    assert {n: (s.value, s.source) for n, s in asked.settings.items()} == {
        "ctx": (4096, "-c 4096"),
        "n_batch": (256, "/etc/llama.cpp/config.ini: batch-size = 256"),
        "cache_type_k": ("q8_0", "--cache-type-k q8_0"),
        "cache_type_v": ("q4_0", "LLAMA_ARG_CACHE_TYPE_V=q4_0"),
        "flash_attn": ("on", "LLAMA_ARG_FLASH_ATTN=true"),
        "n_parallel": (3, "-np 3"),
    }
    assert asked.model == "a.gguf"
    assert asked.unread == ()


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["-ngl", "all"], "n_gpu_layers", ALL_LAYERS),
        (["-ngl", "auto"], "n_gpu_layers", None),
        (["-ngl", "-1"], "n_gpu_layers", None),
        (["-ngl", "20"], "n_gpu_layers", 20),
        (["-np", "-1"], "n_parallel", None),
        (["-fa", "-ngl", "3"], "flash_attn", "on"),
        (["-fa", "off"], "flash_attn", "off"),
        (["-fa", "-ngl", "3"], "n_gpu_layers", 3),
        (["-kvu", "--no-kv-unified"], "kv_unified", False),
        (["-nkvo"], "no_kv_offload", True),
        (["--kv-offload"], "no_kv_offload", False),
        (["--alias", "x", "--swa-full"], "swa_full", True),
        (["-m", "-c", "-c", "512"], "ctx", 512),
        (["-c"], "ctx", None),
    ],
)
def test_words(words: list[str], name: str, value: object) -> None:
    assert llama_asked(["llama-server", *words], {}).value(name) == value


@pytest.mark.parametrize(
    ("env", "name", "value"),
    [
        ({"LLAMA_ARG_KV_UNIFIED": "0"}, "kv_unified", False),
        ({"LLAMA_ARG_KV_UNIFIED": "enabled"}, "kv_unified", True),
        ({"LLAMA_ARG_NO_KV_UNIFIED": "whatever"}, "kv_unified", False),
        ({"LLAMA_ARG_KV_OFFLOAD": "off"}, "no_kv_offload", True),
        ({"LLAMA_ARG_NO_KV_OFFLOAD": "1"}, "no_kv_offload", True),
        ({"LLAMA_ARG_SWA_FULL": "1"}, "swa_full", True),
        ({"LLAMA_ARG_N_GPU_LAYERS": "all"}, "n_gpu_layers", ALL_LAYERS),
        ({"LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K": "q8_0"}, "cache_type_k_draft", "q8_0"),
        ({"LLAMA_ARG_LOG_FILE": "/var/log/x"}, "log_file", "/var/log/x"),
    ],
)
def test_variables(env: dict[str, str], name: str, value: object) -> None:
    assert llama_asked(["llama-server"], env).value(name) == value


def test_files_hold_options_by_every_name_and_apply_to_all_programs() -> None:
    text = "[*]\nc = 1024\nno-kv-offload = true\n[default]\nLLAMA_ARG_CTX_SIZE = 2048\nunknown = 1\n"
    text += "; x\n[model-a]\nc = 9\n"
    asked = llama_asked(["llama-server"], {}, [("config.ini", text)])
    assert asked.values == {"ctx": 2048, "no_kv_offload": True}
    assert config_paths({"HOME": "/home/a"}) == (
        "/etc/llama.cpp/config.ini",
        "/home/a/.config/llama.cpp/config.ini",
    )
    assert config_paths({"HOME": "/h", "XDG_CONFIG_HOME": "/x"})[1] == "/x/llama.cpp/config.ini"
    assert config_paths(None) == ("/etc/llama.cpp/config.ini",)


def test_an_environment_that_may_not_be_read_is_said() -> None:
    assert "LLAMA_ARG_" in llama_asked(["llama-server"], None).unread[0]
    assert "OLLAMA_" in ollama_asked(None).unread[0]


def test_the_python_server_has_names_and_numbers_of_its_own() -> None:
    argv = [
        "python",
        "-m",
        "llama_cpp.server",
        "--model",
        "a.gguf",
        "--n_ctx",
        "4096",
        "--type_k=8",
        "--offload_kqv",
        "false",
    ]
    asked = python_server_asked(argv, {"TYPE_V": "2", "N_GPU_LAYERS": "-1"})
    assert asked.values == {
        "ctx": 4096,
        "cache_type_k": "q8_0",
        "cache_type_v": "q4_0",
        "n_gpu_layers": ALL_LAYERS,
        "no_kv_offload": True,
    }


def test_ollama() -> None:
    asked = ollama_asked(
        {"OLLAMA_KV_CACHE_TYPE": "q8_0", "OLLAMA_FLASH_ATTENTION": "false", "OLLAMA_HOST": ":1234"}
    )
    assert asked.values == {"kv_type": "q8_0", "flash_attention": False}
    assert asked.value("host") == ":1234"
    text = 'Environment=PATH=/usr/bin "OLLAMA_HOST=0.0.0.0:11434" "A=two words" OLLAMA_KV_CACHE_TYPE=q4_0\n'
    assert unit_environment(text) == {
        "PATH": "/usr/bin",
        "OLLAMA_HOST": "0.0.0.0:11434",
        "A": "two words",
        "OLLAMA_KV_CACHE_TYPE": "q4_0",
    }


def test_vllm() -> None:
    argv = ["vllm", "serve", "org/model", "--max-model-len", "32K", "--kv_cache_dtype=fp8"]
    argv += ["--gpu-memory-utilization", "0.9"]
    asked = vllm_asked([*argv, "--no-enable-prefix-caching", "--port", "9"])
    assert asked.values == {
        "max_model_len": 32768,
        "kv_cache_dtype": "fp8",
        "gpu_memory_utilization": 0.9,
        "enable_prefix_caching": False,
    }
    assert (asked.model, asked.value("port")) == ("org/model", 9)


def test_lengths_beyond_all_numbers_are_words() -> None:
    for word in ("9" * 400 + "k", "1." + "9" * 400 + "g", "\u0663k"):
        assert vllm_asked(["vllm", "serve", "--max-model-len", word]).values == {"max_model_len": word}
