"""The planner played on a simulated card.

No engine is imitated here. The planner is a pure function of recorded events, and this plays the events that a
real run would have recorded, so that cards of any size can be tried in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from kvtui.core.config import RunConfig
from kvtui.core.units import GIB
from kvtui.engines.base import Abilities, Command, Traits
from kvtui.gpu.samples import DeviceInfo
from kvtui.procedure.choice import chosen
from kvtui.procedure.judge import judge
from kvtui.procedure.next_action import next_action
from kvtui.procedure.preset import Preset, load_preset
from kvtui.procedure.situation import Close, Finish, Launch, Offer, Situation, Skip
from kvtui.session import events as ev
from kvtui.session.codec import decode, encode, to_builtins
from kvtui.session.records import EngineInfo, HostInfo, ModelInfo, Recommendation
from kvtui.session.state import RunRecord, SessionState, apply
from tests.procedure.outcome import AT, LLAMA_TRAITS, Card, header_of
from tests.procedure.reserving import SHARE, oracle_of, outcome_of


@dataclass(frozen=True)
class NoEngine:
    """What the planner needs of an engine: what it can be asked for, and how a command line is written."""

    traits: Traits = LLAMA_TRAITS
    label: str = "llama-server b11434"

    def abilities(self) -> Abilities:
        return Abilities(frozenset())

    def command(self, config: RunConfig, port: int) -> Command:
        return Command(("llama-server", "-m", config.model, "-c", str(config.n_ctx), "-ctk", config.type_k,
                        "-ctv", config.type_v, "-ub", str(config.n_ubatch), "-np", str(config.n_parallel),
                        "-fa", config.flash_attn, "--port", str(port)))  # fmt: skip


@dataclass
class Play:
    """One session played on a card. `launches` are the runs in order, `advice` all recommendations."""

    card: Card
    plan: Preset = field(default_factory=lambda: load_preset("coding-agent"))
    choose: Callable[[Recommendation, SessionState], ev.Decided] | None = None
    launches: list[Launch] = field(default_factory=list)
    advice: list[Recommendation] = field(default_factory=list)

    def run(self) -> SessionState:
        oracle = oracle_of(self.card)
        state = SessionState(self._start(oracle))
        for _ in range(400):
            if state.verdict is not None:
                return state
            state = self._step(state, oracle)
        raise AssertionError("the procedure does not come to an end")

    def _start(self, oracle: Any) -> ev.SessionStarted:
        card, header = self.card, header_of(self.card)
        device = DeviceInfo("nvml" if card.gpu else "host", 0, "Simulated card", round(card.total * GIB))
        asked = RunConfig(header.path, self.plan.floor_context, n_batch=self.plan.n_batch, n_ubatch=self.plan.n_ubatch,
                          n_gpu_layers=999 if card.gpu else 0)  # fmt: skip
        share = SHARE if card.traits.reserves_share else None
        base = card.traits.tied(replace(asked, gpu_memory_utilization=share))
        return ev.SessionStarted(
            at=AT, session="simulated", kvtui="0", plan=to_builtins(self.plan), base=base,
            model=ModelInfo(header.path, "model.gguf", header.name, header.arch, header.quant or "", header.file_bytes,
                            header.tensor_bytes, header.header_sha256, header.n_ctx_train, header.n_layer,
                            "exact", True),
            engine=EngineInfo("llama-server b11434", ("llama-server",), "b11434", "11434", None),
            host=HostInfo("Linux", "cpu", 8, 32 * GIB, "3.11"), device=device,
        )  # fmt: skip

    def _step(self, state: SessionState, oracle: Any) -> SessionState:
        sit = Situation.of(state, oracle, NoEngine(self.card.traits))  # type: ignore[arg-type]
        action = next_action(sit)
        step = state.current_step
        if step is not None and not step.started and not isinstance(action, Finish):
            state = self._tell(state, ev.StepStarted(AT, step.number))
        match action:
            case Finish(verdict):
                return self._tell(state, ev.SessionFinished(AT, verdict))
            case Close(number, outcome, summary, advice):
                if advice is not None:
                    self.advice.append(advice)
                return self._tell(state, ev.StepFinished(AT, number, outcome, summary))
            case Skip(context, reason, offer):
                before = len(self.launches)
                if offer is not None:
                    state = self._launch(state, sit, offer)
                if len(self.launches) > before:
                    return state
                return self._tell(state, ev.StageSkipped(AT, context, reason))
            case Offer(launch):
                return self._launch(state, sit, launch)
            case Launch():
                return self._launch(state, sit, action)

    def _tell(self, state: SessionState, event: ev.Event) -> SessionState:
        again = decode(encode(event))
        assert again == event, "every event must survive its own encoding"
        return apply(event, state)

    def _launch(self, state: SessionState, sit: Situation, launch: Launch) -> SessionState:
        state = self._tell(state, ev.Recommended(AT, launch.step, None, launch.advice))
        decision = ev.Decided(AT, launch.step, "accept", "unattended")
        if self.choose is not None:
            decision = self.choose(launch.advice, state)
        decision = replace(decision, subject=launch.subject)
        run = chosen(sit, launch, decision)
        state = self._tell(state, decision)
        if run is None:
            return state
        if state.steps[run.step - 1].outcome is not None:
            state = self._tell(state, ev.StepStarted(AT, run.step))
        self.launches.append(run)
        return self._play(state, sit, run)

    def _play(self, state: SessionState, sit: Situation, launch: Launch) -> SessionState:
        number = len(state.runs) + 1
        state = self._tell(state, ev.RunStarted(
            AT, number, launch.step, launch.purpose, launch.config, ("llama-server",), change=launch.change,
            forecast=sit.oracle.forecast(state, launch.config), subject=launch.subject))  # fmt: skip
        again = any(r.subject == launch.subject for r in state.runs[:-1])
        outcome = outcome_of(self.card, sit.oracle, launch.config, earlier=number - 1, again=again)
        for event in outcome.results(number, launch.probes):
            state = self._tell(state, event)
        run = state.run(number)
        assert run is not None
        run = replace(run, facts=outcome.facts, memory=outcome.memory)
        verdict = judge(state, run, outcome.error)
        return self._tell(state, ev.RunFinished(
            AT, number, verdict.outcome, verdict.reason, outcome.facts, verdict.failure, memory=outcome.memory,
            findings=verdict.findings))  # fmt: skip


def play(card: Card, **plan: Any) -> tuple[SessionState, list[Launch]]:
    """The whole procedure on `card`, every recommendation accepted, the preset changed by `plan`."""
    game = Play(card, replace(load_preset(plan.pop("preset", "coding-agent")), **plan))
    return game.run(), game.launches


def runs_of_step(state: SessionState, step: int) -> list[RunRecord]:
    """The runs of one step."""
    return [r for r in state.runs if r.step == step]
