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
        graders.function("fee", [((9,), 5), ((10,), 5), ((11,), 9)]),
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
        graders.bullets(("copper", "glass", "wool", "paper"), "OVER"),
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
    n_answers = sum(task.n_predict(style.kind) for task in TASKS)
    tails = [_tail(ask, style, task) for task in TASKS]
    longest = max(map(len, tails))
    per_depth = [depth - longest + sum(map(len, tails)) + n_answers for depth in depths]
    meter = Meter(progress, sum(per_depth))
    results: list[TaskResult] = []
    for depth in depths:
        results += _suite(ask, style, depth, tails, seed, meter, cancel)
    return tuple(results)


def task_depth(usable: int, style: PromptStyle) -> int:
    """The deepest prompt for the suite in a slot of `usable` tokens, 0 when there is none."""
    return deepest(usable, max(task.n_predict(style.kind) for task in TASKS))


def _suite(
    ask: Asking,
    style: PromptStyle,
    depth: int,
    tails: list[list[int]],
    seed: int,
    meter: Meter,
    cancel: Event | None,
) -> list[TaskResult]:
    longest = max(map(len, tails))
    try:
        haystack = build_haystack(ask, style, depth, seed=(seed,), plants=[_PLANT], keep_free=longest)
        shared = haystack.upto(depth - longest)
        ask.complete(
            shared, 1, cache_prompt=True, on_progress=meter.prompt("tasks", len(shared)), cancel=cancel
        )
    except (RequestError, InputError) as error:
        return [_refused(task, depth, str(error)) for task in TASKS]
    meter.finish("tasks", len(shared))
    return [
        _one(ask, style, task, depth, haystack, tail, meter, cancel)
        for task, tail in zip(TASKS, tails, strict=True)
    ]


def _one(
    ask: Asking,
    style: PromptStyle,
    task: Task,
    depth: int,
    haystack: Haystack,
    tail: list[int],
    meter: Meter,
    cancel: Event | None,
) -> TaskResult:
    n_predict = task.n_predict(style.kind)
    try:
        answer = ask.complete(
            [*haystack.upto(depth - len(tail)), *tail],
            n_predict,
            cache_prompt=True,
            stop=task.stop if style.kind == "raw" else (),
            on_progress=meter.prompt(task.family, len(tail)),
            cancel=cancel,
        )
    except RequestError as error:
        return _refused(task, depth, str(error))
    meter.finish(task.family, len(tail) + n_predict)
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
