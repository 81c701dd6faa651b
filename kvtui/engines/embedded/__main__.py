"""`python -m kvtui.engines.embedded`."""

from __future__ import annotations

import sys

from kvtui.engines.embedded.server import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
