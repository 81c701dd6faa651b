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
from kvtui.logs.lines import LineCutter
from kvtui.logs.rules import apply
from kvtui.logs.wrapping import Joiner, unwrap

_LLAMA = (
    *llamacpp.RULES,
    *ik_llamacpp.RULES,
    *llamacpp_eras.RULES,
    *llamacpp_asked.RULES,
    *llamacpp_run.RULES,
    *llamacpp_failures.RULES,
)
_OTHERS = (*ollama.RULES, *vllm.RULES)


class LogParser:
    """Reads one engine's output while it is written.

    `requested` holds what the caller knows was asked, under the names of the contract (`ctx`, `cache_type_k`,
    `flash_attn`, `n_parallel`, `n_gpu_layers`, ..): it wins over what the log itself says was asked.
    """

    def __init__(self, requested: Mapping[str, Any] | None = None) -> None:
        self._cutter = LineCutter()
        self._joiner = Joiner()
        self._draft = Draft()
        self._requested = dict(requested or {})
        self._facts: EngineFacts | None = None

    def feed(self, data: bytes) -> None:
        """Read `data`; an unfinished last line waits for the next call."""
        self._read(self._cutter.feed(data))

    def close(self) -> None:
        """Read the last line, where it has no line break."""
        self._read(self._cutter.close())
        for number, text in self._joiner.flush():
            self._line(number, text)

    def facts(self) -> EngineFacts:
        """All that is proven up to now, findings included. The same object until something new was read."""
        if self._facts is None:
            facts = self._draft.freeze()
            facts = replace(facts, requested={**facts.requested, **self._requested})
            self._facts = replace(facts, findings=find(facts, self._draft.notes))
        return self._facts

    def _read(self, lines: Iterable[tuple[int, str]]) -> None:
        for number, raw in lines:
            self._draft.n_lines = number
            for text in unwrap(raw):
                for first, whole in self._joiner.feed(number, text):
                    self._line(first, whole)
            self._facts = None

    def _line(self, number: int, text: str) -> None:
        draft = self._draft
        draft.at(number, text)
        asked = llamacpp_asked.command_line(draft, text)
        if apply(_LLAMA, draft, text) or asked:
            draft.claim("llama.cpp")
        apply(_OTHERS, draft, text)
