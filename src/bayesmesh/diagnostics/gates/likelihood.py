"""Warn if the log likelihood is the same in all draws: the data say nothing, and the posterior is the prior.

A likelihood that uses no latent, for example because of a misspelt name or a comparison that is never true, passes
every other gate.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from bayesmesh.diagnostics.gates.messages import WORDINGS
from bayesmesh.diagnostics.verdict import GateResult


def constant_gate(log_likelihood: Float[np.ndarray, "chain draw"]) -> GateResult | None:
    """Return a warning if all draws have the same finite log likelihood, in nats; None if not, or if there is one draw.

    >>> constant_gate(np.array([[-3.0, -2.9]])) is None
    True
    """
    first = log_likelihood.ravel()[0]
    if log_likelihood.size == 1 or not np.isfinite(first) or (log_likelihood != first).any():
        return None
    return GateResult(
        name="likelihood", limit=2.0, direction="at least", value=1.0, where="log_likelihood", severity="warn", verdict="warn",
        found=f"the log likelihood is {first:.6g} in all draws: no latent changes it, and the posterior is the prior",
        hint=WORDINGS["likelihood"].hint, beyond_draws=True,
    )  # fmt: skip
