"""One run from launch to judgement: the engine started, asked, measured and ended, all of it recorded."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from threading import Event as Flag

from kvtui.core.errors import Cancelled, InputError, KvtuiError, SessionError
from kvtui.core.findings import Finding
from kvtui.engines.base import Client, Engine, Running, StartProgress
from kvtui.gpu.host import process_started
from kvtui.gpu.sampler import Sampler
from kvtui.gpu.samples import MemoryRecord, Phase
from kvtui.gpu.source import MemorySource, reopen_source
from kvtui.logs.facts import EngineFacts
from kvtui.probes.asking import Completion
from kvtui.procedure.clocks import ClockWatch
from kvtui.procedure.findings.clocks import clock_findings
from kvtui.procedure.judge import judge
from kvtui.procedure.live import Observer
from kvtui.procedure.probing import Bench, jobs_of, probe, usable_per_slot
from kvtui.procedure.progress import ProgressMeter
from kvtui.procedure.situation import SHOWN_PORT, Launch, Situation
from kvtui.session import events as ev
from kvtui.session.store import SessionStore, now

READY_TIMEOUT_S = 1800.0
DEVICE_WAIT_S = 30.0
BASELINE_S = 0.4
IDLE_S = 0.4
WARM_UP_TOKENS = 4


class Timed:
    """An engine client that tells the sampler the phase and adds up the time spent inside the engine."""

    def __init__(self, client: Client, sampler: Sampler, cancel: Flag) -> None:
        self._client = client
        self._sampler = sampler
        self._cancel = cancel
        self.engine_s = 0.0

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids by the engine's own tokenizer."""
        return self._client.tokenize(text, add_special=add_special, parse_special=parse_special)

    def apply_template(self, messages: list[dict[str, str]]) -> str:
        """The prompt by the model's own chat template."""
        return self._client.apply_template(messages)

    def complete(
        self,
        prompt: list[int],
        n_predict: int,
        *,
        cache_prompt: bool,
        ignore_eos: bool = False,
        stop: tuple[str, ...] = (),
        n_probs: int = 0,
        on_progress: Callable[[int, int, float], None] | None = None,
        cancel: Flag | None = None,
        phases: tuple[Phase, Phase] = ("prefill", "decode"),
    ) -> Completion:
        """One request; the sampler is in the first of `phases` until the first token, then in the second."""
        first = True

        def on_token(*_: object) -> None:
            nonlocal first
            if first:
                first = False
                self._sampler.phase(phases[1])

        self._sampler.phase(phases[0])
        try:
            answer = self._client.complete(
                prompt,
                n_predict,
                cache_prompt=cache_prompt,
                ignore_eos=ignore_eos,
                stop=stop,
                n_probs=n_probs,
                on_progress=on_progress,
                on_token=on_token,
                cancel=cancel or self._cancel,
            )
        finally:
            self._sampler.finished(len(prompt))
            self._sampler.phase("idle")
        self.engine_s += answer.timing.prompt_s + answer.timing.decode_s
        return answer


@dataclass
class Execution:
    """One run in progress. `execute` may be called once."""

    sit: Situation
    store: SessionStore
    engine: Engine
    observer: Observer
    cancel: Flag
    launch: Launch
    number: int
    _engine_s: float = 0.0
    _began: float = field(default_factory=time.monotonic)

    def execute(self) -> None:
        """Run it and record its end, whatever the end is.

        Raises Cancelled after recording the run as cancelled, SessionError when nothing can be recorded, InputError
        before anything is recorded when the session's device is not there.
        """
        source = self._open_source()
        self._record_start()
        with ExitStack() as stack:
            stack.callback(source.close)
            sampler = Sampler(source, self.store.state.started.sample_hz, self.observer.sample)
            sampler.start()
            stack.callback(sampler.stop)
            clocks = stack.enter_context(ClockWatch())
            error, running = self._work(sampler)
            facts = running.facts() if running is not None else EngineFacts()
            exit_code = running.exit_code() if running is not None else None
            memory = sampler.record()
        self._record_end(error, facts, memory, exit_code, clock_findings(clocks.seen()))
        if isinstance(error, Cancelled):
            raise error

    def _open_source(self) -> MemorySource:
        """The session's memory. A driver that is just being reloaded is waited for."""
        deadline = time.monotonic() + DEVICE_WAIT_S
        while True:
            try:
                return reopen_source(self.store.state.started.device)
            except InputError:
                if time.monotonic() >= deadline:
                    raise
            self._pause(1.0)

    def _work(self, sampler: Sampler) -> tuple[KvtuiError | Cancelled | None, Running | None]:
        """Launch, ask, stop. The engine has ended when this returns."""
        running: Running | None = None
        try:
            self._pause(BASELINE_S)
            sampler.phase("load")
            log = self.store.log_path(self.number)
            running = self.engine.launch(self.launch.config, log, self.observer.log)
            sampler.set_engine(running.pid)
            self._tell(
                ev.EngineLaunched(
                    at=now(),
                    run=self.number,
                    pid=running.pid,
                    started=process_started(running.pid) or 0.0,
                    url=running.base_url,
                    log=str(log.relative_to(self.store.folder)),
                )
            )
            self._ask(running, sampler)
        except SessionError:
            raise
        except (KvtuiError, Cancelled) as error:
            return error, running
        finally:
            if running is not None:
                running.stop()
        return None, running

    def _ask(self, running: Running, sampler: Sampler) -> None:
        meter = ProgressMeter(self.launch.step, self.number, jobs_of(self.launch), self.observer.progress)
        load_s = running.wait_ready(READY_TIMEOUT_S, self.cancel, lambda p: meter.say(_loading(p)))
        self._engine_s += load_s
        # A start that found its port taken, or a wrapper whose child is the engine, ends with another process.
        sampler.set_engine(running.pid)
        with running.connect() as client:
            asking = Timed(client, sampler, self.cancel)
            meter.say("warm-up")
            self._warm_up(asking)
            self._tell(ev.EngineReady(now(), self.number, load_s, running.facts()))
            usable = usable_per_slot(self.launch, running)

            def level() -> int | None:
                self._pause(IDLE_S)
                return sampler.latest.engine_bytes if sampler.latest is not None else None

            try:
                probe(
                    self.sit,
                    self.launch,
                    self.number,
                    Bench(asking, usable, meter, self._tell, self.cancel, level, sampler.window),
                )
            finally:
                self._engine_s += asking.engine_s
            self._pause(IDLE_S)

    def _warm_up(self, asking: Timed) -> None:
        """The first request allocates what the load did not (graphs, workspaces); it is measured apart."""
        prompt = asking.tokenize(
            "The first request warms the engine up.", add_special=True, parse_special=False
        )
        asking.complete(
            prompt, WARM_UP_TOKENS, cache_prompt=False, ignore_eos=True, phases=("warm-up", "warm-up")
        )

    def _pause(self, seconds: float) -> None:
        if self.cancel.wait(seconds):
            raise Cancelled

    def _tell(self, event: ev.Event) -> None:
        self.observer.event(event, self.store.append(event))

    def _record_start(self) -> None:
        command = self.engine.command(self.launch.config, SHOWN_PORT)
        self._tell(
            ev.RunStarted(
                at=now(),
                run=self.number,
                step=self.launch.step,
                purpose=self.launch.purpose,
                subject=self.launch.subject,
                config=self.launch.config,
                argv=command.argv,
                env=command.env,
                change=self.launch.change,
                missing=command.missing,
                follow=command.follow,
                forecast=self.sit.oracle.forecast(
                    self.sit.state, self.launch.config, self.engine.dry_run(self.launch.config)
                ),
            )
        )

    def _record_end(
        self,
        error: KvtuiError | Cancelled | None,
        facts: EngineFacts,
        memory: MemoryRecord,
        exit_code: int | None,
        disturbances: tuple[Finding, ...],
    ) -> None:
        wall = time.monotonic() - self._began
        finished = ev.RunFinished(
            now(),
            self.number,
            "cancelled",
            "stopped by the operator",
            facts,
            exit_code=exit_code,
            memory=memory,
            wall_s=wall,
            engine_s=self._engine_s,
        )
        if not isinstance(error, Cancelled):
            finished = self._judged(finished, error)
        self._tell(replace(finished, findings=(*finished.findings, *disturbances)))

    def _judged(self, finished: ev.RunFinished, error: KvtuiError | None) -> ev.RunFinished:
        state = self.store.state
        run = state.run(self.number)
        assert run is not None
        result = judge(
            state,
            replace(run, facts=finished.facts, memory=finished.memory, exit_code=finished.exit_code),
            error,
        )
        return replace(
            finished,
            outcome=result.outcome,
            reason=result.reason,
            failure=result.failure,
            findings=result.findings,
        )


def _loading(progress: StartProgress) -> str:
    return f"loading: {progress.stage}, {progress.seconds:.0f} s"
