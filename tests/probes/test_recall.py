"""Recall: what a reader can see it finds, what it cannot see it does not, and a distractor is no answer."""

from __future__ import annotations

import pytest

from kvtui.core.errors import InputError, RequestError
from kvtui.probes.depth import depth_for, measure_depth
from kvtui.probes.prompt import chat_style, raw_style
from kvtui.probes.recall import invent
from tests.probes.alone import measure_recall
from tests.probes.fake import DECODE_TPS, PROMPT_TPS, FakeEngine, Watcher, looks_up

POSITIONS = (0.02, 0.25, 0.5, 0.75, 0.98)


def test_a_perfect_reader_finds_every_fact() -> None:
    ask, watcher = FakeEngine(looks_up), Watcher()
    result = measure_recall(ask, raw_style(ask), 2000, POSITIONS, progress=watcher)
    assert [n.found for n in result.needles] == [True] * 5
    assert [n.answer for n in result.needles] == [f"{n.expected}." for n in result.needles]
    assert result.depth == 2000
    watcher.check()


def test_a_reader_who_sees_the_end_alone_finds_what_stands_there() -> None:
    ask = FakeEngine(looks_up, window=900)
    result = measure_recall(ask, raw_style(ask), 2000, POSITIONS)
    assert [n.found for n in result.needles] == [False, False, False, True, True]


def test_the_code_of_another_thing_is_no_answer() -> None:
    def first_code(prompt: str) -> str:
        lines = [line for line in prompt.split("\n") if line.startswith("The code of the ")]
        return lines[-2].rpartition(" is")[2]

    ask = FakeEngine(first_code)
    result = measure_recall(ask, raw_style(ask), 2000, POSITIONS)
    assert result.found <= 1
    assert all(n.answer for n in result.needles)


def test_each_fact_stands_where_its_result_says() -> None:
    ask = FakeEngine(looks_up)
    result = measure_recall(ask, raw_style(ask), 3000, POSITIONS)
    haystack = ask.requests[0].prompt
    for needle in result.needles:
        line = ask.text(haystack[needle.token_offset : needle.token_offset + 20]).split("\n")[0]
        assert line == f"The code of the {needle.key} is {needle.expected}."
        assert abs(needle.token_offset - needle.position * 3000) < 60


def test_there_are_distractors_between_the_facts() -> None:
    ask = FakeEngine(looks_up)
    measure_recall(ask, raw_style(ask), 3000, POSITIONS)
    assert ask.text(ask.requests[0].prompt).count("The code of the ") == 5 + 10


def test_the_haystack_is_processed_once() -> None:
    ask = FakeEngine(looks_up)
    measure_recall(ask, raw_style(ask), 3000, POSITIONS)
    assert len(ask.requests) == 6
    assert ask.processed < 3000 + 5 * 20


def test_a_chat_question_ends_in_the_assistants_turn() -> None:
    ask = FakeEngine(lambda prompt: "It is 1234.")
    result = measure_recall(ask, chat_style(ask), 1000, POSITIONS[:1])
    asked = ask.text(ask.requests[-1].prompt)
    assert asked.startswith("<bos><|user|>")
    assert asked.endswith(
        f"What is the code of the {result.needles[0].key}? Answer with the number alone.<|end|><|assistant|>"
    )
    assert not result.needles[0].found


def test_a_thought_before_the_answer_is_not_graded() -> None:
    ask = FakeEngine()
    ask.reply = lambda prompt: f"<think>Not 1111.</think>\n{code}"
    code = measure_recall(FakeEngine(), raw_style(ask), 1000, (0.5,)).needles[0].expected
    assert measure_recall(ask, chat_style(ask), 1000, (0.5,)).needles[0].found


def test_invented_facts_have_keys_and_codes_of_their_own() -> None:
    facts, decoys = invent(16, 32, (3,))
    everything = [*facts, *decoys]
    assert len({f.key for f in everything}) == len({f.code for f in everything}) == 48
    few = [f for group in invent(5, 10, (3,)) for f in group]
    words = [word for fact in few for word in fact.key.split()]
    assert len(set(words)) == len(words)


def test_a_depth_too_small_for_the_facts_is_refused() -> None:
    ask = FakeEngine()
    with pytest.raises(InputError, match="cannot hold"):
        measure_recall(ask, raw_style(ask), 50, POSITIONS)


def test_speed_and_recall_of_one_depth_cost_one_prefill() -> None:
    ask, watcher = FakeEngine(looks_up), Watcher()
    speed, recall = measure_depth(
        ask, raw_style(ask), 3000, POSITIONS, n_decode=40, repeats=3, progress=watcher
    )
    assert ask.processed < 3000 + 5 * 20 + 2 * 2
    assert recall.found == 5
    assert (speed.depth, speed.prompt_tps, speed.decode_tps) == (3000, PROMPT_TPS, DECODE_TPS)
    assert speed.first_token_s == 3.0
    assert [t.generated_tokens for t in speed.repeats] == [40, 40, 40]
    assert speed.note == ""
    watcher.check()


@pytest.mark.parametrize("kind", [raw_style, chat_style])
@pytest.mark.parametrize("n_decode", [4, 128])
def test_depth_for_uses_the_slot_and_never_overfills_it(kind: object, n_decode: int) -> None:
    ask = FakeEngine(lambda prompt: "1 " * 200, slot=1024)
    style = kind(ask)  # type: ignore[operator]
    depth = depth_for(ask, style, 1024, n_decode)
    speed, _ = measure_depth(ask, style, depth, POSITIONS, n_decode=n_decode)
    assert speed.note == ""
    assert not any(r.n_predict + len(r.prompt) + 1 > 1024 for r in ask.requests)
    assert depth >= 1024 - max(n_decode, 60) - 40


def test_a_refused_question_reaches_the_caller() -> None:
    ask = FakeEngine(looks_up, slot=1001)
    with pytest.raises(RequestError, match="exceeds"):
        measure_recall(ask, raw_style(ask), 1000, POSITIONS)
