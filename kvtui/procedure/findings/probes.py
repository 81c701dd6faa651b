"""What the probes of a run show that an operator should know, beside the figures themselves."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Evidence, Finding
from kvtui.core.units import rate
from kvtui.probes.divergence import compare, summarise
from kvtui.probes.speed import clocks_apart
from kvtui.procedure.findings.kind import Kind
from kvtui.procedure.findings.where import where_time_went
from kvtui.procedure.speeds import CLIFF, deepest_decode, share_of_expected
from kvtui.session.state import RunRecord, SessionState

_SHOWN = 8

CATALOGUE: tuple[Kind, ...] = (
    Kind("template-refused", "warning", "the engine refuses the model's chat template, so prompts are plain"),
    Kind("reasoning-ate-the-answer", "warning", "an answer ended before its reasoning did"),
    Kind(
        "baseline-not-repeatable", "warning", "outputs of the same prompts, asked twice of one engine, differ"
    ),
    Kind("clocks-disagree", "info", "the engine's own rates and times are not those that a client measures"),
    Kind(
        "requests-queued",
        "info",
        "of requests at the same time some got their first token after another's end",
    ),
    Kind(
        "full-pool-breaks-others",
        "warning, error",
        "requests broke off while all together filled a shared pool",
    ),
    Kind(
        "decode-cliff",
        "warning, info",
        f"decode under {CLIFF:.0%} of what earlier runs let expect at that depth",
    ),
)


def probe_findings(state: SessionState, run: RunRecord) -> tuple[Finding, ...]:
    """Everything about `run`, which is a run of `state`."""
    return (
        *_template(run),
        *_reasoning(run),
        *_not_repeatable(run),
        *_clocks(run),
        *_queued(run),
        *_full_pool(run),
        *_cliff(state, run),
    )


def _evidence(texts: list[str] | tuple[str, ...]) -> tuple[Evidence, ...]:
    return tuple(Evidence(None, text) for text in texts[:_SHOWN])


def _template(run: RunRecord) -> Iterator[Finding]:
    if run.prompts != "raw" or not run.prompts_reason:
        return
    yield Finding(
        id="template-refused",
        severity="warning",
        title="Plain prompts: the model's chat template cannot be used",
        why="an instruct model answers plain text worse than a chat, so its verdicts here mean less; speeds stand",
        next="give the engine a chat template that carries the message through",
        evidence=_evidence([run.prompts_reason]),
    )


def _reasoning(run: RunRecord) -> Iterator[Finding]:
    eaten = [t for t in run.tasks if t.ate_answer]
    if not eaten:
        return
    full = [t for t in eaten if t.timing is not None and t.timing.truncated]
    where = "context" if full else "room"
    yield Finding(
        id="reasoning-ate-the-answer",
        severity="warning",
        title=f"Reasoning took all the {where} of {len(eaten)} of {len(run.tasks)} answers",
        why="no answer began before the end: that is a matter of room and of how the model is asked, not of KV types",
        next="more context, or a reasoning budget",
        evidence=_evidence([f"{t.task} at {t.depth:,}: {t.why}" for t in eaten]),
    )


def _not_repeatable(run: RunRecord) -> Iterator[Finding]:
    if not run.repeated:
        return
    differing = summarise(compare(run.tasks, run.tasks, run.repeated)).not_repeated
    if not differing:
        return
    yield Finding(
        id="baseline-not-repeatable",
        severity="warning",
        title=f"{len(differing)} of {len(run.tasks)} outputs are not the same when asked twice",
        why="the same prompts, greedy, on the same engine: what differs here by itself is not blamed on KV later",
        evidence=_evidence(differing),
    )


def _clocks(run: RunRecord) -> Iterator[Finding]:
    apart = [(s, clocks_apart(s.repeats)) for s in run.speeds]
    told = [f"at {s.depth:,} tokens {text}" for s, text in apart if text]
    if not told:
        return
    yield Finding(
        id="clocks-disagree",
        severity="info",
        title="The engine's times are not what a client sees",
        why="its rates leave out a wait (a queue, a busy machine, a proxy) or count otherwise than in tokens answered",
        evidence=_evidence(told),
    )


def _queued(run: RunRecord) -> Iterator[Finding]:
    for result in run.concurrency:
        if result.queued:
            first = (
                f"first tokens after {', '.join(f'{s:.1f} s' for s in sorted(result.first_token_s)[:_SHOWN])}"
            )
            yield Finding(
                id="requests-queued",
                severity="info",
                title=f"{result.queued} of {result.requested} requests waited for another to end",
                why="the engine has fewer slots than requests: they are answered, one after the other",
                next="more slots",
                evidence=_evidence([first]),
            )


def _full_pool(run: RunRecord) -> Iterator[Finding]:
    for result in run.full_pool:
        if not result.failed:
            continue
        recovered = "works again afterwards" if result.recovered else "does not work afterwards"
        yield Finding(
            id="full-pool-breaks-others",
            severity="warning" if result.recovered else "error",
            title=f"A full pool broke off {result.failed} of {result.requested} requests",
            why=f"slots share {result.pool:,} cells and each may use all of them: one request too many costs the "
            f"others theirs; the engine {recovered}",
            next="a fixed share for each slot (no unified KV)",
            evidence=_evidence(result.errors),
        )


def _cliff(state: SessionState, run: RunRecord) -> Iterator[Finding]:
    share, mine = share_of_expected(state, run), deepest_decode(run)
    if share is None or mine is None or share >= CLIFF:
        return
    depth, tps = mine
    where = where_time_went(run.memory.during("decode") if run.memory is not None else None)
    yield Finding(
        id="decode-cliff",
        severity="info" if state.started.device.kind == "host" else "warning",
        title=f"Decode fell to {share:.0%} of what earlier runs let expect at {depth:,} tokens",
        why=where.words,
        evidence=_evidence(
            [f"{rate(tps)} at {depth:,} tokens, {rate(tps / share)} expected", *where.evidence]
        ),
    )
