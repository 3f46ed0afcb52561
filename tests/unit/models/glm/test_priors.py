"""A default prior that forbids what the data say is named, in every family; right models raise no alarm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bayesmesh.config.registry import options_class
from bayesmesh.data.base import DataSpec, FieldSpec, Variable
from bayesmesh.data.views import prepare_rows
from bayesmesh.errors import ConfigError
from bayesmesh.models.glm.model import Glm
from bayesmesh.sampling.checks.model import check_described

LEVELS = ("none", "few", "some", "many")
NUM_ROWS = 160


def model_of(formula: str, columns: Any, family: str = "normal", dtype: str = "float64", **options: Any) -> Glm:
    """Return a model bound to columns; text is a category whose levels have an order."""
    levels = {k: LEVELS if k == "level" else tuple(np.unique(v)) for k, v in columns.items() if v.dtype.kind == "U"}
    codes = {k: np.array([each.index(x) for x in columns[k]], np.int32) for k, each in levels.items()}
    variables = {k: Variable("category", levels=levels[k], is_ordered=True) if k in levels else Variable("number") for k in columns}  # fmt: skip
    rows = {**columns, **codes}
    fields = {k: FieldSpec(v.shape[1:], v.dtype.name) for k, v in rows.items()}
    spec = DataSpec(len(columns["year"]), fields, {}, dtype, variables=variables)
    own = options_class("model", "glm")(formula=formula, family=family, **options)
    prepared, _ = prepare_rows(lambda s, read: Glm.prepare(own, s, read), spec, rows)
    return Glm(own, prepared)


def warnings_of(formula: str, columns: Any, family: str = "normal", **options: Any) -> tuple[str, ...]:
    return check_described(model_of(formula, columns, family, **options)).warnings


def table(seed: int) -> dict[str, np.ndarray]:
    """Return outcomes of all families that rise and fall over the years."""
    random = np.random.default_rng(seed)
    year = random.integers(1990, 2021, NUM_ROWS)
    z, one = (year - 2005) / 9.0, np.ones(NUM_ROWS)
    curve = 1 + 0.5 * z - 2 * z**2
    share = 1 / (1 + np.exp(-curve))
    return {
        "year": year, "z": z, "w": z + random.normal(0, 1e-3, NUM_ROWS), "x": random.normal(50, 10, NUM_ROWS),
        "site": np.array(list("aaaaabbbc"))[random.integers(0, 9, NUM_ROWS)],
        "rare": np.where(np.arange(NUM_ROWS) == 5, "rare", "common"),
        "y": curve + random.normal(0, 0.5, NUM_ROWS), "up": (random.uniform(size=NUM_ROWS) < share).astype(int),
        "tries": np.full(NUM_ROWS, 9), "hits": random.binomial(9, share), "count": random.poisson(np.exp(curve)),
        "cost": np.exp(curve) * random.gamma(3, 1 / 3, NUM_ROWS), "sign": (z > 0).astype(int), "one": one,
        "level": np.array(LEVELS)[np.digitize(2 * curve + random.logistic(size=NUM_ROWS), [-4, -1, 1])],
    }  # fmt: skip


FAMILIES = {
    "normal": "y", "student_t": "y", "bernoulli": "up", "binomial": "hits", "poisson": "count",
    "negative_binomial": "count", "gamma": "cost", "categorical": "level", "ordinal": "level",
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_a_curvature_that_the_prior_forbids_is_named_with_what_to_set(family: str) -> None:
    columns, options = table(0), {"trials": "tries"} if family == "binomial" else {}
    outcome = FAMILIES[family]
    (warning,) = warnings_of(f"{outcome} ~ year + I(year^2)", columns, family, **options)
    assert "'I(year ^ 2)' has a prior standard deviation of " in warning
    assert 'standardise: ["year"]' in warning
    assert 'priors: {"' in warning
    for right in ("z + I(z^2)", "year", "year + I((year - 2005)^2)"):
        assert warnings_of(f"{outcome} ~ {right}", columns, family, **options) == ()
    assert warnings_of(f"{outcome} ~ year + I(year^2)", columns, family, priors={"coefficients": "normal(0, 200)"}, **options) == ()  # fmt: skip


def test_a_coefficient_that_float32_cannot_hold_is_refused() -> None:
    columns = table(0) | {"time": 1e9 * np.linspace(1.5e9, 1.6e9, NUM_ROWS)}

    def prior_of(dtype: str) -> object:
        model = model_of("y ~ I(time^3)", columns, dtype=dtype)
        return model.prior(model.spec)

    with pytest.raises(ConfigError, match=r"'I\(time \^ 3\)' has a standard deviation of .*float32") as caught:
        prior_of("float32")
    assert "'data.standardise'" in caught.value.remedy
    prior_of("float64")


def test_slopes_of_a_column_far_from_zero_are_named_with_how_to_centre_it() -> None:
    columns, sigma = table(0), {"sigma": {"formula": "~ year + (1 + year | site)"}}
    (warning,) = warnings_of("y ~ year + (1 + year | site)", columns)
    assert "the default prior of sd_site nearly excludes that slopes of 'year' differ" in warning
    assert 'standardise: ["year"]' in warning
    assert "I(year - 200" in warning
    (of_sigma,) = warnings_of("y ~ year", columns, parameters=sigma)
    assert of_sigma.startswith("key 'model.parameters.sigma': the default prior of sigma_sd_site")
    given = {"sd_site": "exponential(1)"}
    assert warnings_of("y ~ year + (1 + year | site)", columns, priors=given) == ()
    for right in ("x + (1 + x | site)", "rare + (1 + rare | site)", "I(year - 2005) + (1 + I(year - 2005) | site)"):
        assert warnings_of(f"y ~ {right}", columns) == ()
