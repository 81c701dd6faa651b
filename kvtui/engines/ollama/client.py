"""Requests to Ollama's own API: raw prompts, greedy, always with the options that the model was loaded with."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from threading import Event, Lock
from typing import Any

from kvtui.core.config import RunConfig
from kvtui.core.errors import EngineGone, RequestError
from kvtui.engines.http import EngineHttp
from kvtui.engines.llama_server.client import EngineClient
from kvtui.engines.ollama.answers import Answer, json_lines, refused
from kvtui.engines.ollama.settings import load_options, num_ctx
from kvtui.engines.ollama.tokens import RunnerTokenizer, Tokenizer, measure
from kvtui.probes.asking import Completion

_SAMPLING: dict[str, Any] = {
    "temperature": 0,
    "seed": 0,
    "top_k": 1,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
_SHARED = 16
"""Ids that two prompts may begin with alike and still count as different: a template's opening."""
_KEPT = 16
_CUT_SHARE = 0.9
_GRACE_S = 1.0
_POLL_S = 0.1


class OllamaClient:
    """Implements `Client` for the daemon behind `http`. May be used by several threads at once.

    `same_runner` tells whether the process that was measured still runs: figures of two loads are never mixed.
    """

    def __init__(
        self,
        http: EngineHttp,
        config: RunConfig,
        runner: EngineClient | None,
        same_runner: Callable[[], bool],
        keep_alive: int | str = -1,
    ) -> None:
        self._http = http
        self._config = config
        self._same_runner = same_runner
        self._keep_alive = keep_alive
        self._lock = Lock()
        self._earlier: list[array[int]] = []
        self._flushes = count(1)
        self._tokenizer: Tokenizer | None = None if runner is None else RunnerTokenizer(runner)

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Ids for `complete`: the runner's own where it tokenizes, else pieces measured by what the engine counts."""
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = measure(self._count, num_ctx(self._config))
            tokenizer = self._tokenizer
            return tokenizer.encode(text, add_special=add_special, parse_special=parse_special)

    def apply_template(self, messages: list[dict[str, str]]) -> str:
        """The prompt as Ollama itself renders it (its `_debug_render_only`, since 0.11.5), without a generation."""
        body = self._body(num_predict=1) | {
            "messages": messages,
            "stream": False,
            "_debug_render_only": True,
        }
        answer = self._http.ask("POST", "/api/chat", body)
        info = answer.get("_debug_info")
        rendered = info.get("rendered_template") if isinstance(info, dict) else None
        if not isinstance(rendered, str):
            raise RequestError(
                "this Ollama does not show what its template makes of a message",
                kind="template",
                hint="0.11.5 and later do",
            )
        return rendered

    def complete(
        self,
        prompt: list[int],
        n_predict: int,
        *,
        cache_prompt: bool,
        ignore_eos: bool = False,
        stop: tuple[str, ...] = (),
        n_probs: int = 0,
        on_progress: Callable[[int, int, float], None] | None = None,
        on_token: Callable[[int], None] | None = None,
        cancel: Event | None = None,
    ) -> Completion:
        """As `Client.complete`. Ollama tells neither token ids nor progress, and always stops at the end of the text.

        Without `cache_prompt`, what its slots hold is written over first where the prompt begins as an earlier one did.
        Raises RequestError also where the prompt was cut, EngineGone also where the model was loaded anew meanwhile.
        """
        assert self._tokenizer is not None, "prompts are made by tokenize"
        held = self._held(prompt)
        if not cache_prompt and held > _SHARED:
            self._flush(cancel)
            held = 0
        self._remember(prompt)
        text = self._tokenizer.decode(prompt)
        answer = Answer(n_predict, on_token)
        self._generate(text, answer, {"num_predict": n_predict, "stop": list(stop)}, cancel)
        done = answer.completion(len(prompt), held)
        read = done.timing.prompt_tokens
        short = read < len(prompt) * _CUT_SHARE - _SHARED and read < len(prompt) - held
        if short or read >= num_ctx(self._config) - 1:
            raise RequestError(
                f"Ollama read {read:,} tokens of a prompt of about {len(prompt):,}: it was cut",
                kind="truncated",
                hint="a larger num_ctx or a shorter prompt",
            )
        return done

    def _generate(self, text: str, answer: Answer, options: dict[str, Any], cancel: Event | None) -> None:
        body = self._body(**options) | {"prompt": text, "raw": True, "stream": True}
        try:
            with self._http.events("/api/generate", body, cancel, json_lines) as records:
                for record in records:
                    if answer.feed(record):
                        break
        except RequestError as error:
            raise self._explained(refused(error)) from error
        if not self._same_runner():
            raise EngineGone("Ollama loaded the model anew during the run", hint="its log says why")

    def _explained(self, error: RequestError) -> RequestError | EngineGone:
        """A refusal, or the death of the runner behind it: the daemon outlives its runners and only reports them."""
        if error.status is None or error.status >= 500:
            deadline = time.monotonic() + _GRACE_S
            while self._same_runner() and time.monotonic() < deadline:
                time.sleep(_POLL_S)
            if not self._same_runner():
                return EngineGone(f"Ollama's runner ended: {error.what}", hint="its log says why")
        return error

    def _body(self, **options: Any) -> dict[str, Any]:
        """What every request carries: another num_ctx, num_batch or num_gpu, or shifting, would reload the model."""
        return {
            "model": self._config.model,
            "think": False,
            "truncate": False,
            "shift": False,
            "keep_alive": self._keep_alive,
            "options": {**_SAMPLING, **load_options(self._config), **options},
        }

    def _count(self, text: str) -> int | None:
        """How many tokens the engine reads in `text`."""
        answer = Answer(1, None)
        self._generate(text, answer, {"num_predict": 1}, None)
        return answer.read

    def _held(self, prompt: Sequence[int]) -> int:
        """Ids that `prompt` begins with as the prompt before it did, or any of the latest: at most what is cached."""
        with self._lock:
            earlier = list(self._earlier)
        return max((_shared(prompt, other) for other in earlier), default=0)

    def _remember(self, prompt: list[int]) -> None:
        with self._lock:
            self._earlier = [*self._earlier[1 - _KEPT :], array("i", prompt)]

    def _flush(self, cancel: Event | None) -> None:
        """Fill every slot with something else."""
        for _ in range(self._config.n_parallel):
            text = f"{next(self._flushes)} is on the slate."
            self._generate(text, Answer(1, None), {"num_predict": 1}, cancel)
        with self._lock:
            self._earlier = []


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


@contextmanager
def connected(
    base_url: str,
    config: RunConfig,
    runner_url: str | None,
    same_runner: Callable[[], bool],
    keep_alive: int | str,
) -> Iterator[OllamaClient]:
    """A client for the daemon at `base_url`, and the tokenizer of its runner where that is a llama-server."""
    with EngineHttp(base_url) as http:
        if runner_url is None:
            yield OllamaClient(http, config, None, same_runner, keep_alive)
            return
        with EngineClient(runner_url) as runner:
            with_tokens = runner if tokenizes(runner) else None
            yield OllamaClient(http, config, with_tokens, same_runner, keep_alive)


def tokenizes(runner: EngineClient) -> bool:
    """Whether the runner answers questions about tokens, as a llama-server does and Ollama's own runners do not."""
    try:
        return bool(runner.tokenize("a", add_special=False, parse_special=False))
    except (RequestError, EngineGone):
        return False
