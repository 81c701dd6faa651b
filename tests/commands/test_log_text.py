from __future__ import annotations

from kvtui.commands.log_text import overview
from kvtui.core.findings import Evidence, Finding
from kvtui.logs.facts import BufferFacts, ContextFacts, EngineFacts


def test_a_log_s_page_fits_a_terminal_and_loses_no_word() -> None:
    context = ContextFacts(
        n_ctx=131072,
        n_ctx_seq=131072,
        n_seq_max=1,
        n_batch=2048,
        n_ubatch=512,
        flash_attn="enabled",
        flash_attn_requested="auto",
        kv_buffers=(BufferFacts("CUDA0", 1234.5), BufferFacts("CUDA1", 1234.5), BufferFacts("CUDA2", 1234.5)),
    )
    why = "Up to 32 checkpoints per slot are kept in host memory: 8.0 MiB each, 255 MiB for the four slots."
    finding = Finding("host-checkpoints", "info", "Kept in host memory", why, "fewer", (Evidence(7, "x"),))
    facts = EngineFacts("llama.cpp", outcome="ready", contexts=(context,), findings=(finding,))
    page = overview(facts, "a.log")
    assert max(map(len, page.splitlines())) <= 80
    words = " ".join(page.split())
    for wanted in (why, "batch 2,048", "ubatch 512", "CUDA2 1,234.50 MiB", "info host-checkpoints"):
        assert wanted in words, wanted
    assert "\n      next: fewer" in page
