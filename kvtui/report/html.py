"""A session as one HTML file: the Markdown report's words, with charts. It loads nothing and runs nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from html import escape

from kvtui.core.text import clean
from kvtui.report.charts import Chart, budget_chart, memory_charts, recall_chart, speed_chart
from kvtui.report.facts import SessionFacts, derive
from kvtui.report.html_style import STYLE
from kvtui.report.html_text import block
from kvtui.report.markdown import render as markdown
from kvtui.report.markdown_blocks import blocks
from kvtui.session.state import SessionState


def render(state: SessionState) -> str:
    """The page."""
    started = state.started
    title = escape(clean(f"kvtui: {started.model.file_name} on {started.device.name}"))
    allowed = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            f"style-src 'sha256-{allowed}'; base-uri 'none'; form-action 'none'\">",
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{title}</title>",
            f"<style>{STYLE}</style>",
            "</head>",
            "<body>",
            "<main>",
            *_body(derive(state), markdown(state)),
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _body(session: SessionFacts, text: str) -> Iterator[str]:
    """The report's blocks, the charts ahead of the sections they belong to."""
    for found in blocks(text):
        html = block(found)
        if html == "<h2>Machine, engine, model</h2>":
            yield from _figures(session)
        yield html


def _figures(session: SessionFacts) -> Iterator[str]:
    drawn = (budget_chart(session), speed_chart(session), recall_chart(session), *memory_charts(session))
    charts = [chart for chart in drawn if chart is not None]
    if charts:
        yield "<h2>Charts</h2>"
        yield from map(_figure, charts)


def _figure(chart: Chart) -> str:
    key = f"chart-{chart.key}"
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in chart.head)
    rows = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>{"".join(f"<td>{escape(c)}</td>" for c in row[1:])}</tr>'
        for row in chart.rows
    )
    return (
        f'<figure><figcaption><h3 id="{key}-title">{escape(chart.title)}</h3>'
        f'<p id="{key}-text">{escape(chart.description)}</p></figcaption>{chart.svg}'
        f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
        "</figure>"
    )
