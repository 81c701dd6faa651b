"""The report's own Markdown taken apart, for whoever shows it otherwise.

Reads exactly what kvtui.report.markdown writes: headings, tables, code blocks, lists of two levels, paragraphs of one
line; in them code spans, strong text, escapes and four entities.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

_INLINE = re.compile(r"\\([!-/:-@\[-`{-~])|`([^`]*)`|(\*\*)|&(amp|lt|gt|#124);|([^\\`*&]+|.)", re.DOTALL)
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "#124": "|"}
_HEADING = re.compile(r"(#{1,3}) (.*)")
_FENCE = re.compile(r"(`{3,})(\w*)\Z")


class Run(NamedTuple):
    """A run of text: `plain`, `strong` or `code`."""

    text: str
    kind: Literal["plain", "strong", "code"]


Inline = tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of level 1 to 3."""

    level: int
    text: Inline


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the cells of `head` may be empty."""

    head: tuple[Inline, ...]
    rows: tuple[tuple[Inline, ...], ...]


@dataclass(frozen=True, slots=True)
class Code:
    """A code block, as it stands."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Items:
    """A list: each item with those below it."""

    items: tuple[tuple[Inline, tuple[Inline, ...]], ...]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph."""

    text: Inline


Block = Heading | Table | Code | Items | Paragraph


def inline(markdown: str) -> Inline:
    """One line of text as runs."""
    out: list[Run] = []
    strong = False
    for escaped, code, stars, entity, plain in _INLINE.findall(markdown):
        if stars:
            strong = not strong
        elif escaped or plain or entity:
            out.append(Run(escaped or plain or _ENTITIES[entity], "strong" if strong else "plain"))
        else:
            out.append(Run(code, "code"))
    return tuple(out)


def blocks(markdown: str) -> Iterator[Block]:
    """The blocks of a report in order."""
    lines = markdown.split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        end = at + 1
        if (fence := _FENCE.match(line)) is not None:
            end = lines.index(fence[1], at + 1)
            yield Code(tuple(lines[at + 1 : end]))
            end += 1
        elif (heading := _HEADING.match(line)) is not None:
            yield Heading(len(heading[1]), inline(heading[2]))
        elif line.startswith("| "):
            end = _end(lines, at, ("|",))
            yield _table(lines[at:end])
        elif line.startswith("- "):
            end = _end(lines, at, ("- ", "  - "))
            yield _items(lines[at:end])
        elif line:
            yield Paragraph(inline(line))
        at = end


def _end(lines: list[str], at: int, leads: tuple[str, ...]) -> int:
    return next((n for n in range(at, len(lines)) if not lines[n].startswith(leads)), len(lines))


def _table(lines: list[str]) -> Table:
    head, _, *rows = (
        tuple(inline(cell.strip()) for cell in line.strip().strip("|").split("|")) for line in lines
    )
    return Table(head, tuple(rows))


def _items(lines: list[str]) -> Items:
    items: list[tuple[Inline, tuple[Inline, ...]]] = []
    for line in lines:
        if line.startswith("  - ") and items:
            text, below = items[-1]
            items[-1] = (text, (*below, inline(line[4:])))
        else:
            items.append((inline(line.lstrip()[2:]), ()))
    return Items(tuple(items))
