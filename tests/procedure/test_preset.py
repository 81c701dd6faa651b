"""Presets: the packaged ones are sound, and a mistake in a file is named with its key and what is allowed."""

from __future__ import annotations

import os
import re
import time
import tomllib
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvtui
from kvtui.core.errors import InputError, PresetError
from kvtui.core.text import clean
from kvtui.probes.own_tasks import OwnTask
from kvtui.procedure import preset as module
from kvtui.procedure.preset import Preset, list_presets, load_preset, with_tasks
from kvtui.procedure.preset_keys import KEYS
from kvtui.session.codec import decode_foreign, encode, from_builtins, to_builtins
from kvtui.session.events import SessionStarted
from tests.session import sample

NAMES = ("coding-agent", "demo", "document-analysis", "multi-user")
FOLDER = Path(kvtui.__file__).parent.parent / "presets"

SMALL = """\
title = "Mine"
description = "A preset of mine."
[baseline]
context = 4096
depths = [512, 2048]
[stages]
contexts = [4096, 8192]
target = 8192
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(SMALL)
    return path


def refused(path: Path | str) -> str:
    with pytest.raises(PresetError) as caught:
        load_preset(str(path))
    line = caught.value.line()
    assert line.isprintable()
    assert len(line) < 1000
    return line


def changed(path: Path, old: str, new: str) -> str:
    """The refusal of `path` with `old` replaced, without the path in front."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return refused(path).removeprefix(f"{path}: ")


def test_the_four_presets_are_there() -> None:
    assert tuple(preset.name for preset in list_presets()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_packaged_preset_names_every_key_that_matters_and_explains_itself(name: str) -> None:
    preset = load_preset(name)
    assert preset.title
    assert preset.description.endswith(".")
    text = (FOLDER / f"{name}.toml").read_text()
    assert text.startswith("# ")
    given = tomllib.loads(text)
    for table in ("floor", "baseline", "kv", "stages", "memory", "server", "transients"):
        assert table in given


def test_the_presets_aim_at_what_they_say() -> None:
    by_name = {preset.name: preset for preset in list_presets()}
    coding, documents, users = by_name["coding-agent"], by_name["document-analysis"], by_name["multi-user"]
    assert (coding.n_parallel, coding.kv_type, coding.prefix_reuse) == (1, "q8_0", True)
    assert (49152 in coding.stages, coding.target_context) == (True, 65536)
    assert (65536 in documents.stages, documents.target_context) == (True, 131072)
    assert documents.min_prompt_tps is not None
    assert (users.n_parallel, users.kv_unified, users.transients) == (4, False, "always")
    assert users.max_per_request is not None
    assert users.max_live_tokens == users.n_parallel * users.max_per_request == users.target_context


def test_the_demo_is_small_enough_for_two_cores() -> None:
    demo = load_preset("demo")
    assert demo.stages == (2048, 3072, 4096)
    tails = 4 * 160
    tasks = 2 * sum(depth + tails for depth in demo.baseline_depths)
    climb = sum(demo.stages) + len(demo.stages) * len(demo.recall_positions) * 12
    transients = 2 * demo.target_context
    prefilled = demo.floor_context + tasks + climb + transients
    assert prefilled < 35_000
    decoded = 2 * len(demo.baseline_depths) * 140 + 6 * (demo.decode_tokens + len(demo.recall_positions) * 8)
    assert prefilled / 150 + decoded / 25 < 240


def test_what_is_not_given_has_its_default(mine: Path) -> None:
    preset = load_preset(str(mine))
    assert preset.name == "mine"
    assert (preset.floor_context, preset.kv_type, preset.n_parallel, preset.margin_gib) == (
        8192,
        "q8_0",
        1,
        1.0,
    )
    assert (preset.min_decode_tps, preset.reserve_gib, preset.max_live_tokens) == (None, None, None)
    assert preset.stages == (4096, 8192)


def test_every_field_has_a_key_and_every_key_a_field() -> None:
    keys = [key.field for table in KEYS.values() for key in table.values()]
    assert sorted(keys) == sorted(f.name for f in fields(Preset) if f.name not in ("name", "own_tasks"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "target",
            "traget",
            'stages.traget: no such key; did you mean "target"? allowed: contexts, target, ',
        ),
        (
            "[stages]",
            "[stage]",
            'stage: no such key; did you mean "stages"? allowed: title, description, tasks, floor, ',
        ),
        (
            "title",
            "colour",
            "colour: no such key; allowed: title, description, tasks, floor, baseline, kv, stages",
        ),
        ("target = 8192\n", "", "stages.target: is missing; it must be a whole number from 256 to 16777216"),
        (
            "[baseline]\ncontext = 4096\ndepths = [512, 2048]\n",
            "",
            "baseline.context: is missing; it must be",
        ),
        ("8192\n", '"8K"\n', 'stages.target: is "8K"; it must be a whole number'),
        ("8192\n", "8192.0\n", "stages.target: is 8192.0; it must be a whole number"),
        ("8192\n", "true\n", "stages.target: is true; it must be a whole number"),
        ("8192\n", "-1\n", "stages.target: is -1; it must be a whole number from 256"),
        ("8192\n", "{a = 1}\n", "stages.target: is a table; it must be a whole number"),
        ("8192\n", "1979-05-27\n", "stages.target: is 1979-05-27; it must be a whole number"),
        ("8192\n", "16384\n", "stages.target: is 16384; at most the last of stages.contexts, 8192"),
        (
            "[4096, 8192]",
            "[8192, 4096]",
            "stages.contexts: is [8192, 4096]; it must be a list of 1 to 16 ascending",
        ),
        (
            "[4096, 8192]",
            "[8192, 8192]",
            "stages.contexts: is [8192, 8192]; it must be a list of 1 to 16 ascending",
        ),
        ("[4096, 8192]", "[]", "stages.contexts: is []; it must be a list of 1 to 16 ascending"),
        ("[4096, 8192]", "[[4096], 8192]", "stages.contexts: is [.., 8192]; it must be a list"),
        ("[4096, 8192]", "8192", "stages.contexts: is 8192; it must be a list of 1 to 16 ascending values"),
        ("[512, 2048]", "[512, 4090]", "baseline.depths: 4090 leaves no room for an answer; at most 3968 in"),
        ('"Mine"', '""', 'title: is ""; it must be text of 1 to 400 characters'),
        ('"Mine"', "7", "title: is 7; it must be text"),
        ("[baseline]", "[kv]\ntype='q8'\n[baseline]", 'kv.type: is "q8"; it must be one of "q8_0", "q5_1"'),
        ("[baseline]", "kv = 'q8_0'\n[baseline]", "kv: must be a table: [kv]"),
        ("[baseline]", "[[server]]\n[baseline]", "server: must be a table: [server]"),
        (
            "[baseline]",
            "[server]\nkv_unified=1\n[baseline]",
            "server.kv_unified: is 1; it must be true or false",
        ),
        (
            "[baseline]",
            "[server]\nn_ubatch=4096\n[baseline]",
            "server.n_ubatch: is 4096; at most server.n_batch, 2048",
        ),
        (
            "[baseline]",
            "[memory]\nmargin_gib=nan\n[baseline]",
            "memory.margin_gib: is nan; it must be a number from 0",
        ),
        (
            "[baseline]",
            "[memory]\nmargin_gib=inf\n[baseline]",
            "memory.margin_gib: is inf; it must be a number from 0",
        ),
        (
            "[baseline]",
            "[transients]\nrun='no'\n[baseline]",
            'transients.run: is "no"; it must be one of "on-failure"',
        ),
        (
            "[baseline]",
            "[limits]\nmax_per_request=4096\nmax_live_tokens=2048\n[baseline]",
            "limits.max_per_request: is 4096; at most max_live_tokens, 2048",
        ),
        (
            "[baseline]",
            "[limits]\nmax_live_tokens=9000\n[baseline]",
            "limits.max_live_tokens: is 9000; at most the last of stages.contexts, 8192",
        ),
        (
            "[stages]",
            "[stages]\nrecall_positions = [0.5, 1.5]",
            "stages.recall_positions: is [0.5, 1.5]; it must be",
        ),
    ],
)
def test_a_mistake_is_named_with_its_key_and_what_is_allowed(
    mine: Path, old: str, new: str, message: str
) -> None:
    assert changed(mine, old, new).startswith(message)


def test_broken_toml_is_named_with_its_line(mine: Path) -> None:
    assert re.search(
        r"is not TOML: .*line 5", changed(mine, "depths = [512, 2048]", "depths = [512, , 2048]")
    )
    mine.write_text(SMALL + "[stages]\n")
    assert re.search(r"is not TOML: .*line 9", refused(mine))


def test_an_unknown_name_suggests_the_nearest() -> None:
    assert refused("coding-agnet") == (
        "coding-agnet: no such preset; "
        'did you mean "coding-agent"? allowed: coding-agent, demo, document-analysis, multi-user'
    )
    assert refused("demo\x1b[2J").startswith("demo: no such preset")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.toml").endswith("none.toml: no such file or directory")
    assert refused(f"{tmp_path}/").endswith("is no regular file")
    os.mkfifo(tmp_path / "pipe.toml")
    assert refused(tmp_path / "pipe.toml").endswith("is no regular file")
    (tmp_path / "binary.toml").write_bytes(b'title = "\xff"')
    assert refused(tmp_path / "binary.toml").endswith("is not UTF-8 at byte 9")
    (tmp_path / "large.toml").write_bytes(b"#" * 70_000)
    assert refused(tmp_path / "large.toml").endswith("is larger than 32 KiB")
    (tmp_path / "loop.toml").symlink_to(tmp_path / "loop.toml")
    assert "loop.toml: " in refused(tmp_path / "loop.toml")
    assert refused("./nul\0.toml").endswith("is no file name")
    assert refused("./" + "x" * 5000 + ".toml").endswith("file name too long")
    assert refused("/dev/zero").endswith("is no regular file")


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 30_000,
        "\n".join(["x = [", *["[" * 400] * 70]),
        "x = " + "{a=" * 150,
        "x" + ".x" * 15_000 + " = 1",
        "\n".join(f"x{i}" + ".x" * 240 + " = 1" for i in range(60)),
        "x = " + "9" * 490,
        '"' + "k" * 490 + '" = 1',
        "title = " + "\n" * 30_000,
        'title = "' + "\\u001b[2J" * 4 + '"\n' + SMALL.split("\n", 1)[1] + "colour = 1",
        '"\\u001b]52;c;eA==\\u0007" = 1',
    ],
)
def test_hostile_files_are_soon_one_clean_line(mine: Path, text: str) -> None:
    mine.write_text(text)
    began = time.process_time()
    refused(mine)
    assert time.process_time() - began < 1.5


def test_text_from_a_file_is_cleaned(mine: Path) -> None:
    mine.write_text(SMALL.replace('"Mine"', '"Mi\\u001b[31mne"'))
    assert load_preset(str(mine)).title == "Mine"


@given(text=st.text(max_size=80), key=st.sampled_from(["title", "target = 8192", "[stages]", "contexts"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_other_text_is_a_preset_or_one_clean_line(mine: Path, text: str, key: str) -> None:
    mine.write_bytes(SMALL.replace(key, text).encode("utf-8", "surrogatepass"))
    try:
        assert load_preset(str(mine)).target_context == 8192
    except PresetError as error:
        line = error.line()
        assert line == clean(line)


def test_a_wheel_carries_the_presets_inside_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "kvtui" / "presets"
    inside.mkdir(parents=True)
    (inside / "mine.toml").write_text(SMALL)
    (tmp_path / "presets").mkdir()
    monkeypatch.setattr(module.resources, "files", lambda name: tmp_path / name)
    assert [preset.name for preset in list_presets()] == ["mine"]
    assert load_preset("mine").target_context == 8192


def test_the_operators_tasks_are_read_from_beside_the_preset_and_kept_with_the_plan(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "hello.txt").write_text("Say\thello ‌🦙\n")
    (folder / "hello.expect").write_text("/[Hh]ello/\n")
    text = (FOLDER / "demo.toml").read_text().replace('title = "Demo"', 'title = "Demo"\ntasks = "mine"')
    (tmp_path / "p.toml").write_text(text)
    plan = load_preset(str(tmp_path / "p.toml"))
    assert plan.own_tasks == (OwnTask("hello", "Say\thello ‌🦙", ("/[Hh]ello/",)),)
    (folder / "hello.txt").write_text("changed")
    recorded = decode_foreign(encode(replace(sample.started(), plan=to_builtins(plan))))
    assert isinstance(recorded, SessionStarted)
    assert from_builtins(recorded.plan, Preset) == plan
    (folder / "hello.txt").unlink()
    with pytest.raises(InputError, match=r"mine/hello\.expect: has no prompt beside it"):
        load_preset(str(tmp_path / "p.toml"))
    with pytest.raises(InputError, match="no such file"):
        with_tasks(plan, str(tmp_path / "nothing"))
