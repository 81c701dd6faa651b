"""The operator's own value instead of the advice."""

from __future__ import annotations

from dataclasses import replace

from kvtui.core.errors import InputError
from kvtui.procedure.situation import Launch, Situation
from kvtui.procedure.variables import BY_NAME
from kvtui.session.records import Change


def changed_launch(sit: Situation, launch: Launch, variable: str, value: str) -> Launch:
    """`launch` with one variable of the operator's own against the last good run.

    When it is the advised variable, or nothing was run yet, the run takes the advised one's place; another variable
    makes a run of its own, after which the procedure goes on with its own next step. Raises InputError for a
    value that is not allowed.
    """
    chosen = BY_NAME.get(variable)
    if chosen is None:
        raise InputError(f"{variable} is not a variable that can be changed")
    reference = sit.last_good
    same = reference is None or (launch.variable == variable)
    start = reference.config if reference is not None and not same else launch.config
    config = chosen.change(start, value)
    change = None
    if reference is not None:
        change = Change(
            variable, chosen.option, chosen.value(reference.config), chosen.value(config), reference.number
        )
    if same:
        return replace(launch, config=config, change=change)
    subject = f"operator:{variable}={chosen.value(config)}@{config.n_ctx}"
    return replace(launch, config=config, change=change, purpose="operator", subject=subject)
