"""A run against what was asked, against the run it was changed from, the baseline, and its own forecast."""

from __future__ import annotations

from kvtui.core.findings import Evidence, Finding
from kvtui.core.units import MIB, mib, signed_size
from kvtui.procedure.actual import VOIDING
from kvtui.procedure.compare import hidden_moves, voided
from kvtui.procedure.findings.kind import Kind
from kvtui.procedure.stability import recall_reference
from kvtui.procedure.variables import changed
from kvtui.session.records import SettingCheck
from kvtui.session.state import RunRecord, SessionState

CATALOGUE: tuple[Kind, ...] = (
    Kind("differs-SETTING", "warning", "the log proves another value of that setting than was asked for"),
    Kind("second-variable", "warning, info", "more actual settings moved than the one that was meant to"),
    Kind(
        "comparison-void",
        "warning",
        "the engine's build or the driver is another than in the run compared with",
    ),
    Kind(
        "recall-below-baseline",
        "info",
        "a smaller share of the planted facts came back than at the f16 baseline",
    ),
    Kind(
        "kv-forecast-off",
        "warning, info",
        "the log's KV size is not the model file's, beyond the log's rounding",
    ),
)


def comparison_findings(
    state: SessionState, run: RunRecord, checks: tuple[SettingCheck, ...]
) -> tuple[Finding, ...]:
    """Everything about `run`, which is a run of `state`; `checks` are its requested against actual."""
    return (
        *_differences(run, checks),
        *_second_variables(state, run),
        *_void(state, run),
        *_recall(state, run),
        *_forecast(run),
    )


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
