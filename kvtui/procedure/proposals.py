"""What each step proposes next, and a run that was made as it was proposed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

from kvtui.procedure.situation import Action, Launch, Offer, ProbePlan, Situation, Skip
from kvtui.procedure.steps import Purpose, baseline, floor, quantized, stages, transients
from kvtui.procedure.steps.baseline import deepest_prompt
from kvtui.session.state import RunRecord

_STEPS: dict[int, Callable[[Situation], Action]] = {
    1: floor.next_action,
    2: baseline.next_action,
    3: quantized.next_action,
    4: stages.next_action,
    5: transients.next_action,
}


def propose(sit: Situation, step: int) -> Action:
    """The next action of one step."""
    return _STEPS[step](sit)


def repeat(sit: Situation, run: RunRecord) -> Launch:
    """`run` as a launch: what the procedure proposed before it, with the run's own configuration."""
    before = tuple(r for r in sit.state.runs if r.number < run.number)
    steps = tuple(replace(s, outcome=None) if s.number >= run.step else s for s in sit.state.steps)
    then = propose(replace(sit, state=replace(sit.state, runs=before, steps=steps)), run.step)
    offered = then.offer if isinstance(then, Skip) else then.launch if isinstance(then, Offer) else then
    purpose = cast("Purpose", run.purpose)
    probes = ProbePlan(deep=deepest_prompt(sit, run.config.n_ctx // run.config.n_parallel))
    variable = run.change.variable if run.change else ""
    if isinstance(offered, Launch) and offered.subject == run.subject:
        probes, variable = offered.probes, offered.variable
    advice = replace(
        sit.launch(run.step, purpose, run.subject, run.config, probes, title="", why="").advice,
        title=f"Run {run.number} again, as it was",
        why="asked for by the operator",
        variable="",
        option="",
        before="",
        after="",
        effect="",
        effect_bytes=None,
    )
    return Launch(
        run.step,
        purpose,
        run.subject,
        run.config,
        probes,
        advice,
        run.change,
        variable,
    )
