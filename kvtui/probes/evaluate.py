"""Runs a small pure function that a model wrote, without Python running it.

An interpreter over the syntax tree for numbers, strings, lists and plain control flow. It has no names but the
function's own and a few harmless built-ins, no attributes, no imports, and every step, number and sequence
is bounded: whatever a model writes, it ends soon and touches nothing.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

_MAX_SOURCE = 4000
_MAX_STEPS = 20_000
_MAX_NUMBER = 10**12
_MAX_LENGTH = 1000

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}
_BUILTINS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "bool": bool,
    "float": float,
    "int": int,
    "len": len,
    "max": max,
    "min": min,
    "range": range,
    "round": round,
    "sorted": sorted,
    "sum": sum,
}


class CannotEvaluate(Exception):
    """The source is not a function that can be evaluated here; says why in a few words."""


class _Return(Exception):
    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


def parse_function(source: str, name: str) -> ast.FunctionDef:
    """The function `name` in `source`. Raises CannotEvaluate."""
    if len(source) > _MAX_SOURCE:
        raise CannotEvaluate("far too long")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise CannotEvaluate("not valid Python") from None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    raise CannotEvaluate(f"no function {name}")


def call(function: ast.FunctionDef, arguments: Sequence[object]) -> object:
    """The value of `function(*arguments)`. Raises CannotEvaluate for anything beyond plain computing."""
    plain = function.args
    if plain.vararg or plain.kwarg or plain.kwonlyargs or plain.defaults or len(plain.args) != len(arguments):
        raise CannotEvaluate("the function takes other arguments")
    run = _Run({a.arg: value for a, value in zip(plain.args, arguments, strict=True)})
    try:
        run.block(function.body)
    except _Return as end:
        return end.value
    except (_Break, _Continue):
        raise CannotEvaluate("break outside a loop") from None
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise CannotEvaluate(f"fails with {type(error).__name__}") from None
    return None


class _Run:
    """One call: local names and the steps left."""

    def __init__(self, names: dict[str, object]) -> None:
        self._names = names
        self._steps = _MAX_STEPS

    def block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        self._step()
        match node:
            case ast.Return(value=value):
                raise _Return(None if value is None else self._value(value))
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._names[name] = self._value(value)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                self._names[name] = self._binary(op, self._lookup(name), self._value(value))
            case ast.If(test=test, body=body, orelse=orelse):
                self.block(body if self._value(test) else orelse)
            case ast.While(test=test, body=body, orelse=[]):
                self._loop(iter(lambda: bool(self._value(test)), False), body, None)
            case ast.For(target=ast.Name(id=name), iter=over, body=body, orelse=[]):
                self._loop(self._iterable(self._value(over)), body, name)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Break():
                raise _Break
            case ast.Continue():
                raise _Continue
            case _:
                raise CannotEvaluate(f"uses {type(node).__name__}")

    def _loop(self, values: Iterable[object], body: Sequence[ast.stmt], name: str | None) -> None:
        for value in values:
            self._step()
            if name is not None:
                self._names[name] = value
            try:
                self.block(body)
            except _Break:
                return
            except _Continue:
                continue

    def _value(self, node: ast.expr) -> Any:
        self._step()
        return _bounded(self._raw_value(node))

    def _raw_value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None as value):
                return value
            case ast.Name(id=name):
                return self._lookup(name)
            case ast.BinOp(left=left, op=op, right=right):
                return self._binary(op, self._value(left), self._value(right))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
                return _UNARY[type(op)](self._value(operand))
            case ast.BoolOp(op=op, values=values):
                return self._either(isinstance(op, ast.Or), values)
            case ast.Compare(left=left, ops=ops, comparators=rights):
                return self._compare(left, ops, rights)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._value(body if self._value(test) else orelse)
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return self._flat([self._value(element) for element in elements])
            case ast.Subscript(value=value, slice=index) if not isinstance(index, ast.Slice):
                return self._value(value)[self._value(index)]
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _BUILTINS:
                return self._call(name, [self._value(arg) for arg in args])
            case _:
                raise CannotEvaluate(f"uses {type(node).__name__}")

    def _flat(self, elements: list[Any]) -> list[Any]:
        """Lists of lists are refused: comparing two that share their parts takes exponential time."""
        if any(isinstance(element, (list, range)) for element in elements):
            raise CannotEvaluate("nests lists")
        return elements

    def _lookup(self, name: str) -> object:
        if name not in self._names:
            raise CannotEvaluate(f"unknown name {name[:40]}")
        return self._names[name]

    def _binary(self, op: ast.operator, left: Any, right: Any) -> object:
        compute = _BINARY.get(type(op))
        if compute is None:
            raise CannotEvaluate(f"uses {type(op).__name__}")
        if isinstance(op, ast.Mod) and isinstance(left, str):
            raise CannotEvaluate("formats text")
        if isinstance(op, ast.Mult) and any(isinstance(side, (str, list, range)) for side in (left, right)):
            raise CannotEvaluate("repeats a sequence")
        return _bounded(compute(left, right))

    def _either(self, wanted: bool, values: Sequence[ast.expr]) -> object:
        value: object = None
        for node in values:
            value = self._value(node)
            if bool(value) is wanted:
                break
        return value

    def _compare(self, left: ast.expr, ops: Sequence[ast.cmpop], rights: Sequence[ast.expr]) -> bool:
        current = self._value(left)
        for op, right in zip(ops, rights, strict=True):
            following = self._value(right)
            if not _COMPARE[type(op)](current, following):
                return False
            current = following
        return True

    def _call(self, name: str, arguments: list[Any]) -> object:
        for argument in arguments:
            if isinstance(argument, range) and len(argument) > _MAX_LENGTH:
                raise CannotEvaluate("too long a range")
        return _BUILTINS[name](*arguments)

    def _iterable(self, value: object) -> Iterable[object]:
        if isinstance(value, (list, str, range)):
            return value
        raise CannotEvaluate("loops over something that is no sequence")

    def _step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise CannotEvaluate("does not end")


def _bounded(value: Any) -> Any:
    """`value`, unless it is so large that computing with it would cost time or memory."""
    if isinstance(value, (int, float)) and not -_MAX_NUMBER <= value <= _MAX_NUMBER:
        raise CannotEvaluate("too large a number")
    if isinstance(value, (str, list, range)) and len(value) > _MAX_LENGTH:
        raise CannotEvaluate("too long a sequence")
    return value
