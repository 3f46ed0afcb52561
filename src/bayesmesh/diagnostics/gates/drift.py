"""Name a latent that nothing bounds if gates are missed: chains drift far along it at the same log density.

Flat priors on terms that offset each other, or on a coefficient that separates the outcomes, leave a density without a
finite integral, so no number of draws helps (Gelman et al. 2013, "Bayesian Data Analysis", section 4.3).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float, Real

from bayesmesh.diagnostics.convergence import convergence_table
from bayesmesh.diagnostics.gates.messages import WORDINGS
from bayesmesh.diagnostics.verdict import GateResult, Outcome

FAR = 1e3
"""Standard deviation above which a latent is examined: chains start within 2 of 0, or where prior and data suggest."""

MOST_EFFECTIVE = 3.0
"""Bulk effective sample size per chain below which chains do not return to where they were; random walks have 1.1 to
1.7."""

LEAST_FALL = 0.5
"""Smallest fall of the mean log density, in nats, from the third of draws nearest the median to the farthest third, for
a latent to count as bounded. It is 1.2 for a normal distribution, whatever the number of other latents, and more with
heavier tails."""


def fall_of_density(lp: Float[np.ndarray, "chain draw"], draws: Real[np.ndarray, "chain draw"]) -> float:
    """Return the mean log density of the third of draws nearest the median minus that of the farthest third, in nats.

    >>> fall_of_density(-0.5 * np.array([[0.0, 1.0, 4.0, 9.0, 4.0, 9.0]]), np.array([[0.0, 1.0, 2.0, 3.0, -2.0, -3.0]]))
    3.0
    """
    distance = np.abs(draws - np.median(draws)).ravel()
    order, third = np.argsort(distance, kind="stable"), max(1, distance.size // 3)
    sorted_lp = lp.astype(np.float64).ravel()[order]
    return float(sorted_lp[:third].mean() - sorted_lp[-third:].mean())


def drift_gate(
    lp: Float[np.ndarray, "chain draw"],
    blocks: Iterable[tuple[list[str], Real[np.ndarray, "chain draw _"]]],
    outcome: Outcome,
) -> GateResult | None:
    """Return a missed gate that names the latent along which chains drift farthest; None if there is none.

    Args:
        lp: log density of every draw, nats.
        blocks: names and draws of latents.
        outcome: of the other gates.
    """
    found: dict[str, float] = {}
    for names, draws in blocks:
        values = draws.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            spread = values.std(axis=(0, 1))
        far = np.flatnonzero((spread > FAR) & np.isfinite(spread))
        effective = convergence_table(values[:, :, far])["ess_bulk"] / len(lp)
        for at, size in zip(far, effective, strict=True):
            if size < MOST_EFFECTIVE and fall_of_density(lp, values[:, :, at]) < LEAST_FALL:
                found[names[at]] = float(spread[at])
    if not found:
        return None
    worst = max(found, key=lambda name: found[name])
    others = f"; also along {len(found) - 1} more" if len(found) > 1 else ""
    return GateResult(
        name="drift", limit=FAR, direction="at most", value=found[worst], where=worst,
        severity="fail" if outcome == "fail" else "warn", verdict=outcome,
        found=(
            f"nothing bounds {worst}: chains drift along it (standard deviation {found[worst]:.3g}{others}), and the log density"
            " stays the same. The posterior may be improper, and more draws do not help"
        ),
        hint=WORDINGS["drift"].hint,
        beyond_draws=True,
    )  # fmt: skip
