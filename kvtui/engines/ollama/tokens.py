"""Token ids for an engine whose API takes text: its runner's own tokenizer where it answers, else measured pieces.

A prompt is made of ids and sent as their text. `IMPLIED` stands for what the engine itself puts before every
prompt (BOS): it counts as a token and has no text.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, pairwise
from typing import Protocol

from kvtui.core.errors import RequestError
from kvtui.engines.llama_server.client import EngineClient
from kvtui.probes.filler import records

IMPLIED = -1
_SAMPLE_SEED = 0x73697A65
_SAFE = 1.02
"""Pieces are made a little smaller than tokens, so that a prompt that should fit does."""


class Tokenizer(Protocol):
    """Text to ids and back."""

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Ids of `text`, behind `IMPLIED` with `add_special` where the engine puts something there."""
        ...

    def decode(self, ids: list[int]) -> str:
        """The text of `ids`."""
        ...


class RunnerTokenizer:
    """The tokenizer of the llama-server that Ollama runs (0.30 and later), asked at the runner's own port."""

    def __init__(self, runner: EngineClient) -> None:
        self._runner = runner

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Real ids."""
        ids = self._runner.tokenize(text, add_special=False, parse_special=parse_special)
        if not add_special:
            return ids
        whole = self._runner.tokenize(text, add_special=True, parse_special=parse_special)
        return [IMPLIED, *ids] if len(whole) > len(ids) else ids

    def decode(self, ids: list[int]) -> str:
        """The exact text."""
        told = [token for token in ids if token != IMPLIED]
        return self._runner.detokenize(told) if told else ""


class MeasuredTokenizer:
    """Pieces of text as long as a token is on average. Counts made of them are estimates: what an answer reports is
    what the engine counted.

    A line's end is a piece of its own, so that text can be cut there.
    """

    def __init__(self, chars_per_token: float) -> None:
        self._size = chars_per_token
        self._ids: dict[str, int] = {}
        self._pieces: list[str] = []

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Ids that mean something to this object alone; the same text has the same ones."""
        ids = [IMPLIED] if add_special else []
        for line in text.splitlines(keepends=True):
            body = line.rstrip("\n")
            count = max(round(len(body) / self._size) - (len(line) - len(body)), 1) if body else 0
            cuts = [round(len(body) * i / count) for i in range(count + 1)] if count else []
            ids += [self._id(body[start:end]) for start, end in pairwise(cuts) if end > start]
            ids += [self._id("\n")] * (len(line) - len(body))
        return ids

    def decode(self, ids: list[int]) -> str:
        """The exact text that was given."""
        return "".join(self._pieces[token] for token in ids if token != IMPLIED)

    def _id(self, piece: str) -> int:
        if piece not in self._ids:
            self._ids[piece] = len(self._pieces)
            self._pieces.append(piece)
        return self._ids[piece]


def measure(count: Callable[[str], int | None], n_ctx: int) -> MeasuredTokenizer:
    """A tokenizer by what the engine counts (`count`) in text like that of the prompts, at most half of `n_ctx` of it.

    Raises RequestError when the engine does not tell what it read.
    """
    lines = islice(records(_SAMPLE_SEED), max(2, min(100, n_ctx // 60)))
    sample = "".join(line + "\n" for line in lines)
    tokens = count(sample)
    if not tokens or not 0.2 < len(sample) / tokens < 50:
        raise RequestError(
            "the engine does not tell how many tokens a prompt has",
            hint="without that no depth can be measured",
        )
    return MeasuredTokenizer(len(sample) / tokens / _SAFE)
