"""What `--help` and `--version` say, in the shapes of several eras."""

from __future__ import annotations

import pytest

from kvtui.engines.llama_server.abilities import read_abilities

OLD = """usage: ./llama-server [options]

general:

  -h,    --help, --usage          print usage and exit
  -c,    --ctx-size N             size of the prompt context (default: 0, 0 = loaded from model)
  -fa,   --flash-attn             enable Flash Attention (default: disabled)
  -ctk,  --cache-type-k TYPE      KV cache data type for K (default: f16)
  -np,   --parallel N             number of slots for process requests (default: 1)
         --verbosity N            set specific verbosity level (default: 0)
"""
MIDDLE = """----- common params -----

-t,    --threads N                      number of threads to use during generation (default: -1)
                                        (env: LLAMA_ARG_THREADS)
-fa,   --flash-attn                     enable Flash Attention (default: disabled)
                                        (env: LLAMA_ARG_FLASH_ATTN)
-ctk,  --cache-type-k TYPE              KV cache data type for K
                                        allowed values: f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1
                                        (default: f16)
-lv,   --verbosity, --log-verbosity N   Set the verbosity threshold. Messages with a higher verbosity will be
                                        ignored.
"""
NEW = """load_backend: loaded CUDA backend from /usr/lib/libggml-cuda.so
----- common params -----

-fa,   --flash-attn [on|off|auto]       set Flash Attention use ('on', 'off', or 'auto', default: 'auto')
-kvo,  --kv-offload, -nkvo, --no-kv-offload
                                        whether to enable KV cache offloading (default: enabled)
-ctk,  --cache-type-k TYPE              KV cache data type for K
                                        allowed values: f32, f16, turbo3, q8_0
                                        (default: f16)
-ctv,  --cache-type-v TYPE              KV cache data type for V
                                        allowed values: f32
-fit,  --fit [on|off]                   whether to adjust unset arguments to fit in device memory ('on' or
                                        'off', default: 'on')
-kvu,  --kv-unified, -no-kvu, --no-kv-unified
                                        use single unified KV buffer
"""


def test_an_old_build() -> None:
    abilities = read_abilities(OLD, "version: 3091 (0aa0aa0)\nbuilt with cc for x86_64-linux-gnu")
    assert {"-c", "--ctx-size", "-fa", "-np", "--verbosity", "--usage"} <= abilities.options
    assert not abilities.flash_attn_takes_value
    assert abilities.cache_types == ()
    assert (abilities.build, abilities.commit) == ("b3091", "0aa0aa0")


def test_a_build_of_2025() -> None:
    abilities = read_abilities(MIDDLE, "")
    assert not abilities.flash_attn_takes_value
    assert abilities.cache_types[-1] == "q5_1"
    assert {"-lv", "--verbosity", "--log-verbosity"} <= abilities.options
    assert "-1" not in abilities.options


def test_a_build_of_2026_and_a_forks_own_type() -> None:
    abilities = read_abilities(
        NEW, "version: 0.4.1 (build 11434, commit d1ce6c1)\nbuilt with GNU 13 for Linux"
    )
    assert abilities.flash_attn_takes_value
    assert abilities.cache_types == ("f32", "f16", "turbo3", "q8_0")
    assert {"-nkvo", "--no-kv-offload", "-fit", "-no-kvu", "--no-kv-unified"} <= abilities.options
    assert (abilities.build, abilities.commit) == ("b11434", "d1ce6c1")
    assert abilities.version == "version: 0.4.1 (build 11434, commit d1ce6c1)"


@pytest.mark.parametrize(
    ("text", "version", "build", "commit"),
    [
        ("version: 0 (unknown)\n", "version: 0 (unknown)", None, None),
        ("ggml_cuda_init: found 1 device\nversion: 6190 (ab12)\n", "version: 6190 (ab12)", "b6190", "ab12"),
        ("my fork 1.2\x1b[31m\n", "my fork 1.2", None, None),
        ("", "", None, None),
    ],
)
def test_versions(text: str, version: str, build: str | None, commit: str | None) -> None:
    abilities = read_abilities("", text)
    assert (abilities.version, abilities.build, abilities.commit) == (version, build, commit)
    assert abilities.options == frozenset()


DEVICES = """ggml_cuda_init: found 2 CUDA devices (Total VRAM: 32000 MiB):
  Device 0: NVIDIA GeForce RTX 4080, compute capability 8.9, VMM: yes
load_backend: loaded CUDA backend from /usr/lib/libggml-cuda.so
load_backend: loaded RPC backend from /usr/lib/libggml-rpc.so
load_backend: loaded CPU backend from /usr/lib/libggml-cpu-haswell.so
Available devices:
  CUDA0: NVIDIA GeForce RTX 4080 (16012 MiB, 15800 MiB free)
  Vulkan1: AMD Radeon \x1b[31mGraphics (512 MiB, 500 MiB free)
"""


def test_what_it_was_built_with_and_the_devices_it_lists() -> None:
    version = "version: 6190 (ab12)\nbuilt with cc (Ubuntu 13.3.0) 13.3.0 for x86_64-linux-gnu\n"
    abilities = read_abilities(NEW, version, DEVICES)
    assert abilities.compiler == "cc (Ubuntu 13.3.0) 13.3.0"
    assert abilities.target == "x86_64-linux-gnu"
    assert abilities.backends == ("CUDA", "RPC", "Vulkan")
    assert abilities.devices is not None
    card, other = abilities.devices
    assert (card.name, card.description) == ("CUDA0", "NVIDIA GeForce RTX 4080")
    assert (card.total_mib, card.free_mib) == (16012, 15800)
    assert (other.name, other.description) == ("Vulkan1", "AMD Radeon Graphics")


def test_no_devices_are_told_apart_from_devices_not_asked_for() -> None:
    assert read_abilities(NEW, "", "Available devices:\n  (none)\n").devices == ()
    assert read_abilities(NEW, "").devices is None
    assert read_abilities(NEW, "").backends == ("CUDA",)
    assert read_abilities(OLD, "").backends == ()
    assert read_abilities(OLD, "").compiler is None
