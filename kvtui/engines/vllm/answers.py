"""A streamed completion of an OpenAI-compatible server, read event by event. Pure but for the clock.

vLLM tells no timings of its own: the rates are by kvtui's clock, prefill up to the first token, decode after it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from kvtui.core.errors import EngineGone, RequestError
from kvtui.core.text import clean
from kvtui.engines.refusals import refusal
from kvtui.engines.stream import are_token_ids, json_object, plain
from kvtui.probes.asking import Completion
from kvtui.probes.results import Choice, Timing

_TOKEN = re.compile(r"token_id:(\d{1,9})")
_STOPS = {"length": "limit", "stop": "eos"}
_SLACK_TOKENS = 8
_MOST_CHOICES = 20
_NEVER = -100.0


class CompletionReader:
    """Collects the events of one completion; `feed` returns True after the last one."""

    def __init__(self, n_predict: int, on_token: Callable[[int], None] | None) -> None:
        self._limit = n_predict + _SLACK_TOKENS
        self._on_token = on_token
        self._began = time.monotonic()
        self._first: float | None = None
        self._last: float = 0.0
        self._texts: list[str] = []
        self._tokens: list[int] = []
        self._choices: list[Choice] = []
        self._events = 0
        self._stop: str | None = None
        self._usage: dict[str, Any] = {}
        self._done = False

    def feed(self, data: bytes) -> bool:
        """Read one event. Raises RequestError: refused in mid-stream, rubbish, more tokens than asked for."""
        if data == b"[DONE]":
            self._done = True
            return True
        event = json_object(data, "/v1/completions")
        if not isinstance(event, dict):
            raise RequestError("the engine's answer to /v1/completions is not what it should be")
        if "error" in event:
            error = event["error"]
            code = error.get("code") if isinstance(error, dict) else None
            raise refusal(code if type(code) is int else None, data)
        if isinstance(usage := event.get("usage"), dict):
            self._usage = usage
        choices = event.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            self._take(choices[0])
        return False

    def completion(self) -> Completion:
        """The whole answer. Raises EngineGone when the stream ended before its last event."""
        if not self._done or self._stop is None:
            raise EngineGone("the engine's answer broke off")
        generated = _count(self._usage, "completion_tokens")
        if generated is None:
            generated = len(self._tokens) or self._events
        return Completion(
            text=plain("".join(self._texts)),
            tokens=tuple(self._tokens) if len(self._tokens) == generated else (),
            timing=self._timing(generated),
            stop_type=self._stop,
            truncated=False,
            choices=tuple(self._choices),
        )

    def _take(self, choice: dict[str, Any]) -> None:
        text, tokens = choice.get("text", ""), choice.get("token_ids") or []
        if not isinstance(text, str) or not isinstance(tokens, list) or not are_token_ids(tokens):
            raise RequestError("the engine's answer to /v1/completions is not what it should be")
        if text or tokens:
            self._last = time.monotonic() - self._began
            self._first = self._last if self._first is None else self._first
            self._choices += _choices(choice.get("logprobs"), len(self._tokens))
            self._texts.append(text)
            self._tokens += tokens
            self._events += 1
            if max(len(self._tokens), self._events) > self._limit:
                raise RequestError("the engine generated more tokens than asked for", kind="endless")
            if self._on_token is not None:
                self._on_token(max(len(self._tokens), self._events))
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            stopped_by_word = reason == "stop" and isinstance(choice.get("stop_reason"), str)
            self._stop = "word" if stopped_by_word else _STOPS.get(reason, clean(reason, 20))

    def _timing(self, generated: int) -> Timing:
        wall = time.monotonic() - self._began
        prompt = _count(self._usage, "prompt_tokens") or 0
        cached = _count(self._usage.get("prompt_tokens_details"), "cached_tokens") or 0
        first = self._first
        prompt_s = wall if first is None else first
        decode_s = 0.0 if first is None else self._last - first
        return Timing(
            prompt_tokens=prompt,
            cached_tokens=min(cached, prompt),
            generated_tokens=generated,
            prompt_tps=(prompt - cached) / prompt_s if prompt > cached and prompt_s > 0 else None,
            decode_tps=(generated - 1) / decode_s if generated > 1 and decode_s > 0 else None,
            first_token_s=first,
            wall_s=wall,
            prompt_s=prompt_s,
            decode_s=decode_s,
        )


def _count(source: Any, key: str) -> int | None:
    value = source.get(key) if isinstance(source, dict) else None
    return value if type(value) is int and 0 <= value < 1 << 40 else None


def _choices(told: Any, start: int) -> list[Choice]:
    """The likeliest tokens of an event's positions, told as `token_id:N`; positions told otherwise are left out."""
    positions = told.get("top_logprobs") if isinstance(told, dict) else None
    found = []
    for index, top in enumerate(positions if isinstance(positions, list) else [], start):
        if not isinstance(top, dict):
            continue
        ranked = sorted((p for p in map(_ranked, top.items()) if p is not None), key=lambda p: -p[1])
        if ranked and len(ranked) == len(top):
            kept = ranked[:_MOST_CHOICES]
            found.append(Choice(index, tuple(t for t, _ in kept), tuple(p for _, p in kept)))
    return found


def _ranked(one: tuple[Any, Any]) -> tuple[int, float] | None:
    name, logprob = one
    match = _TOKEN.fullmatch(str(name))
    if match is None or isinstance(logprob, bool) or not isinstance(logprob, int | float):
        return None
    if not logprob <= 1e-3:
        return None  # NaN fails every comparison
    return int(match[1]), round(min(max(float(logprob), _NEVER), 0.0), 4)
