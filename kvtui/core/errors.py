"""The errors that reach an operator.

KvtuiError
├── InputError          something given to kvtui cannot be used (exit status 2)
│   ├── ModelFileError  a model file that cannot be read (file, offset, reason)
│   └── PresetError     a preset with a mistake in it (file, key, what is allowed)
├── EngineError         the engine did not do what was asked
│   ├── StartError      it did not become ready (kind: crashed, hung, port, missing)
│   ├── RequestError    it answered a request with an error or not at all
│   └── EngineGone      it died while it was working
└── SessionError        a session cannot be read, locked or written
Cancelled               the operator stopped the work (not an error)
"""

from __future__ import annotations

from typing import Literal


class KvtuiError(Exception):
    """One line that says what is wrong and where; `hint` says what to do."""

    def __init__(self, what: str, *, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def line(self) -> str:
        """The error as the single line that goes to stderr."""
        return f"{self.what}: {self.hint}" if self.hint else self.what


class InputError(KvtuiError):
    """A file, option or value given by the operator cannot be used."""


class ModelFileError(InputError):
    """A model file that cannot be read.

    `offset` is the byte position at which reading stopped, None where it does not apply.
    """

    def __init__(self, path: str, reason: str, *, offset: int | None = None, hint: str = "") -> None:
        at = "" if offset is None else f" at byte {offset}"
        super().__init__(f"{path}: {reason}{at}", hint=hint)
        self.path = path
        self.reason = reason
        self.offset = offset


class PresetError(InputError):
    """A preset file with a mistake in it."""

    def __init__(self, path: str, key: str, problem: str) -> None:
        where = f"{path}: {key}" if key else path
        super().__init__(f"{where}: {problem}")
        self.path = path
        self.key = key


class EngineError(KvtuiError):
    """The engine did not do what was asked."""


StartFailure = Literal["crashed", "hung", "port", "missing"]


class StartError(EngineError):
    """The engine did not become ready; `kind` tells how."""

    def __init__(
        self, kind: StartFailure, what: str, *, hint: str = "", exit_code: int | None = None
    ) -> None:
        super().__init__(what, hint=hint)
        self.kind: StartFailure = kind
        self.exit_code = exit_code


class RequestError(EngineError):
    """The engine answered a request with an error, with rubbish, or too late.

    `status` is the HTTP status, None when there was no valid HTTP answer.
    """

    def __init__(self, what: str, *, status: int | None = None, kind: str = "", hint: str = "") -> None:
        super().__init__(what, hint=hint)
        self.status = status
        self.kind = kind


class EngineGone(EngineError):
    """The engine's process ended, or its connection broke, while it was working."""

    def __init__(self, what: str, *, exit_code: int | None = None, hint: str = "") -> None:
        super().__init__(what, hint=hint)
        self.exit_code = exit_code


class SessionError(KvtuiError):
    """A session cannot be read, locked or written."""


class Cancelled(Exception):
    """The operator stopped the work."""
