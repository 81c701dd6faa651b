"""What a probe needs of a running engine. Probes know this protocol and no HTTP client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import Protocol

from kvtui.probes.results import Choice, Timing

Progress = Callable[[str, float, float, str], None]
"""`progress(what, done, total, unit)`. `done` never decreases within one probe and ends at `total`.

`what` ends in the phase the engine is in: `prefill` or `decode` (`speed prefill`, `recall decode`).
"""


def silent(what: str, done: float, total: float, unit: str) -> None:
    """The `Progress` of a caller that does not watch."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One greedy answer. `tokens` are the generated ids without the prompt, empty where the engine tells none.

    `stop_type` is the engine's word for why it ended: `eos`, `limit`, `word`. `truncated`: the slot was full.
    `choices` are the likeliest tokens by position, where they were asked for and told. `reasoning` is text that the
    engine itself told apart from the answer.
    """

    text: str
    tokens: tuple[int, ...]
    timing: Timing
    stop_type: str
    truncated: bool
    choices: tuple[Choice, ...] = ()
    reasoning: str = ""


class Asking(Protocol):
    """Requests to one running engine. Sampling is greedy with a fixed seed.

    Every method raises RequestError (refused, rubbish, too late), EngineGone or Cancelled.
    """

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids of `text`; `add_special` puts the model's BOS first, `parse_special` reads control tokens."""
        ...

    def apply_template(self, messages: list[dict[str, str]]) -> str:
        """The prompt that the model's chat template makes of `messages`, thinking switched off where it can be."""
        ...

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
        """Process `prompt` and generate up to `n_predict` tokens.

        `n_probs` asks for that many of the likeliest tokens at each position; an engine that cannot tell them
        answers without, and telling them costs it time. `on_progress(processed, total, seconds)` is called while
        the prompt is processed, in tokens.
        """
        ...
