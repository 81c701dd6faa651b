"""The task suite: exact depths, one prefill per depth, honest verdicts, and errors that stay results."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvtui.core.errors import Cancelled, EngineGone, RequestError
from kvtui.probes.divergence import compare
from kvtui.probes.own_tasks import OwnTask
from kvtui.probes.prompt import PromptStyle, chat_style, raw_style
from kvtui.probes.results import TASK_FAMILIES
from kvtui.probes.suite import TASKS, Suite
from kvtui.probes.tasks import run_tasks
from kvtui.probes.texts import PLANTED, RAW
from tests.probes.alone import task_depth
from tests.probes.fake import FakeEngine, Watcher

RIGHT = {
    "retrieval": " 5926.",
    "code-edit": "def is_freight(weight, length):\n    return weight >= 30 or length >= 200\n###",
    "tool-selection": ' {"tool": "set_timer", "arguments": {"minutes": 25}}',
    "long-instruction": "1. Copper - ok\n2. Glass - ok\n3. Wool - ok\n4. Paper - ok\nOVER\n\n",
}
Styler = Callable[[FakeEngine], PromptStyle]


def family_of(prompt: str) -> str:
    tails = {family: RAW[family][-20:] for family in TASK_FAMILIES}
    return next((family for family, tail in tails.items() if prompt.endswith(tail)), "")


def expert() -> FakeEngine:
    ask = FakeEngine()
    ask.reply = lambda prompt: RIGHT.get(family_of(prompt), "")
    return ask


def test_the_right_answers_pass_at_every_depth() -> None:
    ask, watcher = expert(), Watcher()
    results = run_tasks(ask, raw_style(ask), Suite((400, 1500)), progress=watcher)
    assert [(r.depth, r.task) for r in results] == [(d, f) for d in (400, 1500) for f in TASK_FAMILIES]
    assert [(r.passed, r.why, r.error) for r in results] == [(True, "", "")] * 8
    watcher.check()


def test_prompts_have_exactly_the_depth() -> None:
    ask = expert()
    results = run_tasks(ask, raw_style(ask), Suite((400, 1500)))
    assert [r.timing.prompt_tokens for r in results if r.timing] == [400] * 4 + [1500] * 4


def test_a_model_that_says_nothing_fails_everything_and_says_why() -> None:
    ask = FakeEngine()
    results = run_tasks(ask, raw_style(ask), Suite((400,)))
    assert not any(r.passed for r in results)
    assert all(r.why and not r.error for r in results)
    assert all(r.timing for r in results)


def test_one_prefill_serves_all_tasks_of_a_depth() -> None:
    ask = expert()
    run_tasks(ask, raw_style(ask), Suite((4000,)))
    assert ask.processed < 4000 + 4 * 250
    first = ask.requests[0]
    assert all(r.prompt[: len(first.prompt)] == first.prompt for r in ask.requests)


def test_the_fact_to_retrieve_stands_in_what_all_tasks_share() -> None:
    ask = expert()
    run_tasks(ask, raw_style(ask), Suite((1500,)))
    shared = ask.text(ask.requests[0].prompt)
    assert shared.count(PLANTED) == 1
    assert 300 < len(ask.tokenize(shared.split(PLANTED)[0], add_special=True, parse_special=False)) < 500


def test_base_models_get_stop_words_and_a_whole_suite_generates_little() -> None:
    ask = expert()
    run_tasks(ask, raw_style(ask), Suite((400,)))
    assert all(r.stop for r in ask.requests[1:])
    assert sum(task.n_predict("raw") for task in TASKS) <= 200


def test_instruct_models_get_their_template_and_no_stop_words() -> None:
    ask = FakeEngine()
    results = run_tasks(ask, chat_style(ask), Suite((400,)))
    for request in ask.requests[1:]:
        assert ask.text(request.prompt).startswith("<bos><|user|>")
        assert ask.text(request.prompt).endswith("<|end|><|assistant|>")
        assert len(request.prompt) == 400
        assert request.stop == ()
    assert len(results) == 4


def test_a_depth_too_small_for_the_suite_is_an_error_of_its_tasks_alone() -> None:
    ask = expert()
    results = run_tasks(ask, raw_style(ask), Suite((100, 400)))
    assert all("100 tokens cannot hold" in r.error for r in results[:4])
    assert all(r.passed for r in results[4:])


def test_a_depth_beyond_the_slot_is_an_error_of_its_tasks_alone() -> None:
    ask, watcher = expert(), Watcher()
    ask.slot = 600
    results = run_tasks(ask, raw_style(ask), Suite((400, 1500)), progress=watcher)
    assert all(r.passed for r in results[:4])
    for r in results[4:]:
        assert "exceeds" in r.error
        assert (r.passed, r.tokens, r.timing) == (False, (), None)
    watcher.check()


def test_an_answer_cut_short_by_a_full_slot_is_not_the_models_failure() -> None:
    ask = expert()
    ask.slot = 410
    results = run_tasks(ask, raw_style(ask), Suite((400,)))
    assert [r.error for r in results] == ["", *["the slot was full after 9 tokens of the answer"] * 3]
    assert not any(r.why for r in results)


def test_one_refused_task_leaves_the_others() -> None:
    ask = expert()
    calls = iter(range(100))

    def third_fails() -> None:
        if next(calls) == 3:
            raise RequestError("busy")

    ask.before_answer = third_fails
    results = run_tasks(ask, raw_style(ask), Suite((400,)))
    assert [r.error for r in results] == ["", "", "busy", ""]


@pytest.mark.parametrize("error", [EngineGone("it died"), Cancelled()])
def test_the_end_of_the_engine_or_of_the_work_is_no_result(error: Exception) -> None:
    def fail() -> None:
        raise error

    ask = FakeEngine(before_answer=fail)
    with pytest.raises(type(error)):
        run_tasks(ask, raw_style(ask), Suite((400,)))


@pytest.mark.parametrize("styler", [raw_style, chat_style])
def test_task_depth_never_overfills_the_slot(styler: Styler) -> None:
    ask = FakeEngine(lambda prompt: "a b c d " * 100, slot=1024)
    style = styler(ask)
    results = run_tasks(ask, style, Suite((task_depth(1024, style),)))
    assert not any(r.error or (r.timing and r.timing.truncated) for r in results)


def test_the_answer_is_in_no_raw_prompt_but_the_planted_one() -> None:
    for family, answer in RIGHT.items():
        assert answer.split("\n\n")[0].strip(" #\n") not in RAW[family]  # type: ignore[index]


def test_own_tasks_stand_behind_the_same_haystack_or_as_they_are() -> None:
    ask, watcher = expert(), Watcher()
    said = dict(RIGHT)
    ask.reply = lambda prompt: (
        said.get(family_of(prompt)) or ("all is well" if prompt.endswith("Report.") else "")
    )
    own = (
        OwnTask("graded", "Report.", ("well",)),
        OwnTask("ungraded", "Tell me."),
        OwnTask("deep", "Report.", ("missing",), depth=2000),
        OwnTask("bare", "Report.", depth=0),
        OwnTask("long", "word " * 500 + "Report."),
    )
    results = run_tasks(ask, raw_style(ask), Suite((400, 800), own, usable=4096), progress=watcher)
    made = {(r.task, r.depth): r for r in results if r.family == "own"}
    bare, long = (next(r.depth for r in results if r.task == name) for name in ("bare", "long"))
    assert set(made) == {
        *((name, depth) for name in ("graded", "ungraded") for depth in (400, 800)),
        ("deep", 2000),
        ("bare", bare),
        ("long", long),
    }
    assert (bare, long > 500) == (3, True)
    assert [made["graded", d].passed for d in (400, 800)] == [True, True]
    assert [(made["ungraded", d].passed, made["ungraded", d].graded) for d in (400, 800)] == [
        (True, False)
    ] * 2
    assert made["deep", 2000].why == "misses missing"
    assert all(r.timing and r.timing.prompt_tokens == r.depth for r in results)
    assert len([r for r in results if r.family != "own"]) == 8
    prompts = [ask.text(r.prompt) for r in ask.requests]
    alone = expert()
    run_tasks(alone, raw_style(alone), Suite((400, 800)))
    assert {alone.text(r.prompt) for r in alone.requests} <= set(prompts)
    watcher.check()


def test_an_own_task_that_does_not_fit_is_an_error_of_its_own() -> None:
    ask = expert()
    own = (
        OwnTask("long", "word " * 510),
        OwnTask("wordy", "Report.", answer_tokens=300),
        OwnTask("abyss", "Report.", depth=1 << 40),
    )
    results = run_tasks(ask, raw_style(ask), Suite((400,), own, usable=512))
    assert "leaves no room in 512" in next(r.error for r in results if r.task == "abyss")
    assert "leaves no room in 512" in next(r.error for r in results if r.task == "long")
    assert [r.n_predict for r in ask.requests if r.n_predict > 60] == [512 - 400 - 8]
    assert all(r.passed for r in results if r.family != "own")


def test_reasoning_gets_more_room_once_and_is_named_when_it_eats_that_too() -> None:
    ask = expert()
    thought = "<think>" + "hm " * 300 + "</think>"
    ask.reply = lambda prompt: thought + RIGHT.get(family_of(prompt), "")
    results = run_tasks(ask, raw_style(ask), Suite((400,), usable=4096))
    assert [r.passed for r in results] == [True, True, True, True]
    results = run_tasks(ask, raw_style(ask), Suite((400,), usable=600))
    assert {(r.passed, r.ate_answer, r.error) for r in results} == {(False, True, "")}
    assert results[0].why == "reasoning took all 192 tokens, no answer began"
    results = run_tasks(ask, raw_style(ask), Suite((400,)))
    assert [r.why for r in results[:1]] == ["reasoning took all 10 tokens, no answer began"]


def test_a_second_suite_is_processed_anew_when_it_must_be_fresh() -> None:
    ask = expert()
    first = run_tasks(ask, raw_style(ask), Suite((1500,), fresh=True))
    processed = ask.processed
    assert run_tasks(ask, raw_style(ask), Suite((1500,), fresh=True)) == first
    assert ask.processed == 2 * processed
    assert [d.first_token for d in compare(first, first, first)] == [None] * 4
