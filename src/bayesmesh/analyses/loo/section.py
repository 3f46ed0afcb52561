"""Show leave-one-out: a section of the page and a cell of the index."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from scipy.special import ndtri

from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.canvas import MUTED, Panel, draw, series
from bayesmesh.analyses.figures.sections import Aspect, FitCheck, KeyNumber, Section, html_table, render
from bayesmesh.analyses.loo.sums import read_sums
from bayesmesh.diagnostics.uniformity import NUM_SIMULATIONS, assess_uniformity
from bayesmesh.store.scores import POINTWISE, RowScores, read_pointwise, say_impossible

MOST_POINTS = 2_000
"""Rows drawn in the figure, besides those with a high k."""

LEVEL = 0.002
"""Of the test of calibration."""

INTERVAL = 0.9
"""Probability of the predictive intervals whose outcomes are counted."""

MOST_REFITS = 20
"""Rows without each of which it is suggested to sample again."""

MOST_ROWS = 10
"""Rows in each of the tables."""

MANY_ERRORS = 4.0
"""Standard errors by which the effective parameters exceed those of the model where misfit is the reason."""


def build_section(files: Mapping[str, Path]) -> Section:
    """Build the section.

    Raises:
        StoreError: a file is damaged.
    """
    sums = read_sums(files["loo.csv"])
    every = read_pointwise(files[POINTWISE])
    scores = every["left_out"]
    assert scores.pareto_k is not None
    by = {"Rows with the largest Pareto k": -scores.pareto_k, "Worst-predicted rows": scores.elpd}
    impossible = [say_impossible(each, f"{name.replace('_', '-')} rows") for name, each in every.items()]
    body = render(
        Path(__file__).with_name("section.html"),
        sentences=[*filter(None, impossible), *sentences(sums, scores)],
        figure=draw_k(scores, sums["good_k"]),
        calibration=None if scores.pit is None else draw_pit(scores.pit),
        tables=[(heading, html_table(first_rows(scores, values), heading)) for heading, values in by.items()],
    )
    numbers = [KeyNumber("Leave-one-out log score", _sum_text(sums, "elpd"), "elpd, nats, summed over rows")]
    num_high = sums["num_high_k"]
    if any(impossible):
        numbers.append(KeyNumber("Rows without a finite score", "found", "their outcome has probability zero", "warn"))
    if num_high:
        of_rows = f"of {formats.count(sums['num_rows'])} rows"
        numbers.append(KeyNumber("Rows with high Pareto k", formats.count(num_high), of_rows, "warn"))
    if sums["pit_p_value"] < LEVEL:
        numbers.append(KeyNumber("Calibration", "missed", f"LOO-PIT, {_p_value(sums)}", "warn"))
    return Section(body, numbers, fit_checks(sums, [*filter(None, impossible)], share_inside(scores)))


def share_inside(scores: RowScores) -> float:
    """Return the share of outcomes within their 90% predictive intervals, from LOO-PIT; NaN without it."""
    known = np.zeros(0) if scores.pit is None else scores.pit[np.isfinite(scores.pit)]
    return float((np.abs(known - 0.5) <= INTERVAL / 2).mean()) if len(known) else math.nan


def spread_of(inside: float) -> float:
    """Return how many times as wide as predicted a normal outcome scatters, of which 90% intervals hold a share; NaN if none or all.

    >>> round(spread_of(0.9), 3), round(spread_of(0.7102), 2)
    (1.0, 1.55)
    """
    return float(ndtri((1 + INTERVAL) / 2) / ndtri((1 + inside) / 2)) if 0 < inside < 1 else math.nan


def fit_checks(sums: Mapping[str, float], impossible: Sequence[str] = (), inside: float = math.nan) -> list[FitCheck]:
    """Return what the sums say about the fit of the model.

    Args:
        sums: see `bayesmesh.analyses.loo.sums.COLUMNS`.
        impossible: sentences on outcomes that have no finite score.
        inside: share of outcomes within their 90% predictive intervals, or NaN.
    """
    checks = [FitCheck("outcomes without a finite score", "fail", text) for text in impossible]
    if not math.isnan(sums["pit_p_value"]):
        refuted, words = _misplaced(sums, inside)
        is_missed = sums["pit_p_value"] < LEVEL
        text = f"With each row predicted from all others, {words}{_say_inside(inside)} (LOO-PIT, {_p_value(sums)})."
        spread = spread_of(inside) if refuted.keys() & {"narrow", "wide"} else math.nan
        missed = FitCheck("LOO-PIT", "fail", text, refuted, spread=spread)
        checks.append(missed if is_missed else FitCheck("LOO-PIT", "pass"))
    if _has_excess(sums):
        checks.append(FitCheck("effective parameters", "warn", _flexibility(sums)))
    if num_high := sums["num_high_k"]:
        text = (
            f"Pareto k is high for {formats.count(num_high)} of {formats.count(sums['num_rows'])} rows: "
            "individual rows move the posterior, and the leave-one-out score is unreliable."
        )
        checks.append(FitCheck("Pareto k", "warn", text))
    else:
        checks.append(FitCheck("Pareto k", "pass"))
    return checks


def _say_inside(inside: float) -> str:
    return (
        ""
        if math.isnan(inside)
        else f": intervals that should hold 90% of the outcomes hold {formats.share(inside, 0)}"
    )


def _p_value(sums: Mapping[str, float]) -> str:
    return f"p {formats.p_value(sums['pit_p_value'], 1 / (1 + NUM_SIMULATIONS), sign='= ')}"


def describe(files: Mapping[str, Path]) -> str:
    """Return the expected log predictive density."""
    sums = read_sums(files["loo.csv"])
    doubts = ["k high"] if sums["num_high_k"] else []
    if sums["num_refit"] and (failed := read_pointwise(files[POINTWISE])["left_out"].failed):
        doubts.append(f"failed: {', '.join(failed)}")
    return f"elpd {_sum_text(sums, 'elpd')}" + (f" ({'; '.join(doubts)})" if doubts else "")


def _sum_text(sums: Mapping[str, float], name: str) -> str:
    return f"{formats.fixed(sums[name], 1)} ± {formats.fixed(sums[name + '_se'], 1)}"


def sentences(sums: Mapping[str, float], scores: RowScores | None = None) -> list[str]:
    """Return what the sums say, in words, and which rows to leave out by sampling again, if there are scores by row."""
    num_rows = sums["num_rows"]
    mean, error = sums["elpd"] / num_rows, sums["elpd_se"] / num_rows
    said = [
        f"Predicted from all other rows, a row has a log score of {formats.real(mean)} ± {formats.real(error, 2)} nats on average; "
        f"the sum over {formats.count(num_rows)} rows is {_sum_text(sums, 'elpd')}.",
        _flexibility(sums),
    ]
    if sums["held_out_rows"]:
        held = sums["held_out_elpd"] / sums["held_out_rows"], sums["held_out_se"] / sums["held_out_rows"]
        said.append(
            f"Rows that were not used for the fit have a log score of {formats.real(held[0])} ± {formats.real(held[1], 2)} nats on average "
            f"({formats.count(sums['held_out_rows'])} rows; Monte Carlo error {formats.real(sums['held_out_mcse'] / sums['held_out_rows'], 2)})."
        )
    inside = math.nan if scores is None else share_inside(scores)
    return [*filter(None, (*said, _trust(sums), _refits(sums, scores), _calibration(sums, inside)))]


def _has_excess(sums: Mapping[str, float]) -> bool:
    """Return whether there are more effective parameters than a model that fits could have."""
    return sums["p_loo"] - MANY_ERRORS * sums["p_loo_se"] > sums["num_parameters"]


def _flexibility(sums: Mapping[str, float]) -> str:
    """Say what the effective number of parameters means.

    Reference:
        Vehtari, Gelman and Gabry 2017, doi:10.1007/s11222-016-9696-4: it exceeds the number of parameters where the model is
        misspecified.
    """
    number = formats.count(sums["num_parameters"])
    if _has_excess(sums):
        return (
            f"The effective number of parameters (p_loo) is {_sum_text(sums, 'p_loo')}, more than the {number} that the model "
            "has. This is a symptom of misfit, not of flexibility: individual rows surprise the model."
        )
    of = "" if math.isnan(sums["num_parameters"]) else f" of {number}"
    return f"The effective number of parameters (p_loo) is {_sum_text(sums, 'p_loo')}{of}."


def _trust(sums: Mapping[str, float]) -> str:
    """Say whether importance sampling was good enough."""
    limit, num_high = formats.fixed(sums["good_k"], 2), sums["num_high_k"]
    matched = sums["num_matched"]
    rows = "row was" if matched == 1 else "rows were"
    repaired = f" {formats.count(matched)} {rows} repaired by moment matching." if matched else ""
    if not num_high:
        largest = formats.fixed(sums["largest_k"], 2)
        return (
            f"The estimate can be relied on: Pareto k is at most {largest}, below the limit of {limit} for "
            f"{formats.count(sums['num_draws'])} draws, and the Monte Carlo error of the sum is "
            f"{formats.real(sums['elpd_mcse'], 2)} nats.{repaired}"
        )
    part = f"{formats.count(num_high)} of {formats.count(sums['num_rows'])} rows ({formats.share(num_high / sums['num_rows'])})"
    beyond = sums["num_k_above_1"]
    more = (
        f" For {formats.count(beyond)} of them it is above 1, where not even the mean of the weights exists."
        if beyond
        else ""
    )
    return (
        f"The estimate is unreliable: Pareto k is above {limit} for {part}. The posterior without such a row is too far from the one "
        f"with it, and the sum is probably too high.{repaired}{more} Sample again without these rows, or use a model that is less "
        "surprised by them."
    )


def _refits(sums: Mapping[str, float], scores: RowScores | None) -> str:
    """Say what was sampled again, and what should be; empty if nothing."""
    said = []
    if sums["num_refit"]:
        number = "1 row" if sums["num_refit"] == 1 else f"{formats.count(sums['num_refit'])} rows"
        said.append(f"The scores of {number} come from draws that were sampled without the row.")
    if scores is not None and scores.failed:
        said.append(f"The chains of {', '.join(scores.failed)} have failed their gates: these scores may be wrong.")
    if scores is not None and scores.pareto_k is not None and sums["num_high_k"]:
        known = np.zeros(0) if scores.is_refit is None else np.flatnonzero(scores.is_refit)
        rows = sorted({*np.flatnonzero(scores.pareto_k > sums["good_k"]).tolist(), *known.tolist()})
        if len(rows) <= MOST_REFITS:
            said.append(f"To sample again without each, use `loo: {{refit: {rows}}}`.")
        else:
            said.append("These are too many to sample again without each: use K-fold cross-validation.")
    return " ".join(said)


def _calibration(sums: Mapping[str, float], inside: float) -> str:
    """Say whether outcomes lie where their predictions say; empty for classes."""
    p_value = sums["pit_p_value"]
    if math.isnan(p_value):
        return ""
    if p_value >= LEVEL:
        return (
            f"LOO-PIT values are compatible with a uniform distribution ({_p_value(sums)}), so the predictive distributions show no "
            f"miscalibration{_say_inside(inside)}."
        )
    return (
        f"LOO-PIT values are not uniform ({_p_value(sums)}), so the predictive distributions are miscalibrated; "
        f"{_misplaced(sums, inside)[1]}{_say_inside(inside)}."
    )


def _misplaced(sums: Mapping[str, float], inside: float = math.nan) -> tuple[dict[Aspect, float], str]:
    """Return how outcomes lie in their predictive distributions where these are wrong, with sizes in standard errors."""
    num_rows = sums["num_rows"]
    # Standard errors of mean and standard deviation of uniform values, and of the share inside the intervals.
    bias = (sums["pit_mean"] - 0.5) / math.sqrt(1 / 12 / num_rows)
    width = (sums["pit_sd"] - math.sqrt(1 / 12)) / math.sqrt(1 / 60 / num_rows)
    outside = (INTERVAL - inside) / math.sqrt(INTERVAL * (1 - INTERVAL) / num_rows)
    found: dict[Aspect, float] = {}
    words = []
    if abs(bias) > 3:
        # Not a bias of means: of skewed outcomes, most lie on one side of their mean.
        found["shape"] = abs(bias)
        words.append(
            f"too many outcomes lie in the {'upper' if bias > 0 else 'lower'} half of their predictive distributions"
        )
    # Where the middle is too wide and the ends are right, or the other way round, the shape is wrong.
    if abs(width) > 3 and (math.isnan(inside) or (outside * width > 0 and abs(outside) > 2)):
        side: Aspect = "narrow" if width > 0 else "wide"
        found[side] = abs(width)
        words.append(f"predictions are too {side}")
    return found or {"shape": 3.0}, " and ".join(words) or "the shape of the predictive distributions is wrong"


def draw_pit(pit: np.ndarray) -> Panel:
    """Draw how the distribution function of PIT values differs from the uniform one, with a simultaneous band."""
    found = assess_uniformity(np.clip(pit[np.isfinite(pit)], 0, 1), LEVEL)

    def plot(axes: Axes) -> None:
        axes.fill_between(
            found.points, found.low - found.points, found.high - found.points, color=MUTED, alpha=0.2, linewidth=0
        )
        axes.axhline(0, color=MUTED, linewidth=1, linestyle=(0, (4, 2)))
        axes.plot(found.points, found.shares - found.points, color=series(0), linewidth=1.6)
        axes.set_xlabel("predicted probability of a smaller outcome (LOO-PIT)")
        axes.set_ylabel("share of rows below, minus uniform")

    note = f"If the model is right, the whole line lies within the band with {formats.share(1 - LEVEL, 1)} probability."
    label = f"Distribution function of LOO-PIT minus the uniform one, p {formats.p_value(found.p_value, 1 / (1 + NUM_SIMULATIONS), sign='= ')}"
    return draw("loo-pit", plot, size=(520, 240), label=label, title="Calibration", note=note)


def first_rows(scores: RowScores, values: np.ndarray) -> pd.DataFrame:
    """Return the rows with the smallest values, and where their outcomes lie in the predictive distributions."""
    chosen = np.argsort(values, kind="stable")[:MOST_ROWS]
    assert scores.pareto_k is not None
    assert scores.effective_parameters is not None
    columns: dict[str, object] = {
        "Training row, from 0": [str(row) for row in chosen],
        "Log score": scores.elpd[chosen],
        "Pareto k": scores.pareto_k[chosen],
        "Own share of p_loo": scores.effective_parameters[chosen],
    }
    if scores.pit is not None:
        columns["LOO-PIT"] = scores.pit[chosen]
    return pd.DataFrame(columns)


def draw_k(scores: RowScores, limit: float) -> Panel:
    """Draw Pareto k by row, with the limit: all rows above it, and evenly spread ones of the others."""
    assert scores.pareto_k is not None
    k = np.minimum(scores.pareto_k, 2.0)
    is_high = k > limit
    others = np.flatnonzero(~is_high)
    shown = others[np.unique(np.linspace(0, len(others) - 1, min(len(others), MOST_POINTS)).astype(int))]
    high = np.flatnonzero(is_high)[:MOST_POINTS]

    def plot(axes: Axes) -> None:
        axes.axhline(limit, color=MUTED, linewidth=1, linestyle=(0, (4, 2)))
        for rows, colour in ((shown, series(0)), (high, series(3))):
            axes.plot(rows, k[rows], color=colour, marker="o", markersize=2, linewidth=0)
        axes.set(xlabel="row", ylabel="Pareto k")

    note = f"Above the dashed line at {limit:.2f}, the estimate for a row is unreliable. Values above 2 are drawn at 2."
    if len(shown) < len(others) or len(high) < is_high.sum():
        note += f" {len(shown) + len(high):,} of {len(k):,} rows are drawn."
    label = f"Pareto k by row: {int(is_high.sum())} of {len(k)} above {limit:.2f}, largest {scores.pareto_k.max():.2f}"
    return draw("pareto-k", plot, size=(520, 240), label=label, title="Pareto k", note=note)
