"""What a finished run is worth: does it count, why not, and what the operator should know about it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvtui.core.errors import EngineGone, KvtuiError, RequestError, StartError
from kvtui.core.findings import Finding
from kvtui.core.units import MIB, mib
from kvtui.logs.facts import EngineFacts, FailureFacts
from kvtui.procedure.checks import setting_checks
from kvtui.procedure.findings.comparison import comparison_findings
from kvtui.procedure.findings.faults import fault_findings
from kvtui.procedure.findings.memory import memory_findings
from kvtui.procedure.findings.probes import probe_findings
from kvtui.session.records import FailureKind, RunOutcome
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
        *comparison_findings(state, run, checks),
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
