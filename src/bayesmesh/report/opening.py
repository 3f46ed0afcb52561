"""Describe a run at the top of its page: model, data, size, the verdict in words, and its scope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bayesmesh.analyses.figures import formats
from bayesmesh.diagnostics.gates.messages import without_kernel, wording
from bayesmesh.diagnostics.verdict import GateResult, Outcome, Verdict
from bayesmesh.report.diagnostics_tables import Coordinates


def describe_setup(config: Mapping[str, object], counts: Mapping[str, object]) -> str:
    """Return model, data, kernel and seed in one line.

    Args:
        config: whole configuration of the experiment.
        counts: counts of rows from the shard stage, and facts from the source; empty if unknown.

    >>> config = {"model": {"name": "glm", "formula": "y ~ x"}, "data": {"source": "table", "files": ["a.csv"]}}
    >>> describe_setup({**config, "kernel": {"name": "nuts"}, "sampling": {"seed": 3}}, {"training_rows": 1200})
    'Model glm, y ~ x · data table (a.csv), 1,200 rows · kernel nuts · seed 3'
    """
    model, data, kernel, sampling = (part(config, key) for key in ("model", "data", "kernel", "sampling"))
    files, rows = data.get("files"), counts.get("training_rows")
    named = [str(each) for each in files[:1]] if isinstance(files, Sequence) and not isinstance(files, str) else []
    more = f" and {len(files) - 1} more" if named and isinstance(files, Sequence) and len(files) > 1 else ""
    of = [
        ", ".join(str(each) for each in (model.get("name"), model.get("formula")) if each),
        f"{data.get('source') or ''}{f' ({named[0]}{more})' if named else ''}",
        str(kernel.get("name") or ""),
        str(sampling.get("seed", "")),
    ]
    if of[1] and isinstance(rows, int):
        of[1] += f", {_counted(rows, 'row')}"
        dropped = counts.get("rows_incomplete")
        of[1] += f" ({_counted(dropped, 'more row')} dropped for missing values)" if isinstance(dropped, int) else ""
    parts = zip(("Model", "data", "kernel", "seed"), of, strict=True)
    return " · ".join(f"{word} {text}" for word, text in parts if text)


def part(config: Mapping[str, object], key: str) -> Mapping[str, object]:
    """Return a block of a configuration, or of other nested values; empty without it."""
    found = config.get(key)
    return found if isinstance(found, Mapping) else {}


def say_scope(verdict: Verdict, coordinates: Coordinates) -> str:
    """Return the number of monitored quantities, and the largest R-hat among the other latents, in words.

    Args:
        verdict: verdict on the experiment.
        coordinates: rows of ``summary.csv``, with the monitored summaries marked.
    """
    total, fixed = verdict.num_coordinates.summaries, verdict.num_coordinates.fixed
    said = [f"The gates assess the sampling, by {_counted(total - fixed, 'monitored quantity')}."]
    if fixed:
        said.append(f"They leave out {_counted(fixed, 'other')}, which no latent changes.")
    if verdict.num_populations:
        of = "one population" if verdict.num_populations == 1 else f"{verdict.num_populations} independent populations"
        said.append(
            f"The chains are {of}, not independent replicates; where chains disagree, populations are compared."
        )
    others = np.flatnonzero(~coordinates.is_summary & np.isfinite(coordinates.numbers["r_hat"]))
    if others.size:
        worst = coordinates[int(others[coordinates.numbers["r_hat"][others].argmax()])]
        listed = f"Among {formats.count(others.size)} coordinates of latents that are not monitored, the largest R-hat"
        listed = listed if others.size > 1 else "R-hat of the one latent that is not monitored"
        said.append(f"{listed} is {formats.r_hat(worst.r_hat)} ({worst.label}).")
    return " ".join(said)


_STARTS = {
    "uniform": "at random points between −2 and 2 in unconstrained space",
    "prior": "at draws from the prior",
    "auto": "at random points, between −2 and 2 in unconstrained space or from the prior",
    "mode": "at points that optimisation reached from draws of the prior",
    "laplace": "around the highest mode that optimisation found",
    "zero": "around one point, the origin of unconstrained space",
    "file": "around the points of a file",
    "model": "around points that the model computes from the data",
}
"""Method of `sampling.initial` -> where chains started."""


def say_search(verdict: Verdict, config: Mapping[str, object]) -> str:
    """Return a sentence on where chains started, and on modes that none of them met.

    Args:
        verdict: verdict on the experiment.
        config: whole configuration of the experiment.
    """
    initial = part(part(config, "sampling"), "initial")
    start = _STARTS.get(str(initial.get("method")), "from their initial points")
    chains = f"The {_counted(verdict.num_chains, 'chain')} started {start}"
    if initial.get("method") in ("zero", "laplace", "file", "model"):
        return f"{chains}. They did not search far from there, and a mode that none of them met would not show in these numbers."
    return f"{chains}. A mode that none of them met would not show in these numbers."


def _counted(number: int, word: str) -> str:
    plural = f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
    return f"{formats.count(number)} {word if number == 1 else plural}"


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
    names = formats.listed(missed_names(verdict)) or "none named"
    if verdict.verdict == "warn":
        return f"{missed} of {total} gates gave a warning ({names}), and none failed: interpret the results with care."
    tail = f"Do not rely on its {drawn} as a sample from the posterior."
    failed = [wording(gate.name).short for gate in verdict.missed if gate.verdict == "fail"]
    warned = [wording(gate.name).short for gate in verdict.missed if gate.verdict == "warn"]
    also = f", with a warning on {formats.listed(warned)}" if warned else ""
    return f"This run failed {len(failed)} of {total} gates ({formats.listed(failed) or 'none named'}){also}. {tail}"


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
