"""The task suite: four families of small fixed prompts with answers that code can check.

Each task stands at the end of a prompt of an exact depth, behind records of no importance. Base models get the
raw form (worked examples and the start of one more), instruct models the chat form (an instruction).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event
from typing import Literal

from kvtui.core.errors import InputError, RequestError
from kvtui.probes import graders
from kvtui.probes.asking import Asking, Progress, silent
from kvtui.probes.prompt import Haystack, Plant, PromptStyle, build_haystack, deepest, plain
from kvtui.probes.results import TaskFamily, TaskResult
from kvtui.probes.speed import Meter
from kvtui.probes.texts import CHAT, PLANTED, RAW

_PLANT = Plant(0.3, PLANTED)
_FREIGHT = (
    ((29, 199), False),
    ((30, 0), True),
    ((0, 200), True),
    ((31, 201), True),
    ((0, 0), False),
)


@dataclass(frozen=True, slots=True)
class Task:
    """One task. `n_predict` is the room for its answer in tokens, `stop` ends an answer of the raw form."""

    family: TaskFamily
    grade: graders.Grader
    n_predict_raw: int
    n_predict_chat: int
    stop: tuple[str, ...]

    def n_predict(self, kind: Literal["raw", "chat"]) -> int:
        """Tokens that the answer may have in the style `kind`."""
        return self.n_predict_raw if kind == "raw" else self.n_predict_chat


TASKS: tuple[Task, ...] = (
    Task("retrieval", graders.number("5926"), 10, 32, ("\n",)),
    Task(
        "code-edit",
        graders.function("is_freight", _FREIGHT),
        48,
        128,
        ("###",),
    ),
    Task(
        "tool-selection",
        graders.tool_call("set_timer", {"minutes": 25}),
        40,
        96,
        ("\n",),
    ),
    Task(
        "long-instruction",
        graders.numbered_list(("copper", "glass", "wool", "paper"), " - ok", "OVER"),
        40,
        96,
        ("\n\n",),
    ),
)


def run_tasks(
    ask: Asking,
    style: PromptStyle,
    depths: Sequence[int],
    seed: int = 0,
    progress: Progress = silent,
    cancel: Event | None = None,
) -> tuple[TaskResult, ...]:
    """Every task at every one of `depths`, the number of tokens in each prompt.

    A request that the engine refuses, or a depth too small for the suite, becomes a result with `error`.
    Raises EngineGone and Cancelled.
    """
    tails = [_tail(ask, style, task) for task in TASKS]
    longest = max(map(len, tails))
    tail_tokens = sum(len(tail) + task.n_predict(style.kind) for task, tail in zip(TASKS, tails, strict=True))
    meter = Meter(progress, sum(depth - longest + tail_tokens for depth in depths))
    suite = _Suite(ask, style, tuple(tails), tail_tokens, seed, meter, cancel)
    return tuple(result for depth in depths for result in suite.at(depth))


def task_depth(usable: int, style: PromptStyle) -> int:
    """The deepest prompt for the suite in a slot of `usable` tokens, 0 when there is none."""
    return deepest(usable, max(task.n_predict(style.kind) for task in TASKS))


@dataclass(frozen=True, slots=True)
class _Suite:
    """All tasks for one engine.

    `tails` are the token ids of each task, what stands behind the haystack; `tail_tokens` counts them with the
    room for their answers.
    """

    ask: Asking
    style: PromptStyle
    tails: tuple[list[int], ...]
    tail_tokens: int
    seed: int
    meter: Meter
    cancel: Event | None

    def at(self, depth: int) -> list[TaskResult]:
        """Every task at `depth`. What they share is sent first, so that each finds it in the prompt cache."""
        longest = max(map(len, self.tails))
        shared = depth - longest
        try:
            haystack = build_haystack(
                self.ask, self.style, depth, seed=(self.seed,), plants=[_PLANT], keep_free=longest
            )
            on_progress = self.meter.prompt("tasks", shared)
            self.ask.complete(
                haystack.upto(shared), 1, cache_prompt=True, on_progress=on_progress, cancel=self.cancel
            )
        except (RequestError, InputError) as error:
            self.meter.finish("tasks", shared + self.tail_tokens)
            return [_refused(task, depth, str(error)) for task in TASKS]
        self.meter.finish("tasks", shared)
        return [self._one(task, depth, haystack, tail) for task, tail in zip(TASKS, self.tails, strict=True)]

    def _one(self, task: Task, depth: int, haystack: Haystack, tail: list[int]) -> TaskResult:
        n_predict = task.n_predict(self.style.kind)
        try:
            answer = self.ask.complete(
                [*haystack.upto(depth - len(tail)), *tail],
                n_predict,
                cache_prompt=True,
                stop=task.stop if self.style.kind == "raw" else (),
                on_progress=self.meter.prompt(task.family, len(tail)),
                cancel=self.cancel,
            )
        except RequestError as error:
            return _refused(task, depth, str(error))
        finally:
            self.meter.finish(task.family, len(tail) + n_predict)
        if answer.truncated:
            return _refused(task, depth, f"the slot was full after {len(answer.tokens)} tokens of the answer")
        why = task.grade(answer.text)
        return TaskResult(
            task=task.family,
            family=task.family,
            depth=depth,
            passed=not why,
            why=why,
            text=answer.text,
            tokens=answer.tokens,
            timing=answer.timing,
        )


def _refused(task: Task, depth: int, error: str) -> TaskResult:
    return TaskResult(
        task=task.family,
        family=task.family,
        depth=depth,
        passed=False,
        why="",
        text="",
        tokens=(),
        timing=None,
        error=error,
    )


def _tail(ask: Asking, style: PromptStyle, task: Task) -> list[int]:
    if style.kind == "raw":
        return plain(ask, "\n\n" + RAW[task.family])
    return [*plain(ask, "\n\n" + CHAT[task.family]), *style.tail]
