"""What can be pasted is read by its own reader as what was proven, whatever is in it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kvtui.procedure.preset import load_preset
from kvtui.report.facts import derive
from kvtui.report.handover import Paste, compose, modelfile, pastes, preset, systemd, systemd_word, yaml_text
from kvtui.report.run_facts import RunFacts
from kvtui.session.codec import to_builtins
from kvtui.session.state import SessionState
from tests.report import states
from tests.session import sample

ODD = [
    "plain",
    "a b",
    "100%",
    "%h/x",
    "$HOME",
    "${X}",
    'say "x"',
    "it's",
    "back\\slash",
    ";",
    "a;b",
    "",
    "#x",
    "-",
    "é",
]
ODD += ["tab\there", "\\n", "{a: b}", "yes", "0x10", "*", "&", "|", ">", "!tag", "🦙"]


def _unit_words(text: str) -> list[str]:
    """A command line as systemd.syntax(7) and systemd.service(5) say it is read, no variable being set."""
    words, at = [], 0
    escapes = {"n": "\n", "t": "\t", "\\": "\\", '"': '"', "'": "'", "s": " "}
    while at < len(text):
        while at < len(text) and text[at] == " ":
            at += 1
        word, quote, started = "", "", False
        while at < len(text) and (quote or text[at] != " "):
            char = text[at]
            started = True
            if not quote and char in "\"'" and not word:
                quote = char
            elif char == quote:
                quote = ""
            elif char == "\\":
                at += 1
                if text[at] == "x":
                    word += chr(int(text[at + 1 : at + 3], 16))
                    at += 2
                else:
                    word += escapes[text[at]]
            else:
                word += char
            at += 1
        if started:
            words.append(word)
    assert not any(re.search(r"%(?!%)", w.replace("%%", "")) for w in words)
    assert not any("$" in w.replace("$$", "") for w in words)
    return [w.replace("%%", "%").replace("$$", "$") for w in words]


@given(
    st.lists(
        st.text(st.characters(codec="ascii"), max_size=12) | st.sampled_from(ODD), min_size=1, max_size=6
    )
)
def test_systemd_reads_back_every_word(words: list[str]) -> None:
    line = " ".join(systemd_word(w) for w in words)
    assert "\n" not in line
    assert _unit_words(line) == words


def _with(argv: tuple[str, ...], env: tuple[tuple[str, str], ...] = (), **config: Any) -> SessionState:
    run = states.run(sample.state(), 6)
    return states.with_run(sample.state(), 6, argv=argv, env=env, config=replace(run.config, **config))


def _final(state: SessionState) -> RunFacts:
    final = derive(state).final
    assert final is not None
    return final


def test_the_override_replaces_the_command_and_sets_what_it_needs() -> None:
    state = _with(("/opt/my engine/llama-server", "-m", "/srv/50%/$x.gguf"), (("A", "b c%d$e"), ("B", "1")))
    lines = systemd(_final(state)).text.splitlines()
    assert lines[0] == "[Service]"
    assert lines[3] == "ExecStart="
    assert _unit_words(lines[4].removeprefix("ExecStart=")) == list(states.run(state, 6).argv)
    assert lines[1:3] == ['Environment="A=b c%%d$e"', "Environment=B=1"]


def _compose(state: SessionState) -> dict[str, Any]:
    session = derive(state)
    assert session.final is not None
    found = compose(session, session.final)
    assert found is not None
    document = yaml.safe_load(found.text)
    return dict(document["services"]["llama-server"])


@pytest.mark.parametrize("odd", ODD)
def test_compose_is_yaml_with_the_same_options(odd: str) -> None:
    model = f"/srv/{odd.strip() or 'x'}/m.gguf"
    argv = ("/opt/llama-server", "-m", model, "--alias", odd, "--host", "127.0.0.1", "--port", "18080")
    service = _compose(_with(argv, (("NAME", odd),), model=model))
    command = [str(word).replace("$$", "$") for word in service["command"]]
    clean_odd = odd.replace("\t", " ")
    assert command == ["-m", "/models/m.gguf", "--alias", clean_odd, "--host", "0.0.0.0", "--port", "8080"]
    assert service["environment"]["NAME"].replace("$$", "$") == clean_odd
    assert service["ports"] == ["127.0.0.1:8080:8080"]
    assert service["volumes"][0]["read_only"] is True
    assert service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] == ["0"]


def test_compose_on_a_box_without_a_gpu_asks_for_none() -> None:
    assert "deploy" not in _compose(states.on_host())
    assert _compose(states.on_host())["image"].endswith(":server")
    session = derive(_with(("engine", "serve", "model")))
    assert session.final is not None
    assert compose(session, session.final) is None
    assert yaml_text("a\nb") == '"a b"'


def test_a_modelfile_and_what_it_cannot_say() -> None:
    found = modelfile(_final(sample.state()))
    assert found is not None
    assert found.text.splitlines() == [
        f"FROM {sample.MODEL}",
        "PARAMETER num_ctx 49152",
        "PARAMETER num_batch 256",
        "PARAMETER num_gpu 999",
    ]
    assert found.notes[0].endswith("OLLAMA_NUM_PARALLEL=1 OLLAMA_FLASH_ATTENTION=1 OLLAMA_KV_CACHE_TYPE=q8_0")
    mixed = modelfile(_final(_with((), type_v="q4_0", n_parallel=2)))
    assert mixed is not None
    assert "num_ctx 24576" in mixed.text
    assert "OLLAMA_KV_CACHE_TYPE" not in mixed.notes[0]
    assert any("q8_0/q4_0 cannot be set" in note for note in mixed.notes)
    assert modelfile(_final(_with((), model='"quoted"'))) is None


def test_a_preset_is_read_back_as_the_plan_that_ends_where_the_verdict_does(tmp_path: Path) -> None:
    plan = load_preset("coding-agent")
    state = sample.state()
    state = replace(
        state, started=replace(state.started, plan=to_builtins(replace(plan, title='a "b" \\ c')))
    )
    found = preset(derive(state), _final(state))
    assert isinstance(found, Paste)
    path = tmp_path / "mine.toml"
    path.write_text(found.text)
    again = load_preset(str(path))
    assert again == replace(
        plan,
        name="mine",
        title='a "b" \\ c',
        target_context=49152,
        stages=(32768, 49152),
        n_ubatch=256,
    )


def test_nothing_to_paste_where_nothing_was_proven() -> None:
    assert pastes(derive(sample.unfinished())) == ()
    assert [p.title for p in pastes(derive(sample.state()))] == [
        "systemd override",
        "Docker Compose",
        "Ollama Modelfile",
    ]
