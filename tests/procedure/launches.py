"""Every scenario played by the advisor and by a blind operator: how many launches each needs, and for what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvtui.procedure.preset import load_preset
from kvtui.procedure.situation import Launch
from kvtui.session.state import SessionState
from tests.procedure.cards import SCENARIOS, Scenario
from tests.procedure.search import Score, Search
from tests.procedure.simulator import Play


@dataclass(frozen=True)
class Result:
    """One scenario. `advisor` counts launches without those of the proof of stability, as `blind` does; `proof`
    those. `found` and `best` are scores: what the advisor's verdict is worth, and what the best of all is."""

    scenario: Scenario
    advisor: int
    proof: int
    blind: int
    found: Score | None
    best: Score | None
    state: SessionState
    launches: tuple[Launch, ...]

    @property
    def reached(self) -> bool:
        """True when the verdict is as good as the best of all configurations, or rightly none."""
        return self.found == self.best


def play_both(scenario: Scenario) -> Result:
    """The advisor's session, then the exhaustive search and the blind one."""
    plan = replace(load_preset("coding-agent"), **scenario.plan)
    game = Play(scenario.card, plan)
    state = game.run()
    search = Search(scenario.card, plan)
    best = search.best
    search.blind()
    verdict = state.verdict
    assert verdict is not None
    found = None
    if verdict.config is not None:
        # The engine's own probe decides what `auto` is; the truth wants it spelled out.
        flash = "on" if scenario.card.flash_attention else "off"
        found = search.score(replace(verdict.config, flash_attn=flash))
    proofs = sum(x.purpose == "stability" for x in game.launches)
    return Result(
        scenario=scenario,
        advisor=len(game.launches) - proofs,
        proof=proofs,
        blind=len(search.launches),
        found=found,
        best=None if best is None else best[0],
        state=state,
        launches=tuple(game.launches),
    )


def table(results: list[Result]) -> Iterator[str]:
    """The results as lines of text."""
    yield f"{'scenario':44} {'advisor':>7} {'proof':>5} {'blind':>5} {'share':>6}  best reached"
    for r in results:
        answer = "none holds" if r.best is None else f"{int(r.best[0]):,} tokens"
        verdict = "yes" if r.reached else "NO"
        share = f"{r.advisor / r.blind:.0%}"
        yield f"{r.scenario.name:44} {r.advisor:7} {r.proof:5} {r.blind:5} {share:>6}  {verdict}, {answer}"
    advisor, blind = sum(r.advisor for r in results), sum(r.blind for r in results)
    reached = sum(r.reached for r in results)
    share, proofs = f"{advisor / blind:.0%}", sum(r.proof for r in results)
    yield f"{'all':44} {advisor:7} {proofs:5} {blind:5} {share:>6}  {reached} of {len(results)}"


def play_all() -> list[Result]:
    """All scenarios."""
    return [play_both(scenario) for scenario in SCENARIOS]
