"""What the task suite is made of: four families of small fixed prompts, and the operator's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvtui.probes import graders
from kvtui.probes.own_tasks import OwnTask
from kvtui.probes.results import TaskFamily
from kvtui.probes.texts import CHAT, RAW

_FREIGHT = (
    ((29, 199), False),
    ((30, 0), True),
    ((0, 200), True),
    ((31, 201), True),
    ((0, 0), False),
)


@dataclass(frozen=True, slots=True)
class Task:
    """One task. `n_predict_*` is the room for its answer in tokens, `stop` ends an answer of the raw form.

    `grade` is None for a task that counts for divergence only. `depth` is the operator's: None for each depth of the
    suite, 0 for the prompt as it stands.
    """

    name: str
    family: TaskFamily
    grade: graders.Grader | None
    n_predict_raw: int
    n_predict_chat: int
    stop: tuple[str, ...]
    raw: str
    chat: str
    own: bool = False
    depth: int | None = None

    def n_predict(self, kind: Literal["raw", "chat"]) -> int:
        """Tokens that the answer may have in the style `kind`."""
        return self.n_predict_raw if kind == "raw" else self.n_predict_chat


def _built_in(family: TaskFamily, grade: graders.Grader, raw: int, chat: int, stop: tuple[str, ...]) -> Task:
    return Task(family, family, grade, raw, chat, stop, RAW[family], CHAT[family])


TASKS: tuple[Task, ...] = (
    _built_in("retrieval", graders.number("5926"), 10, 32, ("\n",)),
    _built_in("code-edit", graders.function("is_freight", _FREIGHT), 48, 128, ("###",)),
    _built_in("tool-selection", graders.tool_call("set_timer", {"minutes": 25}), 40, 96, ("\n",)),
    _built_in(
        "long-instruction",
        graders.numbered_list(("copper", "glass", "wool", "paper"), " - ok", "OVER"),
        40,
        96,
        ("\n\n",),
    ),
)


def own_task(task: OwnTask) -> Task:
    """A task of the operator's as one of the suite."""
    grade = graders.expectation(task.expect) if task.expect else None
    n = task.answer_tokens
    return Task(task.name, task.family, grade, n, n, (), task.prompt, task.prompt, True, task.depth)


@dataclass(frozen=True, slots=True)
class Suite:
    """What to ask: the built-in tasks at each of `depths` (tokens in each prompt), and the `own` tasks.

    `usable` is what a slot holds, None where that is not known. `fresh`: nothing of an earlier request may be used,
    so that asking a second time says whether outputs repeat.
    """

    depths: tuple[int, ...]
    own: tuple[OwnTask, ...] = ()
    usable: int | None = None
    fresh: bool = False
    seed: int = 0
