"""A streamed answer of /api/generate, read record by record. Pure but for the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kvtui.core.errors import RequestError
from kvtui.engines.refusals import ContextSizeError, refusal
from kvtui.engines.stream import json_object, plain
from kvtui.probes.asking import Completion
from kvtui.probes.results import Timing

_LINE_LIMIT = 4 << 20
_STREAM_LIMIT = 256 << 20
_SLACK_TOKENS = 8
_NEGLIGIBLE = 16
"""Cached tokens, or a hundredth of the prompt, that do not change a rate. How many it really took from its cache Ollama
does not tell: beyond this there is no rate."""
_MOST = 1 << 62
_TOO_LONG = (
    "the prompt is longer than the context length",
    "the input length exceeds the context length",
    "exceeds the available context size",
)
"""What a prompt that does not fit is refused with: 0.30 and later, the runners since 0.12.6, llama-server."""


def json_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a stream of JSON lines, whatever the chunks' boundaries.

    Raises RequestError when a line or the whole stream has no end.
    """
    pending, total = b"", 0
    for chunk in chunks:
        total += len(chunk)
        *lines, pending = (pending + chunk).split(b"\n")
        if total > _STREAM_LIMIT or len(pending) > _LINE_LIMIT:
            raise RequestError("the engine's answer does not end", kind="endless")
        yield from filter(None, map(bytes.strip, lines))
    if pending.strip():
        yield pending.strip()


@dataclass(frozen=True, slots=True)
class Told:
    """What the last record tells: counts of tokens and seconds, None where it does not."""

    prompt_tokens: int | None = None
    generated_tokens: int | None = None
    prompt_s: float | None = None
    decode_s: float | None = None
    load_s: float | None = None
    reason: str = ""


class Answer:
    """Collects the records of one completion of up to `n_predict` tokens."""

    def __init__(self, n_predict: int, on_token: Callable[[int], None] | None) -> None:
        self._limit = n_predict + _SLACK_TOKENS
        self._on_token = on_token
        self._began = time.monotonic()
        self._first: float | None = None
        self._texts: list[str] = []
        self._told: Told | None = None

    @property
    def read(self) -> int | None:
        """Tokens of the prompt, as the engine counted them; None where it did not tell."""
        return None if self._told is None else self._told.prompt_tokens

    def feed(self, line: bytes) -> bool:
        """Read one record; True after the last one. Raises RequestError: refused, rubbish, more than asked for."""
        record = json_object(line, "/api/generate")
        if not isinstance(record, dict):
            raise RequestError("the engine's answer to /api/generate is not what it should be")
        if "error" in record:
            raise refused(refusal(_count(record, "status"), line))
        text = record.get("response", "")
        if not isinstance(text, str):
            raise RequestError("the engine's answer to /api/generate is not what it should be")
        if text:
            self._take(text)
        if record.get("done") is True:
            self._told = told(record)
        return self._told is not None

    def completion(self, expected: int, cached: int) -> Completion:
        """The whole answer. `expected` is the prompt as it was made, `cached` what may still be held of it, in tokens.

        An answer that ends without a last record is one that Ollama broke off by itself, after the same token thirty
        times: its text counts, its speeds are not known. Raises RequestError when there is not even text.
        """
        wall = time.monotonic() - self._began
        known = self._told or Told(reason="repeat")
        if self._told is None and not self._texts:
            raise RequestError("the engine's answer to /api/generate broke off")
        return Completion(
            text=plain("".join(self._texts)),
            tokens=(),
            timing=self._timing(known, expected, cached, wall),
            stop_type={"length": "limit", "stop": "eos"}.get(known.reason, known.reason[:20]),
            truncated=False,
        )

    def _take(self, text: str) -> None:
        self._texts.append(text)
        if self._first is None:
            self._first = time.monotonic() - self._began
        if len(self._texts) > self._limit:
            raise RequestError("the engine generated more tokens than asked for", kind="endless")
        if self._on_token is not None:
            self._on_token(len(self._texts))

    def _timing(self, known: Told, expected: int, cached: int, wall: float) -> Timing:
        prompt = expected if known.prompt_tokens is None else known.prompt_tokens
        held = min(cached, prompt)
        generated = len(self._texts) if known.generated_tokens is None else known.generated_tokens
        first = self._first or wall
        prompt_s = first if known.prompt_s is None else known.prompt_s
        decode_s = wall - first if known.decode_s is None else known.decode_s
        whole = known.prompt_tokens is not None and held <= max(_NEGLIGIBLE, prompt // 100)
        return Timing(
            prompt_tokens=prompt,
            cached_tokens=held,
            generated_tokens=generated,
            prompt_tps=(prompt - held) / prompt_s if whole and known.prompt_s and prompt > held else None,
            decode_tps=generated / decode_s if known.decode_s and generated > 1 else None,
            first_token_s=self._first,
            wall_s=wall,
            prompt_s=prompt_s,
            decode_s=decode_s,
        )


def told(record: dict[str, Any]) -> Told:
    """The figures of a last record. Durations are in nanoseconds; what is zero is left out by the engine."""
    return Told(
        prompt_tokens=_count(record, "prompt_eval_count"),
        generated_tokens=_count(record, "eval_count"),
        prompt_s=_seconds(record, "prompt_eval_duration"),
        decode_s=_seconds(record, "eval_duration"),
        load_s=_seconds(record, "load_duration"),
        reason=str(record.get("done_reason", "")),
    )


def refused(error: RequestError) -> RequestError:
    """The same refusal as it was meant: llama-server's own document inside the text, or a prompt that is too long."""
    start = error.what.find('{"error":')
    if start >= 0:
        inner = refusal(error.status, error.what[start:].encode())
        return inner if inner.kind else error
    if any(words in error.what for words in _TOO_LONG):
        return ContextSizeError(error.what, status=error.status, n_prompt_tokens=None, n_ctx=None)
    return error


def _count(record: dict[str, Any], key: str) -> int | None:
    value = record.get(key)
    return value if type(value) is int and 0 <= value < _MOST else None


def _seconds(record: dict[str, Any], key: str) -> float | None:
    nanoseconds = _count(record, key)
    return None if nanoseconds is None else nanoseconds / 1e9
