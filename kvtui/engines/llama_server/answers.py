"""A streamed completion of a llama.cpp server, read event by event. Pure but for the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kvtui.core.errors import EngineGone, RequestError
from kvtui.core.text import clean
from kvtui.engines.llama_server.choices import choices_of
from kvtui.engines.refusals import refusal
from kvtui.engines.stream import are_token_ids, json_object, plain
from kvtui.probes.asking import Completion
from kvtui.probes.results import Choice, Timing

UNKNOWN_TOKEN = -1
_SLACK_TOKENS = 8
_ABSURD = 1 << 40
"""No token count, no milliseconds and no rate of a real engine reaches it; some numbers beyond are no floats."""


class AnswerReader:
    """Collects the events of one completion; `feed` returns True after the last one.

    The engine sends no event for a token that ends inside a multi-byte character; the number of tokens it
    reports shows where one is missing.
    """

    def __init__(
        self,
        n_predict: int,
        on_progress: Callable[[int, int, float], None] | None,
        on_token: Callable[[int], None] | None,
    ) -> None:
        self._limit = n_predict + _SLACK_TOKENS
        self._on_progress = on_progress
        self._on_token = on_token
        self._began = time.monotonic()
        self._first: float | None = None
        self._texts: list[str] = []
        self._tokens: list[int] = []
        self._gaps: list[tuple[int, int, str]] = []
        self._choices: list[Choice] = []
        self._final: dict[str, Any] | None = None

    def feed(self, data: bytes) -> bool:
        """Read one event. Raises RequestError: refused in mid-stream, rubbish, more tokens than asked for."""
        if data == b"[DONE]":
            return False
        event = json_object(data, "/completion")
        if not isinstance(event, dict):
            raise RequestError("the engine's answer to /completion is not what it should be")
        if "error" in event or ("message" in event and "content" not in event):
            raise refusal(_whole(event.get("error", event), "code"), data)
        if isinstance(progress := event.get("prompt_progress"), dict):
            self._progress(progress)
            return False
        self._take(event)
        if event.get("stop") is True:
            self._final = event
            return True
        return False

    def completion(self, tokenize: Callable[[str], list[int]]) -> Completion:
        """The whole answer. Raises EngineGone when the stream ended before its last event."""
        final = self._final
        if final is None:
            raise EngineGone("the engine's answer broke off")
        wall = time.monotonic() - self._began
        self._fill(tokenize, _whole(final, "tokens_predicted") or len(self._tokens))
        truncated = final.get("truncated") is True
        return Completion(
            text=plain("".join(self._texts)),
            tokens=tuple(self._tokens),
            timing=self._timing(final, wall, truncated),
            stop_type=clean(str(final.get("stop_type", "none")), 20),
            truncated=truncated,
            choices=tuple(self._choices),
        )

    def _progress(self, progress: dict[str, Any]) -> None:
        processed, total = _whole(progress, "processed"), _whole(progress, "total")
        if self._on_progress is not None and processed is not None and total is not None:
            self._on_progress(processed, total, (_number(progress, "time_ms") or 0.0) / 1000)

    def _take(self, event: dict[str, Any]) -> None:
        text, tokens = event.get("content", ""), event.get("tokens", [])
        if not isinstance(text, str) or not isinstance(tokens, list) or not are_token_ids(tokens):
            raise RequestError("the engine's answer to /completion is not what it should be")
        if text:
            self._texts.append(text)
        if not tokens:
            return
        if self._first is None:
            self._first = time.monotonic() - self._began
        predicted = _whole(event, "tokens_predicted")
        missing = 0 if predicted is None else predicted - len(self._tokens) - len(tokens)
        if missing > 0:
            self._gaps.append((len(self._tokens), missing, text))
            self._tokens += [UNKNOWN_TOKEN] * min(missing, self._limit)
        self._choices += choices_of(event.get("completion_probabilities"), len(self._tokens), len(tokens))
        self._tokens += tokens
        if len(self._tokens) > self._limit:
            raise RequestError("the engine generated more tokens than asked for", kind="endless")
        if self._on_token is not None:
            self._on_token(len(self._tokens))

    def _fill(self, tokenize: Callable[[str], list[int]], predicted: int) -> None:
        """Put in the ids that the stream left out, where the character's own tokenization proves them."""
        for start, missing, text in self._gaps:
            ids = tokenize(text)
            if len(ids) == missing + 1 and ids[-1] == self._tokens[start + missing]:
                self._tokens[start : start + missing] = ids[:-1]
        self._tokens += [UNKNOWN_TOKEN] * min(predicted - len(self._tokens), self._limit)

    def _timing(self, final: dict[str, Any], wall: float, truncated: bool) -> Timing:
        timings = final.get("timings")
        timings = timings if isinstance(timings, dict) else {}
        processed = _whole(timings, "prompt_n") or 0
        cached = _whole(timings, "cache_n")
        prompt = _whole(final, "tokens_evaluated")
        if prompt is None:
            prompt = processed + (cached or 0)
        prompt_ms, decode_ms = _number(timings, "prompt_ms"), _number(timings, "predicted_ms")
        first = self._first
        return Timing(
            prompt_tokens=prompt,
            cached_tokens=max(0, prompt - processed) if cached is None else cached,
            generated_tokens=len(self._tokens),
            prompt_tps=_rate(timings, "prompt_per_second") if processed > 0 else None,
            decode_tps=_rate(timings, "predicted_per_second") if len(self._tokens) > 1 else None,
            first_token_s=first,
            wall_s=wall,
            prompt_s=(first or wall) if prompt_ms is None else prompt_ms / 1000,
            decode_s=(wall - (first or wall)) if decode_ms is None else decode_ms / 1000,
            truncated=truncated,
        )


def _whole(source: Any, key: str) -> int | None:
    value = source.get(key) if isinstance(source, dict) else None
    return value if type(value) is int and 0 <= value < _ABSURD else None


def _number(source: dict[str, Any], key: str) -> float | None:
    value = source.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _ABSURD:
        return None  # NaN fails every comparison
    return float(value)


def _rate(timings: dict[str, Any], key: str) -> float | None:
    value = _number(timings, key)
    return value if value is not None and value > 0 else None
