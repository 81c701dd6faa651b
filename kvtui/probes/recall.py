"""Recall at depth: facts planted in one haystack, each asked for, graded by code.

The haystack is processed once, and its processing is the speed measurement of the same depth: at 128K tokens
a prefill takes minutes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event
from time import monotonic

from kvtui.probes.asking import Asking, Progress, silent
from kvtui.probes.filler import Stream
from kvtui.probes.prompt import Haystack, Plant, PromptStyle, build_haystack, deepest, plain
from kvtui.probes.results import NeedleResult, RecallResult, SpeedResult
from kvtui.probes.speed import Meter, summarise, timed_prefill

_COLOURS = (
    "amber", "red", "blue", "green", "silver", "brown", "yellow", "purple", "white", "black",
    "golden", "grey", "pink", "orange", "violet", "ivory",
)  # fmt: skip
_OBJECTS = (
    "lantern", "kettle", "ladder", "anchor", "basket", "drum", "bell", "whistle", "button", "kite",
    "bottle", "saddle", "thimble", "flute", "cushion", "mirror", "hammer", "ribbon", "candle", "wheel",
)  # fmt: skip
_ANSWER_TOKENS = {"raw": 8, "chat": 24}
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Fact:
    """A planted fact: the code of a thing."""

    key: str
    code: str

    @property
    def sentence(self) -> str:
        """The line that stands in the haystack."""
        return f"The code of the {self.key} is {self.code}."


def measure_recall(
    ask: Asking,
    style: PromptStyle,
    depth: int,
    positions: Sequence[float],
    seed: int = 0,
    progress: Progress = silent,
    cancel: Event | None = None,
) -> RecallResult:
    """Plant a fact at each of `positions` of a haystack of `depth` tokens and ask for each.

    Raises what `Asking` raises, and ValueError when `depth` is too small for the facts.
    """
    planted = _plant(ask, style, depth, positions, seed)
    meter = Meter(progress, depth + planted.question_tokens)
    started = monotonic()
    ask.complete(
        list(planted.haystack.ids),
        1,
        cache_prompt=True,
        on_progress=meter.prompt("recall", depth),
        cancel=cancel,
    )
    meter.finish("recall", depth)
    return _ask_all(ask, depth, planted, meter, started, cancel)


def measure_depth(
    ask: Asking,
    style: PromptStyle,
    depth: int,
    positions: Sequence[float],
    n_decode: int,
    repeats: int = 1,
    seed: int = 0,
    progress: Progress = silent,
    cancel: Event | None = None,
) -> tuple[SpeedResult, RecallResult]:
    """Speed and recall at `depth` for the price of one prefill.

    The haystack is processed with the cache off and `n_decode` tokens are decoded; further `repeats` decode
    again on the cached haystack. The slot must be as large as `depth_for` assumes. Raises as `measure_recall`.
    """
    planted = _plant(ask, style, depth, positions, seed)
    total = depth + repeats * n_decode + planted.question_tokens
    meter = Meter(progress, total)
    prompt = list(planted.haystack.ids)
    timings = [timed_prefill(ask, prompt, n_decode, meter, cancel).timing]
    for _ in range(repeats - 1):
        answer = ask.complete(prompt, n_decode, cache_prompt=True, ignore_eos=True, cancel=cancel)
        meter.finish("speed", n_decode)
        timings.append(answer.timing)
    recall = _ask_all(ask, depth, planted, meter, monotonic(), cancel)
    return summarise(depth, n_decode, timings), recall


def depth_for(ask: Asking, style: PromptStyle, usable: int, n_decode: int) -> int:
    """The deepest haystack for `measure_depth` in a slot of `usable` tokens, 0 when there is none."""
    longest = max((f"{a} {b}" for a in _COLOURS for b in _OBJECTS), key=len)
    question = len(_question(ask, style, longest)) + _ANSWER_TOKENS[style.kind]
    return deepest(usable, max(n_decode, question + 8))


def grade(answer: str, expected: str) -> bool:
    """True when the first number in `answer` is `expected`."""
    first = _DIGITS.search(answer.rpartition("</think>")[2])
    return first is not None and first.group() == expected


@dataclass(frozen=True, slots=True)
class _Planted:
    haystack: Haystack
    facts: tuple[Fact, ...]
    positions: tuple[float, ...]
    questions: tuple[list[int], ...]
    n_answer: int

    @property
    def question_tokens(self) -> int:
        return sum(len(q) + self.n_answer for q in self.questions)


def _plant(ask: Asking, style: PromptStyle, depth: int, positions: Sequence[float], seed: int) -> _Planted:
    facts, decoys = _facts(len(positions), depth, seed)
    plants = [Plant(p, fact.sentence) for p, fact in zip(positions, facts, strict=True)]
    plants += [Plant((i + 0.5) / len(decoys), decoy.sentence) for i, decoy in enumerate(decoys)]
    opening = "These are the records of the week.\n" if style.kind == "raw" else _CHAT_OPENING
    haystack = build_haystack(ask, style, depth, seed=(seed,), plants=plants, opening=opening)
    questions = tuple(_question(ask, style, fact.key) for fact in facts)
    return _Planted(haystack, tuple(facts), tuple(positions), questions, _ANSWER_TOKENS[style.kind])


_CHAT_OPENING = "Read these records. A question about them follows.\n\n"


def _facts(count: int, depth: int, seed: int) -> tuple[list[Fact], list[Fact]]:
    """`count` facts to ask for, and distractors of the same form: two per fact where the depth has room.

    No two things share a colour or an object unless the words run out, no two codes are the same.
    """
    n_decoys = min(2 * count, depth // 100)
    stream = Stream(0x66616374, seed, depth)
    colours = stream.sample(_COLOURS, len(_COLOURS))
    objects = stream.sample(_OBJECTS, len(_OBJECTS))
    facts, used = [], set[str]()
    for index in range(count + n_decoys):
        code = str(stream.between(1000, 9999))
        while code in used:
            code = str(stream.between(1000, 9999))
        used.add(code)
        colour = colours[(index + index // len(objects)) % len(colours)]
        facts.append(Fact(f"{colour} {objects[index % len(objects)]}", code))
    return facts[:count], facts[count:]


def _question(ask: Asking, style: PromptStyle, key: str) -> list[int]:
    if style.kind == "raw":
        return plain(ask, f"\n\nThe code of the {key} is")
    text = f"\n\nWhat is the code of the {key}? Answer with the number alone."
    return [*plain(ask, text), *style.tail]


def _ask_all(
    ask: Asking, depth: int, planted: _Planted, meter: Meter, started: float, cancel: Event | None
) -> RecallResult:
    needles = []
    stop = ("\n",) if planted.n_answer == _ANSWER_TOKENS["raw"] else ()
    each = zip(planted.positions, planted.haystack.offsets, planted.facts, planted.questions, strict=False)
    for position, offset, fact, question in each:
        answer = ask.complete(
            [*planted.haystack.ids, *question],
            planted.n_answer,
            cache_prompt=True,
            stop=stop,
            on_progress=meter.prompt("recall", len(question)),
            cancel=cancel,
        )
        meter.finish("recall", len(question) + planted.n_answer)
        found = grade(answer.text, fact.code)
        needles.append(NeedleResult(position, offset, fact.key, fact.code, answer.text.strip(), found))
    return RecallResult(depth, tuple(needles), monotonic() - started)
