"""Compare samplers by time and gradients until convergence, and by effective draws per second, on 40 posteriors.

All have sixteen chains and as many warmup iterations, start over a wide range, and sample one log density on the same
cores, in turns. Time to convergence is that of warmup and draws until R-hat is below 1.01 and the bulk effective sample
size above 400 for every quantity: every number of every latent, unless the target says otherwise. Rates are those after
1,000 draws of a chain, warmup included, or later where a sampler has not converged by then. Compilation is a column of its
own. A sampler that has not converged, or whose moments are not the known ones, is marked and does not count.

MNIST and MovieLens take up to an hour for each sampler and are measured only when they are named. There all have the chains
of the shipped experiment, and ours its settings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bayesmesh_reproduction.benchmarks.convergence.samplers import OURS, is_ours, list_contenders
from bayesmesh_reproduction.benchmarks.convergence.targets import TARGETS
from bayesmesh_reproduction.benchmarks.harness import OK, Case, Measurement, Options, Outcome, Ratio, compare
from bayesmesh_reproduction.benchmarks.process import peers_python

MEASURES = {
    "ess_per_s": "ESS per second",
    "ess_per_gradient": "ESS per gradient",
    "with_compile": "ESS per second, with compilation",
}
"""Column that is larger for a better sampler -> its description in the table of ratios."""

GATES = {"german credit": 2.0}
"""Least ratio of our best to the best other sampler in ESS per second, where it is not `LEAST`."""

LEAST, LEAST_SHARE = 0.5, 2 / 3
"""Least ratio on any target; least share of the targets on which ours is at least equal."""

ALL = "all targets"

QUICK = ("four normals", "eight schools")


def list_cases() -> list[str]:
    """Return the names of all targets, for ``--only``."""
    return list(TARGETS)


def run(options: Options) -> Outcome:
    """Measure all samplers on the targets, one after the other."""
    names = options.only or options.pick(tuple(k for k, t in TARGETS.items() if not t.experiment), quick=QUICK)
    peers = peers_python("convergence")
    # Contenders end their rounds by themselves; the harness ends those that do not.
    limits = options.limits(
        rounds=options.pick(2, quick=1), least_rounds=1, case_s=60.0, run_s=4 * options.seconds_limit + 60,
        prepare_s=options.seconds_limit + 240,
    )  # fmt: skip
    # There a warmup alone may take hours.
    large = limits._replace(rounds=1, run_s=options.seconds_limit + 120)
    cases = [
        Case({"target": name}, list_contenders(options, peers, of), limits=large if of else None)
        for name, of in ((name, TARGETS[name].experiment) for name in names)
    ]
    measured = compare(cases, limits, options.journal)
    rows = [m.row() for m in measured]
    metrics = ("converged_s", "converged_gradients", "ess_per_s", "ess_per_gradient", "compile_s")
    return Outcome(rows, list_ratios(measured, is_gated=not options.is_quick and not options.only), metrics)


def counting(m: Measurement, measure: str) -> float:
    """Return a measure if the result counts, else NaN."""
    if m.status != OK or m.facts.get("result") not in ("right", "no reference"):
        return math.nan
    if measure == "with_compile":
        return float(m.facts["min_ess_bulk"] / (m.facts["total_s"] + m.facts["compile_s"]))
    return float(m.facts[measure])


def list_ratios(measured: Sequence[Measurement], *, is_gated: bool) -> list[Ratio]:
    """Return the ratio of our best sampler, and of our default, to the best other one, by target and measure."""
    found, shares = list[Ratio](), dict[str, list[float]]()
    for target in dict.fromkeys(m.case["target"] for m in measured):
        of_target = [m for m in measured if m.case["target"] == target]
        for measure, words in MEASURES.items():
            values = {m.contender: counting(m, measure) for m in of_target}
            best = {is_mine: _best(values, is_mine=is_mine) for is_mine in (True, False)}
            least = GATES.get(target, LEAST) if is_gated and measure == "ess_per_s" else None
            ratio = _ratio(f"{target}: {words}", values, best[True], best[False], least)
            found.append(ratio)
            shares.setdefault(measure, []).append(ratio.ratio)
            if OURS in values and best[True] not in ("", OURS):
                found.append(_ratio(f"{target}: {words}", values, OURS, best[False], None))
    for measure, ratios in shares.items():
        known = [r for r in ratios if not math.isnan(r)]
        share = sum(r >= 1 for r in known) / len(known) if known else math.nan
        least = LEAST_SHARE if is_gated and measure == "ess_per_s" else None
        case = f"{ALL}: share where ours is at least equal, {MEASURES[measure]}"
        found.append(Ratio(case, "our best", "best other", share, share, share, len(known), least))
    return found


def _best(values: Mapping[str, float], *, is_mine: bool) -> str:
    """Return the name of the best contender of ours or of the others; empty if none counts."""
    mine = {k: v for k, v in values.items() if is_ours(k) == is_mine and not math.isnan(v)}
    return max(mine, key=mine.__getitem__, default="")


def _ratio(case: str, values: Mapping[str, float], ours: str, other: str, least: float | None) -> Ratio:
    """Return a ratio; infinite where only ours counts, 0 where only another one does, NaN where none does."""
    mine, theirs = values.get(ours, math.nan), values.get(other, math.nan)
    ratio: Any = mine / theirs
    if math.isnan(theirs) and not math.isnan(mine):
        ratio = math.inf
    if math.isnan(mine) and not math.isnan(theirs):
        ratio = 0.0
    is_open = math.isnan(ratio)
    return Ratio(
        case, ours or "ours", other or "none that is right", ratio, ratio, ratio, 1, None if is_open else least
    )
