"""Questions to a running llama.cpp server. Token ids, templates and detokenized text are exact: they go back to it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any

from kvtui.core.errors import RequestError
from kvtui.engines.http import EngineHttp, cleaned
from kvtui.engines.llama_server.answers import AnswerReader
from kvtui.engines.stream import are_token_ids
from kvtui.probes.asking import Completion


class EngineClient(EngineHttp):
    """One llama.cpp server. Raises what `EngineHttp` does."""

    def props(self) -> dict[str, Any]:
        """What `/props` says: `default_generation_settings.n_ctx` is the usable context of one slot."""
        props: dict[str, Any] = cleaned(self.ask("GET", "/props"))
        return props

    def slots(self) -> list[dict[str, Any]]:
        """The state of every slot, as `/slots` tells it."""
        answer = self.ask("GET", "/slots", wanted=list)
        return [cleaned(slot) for slot in answer if isinstance(slot, dict)]

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids of `text` by the engine's own tokenizer."""
        body = {"content": text, "add_special": add_special, "parse_special": parse_special}
        tokens = self.ask("POST", "/tokenize", body).get("tokens")
        if not isinstance(tokens, list) or not are_token_ids(tokens):
            raise RequestError("the engine's /tokenize answered without token ids")
        return tokens

    def detokenize(self, tokens: list[int]) -> str:
        """The exact text of `tokens`. To be given back to the engine, not to be shown."""
        return self._text("/detokenize", {"tokens": tokens}, "content")

    def apply_template(self, messages: list[dict[str, str]]) -> str:
        """The exact prompt that the model's chat template makes of `messages`, thinking switched off if it can."""
        body = {"messages": messages, "chat_template_kwargs": {"enable_thinking": False}}
        return self._text("/apply-template", body, "prompt")

    def complete(
        self,
        prompt: list[int] | str,
        n_predict: int,
        *,
        cache_prompt: bool,
        ignore_eos: bool = False,
        stop: tuple[str, ...] = (),
        n_probs: int = 0,
        seed: int = 0,
        temperature: float = 0.0,
        on_progress: Callable[[int, int, float], None] | None = None,
        on_token: Callable[[int], None] | None = None,
        cancel: Event | None = None,
    ) -> Completion:
        """Process `prompt` and generate up to `n_predict` tokens, greedily unless `temperature` says otherwise.

        `on_progress(processed, total, seconds)` while the prompt is processed, in tokens; `on_token(n)` after
        every token; the `n_probs` likeliest tokens are told for each position. `cancel` closes the connection within
        a tenth of a second, and the engine drops the work.
        """
        body = {
            "prompt": prompt,
            "n_predict": n_predict,
            "cache_prompt": cache_prompt,
            "ignore_eos": ignore_eos,
            "stop": list(stop),
            "seed": seed,
            "temperature": temperature,
            "stream": True,
            "return_progress": True,
            "return_tokens": True,
        }
        if n_probs:
            body["n_probs"] = n_probs
        reader = AnswerReader(n_predict, on_progress, on_token)
        with self.events("/completion", body, cancel) as events:
            for data in events:
                if reader.feed(data):
                    break
        return reader.completion(lambda text: self.tokenize(text, add_special=False, parse_special=False))

    def _text(self, path: str, body: dict[str, Any], field: str) -> str:
        text = self.ask("POST", path, body).get(field)
        if not isinstance(text, str):
            raise RequestError(f"the engine's {path} answered without text")
        return text
