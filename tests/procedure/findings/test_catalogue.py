"""Every kind of finding that a module of findings makes is in that module's catalogue, and no other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from kvtui.procedure.findings import clocks, comparison, memory, probes


def _made(tree: ast.AST) -> Iterator[str]:
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Finding":
            name = next(
                (k.value for k in call.keywords if k.arg == "id"), call.args[0] if call.args else None
            )
            match name:
                case ast.Constant(value=str(text)):
                    yield text
                case ast.JoinedStr(values=[ast.Constant(value=str(text)), _]):
                    yield f"{text}SETTING"
                case _:
                    raise AssertionError(ast.dump(call))


@pytest.mark.parametrize("module", [clocks, comparison, memory, probes], ids=lambda m: m.__name__)
def test_the_catalogue_is_what_is_made(module: ModuleType) -> None:
    assert module.__file__ is not None
    made = set(_made(ast.parse(Path(module.__file__).read_text("utf-8"))))
    assert made == {kind.id for kind in module.CATALOGUE}
    assert len(made) == len(module.CATALOGUE)
