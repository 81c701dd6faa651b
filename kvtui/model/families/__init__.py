"""The architectures, by family. A new one is a line in a table or a rule of a few lines in one of these files."""

from __future__ import annotations

from kvtui.model.families.arch import Arch
from kvtui.model.families.dense import DENSE
from kvtui.model.families.encoder import ENCODERS
from kvtui.model.families.latent import LATENT
from kvtui.model.families.recurrent import RECURRENT
from kvtui.model.families.special import SPECIAL
from kvtui.model.families.window import WINDOWED

__all__ = ["ARCHITECTURES", "Arch"]

ARCHITECTURES: dict[str, Arch] = {
    arch.name: arch for table in (DENSE, WINDOWED, LATENT, RECURRENT, SPECIAL, ENCODERS) for arch in table
}
