"""The words of each gate: in its message, in the tables of a page, and what to do when it is missed."""

from __future__ import annotations

from typing import Literal, NamedTuple

Direction = Literal["at most", "at least"]


class Wording(NamedTuple):
    """Words of a gate.

    Attributes:
        title: statistic, in a sentence.
        label: worst value of the statistic, as a heading.
        short: statistic, in a list.
        direction: side of the limit.
        hint: remedies in brief, for the message.
        remedies: remedies for the page.
    """

    title: str
    label: str
    short: str
    direction: Direction
    hint: str
    remedies: tuple[str, ...]


WORDINGS = {
    "finite": Wording(
        "values that are not finite", "Values that are not finite", "non-finite values", "at most", "correct the model",
        (
            "Evaluate the model at the first draw named above: look for overflow, the logarithm of zero, or invalid data.",
            "Bounded quantities: give them a prior with that support, so that the sampler moves in unconstrained space.",
            "Overflow in float32: compute on the log scale, or use float64 (compute.dtype).",
        ),
    ),
    "movement": Wording(
        "chains that do not move", "Chains that do not move", "chains that do not move", "at most",
        "start them elsewhere, or reparametrise the model",
        (
            "A chain that never moves is no sample: start elsewhere (sampling.initial), or lengthen the warmup.",
            "Stuck at the edge of the support, or where the gradient overflows: reparametrise, or use float64 (compute.dtype).",
            "A step size too large for one region: raise the kernel's target acceptance rate.",
        ),
    ),
    "r_hat": Wording(
        "R-hat", "Largest R-hat", "R-hat", "at most",
        "chains disagree: run a longer warmup or more draws, or look for modes and parameters that are not identified",
        (
            "Chains disagree: look in the traces below for a chain that is elsewhere or still drifts.",
            "Drift: use a longer warmup (sampling.warmup) and more draws (sampling.draws extends the same chains).",
            "Chains in different modes: more draws will not help; reparametrise, or order the components of the model.",
        ),
    ),
    "ess_bulk": Wording(
        "bulk effective sample size", "Smallest bulk ESS", "bulk ESS", "at least", "run more draws, or longer trajectories",
        (
            "More draws: raise sampling.draws, which extends the chains.",
            "Draws correlated over hundreds of steps: use longer trajectories or a longer warmup.",
        ),
    ),
    "ess_tail": Wording(
        "tail effective sample size", "Smallest tail ESS", "tail ESS", "at least",
        "run more draws; tails are explored too slowly for the 5% and 95% quantiles",
        (
            "More draws, before using any quantile or interval.",
            "Tails that are never reached: use a heavier-tailed parametrisation or a smaller step size (a higher target acceptance).",
        ),
    ),
    "mcse_mean": Wording(
        "Monte Carlo standard error of the mean, in posterior standard deviations",
        "Largest MCSE of a mean, in posterior sd", "MCSE", "at most", "run more draws",
        ("More draws: the error falls with the square root of the effective sample size.",),
    ),
    "divergences": Wording(
        "share of divergent draws", "Share of divergent draws", "divergences", "at most",
        "raise the target acceptance rate, or reparametrise the model",
        (
            "A smaller step size: raise the kernel's target acceptance rate and lengthen the warmup.",
            "Remaining divergences indicate a geometry that the integrator cannot follow: reparametrise (non-centred, log scale).",
            "Low precision also causes divergences: use a higher matrix product precision or float64.",
        ),
    ),
    "bfmi": Wording(
        "Bayesian fraction of missing information", "Smallest BFMI of a chain", "BFMI", "at least",
        "energies are explored slowly: heavy tails; reparametrise the model, or run a longer warmup",
        (
            "Momentum resampling explores the energies too slowly: heavy tails or an unsuitable mass matrix.",
            "Use a longer warmup to adapt the mass matrix; else reparametrise so that scales do not vary over the posterior.",
        ),
    ),
}  # fmt: skip
"""Name of a gate -> its words."""


def wording(name: str) -> Wording:
    """Return the words of a gate; of one that only another version has, its name."""
    plain = name.replace("_", " ")
    remedy = "Use more draws, a longer warmup, or another parametrisation of the model; then check the same gate again."
    return WORDINGS.get(name) or Wording(plain, plain, plain, "at most", "", (remedy,))
