"""The one entry: bytes of an engine's log in, facts out, at any time and at any chunk boundary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kvtui.logs import (
    ik_llamacpp,
    llamacpp,
    llamacpp_asked,
    llamacpp_eras,
    llamacpp_failures,
    llamacpp_run,
    ollama,
    vllm,
)
from kvtui.logs.draft import Draft
from kvtui.logs.facts import EngineFacts
from kvtui.logs.findings import find
from kvtui.logs.lines import Line, LineReader, Marks
from kvtui.logs.rules import apply, table
from kvtui.logs.wrapping import Joiner, ScreenJoiner, unwrap

_LLAMA = table(
    llamacpp.RULES,
    ik_llamacpp.RULES,
    llamacpp_eras.RULES,
    llamacpp_asked.RULES,
    llamacpp_run.RULES,
    llamacpp_failures.RULES,
)
_OLLAMA = table(ollama.RULES)
_VLLM = table(vllm.RULES)


def _marks(draft: Draft) -> Marks:
    """What to look for once the engine of `draft` runs. A server opens its next start as it opened this one."""
    if draft.engine == "ollama":
        return Marks(ollama.TRIGGERS, ollama.ALWAYS, ollama.EARLY)
    if draft.engine == "vllm":
        return Marks(vllm.TRIGGERS, vllm.ALWAYS, vllm.EARLY)
    openings = {draft.opened_by or "build: ", llamacpp.LOADING}
    return Marks(tuple(sorted(o.encode() for o in openings)), llamacpp_run.ALWAYS, llamacpp_run.EARLY)


class LogParser:
    """Reads one engine's output while it is written.

    `requested` holds what the caller knows was asked, under the names of the contract (`ctx`, `cache_type_k`,
    `flash_attn`, `n_parallel`, `n_gpu_layers`, ..): it wins over what the log itself says was asked.
    """

    def __init__(self, requested: Mapping[str, Any] | None = None) -> None:
        self._draft = Draft()
        self._reader = LineReader(
            settled=lambda: self._draft.outcome != "unknown",
            marks=lambda: _marks(self._draft),
        )
        self._screen = ScreenJoiner()
        self._joiner = Joiner()
        self._requested = dict(requested or {})
        self._facts: EngineFacts | None = None

    def feed(self, data: bytes) -> None:
        """Read `data`; an unfinished last line waits for the next call."""
        self._read(self._reader.feed(data))

    def close(self) -> None:
        """Read the last line, where it has no line break."""
        self._read(self._reader.close())
        self._pieces(self._screen.flush())
        for number, text in self._joiner.flush():
            self._line(number, text)
            self._facts = None

    def facts(self) -> EngineFacts:
        """All that is proven up to now, findings included. The same object until something new was read."""
        self._read(self._reader.release())
        if self._facts is None or self._facts.n_lines != self._reader.count:
            facts = replace(self._draft.freeze(), n_lines=self._reader.count)
            facts = replace(facts, requested={**facts.requested, **self._requested})
            self._facts = replace(facts, findings=find(facts, self._draft.all_notes()))
        return self._facts

    def _read(self, lines: Iterable[Line]) -> None:
        for number, raw in lines:
            self._pieces(self._screen.feed(number, raw))
            self._facts = None

    def _pieces(self, lines: Iterable[Line]) -> None:
        for number, raw in lines:
            for text in unwrap(raw):
                for first, whole in self._joiner.feed(number, text):
                    self._line(first, whole)

    def _line(self, number: int, text: str) -> None:
        draft = self._draft
        draft.at(number, text)
        if draft.engine != "vllm":
            asked = llamacpp_asked.command_line(draft, text)
            if apply(_LLAMA, draft, text) or asked:
                draft.claim("llama.cpp")
            if draft.engine == "ollama" or "level=" in text or ".go:" in text:
                apply(_OLLAMA, draft, text)
        if draft.engine == "vllm" or ".py:" in text:
            apply(_VLLM, draft, text)
