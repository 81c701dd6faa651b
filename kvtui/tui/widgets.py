"""The three widgets that draw lines: a panel, the same with a scroll, and a footer that names the keys."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from kvtui.tui import render
from kvtui.tui.lines import EMPTY, TONES, Line, changed_cells

TONE_CLASSES = {f"tone--{tone}" for tone in TONES}


class Lines(Widget):
    """Draws lines as they are. Only cells that differ from what is on the screen are written again."""

    COMPONENT_CLASSES = TONE_CLASSES
    ALLOW_SELECT = False

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._lines: list[Line] = []

    def show(self, lines: Sequence[Line]) -> None:
        """Draw these from the next repaint on."""
        before, self._lines = self._lines, list(lines)
        regions = []
        for y in range(max(len(before), len(self._lines))):
            old = before[y] if y < len(before) else EMPTY
            new = self._lines[y] if y < len(self._lines) else EMPTY
            cells = changed_cells(old, new)
            if cells is not None:
                regions.append(Region(cells[0], y, cells[1] - cells[0], 1))
        if regions:
            self.refresh(*regions)

    def render_line(self, y: int) -> Strip:
        """See Widget."""
        content = self._lines[y] if y < len(self._lines) else EMPTY
        return render.strip(content, self.size.width, self._style)

    def _style(self, tone: str) -> Style:
        return tone_style(self, tone)


class ScrollLines(ScrollView):
    """Lines that may be more than fit; `follow` keeps the last one in sight until the operator scrolls up."""

    COMPONENT_CLASSES = TONE_CLASSES
    ALLOW_SELECT = False
    can_focus = True

    def __init__(self, *, follow: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[Line] = []
        self.follow = follow
        self._at_end = follow

    def show(self, lines: Sequence[Line]) -> None:
        """Draw these from the next repaint on."""
        if list(lines) == self._lines:
            return
        self._lines = list(lines)
        self.virtual_size = Size(self.scrollable_content_region.width, len(self._lines))
        if self.follow and self._at_end:
            self.scroll_end(animate=False, immediate=True)
        self.refresh()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Following ends when the operator leaves the end, and begins again there."""
        super().watch_scroll_y(old_value, new_value)
        if self.follow:
            self._at_end = new_value >= self.max_scroll_y

    def render_line(self, y: int) -> Strip:
        """See Widget."""
        row = y + self.scroll_offset.y
        content = self._lines[row] if row < len(self._lines) else EMPTY
        return render.strip(content, self.scrollable_content_region.width, self._style)

    def _style(self, tone: str) -> Style:
        return tone_style(self, tone)


def tone_style(widget: Widget, tone: str) -> Style:
    """The style of a tone in the widget's style sheet; several tones add up."""
    style = widget.rich_style
    for name in tone.split():
        style += widget.get_component_rich_style(f"tone--{name}", partial=True)
    return style
