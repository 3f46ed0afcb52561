"""Explain a verdict in words and suggest remedies."""

from __future__ import annotations

from bayesmesh.diagnostics.verdict import GateResult, Verdict
from bayesmesh.diagnostics.wording import wording
from bayesmesh.figures import formats


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
    if name in ("finite", "movement", "modes", "ess_bulk", "ess_tail"):
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
        return f"All {total} gates pass: by their limits, {drawn} show no sign of non-convergence."
    names = _listed(missed_names(verdict))
    if verdict.verdict == "warn":
        return (
            f"{missed} of {total} gates did not pass, with a warning only ({names}): interpret the results with care."
        )
    tail = f"Do not rely on its {drawn} as a sample of the posterior."
    return f"This run failed {missed} of {total} gates ({names}). {tail}"


def missed_names(verdict: Verdict) -> list[str]:
    """Return short names of the gates that do not pass."""
    return [wording(gate.name).short for gate in verdict.missed]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "none named"
