"""The procedure at work: ask for the next action, have it decided, do it, record it, until there is a verdict."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from threading import Event as Flag

from kvtui.engines.base import Engine
from kvtui.procedure.choice import chosen
from kvtui.procedure.execute import Execution
from kvtui.procedure.live import Decider, Observer
from kvtui.procedure.next_action import next_action
from kvtui.procedure.oracle import ModelOracle
from kvtui.procedure.situation import Action, Close, Finish, Launch, Offer, Situation, Skip
from kvtui.session import events as ev
from kvtui.session.records import Recommendation, Verdict
from kvtui.session.state import SessionState
from kvtui.session.store import SessionStore, now


class Tuning:
    """One session being worked on. `run` is called once, from a thread that lives as long as the work. `choose` says
    what comes next."""

    def __init__(
        self,
        store: SessionStore,
        engine: Engine,
        oracle: ModelOracle,
        choose: Callable[[Situation], Action] = next_action,
    ) -> None:
        self.store = store
        self.engine = engine
        self.oracle = oracle
        self.choose = choose

    def run(self, observer: Observer, decider: Decider, cancel: Flag) -> SessionState:
        """Go on from what is recorded to the verdict. The engine is ended before this returns or raises.

        Raises Cancelled when `cancel` is set, SessionError when nothing can be recorded any more. The store is
        closed either way.
        """
        earlier = sum(r.wall_s for r in self.store.state.runs)
        began, cpu = time.monotonic() - earlier, time.process_time()
        with self.store:
            while self.store.state.verdict is None:
                self._step(observer, decider, cancel, began, cpu)
            return self.store.state

    def _step(self, observer: Observer, decider: Decider, cancel: Flag, began: float, cpu: float) -> None:
        def tell(event: ev.Event) -> None:
            observer.event(event, self.store.append(event))

        sit = Situation.of(self.store.state, self.oracle, self.engine)
        action = self.choose(sit)
        step = self.store.state.current_step
        if step is not None and not step.started and not isinstance(action, Finish):
            tell(ev.StepStarted(now(), step.number))
        match action:
            case Finish(verdict):
                wall, own = time.monotonic() - began, time.process_time() - cpu
                tell(ev.Recommended(now(), 5, _last_run(self.store.state), stop_here(verdict)))
                tell(
                    ev.SessionFinished(
                        now(), verdict, wall_s=wall, own_cpu_s=own, notes=_notes(self.store.state)
                    )
                )
            case Close(number, outcome, summary, advice):
                if advice is not None:
                    tell(ev.Recommended(now(), number, _last_run(self.store.state), advice))
                tell(ev.StepFinished(now(), number, outcome, summary))
            case Skip(context, reason, offer):
                if offer is None or not self._launch(sit, offer, observer, decider, cancel, tell):
                    tell(ev.StageSkipped(now(), context, reason))
            case Offer(launch):
                self._launch(sit, launch, observer, decider, cancel, tell)
            case Launch():
                self._launch(sit, action, observer, decider, cancel, tell)

    def _launch(
        self,
        sit: Situation,
        launch: Launch,
        observer: Observer,
        decider: Decider,
        cancel: Flag,
        tell: Callable[[ev.Event], None],
    ) -> bool:
        """Have the launch decided and do it; True when something else than leaving it out was decided."""
        last = _last_run(self.store.state)
        tell(ev.Recommended(now(), launch.step, last, launch.advice))
        decision = replace(decider.decide(launch.advice, self.store.state), at=now(), subject=launch.subject)
        run = chosen(sit, launch, decision)
        tell(decision)
        if run is None:
            return decision.choice == "stop"
        if self.store.state.steps[run.step - 1].outcome is not None:
            tell(ev.StepStarted(now(), run.step))
        Execution(
            sit=replace(sit, state=self.store.state),
            store=self.store,
            engine=self.engine,
            observer=observer,
            cancel=cancel,
            launch=run,
            number=(last or 0) + 1,
        ).execute()
        return True


def stop_here(verdict: Verdict) -> Recommendation:
    """The last recommendation of a session: nothing more to launch."""
    return Recommendation(
        kind="stop", title=verdict.title, why=verdict.why, command=verdict.command, config=verdict.config
    )


def _last_run(state: SessionState) -> int | None:
    return state.runs[-1].number if state.runs else None


def _notes(state: SessionState) -> tuple[str, ...]:
    if not state.resumed:
        return ()
    return ("resumed: the time is that of all runs and of the last process, the pauses between left out",)
