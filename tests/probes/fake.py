"""An engine without a model: a toy tokenizer, a prompt cache, a clock that is a formula, a reader of prompts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Lock

from kvtui.core.errors import Cancelled, RequestError
from kvtui.probes.asking import Completion
from kvtui.probes.results import Timing

BOS = 1
PROMPT_TPS = 1000.0
DECODE_TPS = 20.0

_PIECES = re.compile(r"<\|\w+\|>|\n+| ?\w+|[^\w\n]")


@dataclass
class Request:
    """What `complete` was asked."""

    prompt: list[int]
    n_predict: int
    cache_prompt: bool
    ignore_eos: bool
    stop: tuple[str, ...]
    cached: int


@dataclass
class FakeEngine:
    """`reply(prompt text)` is what it says. `window`: how many tokens back it can see (None: all).

    `slot` is the number of tokens that prompt and answer may take together. `before_answer` runs in every request.
    """

    reply: Callable[[str], str] = lambda prompt: ""
    window: int | None = None
    slot: int | None = None
    template: str = "<|user|>{}<|end|><|assistant|>"
    ignores_cache_prompt: bool = False
    before_answer: Callable[[], None] = lambda: None
    requests: list[Request] = field(default_factory=list)
    _words: dict[str, int] = field(default_factory=lambda: {"<bos>": BOS})
    _cache: list[int] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        ids = [self._words.setdefault(piece, len(self._words) + 1) for piece in _PIECES.findall(text)]
        return [BOS, *ids] if add_special else ids

    def text(self, ids: list[int] | tuple[int, ...]) -> str:
        """The text of token ids."""
        words = {number: piece for piece, number in self._words.items()}
        return "".join(words[number] for number in ids)

    def apply_template(self, messages: list[dict[str, str]]) -> str:
        return self.template.format(messages[0]["content"])

    def complete(
        self,
        prompt: list[int],
        n_predict: int,
        *,
        cache_prompt: bool,
        ignore_eos: bool = False,
        stop: tuple[str, ...] = (),
        n_probs: int = 0,
        on_progress: Callable[[int, int, float], None] | None = None,
        cancel: Event | None = None,
    ) -> Completion:
        if cancel is not None and cancel.is_set():
            raise Cancelled
        with self._lock:
            reusing = cache_prompt or self.ignores_cache_prompt
            cached = _common(self._cache, prompt[:-1]) if reusing else 0
            self._cache = list(prompt)
            self.requests.append(Request(list(prompt), n_predict, cache_prompt, ignore_eos, stop, cached))
        self.before_answer()
        if self.slot is not None and len(prompt) >= self.slot:
            raise RequestError(
                f"request ({len(prompt)} tokens) exceeds the available context size", status=400
            )
        for processed in range(cached + 256, len(prompt) + 256, 256):
            if on_progress is not None:
                on_progress(min(processed, len(prompt)), len(prompt), 0.0)
        return self._answer(prompt, n_predict, ignore_eos, stop, cached)

    def _answer(
        self, prompt: list[int], n_predict: int, ignore_eos: bool, stop: tuple[str, ...], cached: int
    ) -> Completion:
        said = self.reply(self.text(prompt[-self.window :] if self.window else prompt))
        for word in stop:
            said = said.split(word)[0]
        whole = self.tokenize(said, add_special=False, parse_special=False)
        ids = whole[:n_predict]
        text, stop_type = self.text(ids), "limit" if len(whole) > n_predict else "word"
        if ignore_eos:
            ids, stop_type = (ids + [BOS] * n_predict)[:n_predict], "limit"
        room = n_predict if self.slot is None else self.slot - len(prompt) - 1
        truncated = len(ids) > room
        ids = ids[:room]
        fresh = len(prompt) - cached
        timing = Timing(
            prompt_tokens=len(prompt),
            cached_tokens=cached,
            generated_tokens=len(ids),
            prompt_tps=PROMPT_TPS,
            decode_tps=DECODE_TPS,
            first_token_s=fresh / PROMPT_TPS,
            wall_s=fresh / PROMPT_TPS + len(ids) / DECODE_TPS,
            prompt_s=fresh / PROMPT_TPS,
            decode_s=len(ids) / DECODE_TPS,
            truncated=truncated,
        )
        return Completion(text, tuple(ids), timing, stop_type, truncated)

    @property
    def processed(self) -> int:
        """Prompt tokens really processed, by all requests together."""
        return sum(len(request.prompt) - request.cached for request in self.requests)


def _common(one: list[int], two: list[int]) -> int:
    for index, (a, b) in enumerate(zip(one, two, strict=False)):
        if a != b:
            return index
    return min(len(one), len(two))


def looks_up(prompt: str) -> str:
    """A perfect reader: continues the last line the way an earlier line with the same beginning went on."""
    *before, last = prompt.split("\n")
    for line in before:
        if last and line.startswith(last):
            return line[len(last) :] + "\nand so on"
    return ""


@dataclass
class Watcher:
    """Keeps what a `Progress` is told."""

    told: list[tuple[str, float, float, str]] = field(default_factory=list)

    def __call__(self, what: str, done: float, total: float, unit: str) -> None:
        self.told.append((what, done, total, unit))

    def check(self) -> None:
        """Never back, one total, and at the end the total."""
        done = [entry[1] for entry in self.told]
        assert done == sorted(done)
        assert len({entry[2] for entry in self.told}) == 1
        assert done[-1] == self.told[-1][2]
        assert all(what.rsplit(" ", 1)[1] in ("prefill", "decode") for what, *_ in self.told)
