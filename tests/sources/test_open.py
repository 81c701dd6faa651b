"""Whatever is typed becomes a model or one line that says why not."""

from __future__ import annotations

import random

from kvtui.core.errors import InputError
from kvtui.sources.open import local_gguf, open_model

PIECES = (
    "a", "B", "/", "..", ".", ":", "~", "-", "_", "\0", "\n", "\ud800", "é", "😀", " ", "%", "ftp://", "http://[",
    "hf.co/", "[", "]", "@", "?", "#", ".gguf", ".safetensors", "config.json", "sha256", "\x1b[2J", "x" * 300,
    "-00001-of-00002.gguf",
)  # fmt: skip


def test_nothing_that_is_typed_breaks_it() -> None:
    chance = random.Random(11)
    refused = []
    for _ in range(400):
        reference = "".join(chance.choice(PIECES) for _ in range(chance.randint(0, 6)))
        for look in (open_model, local_gguf):
            try:
                look(reference)
            except InputError as error:
                refused.append(error.line())
    assert len(refused) > 600
    assert all(line.isprintable() for line in refused)
