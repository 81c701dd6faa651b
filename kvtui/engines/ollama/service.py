"""The lines that set a configuration in a daemon which is not ours: systemd, launchd, Windows, Compose, a Modelfile.

Sources: systemd.exec(5) for Environment= and UnsetEnvironment=, Ollama's FAQ for the places of its variables, its
Modelfile reference for PARAMETER.
"""

from __future__ import annotations

import re

from kvtui.core.config import RunConfig
from kvtui.core.shell import quote
from kvtui.engines.base import Recipe
from kvtui.engines.ollama.settings import load_options, num_ctx, tuning_variables

_MAY_STAND = ("OLLAMA_FLASH_ATTENTION",)
"""Variables that are taken out where a configuration leaves them to the engine: they may stand from before."""


def recipes(config: RunConfig) -> tuple[Recipe, ...]:
    """How a daemon gets what only it can set, restart included, and how every client gets the rest.

    Of which version it is nobody knows here: a quantized type gets the flash attention that older ones want for it.
    """
    pairs = tuning_variables(config, probes=config.type_k in ("f16", "bf16", "f32"))
    unset = tuple(name for name in _MAY_STAND if name not in dict(pairs))
    return (
        _systemd(pairs, unset),
        _launchctl(pairs, unset),
        _setx(pairs, unset),
        _compose(pairs),
        _modelfile(config),
    )


Pairs = tuple[tuple[str, str], ...]


def _systemd(pairs: Pairs, unset: tuple[str, ...]) -> Recipe:
    return Recipe(
        "Ollama's service (systemd)",
        "a shell; the last line proves from the new log that the settings took, once a model is loaded",
        "sh",
        (
            "sudo mkdir -p /etc/systemd/system/ollama.service.d",
            "sudo tee /etc/systemd/system/ollama.service.d/kvtui.conf <<'END'",
            "[Service]",
            *(f'Environment="{name}={_unit(value)}"' for name, value in pairs),
            *(f"UnsetEnvironment={name}" for name in unset),
            "END",
            "sudo systemctl daemon-reload",
            "sudo systemctl restart ollama",
            "journalctl -u ollama --since -5min --no-pager | kvtui log -",
        ),
    )


def _launchctl(pairs: Pairs, unset: tuple[str, ...]) -> Recipe:
    return Recipe(
        "Ollama's app on macOS (launchctl)",
        "a shell",
        "sh",
        (
            *(f"launchctl setenv {name} {quote(value)}" for name, value in pairs),
            *(f"launchctl unsetenv {name}" for name in unset),
            "osascript -e 'quit app \"Ollama\"'",
            "open -a Ollama",
            "kvtui log ~/.ollama/logs/server.log",
        ),
        ("launchctl forgets them at the next start of the machine",),
    )


def _setx(pairs: Pairs, unset: tuple[str, ...]) -> Recipe:
    return Recipe(
        "Ollama on Windows (setx)",
        "a command prompt; then quit Ollama from the tray and start it again",
        "bat",
        (
            *(f'setx {name} "{value}"' for name, value in pairs),
            *(f"reg delete HKCU\\Environment /v {name} /f" for name in unset),
        ),
    )


def _compose(pairs: Pairs) -> Recipe:
    return Recipe(
        "Ollama in Docker Compose",
        "your compose.yaml, then docker compose up -d --force-recreate ollama",
        "yaml",
        (
            "services:",
            "  ollama:",
            "    environment:",
            *(f'      {name}: "{value.replace("$", "$$")}"' for name, value in pairs),
        ),
    )


def _modelfile(config: RunConfig) -> Recipe:
    name = config.model.split("/")[-1].partition(":")[0]
    notes = []
    if config.n_parallel > 1:
        notes.append(
            f"num_ctx is what one request gets: {num_ctx(config):,} for each of {config.n_parallel} slots"
        )
    return Recipe(
        "Ollama Modelfile",
        f"a file called Modelfile, then ollama create {quote(re.sub('[^A-Za-z0-9._-]', '-', name))}-tuned -f Modelfile",
        "text",
        (
            f"FROM {config.model}",
            *(f"PARAMETER {option} {value}" for option, value in load_options(config).items()),
        ),
        tuple(notes),
    )


def _unit(value: str) -> str:
    """`value` inside the double quotes of a unit file, where % begins a specifier."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
