"""One entry of the catalogue, and what its detector may look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kvtui.core.findings import Evidence, Finding, Severity
from kvtui.logs.draft import Note
from kvtui.logs.facts import ContextFacts, EngineFacts


@dataclass(frozen=True, slots=True)
class Hit:
    """One case of a finding: why it matters here, with the figures, and what to change."""

    why: str
    change: str
    lines: tuple[int, ...]
    evidence: tuple[Evidence, ...] = ()
    severity: Severity | None = None
    title: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """The facts of a log and the notes that are evidence for findings only."""

    facts: EngineFacts
    notes: Mapping[str, Sequence[Note]]

    def last(self, kind: str) -> Note | None:
        """The newest note of a kind."""
        kept = self.notes.get(kind)
        return kept[-1] if kept else None

    def all(self, kind: str) -> Sequence[Note]:
        """All notes of a kind that were kept."""
        return self.notes.get(kind, ())

    @property
    def contexts(self) -> list[ContextFacts]:
        """The contexts of the newest launch that made any."""
        known = self.facts.contexts
        return [c for c in known if c.launch == known[-1].launch]


Detector = Callable[[View], Iterator[Hit]]


@dataclass(frozen=True, slots=True)
class Entry:
    """A kind of finding. `trigger`, `about` and `change` are general; a Hit says the same of one case."""

    id: str
    severity: Severity
    title: str
    trigger: str
    about: str
    change: str
    source: str
    detect: Detector

    def findings(self, view: View) -> Iterator[Finding]:
        """All cases of this kind in `view`."""
        for hit in self.detect(view):
            texts = view.facts.texts
            evidence = tuple(Evidence(n, texts.get(n, "")) for n in hit.lines)
            yield Finding(
                self.id,
                hit.severity or self.severity,
                hit.title or self.title,
                hit.why,
                hit.change,
                evidence + hit.evidence,
            )

    def explain(self) -> str:
        """The entry as `kvtui log --explain` prints it."""
        return "\n".join(
            (
                f"{self.id} ({self.severity}): {self.title}",
                f"Evidence: {self.trigger}",
                f"Why it matters: {self.about}",
                f"Change next: {self.change or 'nothing'}",
                f"Source: {self.source}",
            )
        )
