"""Warn about draws of a kernel without an accept step: no statistic of theirs shows the bias due to the step size."""

from __future__ import annotations

from bayesmesh.diagnostics.gates.messages import WORDINGS
from bayesmesh.diagnostics.verdict import GateResult


def accept_step_gate(is_adjusted: bool) -> GateResult | None:
    """Return a warning for a kernel without an accept step; None for one with it.

    >>> accept_step_gate(True), accept_step_gate(False).verdict
    (None, 'warn')
    """
    if is_adjusted:
        return None
    return GateResult(
        name="accept_step", limit=1.0, direction="at least", value=0.0, where="", severity="warn", verdict="warn",
        found="the kernel has no accept step: the step size biases its draws, which no other gate detects",
        hint=WORDINGS["accept_step"].hint, beyond_draws=True,
    )  # fmt: skip
