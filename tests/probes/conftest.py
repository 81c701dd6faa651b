"""The real embedded engine with a tiny sliding-window model and two slots, for the probes that only it can prove."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from kvtui.core.config import RunConfig
from kvtui.probes.asking import Completion

SLOT = 2048
POOL = 1024
READY_S = 120.0


class Counting:
    """A client that keeps every answer."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.answers: list[Completion] = []

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        return self._client.tokenize(text, add_special=add_special, parse_special=parse_special)  # type: ignore[no-any-return]

    def apply_template(self, messages: list[dict[str, str]]) -> str:
        return self._client.apply_template(messages)  # type: ignore[no-any-return]

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
        cancel: Event | None = None,
    ) -> Completion:
        answer: Completion = self._client.complete(
            prompt,
            n_predict,
            cache_prompt=cache_prompt,
            ignore_eos=ignore_eos,
            stop=stop,
            n_probs=n_probs,
            on_progress=on_progress,
            cancel=cancel,
        )
        self.answers.append(answer)
        return answer

    @property
    def processed(self) -> int:
        """Prompt tokens really processed."""
        return sum(a.timing.prompt_tokens - a.timing.cached_tokens for a in self.answers)


def _serve(config: RunConfig, log: Path) -> Iterator[str]:
    from kvtui.engines.find import embedded_engine

    running = embedded_engine().launch(config, log, lambda lines: None)
    try:
        running.wait_ready(READY_S, Event(), lambda progress: None)
        yield running.base_url
    finally:
        running.stop()


@pytest.fixture(scope="module")
def engine_url(tiny_swa_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a ready engine answers; two slots of `SLOT` tokens."""
    pytest.importorskip("xllamacpp")
    config = RunConfig(model=str(tiny_swa_model), n_ctx=2 * SLOT, n_parallel=2, n_gpu_layers=0, threads=1)
    yield from _serve(config, tmp_path_factory.mktemp("probes") / "engine.log")


@pytest.fixture
def shared_pool(tiny_swa_model: Path, tmp_path: Path) -> Iterator[Counting]:
    """Requests to a real engine whose two slots share `POOL` cells."""
    pytest.importorskip("xllamacpp")
    from kvtui.engines.llama_server.client import EngineClient

    config = RunConfig(
        model=str(tiny_swa_model), n_ctx=POOL, n_parallel=2, kv_unified=True, n_gpu_layers=0, threads=1
    )
    for url in _serve(config, tmp_path / "engine.log"):
        with EngineClient(url) as client:
            yield Counting(client)


@pytest.fixture
def ask(engine_url: str) -> Iterator[Counting]:
    """Requests to the real engine."""
    from kvtui.engines.llama_server.client import EngineClient

    with EngineClient(engine_url) as client:
        yield Counting(client)
