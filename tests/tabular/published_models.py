"""The regressions of `published`, written out with NumPyro, with the default priors of `glm` spelled out; without the package."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tabular.base import Columns
from tabular.written_out import Groups, Regression, groups


def _levels(t: Columns, name: str) -> Mapping[str, np.ndarray]:
    """Return a column for each level of a category but the first."""
    return {f"b_{name}[{level}]": t[name] == level for level in np.unique(t[name])[1:]}


def _intercepts(t: Columns, *names: str, unit: float = 1.0) -> list[Groups]:
    return [groups(name, t[name], unit) for name in names]


def _kidiq(t: Columns) -> Regression:
    x = {"b_mom_hs": t["mom_hs"], "b_mom_iq": t["mom_iq"], "b_mom_hs:mom_iq": t["mom_hs"] * t["mom_iq"]}
    return Regression(x, t["kid_score"], "normal")


def _wells(t: Columns) -> Regression:
    x = {f"b_{k}": t[k] for k in ("dist", "arsenic", "educ")} | {"b_dist:arsenic": t["dist"] * t["arsenic"]}
    return Regression(x, t["switch"], "bernoulli")


def _credit(t: Columns) -> Regression:
    return Regression({f"b_x{i}": t[f"x{i}"] for i in range(1, 25)}, t["bad"], "bernoulli")


def _roaches(t: Columns, family: str = "negative_binomial") -> Regression:
    x = {"b_sqrt(roach1)": np.sqrt(t["roach1"]), "b_treatment": t["treatment"], "b_senior": t["senior"]}
    return Regression(x, t["y"], family, offset=t["log_exposure2"])


def _radon(t: Columns) -> Regression:
    y = t["log_radon"]
    x = {"b_floor": t["floor"], "b_log_uranium": t["log_uranium"]}
    return Regression(x, y, "normal", groups=_intercepts(t, "county", unit=y.std()))


def _radon_slopes(t: Columns) -> Regression:
    y, floor = t["log_radon"], t["floor"]
    return Regression({"b_floor": floor}, y, "normal", groups=[groups("county", t["county"], y.std(), floor=floor)])


def _cirrhosis(t: Columns) -> Regression:
    y, year = t["logBili"], t["year"]
    x = {**_levels(t, "sex"), "b_trt": t["trt"], "b_year": year}
    return Regression(x, y, "normal", groups=[groups("id", t["id"], y.std(), year=year)])


def _rates(outcome: str, trials: str, group: str) -> Callable[[Columns], Regression]:
    return lambda t: Regression({}, t[outcome], "binomial", trials=t[trials], groups=_intercepts(t, group))


def _sleepstudy(t: Columns) -> Regression:
    y, days = t["Reaction"], t["Days"]
    return Regression({"b_Days": days}, y, "normal", groups=[groups("Subject", t["Subject"], y.std(), Days=days)])


def _means(outcome: str, *names: str) -> Callable[[Columns], Regression]:
    return lambda t: Regression({}, t[outcome], "normal", groups=_intercepts(t, *names, unit=t[outcome].std()))


def _cake(t: Columns) -> Regression:
    x = {**_levels(t, "recipe"), "b_temp": t["temp"]}
    return Regression(x, t["angle"], "normal", groups=_intercepts(t, "replicate", unit=t["angle"].std()))


def _pneumonia(t: Columns) -> Regression:
    return Regression(_levels(t, "period"), t["incidence"], "binomial", trials=t["size"], groups=_intercepts(t, "herd"))


def _ticks(t: Columns) -> Regression:
    x = {**_levels(t, "YEAR"), "b_cHEIGHT": t["cHEIGHT"]}
    return Regression(x, t["TICKS"], "poisson", groups=_intercepts(t, "BROOD", "LOCATION"))


def _arabidopsis(t: Columns) -> Regression:
    x = {"b_nutrient": t["nutrient"], **_levels(t, "amd")}
    return Regression(x, t["total_fruits"], "negative_binomial", groups=_intercepts(t, "gen", "popu"))


def _aggression(t: Columns) -> Regression:
    x = {"b_Anger": t["Anger"], **_levels(t, "Gender"), **_levels(t, "btype"), **_levels(t, "situ")}
    return Regression(x, (t["r2"] == "Y").astype(int), "bernoulli", groups=_intercepts(t, "id", "item"))


MODELS: dict[str, Callable[[Columns], Regression]] = {
    "kidiq": _kidiq, "wells": _wells, "credit": _credit,
    "roaches": _roaches, "roaches, poisson": lambda t: _roaches(t, "poisson"),
    "radon": _radon, "radon, slopes": _radon_slopes, "biliary cirrhosis": _cirrhosis,
    "baseball 1970": _rates("Hits", "AB", "Player"), "baseball 2006": _rates("y", "K", "number"), "tumours": _rates("y", "K", "number"),
    "sleepstudy": _sleepstudy, "dyestuff": _means("Yield", "Batch"), "penicillin": _means("diameter", "plate", "sample"),
    "pastes": _means("strength", "batch", "sample"), "cake": _cake, "pleuropneumonia": _pneumonia, "grouse ticks": _ticks,
    "arabidopsis": _arabidopsis, "verbal aggression": _aggression,
}  # fmt: skip
"""Name -> model of its columns."""
