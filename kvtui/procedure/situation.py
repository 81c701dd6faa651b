"""Where a session stands: the recorded state, the plan and the model, with the questions that all steps ask."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvtui.core.config import RunConfig
from kvtui.core.shell import command_line
from kvtui.core.units import MIB, signed_size
from kvtui.engines.base import Engine
from kvtui.procedure.oracle import Oracle
from kvtui.procedure.preset import Preset
from kvtui.procedure.stability import Stability, stability
from kvtui.procedure.steps import Purpose
from kvtui.procedure.variables import BY_NAME, Variable, changed
from kvtui.session.codec import from_builtins
from kvtui.session.records import Change, Recommendation, StepOutcome, Verdict
from kvtui.session.state import RunRecord, SessionState

SHOWN_PORT = 8080


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """What to ask of the engine in one run. Depths are tokens; `deep` is one depth for speed and recall together,
    `tasks` the depths of the task suite, `concurrency` the number of simultaneous requests (0: none), `stability` how
    often the nearly full context is filled."""

    speed: int | None = None
    deep: int | None = None
    tasks: tuple[int, ...] = ()
    concurrency: int = 0
    stability: int = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """Run `config` next. `subject` names the thing being tried, so that a skip or a repeat finds it again; `variable`
    is what the run is about, also where its value happens to be the last run's already."""

    step: int
    purpose: Purpose
    subject: str
    config: RunConfig
    probes: ProbePlan
    advice: Recommendation
    change: Change | None = None
    variable: str = ""


@dataclass(frozen=True, slots=True)
class Skip:
    """Leave a context stage out, and say why."""

    context: int
    reason: str


@dataclass(frozen=True, slots=True)
class Close:
    """A step's gate is decided. `advice` says what would not help, where something else is to be expected."""

    step: int
    outcome: StepOutcome
    summary: str
    advice: Recommendation | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """The procedure is over."""

    verdict: Verdict


Action = Launch | Skip | Close | Finish


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything the next step depends on. Pure: the same situation always gives the same next action."""

    state: SessionState
    plan: Preset
    oracle: Oracle
    engine: Engine

    @classmethod
    def of(cls, state: SessionState, oracle: Oracle, engine: Engine) -> Situation:
        """The situation of a session; the plan is the one recorded when it began."""
        plan: Preset = from_builtins(state.started.plan, Preset)
        return cls(state, plan, oracle, engine)

    @property
    def on_gpu(self) -> bool:
        """True when a GPU's memory is measured, False when host memory stands in."""
        return self.state.started.device.kind != "host"

    def base(self, **wanted: object) -> RunConfig:
        """The session's base configuration with `wanted` fields, after the operator's own changes that held.

        An operator's change does not override a field that the step itself decides.
        """
        config = self.state.started.base
        for run in self.state.runs:
            variable = BY_NAME.get(self._operators_variable(run)) if run.counts else None
            if variable is not None:
                config = replace(config, **{f: getattr(run.config, f) for f in variable.fields})
        return replace(config, **wanted)  # type: ignore[arg-type]

    def _operators_variable(self, run: RunRecord) -> str:
        """The variable that the operator set in `run`, empty when it ran as advised."""
        if run.purpose == "operator" and run.change is not None:
            return run.change.variable
        for decision in reversed(self.state.decided):
            if decision.subject == run.subject:
                return decision.variable if decision.choice == "change" else ""
        return ""

    def runs(self, purpose: Purpose) -> tuple[RunRecord, ...]:
        """Ended runs of one purpose, oldest first."""
        return tuple(
            r for r in self.state.runs if r.purpose == purpose and r.outcome in ("ok", "failed", "void")
        )

    def tried(self, subject: str) -> RunRecord | None:
        """The latest ended run of `subject`."""
        done = [r for r in self.state.runs if r.subject == subject and r.outcome in ("ok", "failed", "void")]
        return done[-1] if done else None

    def skipped(self, subject: str) -> str | None:
        """The operator's reason for skipping `subject`, None when it was not skipped."""
        for decision in self.state.decided:
            if decision.choice == "skip" and decision.subject == subject:
                return decision.reason or "no reason given"
        return None

    @property
    def last_good(self) -> RunRecord | None:
        """The latest run that counts: the one the next is compared with."""
        good = [r for r in self.state.runs if r.counts]
        return good[-1] if good else None

    def stable(self, run: RunRecord) -> Stability:
        """Whether `run` holds."""
        return stability(self.state, self.plan, run)

    def command(self, config: RunConfig) -> str:
        """The exact command line of `config`, quoted for a shell; the port is the server's usual one."""
        command = self.engine.command(config, SHOWN_PORT)
        return command_line(command.argv, command.env)

    def kv_effect(self, config: RunConfig, reference: RunRecord | None) -> int | None:
        """Change in KV bytes against `reference`, from the model file; None where it cannot be told."""
        if reference is None:
            return None
        before, after = self.oracle.context(reference.config).kv_bytes, self.oracle.context(config).kv_bytes
        return None if before is None or after is None else after - before

    def launch(
        self,
        step: int,
        purpose: Purpose,
        subject: str,
        config: RunConfig,
        probes: ProbePlan,
        *,
        title: str,
        why: str,
        variable: str | None = None,
        risk: str = "none",
        not_this: tuple[str, ...] = (),
        against: RunRecord | None = None,
    ) -> Launch:
        """A launch with its recommendation and the one variable it changes against `against` (default: the last
        good run). `variable` names it where the configurations differ in more than they do in fact."""
        reference = against or self.last_good
        change = None
        moving = self._moving(reference, config, variable)
        if reference is not None and moving is not None:
            change = Change(
                variable=moving.name,
                option=moving.option,
                before=moving.value(reference.config),
                after=moving.value(config),
                against_run=reference.number,
            )
        effect, compute = self.kv_effect(config, reference), compute_effect(config, reference)
        told = [f"KV {signed_size(effect)}"] if effect is not None else []
        if compute is not None:
            told.append(f"compute buffer about {signed_size(compute)}")
        advice = Recommendation(
            kind="run",
            title=title,
            why=why,
            variable=moving.label if moving and change else "",
            option=moving.option if moving and change else "",
            before=change.before if change else "",
            after=change.after if change else "",
            effect=", ".join(told),
            effect_bytes=None if effect is None else effect + (compute or 0),
            risk=risk,
            command=self.command(config),
            config=config,
            not_this=not_this,
        )
        about = variable or (change.variable if change else "")
        return Launch(step, purpose, subject, config, probes, advice, change, about)

    def _moving(
        self, reference: RunRecord | None, config: RunConfig, variable: str | None
    ) -> Variable | None:
        if reference is None:
            return None
        moving = changed(reference.config, config)
        if variable is not None:
            return next((v for v in moving if v.name == variable), None)
        return moving[0] if moving else None


def compute_effect(config: RunConfig, reference: RunRecord | None) -> int | None:
    """Change of the compute buffers in bytes where the micro-batch moves: in proportion to it, from those that the
    log of `reference` proves. None where it stays or nothing is proven."""
    if reference is None or config.n_ubatch == reference.config.n_ubatch or reference.facts.main is None:
        return None
    proven = sum(b.mib for b in reference.facts.main.compute_buffers)
    return round(proven * (config.n_ubatch / reference.config.n_ubatch - 1) * MIB) if proven else None
