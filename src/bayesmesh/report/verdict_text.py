"""Explain a verdict in words and suggest remedies."""

from __future__ import annotations

from bayesmesh.diagnostics.verdict import GateResult, Verdict
from bayesmesh.figures import formats

LABELS = {
    "finite": "Values that are not finite",
    "r_hat": "Largest R-hat",
    "ess_bulk": "Smallest bulk ESS",
    "ess_tail": "Smallest tail ESS",
    "mcse_mean": "Largest MCSE of a mean, in posterior sd",
    "divergences": "Share of divergent draws",
    "bfmi": "Smallest BFMI of a chain",
}

SHORT_LABELS = {
    "finite": "non-finite values",
    "r_hat": "R-hat",
    "ess_bulk": "bulk ESS",
    "ess_tail": "tail ESS",
    "mcse_mean": "MCSE",
    "bfmi": "BFMI",
}

REMEDIES = {
    "finite": (
        "Evaluate the model at the first draw named above: look for overflow, the logarithm of zero, or invalid data.",
        "Bounded quantities: give them a prior with that support, so that the sampler moves in unconstrained space.",
        "Overflow in float32: compute on the log scale, or use float64 (compute.dtype).",
    ),
    "r_hat": (
        "Chains disagree: look in the traces below for a chain that is elsewhere or still drifts.",
        "Drift: use a longer warmup (sampling.warmup) and more draws (sampling.draws extends the same chains).",
        "Chains in different modes: more draws will not help; reparametrise, or order the components of the model.",
    ),
    "ess_bulk": (
        "More draws: raise sampling.draws, which extends the chains.",
        "Draws correlated over hundreds of steps: use longer trajectories or a longer warmup.",
    ),
    "ess_tail": (
        "More draws, before using any quantile or interval.",
        "Tails that are never reached: use a heavier-tailed parametrisation or a smaller step size (a higher target acceptance).",
    ),
    "mcse_mean": ("More draws: the error falls with the square root of the effective sample size.",),
    "divergences": (
        "A smaller step size: raise the kernel's target acceptance rate and lengthen the warmup.",
        "Remaining divergences indicate a geometry that the integrator cannot follow: reparametrise (non-centred, log scale).",
        "Low precision also causes divergences: use a higher matrix product precision or float64.",
    ),
    "bfmi": (
        "Momentum resampling explores the energies too slowly: heavy tails or an unsuitable mass matrix.",
        "Use a longer warmup to adapt the mass matrix; else reparametrise so that scales do not vary over the posterior.",
    ),
}

_GENERAL = (
    "Use more draws, a longer warmup, or another parametrisation of the model; then check the same gate again.",
)


def gate_label(gate: GateResult) -> str:
    """Return the name of a gate for a table."""
    return LABELS.get(gate.name, gate.name.replace("_", " "))


def remedies(gate: GateResult) -> tuple[str, ...]:
    """Return remedies for a gate that does not pass."""
    return REMEDIES.get(gate.name, _GENERAL)


def value_text(gate: GateResult) -> str:
    """Return the value of a gate with its unit."""
    return _with_unit(gate.name, gate.value)


def limit_text(gate: GateResult) -> str:
    """Return the limit of a gate with its direction."""
    return ("≤ " if gate.direction == "at most" else "≥ ") + _with_unit(gate.name, gate.limit)


def _with_unit(name: str, value: float) -> str:
    if name == "divergences":
        if value == 0:
            return "0%"
        return formats.share(value, 2)
    if name in ("finite", "ess_bulk", "ess_tail"):
        return formats.count(value)
    if name == "r_hat":
        # Three decimals would hide on which side of the usual limit 1.0096 and 1.0104 lie.
        return formats.fixed(value, 4) if value < 10 else formats.real(value, 3)
    return formats.real(value, 3)


def read_aloud(verdict: Verdict) -> str:
    """Return the verdict as one sentence."""
    missed, total = len(verdict.missed), len(verdict.gates)
    drawn = f"{formats.count(verdict.num_chains)} chains of {formats.count(verdict.num_draws)} draws"
    if verdict.verdict == "pass":
        return f"All {total} gates pass: {drawn} show no sign of non-convergence."
    names = _listed(missed_names(verdict))
    if verdict.verdict == "warn":
        return (
            f"{missed} of {total} gates did not pass, with a warning only ({names}): interpret the results with care."
        )
    tail = f"Do not rely on its {drawn} as a sample of the posterior."
    return f"This run failed {missed} of {total} gates ({names}). {tail}"


def missed_names(verdict: Verdict) -> list[str]:
    """Return short names of the gates that do not pass."""
    return [SHORT_LABELS.get(gate.name, gate.name.replace("_", " ")) for gate in verdict.missed]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "none named"
