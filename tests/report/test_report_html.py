"""The report as one HTML file: the Markdown's words, charts, nothing loaded and nothing run."""

from __future__ import annotations

import functools
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from kvtui.report import charts
from kvtui.report.facts import derive
from kvtui.report.html import render
from kvtui.report.html_text import block
from kvtui.report.html_text import inline as html_inline
from kvtui.report.markdown import render as markdown
from kvtui.report.markdown_blocks import blocks, inline
from tests.report import states
from tests.report.test_report_markdown import HOSTILE
from tests.session import sample

READER = MarkdownIt("commonmark").enable("table")
NAMES = (
    "html head meta title style body main h1 h2 h3 p ul li table thead tbody tr th td pre code strong div figure "
    "figcaption svg g rect path line circle text tspan"
)
ALLOWED = set(NAMES.split())
VOID = {"meta"}


class Page(HTMLParser):
    """The tags, attributes and visible text of a page; every tag must be closed in its turn."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text.append(data)


@functools.cache
def _plain() -> list[str]:
    return Page(render(states.spoken(sample.state(), "plain"))).tags


def test_it_loads_nothing_and_runs_nothing() -> None:
    page = Page(render(sample.state()))
    assert set(page.tags) <= ALLOWED
    names = {name for _, name, _ in page.attributes}
    assert not names & {"src", "href", "xlink:href", "srcset", "action", "style", "background", "data"}
    assert not any(name.startswith("on") for name in names)
    policy = next(v for t, n, v in page.attributes if t == "meta" and n == "content" and "default-src" in v)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    style = re.search(r"<style>(.*?)</style>", render(sample.state()), re.DOTALL)
    assert style is not None
    assert not re.search(r"url\(|@import|http", style[1])
    assert "prefers-color-scheme:dark" in style[1]
    assert "@media print" in style[1]


def test_the_plotting_library_leaves_the_imports_as_they_were() -> None:
    render(sample.state())
    assert "pygal" in sys.modules
    assert all(hasattr(finder, "find_spec") for finder in sys.meta_path)


def test_the_policy_allows_this_style_sheet() -> None:
    import base64
    import hashlib

    html = render(sample.state())
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"'sha256-{digest}'" in html


def test_every_chart_has_a_title_a_description_and_its_figures() -> None:
    html = render(sample.state())
    figures = re.findall(r"<figure>.*?</figure>", html, re.DOTALL)
    assert len(figures) == 5  # budget, speed, recall, memory of the run that holds and of the one that failed
    ids = set(re.findall(r'id="([^"]+)"', html))
    for figure in figures:
        svg = re.search(r"<svg .*?</svg>", figure, re.DOTALL)
        assert svg is not None
        root = ElementTree.fromstring(svg[0])
        assert root.get("role") == "img"
        assert {root.get("aria-labelledby"), root.get("aria-describedby")} <= ids
        assert len(list(root.iter("path"))) + len(list(root.iter("rect"))) > 5
        assert "<tbody><tr>" in figure.split("</svg>")[1]
    assert len(ids) == len(re.findall(r'id="', html))


def test_the_heat_map_says_each_cell_in_words_too() -> None:
    session = derive(sample.state())
    chart = charts.recall_chart(session)
    assert chart is not None
    assert chart.rows[1] == ("25 %", "1 of 1", "1 of 1", "1 of 1", "0 of 1")
    root = ElementTree.fromstring(chart.svg)
    kinds = [r.get("class", "") for r in root.iter("rect") if "heat" in r.get("class", "")]
    assert kinds.count("heat heat-missed") == 1
    assert kinds.count("heat heat-all") == 19
    assert [t.text for t in root.iter("text") if t.get("class") == "cell"].count("0/1") == 1


def test_the_speed_lines_are_one_for_each_pair_of_types() -> None:
    chart = charts.speed_chart(derive(sample.state()))
    assert chart is not None
    assert list(dict.fromkeys(row[0] for row in chart.rows)) == [
        "Q6_K weights, f16/f16 KV",
        "Q6_K weights, q8_0/q8_0 KV",
    ]
    assert ("Q6_K weights, q8_0/q8_0 KV", "47,104", "19.7 t/s", "6") in chart.rows


@pytest.mark.parametrize("state", [states.bare(), sample.unfinished(), states.on_host()])
def test_little_to_report_is_a_page_too(state: object) -> None:
    page = Page(render(state))  # type: ignore[arg-type]
    assert "kvtui: Example-14B" in "".join(page.text)
    nothing = replace(states.bare(), runs=())
    assert "<svg" not in render(nothing)


@pytest.mark.parametrize("words", HOSTILE[::2], ids=range(len(HOSTILE[::2])))
def test_no_text_can_change_the_page(words: str) -> None:
    page = Page(render(states.spoken(sample.state(), words)))
    assert set(page.tags) <= ALLOWED
    inert = ("p", "code", "tspan", "text", "g")
    assert [t for t in page.tags if t not in inert] == [t for t in _plain() if t not in inert]


def _said(html: str) -> str:
    return re.sub(r"\s+", "", "".join(Page(html).text))


def test_it_says_what_the_markdown_says() -> None:
    for state in (sample.state(), sample.unfinished(), states.spoken(sample.state(), "a*b_c <d> `e` \\f |g")):
        report = markdown(state)
        ours = "".join(block(found) for found in blocks(report))
        assert _said(ours) == _said(READER.render(report))


@given(st.text(max_size=40) | st.text("|`\\*_#<>&[]()~$-+=.1 ", max_size=20))
def test_inline_text_survives_whatever_it_is(words: str) -> None:
    from kvtui.report.escape import text

    html = f"<p>{html_inline(inline(text(words)))}</p>"
    assert set(Page(html).tags) == {"p"}
    assert _said(html) == _said(READER.render(text(words)) or "<p></p>")
