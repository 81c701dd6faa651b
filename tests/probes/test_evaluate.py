"""The little interpreter: right where Python is right, harmless where the source is not."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtui.probes.evaluate import CannotEvaluate, call, parse_function

PLAIN = {
    "clamp": """
    return max(0, min(a, b))""",
    "sign": """
    if a < b:
        return -1
    elif a == b:
        return 0
    return 1""",
    "for": """
    total = 0
    for i in range(abs(a) % 9):
        total += i * b
    return total""",
    "while": """
    n = abs(a)
    while n > 3:
        n -= 2
        if n % 5 == b % 5:
            break
    return n""",
    "continue": """
    s = 0
    for x in [a, b, 3]:
        if x < 0:
            continue
        s = s + x
    return s""",
    "chain": """
    return 0 <= a < b or not (a and b)""",
    "ternary": """
    return a // b if b != 0 else None""",
    "list": """
    'Middle.'
    return sorted([a, b, 0])[1]""",
    "nothing": """
    pass""",
}


@pytest.mark.parametrize("source", PLAIN.values(), ids=PLAIN)
@given(a=st.integers(-50, 50), b=st.integers(-50, 50))
@settings(max_examples=15)
def test_it_computes_what_python_computes(source: str, a: int, b: int) -> None:
    source = f"def f(a, b):{source}"
    names: dict[str, object] = {}
    exec(source, names)
    assert call(parse_function(source, "f"), (a, b)) == names["f"](a, b)  # type: ignore[operator]


def body(text: str) -> str:
    return "def f(a):\n    " + text.replace("\n", "\n    ")


HOSTILE = {
    "endless": (body("while True:\n    pass"), "does not end"),
    "endless for": (body("for i in range(999):\n    for j in range(999):\n        pass"), "does not end"),
    "power": (body("return 9 ** 9 ** 9"), "uses Pow"),
    "shift": (body("return 1 << 9999999999"), "uses LShift"),
    "huge number": (body("x = a\nwhile True:\n    x = x * x\nreturn x"), "too large a number"),
    "huge text": (body("x = 'aaaa'\nwhile True:\n    x = x + x"), "too long a sequence"),
    "repeat": (body("return 'a' * 999999999"), "repeats a sequence"),
    "repeat list": (body("return [0] * 999999999"), "repeats a sequence"),
    "format": (body("return '%999999999d' % a"), "formats text"),
    "huge range": (body("return sum(range(999999999))"), "too long a sequence"),
    "nested lists": (body("x = [a]\nwhile True:\n    x = [x, x]"), "nests lists"),
    "attribute": (body("return a.__class__"), "uses Attribute"),
    "import": (body("import os\nreturn os"), "uses Import"),
    "open": (body("return open('x')"), "uses Call"),
    "eval": (body("return eval('1')"), "uses Call"),
    "call of a value": (body("return a()"), "uses Call"),
    "starred": (body("return max(*[a])"), "uses Starred"),
    "keywords": (body("return max([a], key=len)"), "uses Call"),
    "lambda": (body("return (lambda: 1)()"), "uses Call"),
    "comprehension": (body("return [x for x in range(9)]"), "uses ListComp"),
    "recursion": (body("return f(a)"), "uses Call"),
    "walrus": (body("return (b := a)"), "uses NamedExpr"),
    "global": (body("global b\nreturn 1"), "uses Global"),
    "unknown name": (body("return b"), "unknown name b"),
    "builtin as value": (body("return max"), "unknown name max"),
    "tuple target": (body("b, c = a, a\nreturn b"), "uses Assign"),
    "division by zero": (body("return a / 0"), "fails with ZeroDivisionError"),
    "wrong types": (body("return a + 'x'"), "fails with TypeError"),
    "index": (body("return [1][5]"), "fails with IndexError"),
    "not a number": (body("return int('x')"), "fails with ValueError"),
    "bytes": (body("return b'x'"), "uses Constant"),
    "stray break": (body("break"), "break outside a loop"),
    "no function": ("x = 1", "no function f"),
    "class": ("class f:\n    pass", "no function f"),
    "async": ("async def f(a):\n    return 1", "no function f"),
    "defaults": ("def f(a, b=open('x')):\n    return 1", "the function takes other arguments"),
    "no arguments": ("def f():\n    return 1", "the function takes other arguments"),
    "any arguments": ("def f(*a):\n    return 1", "the function takes other arguments"),
    "syntax": ("def f(a)\n    return", "not valid Python"),
    "null": ("def f(a):\n    return '\0'", "not valid Python"),
    "parentheses": (body("return " + "(" * 900 + "1" + ")" * 900), "not valid Python"),
    "long": (body("return 1" + "#" * 5000), "far too long"),
}


@pytest.mark.parametrize(("source", "why"), HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_plain_computing_is_refused_soon(source: str, why: str) -> None:
    began = time.process_time()
    with pytest.raises(CannotEvaluate) as caught:
        call(parse_function(source, "f"), (7,))
    assert str(caught.value) == why
    assert time.process_time() - began < 1.5


@pytest.mark.parametrize("operator", ["-", "not ", "+"])
def test_an_expression_nested_as_deep_as_its_length_allows_ends(operator: str) -> None:
    source = body("return " + operator * (3900 // len(operator)) + "1")
    with pytest.raises(CannotEvaluate):
        call(parse_function(source, "f"), (7,))


def test_a_dubious_literal_warns_nobody() -> None:
    assert call(parse_function("def f(a):\n    '\\d'\n    return a is 1", "f"), (2,)) is False


@given(st.text(alphabet="abf()[]{}:=+-*/%<>!0123456789 \n.,'def return for in while if else", max_size=200))
def test_nothing_a_model_writes_escapes(text: str) -> None:
    with contextlib.suppress(CannotEvaluate):
        call(parse_function(f"def f(a):\n    {text}", "f"), (3,))
