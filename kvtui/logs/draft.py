"""The facts while they are being collected: mutable, bounded, frozen into EngineFacts on demand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from kvtui.logs.facts import (
    BufferFacts,
    CacheFacts,
    ContextFacts,
    DeviceFacts,
    EngineFacts,
    EngineName,
    FailureFacts,
    FailurePhase,
    Outcome,
    SlotFacts,
)

MAX_KEPT = 64
"""Contexts, failures, devices and notes of one kind that are kept: a log that restarts for ever stays bounded."""

MAX_BUFFERS = 256
"""Buffers and caches of one context, and buffers of one model, that are kept."""

Stage = Literal["startup", "fit", "weights", "context", "kv", "recurrent", "compute", "mmproj", "ready"]

_RANK: dict[EngineName, int] = {"unknown": 0, "llama.cpp": 1, "ik_llama.cpp": 2, "ollama": 3, "vllm": 4}
_CONTEXT_FIELDS = frozenset(f.name for f in fields(ContextFacts))


@dataclass(frozen=True, slots=True)
class Note:
    """Something the engine said that is no fact of its own but evidence for a finding."""

    kind: str
    line: int
    values: tuple[str, ...] = ()


@dataclass(slots=True)
class ContextDraft:
    """One context in the making: `line` is where it began, `dry_run` that it only measured memory."""

    role: str
    launch: int
    line: int
    dry_run: bool = False
    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    caches: list[CacheFacts] = field(default_factory=list)
    kv_buffers: list[BufferFacts] = field(default_factory=list)
    rs_buffers: list[BufferFacts] = field(default_factory=list)
    compute: dict[str, BufferFacts] = field(default_factory=dict)
    output: dict[str, BufferFacts] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        """True for a context with more lines than any engine prints: what follows is not kept."""
        return len(self.caches) + len(self.kv_buffers) + len(self.rs_buffers) >= MAX_BUFFERS

    @property
    def is_empty(self) -> bool:
        """True for a context of which nothing but its beginning was seen."""
        return not (self.values or self.caches or self.kv_buffers or self.rs_buffers or self.compute)

    @property
    def only_pretends(self) -> bool:
        """True for a probe that computed sizes without allocating: caches of some MiB in buffers of 0.00 MiB."""
        sized = any((c.size_mib or 0) >= 0.02 for c in self.caches)
        return sized and bool(self.kv_buffers) and all(b.mib == 0 for b in self.kv_buffers)

    def freeze(self) -> ContextFacts:
        known = {k: v for k, v in self.values.items() if k in _CONTEXT_FIELDS}
        return ContextFacts(
            role=self.role,
            launch=self.launch,
            caches=tuple(self.caches),
            kv_buffers=tuple(self.kv_buffers),
            rs_buffers=tuple(self.rs_buffers),
            compute_buffers=tuple(self.compute.values()),
            output_buffers=tuple(self.output.values()),
            lines=dict(self.lines),
            **known,
        )


class Draft:
    """All that the lines read so far prove. The dialects write it, `freeze` reads it."""

    def __init__(self) -> None:
        self.engine: EngineName = "unknown"
        self.launch = 1
        self.server_build: str | None = None
        self.server_requested: dict[str, Any] = {}
        self.server_lines: dict[str, int] = {}
        self.server_fixed: set[str] = set()
        self.server_notes: dict[str, deque[Note]] = {}
        self.server_default_ctx: int | None = None
        self.actual_of: Callable[[Draft], dict[str, Any]] | None = None
        self.past: deque[tuple[dict[str, Any], Outcome]] = deque(maxlen=MAX_KEPT)
        self.contexts: deque[ContextDraft] = deque(maxlen=MAX_KEPT)
        self.texts: dict[int, str] = {}
        self._at = (0, "")
        self._reset_launch()

    def _reset_launch(self) -> None:
        self.build: str | None = None
        self.commit: str | None = None
        self.compiler: str | None = None
        self.system_info: str | None = None
        self.outcome: Outcome = "unknown"
        self.requested: dict[str, Any] = {}
        self.devices: dict[str, DeviceFacts] = {}
        self.model_buffers: list[BufferFacts] = []
        self.offloaded: tuple[int, int] | None = None
        self.slots = SlotFacts()
        self.failures: deque[FailureFacts] = deque(maxlen=MAX_KEPT)
        self.notes: dict[str, deque[Note]] = {}
        self.lines: dict[str, int] = {}
        self.stage: Stage = "startup"
        self.memory: dict[str, Any] = {}
        self.next_role = "main"
        self.opened_by = ""

    def new_launch(self) -> None:
        """The engine starts again in the same log: its contexts stay, all that a launch has once begins anew."""
        if self.actual_of is not None:
            self.past.append((self.actual_of(self), self._outcome()))
        self.launch += 1
        self._reset_launch()

    def at(self, number: int, text: str) -> None:
        """The line that is being read."""
        self._at = (number, text)

    def here(self) -> int:
        """The number of the line being read, whose text is kept because it proves something."""
        number, text = self._at
        self.texts[number] = text
        if len(self.texts) > 64 * MAX_KEPT:
            self._forget_texts()
        return number

    @property
    def text(self) -> str:
        """The line being read."""
        return self._at[1]

    def claim(self, engine: EngineName) -> None:
        """The line is this engine's. Who wraps another (Ollama) or is its fork (ik) stays what it is."""
        if _RANK[engine] > _RANK[self.engine]:
            self.engine = engine

    def fact(self, name: str, value: object) -> None:
        """A top-level fact, proven by the line being read."""
        setattr(self, name, value)
        self.lines[name] = self.here()

    def note(self, kind: str, *values: str) -> None:
        """Evidence for a finding: the newest lines of a kind are kept."""
        self.keep_note(kind, self.here(), values)

    def server_note(self, kind: str, *values: str) -> None:
        """Evidence that outlives the launch: what a server that loads many models says."""
        self.server_notes.setdefault(kind, deque(maxlen=MAX_KEPT)).append(Note(kind, self.here(), values))

    def all_notes(self) -> dict[str, deque[Note]]:
        """The notes of the newest launch and of the server round it."""
        return {**self.server_notes, **self.notes}

    def keep_note(self, kind: str, line: int, values: tuple[str, ...]) -> None:
        """The same for a line that was read earlier."""
        self.notes.setdefault(kind, deque(maxlen=MAX_KEPT)).append(Note(kind, line, values))

    def fail(
        self, phase: FailurePhase, kind: Literal["oom", "refused", "crash", "other"], **more: Any
    ) -> None:
        """A failure, proven by the line being read, whose text it carries unless a part of it is given.

        A record that quotes an earlier line (Ollama's of its runner's last words) is not a second one.
        """
        text = more.pop("text", self.text.strip())
        if any(
            (f.phase, f.kind) == (phase, kind) and f.text != text and f.text in text for f in self.failures
        ):
            return
        self.failures.append(FailureFacts(phase, kind, text, self.here(), **more))

    def set_slots(self, **values: int | bool) -> None:
        """What the server says of its slots; what it does not say stays as it was."""
        for name, value in values.items():
            self.slots = replace(self.slots, line=self.here(), **{name: value})  # type: ignore[arg-type]
        self.stage = "ready"

    def end(self, outcome: Outcome) -> None:
        """The launch became ready or failed."""
        if self.outcome != outcome:
            self.fact("outcome", outcome)

    @property
    def has_begun(self) -> bool:
        """True when this launch has shown anything that a second start would overwrite."""
        return bool(
            self.model_buffers
            or self.failures
            or self.outcome != "unknown"
            or self.offloaded
            or any(c.launch == self.launch for c in self.contexts)
        )

    def open_context(self) -> ContextDraft:
        """A new context begins at the line being read."""
        context = ContextDraft(self.next_role, self.launch, self.here(), dry_run=self.stage == "fit")
        self.contexts.append(context)
        if not context.dry_run:
            self.next_role = "main"
            self.stage = "context"
        return context

    @property
    def context(self) -> ContextDraft | None:
        """The context that the lines being read belong to."""
        last = self.contexts[-1] if self.contexts else None
        return last if last is not None and last.launch == self.launch else None

    def need_context(self) -> ContextDraft:
        """The current context, or a new one where the log begins in the middle."""
        return self.context or self.open_context()

    def set_value(self, context: ContextDraft, name: str, value: object) -> None:
        context.values[name] = value
        context.lines[name] = self.here()

    def real_contexts(self) -> list[ContextDraft]:
        """All contexts but dry runs and those of which nothing is known."""
        return [c for c in self.contexts if not (c.dry_run or c.only_pretends or c.is_empty)]

    def _forget_texts(self) -> None:
        used = set(self.lines.values()) | set(self.server_lines.values())
        used |= {n.line for kept in self.all_notes().values() for n in kept}
        used |= {f.line for f in self.failures if f.line} | {b.line for b in self.model_buffers if b.line}
        used |= {d.line for d in self.devices.values() if d.line} | {self.slots.line or 0}
        for c in self.contexts:
            used |= set(c.lines.values()) | {c.line} | {x.line for x in c.caches if x.line}
            for buffers in (c.kv_buffers, c.rs_buffers, c.compute.values(), c.output.values()):
                used |= {b.line for b in buffers if b.line}
        self.texts = {n: t for n, t in self.texts.items() if n in used or n == self._at[0]}

    def _outcome(self) -> Outcome:
        """A start that ends in a refusal failed, even where the log stops before the engine says so."""
        if self.outcome != "unknown" or not self.failures:
            return self.outcome
        newest = [b.line or 0 for b in self.model_buffers] + [self.slots.line or 0]
        for c in self.contexts:
            newest += [x.line or 0 for x in c.caches]
            newest += [b.line or 0 for b in (*c.kv_buffers, *c.rs_buffers, *c.compute.values())]
        last = self.failures[-1]
        return "failed" if last.kind != "other" and (last.line or 0) >= max(newest) else "unknown"

    def _served(self) -> tuple[dict[str, Any], Outcome]:
        """The load that generates text: the newest with a KV cache or a failure, else the newest of all.

        An embedding model beside it has no cache and is no rival.
        """
        if self.actual_of is None:
            return {}, self._outcome()
        loads = [*self.past, (self.actual_of(self), self._outcome())]
        for facts, outcome in reversed(loads):
            if outcome == "failed" or any(name.startswith("kv_") for name in facts):
                return facts, outcome
        return loads[-1]

    def freeze(self) -> EngineFacts:
        """The facts as they stand; findings are added by the caller."""
        slots = self.slots
        actual, outcome = self._served()
        return EngineFacts(
            engine=self.engine,
            build=self.server_build or self.build,
            commit=self.commit,
            compiler=self.compiler,
            outcome=outcome,
            requested={**self.requested, **self.server_requested},
            devices=tuple(self.devices.values()),
            contexts=tuple(c.freeze() for c in self.real_contexts()),
            slots=slots if slots != SlotFacts() else None,
            model_buffers=tuple(self.model_buffers),
            offloaded=self.offloaded,
            actual=actual or None,
            failures=tuple(self.failures),
            system_info=self.system_info,
            lines={**self.server_lines, **self.lines},
            texts=dict(self.texts),
        )
