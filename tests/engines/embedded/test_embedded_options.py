"""llama-server's option names as the embedded engine takes them."""

from __future__ import annotations

import pytest

from kvtui.engines.embedded.options import CACHE_TYPES, ArgumentError, Options, help_text, parse
from kvtui.engines.llama_server.abilities import read_abilities


def words(line: str) -> list[str]:
    return line.split()


def test_nothing_given_is_llama_servers_default() -> None:
    options = parse([])
    assert (options.ctx_size, options.parallel, options.cache_type_k, options.flash_attn) == (
        0,
        -1,
        "f16",
        "auto",
    )
    assert (options.batch_size, options.ubatch_size, options.cache_ram, options.ctx_checkpoints) == (
        2048,
        512,
        8192,
        32,
    )


def test_short_and_long_names_mean_the_same() -> None:
    short = parse(
        words(
            "-m a.gguf -c 4096 -ctk q8_0 -ctv q4_0 -fa on -np 2 -kvu -b 512 -ub 256 -ngl 99 -t 3 -lv 4"
            " -fit off -cram 0 -ctxcp 4 -nkvo"
        )
    )
    long = parse(
        words(
            "--model a.gguf --ctx-size 4096 --cache-type-k q8_0 --cache-type-v q4_0 --flash-attn on"
            " --parallel 2 --kv-unified --batch-size 512 --ubatch-size 256 --n-gpu-layers 99 --threads 3"
            " --log-verbosity 4 --fit off --cache-ram 0 --ctx-checkpoints 4 --no-kv-offload"
        )
    )
    assert short == long
    assert short == Options(
        model="a.gguf",
        ctx_size=4096,
        cache_type_k="q8_0",
        cache_type_v="q4_0",
        flash_attn="on",
        parallel=2,
        kv_unified=True,
        batch_size=512,
        ubatch_size=256,
        gpu_layers=99,
        threads=3,
        verbosity=4,
        fit=False,
        cache_ram=0,
        ctx_checkpoints=4,
        kv_offload=False,
    )


def test_switches_have_their_opposites_and_the_last_word_counts() -> None:
    assert parse(["-kvu", "--no-kv-unified"]).kv_unified is False
    assert parse(["--no-warmup", "--no-slots", "--metrics", "--swa_full", "--no-cache-prompt"]) == Options(
        warmup=False, slots=False, metrics=True, swa_full=True, cache_prompt=False
    )


@pytest.mark.parametrize(("word", "value"), [("auto", -1), ("all", -2), ("0", 0), ("999", 999)])
def test_gpu_layers(word: str, value: int) -> None:
    assert parse(["-ngl", word]).gpu_layers == value


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["-ctk", "q9_0"], 'error while handling argument "-ctk": Unsupported cache type: q9_0'),
        (["--nope"], "error: invalid argument: --nope"),
        (["--no_pe"], "error: invalid argument: --no-pe"),
        (["model.gguf"], "error: invalid argument: model.gguf"),
        (["-c"], 'error while handling argument "-c": expected value for argument'),
        (["-c", "many"], 'error while handling argument "-c": stoi'),
        (["-np", "0"], 'error while handling argument "-np": error: invalid value for n_parallel'),
        (["-fa", "maybe"], "error while handling argument \"-fa\": unknown value for --flash-attn: 'maybe'"),
        (["-fit", "x"], "error while handling argument \"-fit\": unknown value for --fit: 'x'"),
    ],
)
def test_a_mistake_is_one_line_in_llama_servers_words(argv: list[str], sentence: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        parse(argv)
    assert str(caught.value) == sentence


def test_the_help_is_read_back_like_any_builds() -> None:
    abilities = read_abilities(help_text(), "")
    assert abilities.cache_types == CACHE_TYPES
    assert abilities.flash_attn_takes_value
    for name in (
        "-m",
        "--ctx-size",
        "-no-kvu",
        "--no-kv-unified",
        "-nkvo",
        "--cache-ram",
        "-fit",
        "--no-warmup",
    ):
        assert name in abilities.options
        assert name not in ("'off',", "-1")
    assert all(name.startswith("-") and not name[1:].isdecimal() for name in abilities.options)
