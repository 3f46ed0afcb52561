"""Says in words what a verdict means and what one may do about it."""

from __future__ import annotations

from bayesmesh.diagnostics.verdict import GateResult, Verdict
from bayesmesh.figures import formats

__all__ = ["gate_label", "limit_text", "missed_names", "read_aloud", "remedies", "value_text"]

LABELS = {
    "r_hat": "Largest R-hat",
    "ess_bulk": "Smallest bulk ESS",
    "ess_tail": "Smallest tail ESS",
    "mcse_mean": "Largest MCSE of a mean, in posterior sd",
    "divergences": "Share of divergent draws",
    "bfmi": "Smallest BFMI of a chain",
}

SHORT_LABELS = {"r_hat": "R-hat", "ess_bulk": "bulk ESS", "ess_tail": "tail ESS", "mcse_mean": "MCSE", "bfmi": "BFMI"}

REMEDIES = {
    "r_hat": (
        "Chains do not agree: look at the traces below for one that sits elsewhere or still drifts.",
        "Drift: a longer warmup (sampling.warmup) and more draws (sampling.draws extends the same chains).",
        "Chains in different modes: more draws will not help; reparametrise, or give the model an ordering.",
    ),
    "ess_bulk": (
        "More draws: raise sampling.draws; the chains are extended, not started again.",
        "Draws that stay correlated over hundreds of steps: longer trajectories, or a longer warmup.",
    ),
    "ess_tail": (
        "More draws, before any quantile or interval is read off.",
        "Tails that are never reached: a heavier-tailed parametrisation, or a smaller step (a higher target acceptance).",
    ),
    "mcse_mean": ("More draws: the error falls with the square root of the effective sample size.",),
    "divergences": (
        "A smaller step: raise the kernel's target acceptance rate, and lengthen the warmup.",
        "Divergences that remain mark a geometry the integrator cannot follow: reparametrise (non-centred, log scale).",
        "Arithmetic in low precision also diverges: ask for a higher matrix product precision, or float64.",
    ),
    "bfmi": (
        "Momentum resampling explores the energies too slowly: heavy tails or a mass matrix that does not fit.",
        "A longer warmup for the mass matrix; else reparametrise so that scales do not vary over the posterior.",
    ),
}

_GENERAL = ("More draws, a longer warmup, or another parametrisation of the model; then look at the same gate again.",)


def gate_label(gate: GateResult) -> str:
    """Return the name of a gate for a table."""
    return LABELS.get(gate.name, gate.name.replace("_", " "))


def remedies(gate: GateResult) -> tuple[str, ...]:
    """Return what one may do about a gate that does not hold."""
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
    if name in ("ess_bulk", "ess_tail"):
        return formats.count(value)
    if name == "r_hat":
        # 1.0096 and 1.0104 lie on two sides of the usual limit: three decimals would hide it.
        return formats.fixed(value, 4) if value < 10 else formats.real(value, 3)
    return formats.real(value, 3)


def read_aloud(verdict: Verdict) -> str:
    """Return the verdict as one sentence."""
    missed, total = len(verdict.missed), len(verdict.gates)
    drawn = f"{formats.count(verdict.num_chains)} chains of {formats.count(verdict.num_draws)} draws"
    if verdict.verdict == "pass":
        return f"All {total} gates hold: nothing in {drawn} speaks against convergence."
    names = _listed(missed_names(verdict))
    if verdict.verdict == "warn":
        return f"{missed} of {total} gates missed, with a warning only ({names}): read the numbers with that in mind."
    tail = f"Its {drawn} are not a sample of the posterior that one may rely on."
    return f"This run failed {missed} of {total} gates ({names}). {tail}"


def missed_names(verdict: Verdict) -> list[str]:
    """Return short names of the gates that do not hold."""
    return [SHORT_LABELS.get(gate.name, gate.name.replace("_", " ")) for gate in verdict.missed]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "none named"
