"""The two widgets that draw lines: as they are, and with a scroll."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from rich.style import Style
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from kvtui.tui import render
from kvtui.tui.lines import EMPTY, Line, changed_cells

if TYPE_CHECKING:
    from kvtui.tui.app import KvtuiApp


class Lines(Widget):
    """Draws lines as they are. Only cells that differ from what is on the screen are written again."""

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
        return render.strip(content, self.size.width, styler(self))


class ScrollLines(ScrollView):
    """Lines that may be more than fit; `follow` keeps the last one in sight until the operator scrolls up."""

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
        return render.strip(content, self.scrollable_content_region.width, styler(self))


def styler(widget: Widget) -> Callable[[str], Style]:
    """Tone -> style on the widget's own background."""
    base = widget.rich_style
    palette = cast("KvtuiApp", widget.app).palette
    return lambda tone: base + palette.style(tone)
