"""The app on the story, for tests that need a real terminal: `play.py FOLDER PACE [hang|idle|unattended]...`."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from kvtui.tui.app import run_app
from tests.tui import story


class Hanging(story.StoryTuning):
    """Work that never looks at its cancel flag, like a driver call that does not come back."""

    def run(self, *args: object) -> story.SessionState:
        """Never returns."""
        threading.Event().wait()
        return self.store.state


def main() -> int:
    """Run it."""
    root, pace, *flags = sys.argv[1:]
    tuning = Hanging if "hang" in flags else story.StoryTuning
    return run_app(lambda note: tuning(Path(root), float(pace)), unattended="unattended" in flags)  # type: ignore[arg-type,return-value]


if __name__ == "__main__":
    sys.exit(main())
