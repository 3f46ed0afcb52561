"""Describe the run below the title of a page: model, data, size, and scope of the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from bayesmesh.analyses.figures import formats
from bayesmesh.diagnostics.verdict import Verdict
from bayesmesh.report.diagnostics_tables import Coordinate


def describe_setup(config: Mapping[str, object], counts: Mapping[str, object]) -> str:
    """Return model, data, kernel and seed in one line.

    Args:
        config: whole configuration of the experiment.
        counts: counts of rows from the shard stage, and facts from the source; empty if unknown.

    >>> config = {"model": {"name": "glm", "formula": "y ~ x"}, "data": {"source": "table", "files": ["a.csv"]}}
    >>> describe_setup({**config, "kernel": {"name": "nuts"}, "sampling": {"seed": 3}}, {"training_rows": 1200})
    'Model glm, y ~ x · data table (a.csv), 1,200 rows · kernel nuts · seed 3'
    """
    model, data, kernel, sampling = (_part(config, key) for key in ("model", "data", "kernel", "sampling"))
    files, rows = data.get("files"), counts.get("training_rows")
    named = [str(each) for each in files[:1]] if isinstance(files, Sequence) and not isinstance(files, str) else []
    more = f" and {len(files) - 1} more" if named and isinstance(files, Sequence) and len(files) > 1 else ""
    of = [
        ", ".join(str(part) for part in (model.get("name"), model.get("formula")) if part),
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


def _part(config: Mapping[str, object], key: str) -> Mapping[str, object]:
    found = config.get(key)
    return found if isinstance(found, Mapping) else {}


def say_scope(verdict: Verdict, coordinates: Sequence[Coordinate]) -> str:
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
    others = [each for each in coordinates if not each.is_summary and math.isfinite(each.r_hat)]
    if others:
        worst = max(others, key=lambda each: each.r_hat)
        listed = f"Among {formats.count(len(others))} coordinates of latents that are not monitored, the largest R-hat"
        listed = listed if len(others) > 1 else "R-hat of the one latent that is not monitored"
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
    initial = _part(_part(config, "sampling"), "initial")
    start = _STARTS.get(str(initial.get("method")), "from their initial points")
    chains = f"The {_counted(verdict.num_chains, 'chain')} started {start}"
    if initial.get("method") in ("zero", "laplace", "file", "model"):
        return f"{chains}. They did not search far from there, and a mode that none of them met would not show in these numbers."
    return f"{chains}. A mode that none of them met would not show in these numbers."


def _counted(number: int, word: str) -> str:
    plural = f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
    return f"{formats.count(number)} {word if number == 1 else plural}"
