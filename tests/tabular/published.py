"""Tables that come with R packages of Debian, and German credit: the regressions on which `peers.py` compares samplers.

NumPy alone, because the other samplers read the same columns in an environment without the package. R reads its own files,
so `r-cran-lme4` and `r-cran-rstanarm` are needed; German credit comes from `BAYESMESH_MIRROR`.
"""

from __future__ import annotations

import csv
import functools
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tabular.base import Columns

R_PACKAGES = ("lme4", "rstanarm")
_TO_CSV = "a <- commandArgs(TRUE); data(list = a[2], package = a[1]); write.csv(get(a[2]), row.names = FALSE)"


class Published(NamedTuple):
    """A regression on a published table.

    Attributes:
        package: of R; None for German credit.
        data: name of the table in the package.
        formula: of `glm`.
        family: of `glm`.
        options: further options of `glm`.
        codes: columns of numbers that are names.
    """

    package: str | None
    data: str
    formula: str
    family: str = "normal"
    options: Mapping[str, Any] = {}
    codes: tuple[str, ...] = ()


PUBLISHED: dict[str, Published] = {
    "kidiq": Published("rstanarm", "kidiq", "kid_score ~ mom_hs * mom_iq"),
    "wells": Published("rstanarm", "wells", "switch ~ dist * arsenic + educ", "bernoulli"),
    "credit": Published(None, "german", "bad ~ " + " + ".join(f"x{i}" for i in range(1, 25)), "bernoulli"),
    "roaches": Published("rstanarm", "roaches", "y ~ sqrt(roach1) + treatment + senior", "negative_binomial", {"offset": "log_exposure2"}),
    "roaches, poisson": Published("rstanarm", "roaches", "y ~ sqrt(roach1) + treatment + senior", "poisson", {"offset": "log_exposure2"}),
    "radon": Published("rstanarm", "radon", "log_radon ~ floor + log_uranium + (1 | county)"),
    "radon, slopes": Published("rstanarm", "radon", "log_radon ~ floor + (1 + floor | county)"),
    "biliary cirrhosis": Published("rstanarm", "pbcLong", "logBili ~ sex + trt + year + (1 + year | id)", codes=("id",)),
    "baseball 1970": Published("rstanarm", "bball1970", "Hits ~ 1 + (1 | Player)", "binomial", {"trials": "AB"}),
    "baseball 2006": Published("rstanarm", "bball2006", "y ~ 1 + (1 | number)", "binomial", {"trials": "K"}, ("number",)),
    "tumours": Published("rstanarm", "tumors", "y ~ 1 + (1 | number)", "binomial", {"trials": "K"}, ("number",)),
    "sleepstudy": Published("lme4", "sleepstudy", "Reaction ~ Days + (1 + Days | Subject)", codes=("Subject",)),
    "dyestuff": Published("lme4", "Dyestuff", "Yield ~ 1 + (1 | Batch)"),
    "penicillin": Published("lme4", "Penicillin", "diameter ~ 1 + (1 | plate) + (1 | sample)"),
    "pastes": Published("lme4", "Pastes", "strength ~ 1 + (1 | batch) + (1 | sample)"),
    "cake": Published("lme4", "cake", "angle ~ recipe + temp + (1 | replicate)", codes=("replicate",)),
    "pleuropneumonia": Published("lme4", "cbpp", "incidence ~ period + (1 | herd)", "binomial", {"trials": "size"}, ("herd", "period")),
    "grouse ticks": Published("lme4", "grouseticks", "TICKS ~ YEAR + cHEIGHT + (1 | BROOD) + (1 | LOCATION)", "poisson", codes=("YEAR", "BROOD", "LOCATION")),
    "arabidopsis": Published("lme4", "Arabidopsis", "total_fruits ~ nutrient + amd + (1 | gen) + (1 | popu)", "negative_binomial", codes=("gen",)),
    "verbal aggression": Published("lme4", "VerbAgg", "r2 ~ Anger + Gender + btype + situ + (1 | id) + (1 | item)", "bernoulli", codes=("id",)),
}  # fmt: skip
"""Name -> regression."""


@functools.cache
def columns_of(name: str) -> Columns:
    """Return the columns of a table, those of R without gaps, with ``_`` for ``.`` in names; `number` counts rows.

    Raises:
        SystemExit: a package of R, or the folder of German credit, is missing.
    """
    package, data = PUBLISHED[name][:2]
    text = _credit() if package is None else _from_r(package, data)
    names, *rows = csv.reader(text.splitlines())
    columns = {key.replace(".", "_"): _parsed(own) for key, *own in zip(names, *rows, strict=True) if "NA" not in own}
    if data == "roaches":
        columns["log_exposure2"] = np.log(columns["exposure2"])
    return columns | {"number": np.arange(len(rows))}


def _from_r(package: str, data: str) -> str:
    try:
        return subprocess.run(["Rscript", "--vanilla", "-e", _TO_CSV, package, data], capture_output=True, text=True, check=True).stdout  # fmt: skip
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        needed = " ".join(f"r-cran-{each}" for each in R_PACKAGES)
        raise SystemExit(f"R does not find '{data}' of {package}: install the packages {needed}") from error


def _credit() -> str:
    mirror = os.environ.get("BAYESMESH_MIRROR")
    if mirror is None:
        raise SystemExit("German credit: BAYESMESH_MIRROR names no folder")
    rows = (Path(mirror) / "german_credit" / "german_numeric_1000x25.csv").read_text().splitlines()
    named = [",".join([*row.split(",")[:-1], str(int(row.split(",")[-1]) - 1)]) for row in rows]
    return "\n".join([",".join([*(f"x{i}" for i in range(1, 25)), "bad"]), *named])


def _parsed(values: list[str]) -> np.ndarray:
    """Return integers, floating-point numbers or text, whichever all values are."""
    for dtype in (int, float):
        try:
            return np.array(values).astype(dtype)
        except ValueError:
            continue
    return np.array(values)
