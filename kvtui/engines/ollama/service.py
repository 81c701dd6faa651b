"""The lines that set a configuration in a daemon which is not ours: systemd, launchd, Windows, compose."""

from __future__ import annotations

from dataclasses import dataclass

from kvtui.core.config import RunConfig
from kvtui.core.shell import quote
from kvtui.engines.ollama.settings import load_options, tuning_variables


@dataclass(frozen=True, slots=True)
class Recipe:
    """`lines` to paste for one way to run the daemon, `where` says which."""

    where: str
    lines: tuple[str, ...]


def recipes(config: RunConfig) -> tuple[Recipe, ...]:
    """How the daemon gets the part of `config` that only it can set, restart included.

    A variable that `config` leaves to the engine is taken out where it may still stand from before.
    """
    pairs = tuning_variables(config)
    unset = [name for name in ("OLLAMA_FLASH_ATTENTION",) if name not in dict(pairs)]
    return (
        Recipe(
            "Linux service (systemd)",
            (
                "sudo mkdir -p /etc/systemd/system/ollama.service.d",
                "sudo tee /etc/systemd/system/ollama.service.d/kvtui.conf <<'END'",
                "[Service]",
                *(f'Environment="{name}={_unit(value)}"' for name, value in pairs),
                *(f"UnsetEnvironment={name}" for name in unset),
                "END",
                "sudo systemctl daemon-reload",
                "sudo systemctl restart ollama",
                "journalctl -u ollama -n 200 --no-pager | kvtui log -",
            ),
        ),
        Recipe(
            "macOS app (launchctl)",
            (
                *(f"launchctl setenv {name} {quote(value)}" for name, value in pairs),
                *(f"launchctl unsetenv {name}" for name in unset),
                "osascript -e 'quit app \"Ollama\"'",
                "open -a Ollama",
            ),
        ),
        Recipe(
            "Windows (setx)",
            (
                *(f'setx {name} "{value}"' for name, value in pairs),
                *(f"reg delete HKCU\\Environment /v {name} /f" for name in unset),
                "rem quit Ollama from the tray and start it again",
            ),
        ),
        Recipe(
            "docker compose",
            (
                "services:",
                "  ollama:",
                "    environment:",
                *(f'      {name}: "{value}"' for name, value in pairs),
                "# then: docker compose up -d --force-recreate ollama",
            ),
        ),
        Recipe("Modelfile (num_ctx for every client)", modelfile_lines(config)),
    )


def modelfile_lines(config: RunConfig) -> tuple[str, ...]:
    """A Modelfile with the request's part of `config`, and how a model is made of it."""
    return (
        f"FROM {config.model}",
        *(f"PARAMETER {name} {value}" for name, value in load_options(config).items()),
        f"# then: ollama create {config.model.split(':')[0].split('/')[-1]}-tuned -f Modelfile",
    )


def _unit(value: str) -> str:
    """`value` inside the double quotes of a unit file, where % begins a specifier."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
