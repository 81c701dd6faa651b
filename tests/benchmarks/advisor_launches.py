"""How many launches the advisor needs on simulated cards, against changing one variable blindly.

    python tests/benchmarks/advisor_launches.py

tests/procedure/search.py says what the blind operator knows and does.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.procedure.launches import play_all, table


def main() -> int:
    """0 when every scenario reaches the best in at most half the launches."""
    results = play_all()
    print(*table(results), sep="\n")
    return 0 if all(r.reached and 2 * r.advisor <= r.blind for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
