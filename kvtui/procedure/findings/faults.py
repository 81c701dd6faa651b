"""What ended a run early, as a finding with a next step, where the engine's log alone does not say it."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from kvtui.core.errors import EngineGone, KvtuiError, RequestError, StartError
from kvtui.core.findings import Evidence, Finding
from kvtui.engines.refusals import ContextSizeError
from kvtui.logs.facts import EngineFacts

OUR_OWN_END = (None, 0, -signal.SIGTERM)
"""Statuses of an engine that was alive until kvtui ended it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of end. `why` and `next` hold for every case; the evidence is the error's own sentence."""

    id: str
    title: str
    why: str
    next: str

    def explain(self) -> str:
        """The fault as `kvtui log --explain` prints it."""
        return "\n".join(
            (
                f"{self.id} (error): {self.title}",
                "Evidence: how a run of kvtui ended",
                f"Why it matters: {self.why}",
                f"Change next: {self.next}",
            )
        )


FAULTS: tuple[Fault, ...] = (
    Fault(
        "engine-missing",
        "The engine cannot be started",
        "its program, a library of it, or the log's folder is not there",
        "kvtui doctor: it names the engines of this box and what they lack",
    ),
    Fault(
        "engine-port-taken",
        "The engine finds no port to listen on",
        "another program takes every port that it is given",
        "end what listens there (ss -ltnp), then go on",
    ),
    Fault(
        "engine-hung-loading",
        "The engine does not get ready",
        "it neither logs, computes nor touches memory, or it never says that it is ready",
        "look at dmesg for a driver or a disk that hangs; try --no-mmap where the model lies on a network",
    ),
    Fault(
        "engine-hung-answering",
        "The engine stopped answering",
        "a request was accepted and nothing came back",
        "look at dmesg for a GPU that hangs; the engine's log ends where it stopped",
    ),
    Fault(
        "engine-killed",
        "The engine was killed from outside",
        "SIGKILL is no fault of its own: the kernel sends it when host memory runs out",
        "look at dmesg or journalctl -k for `Out of memory`; free host memory or a smaller --cache-ram",
    ),
    Fault(
        "engine-restarted",
        "The engine was restarted in the middle of a run",
        "its log holds more than one start: what was measured before the last belongs to another process",
        "stop what restarts it (a unit's Restart=, a wrapper's loop), then run again",
    ),
    Fault(
        "engine-ended",
        "The engine ended by itself",
        "it gives no reason that is known; its last words are in its log",
        "read the end of its log; the same run again tells whether it is the configuration",
    ),
    Fault(
        "connection-lost",
        "The connection to the engine broke",
        "the engine goes on, but the request was lost",
        "run again; a proxy or firewall between kvtui and the engine would do this every time",
    ),
    Fault(
        "request-too-long",
        "A request was longer than its slot",
        "what one slot may use is smaller than what was asked for",
        "-np 1, then -c",
    ),
    Fault(
        "pool-exhausted",
        "The unified pool of cells ran full",
        "all active requests fail together, at random moments",
        "-np 1",
    ),
    Fault(
        "access-refused",
        "The engine wants a key",
        "its answer says that the request is not allowed",
        "give the server's key: --engine-args '--api-key KEY'",
    ),
    Fault(
        "certificate-not-trusted",
        "The engine's certificate is not trusted",
        "no connection is made to a server that cannot prove what it is",
        "give the certificate that it was started with (--ssl-cert-file)",
    ),
    Fault(
        "engine-still-loading",
        "The engine went back to loading",
        "it answered that it is ready, then that it is not: it sleeps, swaps models or was restarted",
        "no router mode and no sleep while tuning (--models-max 1, no --sleep-idle-seconds)",
    ),
    Fault(
        "server-error",
        "The engine failed a request",
        "it answered with an error of its own",
        "read its log at the time of the request",
    ),
    Fault(
        "request-refused",
        "The engine refused a request",
        "it does not know the endpoint or an option of the request",
        "a newer build; kvtui doctor shows what this one can do",
    ),
    Fault(
        "answer-unreadable",
        "The engine's answer cannot be read",
        "what came back is no answer of the kind of server that it is taken for",
        "make sure that this address is the engine itself and not a proxy or another program",
    ),
    Fault(
        "answer-endless",
        "The engine's answer did not end",
        "more came than was asked for, so kvtui closed the connection",
        "another build: this one ignores the limit of a request",
    ),
)
_BY_ID = {fault.id: fault for fault in FAULTS}


def fault_findings(error: KvtuiError, facts: EngineFacts, exit_code: int | None) -> tuple[Finding, ...]:
    """The finding for `error`; none where the log's own findings name what ended the run.

    `exit_code` is the engine's, after kvtui has ended it where it was still alive.
    """
    fault = _BY_ID[_kind(error, facts, exit_code)]
    named = {f.id for f in facts.findings}
    explained = any(f.severity == "error" for f in facts.findings) and not isinstance(error, RequestError)
    if fault.id in named or (explained and fault.id != "engine-restarted"):
        return ()
    evidence = [Evidence(None, error.what)]
    if isinstance(error, ContextSizeError) and error.n_ctx is not None:
        evidence.append(
            Evidence(None, f"{error.n_prompt_tokens} tokens were sent, the slot has {error.n_ctx}")
        )
    if isinstance(error, EngineGone) and exit_code not in OUR_OWN_END:
        evidence.append(Evidence(None, f"the engine's exit status is {exit_code}"))
    return (Finding(fault.id, "error", fault.title, fault.why, fault.next, tuple(evidence)),)


def _kind(error: KvtuiError, facts: EngineFacts, exit_code: int | None) -> str:
    match error:
        case StartError(kind="missing"):
            return "engine-missing"
        case StartError(kind="port"):
            return "engine-port-taken"
        case StartError(kind="hung"):
            return "engine-hung-loading"
        case StartError():
            return "engine-killed" if error.exit_code == -signal.SIGKILL else "engine-ended"
        case EngineGone():
            return _gone(facts, exit_code)
        case ContextSizeError():
            return "request-too-long"
        case RequestError():
            return _refused(error)
        case _:
            return "engine-ended"


def _gone(facts: EngineFacts, exit_code: int | None) -> str:
    if any(context.launch > 1 for context in facts.contexts):
        return "engine-restarted"
    if exit_code == -signal.SIGKILL:
        return "engine-killed"
    return "connection-lost" if exit_code in OUR_OWN_END else "engine-ended"


def _refused(error: RequestError) -> str:
    by_kind = {
        "timeout": "engine-hung-answering",
        "endless": "answer-endless",
        "tls": "certificate-not-trusted",
    }
    if error.kind in by_kind:
        return by_kind[error.kind]
    if "Context size has been exceeded" in error.what:
        return "pool-exhausted"
    match error.status:
        case None:
            return "answer-unreadable"
        case 401 | 403:
            return "access-refused"
        case 503:
            return "engine-still-loading"
        case status if status >= 500:
            return "server-error"
        case _:
            return "request-refused"
