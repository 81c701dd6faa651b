"""Token probabilities out of a server's events: exact where told in full, nothing where anything is off."""

from __future__ import annotations

from typing import Any

import pytest

from kvtui.engines.llama_server.answers import AnswerReader
from kvtui.engines.llama_server.choices import choices_of
from kvtui.probes.results import Choice


def position(*pairs: tuple[Any, Any]) -> dict[str, Any]:
    """One position as llama-server b11434 tells it."""
    top = [{"id": i, "token": " x", "bytes": [32, 120], "logprob": p} for i, p in pairs]
    return {"id": pairs[0][0], "token": " x", "bytes": [32, 120], "logprob": pairs[0][1], "top_logprobs": top}


def test_the_choices_of_a_stream_stand_at_their_positions() -> None:
    reader = AnswerReader(8, None, None)
    # The second token ends inside a character: the server sends no event for it.
    for tokens, predicted, told in (([504], 1, (504, -0.5529907)), ([282], 3, (282, -0.0048))):
        event = {"content": "x", "tokens": tokens, "stop": False, "tokens_predicted": predicted}
        event["completion_probabilities"] = [position(told, (60, -2.31266))]
        reader._take(event)
    reader._final = {"stop": True, "tokens_predicted": 3}
    made = reader.completion(lambda text: [])
    assert made.tokens == (504, -1, 282)
    assert made.choices == (Choice(0, (504, 60), (-0.553, -2.3127)), Choice(2, (282, 60), (-0.0048, -2.3127)))


def test_a_probability_of_nothing_is_a_finite_number() -> None:
    assert choices_of([position((1, 0), (2, -3.4028234663852886e38))], 5, 1) == [
        Choice(5, (1, 2), (0.0, -100.0))
    ]


@pytest.mark.parametrize(
    "told",
    [
        None,
        {},
        [],
        [1],
        [position((1, -0.1)), position((2, -0.1))],
        [{"content": " x", "probs": [{"tok_str": " x", "prob": 0.9}]}],
        [{"top_logprobs": "many"}],
        [{"top_logprobs": []}],
        [position((1, float("nan")))],
        [position((1, None))],
        [position((1, True))],
        [position((1, 0.5))],
        [position((-1, -0.5))],
        [position((1.0, -0.5))],
        [position((1, -0.1), ("2", -0.1))],
    ],
)
def test_what_is_not_told_in_full_is_no_choice(told: Any) -> None:
    assert choices_of(told, 0, 1) == []
