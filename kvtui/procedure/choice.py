"""The operator's own way instead of the advice: another value or variable, the same again, or to insist."""

from __future__ import annotations

from dataclasses import replace

from kvtui.core.errors import InputError
from kvtui.procedure.proposals import repeat
from kvtui.procedure.situation import Launch, Situation
from kvtui.procedure.variables import BY_NAME
from kvtui.session.events import Decided
from kvtui.session.records import Change
from kvtui.session.state import RunRecord


def chosen(sit: Situation, launch: Launch, decision: Decided) -> Launch | None:
    """What is launched after `decision` on the advice of `launch`, None for nothing.

    To accept advice of kind `skip` launches nothing; to insist on it does. Raises InputError for a variable or value
    that is not allowed, and for a retry where nothing was run.
    """
    match decision.choice:
        case "accept":
            return launch if launch.advice.kind == "run" else None
        case "insist":
            return launch
        case "change":
            return changed_launch(sit, launch, decision.variable, decision.value)
        case "retry":
            return again(sit)
        case _:
            return None


def changed_launch(sit: Situation, launch: Launch, variable: str, value: str) -> Launch:
    """`launch` with one variable of the operator's own against the last good run.

    When it is the advised variable, or nothing was run yet, the run takes the advised one's place; another variable
    makes a run of its own, after which the procedure goes on with its own next step. Raises InputError for a
    value that is not allowed.
    """
    of_variable = BY_NAME.get(variable)
    names = sit.engine.traits.variables
    if of_variable is None or (names and variable not in names):
        raise InputError(f"{variable} is not a variable that can be changed")
    reference = sit.last_good
    same = reference is None or (launch.variable == variable)
    start = reference.config if reference is not None and not same else launch.config
    config = sit.engine.traits.tied(of_variable.change(start, value))
    change = None
    if reference is not None:
        change = Change(
            variable,
            of_variable.option,
            of_variable.value(reference.config),
            of_variable.value(config),
            reference.number,
        )
    if same:
        return replace(launch, config=config, change=change)
    subject = f"operator:{variable}={of_variable.value(config)}@{config.n_ctx}"
    return replace(launch, config=config, change=change, purpose="operator", subject=subject)


def last_ended(sit: Situation) -> RunRecord | None:
    """The run that a retry repeats."""
    ended = [r for r in sit.state.runs if r.outcome is not None and not r.interrupted]
    return ended[-1] if ended else None


def again(sit: Situation) -> Launch:
    """The last run once more, as it was asked, with the probes it had. Raises InputError when nothing was run."""
    run = last_ended(sit)
    if run is None:
        raise InputError("nothing was run yet that could be repeated")
    return repeat(sit, run)
