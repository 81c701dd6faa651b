"""What the options of `kvtui budget` say of the card and of the terms beside the model."""

from __future__ import annotations

import argparse

from kvtui.core.errors import InputError
from kvtui.procedure.budget.card import Card, found_card, given_card
from kvtui.procedure.budget.money import Terms


def card_for(args: argparse.Namespace) -> Card | None:
    """What `--vram` says, else the GPUs of `--gpu`, else those that an engine would use; None where there is none.

    Raises InputError for a GPU that is not there, and for both options at once.
    """
    if args.vram is not None and args.gpus is not None:
        raise InputError(
            "--gpu names GPUs of this machine, and --vram stands in for them", hint="give one of both"
        )
    return given_card(args.vram) if args.vram is not None else found_card(args.gpus)


def terms_for(args: argparse.Namespace) -> Terms:
    """`--reserve`, `--runtime` and `--margin`."""
    return Terms(args.reserve, args.runtime, args.margin)
