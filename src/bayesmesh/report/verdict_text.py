"""Put a verdict into words."""

from __future__ import annotations

from collections.abc import Mapping

from bayesmesh.analyses.figures import formats
from bayesmesh.diagnostics.gates.messages import without_kernel, wording
from bayesmesh.diagnostics.verdict import GateResult, Outcome, Verdict


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
        # Two decimals would not distinguish a limit of one in a million from one in a hundred thousand.
        return f"{formats.real(100 * value, 2)}%" if 0 < value < 1e-4 else formats.share(value, 2)
    if name in ("finite", "movement", "modes", "ess_bulk", "ess_tail"):
        return formats.count(value)
    if name in ("r_hat", "populations"):
        return formats.r_hat(value)
    return formats.real(value, 3)


def remedies(name: str, kernel: str) -> list[str]:
    """Return the remedies of a gate for a run with this kernel."""
    return without_kernel(wording(name).remedies, kernel)


def read_aloud(verdict: Verdict) -> str:
    """Return the verdict in words, followed by the changes that warmup made: target acceptance, restarted chains."""
    said = _read_verdict(verdict) if verdict.datasets is None else _read_counts(verdict.datasets)
    if verdict.raised_target_acceptance is not None:
        raised = f"{verdict.raised_target_acceptance:.4g}"
        said += f" During warmup, the target acceptance was raised to {raised}, because trajectories diverged."
    if not verdict.num_restarted:
        return said
    total = verdict.num_chains * (1 if verdict.datasets is None else sum(verdict.datasets.values()))
    chains = f"{formats.count(verdict.num_restarted)} of {formats.count(total)} chains"
    were = "was" if verdict.num_restarted == 1 else "were"
    return f"{said} During warmup, {chains} {were} in a mode of negligible mass and restarted from others."


def _read_verdict(verdict: Verdict) -> str:
    missed, total = len(verdict.missed), len(verdict.gates)
    drawn = f"{formats.count(verdict.num_chains)} chains of {formats.count(verdict.num_draws)} draws"
    if verdict.verdict == "pass":
        return f"All {total} gates pass: by their limits, {drawn} show no sign of non-convergence."
    names = _listed(missed_names(verdict))
    if verdict.verdict == "warn":
        return f"{missed} of {total} gates gave a warning ({names}), and none failed: interpret the results with care."
    tail = f"Do not rely on its {drawn} as a sample from the posterior."
    failed = [wording(gate.name).short for gate in verdict.missed if gate.verdict == "fail"]
    warned = [wording(gate.name).short for gate in verdict.missed if gate.verdict == "warn"]
    also = f", with a warning on {_listed(warned)}" if warned else ""
    return f"This run failed {len(failed)} of {total} gates ({_listed(failed)}){also}. {tail}"


def _read_counts(counts: Mapping[Outcome, int]) -> str:
    """Return the number of datasets with each verdict, in words.

    >>> _read_counts({"fail": 1, "warn": 0, "pass": 9})
    '9 of 10 datasets pass all gates, 1 fails. Below is the worst result of each gate. Among many datasets, some miss a limit by chance.'
    """
    total, passed, warned, failed = sum(counts.values()), counts["pass"], counts["warn"], counts["fail"]
    others = [f"{formats.count(warned)} with a warning"] if warned else []
    others += [f"{formats.count(failed)} {'fails' if failed == 1 else 'fail'}"] if failed else []
    said = ", ".join([f"{formats.count(passed)} of {formats.count(total)} datasets pass all gates", *others])
    more = "" if passed == total else " Among many datasets, some miss a limit by chance."
    return f"{said}. Below is the worst result of each gate.{more}"


def missed_names(verdict: Verdict) -> list[str]:
    """Return the short names of the gates that do not pass."""
    return [wording(gate.name).short for gate in verdict.missed]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "none named"
