"""The task suite put to an engine.

Each task stands at the end of a prompt of an exact depth, behind records of no importance. Base models get the
raw form (worked examples and the start of one more), instruct models the chat form (an instruction).
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Event
from typing import Literal

from kvtui.core.errors import InputError, RequestError
from kvtui.probes.asking import Asking, Completion, Progress, silent
from kvtui.probes.prompt import Plant, PromptStyle, build_haystack, deepest, plain
from kvtui.probes.results import TaskResult
from kvtui.probes.speed import Meter
from kvtui.probes.suite import TASKS, Suite, Task, own_task
from kvtui.probes.texts import PLANTED
from kvtui.probes.thinking import unfinished

N_PROBS = 4
"""Likeliest tokens told for each position, by which runs are compared."""
REASONING_TOKENS = 2048
"""Room for an answer whose reasoning did not end in the room a plain answer has."""
_PLANT = Plant(0.3, PLANTED)
_ASIDE = "Leave the records aside.\n\n"
_LEAST_FILLER = 48
"""Tokens before an own task at some depth: the opening and the first record."""


def run_tasks(
    ask: Asking,
    style: PromptStyle,
    suite: Suite,
    progress: Progress = silent,
    cancel: Event | None = None,
) -> tuple[TaskResult, ...]:
    """Every task of `suite` at its depths.

    A request that the engine refuses, or a depth too small for a task, becomes a result with `error`.
    Raises EngineGone and Cancelled.
    """
    groups = _groups(ask, style, suite)
    meter = Meter(progress, sum(group.tokens(style.kind) for group in groups))
    asking = _Questions(ask, style, suite, meter, cancel)
    return tuple(result for group in groups for result in asking.group(group))


@dataclass(frozen=True, slots=True)
class _Group:
    """Tasks that share a haystack of `depth` tokens, of which `kept_free` are not shared; 0: prompts as they stand.

    `tails` are the token ids of each task, what stands behind the haystack.
    """

    depth: int
    kept_free: int
    tasks: tuple[Task, ...]
    tails: tuple[list[int], ...]

    @property
    def shared(self) -> int:
        return self.depth - self.kept_free if self.depth else 0

    def tokens(self, kind: Literal["raw", "chat"]) -> int:
        """All that is processed and generated."""
        answers = sum(task.n_predict(kind) for task in self.tasks)
        return max(self.shared, 0) + sum(map(len, self.tails)) + answers


def _groups(ask: Asking, style: PromptStyle, suite: Suite) -> list[_Group]:
    """The built-in tasks by depth, own tasks among them where they fit, and then own tasks at depths of their own."""
    built_in = tuple(_tail(ask, style, task) for task in TASKS)
    longest = max(map(len, built_in))
    own = [(task, _tail(ask, style, task)) for task in map(own_task, suite.own)]
    behind: dict[int, list[tuple[Task, list[int]]]] = {depth: [] for depth in suite.depths}
    as_they_stand = []
    for task, tail in own:
        wanted = suite.depths if task.depth is None else (task.depth,)
        fitting = [depth for depth in wanted if len(tail) + _LEAST_FILLER + len(style.head) <= depth]
        for depth in fitting:
            behind.setdefault(depth, []).append((task, tail))
        if not fitting:
            as_they_stand.append((task, [*style.head, *plain(ask, task.raw), *style.tail]))
    groups = []
    for depth, more in behind.items():
        with_built_in = depth in suite.depths
        tasks = (*(TASKS if with_built_in else ()), *(task for task, _ in more))
        tails = (*(built_in if with_built_in else ()), *(tail for _, tail in more))
        kept_free = longest if with_built_in else max(map(len, tails))
        groups.append(_Group(depth, kept_free, tasks, tails))
    if as_they_stand:
        groups.append(_Group(0, 0, tuple(t for t, _ in as_they_stand), tuple(i for _, i in as_they_stand)))
    return groups


def _tail(ask: Asking, style: PromptStyle, task: Task) -> list[int]:
    aside = _ASIDE if task.own and style.kind == "chat" else ""
    text = task.raw if style.kind == "raw" else task.chat
    return [*plain(ask, f"\n\n{aside}{text}"), *style.tail]


@dataclass(frozen=True, slots=True)
class _Questions:
    """One suite at one engine."""

    ask: Asking
    style: PromptStyle
    suite: Suite
    meter: Meter
    cancel: Event | None

    def group(self, group: _Group) -> list[TaskResult]:
        """Every task of `group`. What they share is sent first, so that each finds it in the prompt cache."""
        pairs = list(zip(group.tasks, group.tails, strict=True))
        if not group.depth:
            return [self._one(task, tail, len(tail), cached=False) for task, tail in pairs]
        usable = self.suite.usable
        try:
            if usable is not None and group.depth >= usable:
                raise RequestError(f"a prompt of {group.depth:,} tokens leaves no room in {usable:,}")
            haystack = build_haystack(
                self.ask,
                self.style,
                group.depth,
                seed=(self.suite.seed,),
                plants=[_PLANT] if group.tasks[0] is TASKS[0] else [],
                keep_free=group.kept_free,
            )
            self.ask.complete(
                haystack.upto(group.shared),
                1,
                cache_prompt=not self.suite.fresh,
                on_progress=self.meter.prompt("tasks", group.shared),
                cancel=self.cancel,
            )
        except (RequestError, InputError) as error:
            self.meter.finish("tasks", group.tokens(self.style.kind))
            return [_refused(task, group.depth, str(error)) for task in group.tasks]
        self.meter.finish("tasks", group.shared)
        return [
            self._one(task, [*haystack.upto(group.depth - len(tail)), *tail], len(tail), cached=True)
            for task, tail in pairs
        ]

    def _one(self, task: Task, prompt: list[int], fresh_tokens: int, *, cached: bool) -> TaskResult:
        depth, n_predict = len(prompt), task.n_predict(self.style.kind)
        room = self._room(depth)
        try:
            if room is not None and room < 1:
                raise RequestError(f"a prompt of {depth:,} tokens leaves no room in {self.suite.usable:,}")
            answer = self._answer(
                task, prompt, fresh_tokens, n_predict if room is None else min(n_predict, room), cached
            )
            if _reasoning_only(answer) and room is not None and room > n_predict:
                answer = self._answer(task, prompt, fresh_tokens, min(room, REASONING_TOKENS), cached)
        except RequestError as error:
            return _refused(task, depth, str(error))
        finally:
            self.meter.finish(task.name, fresh_tokens + n_predict)
        if answer.truncated and not _reasoning_only(answer):
            made = answer.timing.generated_tokens
            return _refused(task, depth, f"the slot was full after {made} tokens of the answer")
        return _graded(task, depth, answer)

    def _room(self, depth: int) -> int | None:
        return None if self.suite.usable is None else deepest(self.suite.usable, depth)

    def _answer(
        self, task: Task, prompt: list[int], fresh_tokens: int, n_predict: int, cached: bool
    ) -> Completion:
        return self.ask.complete(
            prompt,
            n_predict,
            cache_prompt=cached,
            stop=task.stop if self.style.kind == "raw" else (),
            n_probs=N_PROBS,
            on_progress=self.meter.prompt(task.name, fresh_tokens),
            cancel=self.cancel,
        )


def _reasoning_only(answer: Completion) -> bool:
    """Whether all room went into reasoning that no answer followed."""
    if answer.stop_type not in ("limit", "length") and not answer.truncated:
        return False
    return unfinished(answer.text) or bool(answer.reasoning and not answer.text.strip())


def _graded(task: Task, depth: int, answer: Completion) -> TaskResult:
    ate_answer = _reasoning_only(answer)
    if ate_answer:
        why = f"reasoning took all {answer.timing.generated_tokens:,} tokens, no answer began"
    else:
        why = task.grade(answer.text) if task.grade is not None else ""
    return TaskResult(
        task=task.name,
        family=task.family,
        depth=depth,
        passed=not why,
        why=why,
        text=answer.text,
        tokens=answer.tokens,
        timing=answer.timing,
        graded=task.grade is not None,
        ate_answer=ate_answer,
        choices=answer.choices,
    )


def _refused(task: Task, depth: int, error: str) -> TaskResult:
    return TaskResult(
        task=task.name,
        family=task.family,
        depth=depth,
        passed=False,
        why="",
        text="",
        tokens=(),
        timing=None,
        error=error,
        graded=task.grade is not None,
    )
