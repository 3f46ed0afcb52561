"""Make rank promotion an error in models, kernels and sampling.

``(3,) + (4, 3)`` is more often a forgotten axis than an intention. TFP relies on it throughout, so only operations that
the named packages call themselves are refused.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

HELD = ("bayesmesh.kernels", "bayesmesh.models", "bayesmesh.sampling")
"""Packages whose operations may not promote ranks."""


def refuse_rank_promotion() -> None:
    """Let JAX raise ValueError instead of promoting ranks for the packages in `HELD`; call it once."""
    import jax
    from jax._src.numpy import util

    refuse = util._rank_promotion_warning_or_error

    def refuse_held(operation: str, shapes: Sequence[tuple[int, ...]]) -> None:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "jax":
            frame = frame.f_back
        if frame.f_globals.get("__name__", "").startswith(HELD):
            refuse(operation, shapes)

    # JAX's own switch holds for all callers; its contexts would have to surround every call of TFP, gradients included.
    util._rank_promotion_warning_or_error = refuse_held
    jax.config.update("jax_numpy_rank_promotion", "raise")
