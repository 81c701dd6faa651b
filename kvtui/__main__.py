"""`python -m kvtui` and the `kvtui` script."""

import sys

from kvtui.cli import main as _main


def main() -> None:
    """Run the command line and leave with its exit status."""
    sys.exit(_main())


if __name__ == "__main__":
    main()
