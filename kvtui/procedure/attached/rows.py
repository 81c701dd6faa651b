"""One row of requested against actual for an engine that was attached to, and those of settings with own names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kvtui.engines.attach.asked import Setting
from kvtui.engines.attach.look import Seen
from kvtui.engines.attach.own_settings import OwnSetting
from kvtui.logs.facts import EngineFacts

State = Literal["proven", "differs", "unproven", "inferred"]

NOT_ASKED = "-"


@dataclass(frozen=True, slots=True)
class Row:
    """One setting. `asked` is `-` where nothing was asked for (`asked_from` is empty then); `line` counts in the log
    file where `evidence` is the log, None where an endpoint or nothing proves it."""

    setting: str
    asked: str
    asked_from: str
    actual: str
    state: State
    evidence: str
    line: int | None
    note: str = ""


def own_rows(seen: Seen, facts: EngineFacts, settings: Sequence[OwnSetting]) -> list[Row]:
    """Those of an engine whose log speaks of its settings under its own names."""
    rows = []
    for own in settings:
        given = seen.asked.settings.get(own.asked)
        in_log = facts.requested.get(own.asked)
        if given is None and in_log:  # its dump of the environment prints unset as 0 or false
            given = Setting(in_log, "its log")
        if given is not None and given.value in own.automatic:
            given = None
        actual, evidence, line = _own_actual(seen, facts, own)
        if given is None and actual is None:
            continue
        state: State = "unproven"
        if actual is not None:
            state = "proven" if given is None or _same(given.value, actual) else "differs"
        rows.append(
            Row(
                setting=own.label,
                asked=NOT_ASKED if given is None else _word(given.value),
                asked_from="" if given is None else given.source,
                actual="-" if actual is None else _word(actual),
                state=state,
                evidence=evidence,
                line=line,
            )
        )
    return rows


def _own_actual(seen: Seen, facts: EngineFacts, own: OwnSetting) -> tuple[Any, str, int | None]:
    name = own.proven
    value = (facts.actual or {}).get(name)
    if value is not None:
        return value, "log", facts.lines.get(f"actual.{name}") or _line_of(facts, name)
    found = seen.http.proven.get(own.told or name)
    if found is not None and found.value != "auto":  # the model decides, and this does not say what
        return found.value, found.source, None
    models = seen.http.proven.get("models")
    if name == "n_ctx_request" and models is not None and models.value:
        return models.value[0]["context_length"], "/api/ps", None
    return None, "", None


def _line_of(facts: EngineFacts, name: str) -> int | None:
    """The line of the llama.cpp runner below that proves a setting which its daemon names."""
    main, slots = facts.main, facts.slots
    if name == "num_parallel":
        return None if slots is None else slots.line
    if name == "kv_type":
        return next((c.line for c in main.caches if c.type_k), None) if main is not None else None
    return None if main is None else main.lines.get(name)


def _same(asked: Any, actual: Any) -> bool:
    if isinstance(asked, bool) or isinstance(actual, bool):
        return bool(asked) == bool(actual)
    return str(asked) == str(actual) or str(actual).startswith(f"{asked}_")  # fp8 is fp8_e4m3


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value}"
