"""Rank promotion raises where this project's own code relies on it.

``(3,) + (4, 3)`` is more often a forgotten axis than an intention. Libraries below us, TFP above all, promote throughout:
only calls of our own modules are refused.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def refuse_rank_promotion() -> None:
    """Let every operation of JAX that is called by a module of ours raise ValueError instead of promoting ranks."""
    import jax
    from jax._src.numpy import util

    complain = util._rank_promotion_warning_or_error

    def complain_of_ours(name: str, shapes: Sequence[tuple[int, ...]]) -> None:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "jax":
            frame = frame.f_back
        if frame.f_globals.get("__name__", "").partition(".")[0] == "bayesmesh":
            complain(name, shapes)

    # JAX's own switch is the same for all callers, and its contexts would have to be entered around every call of TFP.
    util._rank_promotion_warning_or_error = complain_of_ours
    jax.config.update("jax_numpy_rank_promotion", "raise")
