"""What the advisor knows, as data. The order of `CHANGES` is the order in which they are tried."""

from __future__ import annotations

from kvtui.procedure.rules.limits import MEASURE_FIRST, REPEAT, STOP, VOID, WILL_NOT_HELP
from kvtui.procedure.rules.offload import OFFLOAD
from kvtui.procedure.rules.rule import Case, Rule
from kvtui.procedure.rules.transient import TRANSIENT
from kvtui.procedure.rules.types import TYPES

CHANGES: tuple[Rule, ...] = (*TRANSIENT, *TYPES)
RULES: tuple[Rule, ...] = (*REPEAT, *CHANGES, *OFFLOAD, *WILL_NOT_HELP, *MEASURE_FIRST, *STOP, *VOID)
BY_ID: dict[str, Rule] = {rule.id: rule for rule in RULES}


def will_not_help(case: Case) -> tuple[str, ...]:
    """What not to try in this case, with the reason and the figures."""
    return tuple(rule.text(case) for rule in WILL_NOT_HELP if rule.holds(case))


def first(rules: tuple[Rule, ...], case: Case) -> Rule | None:
    """The first of `rules` that holds."""
    return next((rule for rule in rules if rule.holds(case)), None)
