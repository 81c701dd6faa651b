"""A session as CSV (RFC 4180, UTF-8, a head, one row a run) for a spreadsheet.

Columns are the keys of one run in `kvtui.report/1` (see kvtui.report.document) but `facts`, a dot between a key and
the key in it, behind the session's own: `session`, `session_started_at`, `kvtui`, `host.*`. They are only ever added.
What has no fixed number of items (speeds, recall, tasks, findings, checks, ..) is one cell of JSON. Empty: not
measured, not proven, or not so. Text that a spreadsheet would take for a formula (`=`, `+`, `-`, `@`, tab and line
break first) has an apostrophe before it; numbers are numbers.
"""

from __future__ import annotations

import csv
import io
from dataclasses import fields
from typing import Any

from kvtui.core.json_text import json_text
from kvtui.report.document import document
from kvtui.session.records import Forecast
from kvtui.session.state import SessionState

_GROUPS = {
    "": "run step purpose subject outcome counts interrupted reason failure exit_code started_at finished_at wall_s "
    "engine_s load_s quantization weight_quant kv_types_asked kv_types device driver cuda engine build commit",
    "change": "variable option before after against_run",
    "model": "file_name file_bytes header_sha256",
    "context": "asked allocated per_slot used",
    "slots": "asked actual",
    "unified": "asked actual",
    "n_batch": "asked actual",
    "n_ubatch": "asked actual",
    "flash_attn": "asked actual",
    "gpu_layers": "asked actual total",
    " ": "prompt_tokens generated_tokens at_depth prompt_tps decode_tps first_token_s",
    "kv": "forecast_bytes proven_bytes difference_bytes rounding_bytes conventional_bytes exactness",
    "memory": "basis before_bytes after_load_bytes after_warm_up_bytes peak_prefill_bytes peak_decode_bytes "
    "peak_bytes peak_phase host_peak_bytes interval_s lost phases",
    "breakdown": "total_bytes weights_bytes kv_bytes compute_bytes other_bytes others_bytes free_bytes proven",
    "spill": "kv_host_bytes layers_on_cpu",
    "sampling": "temperature seed",
    "quality": "baseline_run identical total regressed baseline_failed divergences not_repeated "
    "top_agreement shift conclusion",
    "forecast": " ".join(f.name for f in fields(Forecast)),
    "  ": "moved hidden side_contexts speeds recall tasks repeated concurrency full_pool stability prompts "
    "prompts_reason checks findings failures missing config argv env command follow",
}
_RUN = tuple(
    f"{group.strip()}.{name}".lstrip(".") for group, names in _GROUPS.items() for name in names.split()
)
_SESSION = (
    "session",
    "session_started_at",
    "kvtui",
    "host.system",
    "host.cpu",
    "host.cores",
    "host.memory_bytes",
)
COLUMNS = (*_SESSION, *_RUN)
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def render(state: SessionState) -> str:
    """The table of `state`."""
    found = document(state)
    lead = {
        "session": found["session"]["id"],
        "session_started_at": found["session"]["started_at"],
        "kvtui": found["kvtui"],
        **{f"host.{key}": value for key, value in found["host"].items()},
    }
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for run in found["runs"]:
        writer.writerow([_cell(lead[c]) for c in _SESSION] + [_cell(_at(run, c)) for c in _RUN])
    return out.getvalue()


def _at(run: dict[str, Any], column: str) -> Any:
    value: Any = run
    for key in column.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        return json_text(value)
    if isinstance(value, str):
        return guarded(value)
    return str(value)


def guarded(text: str) -> str:
    """`text` as a cell that is text in every spreadsheet."""
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) or text.startswith("'") else text
