"""Questions to a running vLLM server, in its OpenAI-compatible API and its own /tokenize and /detokenize."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from threading import Event
from typing import Any

from kvtui.core.errors import RequestError
from kvtui.engines.http import EngineHttp
from kvtui.engines.stream import are_token_ids
from kvtui.engines.vllm.answers import CompletionReader
from kvtui.probes.asking import Completion


class VllmClient(EngineHttp):
    """One vLLM server that serves `model`. Raises what `EngineHttp` does."""

    def __init__(self, base_url: str, model: str, *, timeout_s: float = 30.0, stall_s: float = 900.0) -> None:
        super().__init__(base_url, timeout_s=timeout_s, stall_s=stall_s)
        self._model = model

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids of `text`. vLLM always reads control tokens in it."""
        return self._tokens({"prompt": text, "add_special_tokens": add_special})

    def apply_template(self, messages: list[dict[str, str]]) -> str:
        """The prompt that the model's chat template makes of `messages`, thinking switched off where it can be."""
        tokens = self._tokens(
            {
                "messages": messages,
                "add_generation_prompt": True,
                "chat_template_kwargs": {"enable_thinking": False},
            }
        )
        text = self.ask("POST", "/detokenize", {"model": self._model, "tokens": tokens}).get("prompt")
        if not isinstance(text, str):
            raise RequestError("the engine's /detokenize answered without text")
        return text

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
        """Process `prompt` and generate up to `n_predict` tokens, greedily. vLLM tells no progress of a prompt.

        Without `cache_prompt` a salt of its own keeps the prompt from being found in the prefix cache.
        """
        body: dict[str, Any] = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": n_predict,
            "temperature": 0.0,
            "seed": 0,
            "ignore_eos": ignore_eos,
            "stop": list(stop),
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }
        if not cache_prompt:
            body["cache_salt"] = uuid.uuid4().hex
        if n_probs:
            body |= {"logprobs": n_probs, "return_tokens_as_token_ids": True}
        reader = CompletionReader(n_predict, on_token)
        with self.events("/v1/completions", body, cancel) as events:
            for data in events:
                if reader.feed(data):
                    break
        return reader.completion()

    def _tokens(self, body: dict[str, Any]) -> list[int]:
        tokens = self.ask("POST", "/tokenize", {"model": self._model, **body}).get("tokens")
        if not isinstance(tokens, list) or not are_token_ids(tokens):
            raise RequestError("the engine's /tokenize answered without token ids")
        return tokens
