"""Where a session stands: the recorded state, the plan and the model, with the questions that all steps ask."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvtui.core.config import RunConfig
from kvtui.core.shell import command_line
from kvtui.core.units import signed_size
from kvtui.engines.base import Engine
from kvtui.model.cache_types import UPSTREAM
from kvtui.procedure.forecast import transient_bytes
from kvtui.procedure.oracle import ModelOracle
from kvtui.procedure.preset import Preset
from kvtui.procedure.stability import Stability, stability
from kvtui.procedure.steps import Purpose
from kvtui.procedure.variables import BY_NAME, VARIABLES, Variable, changed
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
    """Leave a context stage out, and say why. `offer` is the launch for an operator who insists; None: not asked."""

    context: int
    reason: str
    offer: Launch | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """Something that is named and not advised: `launch` is run only when the operator insists. Its advice says so."""

    launch: Launch

    @classmethod
    def of(cls, launch: Launch, title: str) -> Offer:
        """`launch` as something that is left out unless the operator insists."""
        return cls(replace(launch, advice=replace(launch.advice, kind="skip", title=title)))


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


Action = Launch | Skip | Offer | Close | Finish


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything the next step depends on. Pure: the same situation always gives the same next action."""

    state: SessionState
    plan: Preset
    oracle: ModelOracle
    engine: Engine

    @classmethod
    def of(cls, state: SessionState, oracle: ModelOracle, engine: Engine) -> Situation:
        """The situation of a session; the plan is the one recorded when it began."""
        plan: Preset = from_builtins(state.started.plan, Preset)
        return cls(state, plan, oracle, engine)

    @property
    def on_gpu(self) -> bool:
        """True when a GPU's memory is measured, False when host memory stands in."""
        return self.state.started.device.kind != "host"

    @property
    def full_precision(self) -> tuple[str, str]:
        """The engine's names of unquantized K and V."""
        return self.engine.traits.kv_ladder[0]

    def base(self, **wanted: object) -> RunConfig:
        """The session's base configuration with `wanted` fields, after the operator's own changes that held.

        An operator's change does not override a field that the step itself decides, and no step decides a field that
        means nothing to the engine.
        """
        names = self.engine.traits.variables
        foreign = {f for v in VARIABLES if names and v.name not in names for f in v.fields}
        wanted = {f: value for f, value in wanted.items() if f not in foreign}
        config = self.state.started.base
        for run in self.state.runs:
            variable = BY_NAME.get(self._kept_variable(run)) if run.counts else None
            if variable is not None:
                config = replace(config, **{f: getattr(run.config, f) for f in variable.fields})
        return self.engine.traits.tied(replace(config, **wanted))  # type: ignore[arg-type]

    def _kept_variable(self, run: RunRecord) -> str:
        """The variable that stays as `run` had it: the operator's own, or what made the floor fit; else empty."""
        if run.purpose == "floor" and run.change is not None:
            return run.change.variable
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

    def declined(self, subject: str) -> bool:
        """True when `subject` was offered and left alone."""
        answers = [d.choice for d in self.state.decided if d.subject == subject]
        return bool(answers) and answers[-1] in ("accept", "skip")

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

    def memory_effect(self, config: RunConfig, reference: RunRecord | None) -> tuple[tuple[str, int], ...]:
        """Change of the engine's memory in bytes against `reference`, part by part; parts that stay or cannot be told
        are left out, except KV, whose change is said even where it is nothing."""
        if reference is None:
            return ()
        before, after = self.oracle.context(reference.config).kv_bytes, self.oracle.context(config).kv_bytes
        kv = None if before is None or after is None else after - before
        weights = sum(
            sign * self.oracle.weights_bytes(c, on_gpu=self.on_gpu)
            for sign, c in ((1, config), (-1, reference.config))
        )
        compute = compute_effect(self.state, config, reference)
        parts = (("KV", kv), ("weights", weights or None), ("compute buffer about", compute))
        return tuple((what, n_bytes) for what, n_bytes in parts if n_bytes is not None)

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
        speed: str = "",
        not_this: tuple[str, ...] = (),
        against: RunRecord | None = None,
        rule: str = "",
        source: str = "",
    ) -> Launch:
        """A launch with its recommendation and the one variable it changes against `against` (default: the last
        good run). `variable` names it where the configurations differ in more than they do in fact."""
        config = self.engine.traits.tied(config)
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
        parts = self.memory_effect(config, reference)
        told = [f"{what} {signed_size(n_bytes)}" for what, n_bytes in parts]
        advice = Recommendation(
            kind="run",
            title=title,
            why=why,
            variable=moving.label if moving and change else "",
            option=moving.option if moving and change else "",
            before=change.before if change else "",
            after=change.after if change else "",
            effect="; ".join(t for t in (", ".join(told), speed) if t),
            effect_bytes=sum(n for _, n in parts) if parts else None,
            risk=risk,
            command=self.command(config),
            config=config,
            not_this=not_this,
            rule=rule,
            source=source,
            variables=self.engine.traits.variables,
            kv_pairs=self.kv_pairs(),
        )
        about = variable or (change.variable if change else "")
        return Launch(step, purpose, subject, config, probes, advice, change, about)

    def kv_pairs(self) -> tuple[str, ...]:
        """Pairs of KV types worth offering: the ladder, then what this build has beyond it (a fork's own types)."""
        ladder = tuple("/".join(pair) for pair in self.engine.traits.kv_ladder)
        own = (t for t in self.engine.abilities().cache_types if t not in UPSTREAM)
        return tuple(dict.fromkeys((*ladder, *(f"{t}/{t}" for t in own))))

    def _moving(
        self, reference: RunRecord | None, config: RunConfig, variable: str | None
    ) -> Variable | None:
        if reference is None:
            return None
        moving = changed(reference.config, config)
        if variable is not None:
            return next((v for v in moving if v.name == variable), None)
        return moving[0] if moving else None


def compute_effect(state: SessionState, config: RunConfig, reference: RunRecord) -> int | None:
    """Change of the transient memory in bytes where the micro-batch moves: in proportion to it, from what `reference`
    proves. None where it stays or nothing is proven."""
    if config.n_ubatch == reference.config.n_ubatch:
        return None
    proven = transient_bytes(state, reference)
    return round(proven * (config.n_ubatch / reference.config.n_ubatch - 1)) if proven else None
