"""Neutral text without end: short records of many forms, the same for the same seed, of any length.

Its own little generator and not `random`, so that a prompt is the same on every Python and a run made
years ago can be compared with one made today.
"""

from __future__ import annotations

from collections.abc import Iterator

_MASK = (1 << 64) - 1


class Stream:
    """Pseudo-random choices from a seed (splitmix64)."""

    def __init__(self, *seed: int) -> None:
        self._state = 0
        for part in seed:
            self._state = (self._next() ^ (part & _MASK)) & _MASK
        self._next()

    def _next(self) -> int:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def between(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + self._next() % (high - low + 1)

    def pick(self, words: tuple[str, ...]) -> str:
        """One of `words`."""
        return words[self._next() % len(words)]

    def sample(self, words: tuple[str, ...], count: int) -> list[str]:
        """`count` different ones of `words`, in no order."""
        pool = list(words)
        return [pool.pop(self._next() % len(pool)) for _ in range(count)]


_PLACES = tuple(
    first + last
    for first in ("Var", "Ost", "Min", "Hal", "Tor", "Bel", "Quen", "Lor", "Sund", "Eck", "Pell", "Rav")
    for last in ("holm", "rel", "mouth", "stead", "wick", "ford", "gate", "by", "low", "march")
)
_THINGS = (
    "pump", "valve", "crane", "boiler", "press", "kiln", "lathe", "winch", "turbine", "mixer",
    "conveyor", "furnace", "compressor", "loom", "dryer", "saw", "filter", "generator",
)  # fmt: skip
_GOODS = (
    "barley", "slate", "cotton", "copper wire", "paper", "salt", "timber", "glass", "cement",
    "apples", "wool", "oil", "bricks", "paint", "rope", "sugar", "tiles", "coal",
)  # fmt: skip
_STATES = (
    "steady", "a little loud", "in order", "due for cleaning", "warmer than usual", "idle",
    "back in service", "under repair", "slow to start", "as expected",
)  # fmt: skip
_WEATHER = ("light rain", "fog", "clear sky", "hail", "a dry wind", "frost", "drizzle", "warm haze")
_BIRDS = ("heron", "swift", "plover", "magpie", "kestrel", "wren", "curlew", "lapwing")
_TRADES = ("mason", "clerk", "welder", "surveyor", "carpenter", "driver", "painter", "baker")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_FORMS = (
    "Entry {serial}: the {thing} at {place} ran at {percent} percent and was found {state}.",
    "At {hour:02d}:{minute:02d} the ferry left {place} with {small} crates of {goods}.",
    "The bridge at {place} is {large} metres long and was painted in {year}.",
    "{place} reported {weather} on {day}, with {percent} percent humidity.",
    "A {trade} from {place} replaced {small} bolts on the {thing} in {small2} minutes.",
    "Lot {serial} holds {large} sacks of {goods} and goes to {place2} on {day}.",
    "Between {place} and {place2} the road climbs {large} metres over {small} kilometres.",
    "The {bird} was seen {small} times near {place} before {hour:02d}:{minute:02d}.",
    "Invoice {serial} lists {goods}, {small} units, paid on a {day} in {year}.",
    "In {year} the mill at {place} kept a {thing}, two clerks and {small} carts.",
    "The {trade} noted that the {thing} is {state} and that {goods} is running short.",
    "Line {serial} to {place} was closed for {small} hours because of {weather}.",
    "Room {small} of the {place} archive stores maps from {year} and ledgers on {goods}.",
    "On {day} the price of {goods} at {place2} rose by {small} percent.",
    "{place2} has {large} houses, one school and a {thing} from {year}.",
    "After {weather} the {trade} in {place} moved {small} loads of {goods} indoors.",
)


def records(*seed: int) -> Iterator[str]:
    """Records without end, each one line of 12 to 30 tokens that ends in a full stop."""
    stream = Stream(*seed)
    serial = stream.between(1000, 4000)
    while True:
        serial += stream.between(1, 9)
        yield stream.pick(_FORMS).format(
            serial=serial,
            thing=stream.pick(_THINGS),
            place=stream.pick(_PLACES),
            place2=stream.pick(_PLACES),
            goods=stream.pick(_GOODS),
            state=stream.pick(_STATES),
            weather=stream.pick(_WEATHER),
            bird=stream.pick(_BIRDS),
            trade=stream.pick(_TRADES),
            day=stream.pick(_DAYS),
            percent=stream.between(3, 98),
            small=stream.between(2, 59),
            small2=stream.between(5, 90),
            large=stream.between(110, 990),
            year=stream.between(1871, 1996),
            hour=stream.between(0, 23),
            minute=stream.between(0, 59),
        )
