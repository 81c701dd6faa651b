"""What a server says when it refuses a request, as our error."""

from __future__ import annotations

import json
from typing import Any

from kvtui.core.errors import RequestError
from kvtui.core.text import clean


class ContextSizeError(RequestError):
    """The prompt does not fit the slot. Both figures are tokens, None where the engine did not tell."""

    def __init__(
        self, what: str, *, status: int | None, n_prompt_tokens: int | None, n_ctx: int | None
    ) -> None:
        super().__init__(
            what, status=status, kind="exceed_context_size_error", hint="a larger context or a shorter prompt"
        )
        self.n_prompt_tokens = n_prompt_tokens
        self.n_ctx = n_ctx


def refusal(status: int | None, body: bytes) -> RequestError:
    """The error in `body`: `{"error": {"message", "type", ..}}`, or whatever text is there."""
    try:
        document = json.loads(body)
        error = document.get("error", document)
    except (ValueError, RecursionError, AttributeError):
        error = None
    if not isinstance(error, dict):
        text = clean(error if isinstance(error, str) else body.decode("utf-8", "replace"), 300).strip()
        return RequestError(
            f"the engine refused with status {status}: {text or 'no reason given'}", status=status
        )
    message = clean(str(error.get("message", "no reason given")), 500)
    kind = clean(str(error.get("type", "")), 80)
    if kind == "exceed_context_size_error":
        return ContextSizeError(
            message,
            status=status,
            n_prompt_tokens=_count(error.get("n_prompt_tokens")),
            n_ctx=_count(error.get("n_ctx")),
        )
    return RequestError(f"the engine refused: {message}", status=status, kind=kind)


def _count(value: Any) -> int | None:
    return value if type(value) is int else None
