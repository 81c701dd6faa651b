"""The report's own Markdown as HTML.

Reads exactly what kvtui.report.markdown writes (headings, tables, code blocks, lists of two levels, paragraphs; in
them code spans, strong text, escapes and four entities), so that both formats say the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

_INLINE = re.compile(r"\\([!-/:-@\[-`{-~])|`([^`]*)`|(\*\*)|&(amp|lt|gt|#124);|([^\\`*&]+|.)", re.DOTALL)
_HEADING = re.compile(r"(#{1,3}) (.*)")
_FENCE = re.compile(r"(`{3,})(\w*)\Z")


def inline(markdown: str) -> str:
    """One line of text as HTML."""
    out: list[str] = []
    strong = False
    for escaped, code, stars, entity, plain in _INLINE.findall(markdown):
        if stars:
            strong = not strong
            out.append("<strong>" if strong else "</strong>")
        elif entity:
            out.append(f"&{entity};")
        elif escaped or plain:
            out.append(escape(escaped or plain))
        else:
            out.append(f"<code>{escape(code)}</code>")
    return "".join([*out, "</strong>" if strong else ""])


def blocks(markdown: str) -> Iterator[tuple[str, str]]:
    """Each block as its kind (`h1` to `h3`, `table`, `pre`, `ul`, `p`) and its HTML."""
    lines = markdown.split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line:
            at += 1
        elif (fence := _FENCE.match(line)) is not None:
            end = lines.index(fence[1], at + 1)
            yield "pre", f"<pre><code>{escape(chr(10).join(lines[at + 1 : end]))}</code></pre>"
            at = end + 1
        elif (heading := _HEADING.match(line)) is not None:
            kind = f"h{len(heading[1])}"
            yield kind, f"<{kind}>{inline(heading[2])}</{kind}>"
            at += 1
        else:
            lead = line[:2] if line.startswith(("| ", "- ")) else ""
            end = at + 1
            while end < len(lines) and lines[end] and (_continues(lines[end], lead)):
                end += 1
            yield _BLOCKS[lead](lines[at:end])
            at = end


def _continues(line: str, lead: str) -> bool:
    if lead == "| ":
        return line.startswith("|")
    return line.startswith(("- ", "  - ")) if lead else not line.startswith(("| ", "- ", "#", "```"))


def _table(lines: list[str]) -> tuple[str, str]:
    head, _, *rows = (line.strip().strip("|").split("|") for line in lines)
    named = any(cell.strip() for cell in head)
    top = "".join(f'<th scope="col">{inline(cell.strip())}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{inline(row[0].strip())}</th>'
        + "".join(f"<td>{inline(cell.strip())}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    lead = f"<thead><tr>{top}</tr></thead>" if named else ""
    return "table", f'<div class="wide" tabindex="0"><table>{lead}<tbody>{body}</tbody></table></div>'


def _list(lines: list[str]) -> tuple[str, str]:
    out: list[str] = []
    for line in lines:
        if line.startswith("  - "):
            if not out[-1].endswith("</ul>"):
                out[-1] += "<ul>"
            out[-1] = f"{out[-1].removesuffix('</ul>')}<li>{inline(line[4:])}</li></ul>"
        else:
            out.append(f"<li>{inline(line[2:])}")
    return "ul", f"<ul>{''.join(f'{item}</li>' for item in out)}</ul>"


def _paragraph(lines: list[str]) -> tuple[str, str]:
    return "p", f"<p>{inline(' '.join(lines))}</p>"


_BLOCKS = {"| ": _table, "- ": _list, "": _paragraph}
