"""The report's own Markdown as HTML, so that both formats say the same."""

from __future__ import annotations

from html import escape

from kvtui.report.markdown_blocks import Block, Code, Heading, Inline, Items, Table

_TAGS = {"strong": "strong", "code": "code"}


def inline(runs: Inline) -> str:
    """A line of text."""
    out = []
    for text, kind in runs:
        tag = _TAGS.get(kind)
        out.append(f"<{tag}>{escape(text)}</{tag}>" if tag else escape(text))
    return "".join(out).replace("</strong><strong>", "")


def block(found: Block) -> str:
    """One block."""
    match found:
        case Heading(level, text):
            return f"<h{level}>{inline(text)}</h{level}>"
        case Table():
            return _table(found)
        case Code(lines):
            return f"<pre><code>{escape(chr(10).join(lines))}</code></pre>"
        case Items(items):
            return f"<ul>{''.join(f'<li>{inline(text)}{_below(below)}</li>' for text, below in items)}</ul>"
        case _:
            return f"<p>{inline(found.text)}</p>"


def _below(items: tuple[Inline, ...]) -> str:
    return f"<ul>{''.join(f'<li>{inline(i)}</li>' for i in items)}</ul>" if items else ""


def _table(table: Table) -> str:
    top = "".join(f'<th scope="col">{inline(cell)}</th>' for cell in table.head)
    body = "".join(
        f'<tr><th scope="row">{inline(row[0])}</th>'
        + "".join(f"<td>{inline(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in table.rows
    )
    return f'<div class="wide" tabindex="0"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
