"""Prompts of an exact depth, as token ids made by the engine's own tokenizer.

A prompt is a haystack (`head + nonce + filler with plants`) and a tail (the question). Several questions share
one haystack. It is sent once by itself before the first of them: an engine with a sliding window or a recurrent
state can only go back to where a prompt ended, and so the end of the haystack must have been one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from kvtui.core.errors import InputError, RequestError
from kvtui.probes.asking import Asking
from kvtui.probes.filler import Stream, records
from kvtui.probes.thinking import closing

_MARKER = "KVTUI-MARKER-7C1F"
_LINES_PER_REQUEST = 1000
_SPARE_CELLS = 8
"""Cells beyond prompt and answer: an engine stops when prompt + generated + 1 reaches the slot's size."""


@dataclass(frozen=True, slots=True)
class PromptStyle:
    """How a prompt opens and closes.

    `raw`: plain text that a base model continues, `head` is its BOS and `tail` empty. `chat`: the model's own
    template, split where the user's message stands; `tail` opens the assistant's turn.
    """

    kind: Literal["raw", "chat"]
    head: tuple[int, ...]
    tail: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plant:
    """A line to stand in the filler. `position` is where in the depth, 0.0 (start) to 1.0 (end)."""

    position: float
    text: str


@dataclass(frozen=True, slots=True)
class Haystack:
    """The part of a prompt that its questions share, as token ids from BOS on.

    `offsets` are the tokens at which the plants begin, in the order the plants were given.
    """

    ids: tuple[int, ...]
    offsets: tuple[int, ...]

    def upto(self, size: int) -> list[int]:
        """The first `size` token ids."""
        return list(self.ids[:size])


def raw_style(ask: Asking) -> PromptStyle:
    """The style for a base model."""
    return PromptStyle("raw", tuple(ask.tokenize("", add_special=True, parse_special=False)), ())


def chat_style(ask: Asking) -> PromptStyle:
    """The style for an instruct model, from its own chat template.

    Raises RequestError when the template does not carry the user's message through unchanged.
    """
    made = ask.apply_template([{"role": "user", "content": _MARKER}])
    before, found, after = made.partition(_MARKER)
    if not found or _MARKER in after:
        raise RequestError(
            "the chat template does not carry the message through once and unchanged", kind="template"
        )
    head = ask.tokenize(before, add_special=True, parse_special=True)
    tail = ask.tokenize(after + closing(after), add_special=False, parse_special=True)
    return PromptStyle("chat", tuple(head), tuple(tail))


def deepest(usable: int, n_predict: int) -> int:
    """The deepest prompt that leaves room for `n_predict` tokens in a slot of `usable` tokens; 0 when none does."""
    return max(usable - n_predict - _SPARE_CELLS, 0)


def nonce(*seed: int) -> str:
    """The first line of a prompt, so that two depths share nothing in a prompt cache."""
    stream = Stream(0x6E6F6E63, *seed)
    return f"{stream.between(10**11, 10**12 - 1):x} is the number of this file.\n"


def build_haystack(
    ask: Asking,
    style: PromptStyle,
    depth: int,
    *,
    seed: tuple[int, ...] = (),
    plants: Sequence[Plant] = (),
    keep_free: int = 0,
    opening: str = "",
) -> Haystack:
    """A haystack of exactly `depth` tokens, with every plant before the last `keep_free` of them.

    `seed` and `depth` make the nonce and the filler; `opening` is text that follows the nonce. A plant stands at
    the beginning of the line nearest before its position, or after the plant before it where they would overlap.
    Raises InputError when `depth` cannot hold the opening, the plants and what is to be kept free.
    """
    start = [*style.head, *plain(ask, nonce(depth, *seed) + opening)]
    planted = [plain(ask, plant.text.rstrip("\n") + "\n") for plant in plants]
    room = depth - keep_free
    free = room - len(start) - sum(map(len, planted))
    if free < 0:
        raise InputError(f"{depth} tokens cannot hold a prompt that needs {depth - free}")
    filler = _filler(ask, depth, (depth, *seed))
    line_end = plain(ask, "in order.\n")[-1]
    ids, offsets, used = list(start), [0] * len(plants), 0
    for index in sorted(range(len(plants)), key=lambda i: plants[i].position):
        gap = max(round(plants[index].position * depth) - len(ids), 0)
        gap = _line_end_before(filler, used, min(used + gap, free), line_end) - used
        ids += filler[used : used + gap]
        used += gap
        offsets[index] = len(ids)
        ids += planted[index]
    ids += filler[used : used + depth - len(ids)]
    return Haystack(tuple(ids), tuple(offsets))


def _line_end_before(filler: list[int], used: int, end: int, line_end: int) -> int:
    """The last line boundary of `filler` in `used`..`end`, which is `used` itself when no line ends between."""
    while end > used and filler[end - 1] != line_end:
        end -= 1
    return end


def plain(ask: Asking, text: str) -> list[int]:
    """Token ids of text that stands inside a prompt: nothing put before it, no control tokens read from it."""
    return ask.tokenize(text, add_special=False, parse_special=False)


def _filler(ask: Asking, size: int, seed: tuple[int, ...]) -> list[int]:
    """At least `size` tokens of records."""
    lines = records(*seed)
    ids: list[int] = []
    while len(ids) < size:
        wanted = min((size - len(ids)) // 12 + 1, _LINES_PER_REQUEST)
        more = plain(ask, "".join(line + "\n" for line in islice(lines, wanted)))
        if not more:
            raise RequestError("the engine's tokenizer returned nothing for plain text", kind="tokenizer")
        ids += more
    return ids
