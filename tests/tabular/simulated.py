"""Tables of the shapes of public regressions, simulated by seed, and the models that are asked of them.

NumPy alone, because the references are made from the same columns without the package: see `written_out.py`.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.random import Generator

from tabular.base import Columns, Table
from tabular.families import FAMILY_TABLES


def columns_of(name: str) -> Columns:
    """Return the columns of a table, the same whenever it is called."""
    return TABLES[name].make(np.random.default_rng(zlib.crc32(name.encode())))


FLAT = {"intercept": "normal(0, 1e6)", "coefficients": "normal(0, 1e6)", "sigma": "half_normal(1e6)"}
"""Stands for flat priors."""


def _expit(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _kidiq(r: Generator) -> Columns:
    hs, iq = (r.uniform(size=434) < 0.79).astype(int), r.normal(100, 15, 434).round(2)
    return {"score": (-11 + 51 * hs + 1.1 * iq - 0.48 * hs * iq + r.normal(0, 18, 434)).round(), "hs": hs, "iq": iq}


def _earnings(r: Generator) -> Columns:
    male = r.integers(0, 2, 700)
    height = (64 + 5 * male + r.normal(0, 2.7, 700)).round()
    return {"earn": np.exp(8.2 + 0.02 * height + 0.4 * male + r.normal(0, 0.9, 700)).round(2), "height": height, "male": male}  # fmt: skip


def _mesquite(r: Generator) -> Columns:
    diam1 = r.lognormal(0.6, 0.4, 46).round(2)
    diam2, height = (diam1 * r.uniform(0.5, 1, 46)).round(2), r.lognormal(0, 0.4, 46).round(2)
    group = np.array(["MCD", "ALS"])[(np.arange(46) < 20).astype(int)]
    weight = np.exp(4.8 + 0.4 * np.log(diam1) + 1.1 * np.log(diam2) + 0.4 * np.log(height) + 0.5 * (group == "MCD") + r.normal(0, 0.3, 46))  # fmt: skip
    return {"weight": weight.round(1), "diam1": diam1, "diam2": diam2, "height": height, "group": group}


def _sblr(r: Generator) -> Columns:
    x = r.normal(size=(100, 5)) @ np.linalg.cholesky(0.6 * np.ones((5, 5)) + 0.4 * np.eye(5)).T
    return {**{f"x{i}": x[:, i] for i in range(5)}, "y": x @ np.linspace(-1, 1, 5) + r.normal(0, 1.3, 100)}


def _weighted(r: Generator) -> Columns:
    x, kind, copies = r.normal(5, 2, 150), np.array(["ash", "elm", "fir"])[r.integers(0, 3, 150)], r.integers(1, 4, 150)
    return {"x": x, "kind": kind, "copies": copies, "y": 1 + 0.5 * x - (kind == "fir") + r.normal(0, 1, 150)}


def _kilpisjarvi(r: Generator) -> Columns:
    year = np.arange(1952, 2014)
    temp = (9.3 + 0.02 * (year - 1980) + r.normal(0, 1.1, 62)).round(1)
    # Years that the filter leaves out, and one without a measurement.
    return {"year": np.r_[year, 1900, 1901], "temp": np.r_[temp, 99.0, np.nan], "good": ["yes"] * 62 + ["no", "yes"]}


def _wells(r: Generator) -> Columns:
    dist, arsenic = r.exponential(0.5, 900), 0.5 + r.exponential(1.1, 900)
    logit = -0.15 - 0.6 * dist + 0.55 * arsenic - 0.2 * dist * arsenic
    return {"dist": dist, "arsenic": arsenic, "switch": (r.uniform(size=900) < _expit(logit)).astype(int)}


def _nes(r: Generator) -> Columns:
    income, race = r.integers(1, 6, 400), np.array(["white", "black", "other"])[r.choice(3, 400, p=[0.7, 0.2, 0.1])]
    age = np.array(["18-29", "30-44", "45+"])[r.integers(0, 3, 400)]
    logit = -1.2 + 0.35 * income - 1.7 * (race == "black") + 0.2 * (age == "45+")
    return {"income": income, "race": race, "age": age, "vote": np.where(r.uniform(size=400) < _expit(logit), "rep", "dem")}  # fmt: skip


def _roaches(r: Generator) -> Columns:
    before, treated, days = r.lognormal(2, 1.2, 262).round(), r.integers(0, 2, 262), r.uniform(0.5, 3, 262)
    mean = days * np.exp(2.4 + 0.1 * np.sqrt(before) - 0.6 * treated)
    return {"before": before, "treated": treated, "log_days": np.log(days), "y": r.poisson(r.gamma(0.8, mean / 0.8))}


def _peregrine(r: Generator) -> Columns:
    year = np.linspace(-1, 1, 40).round(4)
    return {"year": year, "pairs": r.poisson(np.exp(3.9 + 1.1 * year + 0.2 * year**2 - 0.4 * year**3))}


def _success(r: Generator) -> Columns:
    year, pairs = np.linspace(-1, 1, 40).round(4), r.integers(20, 90, 40)
    return {"year": year, "pairs": pairs, "fledged": r.binomial(pairs, _expit(0.3 + 0.1 * year - 1.1 * year**2))}


def _claims(r: Generator) -> Columns:
    age, area = r.uniform(18, 80, 250).round(), np.array(list("ABCD"))[r.integers(0, 4, 250)]
    mean = np.exp(6 - 0.01 * age + 0.4 * (area == "D"))
    return {"age": age, "area": area, "cost": np.maximum(r.gamma(1.7, mean / 1.7), 0.01)}


def _outliers(r: Generator) -> Columns:
    x = r.uniform(0, 10, 120)
    return {"x": x, "y": 2 + 0.7 * x + 0.6 * r.standard_t(2.5, 120)}


def _wine(r: Generator) -> Columns:
    warm, contact = np.array(["cold", "warm"])[r.integers(0, 2, 150)], r.integers(0, 2, 150)
    latent = 1.8 * (warm == "warm") + 0.9 * contact + r.logistic(size=150)
    return {"temp": warm, "contact": contact, "rating": np.array(["bad", "fair", "good", "best"])[np.digitize(latent, [-1, 1, 3])]}  # fmt: skip


def _penguins(r: Generator) -> Columns:
    species = r.integers(0, 3, 150)
    bill = np.array([38.8, 45.0, 47.5])[species] + r.normal(0, 3.5, 150)
    mass = np.array([3.7, 3.9, 4.9])[species] + r.normal(0, 0.5, 150)
    return {"species": np.array(["Adelie", "Chinstrap", "Gentoo"])[species], "bill": bill.round(1), "mass": mass.round(2)}  # fmt: skip


def _radon(r: Generator) -> Columns:
    county = np.r_[np.repeat(np.arange(40), 3), r.integers(0, 40, 280)]
    floor = (r.uniform(size=400) < 0.17).astype(int)
    y = r.normal(1.5, 0.35, 40)[county] - 0.65 * floor + r.normal(0, 0.75, 400)
    return {"log_radon": y, "floor": floor, "county": np.array([f"county {i}, MN" for i in range(40)])[county]}


def _sleepstudy(r: Generator) -> Columns:
    subject, days = np.repeat(np.arange(18), 10), np.tile(np.arange(10), 18)
    level, slope = r.multivariate_normal([251, 10.5], [[600, 40], [40, 36]], 18).T
    return {"reaction": level[subject] + slope[subject] * days + r.normal(0, 25, 180), "days": days, "subject": subject + 308}  # fmt: skip


def _pilots(r: Generator) -> Columns:
    group, scenario = np.repeat(np.arange(5), 48), np.tile(np.arange(8), 30)
    y = 0.4 + r.normal(0, 0.1, 5)[group] + r.normal(0, 0.35, 8)[scenario] + r.normal(0, 0.2, 240)
    return {"recovered": y, "group": np.array(list("ABCDE"))[group], "scenario": np.array([f"s{i}" for i in range(8)])[scenario]}  # fmt: skip


def _epilepsy(r: Generator) -> Columns:
    patient, visit = np.repeat(np.arange(60), 4), np.tile(np.arange(1, 5), 60)
    treated = (np.arange(60) % 2)[patient]
    mean = np.exp(1.5 - 0.3 * treated - 0.08 * visit + r.normal(0, 0.5, 60)[patient])
    return {"patient": np.array([f"p{i:02}" for i in range(60)])[patient], "visit": visit, "treated": treated, "seizures": r.poisson(mean)}  # fmt: skip


def _election(r: Generator) -> Columns:
    state, school, black = r.integers(0, 25, 800), r.integers(0, 4, 800), (r.uniform(size=800) < 0.1).astype(int)
    logit = 0.3 - 1.6 * black + r.normal(0, 0.4, 25)[state] + r.normal(0, 0.3, 4)[school]
    return {"bush": (r.uniform(size=800) < _expit(logit)).astype(int), "black": black, "state": state, "school": school}


def _dugongs(r: Generator) -> Columns:
    age = np.sort(r.uniform(1, 31.5, 27)).round(1)
    return {"age": age, "length": (2.65 - 0.97 * 0.87**age + r.normal(0, 0.09, 27)).round(3)}


def _lynx(r: Generator) -> Columns:
    y = np.zeros(160)
    for t in range(2, 160):
        y[t] = 0.4 + 1.1 * y[t - 1] - 0.5 * y[t - 2] + r.normal(0, 0.6)
    return {"y": y}


def _schools(r: Generator) -> Columns:
    del r
    return {"school": np.array(list("ABCDEFGH")), "effect": np.array([28, 8, -3, 7, -1, 1, 18, 12]), "error": np.array([15, 10, 16, 11, 9, 11, 10, 18])}  # fmt: skip


def _glm(formula: str, family: str = "normal", **more: Any) -> dict[str, Any]:
    return {"formula": formula, "family": family, **more}


_WIDE = {"intercept": "normal(0, 10)", "coefficients": "normal(0, 10)"}

TABLES: dict[str, Table] = {
    "kidiq": Table(_kidiq, "glm", _glm("score ~ hs * iq", priors=FLAT)),
    "earnings": Table(_earnings, "glm", _glm("log(earn) ~ height + male", priors=FLAT), form="feather"),
    "mesquite": Table(_mesquite, "glm", _glm("log(weight) ~ log(diam1) + log(diam2) + log(height) + group", priors=FLAT)),
    "sblr": Table(_sblr, "glm", _glm("y ~ 0 + features", priors={k: v for k, v in FLAT.items() if k != "intercept"}), {"fields": {"features": ["x*"], "y": "y"}}, "parquet"),
    "weighted": Table(_weighted, "glm", _glm("y ~ x + kind", weights="copies", priors=FLAT), form="jsonl"),
    "kilpisjarvi": Table(_kilpisjarvi, "glm", _glm("temp ~ year", priors=FLAT), {"rows": "good == 'yes'", "columns": ["year", "temp"], "missing": "drop"}, "tsv"),
    "wells": Table(_wells, "glm", _glm("switch ~ dist * arsenic", "bernoulli", priors=_WIDE), parts=3),
    "nes": Table(_nes, "glm", _glm("vote ~ income + race + age", "bernoulli")),
    "roaches": Table(_roaches, "glm", _glm("y ~ sqrt(before) + treated", "negative_binomial", offset="log_days")),
    "peregrine": Table(_peregrine, "glm", _glm("pairs ~ year + I(year**2) + I(year**3)", "poisson", priors=_WIDE)),
    "breeding success": Table(_success, "glm", _glm("fledged ~ year + I(year**2)", "binomial", trials="pairs"), form="tsv"),
    "claims": Table(_claims, "glm", _glm("cost ~ age + area", "gamma"), form="parquet", parts=2),
    "outliers": Table(_outliers, "glm", _glm("y ~ x", "student_t")),
    "wine": Table(_wine, "glm", _glm("rating ~ temp + contact", "ordinal", priors={"coefficients": "normal(0, 2)"}), {"levels": {"rating": ["bad", "fair", "good", "best"]}}),
    "penguins": Table(_penguins, "glm", _glm("species ~ bill + mass", "categorical", priors={"coefficients": "normal(0, 2)", "intercept": "normal(0, 5)"})),
    "radon": Table(_radon, "glm", _glm("log_radon ~ floor + (1 | county)"), form="parquet"),
    "sleepstudy": Table(_sleepstudy, "glm", _glm("reaction ~ days + (1 + days | subject)", centred=["subject"]), {"types": {"subject": "category"}}),
    "pilots": Table(_pilots, "glm", _glm("recovered ~ 1 + (1 | group) + (1 | scenario)", centred=["group", "scenario"]), form="jsonl"),
    "epilepsy": Table(_epilepsy, "glm", _glm("seizures ~ treated + visit + (1 | patient)", "poisson", local_group="patient"), {"types": {"visit": "number"}}, key="visit"),
    "election": Table(_election, "glm", _glm("bush ~ black + (1 | state) + (1 | school)", "bernoulli"), {"types": {"state": "category", "school": "category"}}),
    "dugongs": Table(_dugongs, "log_density", {"function": "tabular.own_functions:growth", "prior": {"top": "normal(2.5, 1)", "gap": "half_normal(2)", "rate": "beta(1, 1)", "sigma": "half_normal(1)"}}),
    "lynx": Table(_lynx, "log_density", {"function": "tabular.own_functions:autoregression", "prior": {"level": "normal(0, 2)", "lags": "normal(0, 1)[2]", "noise": "half_normal(2)"}}),
    "eight schools": Table(_schools, "log_density", {"function": "tabular.own_functions:schools", "prior": {"mean": "normal(0, 5)", "spread": "half_cauchy(5)", "standardised": "normal(0, 1)[8]"}, "axes": {"standardised": ["school"]}}),
    **FAMILY_TABLES,
}  # fmt: skip
"""Name -> table."""
