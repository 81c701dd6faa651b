"""Recall at depth: facts planted in one haystack, each asked for, graded by code. The haystack is processed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event
from time import monotonic

from kvtui.probes.asking import Asking
from kvtui.probes.filler import Stream
from kvtui.probes.graders import number
from kvtui.probes.prompt import Haystack, Plant, PromptStyle, build_haystack, plain
from kvtui.probes.results import NeedleResult, RecallResult
from kvtui.probes.speed import Meter

_COLOURS = (
    "amber", "red", "blue", "green", "silver", "brown", "yellow", "purple", "white", "black",
    "golden", "grey", "pink", "orange", "violet", "ivory",
)  # fmt: skip
_OBJECTS = (
    "lantern", "kettle", "ladder", "anchor", "basket", "drum", "bell", "whistle", "button", "kite",
    "bottle", "saddle", "thimble", "flute", "cushion", "mirror", "hammer", "ribbon", "candle", "wheel",
)  # fmt: skip
_LONGEST_KEY = f"{max(_COLOURS, key=len)} {max(_OBJECTS, key=len)}"
_DECOY_SHARE = 1 / 6
POSITIONS = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)
"""Where facts stand in the depth: near the start above all, which is the first to be lost."""
_OPENING = {
    "raw": "These are the records of the week.\n",
    "chat": "Read these records. A question about them follows.\n\n",
}
_QUESTION = {
    "raw": "\n\nThe code of the {} is",
    "chat": "\n\nWhat is the code of the {}? Answer with the number alone.",
}
_ANSWER_TOKENS = {"raw": 8, "chat": 24}
_STOP: dict[str, tuple[str, ...]] = {"raw": ("\n",), "chat": ()}


@dataclass(frozen=True, slots=True)
class Fact:
    """The code of a thing, as it is planted and asked for."""

    key: str
    code: str

    @property
    def sentence(self) -> str:
        """The line that stands in the haystack."""
        return f"The code of the {self.key} is {self.code}."


@dataclass(frozen=True, slots=True)
class Planted:
    """A haystack of `depth` tokens that holds `facts` at `positions`; `questions` are token ids that follow it."""

    depth: int
    haystack: Haystack
    facts: tuple[Fact, ...]
    positions: tuple[float, ...]
    questions: tuple[list[int], ...]
    n_answer: int
    stop: tuple[str, ...]

    @property
    def question_tokens(self) -> int:
        """Tokens of all questions and their answers together."""
        return sum(len(question) + self.n_answer for question in self.questions)


def plant(ask: Asking, style: PromptStyle, depth: int, positions: Sequence[float], seed: int) -> Planted:
    """A haystack with a fact at each of `positions`, distractors of the same form between them, and the questions.

    Two distractors to a fact, fewer where they would take more than a sixth of the depth. Raises InputError when
    `depth` is too small for the facts.
    """
    sentence = len(plain(ask, Fact(_LONGEST_KEY, "1234").sentence))
    n_decoys = min(2 * len(positions), int(depth * _DECOY_SHARE) // sentence)
    facts, decoys = invent(len(positions), n_decoys, (seed, depth))
    plants = [Plant(position, fact.sentence) for position, fact in zip(positions, facts, strict=True)]
    plants += [Plant((i + 0.5) / len(decoys), decoy.sentence) for i, decoy in enumerate(decoys)]
    return Planted(
        depth=depth,
        haystack=build_haystack(ask, style, depth, seed=(seed,), plants=plants, opening=_OPENING[style.kind]),
        facts=tuple(facts),
        positions=tuple(positions),
        questions=tuple(_question(ask, style, fact.key) for fact in facts),
        n_answer=_ANSWER_TOKENS[style.kind],
        stop=_STOP[style.kind],
    )


def ask_all(
    ask: Asking, planted: Planted, meter: Meter, started: float, cancel: Event | None = None
) -> RecallResult:
    """Ask every question on a haystack that the engine has just processed. `started` is by `monotonic`."""
    needles = []
    for index, (fact, question) in enumerate(zip(planted.facts, planted.questions, strict=True)):
        answer = ask.complete(
            [*planted.haystack.ids, *question],
            planted.n_answer,
            cache_prompt=True,
            stop=planted.stop,
            on_progress=meter.prompt("recall", len(question)),
            cancel=cancel,
        )
        meter.finish("recall", len(question) + planted.n_answer)
        needles.append(
            NeedleResult(
                position=planted.positions[index],
                token_offset=planted.haystack.offsets[index],
                key=fact.key,
                expected=fact.code,
                answer=answer.text.strip(),
                found=not number(fact.code)(answer.text),
            )
        )
    return RecallResult(planted.depth, tuple(needles), monotonic() - started)


def question_room(ask: Asking, style: PromptStyle) -> int:
    """Tokens that the longest question and its answer take behind a haystack, with some to spare."""
    return len(_question(ask, style, _LONGEST_KEY)) + _ANSWER_TOKENS[style.kind] + 8


def invent(count: int, n_decoys: int, seed: tuple[int, ...]) -> tuple[list[Fact], list[Fact]]:
    """`count` facts to ask for and `n_decoys` like them, all with keys and codes of their own.

    Up to sixteen of them share no word.
    """
    stream = Stream(0x66616374, *seed)
    colours = stream.sample(_COLOURS, len(_COLOURS))
    objects = stream.sample(_OBJECTS, len(_OBJECTS))
    codes: list[str] = []
    while len(codes) < count + n_decoys:
        code = str(stream.between(1000, 9999))
        if code not in codes:
            codes.append(code)
    facts = []
    for index, code in enumerate(codes):
        colour = colours[(index + index // len(objects)) % len(colours)]
        facts.append(Fact(f"{colour} {objects[index % len(objects)]}", code))
    return facts[:count], facts[count:]


def _question(ask: Asking, style: PromptStyle, key: str) -> list[int]:
    return [*plain(ask, _QUESTION[style.kind].format(key)), *style.tail]
