"""Miss a gate of its own where float32 takes from the data what the model is to learn from them."""

from __future__ import annotations

from collections.abc import Mapping

from bayesmesh.diagnostics.gate_messages import WORDINGS
from bayesmesh.diagnostics.verdict import GateResult

LIMIT = 0.1
"""Standard errors of a field's mean by which its values may be rounded."""

MOST = 1.0
"""Rounding beyond which the posterior is that of other data: a location of the values has no finer steps than they have, and
its posterior is about one standard error wide."""


def precision_gate(rounded: Mapping[str, float]) -> GateResult | None:
    """Return a warning, or a failure, where the values of a field are rounded by more than the limit, else None.

    Args:
        rounded: field -> standard errors of its mean by which its values are rounded.

    >>> precision_gate({}), precision_gate({"year": 0.02}), precision_gate({"time": 0.3, "y": 20.0}).verdict
    (None, None, 'fail')
    """
    missed = {name: value for name, value in rounded.items() if value > LIMIT}
    if not missed:
        return None
    worst = max(missed, key=lambda name: missed[name])
    verdict = "fail" if missed[worst] > MOST else "warn"
    others = f", and {', '.join(sorted({*missed} - {worst}))} by less" if len(missed) > 1 else ""
    told = f"float32 rounds the values of '{worst}' by {missed[worst]:.2g} standard errors of their mean, limit {LIMIT:g}{others}"
    return GateResult(
        name="precision", limit=LIMIT, direction="at most", value=missed[worst], where=worst, severity=verdict, verdict=verdict,
        message=f"{told}: the posterior is that of rounded data; {WORDINGS['precision'].hint}",
    )  # fmt: skip
