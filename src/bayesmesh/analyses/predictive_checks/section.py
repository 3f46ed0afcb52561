"""Show predictive checks: a section of the page and a cell of the index."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import zarr
from matplotlib.axes import Axes

from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.canvas import MUTED, Panel, draw, series, tip
from bayesmesh.analyses.figures.documents import read_table
from bayesmesh.analyses.figures.sections import Aspect, FiguresByColumn, FitCheck, KeyNumber, Section, State, render
from bayesmesh.analyses.predictive_checks.quantities import COUNTS, FITTED, LEVEL, LOG, NUM_COMPLETED, OF_CLASS, Bin
from bayesmesh.errors import StoreError
from bayesmesh.store.arrays import open_group, read_part

NUMBERS = ("observed", "simulated_mean", "low", "high", "p_value")
BIN_NUMBERS = tuple(name for name in Bin._fields if name not in ("variable", "label"))

MOST_PANELS = 6

MOST_DRAWN_BINS = 60

OF_RESIDUALS = {
    "residuals by prediction": "outcomes differ from their predictions by more than chance where predictions are low, middling or high",
    "spread of residuals by prediction": "the spread around the predictions changes with the prediction in a way that the model does not capture",
    "residuals by column": "outcomes differ from their predictions in a way that depends on the column {column}",
    "residuals by term": "residuals follow the term {column}, which the formula does not have",
    "spread of residuals by column": "the spread around the predictions depends on the column {column}",
}
"""Quantities whose unit means nothing to a reader -> what a large value says."""


def build_section(files: Mapping[str, Path]) -> Section | None:
    """Build the section; None if nothing was checked.

    Raises:
        StoreError: a file is damaged.
    """
    table = read_checks(files["checks.csv"])
    if table is None:
        return None
    group = open_group(files["quantities.zarr"])
    simulated, num_completed = group.get("simulated"), group.attrs.get(NUM_COMPLETED, 0)
    if not isinstance(simulated, zarr.Array) or simulated.shape[1:] != (len(table),):
        raise StoreError(f"{files['quantities.zarr']}: does not fit {files['checks.csv']}", "run the analysis again")
    values, missed = read_part(simulated), differing(table)
    is_missed = table["quantity"].isin(missed).to_numpy()
    marginal = ~table["quantity"].isin(OF_RESIDUALS).to_numpy()
    order = np.argsort(table["p_value"].to_numpy(), kind="stable")

    def panels(chosen: np.ndarray) -> list[Panel]:
        places = [i for i in order if chosen[i]][:MOST_PANELS]
        return [draw_quantity(table.iloc[i], values[:, i]) for i in sorted(places)]

    rows = [{**row, "p": _p_text(row, len(values))} for row in table.to_dict("records")]
    bins = read_bins(files["bins.csv"])
    body = render(
        Path(__file__).with_name("section.html"),
        sentence=sentence(table),
        num_completed=num_completed,
        prior_sentence=prior_sentence(read_checks(files["prior.csv"])),
        missed=([rows[i] for i in np.flatnonzero(is_missed)], panels(marginal & is_missed)),
        passed=([rows[i] for i in np.flatnonzero(~is_missed)], panels(marginal & ~is_missed)),
        calibrations=calibrations(bins, table),
    )
    number = KeyNumber(
        "Predictive checks missed", f"{len(missed)} of {len(table)}", ", ".join(missed), "warn" if missed else ""
    )
    is_class = bool(table["quantity"].str.startswith(OF_CLASS).any())
    return Section(body, [number], [fit_check(table)], figures_by_column(bins, is_class=is_class))


def _p_text(row: Mapping[Hashable, Any], num_simulated: int) -> str:
    sides = 1 if row["quantity"] in OF_RESIDUALS else 2
    return formats.p_value(row["p_value"], sides / (num_simulated + 1))


ASPECTS: Mapping[str, tuple[Aspect, Aspect]] = {
    "variance / mean": ("narrow", "wide"), "standard deviation": ("narrow", "wide"), "share of zeros": ("zeros", "shape"),
    "skewness": ("shape", "shape"), "kurtosis": ("tails", "shape"), "smallest": ("shape", "tails"),
    "largest": ("tails", "shape"), "spread of residuals by prediction": ("uneven", "uneven"),
    "spread of residuals by column": ("uneven", "uneven"),
}  # fmt: skip
"""Quantity -> how predictions are wrong where it is larger, or smaller, than the simulated ones; of all others it is a bias."""

SKEWED = ("skewness", "smallest", "spread of residuals by prediction", "spread of residuals by column")
"""Quantities whose misfit a family for counts would remove, if the outcomes are counts, or logs of the outcomes, if these are much less
skewed."""


def fit_check(table: pd.DataFrame) -> FitCheck:
    """Return what the checks say about the fit of the model."""
    missed = table[table["quantity"].isin(differing(table))].to_dict("records")
    bias: tuple[Aspect, Aspect] = ("bias", "bias")
    looked_at = {aspect for name in table["quantity"] for aspect in ASPECTS.get(name, bias)}
    changes: dict[str, Aspect] = {LOG: "skewed", COUNTS: "counts"}
    change = next((changes[each] for each in table["proposed"] if each in changes), None)
    smallest, largest = (table[table["quantity"] == each] for each in ("smallest", "largest"))
    # Only another distribution gives no probability to negative outcomes; a missing term does not explain them.
    is_negative = bool(((smallest["observed"] >= 0) & (smallest["simulated_mean"] < 0)).any())
    refuted: dict[Aspect, float] = {}
    terms: dict[str, float] = {}
    for row in missed:
        aspect = ASPECTS.get(row["quantity"], bias)[bool(row["observed"] < row["low"])]
        # The simulated values between `low` and `high` span four standard deviations of a normal distribution.
        size = abs(row["observed"] - row["simulated_mean"]) / max((row["high"] - row["low"]) / 4, 1e-300)
        if change and row["quantity"] in SKEWED:
            aspect, size = change, math.inf if is_negative else size
        refuted[aspect] = max(refuted.get(aspect, 0.0), size)
        if row["proposed"] and row["proposed"] not in changes:
            terms[row["proposed"]] = size
    said = []
    if missed:
        of = "; ".join(map(_difference, missed))
        said.append(f"Outcomes simulated from the posterior differ from the observed ones: {of}.")
    is_whole = change == "counts" or "share of zeros" in set(table["quantity"])
    if is_whole and ((largest["observed"] <= 1) & (largest["low"] > 1)).any():
        # Alone, it refutes nothing, but it names the family that fits by construction.
        refuted["binary"] = math.inf
        said.append("All outcomes are 0 or 1, and the model simulates larger ones.")
    state: State = "fail" if missed else "warn" if said else "pass"
    cleared = frozenset(looked_at - refuted.keys())
    return FitCheck("predictive checks", state, " ".join(said), refuted, cleared, terms=terms)


def _difference(row: Mapping[Hashable, Any]) -> str:
    if row["quantity"] in OF_RESIDUALS:
        return OF_RESIDUALS[row["quantity"]].format(column=row["largest_for"])
    observed, low, high = (formats.real(row[name], 3) for name in ("observed", "low", "high"))
    return f"{row['quantity']} {observed} observed, {low} to {high} simulated"


def describe(files: Mapping[str, Path]) -> str:
    """Return the quantities that differ, as text; empty if nothing was checked."""
    table = read_checks(files["checks.csv"])
    if table is None:
        return ""
    missed = differing(table)
    return f"predictive checks missed: {', '.join(missed)}" if missed else ""


def read_checks(path: Path) -> pd.DataFrame | None:
    """Return the checks; None if the file does not exist.

    Raises:
        StoreError: the file is damaged.
    """
    return read_table(path, texts=("quantity", "largest_for", "proposed"), numbers=NUMBERS) if path.exists() else None


def differing(table: pd.DataFrame) -> list[str]:
    """Return the quantities that differ, at a level that holds for all of them together."""
    return [str(name) for name in table.loc[table["p_value"] < LEVEL / len(table), "quantity"]]


def sentence(table: pd.DataFrame) -> str:
    """Return what the checks say."""
    missed = table[table["quantity"].isin(differing(table))]
    if missed.empty:
        return f"Outcomes simulated from the posterior resemble the observed ones in all {len(table)} quantities."
    parts, said = [], []
    for row in missed.to_dict("records"):
        if row["quantity"] in OF_RESIDUALS:
            said.append(OF_RESIDUALS[row["quantity"]].format(column=row["largest_for"]))
        else:
            numbers = [formats.real(row[name]) for name in ("observed", "low", "high")]
            parts.append("{}: {} observed, {} to {} in 95% of simulations".format(row["quantity"], *numbers))
    text = "The model does not reproduce the observed outcomes."
    if parts:
        text += f" {'; '.join(parts)}."
    for each in said:
        text += f" {each[0].upper()}{each[1:]}."
    return f"{text}{_closest(table.drop(missed.index))}"


def _closest(passed: pd.DataFrame) -> str:
    """Return which quantity would be the next to differ, where its p value alone is small."""
    by_p = passed.sort_values("p_value", kind="stable").to_dict("records")
    if not by_p or not by_p[0]["p_value"] <= SUGGESTIVE:
        return ""
    least = by_p[0]
    what = f"{least['quantity']} ({least['largest_for']})" if least["largest_for"] else least["quantity"]
    p = formats.real(least["p_value"], 2)
    return f" The others do not differ by more than their number explains; their smallest p-value is {p}, for {what}."


SUGGESTIVE = 0.05
"""A p value, not adjusted for the number of quantities, from which one that does not differ is named."""


WIDE = 100.0
"""A prior whose typical data set spreads so many times more than the observed is called wide."""


def prior_sentence(table: pd.DataFrame | None) -> str:
    """Return what the checks of the prior say; empty if there are none. `simulated_mean` holds medians."""
    if table is None or table.empty:
        return ""
    missed = table[table["quantity"].isin(differing(table))]
    if not missed.empty:
        parts = [
            f"{row['quantity']} {formats.real(row['observed'])} observed, {formats.real(row['low'])} to {formats.real(row['high'])} simulated"
            for row in missed.to_dict("records")
        ]
        return (
            f"The prior alone hardly ever produces outcomes like the observed ones. Observed values, and the range of 95% of simulations: "
            f"{'; '.join(parts)}. Check the prior, or the unit of the outcome."
        )
    said = "The prior alone can produce outcomes like the observed ones."
    spread = table[table["quantity"].isin(["standard deviation", "variance / mean"])]
    for row in spread.to_dict("records"):
        if row["observed"] > 0 and row["simulated_mean"] > WIDE * row["observed"]:
            times = formats.real(row["simulated_mean"] / row["observed"], 2)
            said += f" It is wide: half of the simulated data sets have a {row['quantity']} more than {times} times the observed one."
    return said


def read_bins(path: Path) -> pd.DataFrame:
    """Return predicted and observed means by bin; empty where outcomes are not binned.

    Raises:
        StoreError: the file is missing or damaged.
    """
    return read_table(path, texts=("variable", "label"), numbers=BIN_NUMBERS)


def calibrations(bins: pd.DataFrame, table: pd.DataFrame) -> list[Panel]:
    """Draw observed and predicted means by prediction, and by the columns along which residuals are largest."""
    missed = table[table["quantity"].isin(differing(table))]
    wanted = [FITTED, *(name for name in dict.fromkeys(missed["largest_for"]) if name)]
    of_passed: dict[str, float] = dict(table.drop(missed.index)[["quantity", "p_value"]].itertuples(index=False))
    unbiased = {FITTED: of_passed.get("residuals by prediction")}
    return [
        draw_bins(name, bins[bins["variable"] == name], unbiased.get(name))
        for name in wanted
        if (bins["variable"] == name).any()
    ]


def draw_bins(name: str, bins: pd.DataFrame, unbiased: float | None = None) -> Panel:
    """Draw observed minus predicted means by bin, with the band that holds all bins of a right model together.

    Args:
        name: what the bins divide.
        bins: rows of one variable.
        unbiased: p value of the check that finds no bias by the spread of the outcomes themselves, if it finds none.
    """
    chosen = bins.iloc[formats.natural_order(bins["label"].tolist())[:MOST_DRAWN_BINS]]
    places = np.arange(len(chosen))
    gap = (chosen["observed"] - chosen["predicted"]).to_numpy()
    low, high = ((chosen[end] - chosen["predicted"]).to_numpy() for end in ("low", "high"))
    num_out = int(((gap < low) | (gap > high)).sum())

    def plot(axes: Axes) -> None:
        axes.axhline(0, color=MUTED, linewidth=1, linestyle=(0, (4, 2)))
        axes.vlines(places, low, high, color=series(0), linewidth=3, alpha=0.4)
        axes.plot(places, gap, color=series(3), marker="o", markersize=4, linestyle="none")
        if name == FITTED:
            texts = [f"{value:.3g}" for value in chosen["predicted"]]
        else:
            texts = [
                f"{label} ({formats.count(num)})"
                for label, num in zip(chosen["label"], chosen["num_rows"], strict=True)
            ]
        step = -(-len(texts) // 10)
        axes.set_xticks(places[::step], texts[::step], rotation=30, ha="right")
        axes.set_ylabel("observed minus predicted")

    of = "prediction" if name == FITTED else name
    words = f"Observed minus predicted mean by {of}: {num_out} of {len(chosen)} bins outside the band"
    lie = "lies" if num_out == 1 else "lie"
    note = f"{num_out} of {len(chosen)} bins {lie} outside the band, which holds all of them with 99% probability if the model is right, including its spread."
    if num_out and unbiased is not None:
        note += f" Relative to the spread of the outcomes themselves, the bins show no bias (p = {formats.real(unbiased, 2)})."
    if name != FITTED:
        note += " In parentheses: numbers of rows."
    return draw(f"bins-{of}", plot, size=(520, 250), label=words, title=f"Observed minus predicted, by {of}", note=note)


def draw_quantity(row: pd.Series, values: np.ndarray) -> Panel:
    """Draw the simulated values of a quantity and the observed one."""
    name, observed = str(row["quantity"]), float(row["observed"])

    def plot(axes: Axes) -> None:
        finite = values[np.isfinite(values)]
        if finite.size:
            axes.hist(finite, bins=min(40, max(1, len(np.unique(finite)))), color=series(0), alpha=0.6)
        axes.axvline(observed, color=series(3), linewidth=1.8)
        axes.set_yticks([])

    words = f"{name}: observed {observed:.4g}, simulated {row['low']:.4g} to {row['high']:.4g}"
    return draw(f"check-{name}", plot, size=(260, 150), label=words, title=name.capitalize())


MOST_LEVELS_DRAWN = 24

MOST_UPRIGHT = 5
"""Largest number of level labels side by side."""

_OF_NUMBERS = (
    "Dots are mean outcomes in bins of rows. The line is the predicted mean of these rows, whatever their other predictors are; the dark band holds all "
    "dots together with 99% probability if the model is right. Bars and the light band hold the middle 90% of the observed and of the simulated outcomes "
    "of each bin; the ends of bars vary by chance, the more so the fewer rows a bin has."
)
_OF_SHARES = (
    "Dots are observed shares in bins of rows. The line is the predicted share, averaged over the rows of a bin, whatever their other predictors are; "
    "the shaded band holds all dots together with 99% probability if the model is right."
)


def figures_by_column(bins: pd.DataFrame, *, is_class: bool) -> FiguresByColumn | None:
    """Return figures of the columns of ``bins.csv``; None if the outcome has no order or nothing was binned.

    Args:
        bins: the table.
        is_class: whether the outcome is one of several classes.
    """
    of_columns = bins[bins["variable"] != FITTED]
    if of_columns.empty or is_class:
        return None
    parts = {str(name): part for name, part in of_columns.groupby("variable", sort=False)}
    note = _OF_NUMBERS if np.isfinite(of_columns["interval_low"]).any() else _OF_SHARES
    return FiguresByColumn({name: functools.partial(draw_outcome, name, part) for name, part in parts.items()}, note)


def draw_outcome(name: str, bins: pd.DataFrame, outcome: str) -> Panel:
    """Draw the outcome by a column.

    Args:
        name: of the column.
        bins: its rows of ``bins.csv``.
        outcome: its name.
    """
    chosen = bins.iloc[formats.natural_order(bins["label"].tolist())[:MOST_LEVELS_DRAWN]]
    is_number = bool(np.isfinite(bins["at"]).all())
    if is_number:
        chosen = bins.sort_values("at")
    at = chosen["at"].to_numpy() if is_number else np.arange(len(chosen), dtype=float)
    has_intervals = bool(np.isfinite(chosen["interval_low"]).all())
    bands = [(chosen["low"].to_numpy(), chosen["high"].to_numpy())]
    if has_intervals:
        bands.append((chosen["interval_low"].to_numpy(), chosen["interval_high"].to_numpy()))
    observed, predicted = chosen["observed"].to_numpy(), chosen["predicted"].to_numpy()

    def plot(axes: Axes) -> None:
        for low, high in bands:
            if is_number:
                axes.fill_between(at, low, high, color=series(0), alpha=0.22, linewidth=0)
            else:
                axes.bar(at, high - low, 0.6, low, color=series(0), alpha=0.22)
        if is_number:
            axes.plot(at, predicted, color=series(0), linewidth=1.8)
        else:
            axes.hlines(predicted, at - 0.3, at + 0.3, color=series(0), linewidth=1.8)
            axes.set_xticks(at, [formats.shortened(str(label), 14) for label in chosen["label"]])
            if len(at) > MOST_UPRIGHT:
                axes.tick_params("x", rotation=35)
        if has_intervals:
            axes.vlines(at, chosen["middle_low"], chosen["middle_high"], color=series(3), linewidth=1.2)
        for x, y, label, fitted in zip(at, observed, chosen["label"], predicted, strict=True):
            text = f"{name} {label}: mean {formats.real(y, 3)} observed, {formats.real(fitted, 3)} fitted"
            axes.plot([x], [y], color=series(3), marker="o", markersize=4.5, linewidth=0, gid=tip(text))
        axes.set_xlabel(name)
        axes.set_ylabel(outcome)

    left_out = len(bins) - len(chosen)
    note = f"{name} ranges from {_range(chosen)} in the data." if is_number else ""
    note += f"{formats.count(left_out)} more level{' is' if left_out == 1 else 's are'} not drawn." if left_out else ""
    label = f"{outcome} by {name}: observed and fitted means, with bands{' and the middle 90% of outcomes' if has_intervals else ''}"
    return draw(f"outcome-by-{name}", plot, size=(340, 220), label=label, title=f"{outcome} by {name}", note=note)


def _range(chosen: pd.DataFrame) -> str:
    """Return the range of the values, from the labels of the first and the last bin."""
    labels = [str(label) for label in chosen["label"]]
    return f"{labels[0].split(' to ')[0]} to {labels[-1].split(' to ')[-1]}".replace("-", "\N{MINUS SIGN}")
