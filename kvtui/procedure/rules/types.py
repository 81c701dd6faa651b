"""KV types: values before keys, pairs with a kernel before pairs without, and back up where quality falls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvtui.core.config import RunConfig
from kvtui.procedure.kernels import pair_support
from kvtui.procedure.rules.rule import MEMORY_CAUSES, Case, Rule, meaningful
from kvtui.procedure.speeds import CLIFF, is_slow, share_of_expected
from kvtui.procedure.variables import bits_of

LOSING = ("quality", "recall")


def _rejected(case: Case) -> list[tuple[float, float]]:
    """Bits of the pairs that lost a task or recall in this session, where full precision kept it."""
    lost = []
    for run in case.sit.state.runs:
        if run.counts and run.purpose in ("quantized", "transient"):
            trouble = case.sit.stable(run).trouble
            if trouble in LOSING:
                lost.append((bits_of(run.config.type_k), bits_of(run.config.type_v)))
    return lost


def _possible(case: Case, key: str, value: str) -> bool:
    """False for a pair that the device has no kernel for, that needs flash attention where there is none, or that is
    no better than one whose outputs were worse already."""
    attention_off = case.config.flash_attn == "off"
    if attention_off and bits_of(value) < 16:
        return False
    if pair_support(case.run.facts, key, value) == "cpu":
        return False
    return not any(bits_of(key) <= k and bits_of(value) <= v for k, v in _rejected(case))


def _lower(case: Case, *, keys: bool) -> Iterator[RunConfig]:
    """The pairs below the present one, in the ladder's order: with the same keys, or with lower ones."""
    k, v = bits_of(case.config.type_k), bits_of(case.config.type_v)
    for key, value in case.sit.engine.traits.kv_ladder:
        lower_key, lower_value = bits_of(key) < k, bits_of(value) < v
        fits = (lower_key and bits_of(value) <= v) if keys else (bits_of(key) == k and lower_value)
        if fits and _possible(case, key, value):
            yield replace(case.config, type_k=key, type_v=value)


def _wants_less(case: Case) -> bool:
    return case.cause in MEMORY_CAUSES and meaningful(case, "kv-types")


def _values(case: Case) -> bool:
    return _wants_less(case) and any(_lower(case, keys=False))


def _keys(case: Case) -> bool:
    return _wants_less(case) and any(_lower(case, keys=True))


def _mixed(config: RunConfig) -> bool:
    return config.type_k != config.type_v


def mixed_pair_is_slow(case: Case) -> bool:
    """True when the pair of this case is mixed and its run fell below half of the decode speed to be expected."""
    return _mixed(case.config) and (case.cause == "kernel" or is_slow(case.sit.state, case.run))


def _equal(case: Case) -> Iterator[RunConfig]:
    value = case.config.type_v
    pair = (value, value)
    if pair in case.sit.engine.traits.kv_ladder and _possible(case, *pair):
        yield replace(case.config, type_k=value, type_v=value)


def _equal_pair(case: Case) -> bool:
    return meaningful(case, "kv-types") and mixed_pair_is_slow(case) and any(_equal(case))


def _equal_figures(case: Case) -> str:
    share = share_of_expected(case.sit.state, case.run)
    return "" if share is None else f"{share:.0%} of the decode speed to be expected at this depth"


def _keys_back(case: Case) -> bool:
    low_keys = bits_of(case.config.type_k) < bits_of("q8_0")
    return case.cause in LOSING and low_keys and meaningful(case, "kv-types") and any(_higher(case))


def _higher(case: Case) -> Iterator[RunConfig]:
    """Pairs with better keys, the one nearest to the present pair first."""
    k, v = bits_of(case.config.type_k), bits_of(case.config.type_v)
    better = [
        (key, value)
        for key, value in case.sit.engine.traits.kv_ladder
        if k < bits_of(key) < 16 and bits_of(value) >= v and _possible(case, key, value)
    ]
    for key, value in sorted(better, key=lambda pair: bits_of(pair[0]) + bits_of(pair[1])):
        yield replace(case.config, type_k=key, type_v=value)


KEYS_BACK = Rule(
    id="keys-back-up",
    kind="change",
    when="a task or recall is lost with keys below 8 bits",
    holds=_keys_back,
    why="quality falls with low-bit keys, which lose more than values: keys go back to 8 bits first",
    source="llama.cpp PR #7412 (KL divergence by cache type); llama.cpp #21038",
    variable="kv-types",
    direction="keys higher",
    values=_higher,
    memory="KV grows by what the better keys take",
    speed="about the same",
    risk="more memory; tasks are run again",
    lossy=True,
)

EQUAL_PAIR = Rule(
    id="equal-pair",
    kind="change",
    when=f"a mixed pair decodes below {CLIFF:.0%} of what its depth lets expect",
    holds=_equal_pair,
    why="this build has fast kernels for equal pairs only, so the mixed pair pays at every token: weigh the equal pair "
    "against it by measurement",
    source="llama.cpp PR #28079, #28455, #24485; ggml-cuda/fattn.cu (b11434)",
    variable="kv-types",
    direction="equal",
    values=_equal,
    figures=_equal_figures,
    memory="KV shrinks by what the lower keys save",
    speed="decode without a conversion at every step",
    risk="4-bit keys lose precision on long prompts and tool calls; tasks are run again",
    lossy=True,
)

TYPES: tuple[Rule, ...] = (
    Rule(
        id="values-lower",
        kind="change",
        when="persistent KV is what does not fit and the engine has a pair with the same keys and lower values",
        holds=_values,
        why="persistent KV is what does not fit: values lose less than keys, so they go first",
        source="llama.cpp PR #7412 (KL divergence by cache type)",
        variable="kv-types",
        direction="values lower",
        values=lambda case: _lower(case, keys=False),
        memory="KV, by the type sizes",
        speed="slower decode where the build has kernels for equal pairs only",
        risk="outputs may change; tasks are run again. Stock CUDA builds have fast kernels for equal pairs only",
        lossy=True,
    ),
    Rule(
        id="keys-lower",
        kind="change",
        when="persistent KV is what does not fit and lower values alone are not enough or not possible",
        holds=_keys,
        why="persistent KV is what does not fit, and lower values alone do not make the room: lower keys as well",
        source="llama.cpp PR #7412; minimal-ai#18, lukesdevlab#2 (tool calls at 4-bit keys)",
        variable="kv-types",
        direction="keys lower",
        values=lambda case: _lower(case, keys=True),
        memory="KV, by the type sizes",
        speed="about the same with an equal pair",
        risk="low-bit keys lose precision on long prompts and tool calls; tasks are run again",
        lossy=True,
    ),
    EQUAL_PAIR,
    KEYS_BACK,
)
