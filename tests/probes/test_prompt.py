"""Prompts have exactly the depth asked for, and plants stand where they are said to stand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtui.core.errors import InputError, RequestError
from kvtui.probes.prompt import Plant, build_haystack, chat_style, deepest, plain, raw_style
from tests.probes.fake import BOS, FakeEngine

FACTS = [Plant(p, f"The {w} is here.") for p, w in ((0.02, "first"), (0.5, "middle"), (0.98, "last"))]


@given(depth=st.integers(80, 5000), seed=st.integers(0, 2**70), keep_free=st.integers(0, 20))
@settings(max_examples=25)
def test_a_haystack_has_the_depth_asked_for(depth: int, seed: int, keep_free: int) -> None:
    ask = FakeEngine()
    haystack = build_haystack(
        ask, raw_style(ask), depth, seed=(seed,), plants=FACTS, keep_free=keep_free, opening="Records.\n"
    )
    assert len(haystack.ids) == depth
    for fact, offset in zip(FACTS, haystack.offsets, strict=True):
        planted = plain(ask, fact.text + "\n")
        assert list(haystack.ids[offset : offset + len(planted)]) == planted
        assert offset + len(planted) <= depth - keep_free


def test_plants_stand_on_lines_of_their_own_near_their_positions() -> None:
    ask = FakeEngine()
    haystack = build_haystack(ask, raw_style(ask), 4000, plants=FACTS)
    text = ask.text(haystack.ids)
    for fact, offset in zip(FACTS, haystack.offsets, strict=True):
        assert f"\n{fact.text}\n" in text
        assert 0 <= fact.position * 4000 - offset < 40


def test_every_line_but_the_last_is_whole() -> None:
    ask = FakeEngine()
    text = ask.text(build_haystack(ask, raw_style(ask), 3000, plants=FACTS).ids)
    assert all(line.endswith(".") for line in text.split("\n")[:-1])


def test_plants_given_in_any_order_keep_their_offsets() -> None:
    ask = FakeEngine()
    backwards = build_haystack(ask, raw_style(ask), 2000, plants=FACTS[::-1])
    forwards = build_haystack(ask, raw_style(ask), 2000, plants=FACTS)
    assert backwards.offsets == forwards.offsets[::-1]
    assert backwards.ids == forwards.ids


def test_plants_at_one_position_stand_one_behind_the_other() -> None:
    ask = FakeEngine()
    haystack = build_haystack(ask, raw_style(ask), 500, plants=[Plant(0.5, "One."), Plant(0.5, "Two.")])
    assert "\nOne.\nTwo.\n" in ask.text(haystack.ids)


def test_two_depths_or_seeds_share_nothing_but_the_head() -> None:
    ask = FakeEngine()
    style = raw_style(ask)
    made = [build_haystack(ask, style, depth, seed=(seed,)).ids for depth in (512, 513) for seed in (0, 1)]
    assert {ids[0] for ids in made} == {BOS}
    assert len({ids[1] for ids in made}) == 4


def test_the_same_depth_and_seed_give_the_same_prompt() -> None:
    one, two = FakeEngine(), FakeEngine()
    assert (
        build_haystack(one, raw_style(one), 900, seed=(4,), plants=FACTS).ids
        == build_haystack(two, raw_style(two), 900, seed=(4,), plants=FACTS).ids
    )


def test_a_depth_that_cannot_hold_the_plants_is_refused_with_what_is_needed() -> None:
    ask = FakeEngine()
    with pytest.raises(InputError, match="20 tokens cannot hold a prompt that needs"):
        build_haystack(ask, raw_style(ask), 20, plants=FACTS)
    needed = 0
    for depth in range(20, 100):
        try:
            build_haystack(ask, raw_style(ask), depth, plants=FACTS)
        except InputError as error:
            needed = int(str(error).rsplit(" ", 1)[1])
        else:
            assert depth == needed
            return
    pytest.fail("no depth was enough")


def test_a_tokenizer_without_recognizable_line_ends_still_gives_the_exact_depth() -> None:
    class Letters(FakeEngine):
        def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
            return [BOS] * add_special + [2 + index % 3 for index, _ in enumerate(text)]

    ask = Letters()
    haystack = build_haystack(ask, raw_style(ask), 777, plants=FACTS)
    assert len(haystack.ids) == 777


def test_a_tokenizer_that_returns_nothing_is_an_error_and_no_endless_loop() -> None:
    class Mute(FakeEngine):
        def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
            return [5] if len(text) < 60 else []

    ask = Mute()
    with pytest.raises(RequestError, match="tokenizer"):
        build_haystack(ask, raw_style(ask), 777)


def test_raw_style_opens_with_bos_alone() -> None:
    style = raw_style(FakeEngine())
    assert (style.kind, style.head, style.tail) == ("raw", (BOS,), ())


def test_chat_style_is_the_template_around_the_message() -> None:
    ask = FakeEngine()
    style = chat_style(ask)
    assert ask.text(style.head) == "<bos><|user|>"
    assert ask.text(style.tail) == "<|end|><|assistant|>"
    haystack = build_haystack(ask, style, 300)
    assert haystack.ids[: len(style.head)] == style.head


@pytest.mark.parametrize("template", ["no message", "{0}{0}"])
def test_a_template_that_does_not_carry_the_message_once_is_refused(template: str) -> None:
    with pytest.raises(RequestError, match="chat template"):
        chat_style(FakeEngine(template=template))


@pytest.mark.parametrize(
    ("template", "ending"),
    [
        ("<|user|>{}<|assistant|><think>\n", "<think>\n\n</think>\n\n"),
        (
            "<|start|>user<|message|>{}<|end|><|start|>assistant",
            "<|start|>assistant<|channel|>final<|message|>",
        ),
        ("<|user|>{}<|assistant|>", "<|assistant|>"),
    ],
)
def test_a_thinking_part_that_the_template_opens_is_closed(template: str, ending: str) -> None:
    ask = FakeEngine(template=template)
    assert ask.text(chat_style(ask).tail).endswith(ending)


def test_deepest_leaves_room_for_the_answer_and_the_engine() -> None:
    assert deepest(4096, 128) == 4096 - 128 - 8
    assert deepest(100, 128) == 0
