"""ik_llama.cpp where it prints what llama.cpp never did. The rest of its lines are llama.cpp's of 2024."""

from __future__ import annotations

import re

from kvtui.logs.draft import Draft
from kvtui.logs.rules import rule


def _is_ik(d: Draft, m: re.Match[str]) -> None:
    d.claim("ik_llama.cpp")


def _build(d: Draft, m: re.Match[str]) -> None:
    if d.has_begun and d.engine != "ollama":
        d.new_launch()
    d.claim("ik_llama.cpp")
    d.fact("build", f"b{m['number']}")
    d.fact("commit", m["commit"])


def _mla_split(d: Draft, m: re.Match[str]) -> None:
    d.claim("ik_llama.cpp")
    d.memory["kind"] = "mla"


RULES = (
    rule("mla_attn", r": mla_attn\s*= \d", _is_ik),
    rule("fused_moe", r": fused_moe\s*= \d", _is_ik),
    rule("c^KV", r"c\^KV \(", _mla_split),
    rule("build=", r"build info \|.*\bbuild=(?P<number>\d+) commit=\"(?P<commit>\w+)\"", _build),
)
