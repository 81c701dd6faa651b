"""What a finished run is worth: does it count, why not, and what the operator should know about it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvtui.core.errors import EngineGone, KvtuiError, RequestError, StartError
from kvtui.core.findings import Evidence, Finding
from kvtui.core.units import MIB, mib, signed_size
from kvtui.logs.facts import EngineFacts, FailureFacts
from kvtui.procedure.actual import VOIDING
from kvtui.procedure.checks import setting_checks
from kvtui.procedure.compare import hidden_moves, voided
from kvtui.procedure.findings.faults import fault_findings
from kvtui.procedure.findings.memory import memory_findings
from kvtui.procedure.findings.probes import probe_findings
from kvtui.procedure.stability import recall_reference
from kvtui.procedure.variables import changed
from kvtui.session.records import FailureKind, RunOutcome, SettingCheck
from kvtui.session.state import RunRecord, SessionState

_TYPES = ("K cache type", "V cache type")


@dataclass(frozen=True, slots=True)
class Judgement:
    """The outcome to record, with its reason and findings."""

    outcome: RunOutcome
    reason: str
    failure: FailureKind | None
    findings: tuple[Finding, ...]


def judge(state: SessionState, run: RunRecord, error: KvtuiError | None) -> Judgement:
    """`run` holds everything but its outcome; `error` is what ended it early."""
    if error is not None:
        failure = failure_kind(run.facts, error)
        ended = fault_findings(error, run.facts, run.exit_code)
        seen = (*ended, *_from_log(run), *memory_findings(run, state.started.host))
        return Judgement("failed", _reason(run.facts, error, failure), failure, seen)
    checks = setting_checks(run)
    findings = (
        *_from_log(run),
        *_differences(run, checks),
        *_second_variables(state, run),
        *_void(state, run),
        *_recall(state, run),
        *_forecast(run),
        *memory_findings(run, state.started.host),
        *probe_findings(state, run),
    )
    unproven = [c for c in checks if c.setting in _TYPES and c.state == "unproven"]
    if unproven:
        return Judgement(
            "void", "the log does not prove the KV types, so the run does not count", None, findings
        )
    wrong = [c for c in checks if c.setting in _TYPES and c.state == "differs"]
    if wrong:
        what = "; ".join(f"{c.setting} {c.asked} asked, {c.actual} allocated" for c in wrong)
        return Judgement("void", f"{what}: the run does not count", None, findings)
    return Judgement("ok", "", None, findings)


def _from_log(run: RunRecord) -> tuple[Finding, ...]:
    """The log's own findings. The probes never share a prefix between depths, so full re-processing is their doing,
    and so is a full pool where they were asked to fill it."""
    ours = {"full-reprocessing", *(("pool-exhausted",) if run.full_pool else ())}
    return tuple(replace(f, severity="info") if f.id in ours else f for f in run.facts.findings)


def failure_kind(facts: EngineFacts, error: KvtuiError) -> FailureKind:
    """What failed, by the log first and by the error otherwise."""
    logged = _decisive(facts)
    if logged is not None and logged.kind == "oom":
        kinds: dict[str, FailureKind] = {
            "weights": "weights-oom",
            "kv": "kv-oom",
            "recurrent": "kv-oom",
            "compute": "compute-oom",
            "prefill": "prefill-oom",
            "decode": "prefill-oom",
        }
        return kinds.get(logged.phase, "crash")
    if logged is not None and logged.kind == "refused":
        # An engine that counts its pool before it allocates refuses what another would run out of memory with.
        return "kv-oom" if logged.phase == "kv" else "refused"
    if isinstance(error, StartError):
        return "hung" if error.kind == "hung" else "start"
    if isinstance(error, EngineGone):
        return "crash"
    return "request" if isinstance(error, RequestError) else "crash"


def _decisive(facts: EngineFacts) -> FailureFacts | None:
    for kind in ("oom", "refused"):
        found = next((f for f in facts.failures if f.kind == kind), None)
        if found is not None:
            return found
    return None


def _reason(facts: EngineFacts, error: KvtuiError, failure: FailureKind) -> str:
    logged = _decisive(facts)
    if logged is None:
        return error.what
    wanted = f" ({mib(logged.wanted_mib * MIB)} wanted)" if logged.wanted_mib else ""
    words = {
        "weights-oom": "out of memory while loading the weights",
        "kv-oom": "out of memory while allocating KV",
        "compute-oom": "out of memory while allocating the compute buffer",
        "prefill-oom": "out of memory while processing a prompt",
    }
    line = f", log line {logged.line}" if logged.line else ""
    ran_out = logged.kind == "oom" and failure in words
    return f"{words[failure]}{wanted}{line}" if ran_out else f"{logged.text}{line}"


def _differences(run: RunRecord, checks: tuple[SettingCheck, ...]) -> list[Finding]:
    found = []
    for check in checks:
        if check.state != "differs":
            continue
        slug = check.setting.lower().replace(" ", "-")
        why = check.note or "the engine allocated something else than it was asked for"
        text = run.facts.texts.get(check.line, "") if check.line else ""
        found.append(
            Finding(
                id=f"differs-{slug}",
                severity="warning",
                title=f"{check.setting}: {check.asked} asked, {check.actual} actual",
                why=why,
                evidence=(Evidence(check.line, text),) if check.line else (),
            )
        )
    return found


def _second_variables(state: SessionState, run: RunRecord) -> list[Finding]:
    """Everything that moved besides the one variable. What follows from it (cells of a window), or was asked with it
    because the engine has one setting for both, is said, no more."""
    if run.change is None:
        return []
    moves = [m for m in hidden_moves(state, run) if m.variable not in VOIDING]
    reference = state.run(run.change.against_run)
    asked = {v.name for v in changed(reference.config, run.config)} if reference else set()
    pinned = [m for m in moves if m.variable != "SWA cells" and m.variable not in asked]
    if not moves:
        return []
    evidence = tuple(Evidence(None, f"{m.variable}: {m.before} before, {m.after} now") for m in moves)
    names = ", ".join(m.variable for m in moves)
    return [
        Finding(
            id="second-variable",
            severity="warning" if pinned else "info",
            title=f"More than {run.change.variable} moved: {names}",
            why=f"a comparison with run {run.change.against_run} cannot tell which of them did what",
            next=f"pin {pinned[0].variable} to {pinned[0].before} and repeat" if pinned else "",
            evidence=evidence,
        )
    ]


def _void(state: SessionState, run: RunRecord) -> list[Finding]:
    """Another engine or driver than in the run that this one is compared with."""
    moves = voided(state, run)
    if not moves or run.change is None:
        return []
    return [
        Finding(
            id="comparison-void",
            severity="warning",
            title=f"Not comparable with run {run.change.against_run}: {moves[0].variable} changed",
            why="the same options do other things in another build or driver, so no difference says what caused it",
            next=f"repeat run {run.change.against_run} as it was, then this one",
            evidence=tuple(Evidence(None, f"{m.variable}: {m.before} before, {m.after} now") for m in moves),
        )
    ]


def _recall(state: SessionState, run: RunRecord) -> list[Finding]:
    """Recall that is below the baseline's, whether or not the preset lets it pass."""
    reference = recall_reference(state)
    if reference is None or not run.recalls or not reference.needles:
        return []
    latest = run.recalls[-1]
    if not latest.needles or latest.found / len(latest.needles) >= reference.found / len(reference.needles):
        return []
    found = f"{latest.found} of {len(latest.needles)} at {latest.depth:,} tokens"
    before = f"{reference.found} of {len(reference.needles)} at {reference.depth:,} tokens"
    return [
        Finding(
            id="recall-below-baseline",
            severity="info",
            title=f"Recall {found}, {before} at the f16 baseline",
            why="fewer planted facts came back than at full precision; the preset's share decides whether that ends it",
            evidence=(Evidence(None, f"recall {found}"), Evidence(None, f"baseline recall {before}")),
        )
    ]


def _forecast(run: RunRecord) -> list[Finding]:
    kv = run.facts.main.kv_mib if run.facts.main else None
    if run.forecast is None or run.forecast.kv_bytes is None or kv is None or run.facts.main is None:
        return []
    rounding = (run.facts.main.kv_rounding_mib + 0.0001) * MIB
    error = kv * MIB - run.forecast.kv_bytes
    if abs(error) <= rounding:
        return []
    exact = run.forecast.exactness == "exact"
    return [
        Finding(
            id="kv-forecast-off",
            severity="warning" if exact else "info",
            title=f"KV is {signed_size(error)} off the forecast of {mib(run.forecast.kv_bytes)}",
            why="the log is what counts; "
            + (
                "the model's geometry was thought to be known"
                if exact
                else "this geometry is only approximated"
            ),
            evidence=(
                Evidence(
                    None, f"the log proves {kv:,.2f} MiB, the model file gives {mib(run.forecast.kv_bytes)}"
                ),
            ),
        )
    ]
